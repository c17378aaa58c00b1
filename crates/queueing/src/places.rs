//! Waits in a queue where an arrival may find any of finitely many places, first come first served.
//!
//! With all `c` servers busy, services end at the rate c μ. Seen at these epochs, the wait of a
//! job with `j` others before it lasts j + 1 of them, and each later one is the job's own with
//! probability 1 / c. Every probability below is a Poisson mean over the number of epochs in `t`
//! with positive terms, so that nothing cancels, whatever ρ is.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers that are cast are whole, and a list that long was made"
)]

use crate::error::{Result, not_negative, probability};
use crate::numeric::{
    geometric_mean_place, geometric_sum, geometric_var_place, ln_of, poisson_mean, quantile,
};

/// What an arrival that has to wait finds, given that it waits.
pub(crate) trait Places {
    /// Number of places.
    fn len(&self) -> f64;
    /// Probability that `i` jobs or more are before it, for i from 0 on.
    fn tail(&self, i: f64) -> f64;
    /// Probability that fewer than `i` are.
    fn below(&self, i: f64) -> f64;
    /// Probability that it is in service after `i` epochs, from 1 on.
    fn in_service(&self, i: f64) -> f64;
    /// Share of the epochs that are one job's own, 1 / c.
    fn own(&self) -> f64;
    /// Mean and variance of the number of jobs before it.
    fn ahead(&self) -> (f64, f64);

    /// Probability that it has left after `i` epochs, from 2 on.
    fn done(&self, i: f64) -> f64 {
        if 64.0 < i {
            return (self.below(i) - self.in_service(i)).max(0.0);
        }
        // The difference has few digits here: what leaves at each epoch instead.
        let mut sum = 0.0;
        let mut k = 1.0;
        while k < i {
            sum += self.in_service(k);
            k += 1.0;
        }
        sum * self.own()
    }
}

/// Places of geometric probability: those of M/M/c/K.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Geometric {
    /// Number of places, K − c.
    pub(crate) n: f64,
    pub(crate) rho: f64,
    /// 1 − ρ.
    pub(crate) idle: f64,
    /// 1 / c.
    pub(crate) own: f64,
    /// ρ − (1 − 1/c), rounded once.
    pub(crate) apart: f64,
}

impl Geometric {
    /// Σ ρ^j from j = 0 to below `n`, divided by ρ^(n − 1) where ρ is above 1.
    fn scaled_sum(&self, n: f64) -> f64 {
        if 0.0 <= self.idle {
            geometric_sum(self.rho, self.idle, n)
        } else {
            geometric_sum(1.0 / self.rho, -self.idle / self.rho, n)
        }
    }

    fn power(&self, n: f64) -> f64 {
        if n == 0.0 { 1.0 } else { (n * ln_of(self.rho, self.idle)).exp() }
    }
}

impl Places for Geometric {
    fn len(&self) -> f64 {
        self.n
    }

    fn tail(&self, i: f64) -> f64 {
        if self.n <= i {
            return 0.0;
        }
        let part = self.scaled_sum(self.n - i) / self.scaled_sum(self.n);
        if 0.0 <= self.idle { self.power(i) * part } else { part }
    }

    fn below(&self, i: f64) -> f64 {
        if self.n <= i {
            return 1.0;
        }
        if i == 0.0 {
            return 0.0;
        }
        let part = self.scaled_sum(i) / self.scaled_sum(self.n);
        if 0.0 <= self.idle { part } else { self.power(i - self.n) * part }
    }

    fn in_service(&self, i: f64) -> f64 {
        if i < 1.0 {
            return 0.0;
        }
        // Σ ρ^j σ^(i − 1 − j) for j from 0 to below n, with σ = 1 − 1/c.
        let n = i.min(self.n);
        let sigma = 1.0 - self.own;
        if sigma == 0.0 {
            let last = if self.n < i { 0.0 } else { self.power(i - 1.0) };
            return last / geometric_sum(self.rho, self.idle, self.n);
        }
        let ln_rho = ln_of(self.rho, self.idle);
        let ln_sigma = (-self.own).ln_1p();
        let (ln_more, ratio_idle) = if 0.0 <= self.apart {
            (ln_rho, self.apart / self.rho)
        } else {
            (ln_sigma, -self.apart / sigma)
        };
        let sum = geometric_sum(1.0 - ratio_idle, ratio_idle, n);
        let power = (n - 1.0) * ln_more + (i - n) * ln_sigma;
        let scale = if self.idle < 0.0 { (self.n - 1.0) * ln_rho } else { 0.0 };
        (power - scale).exp() * sum / self.scaled_sum(self.n)
    }

    fn own(&self) -> f64 {
        self.own
    }

    fn ahead(&self) -> (f64, f64) {
        let Self { n, rho, idle, .. } = *self;
        if 0.0 <= idle {
            return (geometric_mean_place(rho, idle, n), geometric_var_place(rho, idle, n));
        }
        // Counted from the other end.
        let (r, r_idle) = (1.0 / rho, -idle / rho);
        let mean = (n - 1.0 - geometric_mean_place(r, r_idle, n)).max(0.0);
        (mean, geometric_var_place(r, r_idle, n))
    }
}

/// Places of any probability, listed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    tail: Vec<f64>,
    below: Vec<f64>,
    in_service: Vec<f64>,
    own: f64,
}

