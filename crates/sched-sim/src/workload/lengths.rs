//! How long prompts and answers are.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, Geometric, StandardNormal, Zipf};
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::workload::Workload;
use crate::workload::law::{Parameters, split, within};

/// A law of whole numbers: tokens of a prompt or an answer, or turns of a session.
///
/// Lengths beyond `min` and `max` are moved to that bound, which is part of the law: the mean of
/// what is drawn differs from the `mean` that was given. As a text: `512` or `constant:512`,
/// `uniform:100,200`, `geometric:mean=200,max=4096`, `lognormal:median=600,sigma=1.1,min=4,max=8192`
/// (or `mean=` for `median=`), `zipf:exponent=1.2,min=1,max=4096`.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::LengthLaw;
///
/// let law: LengthLaw = "uniform:100,200".parse()?;
/// assert_eq!(law, LengthLaw::Uniform { min: 100, max: 200 });
/// assert_eq!(law.to_string().parse::<LengthLaw>()?, law);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LengthLaw {
    /// Always the same.
    Constant(u64),
    /// Each length from `min` to `max`, equally likely.
    Uniform {
        /// The smallest length.
        min: u64,
        /// The largest length.
        max: u64,
    },
    /// The number of trials up to the first success, 1 or more: an exponential in whole tokens.
    Geometric {
        /// Its mean before `max` cuts, at least 1.
        mean: f64,
        /// The largest length.
        max: u64,
    },
    /// The logarithm is normal with mean ln(`median`) and standard deviation `sigma`, rounded to
    /// whole tokens; the mean before `min` and `max` cut is median · exp(sigma² / 2).
    LogNormal {
        /// The length that half of the requests exceed.
        median: f64,
        /// The standard deviation of the logarithm, 0 to 10; 0 makes all lengths the same.
        sigma: f64,
        /// The smallest length.
        min: u64,
        /// The largest length.
        max: u64,
    },
    /// The r-th shortest length, min − 1 + r, has a probability proportional to r^−exponent.
    Zipf {
        /// The exponent, 0 to 20; 0 is uniform.
        exponent: f64,
        /// The smallest length.
        min: u64,
        /// The largest length.
        max: u64,
    },
    /// The lengths of a histogram, as often as they are in it.
    Empirical(LengthHistogram),
}

const WHAT: &str = "law of lengths";
impl LengthLaw {
    /// Checks the parameters; `input` names them.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] with name, bound and value.
    pub fn check(&self, input: &str) -> Result<()> {
        let bounds = |min: u64, max: u64| {
            within(input, "min", min as f64, "at least 1", 1 <= min)?;
            let good = min <= max && max <= Workload::LARGEST_TOKENS;
            if !good {
                return Err(SimError::Bounds {
                    input: format!("{input}.max"),
                    bound: format!("at least min, {min}, and at most {}", Workload::LARGEST_TOKENS),
                    value: max.to_string(),
                });
            }
            Ok(())
        };
        match *self {
            Self::Constant(n) => {
                let good = 1 <= n && n <= Workload::LARGEST_TOKENS;
                within(input, "", n as f64, "from 1 to 4294967295", good)
            }
            Self::Uniform { min, max } => bounds(min, max),
            Self::Geometric { mean, max } => {
                let good = 1.0 <= mean && mean < 1e9;
                within(input, "mean", mean, "at least 1 and below 1e9", good)?;
                bounds(1, max)
            }
            Self::LogNormal { median, sigma, min, max } => {
                let good = 0.0 < median && median < 1e9;
                within(input, "median", median, "above 0 and below 1e9", good)?;
                let good = 0.0 <= sigma && sigma <= 10.0;
                within(input, "sigma", sigma, "from 0 to 10", good)?;
                bounds(min, max)
            }
            Self::Zipf { exponent, min, max } => {
                let good = 0.0 <= exponent && exponent <= 20.0;
                within(input, "exponent", exponent, "from 0 to 20", good)?;
                bounds(min, max)
            }
            Self::Empirical(_) => Ok(()),
        }
    }

    /// The largest length that can be drawn.
    #[must_use]
    pub fn largest(&self) -> u64 {
        match self {
            Self::Constant(n) => *n,
            Self::Uniform { max, .. }
            | Self::Geometric { max, .. }
            | Self::LogNormal { max, .. }
            | Self::Zipf { max, .. } => *max,
            Self::Empirical(histogram) => histogram.largest(),
        }
    }

