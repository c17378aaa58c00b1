//! Forms of a step time, and their coefficients from points.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::judge::{self, Errors, Jump, Outlier, Range, Weakness};
use super::point::{Point, Regime, TIME_S};
use super::solve::{Problem, Solution};
use crate::error::{FitError, Result};

/// One column of a fit: what a coefficient is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// 1: of every step.
    Base,
    /// P.
    PrefillTokens,
    /// B.
    Decodes,
    /// C.
    Context,
    /// A.
    Attention,
    /// Requests, prompts and decodes.
    Requests,
    /// N: new tokens, prompt and decode.
    NewTokens,
    /// 1 where the floor holds.
    Floor,
}

impl Term {
    /// The letter of its coefficient.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Base => "a",
            Self::PrefillTokens | Self::NewTokens => "b",
            Self::Decodes => "c",
            Self::Context => "d",
            Self::Attention => "q",
            Self::Requests => "e",
            Self::Floor => "w",
        }
    }

    /// What one unit of its work is.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Base | Self::Floor => "step",
            Self::PrefillTokens => "prompt token",
            Self::Decodes | Self::Requests => "request",
            Self::Context => "context token",
            Self::Attention => "pair of prompt tokens",
            Self::NewTokens => "new token",
        }
    }

    /// What its work is, for a message.
    #[must_use]
    pub const fn work(self) -> &'static str {
        match self {
            Self::Base | Self::Floor => "step",
            Self::PrefillTokens => "prompt tokens",
            Self::Decodes => "decodes",
            Self::Requests => "requests",
            Self::Context => "context of decodes",
            Self::Attention => "attention among prompt tokens",
            Self::NewTokens => "new tokens",
        }
    }

    /// Its value at a point; that of the floor is 1.
    #[must_use]
    pub fn of(self, p: &Point) -> f64 {
        match self {
            Self::Base | Self::Floor => 1.0,
            Self::PrefillTokens => p.prefill_tokens,
            Self::Decodes => p.decodes,
            Self::Context => p.context,
            Self::Attention => p.attention,
            Self::Requests => p.prefills + p.decodes,
            Self::NewTokens => p.new_tokens(),
        }
    }
}

/// The form of a step time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// A set of coefficients for pure decode and one for steps with prefill, with a floor under
    /// short prompts where the points ask for it ([`sched_sim::TwoRegime`]).
    #[default]
    TwoRegime,
    /// Both regimes in one, with a floor under the dense layers ([`sched_sim::Floored`]).
    Floored,
    /// One set of coefficients for all steps ([`sched_sim::Affine`]).
    Affine,
    /// Seconds per prompt token and per decode token alone ([`sched_sim::Affine::linear`]).
    Linear,
    /// Two sets for decode, split at a batch size, and one for prefill (DistServe's).
    Split,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 5] =
        [Self::TwoRegime, Self::Floored, Self::Affine, Self::Linear, Self::Split];

    /// Its name as options and files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TwoRegime => "two-regime",
            Self::Floored => "floored",
            Self::Affine => "affine",
            Self::Linear => "linear",
            Self::Split => "split",
        }
    }

    /// The formula.
    #[must_use]
    pub const fn formula(self) -> &'static str {
        match self {
            Self::TwoRegime => {
                "decode t = a + c*B + d*C; with prefill t = max(w, a + b*P + c*B + d*C + q*A)"
            }
            Self::Floored => "t = a + max(w, b*N) + q*A + d*C + e*(requests)",
            Self::Affine => "t = a + b*P + c*B + d*C + q*A",
            Self::Linear => "t = b*P + c*B",
            Self::Split => "decode t = a + c*B + d*C, twice; with prefill t = a + b*P + q*A",
        }
    }
}

impl FromStr for Form {
    type Err = FitError;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|f| f.name()).collect();
            let problem = format!("found `{text}`, expected one of {}", names.join(", "));
            FitError::Option { option: "form", problem }
        })
    }
}

