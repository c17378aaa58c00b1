//! A fit as a step time that the simulator takes, and as a file of it.

use sched_sim::{
    Affine, Coefficients, Extra, Floored, FlooredCoefficients, Split, Ticks, TwoRegime,
};
use serving_io::fitted::{FittedRegime, FittedStep, FittedStepTime};

use super::judge::Weakness;
use super::model::{Fitted, Form, RegimeFit, Term};
use super::point::Regime;
use crate::error::{FitError, Result};

/// What a file says beside the fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What the step time is called.
    pub name: String,
    /// The model; empty if not known.
    pub model: String,
    /// The GPU; empty if not known.
    pub gpu: String,
    /// How many GPUs hold one replica by tensor parallelism; 0 is taken for 1.
    pub tensor_parallel: u32,
    /// The engine; empty if not known.
    pub engine: String,
    /// Where the measurements come from.
    pub source: String,
    /// Under which licence; empty if not known.
    pub licence: String,
}

/// The method of every fit.
pub const METHOD: &str = "relative non-negative least squares";

fn ticks(seconds: f64) -> Result<Ticks> {
    Ok(Ticks::from_seconds(seconds)?)
}

/// An even number of attoseconds: a step's work holds half pairs.
fn pair(seconds: f64) -> Result<Ticks> {
    Ok(Ticks::from_attoseconds(ticks(seconds)?.attoseconds() & !1))
}

/// Whether a fit has no data for a term.
fn unknown(fit: &RegimeFit, term: Term) -> bool {
    fit.weaknesses.contains(&Weakness::NoData(term))
}