    /// The law at work; the parameters are checked.
    pub(super) fn sampler(&self, input: &str) -> Result<Sampler> {
        self.check(input)?;
        let refused = |name: &str, value: f64| SimError::Parameter {
            input: format!("{input}.{name}"),
            bound: "a parameter that its law allows",
            value,
        };
        Ok(match self {
            Self::Constant(n) => Sampler::Uniform { min: *n, max: *n },
            Self::Uniform { min, max } => Sampler::Uniform { min: *min, max: *max },
            Self::Geometric { mean, max } => {
                let law = Geometric::new(1.0 / mean).map_err(|_| refused("mean", *mean))?;
                Sampler::Geometric { law, max: *max }
            }
            Self::LogNormal { median, sigma, min, max } => {
                Sampler::LogNormal { log: median.ln(), sigma: *sigma, min: *min, max: *max }
            }
            Self::Zipf { exponent, min, max } => {
                let law = Zipf::new((max - min + 1) as f64, *exponent)
                    .map_err(|_| refused("exponent", *exponent))?;
                Sampler::Zipf { law, min: *min, max: *max }
            }
            Self::Empirical(histogram) => Sampler::Empirical(histogram.clone()),
        })
    }
}

impl fmt::Display for LengthLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(n) => write!(f, "constant:{n}"),
            Self::Uniform { min, max } => write!(f, "uniform:min={min},max={max}"),
            Self::Geometric { mean, max } => write!(f, "geometric:mean={mean},max={max}"),
            Self::LogNormal { median, sigma, min, max } => {
                write!(f, "lognormal:median={median},sigma={sigma},min={min},max={max}")
            }
            Self::Zipf { exponent, min, max } => {
                write!(f, "zipf:exponent={exponent},min={min},max={max}")
            }
            Self::Empirical(histogram) => {
                write!(f, "empirical: {} lengths, mean {:.1}", histogram.total(), histogram.mean())
            }
        }
    }
}

impl FromStr for LengthLaw {
    type Err = SimError;

    /// A number, or a law by its name, with values in the order of its fields or by their names.
    fn from_str(text: &str) -> Result<Self> {
        const LARGEST: Option<u64> = Some(Workload::LARGEST_TOKENS);
        let (name, list) = split(text);
        let read = |names| Parameters::read(WHAT, text, list, names);
        match name {
            "constant" => Ok(Self::Constant(read(&["tokens"])?.count("tokens", None)?)),
            "uniform" => {
                let p = read(&["min", "max"])?;
                Ok(Self::Uniform { min: p.count("min", None)?, max: p.count("max", None)? })
            }
            "geometric" => {
                let p = read(&["mean", "max"])?;
                Ok(Self::Geometric { mean: p.number("mean", None)?, max: p.count("max", LARGEST)? })
            }
            "lognormal" => {
                let p = read(&["median", "sigma", "min", "max", "mean"])?;
                let sigma = p.number("sigma", None)?;
                let median = match (p.get("median"), p.get("mean")) {
                    (Some(_), Some(_)) | (None, None) => {
                        return Err(SimError::Grammar {
                            what: WHAT,
                            text: text.to_owned(),
                            expected: "either `median` or `mean`".to_owned(),
                        });
                    }
                    (_, None) => p.number("median", None)?,
                    (_, Some(_)) => p.number("mean", None)? * (-sigma * sigma / 2.0).exp(),
                };
                let (min, max) = (p.count("min", Some(1))?, p.count("max", LARGEST)?);
                Ok(Self::LogNormal { median, sigma, min, max })
            }
            "zipf" => {
                let p = read(&["exponent", "min", "max"])?;
                let exponent = p.number("exponent", None)?;
                let (min, max) = (p.count("min", Some(1))?, p.count("max", None)?);
                Ok(Self::Zipf { exponent, min, max })
            }
            number => metrics_core::grammar::count(number).map(Self::Constant).map_err(|_| {
                SimError::Grammar {
                    what: WHAT,
                    text: text.to_owned(),
                    expected: "a whole number from 1 to 4294967295, or one of `uniform:100,200`, \
                               `geometric:mean=200`, `lognormal:median=600,sigma=1.1`, \
                               `zipf:exponent=1.2,max=4096`"
                        .to_owned(),
                }
            }),
        }
    }
}

/// Lengths with how often each occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthHistogram {
    /// Each length with the number of samples that are at most as long.
    up_to: Arc<[(u64, u64)]>,
}