/// The fit of one regime.
#[derive(Clone, Debug, PartialEq)]
pub struct RegimeFit {
    /// Which; none where a form has one set for all steps.
    pub regime: Option<Regime>,
    /// The coefficients in seconds, each with its term.
    pub coefficients: Vec<(Term, f64)>,
    /// w in seconds, if the form has a floor and the points ask for one.
    pub floor: Option<f64>,
    /// The batch up to which another set holds, in [`Form::Split`].
    pub up_to: Option<f64>,
    /// How far it is off.
    pub errors: Errors,
    /// What ordinary least squares would have given: R², and its errors.
    pub ordinary: Option<(f64, Errors)>,
    /// Where it is known to hold.
    pub range: Range,
    /// What the points cannot tell.
    pub weaknesses: Vec<Weakness>,
    /// How many points stand apart, and the worst of them.
    pub outliers: (u64, Vec<Outlier>),
    /// A jump at a batch size.
    pub jump: Option<Jump>,
}

impl RegimeFit {
    /// The coefficient of a term in seconds, 0 where there is none.
    #[must_use]
    pub fn coefficient(&self, term: Term) -> f64 {
        self.coefficients.iter().find(|(t, _)| *t == term).map_or(0.0, |(_, x)| *x)
    }

    /// The fitted time of a point's work.
    #[must_use]
    pub fn seconds(&self, p: &Point) -> f64 {
        seconds(&self.coefficients, self.floor, p)
    }

    fn has(&self, term: Term) -> bool {
        self.coefficients.iter().any(|(t, _)| *t == term)
    }
}

/// The time of a point's work by these coefficients, in seconds.
///
/// The floor is under the new tokens where there is a coefficient for them, else under everything.
fn seconds(coefficients: &[(Term, f64)], floor: Option<f64>, p: &Point) -> f64 {
    let floor = floor.unwrap_or(0.0);
    let (mut rest, mut dense) = (0.0, None);
    for (term, x) in coefficients {
        match term {
            Term::NewTokens => dense = Some(x * term.of(p)),
            _ => rest += x * term.of(p),
        }
    }
    dense.map_or(rest.max(floor), |d: f64| rest + d.max(floor))
}

/// Sum of the squared relative errors.
fn squares(coefficients: &[(Term, f64)], floor: Option<f64>, points: &[&Point]) -> f64 {
    points.iter().map(|p| (seconds(coefficients, floor, p) / p.time_s - 1.0).powi(2)).sum()
}

/// A fitted step time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Its form.
    pub form: Form,
    /// Pure decode steps; for forms with one set, the only fit.
    pub decode: Option<RegimeFit>,
    /// Decode steps above the split, in [`Form::Split`].
    pub decode_above: Option<RegimeFit>,
    /// Steps with prefill.
    pub prefill: Option<RegimeFit>,
    /// What the points cannot tell about the form as a whole.
    pub limits: Vec<String>,
}

impl Fitted {
    /// The fits there are.
    pub fn parts(&self) -> impl Iterator<Item = &RegimeFit> {
        [&self.decode, &self.decode_above, &self.prefill].into_iter().flatten()
    }

    /// The fitted time of a point's work; none in a regime without points.
    #[must_use]
    pub fn seconds(&self, p: &Point) -> Option<f64> {
        let one = |fit: &Option<RegimeFit>| fit.as_ref().map(|f| f.seconds(p));
        match (self.form, p.regime) {
            (Form::TwoRegime | Form::Split, Regime::Prefill) => one(&self.prefill),
            (Form::Split, _) => match &self.decode {
                Some(f) if f.up_to.is_some_and(|b| b < p.decodes) => one(&self.decode_above),
                _ => one(&self.decode),
            },
            // Without steps of its own, the mean step tells both.
            (Form::TwoRegime, Regime::Mean) => {
                if self.decode.as_ref().is_some_and(|f| f.regime == Some(Regime::Mean)) {
                    return one(&self.decode);
                }
                let (d, m) = (self.decode.as_ref()?, self.prefill.as_ref()?);
                let prompt = m.coefficient(Term::PrefillTokens) * p.prefill_tokens
                    + m.coefficient(Term::Attention) * p.attention;
                Some(d.seconds(p) + prompt)
            }
            _ => one(&self.decode),
        }
    }

