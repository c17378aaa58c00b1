//! How good a fit is, and what its points cannot tell.

use super::model::Term;
use super::point::Point;
use super::solve::Problem;

/// Relative errors of a fit over its points: (fitted − measured) / measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// How many points.
    pub points: u64,
    /// The mean of the sizes (MAPE).
    pub mean_absolute: f64,
    /// The size that 90 % of them do not pass.
    pub p90_absolute: f64,
    /// The largest error, with its sign.
    pub worst: f64,
    /// The point of the largest error.
    pub worst_point: String,
    /// The mean with signs: above zero, the fit is slow.
    pub bias: f64,
}

impl Errors {
    /// The errors of these predictions; none without points.
    #[must_use]
    pub fn of(points: &[&Point], fitted: impl Fn(&Point) -> f64) -> Option<Self> {
        let errors: Vec<f64> = points.iter().map(|p| fitted(p) / p.time_s - 1.0).collect();
        Self::from_errors(&errors, |i| points[i].name())
    }

    /// The same from errors, with a name for each.
    #[must_use]
    pub fn from_errors(errors: &[f64], name: impl Fn(usize) -> String) -> Option<Self> {
        let worst =
            (0..errors.len()).max_by(|&a, &b| errors[a].abs().total_cmp(&errors[b].abs()))?;
        let n = errors.len();
        let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Some(Self {
            points: n as u64,
            mean_absolute: sizes.iter().sum::<f64>() / n as f64,
            p90_absolute: sizes[(n * 9).div_ceil(10) - 1],
            worst: errors[worst],
            worst_point: name(worst),
            bias: errors.iter().sum::<f64>() / n as f64,
        })
    }
}

/// The least and the largest of each kind of work, which is where a fit is known to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// P.
    pub prefill_tokens: (f64, f64),
    /// B.
    pub decodes: (f64, f64),
    /// C.
    pub context: (f64, f64),
    /// A.
    pub attention: (f64, f64),
}

impl Range {
    /// The range of these points; none without points.
    #[must_use]
    pub fn of(points: &[&Point]) -> Option<Self> {
        let first = points.first()?;
        let over = |value: fn(&Point) -> f64| {
            points.iter().fold((value(first), value(first)), |(low, high), p| {
                (low.min(value(p)), high.max(value(p)))
            })
        };
        Some(Self {
            prefill_tokens: over(|p| p.prefill_tokens),
            decodes: over(|p| p.decodes),
            context: over(|p| p.context),
            attention: over(|p| p.attention),
        })
    }
}

/// A point far from the fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// The point.
    pub point: String,
    /// Its error.
    pub error: f64,
}

/// Most outliers that are named.
const NAMED: usize = 5;

/// The points whose errors stand apart from the others': more than five robust standard
/// deviations from the median and more than 10 %. Their number, and the largest.
pub(crate) fn outliers(points: &[&Point], errors: &[f64]) -> (u64, Vec<Outlier>) {
    let median = |mut x: Vec<f64>| {
        x.sort_by(f64::total_cmp);
        x.get(x.len() / 2).copied().unwrap_or(0.0)
    };
    let middle = median(errors.to_vec());
    // 1.4826 times the median deviation is the standard deviation of a normal law.
    let spread = 1.4826 * median(errors.iter().map(|e| (e - middle).abs()).collect());
    let far = |e: &f64| (5.0 * spread).max(0.1) < (e - middle).abs();
    let mut found: Vec<Outlier> = points
        .iter()
        .zip(errors)
        .filter(|(_, e)| far(e))
        .map(|(p, &error)| Outlier { point: p.name(), error })
        .collect();
    found.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
    let count = found.len() as u64;
    found.truncate(NAMED);
    (count, found)
}

/// A jump of the time at a batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jump {
    /// The largest batch before it.
    pub below: f64,
    /// The smallest batch after it.
    pub above: f64,
    /// By how many seconds steps above are longer.
    pub seconds: f64,
    /// The same as a share of the fitted time there.
    pub share: f64,
}

