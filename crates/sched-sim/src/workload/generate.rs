//! Seeded workloads: Poisson arrivals with lognormal lengths.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::{Workload, WorkloadRequest};

/// Token counts with a lognormal distribution, rounded to whole tokens.
///
/// The logarithm of a length is normal with mean ln(`median`) and standard deviation `sigma`, so
/// that the mean is median · exp(sigma² / 2). Lengths outside `min` to `max` are moved to that
/// bound, which is part of the distribution and stated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormalLengths {
    /// The length that half of the requests exceed.
    pub median: f64,
    /// The standard deviation of the logarithm; 0 makes all lengths the same.
    pub sigma: f64,
    /// The smallest length.
    pub min: u64,
    /// The largest length.
    pub max: u64,
}

impl LogNormalLengths {
    fn check(&self, input: &'static str) -> Result<()> {
        let max_bound = "at least min and at most 4294967295";
        let max_good = self.min <= self.max && self.max <= Workload::LARGEST_TOKENS;
        for (name, value, bound, good) in [
            (
                "median",
                self.median,
                "above 0 and below 1e9",
                0.0 < self.median && self.median < 1e9,
            ),
            ("sigma", self.sigma, "from 0 to 10", 0.0 <= self.sigma && self.sigma <= 10.0),
            ("min", self.min as f64, "at least 1", 1 <= self.min),
            ("max", self.max as f64, max_bound, max_good),
        ] {
            if !good {
                return Err(SimError::Parameter { input: format!("{input}.{name}"), bound, value });
            }
        }
        Ok(())
    }

    fn sample(&self, rng: &mut Pcg64) -> u64 {
        let z: f64 = StandardNormal.sample(rng);
        let length = (self.median.ln() + self.sigma * z).exp().round();
        // A float-to-integer cast saturates, and the bounds hold the rest.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let length = length as u64;
        length.clamp(self.min, self.max)
    }
}

/// Poisson arrivals with lognormal prompt and answer lengths, from one seed.
///
/// Arrivals, prompts and answers come from random streams of their own: changing the rate leaves
/// every length as it was, and changing one length leaves the arrivals and the other length. More
/// requests begin with the same ones.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::{LogNormalLengths, PoissonWorkload};
///
/// let workload = PoissonWorkload {
///     requests: 1000,
///     rate_per_s: 5.0,
///     input: LogNormalLengths { median: 500.0, sigma: 1.0, min: 1, max: 8192 },
///     output: LogNormalLengths { median: 150.0, sigma: 0.8, min: 1, max: 2048 },
///     seed: 7,
/// };
/// assert_eq!(workload.generate()?, workload.generate()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoissonWorkload {
    /// How many requests.
    pub requests: u64,
    /// Mean arrivals per second.
    pub rate_per_s: f64,
    /// Prompt lengths.
    pub input: LogNormalLengths,
    /// Answer lengths.
    pub output: LogNormalLengths,
    /// The seed of all three streams.
    pub seed: u64,
}

/// What a random stream is for.
#[derive(Clone, Copy)]
enum Stream {
    Arrivals = 1,
    Inputs,
    Outputs,
}

/// A generator for one purpose: its state and its increment both depend on seed and purpose.
fn stream(seed: u64, purpose: Stream) -> Pcg64 {
    let mut mixer = rand_pcg::Pcg32::new(seed, purpose as u64);
    let mut bytes = <Pcg64 as SeedableRng>::Seed::default();
    mixer.fill(&mut bytes);
    Pcg64::from_seed(bytes)
}

impl PoissonWorkload {
    /// Draws the workload. Gaps are floats in seconds, each rounded to the nearest tick; the
    /// first request arrives one gap after the start.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] for a rate or length parameter out of range, and what
    /// [`Workload::new`] refuses.
    pub fn generate(&self) -> Result<Workload> {
        if !(1e-6 <= self.rate_per_s && self.rate_per_s <= 1e9) {
            return Err(SimError::Parameter {
                input: "rate_per_s".to_owned(),
                bound: "from 1e-6 to 1e9 requests per second",
                value: self.rate_per_s,
            });
        }
        self.input.check("input")?;
        self.output.check("output")?;
        let mut arrivals = stream(self.seed, Stream::Arrivals);
        let mut inputs = stream(self.seed, Stream::Inputs);
        let mut outputs = stream(self.seed, Stream::Outputs);
        let mut now = Ticks::ZERO;
        let requests = (1..=self.requests).map(|id| {
            let gap: f64 = Exp1.sample(&mut arrivals);
            now = now.after(Ticks::from_seconds(gap / self.rate_per_s)?);
            let input = self.input.sample(&mut inputs);
            Ok(WorkloadRequest::new(id, now, input, self.output.sample(&mut outputs)))
        });
        Workload::new(requests.collect::<Result<_>>()?)
    }
}

/// The built-in workload `chat`: prompts of median 600 tokens with a long tail (sigma 1.1, mean
/// about 1,100), answers of median 160 (sigma 0.8, mean about 220), Poisson arrivals.
///
/// A synthetic workload of our own, of about the size of published conversation traces; it copies
/// none of them.
#[must_use]
pub const fn chat(requests: u64, rate_per_s: f64, seed: u64) -> PoissonWorkload {
    PoissonWorkload {
        requests,
        rate_per_s,
        input: LogNormalLengths { median: 600.0, sigma: 1.1, min: 4, max: 16_384 },
        output: LogNormalLengths { median: 160.0, sigma: 0.8, min: 1, max: 4096 },
        seed,
    }
}