    /// The errors over all points that have a fit.
    #[must_use]
    pub fn errors(&self, points: &[&Point]) -> Option<Errors> {
        let known: Vec<(&Point, f64)> = points
            .iter()
            .filter_map(|p| self.seconds(p).map(|s| (*p, s / p.time_s - 1.0)))
            .collect();
        let errors: Vec<f64> = known.iter().map(|k| k.1).collect();
        Errors::from_errors(&errors, |i| known[i].0.name())
    }
}

const DECODE: [Term; 3] = [Term::Base, Term::Decodes, Term::Context];
const MIXED: [Term; 5] =
    [Term::Base, Term::PrefillTokens, Term::Decodes, Term::Context, Term::Attention];
const MEAN: [Term; 4] = [Term::Base, Term::PrefillTokens, Term::Decodes, Term::Context];

/// Fits a form to the points of one deployment.
///
/// # Errors
///
/// [`FitError::NoPoints`] without points; [`FitError::TooFew`] for fewer points than coefficients;
/// [`FitError::Range`] for a time that is not above zero or a work below zero.
pub fn fit(points: &[Point], form: Form) -> Result<Fitted> {
    let all: Vec<&Point> = points.iter().collect();
    fit_terms(&all, form, &DECODE)
}

/// The same with chosen terms for pure decode steps, to see what one of them is worth.
///
/// # Errors
///
/// As [`fit`].
pub fn fit_terms(points: &[&Point], form: Form, decode_terms: &[Term]) -> Result<Fitted> {
    for p in points {
        check(p)?;
    }
    let of = |regime: Regime| -> Vec<&Point> {
        points.iter().filter(|p| p.regime == regime).copied().collect()
    };
    let (decode, prefill, mean) = (of(Regime::Decode), of(Regime::Prefill), of(Regime::Mean));
    if points.is_empty() {
        let remedy = "give a file with measured steps".to_owned();
        return Err(FitError::NoPoints { regime: "measured step", remedy });
    }
    let mut fitted =
        Fitted { form, decode: None, decode_above: None, prefill: None, limits: Vec::new() };
    match form {
        Form::TwoRegime if decode.is_empty() && prefill.is_empty() => {
            let terms: Vec<Term> = MEAN
                .into_iter()
                .filter(|t| *t == Term::PrefillTokens || decode_terms.contains(t))
                .collect();
            fitted.decode = Some(regime(&mean, Some(Regime::Mean), &terms)?);
            fitted.limits.push(
                "all points are mean steps of a closed loop: base, c and d are those of both regimes, and what prefill costs is seen only by what it adds to the mean".to_owned(),
            );
        }
        Form::TwoRegime | Form::Split => {
            if !mean.is_empty() {
                fitted.limits.push(format!(
                    "{} mean steps of a closed loop are left out, as there are steps of one kind",
                    mean.len()
                ));
            }
            if !decode.is_empty() && form == Form::Split {
                split(&decode, decode_terms, &mut fitted)?;
            } else if !decode.is_empty() {
                fitted.decode = Some(regime(&decode, Some(Regime::Decode), decode_terms)?);
            }
            if !prefill.is_empty() {
                fitted.prefill = Some(prefill_fit(&prefill, form)?);
            }
            one_regime(&mut fitted);
        }
        Form::Floored => fitted.decode = Some(floored(points)?),
        Form::Affine => fitted.decode = Some(regime(points, None, &MIXED)?),
        Form::Linear => {
            fitted.decode = Some(regime(points, None, &[Term::PrefillTokens, Term::Decodes])?);
        }
    }
    Ok(fitted)
}