impl LengthHistogram {
    /// From lengths with their numbers, in any order; equal lengths are added up.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] for a length out of 1 to [`Workload::LARGEST_TOKENS`],
    /// [`SimError::TooSmall`] without any, [`SimError::TooLarge`] above 2³² of them.
    pub fn new(lengths: impl IntoIterator<Item = (u64, u64)>) -> Result<Self> {
        let mut list: Vec<(u64, u64)> = lengths.into_iter().filter(|&(_, n)| 0 < n).collect();
        list.sort_unstable();
        list.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
        let mut total: u64 = 0;
        for (length, n) in &mut list {
            let good = 1 <= *length && *length <= Workload::LARGEST_TOKENS;
            within("length", "", *length as f64, "from 1 to 4294967295", good)?;
            total = total.saturating_add(*n);
            *n = total;
        }
        let input = "lengths of a histogram";
        if total == 0 {
            return Err(SimError::TooSmall { input, min: 1, value: 0 });
        }
        let max = 1 << 32;
        if max < total {
            return Err(SimError::TooLarge { input, max: max.into(), value: total.into() });
        }
        Ok(Self { up_to: list.into() })
    }

    /// How many lengths there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.up_to.last().map_or(0, |&(_, n)| n)
    }

    /// The largest length.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.up_to.last().map_or(0, |&(length, _)| length)
    }

    /// The mean length.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let mut before = 0;
        let mut sum = 0.0;
        for &(length, n) in self.up_to.iter() {
            sum += length as f64 * (n - before) as f64;
            before = n;
        }
        sum / self.total().max(1) as f64
    }

    fn sample(&self, rng: &mut Pcg64) -> u64 {
        let k = rng.random_range(0..self.total());
        let at = self.up_to.partition_point(|&(_, n)| n <= k);
        self.up_to.get(at).map_or(1, |&(length, _)| length)
    }
}

/// Prompts and answers that belong together, as they were observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthPairs(Arc<[(u32, u32)]>);

impl LengthPairs {
    /// The pairs of a workload's requests, from which whole pairs are drawn with replacement.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] without requests.
    pub fn of(workload: &Workload) -> Result<Self> {
        if workload.is_empty() {
            return Err(SimError::TooSmall { input: "pairs of lengths", min: 1, value: 0 });
        }
        let tokens = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let pair = |r: &crate::WorkloadRequest| (tokens(r.input_tokens), tokens(r.output_tokens));
        Ok(Self(workload.requests().iter().map(pair).collect()))
    }
}

/// Lengths of prompts and answers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Lengths {
    /// Each has a law and a random stream of its own.
    Independent {
        /// Tokens of the prompt that are new in it.
        input: LengthLaw,
        /// Tokens of the answer.
        output: LengthLaw,
    },
    /// Prompts with their own answers; drawn with the random stream of the prompts.
    Pairs(LengthPairs),
}

impl Lengths {
    pub(super) fn sampler(&self) -> Result<PairSampler> {
        Ok(match self {
            Self::Independent { input, output } => PairSampler::Independent(
                input.sampler("input_tokens")?,
                output.sampler("output_tokens")?,
            ),
            Self::Pairs(pairs) => PairSampler::Pairs(pairs.clone()),
        })
    }
}

/// A law of lengths at work.
#[derive(Clone, Debug)]
pub(super) enum Sampler {
    Uniform { min: u64, max: u64 },
    Geometric { law: Geometric, max: u64 },
    LogNormal { log: f64, sigma: f64, min: u64, max: u64 },
    Zipf { law: Zipf<f64>, min: u64, max: u64 },
    Empirical(LengthHistogram),
}

/// A float-to-integer cast saturates, and the bounds hold the rest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(x: f64) -> u64 {
    x as u64
}

impl Sampler {
    pub(super) fn sample(&self, rng: &mut Pcg64) -> u64 {
        match self {
            Self::Uniform { min, max } if min == max => *min,
            Self::Uniform { min, max } => rng.random_range(*min..=*max),
            Self::Geometric { law, max } => law.sample(rng).saturating_add(1).min(*max),
            Self::LogNormal { log, sigma, min, max } => {
                let z: f64 = StandardNormal.sample(rng);
                whole((log + sigma * z).exp().round()).clamp(*min, *max)
            }
            Self::Zipf { law, min, max } => (min - 1 + whole(law.sample(rng))).clamp(*min, *max),
            Self::Empirical(histogram) => histogram.sample(rng),
        }
    }
}

/// Laws of prompts and answers at work.
#[derive(Clone, Debug)]
pub(super) enum PairSampler {
    Independent(Sampler, Sampler),
    Pairs(LengthPairs),
}

impl PairSampler {
    /// Prompt and answer.
    pub(super) fn sample(&self, inputs: &mut Pcg64, outputs: &mut Pcg64) -> (u64, u64) {
        match self {
            Self::Independent(input, output) => (input.sample(inputs), output.sample(outputs)),
            Self::Pairs(LengthPairs(pairs)) => {
                let at = inputs.random_range(0..pairs.len());
                pairs.get(at).map_or((1, 1), |&(i, o)| (i.into(), o.into()))
            }
        }
    }
}
