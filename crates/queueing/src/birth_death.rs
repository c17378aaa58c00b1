//! Birth-death chains from their rates, and the long-run law of their states.
//!
//! Source of all: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.

use crate::error::{QueueError, Result, positive, zero_or_more};

/// Most states of a chain that is listed state by state.
pub const MAX_STATES: u64 = 10_000_000;

/// A birth-death chain on the states 0 to n in its long run.
///
/// # Examples
///
/// ```
/// use queueing::BirthDeath;
///
/// // Two machines that fail once an hour, and one mechanic who mends two an hour.
/// let chain = BirthDeath::new(&[2.0, 1.0], &[2.0, 2.0])?;
/// assert!((chain.pn(2) - 0.2).abs() < 1e-15); // 1 : 1 : 1/2
/// assert!((chain.mean() - 0.8).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BirthDeath {
    states: Vec<f64>,
}

impl BirthDeath {
    /// The chain that goes from state n to n + 1 at the rate `births[n]` and from n + 1 to n at
    /// `deaths[n]`.
    ///
    /// Both lists are as long as there are steps, at most 10^7; without steps the only state is 0.
    /// A birth rate of 0 cuts off what is above it.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if the lists differ in length or are too long, unless births are from 0 and
    /// deaths from 1e-50 to 1e50.
    pub fn new(births: &[f64], deaths: &[f64]) -> Result<Self> {
        let n = births.len();
        if n != deaths.len() {
            let reason = format!(
                "births and deaths must have one rate for each step, got {n} and {}",
                deaths.len()
            );
            return Err(QueueError::NoSolution { reason });
        }
        if MAX_STATES as f64 <= n as f64 {
            let expected = "at most 9999999 steps";
            return Err(QueueError::OutOfRange { name: "births", value: n as f64, expected });
        }
        let mut ratios = Vec::with_capacity(n);
        for (&birth, &death) in births.iter().zip(deaths) {
            ratios.push(zero_or_more("births", birth)? / positive("deaths", death)?);
        }
        Ok(Self::from_ratios(&ratios))
    }

    /// From the ratios of the probabilities of neighbouring states, each from 0 to 1e100.
    pub(crate) fn from_ratios(ratios: &[f64]) -> Self {
        // Everything relative to the likeliest state, so that no product of ratios overflows:
        // whenever the running product passes 1, it becomes the new unit.
        let mut peak = 0;
        let mut product = 1.0;
        for (i, ratio) in ratios.iter().enumerate() {
            product *= ratio;
            if 1.0 < product {
                (peak, product) = (i + 1, 1.0);
            }
            if product == 0.0 && ratio == &0.0 {
                break;
            }
        }
        let mut states = vec![0.0; ratios.len() + 1];
        states[peak] = 1.0;
        for i in peak..ratios.len() {
            states[i + 1] = states[i] * ratios[i];
        }
        for i in (0..peak).rev() {
            states[i] = states[i + 1] / ratios[i];
        }
        // From both ends inwards, the small ones first.
        let total: f64 =
            states[..peak].iter().sum::<f64>() + states[peak..].iter().rev().sum::<f64>();
        for p in &mut states {
            *p /= total;
        }
        Self { states }
    }

    /// Probability of state `n`: 0 above the last.
    #[must_use]
    pub fn pn(&self, n: u64) -> f64 {
        usize::try_from(n).ok().and_then(|n| self.states.get(n)).copied().unwrap_or(0.0)
    }

    /// The probabilities of all states, from 0 on.
    #[must_use]
    pub fn states(&self) -> &[f64] {
        &self.states
    }

    /// Mean state.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.expect(|n| n)
    }

    /// Variance of the state.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        self.expect(|n| (n - mean) * (n - mean))
    }

    /// Mean of a function of the state, for example of the rate at which work is done in it.
    #[must_use]
    pub fn expect(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.states
            .iter()
            .enumerate()
            .map(|(n, p)| if *p == 0.0 { 0.0 } else { p * f(n as f64) })
            .sum()
    }
}