/// What is said when only one regime has points.
fn one_regime(fitted: &mut Fitted) {
    let other = match (&fitted.decode, &fitted.prefill) {
        (Some(_), None) => "step with prefill",
        (None, Some(_)) => "pure decode step",
        _ => return,
    };
    fitted.limits.push(format!(
        "no point is a {other}: what one costs is not known, and a simulation needs both"
    ));
}

/// Refuses what no step can be.
pub(super) fn check(p: &Point) -> Result<()> {
    let bounds = [
        ("prefills", p.prefills, 0.0, 1e12),
        ("prefill tokens", p.prefill_tokens, 0.0, 1e12),
        ("decodes", p.decodes, 0.0, 1e12),
        ("context", p.context, 0.0, 1e15),
        ("attention", p.attention, 0.0, 1e24),
        ("time in seconds", p.time_s, TIME_S.0, TIME_S.1),
    ];
    for (input, value, min, max) in bounds {
        if !(min <= value && value <= max) {
            return Err(FitError::Range { input, min, max, value });
        }
    }
    Ok(())
}

/// The relative problem of these points: each row divided by its time.
fn problem(points: &[&Point], terms: &[Term]) -> Problem {
    let rows: Vec<Vec<f64>> = points
        .iter()
        .map(|p| terms.iter().map(|t| t.of(p) / p.time_s).chain([1.0]).collect())
        .collect();
    Problem::new(terms.len(), rows.iter().map(Vec::as_slice))
}

fn enough(points: &[&Point], terms: &[Term], title: &'static str) -> Result<()> {
    if terms.len() <= points.len() {
        return Ok(());
    }
    let names: Vec<&str> = terms.iter().map(|t| t.symbol()).collect();
    let points = metrics_core::format::things(points.len() as u64, "point");
    Err(FitError::TooFew { regime: title, points, terms: terms.len(), names: names.join(", ") })
}

/// A fit with its errors and findings, from a solution.
fn judged(
    points: &[&Point],
    regime: Option<Regime>,
    terms: &[Term],
    problem: &Problem,
    solution: &Solution,
) -> Result<RegimeFit> {
    let coefficients: Vec<(Term, f64)> =
        terms.iter().copied().zip(solution.coefficients.iter().copied()).collect();
    let fitted = |p: &Point| coefficients.iter().map(|(t, x)| x * t.of(p)).sum();
    let none = || FitError::NoPoints { regime: "measured step", remedy: "give some".to_owned() };
    let errors = Errors::of(points, fitted).ok_or_else(none)?;
    let range = Range::of(points).ok_or_else(none)?;
    let each: Vec<f64> = points.iter().map(|p| fitted(p) / p.time_s - 1.0).collect();
    let decodes = regime != Some(Regime::Prefill);
    Ok(RegimeFit {
        regime,
        floor: None,
        up_to: None,
        errors,
        ordinary: ordinary(points, terms),
        range,
        weaknesses: judge::weaknesses(
            terms,
            problem,
            &solution.coefficients,
            &solution.standard_errors,
        ),
        outliers: judge::outliers(points, &each),
        jump: if decodes && terms.len() < super::solve::MOST_COLUMNS {
            judge::jump(points, terms, solution.squares)
        } else {
            None
        },
        coefficients,
    })
}

/// One regime by relative non-negative least squares.
fn regime(points: &[&Point], regime: Option<Regime>, terms: &[Term]) -> Result<RegimeFit> {
    let title = regime.map_or("steps", Regime::name);
    enough(points, terms, title)?;
    let problem = problem(points, terms);
    judged(points, regime, terms, &problem, &problem.solve())
}

/// R² and relative errors of ordinary least squares.
fn ordinary(points: &[&Point], terms: &[Term]) -> Option<(f64, Errors)> {
    let used: Vec<Term> =
        terms.iter().copied().filter(|t| points.iter().any(|p| t.of(p) != 0.0)).collect();
    let rows: Vec<Vec<f64>> =
        points.iter().map(|p| used.iter().map(|t| t.of(p)).chain([p.time_s]).collect()).collect();
    let x = Problem::new(used.len(), rows.iter().map(Vec::as_slice)).solve_free()?;
    let fitted = |p: &Point| used.iter().zip(&x).map(|(t, x)| x * t.of(p)).sum::<f64>();
    let mean = points.iter().map(|p| p.time_s).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|p| (p.time_s - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|p| (p.time_s - fitted(p)).powi(2)).sum();
    (0.0 < total).then_some(())?;
    Some((1.0 - left / total, Errors::of(points, fitted)?))
}

