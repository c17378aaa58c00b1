//! When requests arrive without looking at the answers: laws of an open loop.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution, Exp1, Gamma};
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::law::{Parameters, split, within};

/// How arrivals are spread in time; each law has the mean rate that it is given, exactly.
///
/// As a text: `poisson`, `gamma:cv=2`, `deterministic`, `on-off:on=10s,off=30s,low=0.1`,
/// `sine:amplitude=0.5,period=60s`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum ArrivalLaw {
    /// Independent users: exponential gaps.
    #[default]
    Poisson,
    /// Independent gamma gaps with this coefficient of variation, 0.01 to 10: 1 is Poisson, below
    /// it arrivals are more even, above it they come in clumps.
    Gamma {
        /// Standard deviation of a gap over its mean.
        cv: f64,
    },
    /// Equal gaps.
    Deterministic,
    /// Bursts: Poisson arrivals at a high rate for a while, then at `low` times that rate for a
    /// while, both times exponential (a Markov-modulated Poisson process of two states). The run
    /// begins in either state with the probability that it has in the long run.
    OnOff {
        /// Mean time at the high rate.
        on: Ticks,
        /// Mean time at the low rate.
        off: Ticks,
        /// The low rate over the high one, 0 to 1.
        low: f64,
    },
    /// A Poisson process whose rate follows the day: rate · (1 + amplitude · sin(2π t / period)).
    /// The mean rate is that of whole periods.
    Sine {
        /// The swing of the rate over its mean, 0 to 1.
        amplitude: f64,
        /// From peak to peak.
        period: Ticks,
    },
}

const WHAT: &str = "law of arrivals";

impl ArrivalLaw {
    /// Checks the parameters for a mean rate in requests per second; `input` names them.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] with name, bound and value.
    pub fn check(&self, input: &str, rate_per_s: f64) -> Result<()> {
        let time = |name, t: Ticks| {
            let good = Ticks::from_nanoseconds(1000) <= t && t <= Ticks::LONGEST_RUN;
            within(input, name, t.seconds(), "from 1us to a hundred years, in seconds", good)
        };
        match *self {
            Self::Poisson | Self::Deterministic => Ok(()),
            Self::Gamma { cv } => {
                within(input, "cv", cv, "from 0.01 to 10", 0.01 <= cv && cv <= 10.0)
            }
            Self::OnOff { on, off, low } => {
                time("on", on)?;
                time("off", off)?;
                within(input, "low", low, "from 0 to 1", 0.0 <= low && low <= 1.0)?;
                // A process that changes its state far more often than anybody arrives is Poisson,
                // and would take for ever.
                let cycle = on.seconds() + off.seconds();
                let bound = "at least a thousandth of the mean gap, in seconds";
                within(input, "on + off", cycle, bound, 1e-3 <= cycle * rate_per_s)
            }
            Self::Sine { amplitude, period } => {
                let good = 0.0 <= amplitude && amplitude <= 1.0;
                within(input, "amplitude", amplitude, "from 0 to 1", good)?;
                time("period", period)
            }
        }
    }
}

impl fmt::Display for ArrivalLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Gamma { cv } => write!(f, "gamma:cv={cv}"),
            Self::Deterministic => f.write_str("deterministic"),
            Self::OnOff { on, off, low } => {
                write!(f, "on-off:on={},off={},low={low}", on.compact(), off.compact())
            }
            Self::Sine { amplitude, period } => {
                write!(f, "sine:amplitude={amplitude},period={}", period.compact())
            }
        }
    }
}

impl FromStr for ArrivalLaw {
    type Err = SimError;

    /// A law by its name, with values in the order of its fields or by their names.
    fn from_str(text: &str) -> Result<Self> {
        let (name, list) = split(text);
        let read = |names| Parameters::read(WHAT, text, list, names);
        match name {
            "poisson" => read(&[]).map(|_| Self::Poisson),
            "deterministic" => read(&[]).map(|_| Self::Deterministic),
            "gamma" => Ok(Self::Gamma { cv: read(&["cv"])?.number("cv", None)? }),
            "on-off" => {
                let p = read(&["on", "off", "low"])?;
                let low = p.number("low", Some(0.0))?;
                Ok(Self::OnOff { on: p.time("on")?, off: p.time("off")?, low })
            }
            "sine" => {
                let p = read(&["amplitude", "period"])?;
                Ok(Self::Sine {
                    amplitude: p.number("amplitude", None)?,
                    period: p.time("period")?,
                })
            }
            _ => Err(SimError::Grammar {
                what: WHAT,
                text: text.to_owned(),
                expected:
                    "one of `poisson`, `gamma:cv=2`, `deterministic`, `on-off:on=10s,off=30s`, \
                           `sine:amplitude=0.5,period=60s`"
                        .to_owned(),
            }),
        }
    }
}

