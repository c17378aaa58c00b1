//! A time that is passed in jumps of a Poisson clock (uniformization).

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index is at most the length of the list"
)]

use crate::error::{QueueError, Result, probability};
use crate::numeric::poisson;
use crate::search::root;

/// Jumps after which a small chain's tail must have settled.
pub(crate) const JUMPS: u32 = 200_000;

/// A phase-type tail: the mass left after each jump of a clock with the rate `clock`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tail {
    clock: f64,
    left: Vec<f64>,
    gone: Vec<f64>,
    /// By what the mass falls from the last listed one on.
    factor: f64,
}

impl Tail {
    /// From a clock's rate, the mass at its start and what is gone then, and what a jump leaves and
    /// takes.
    ///
    /// It ends where the masses fall by the same factor for forty jumps, or where less than `enough`
    /// is left: the last factor goes on from there.
    ///
    /// # Errors
    ///
    /// [`QueueError::NotConverged`] after `jumps` of them.
    pub(crate) fn of_jumps(
        clock: f64,
        (mut total, mut absorbed): (f64, f64),
        enough: f64,
        jumps: u32,
        mut jump: impl FnMut() -> (f64, f64),
    ) -> Result<Self> {
        let (mut left, mut gone) = (Vec::new(), Vec::new());
        let (mut factor, mut same) = (0.0, 0);
        for _ in 0..jumps {
            let before: f64 = left.last().copied().unwrap_or(0.0);
            left.push(total);
            gone.push(absorbed);
            if total < f64::MIN_POSITIVE {
                return Ok(Self { clock, left, gone, factor: 0.0 });
            }
            let ratio = if 0.0 < before { total / before } else { 0.0 };
            same = if f64::abs(ratio - factor) <= 2.5e-16 { same + 1 } else { 0 };
            factor = ratio;
            // Before anything can be gone the ratio is 1 but for rounding, which is no factor.
            if 40 <= same && ratio < 1.0 - 1e-12 {
                // One step's ratio has its rounding; the mean of many has less.
                let k = left.len() - 1;
                let mean = ((left[k] / left[k - 32]).ln() / 32.0).exp();
                return Ok(Self { clock, left, gone, factor: mean });
            }
            if total < enough && ratio < 1.0 {
                return Ok(Self { clock, left, gone, factor });
            }
            let taken;
            (total, taken) = jump();
            absorbed += taken;
        }
        Err(QueueError::NotConverged { name: "tail", iterations: jumps, residual: total })
    }

    /// Mean time until the end: the clock ticks once per jump that leaves something.
    pub(crate) fn mean(&self) -> f64 {
        let last = self.left[self.left.len() - 1];
        let listed: f64 = self.left.iter().rev().sum();
        (listed + last * self.factor / (1.0 - self.factor)) / self.clock
    }

    fn at(&self, k: f64) -> (f64, f64) {
        let last = (self.left.len() - 1) as f64;
        if k <= last {
            return (self.left[k as usize], self.gone[k as usize]);
        }
        // What is gone adds up: 1 − left would be below 0 where the mass is all there, but for
        // rounding.
        let (left, gone) = (self.left[self.left.len() - 1], self.gone[self.gone.len() - 1]);
        let stays = self.factor.powf(k - last);
        (left * stays, gone + left * (1.0 - stays))
    }

    /// Survival and distribution function.
    pub(crate) fn late(&self, t: f64) -> (f64, f64) {
        let jumps = (self.clock * t).min(1e300);
        let last = (self.left.len() - 1) as f64;
        // Fewer than half the jumps are as rare as e^(−0.15 jumps), and so many leave less than that.
        if 4.0 * last + 1e4 < jumps && self.factor < 0.5 {
            return (0.0, 1.0); // below e^(−1500)
        }
        let tilted = jumps * self.factor;
        if last + 12.0 * tilted.sqrt() + 60.0 < tilted {
            let slow = (-jumps * (1.0 - self.factor) - last * self.factor.ln()).exp();
            let left = self.left[self.left.len() - 1] * slow;
            return (left.min(1.0), (1.0 - left).max(0.0));
        }
        let mode = jumps.floor();
        let at_mode = poisson(mode, jumps);
        let (mut sf, mut cdf) = (0.0, 0.0);
        let (mut p, mut k) = (at_mode, mode);
        loop {
            let (left, gone) = self.at(k);
            sf += p * left;
            cdf += p * gone;
            k += 1.0;
            p *= jumps / k;
            if p <= 1e-18 * cdf.min(1.0) || p == 0.0 {
                break;
            }
        }
        (p, k) = (at_mode, mode);
        while 0.0 < k {
            p *= k / jumps;
            k -= 1.0;
            let (left, gone) = self.at(k);
            sf += p * left;
            cdf += p * gone;
            if p <= 1e-18 * sf && p * gone <= 1e-18 * cdf {
                break;
            }
        }
        (sf.min(1.0), cdf.min(1.0))
    }

    pub(crate) fn quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let rest = 1.0 - p;
        if p <= self.gone[0] || self.left[0] <= rest {
            return Ok(0.0);
        }
        if rest == 0.0 {
            return Ok(f64::INFINITY);
        }
        let error = |t: f64| {
            let (sf, cdf) = self.late(t / self.clock);
            if p < 0.5 { (cdf / p).ln() } else { (rest / sf).ln() }
        };
        Ok(root("quantile", error, 0.0, 1.0)? / self.clock)
    }
}