/// Most candidates of a search for a floor or a split.
const CANDIDATES: usize = 48;

/// Some of the values, in order, spread evenly over their ranks.
fn candidates(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    let n = values.len();
    if n <= CANDIDATES {
        return values;
    }
    (0..CANDIDATES).map(|i| values[i * (n - 1) / (CANDIDATES - 1)]).collect()
}

/// Most rounds in which steps change between the floor and the line above it.
const MOST_ROUNDS: usize = 12;

/// The least share of the squared error that a floor or a split has to explain to be kept.
const WORTH: f64 = 0.1;

/// Steps with prefill: affine, and with a floor if that explains more.
///
/// From each candidate on, the shortest steps are taken to be under the floor and the others fitted;
/// then those whose fit is below the floor are under it, until none changes sides. The least squared
/// relative error of `max(w, …)` over all points wins.
fn prefill_fit(points: &[&Point], form: Form) -> Result<RegimeFit> {
    let terms: &[Term] = if form == Form::Split {
        &[Term::Base, Term::PrefillTokens, Term::Attention]
    } else {
        &MIXED
    };
    // Work that no point has needs no points.
    let used: Vec<Term> =
        terms.iter().copied().filter(|t| points.iter().any(|p| t.of(p) != 0.0)).collect();
    enough(points, &used, Regime::Prefill.name())?;
    let with = |points: &[&Point]| -> (Problem, Solution) {
        let problem = problem(points, terms);
        let solution = problem.solve();
        (problem, solution)
    };
    let named = |s: &Solution| -> Vec<(Term, f64)> {
        terms.iter().copied().zip(s.coefficients.iter().copied()).collect()
    };
    let (plain, solution) = with(points);
    let mut best = (solution.squares * (1.0 - WORTH), None);
    let cuts = if form == Form::Split {
        Vec::new()
    } else {
        candidates(points.iter().map(|p| p.time_s).collect())
    };
    // Where the points have been on these sides before, the same rounds follow.
    let mut seen = BTreeSet::new();
    for cut in cuts {
        let mut under: Vec<bool> = points.iter().map(|p| p.time_s <= cut).collect();
        for _ in 0..MOST_ROUNDS {
            if !seen.insert(under.clone()) {
                break;
            }
            let of = |side: bool| -> Vec<&Point> {
                points.iter().zip(&under).filter(|(_, u)| **u == side).map(|(p, _)| *p).collect()
            };
            let (low, high) = (of(true), of(false));
            if high.len() < used.len() + 2 || low.len() < 2 {
                break;
            }
            // The w with the least Σ (w / t − 1)².
            let first: f64 = low.iter().map(|p| 1.0 / p.time_s).sum();
            let second: f64 = low.iter().map(|p| 1.0 / (p.time_s * p.time_s)).sum();
            let (w, (problem, solution)) = (first / second, with(&high));
            let found = named(&solution);
            // A step belongs to the side that its work is fitted to, not to that of its noise.
            under = points.iter().map(|p| seconds(&found, None, p) <= w).collect();
            let off = squares(&found, Some(w), points);
            if off < best.0 {
                best = (off, Some((w, problem, solution)));
            }
        }
    }
    let (floor, problem, solution) = match best.1 {
        Some((w, problem, solution)) => (Some(w), problem, solution),
        None => (None, plain, solution),
    };
    let mut fit = judged(points, Some(Regime::Prefill), terms, &problem, &solution)?;
    fit.floor = floor;
    whole(&mut fit, points);
    Ok(fit)
}