/// A law at work: arrival after arrival.
#[derive(Clone, Debug)]
pub(super) struct ArrivalClock {
    rng: Pcg64,
    now: Ticks,
    rate: f64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Poisson,
    Gamma(Gamma<f64>),
    Deterministic {
        count: u64,
    },
    /// For each state its rate of arrivals and its rate of leaving.
    OnOff {
        on: bool,
        rates: [(f64, f64); 2],
    },
    Sine {
        amplitude: f64,
        period: f64,
    },
}

impl ArrivalClock {
    /// For a law whose parameters are checked.
    pub(super) fn new(law: ArrivalLaw, rate_per_s: f64, mut rng: Pcg64) -> Result<Self> {
        let state = match law {
            ArrivalLaw::Poisson => State::Poisson,
            ArrivalLaw::Gamma { cv } => {
                let shape = 1.0 / (cv * cv);
                let gamma = Gamma::new(shape, 1.0 / (shape * rate_per_s));
                let bound = "from 0.01 to 10";
                State::Gamma(gamma.map_err(|_| SimError::Parameter {
                    input: "arrivals.cv".to_owned(),
                    bound,
                    value: cv,
                })?)
            }
            ArrivalLaw::Deterministic => State::Deterministic { count: 0 },
            ArrivalLaw::OnOff { on, off, low } => {
                let (on, off) = (on.seconds(), off.seconds());
                let share = on / (on + off);
                let high = rate_per_s / (share + low * (1.0 - share));
                let begins_on = rng.random::<f64>() < share;
                State::OnOff { on: begins_on, rates: [(low * high, 1.0 / off), (high, 1.0 / on)] }
            }
            ArrivalLaw::Sine { amplitude, period } => {
                State::Sine { amplitude, period: period.seconds() }
            }
        };
        Ok(Self { rng, now: Ticks::ZERO, rate: rate_per_s, state })
    }

    /// An exponential time.
    fn wait(&mut self, rate: f64) -> Result<()> {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.now = self.now.after(Ticks::from_seconds(gap / rate)?);
        Ok(())
    }

    /// The next arrival; the first one is a gap after the start.
    pub(super) fn next(&mut self) -> Result<Ticks> {
        match &mut self.state {
            State::Poisson => self.wait(self.rate)?,
            State::Gamma(gamma) => {
                let gap = Ticks::from_seconds(gamma.sample(&mut self.rng))?;
                self.now = self.now.after(gap);
            }
            State::Deterministic { count } => {
                // From the count, so that no rounding adds up.
                *count += 1;
                self.now = Ticks::from_seconds(*count as f64 / self.rate)?;
            }
            State::OnOff { on, rates } => {
                let (mut now_on, rates) = (*on, *rates);
                loop {
                    let (arrivals, leaving) = rates[usize::from(now_on)];
                    self.wait(arrivals + leaving)?;
                    self.now.within_a_run("an arrival")?;
                    if self.rng.random::<f64>() * (arrivals + leaving) < arrivals {
                        break;
                    }
                    now_on = !now_on;
                }
                self.state = State::OnOff { on: now_on, rates };
            }
            State::Sine { amplitude, period } => {
                let (amplitude, period) = (*amplitude, *period);
                // Thinning (Lewis and Shedler 1979): candidates at the peak rate, each kept with
                // the rate at its instant over the peak.
                loop {
                    self.wait(self.rate * (1.0 + amplitude))?;
                    self.now.within_a_run("an arrival")?;
                    let relative = 1.0 + amplitude * (TAU * self.now.seconds() / period).sin();
                    if self.rng.random::<f64>() * (1.0 + amplitude) < relative {
                        break;
                    }
                }
            }
        }
        self.now.within_a_run("an arrival")
    }
}