impl Listed {
    /// From the probabilities of 0, 1, … jobs before it, which add up to 1, and 1 / c.
    pub(crate) fn new(places: &[f64], own: f64) -> Self {
        let mut tail = vec![0.0; places.len() + 1];
        for (i, p) in places.iter().enumerate().rev() {
            tail[i] = tail[i + 1] + p;
        }
        let (mut below, mut in_service) = (vec![0.0], vec![0.0]);
        let (mut sum, mut serving) = (0.0, 0.0);
        for p in places {
            sum += p;
            serving = serving * (1.0 - own) + p;
            below.push(sum.min(1.0));
            in_service.push(serving);
        }
        Self { tail, below, in_service, own }
    }

    fn at(list: &[f64], i: f64) -> Option<f64> {
        list.get(i as usize).copied()
    }
}

impl Places for Listed {
    fn len(&self) -> f64 {
        self.tail.len() as f64 - 1.0
    }
    fn tail(&self, i: f64) -> f64 {
        Self::at(&self.tail, i).unwrap_or(0.0)
    }
    fn below(&self, i: f64) -> f64 {
        Self::at(&self.below, i).unwrap_or(1.0)
    }
    fn in_service(&self, i: f64) -> f64 {
        Self::at(&self.in_service, i).unwrap_or_else(|| {
            let last = self.in_service[self.in_service.len() - 1];
            last * (1.0 - self.own).powf(i - self.len())
        })
    }
    fn own(&self) -> f64 {
        self.own
    }
    fn ahead(&self) -> (f64, f64) {
        // Sums of tails: E[j] = Σ P(j >= i), E[j²] = Σ (2 i − 1) P(j >= i).
        let mean: f64 = self.tail.iter().skip(1).sum();
        let var: f64 = self
            .tail
            .windows(2)
            .enumerate()
            .map(|(i, pair)| (i as f64 - mean) * (i as f64 - mean) * (pair[0] - pair[1]))
            .sum();
        (mean, var.max(0.0))
    }
}

/// The line that an arrival joins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line<P> {
    pub(crate) places: P,
    /// Probability that it waits.
    pub(crate) wait: f64,
    /// Probability that it does not.
    pub(crate) no_wait: f64,
    /// Service rate of one server.
    pub(crate) mu: f64,
    /// Service rate of all.
    pub(crate) all: f64,
    /// Mean response time.
    pub(crate) w: f64,
}

impl<P: Places> Line<P> {
    fn waits(&self) -> bool {
        0.0 < self.wait && 0.0 < self.places.len()
    }

    /// Whether `t` is so long that every tail is below what `f64` holds: fewer than half of the
    /// epochs expected come with probability e^(−0.15 c μ t), and more leave e^(−μ t / 4).
    fn is_over(&self, t: f64) -> bool {
        4.0 * self.places.len() + 1e4 < self.all * t && 3000.0 < self.mu * t
    }

    fn late(&self, t: f64) -> f64 {
        if !self.waits() || self.is_over(t) {
            return 0.0;
        }
        let places = &self.places;
        (self.wait * poisson_mean(self.all * t, 0.0, places.len(), |i| places.tail(i))).min(1.0)
    }

    fn early(&self, t: f64) -> f64 {
        let late = self.late(t);
        if late < 0.5 || !self.waits() {
            return 1.0 - late;
        }
        let places = &self.places;
        let soon = poisson_mean(self.all * t, 1.0, f64::INFINITY, |i| places.below(i));
        (self.no_wait + self.wait * soon).min(1.0)
    }

    fn response_late(&self, t: f64) -> f64 {
        let mut sf = self.no_wait * (-self.mu * t).exp();
        if self.waits() && !self.is_over(t) {
            let places = &self.places;
            let serving = poisson_mean(self.all * t, 1.0, f64::INFINITY, |i| places.in_service(i));
            sf += self.late(t) + self.wait * serving;
        }
        sf.min(1.0)
    }

    fn response_early(&self, t: f64) -> f64 {
        let late = self.response_late(t);
        if late < 0.5 {
            return 1.0 - late;
        }
        let mut cdf = self.no_wait * -(-self.mu * t).exp_m1();
        if self.waits() {
            let places = &self.places;
            cdf += self.wait * poisson_mean(self.all * t, 2.0, f64::INFINITY, |i| places.done(i));
        }
        cdf.min(1.0)
    }

    /// Variance of the wait: j + 1 services of all servers together where j jobs are before it.
    pub(crate) fn var_wq(&self) -> f64 {
        if !self.waits() {
            return 0.0;
        }
        let (mean, var) = self.places.ahead();
        let wait = (mean + 1.0) / self.all;
        let spread = (var + mean + 1.0) / self.all / self.all;
        self.wait * spread + self.wait * self.no_wait * wait * wait
    }

    /// Variance of the response time: the service is independent of the wait.
    pub(crate) fn var_w(&self) -> f64 {
        self.var_wq() + 1.0 / self.mu / self.mu
    }

    pub(crate) fn wq_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.late(t))
    }

    pub(crate) fn wq_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.early(t))
    }

    pub(crate) fn wq_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        if !self.waits() {
            return Ok(0.0);
        }
        let scale = 1.0 / self.all;
        quantile("wq_quantile", p, self.no_wait, scale, |t| self.early(t), |t| self.late(t))
    }

    pub(crate) fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_late(t))
    }

    pub(crate) fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_early(t))
    }

    pub(crate) fn w_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let (cdf, sf) = (|t| self.response_early(t), |t| self.response_late(t));
        quantile("w_quantile", p, 0.0, self.w, cdf, sf)
    }
}