/// Errors, range and outliers over all points, for a fit that was made from some of them.
fn whole(fit: &mut RegimeFit, points: &[&Point]) {
    let each: Vec<f64> = points.iter().map(|p| fit.seconds(p) / p.time_s - 1.0).collect();
    if let (Some(errors), Some(range)) =
        (Errors::from_errors(&each, |i| points[i].name()), Range::of(points))
    {
        (fit.errors, fit.range) = (errors, range);
    }
    fit.outliers = judge::outliers(points, &each);
    let terms: Vec<Term> = fit.coefficients.iter().map(|c| c.0).collect();
    if !fit.has(Term::NewTokens) {
        fit.ordinary = ordinary(points, &terms);
    }
}

/// t = a + max(w, b·N) + q·A + d·C + e·(requests): for each N at which the floor could end, a
/// problem with one column for the floor and one for the tokens above it.
fn floored(points: &[&Point]) -> Result<RegimeFit> {
    const TERMS: [Term; 5] =
        [Term::Base, Term::NewTokens, Term::Attention, Term::Context, Term::Requests];
    enough(points, &TERMS, "steps")?;
    let mut best: Option<(f64, Option<f64>, Solution)> = None;
    for cut in candidates(points.iter().map(|p| p.new_tokens()).collect()) {
        let rows: Vec<Vec<f64>> = points
            .iter()
            .map(|p| {
                let (dense, floor) =
                    if p.new_tokens() <= cut { (0.0, 1.0) } else { (p.new_tokens(), 0.0) };
                let columns = [1.0, dense, p.attention, p.context, Term::Requests.of(p), floor];
                columns.map(|x| x / p.time_s).into_iter().chain([1.0]).collect()
            })
            .collect();
        let split = Problem::new(TERMS.len() + 1, rows.iter().map(Vec::as_slice));
        let mut solution = split.solve();
        let floor = solution.coefficients.pop().filter(|w| 0.0 < *w);
        solution.standard_errors.pop();
        let named: Vec<(Term, f64)> =
            TERMS.into_iter().zip(solution.coefficients.iter().copied()).collect();
        solution.squares = squares(&named, floor, points);
        if best.as_ref().is_none_or(|(s, ..)| solution.squares < *s) {
            best = Some((solution.squares, floor, solution));
        }
    }
    let remedy = "give a file with measured steps".to_owned();
    let (_, floor, solution) =
        best.ok_or(FitError::NoPoints { regime: "measured step", remedy })?;
    let mut fit = judged(points, None, &TERMS, &problem(points, &TERMS), &solution)?;
    (fit.floor, fit.ordinary, fit.jump) = (floor, None, None);
    whole(&mut fit, points);
    Ok(fit)
}

/// Two sets for decode, split where both together fit best.
fn split(points: &[&Point], terms: &[Term], fitted: &mut Fitted) -> Result<()> {
    enough(points, terms, Regime::Decode.name())?;
    let plain = regime(points, Some(Regime::Decode), terms)?;
    let off = |points: &[&Point]| problem(points, terms).solve().squares;
    let mut best = (off(points) * (1.0 - WORTH), None);
    for cut in candidates(points.iter().map(|p| p.decodes).collect()) {
        let (low, high): (Vec<&Point>, Vec<&Point>) = points.iter().partition(|p| p.decodes <= cut);
        if low.len() < terms.len() + 1 || high.len() < terms.len() + 1 {
            continue;
        }
        let together = off(&low) + off(&high);
        if together < best.0 {
            best = (together, Some((cut, low, high)));
        }
    }
    match best.1 {
        None => {
            fitted.decode = Some(plain);
            fitted.limits.push(format!(
                "no batch size splits the decode steps so that two sets explain {:.0} % more",
                WORTH * 100.0
            ));
        }
        Some((cut, low, high)) => {
            let mut below = regime(&low, Some(Regime::Decode), terms)?;
            below.up_to = Some(cut);
            fitted.decode = Some(below);
            fitted.decode_above = Some(regime(&high, Some(Regime::Decode), terms)?);
        }
    }
    Ok(())
}