/// The step time of a fit, and what had to be taken from elsewhere.
///
/// Coefficients become whole attoseconds, each off by less than one.
///
/// # Errors
///
/// [`FitError::NoPoints`] if a regime is missing that the form needs; [`FitError::Simulation`] for
/// a coefficient beyond the simulator's bounds.
pub fn step_time(fitted: &Fitted) -> Result<(FittedStep, Vec<String>)> {
    let all = |fit: &RegimeFit| -> Result<Coefficients> {
        Ok(Coefficients {
            base: ticks(fit.coefficient(Term::Base))?,
            prefill: ticks(fit.coefficient(Term::PrefillTokens))?,
            decode: ticks(fit.coefficient(Term::Decodes))?,
            context: ticks(fit.coefficient(Term::Context))?,
            attention: pair(fit.coefficient(Term::Attention))?,
        })
    };
    let missing = |regime: Regime| FitError::NoPoints {
        regime: regime.title(),
        remedy: "a simulation needs both regimes, give a file with such steps too".to_owned(),
    };
    // One set for all steps extrapolates freely: without steps of a kind it would cost nothing.
    let whole = || -> Result<&RegimeFit> {
        let fit = fitted.decode.as_ref().ok_or_else(|| missing(Regime::Decode))?;
        if fit.range.prefill_tokens.1 == 0.0 {
            return Err(missing(Regime::Prefill));
        }
        if fit.range.decodes.1 == 0.0 {
            return Err(missing(Regime::Decode));
        }
        Ok(fit)
    };
    let mut limits = fitted.limits.clone();
    let step = match fitted.form {
        Form::TwoRegime => {
            let decode = fitted.decode.as_ref().ok_or_else(|| missing(Regime::Decode))?;
            if decode.regime == Some(Regime::Mean) {
                let mixed = all(decode)?;
                if mixed.prefill == Ticks::ZERO {
                    limits.push(
                        "b is 0: the points do not show what prefill costs, so a simulated TTFT is far too short"
                            .to_owned(),
                    );
                }
                let pure = Coefficients { prefill: Ticks::ZERO, ..mixed };
                return Ok((
                    FittedStep::TwoRegime(TwoRegime::new(pure, mixed, Extra::default())?),
                    limits,
                ));
            }
            let prefill = fitted.prefill.as_ref().ok_or_else(|| missing(Regime::Prefill))?;
            let (pure, mut mixed) = (all(decode)?, all(prefill)?);
            if unknown(prefill, Term::Decodes) {
                mixed.decode = pure.decode;
                mixed.context = pure.context;
                limits.push(
                    "no step with prefill has decodes too: c and d are those of pure decode there, though a context token costs 1.6 to 2.8 times more beside prefill where that was measured"
                        .to_owned(),
                );
            } else if unknown(prefill, Term::Context) {
                mixed.context = pure.context;
                limits.push("d of steps with prefill is that of pure decode".to_owned());
            }
            let floor = ticks(prefill.floor.unwrap_or(0.0))?;
            FittedStep::TwoRegime(TwoRegime::new(pure, mixed, Extra { floor, ..Extra::default() })?)
        }
        Form::Affine | Form::Linear => FittedStep::Affine(Affine::new(all(whole()?)?)?),
        Form::Floored => {
            let fit = whole()?;
            FittedStep::Floored(Floored::new(FlooredCoefficients {
                overhead: ticks(fit.coefficient(Term::Base))?,
                floor: ticks(fit.floor.unwrap_or(0.0))?,
                token: ticks(fit.coefficient(Term::NewTokens))?,
                attention: pair(fit.coefficient(Term::Attention))?,
                context: ticks(fit.coefficient(Term::Context))?,
                request: ticks(fit.coefficient(Term::Requests))?,
            })?)
        }
        Form::Split => {
            let below = fitted.decode.as_ref().ok_or_else(|| missing(Regime::Decode))?;
            let prefill = fitted.prefill.as_ref().ok_or_else(|| missing(Regime::Prefill))?;
            let mut mixed = all(prefill)?;
            limits.push(
                "decodes in a step with prefill are no term of the form: they cost there what they do in pure decode"
                    .to_owned(),
            );
            let pure = all(below)?;
            (mixed.decode, mixed.context) = (pure.decode, pure.context);
            let form = |pure| TwoRegime::new(pure, mixed, Extra::default());
            let below_form = form(pure)?;
            match (&fitted.decode_above, below.up_to) {
                (Some(above), Some(cut)) => {
                    // A batch size of a point: a whole number far below 2^53.
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let at = cut as u64;
                    FittedStep::Split(Split::new(at, below_form, form(all(above)?)?)?)
                }
                _ => FittedStep::TwoRegime(below_form),
            }
        }
    };
    Ok((step, limits))
}

/// The file of a fit.
///
/// # Errors
///
/// As [`step_time`].
pub fn file(fitted: &Fitted, about: About) -> Result<FittedStepTime> {
    let (step, mut limits) = step_time(fitted)?;
    for part in fitted.parts() {
        let regime = part.regime.map_or("all steps", Regime::name);
        limits.extend(part.weaknesses.iter().map(|w| format!("{regime}: {}", w.text())));
    }
    let pair = |(least, most): (f64, f64)| [least, most];
    let regimes = fitted
        .parts()
        .map(|part| FittedRegime {
            regime: part.regime.map_or("all", Regime::name).to_owned(),
            points: part.errors.points,
            mean_absolute: part.errors.mean_absolute,
            p90_absolute: Some(part.errors.p90_absolute),
            p95_absolute: None,
            worst: Some(part.errors.worst),
            max_absolute: None,
            bias: Some(part.errors.bias),
            prefill_tokens: pair(part.range.prefill_tokens),
            decodes: pair(part.range.decodes),
            context: pair(part.range.context),
            attention: pair(part.range.attention),
        })
        .collect();
    Ok(FittedStepTime {
        name: about.name,
        model: about.model,
        gpu: about.gpu,
        tensor_parallel: about.tensor_parallel.max(1),
        engine: about.engine,
        source: about.source,
        licence: about.licence,
        method: METHOD.to_owned(),
        limits,
        step,
        regimes,
    })
}