/// A batch size above which decode steps take longer by a constant that the other terms do not
/// explain: at least a tenth of the time, and at least half of the squared error.
pub(crate) fn jump(points: &[&Point], terms: &[Term], squares: f64) -> Option<Jump> {
    let mut sizes: Vec<f64> = points.iter().map(|p| p.decodes).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    // Twice the sizes on each side: a single size could be anything.
    if sizes.len() < 5 || points.len() < 8 || squares / (points.len() as f64) < 1e-6 {
        return None;
    }
    let mut best: Option<(f64, Jump)> = None;
    for pair in sizes.windows(2).skip(1).take(sizes.len() - 3) {
        let rows: Vec<Vec<f64>> = points
            .iter()
            .map(|p| {
                let step = if pair[0] < p.decodes { 1.0 } else { 0.0 };
                let columns = terms.iter().map(|t| t.of(p)).chain([step]);
                columns.map(|x| x / p.time_s).chain([1.0]).collect()
            })
            .collect();
        let columns = terms.len() + 1;
        let found = Problem::new(columns, rows.iter().map(Vec::as_slice)).solve();
        let seconds = found.coefficients[terms.len()];
        let near = points.iter().filter(|p| p.decodes == pair[1]).map(|p| p.time_s);
        let share = seconds / near.fold(f64::INFINITY, f64::min);
        let better = best.as_ref().is_none_or(|(s, _)| found.squares < *s);
        if found.squares < squares / 2.0 && 0.1 <= share && better {
            best = Some((found.squares, Jump { below: pair[0], above: pair[1], seconds, share }));
        }
    }
    best.map(|(_, jump)| jump)
}

/// What the points cannot tell about a coefficient.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Weakness {
    /// Its work is zero in every point.
    NoData(Term),
    /// The best value would be below zero, and zero is taken.
    AtZero(Term),
    /// Its standard error is more than half of it.
    Vague(Term, f64),
    /// A combination of these hardly changes any fitted time, by this share of the strongest.
    Collinear(Vec<Term>, f64),
}

impl Weakness {
    /// It in words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoData(t) => {
                format!("{}: no point has any {}, so it is not known", t.symbol(), t.work())
            }
            Self::AtZero(t) => format!(
                "{}: 0 fits best, so the points show no cost per {}, which is not to say that there is none",
                t.symbol(),
                t.unit()
            ),
            Self::Vague(t, share) => format!(
                "{}: standard error {:.0} % of the value, so the points hardly say how large it is",
                t.symbol(),
                share * 100.0
            ),
            Self::Collinear(terms, share) => {
                let names: Vec<&str> = terms.iter().map(|t| t.symbol()).collect();
                format!(
                    "{}: the points cannot tell them apart (what one loses another gains, singular value {share:.1e} of the largest); their sum holds, each alone does not",
                    names.join(" and ")
                )
            }
        }
    }
}

/// A direction in which the strongest column is this many times stronger is not told by the data.
const WEAK: f64 = 0.01;

/// What a problem's points cannot tell.
pub(crate) fn weaknesses(
    terms: &[Term],
    problem: &Problem,
    coefficients: &[f64],
    standard_errors: &[Option<f64>],
) -> Vec<Weakness> {
    let mut found = Vec::new();
    for (j, &term) in terms.iter().enumerate() {
        if problem.is_empty_column(j) {
            found.push(Weakness::NoData(term));
        } else if coefficients[j] == 0.0 {
            found.push(Weakness::AtZero(term));
        } else if let Some(error) = standard_errors[j] {
            let share = error / coefficients[j];
            if 0.5 < share {
                found.push(Weakness::Vague(term, share));
            }
        }
    }
    let singular = problem.singular();
    let largest = singular.first().map_or(0.0, |s| s.0);
    for (value, direction) in &singular {
        // Empty columns have their own singular value of zero, and their own line above.
        let parts: Vec<Term> = terms
            .iter()
            .enumerate()
            .filter(|&(j, _)| 0.2 < direction[j].abs() && !problem.is_empty_column(j))
            .map(|(_, &t)| t)
            .collect();
        if value / largest < WEAK && 1 < parts.len() {
            found.push(Weakness::Collinear(parts, value / largest));
        }
    }
    found
}
