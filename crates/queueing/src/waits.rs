//! Waiting times of M/M/c, first come first served, for any number of servers.

use crate::error::{QueueError, Result, not_negative, probability};
use crate::numeric::decay_mean;

/// Iterations after which the response quantile gives up; it needs about ten.
const ITERATIONS: u32 = 200;

/// The wait is 0 with probability `no_wait`, else exponential with rate `spare`; the service that
/// follows is exponential with rate `mu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waits {
    /// Erlang C.
    pub(crate) wait: f64,
    /// 1 − Erlang C, with all its digits where C is near 1.
    pub(crate) no_wait: f64,
    /// c μ − λ.
    pub(crate) spare: f64,
    /// μ.
    pub(crate) mu: f64,
    /// |c μ − λ − μ|, rounded once: the two rates may be nearly alike.
    pub(crate) apart: f64,
}

impl Waits {
    pub(crate) fn wq_sf(&self, t: f64) -> Result<f64> {
        let t = not_negative("t", t)?;
        Ok(self.wait * (-self.spare * t).exp())
    }

    pub(crate) fn wq_cdf(&self, t: f64) -> Result<f64> {
        let t = not_negative("t", t)?;
        Ok(self.no_wait - self.wait * (-self.spare * t).exp_m1())
    }

    pub(crate) fn wq_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let rest = 1.0 - p;
        if self.wait == 0.0 {
            return Ok(0.0);
        }
        // Near 1, the ratio wait / rest takes its logarithm from the difference, in whichever
        // form has its digits.
        let ratio = self.wait / rest;
        let above = if p < 0.5 { p - self.no_wait } else { self.wait - rest };
        let log = if ratio < 2.0 { (above / rest).ln_1p() } else { ratio.ln() };
        // Negative up to p = 1 − C: the jobs that do not wait.
        Ok(log.max(0.0) / self.spare)
    }

    /// The time scale of the slower of the two exponential stages, as its rate.
    fn slower(&self) -> f64 {
        self.mu.min(self.spare)
    }

    /// t · e^(−slower · t) · (1 − e^(−apart · t)) / (apart · t): the convolution of both stages,
    /// without a difference of nearly equal terms.
    fn both(&self, t: f64) -> f64 {
        t * (-self.slower() * t).exp() * decay_mean(self.apart * t)
    }

    fn response_sf(&self, t: f64) -> f64 {
        if 800.0 < self.slower() * t {
            return 0.0; // below the smallest f64, and mu * t may overflow
        }
        ((-self.mu * t).exp() + self.wait * self.mu * self.both(t)).min(1.0)
    }

    /// Its density.
    fn response_density(&self, t: f64) -> f64 {
        self.mu * (self.no_wait * (-self.mu * t).exp() + self.wait * self.spare * self.both(t))
    }

    fn response_cdf(&self, t: f64) -> f64 {
        let sf = self.response_sf(t);
        if sf < 0.5 {
            return 1.0 - sf;
        }
        self.no_wait * -(-self.mu * t).exp_m1() + self.wait * self.both_cdf(t)
    }

    /// Probability that both stages together end by `t`.
    fn both_cdf(&self, t: f64) -> f64 {
        let (slow, fast) = (self.slower() * t, self.mu.max(self.spare) * t);
        if 1.0 < fast {
            return (-(-slow).exp_m1() - self.slower() * self.both(t)).max(0.0);
        }
        // Both terms above are about slow · fast / 2 apart. Term n of the series is
        // (−1)^n slow · fast · h / n!, where h sums slow^i · fast^(n − 2 − i).
        let (mut sum, mut homogeneous, mut power, mut factorial, mut n) = (0.0, 1.0, 1.0, 2.0, 2.0);
        loop {
            let term: f64 = homogeneous / factorial;
            sum += term;
            if term.abs() <= 1e-17 * sum {
                return slow * fast * sum;
            }
            n += 1.0;
            power *= slow;
            homogeneous = homogeneous * fast + power;
            factorial *= -n;
        }
    }

    pub(crate) fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_sf(t))
    }

    pub(crate) fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_cdf(t))
    }

    /// Newton's method on the logarithm of the smaller tail, kept inside a shrinking bracket.
    pub(crate) fn w_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        if p == 0.0 {
            return Ok(0.0);
        }
        let rest = 1.0 - p;
        if rest == 0.0 {
            return Ok(f64::INFINITY);
        }
        if p < 1e-250 {
            // Only jobs without a wait come so early; the search below would pass subnormal times.
            return Ok(p / (self.mu * self.no_wait));
        }
        // The response takes at least the service and at least the wait, and at most what both
        // take when each may be late with half the probability.
        let service = |late: f64| -late.ln() / self.mu;
        let wait = |late: f64| (self.wait / late).ln().max(0.0) / self.spare;
        let mut low = (-(-p).ln_1p() / self.mu).max(wait(rest)) * (1.0 - 1e-12);
        let mut high = (service(0.5 * rest) + wait(0.5 * rest)) * (1.0 + 1e-12);
        let early = p < 0.5;
        let mut t = low;
        let mut residual = 1.0;
        for _ in 0..ITERATIONS {
            // `error` has the sign of t − quantile; in logarithms both tails are nearly straight.
            let (tail, goal) =
                if early { (self.response_cdf(t), p) } else { (self.response_sf(t), rest) };
            let error = if early { (tail / goal).ln() } else { -(tail / goal).ln() };
            if error <= 0.0 {
                low = t;
            }
            if 0.0 <= error {
                high = t;
            }
            let mut next = t - error * tail / self.response_density(t);
            let newton = low <= next && next <= high;
            if !newton {
                next = if 0.0 < low { low.sqrt() * high.sqrt() } else { 0.5 * high };
            }
            residual = (next - t).abs() / next;
            t = next;
            // Newton's method squares the error: after a step this small nothing is left of it.
            if newton && residual <= 1e-10 || high <= low {
                return Ok(t);
            }
        }
        Err(QueueError::NotConverged { name: "w_quantile", iterations: ITERATIONS, residual })
    }
}
