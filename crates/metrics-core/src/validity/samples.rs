//! Findings about percentiles: do the samples hold them?

use crate::format::{significant, value};
use crate::interval::{Confidence, Side, order_statistic_ranks, samples_for_upper_bound};
use crate::metric::{Source, text};

use super::evidence::Spread;
use super::{Check, Command, Facts, Finding, Level, Subject, seconds};

/// Fewest samples beyond a percentile for it to be more than chance.
pub const BEYOND_MIN: f64 = 10.0;

/// A latency's name, how many samples it has, and how many independent ones they are worth.
pub type Sampled<'a> = (&'a str, u64, Option<f64>);

/// W10: a percentile from too few samples.
///
/// `samples` holds for each latency its name, how many samples it has and, of a run whose
/// neighbours are alike, how many independent ones they are worth; `shown` the percentiles that a
/// report shows of it, as fractions.
#[must_use]
pub fn too_few_samples(samples: &[Sampled<'_>], shown: &[f64]) -> Option<Finding> {
    let scarce = |p: f64| {
        samples
            .iter()
            .filter(|(_, n, _)| 0 < *n)
            .filter(|(_, n, worth)| {
                worth.unwrap_or(*n as f64).min(*n as f64) * (1.0 - p) < BEYOND_MIN - 1e-9
            })
            .min_by_key(|(_, n, _)| *n)
    };
    let mut ps: Vec<f64> = shown.iter().copied().filter(|&p| 0.5 < p && p < 1.0).collect();
    ps.sort_by(f64::total_cmp);
    let found: Vec<(f64, &Sampled<'_>)> =
        ps.into_iter().filter_map(|p| Some((p, scarce(p)?))).collect();
    let (p, (name, n, worth)) = found.last()?;
    let names: Vec<String> = found.iter().map(|(p, _)| percentile_name(*p)).collect();
    let beyond = *n as f64 * (1.0 - p);
    let alike = worth.filter(|w| *w < 0.9 * *n as f64);
    let correlated = alike.map_or(String::new(), |w| {
        let worth = value(w.round());
        format!(", whose neighbours are alike: worth {worth} independent ones, of which")
    });
    // What the samples are worth decides what they can say: their number would promise too much.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below n")]
    let independent = alike.map_or(*n, |w| w.round() as u64);
    let ranks = order_statistic_ranks(independent, *p, Confidence::P95, Side::Both);
    let needed = samples_for_upper_bound(*p, Confidence::P95).ok();
    let (of, ranked) = match alike {
        Some(_) => ("independent ", "so many independent samples would put it"),
        None => ("", "independent samples would put it"),
    };
    let bound = match (ranks, needed) {
        (_, Some(needed)) if independent < needed => {
            format!("; its 95 % upper bound needs {needed} {of}samples")
        }
        (Ok((Some(low), Some(high))), _) => {
            format!("; {ranked} between ranks {low} and {high}")
        }
        (Ok((Some(low), None)), _) => {
            format!("; {ranked} above rank {low}, without an upper end")
        }
        _ => String::new(),
    };
    let colon = if alike.is_some() { "" } else { ":" };
    let says = format!(
        "{} from {n} samples of {name}{correlated}{colon} {} beyond it{bound}",
        names.join(", "),
        alike.map_or_else(
            || value((beyond * 10.0).round() / 10.0),
            |w| significant(w * (1.0 - p), 2)
        )
    );
    let subjects: Vec<Subject> = found.iter().filter_map(|(p, _)| subject_of(*p)).collect();
    Some(
        W10.finding(Level::Warn, says)
            .affecting(&subjects)
            .number("p", *p)
            .number("samples", *n as f64)
            .maybe("effective_samples", *worth)
            .number("samples_beyond", beyond)
            .maybe("effective_samples_beyond", worth.map(|w| w * (1.0 - p)))
            .maybe("samples_needed_for_upper_bound", needed.map(|n| n as f64)),
    )
}

/// `p99`, `p99.9`.
fn percentile_name(p: f64) -> String {
    format!("p{}", value((p * 1e6).round() / 1e4))
}

/// The subject that a percentile belongs to: the next of p90, p95 and p99 above it.
fn subject_of(p: f64) -> Option<Subject> {
    Some(match p {
        p if p <= 0.5 => return None,
        p if p <= 0.9 => Subject::P90,
        p if p <= 0.95 => Subject::P95,
        _ => Subject::P99,
    })
}

/// See [`too_few_samples`].
pub const W10: Check = Check {
    id: "W10",
    name: "too-few-samples",
    title: text("too few samples for the percentile", "样本不足以支撑该百分位"),
    rule: text(
        "samples · (1 − p) < 10, counting what correlated samples are worth; below 59 samples for p95, 299 for p99 and 2,995 for p99.9 there is no 95 % upper bound at all",
        "样本数 ·（1 − p）< 10，相关样本按其等效数计；p95 少于 59、p99 少于 299、p99.9 少于 2,995 个样本时根本没有 95 % 上界",
    ),
    why: text(
        "p99 of 50 requests is their maximum. Neighbours in a run wait for the same reason, so a thousand requests can be worth a hundred.",
        "50 个请求的 p99 就是最大值。同一次运行中的相邻请求因同一原因而等待，一千个请求可能只相当于一百个。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::P90, Subject::P95, Subject::P99],
    advice: text(
        "send more requests, or read a lower percentile with its interval",
        "增加请求数，或看较低的百分位及其区间",
    ),
    source: Source {
        work: "vLLM docs, sample with 10 requests that prints P99; Hahn and Meeker 1991",
        section: "",
    },
    raised_by: &[Command::Report, Command::Sim],
};

/// W11: percentiles of shards cannot be averaged into one.
///
/// `percentiles_s` holds one percentile, the same of each shard, replica or window. The percentile
/// of all requests lies between the smallest and the largest of them, and nothing more is known.
#[must_use]
pub fn percentile_of_percentiles(p: f64, percentiles_s: &[f64]) -> Option<Finding> {
    let known = || percentiles_s.iter().copied().filter(|x| x.is_finite());
    let (low, high) = known().min_by(f64::total_cmp).zip(known().max_by(f64::total_cmp))?;
    if percentiles_s.len() < 2 || !(0.0 < p && p < 1.0) {
        return None;
    }
    let says = format!(
        "{} of {} shards have no common mean: of all requests it lies between {} and {}",
        percentile_name(p),
        percentiles_s.len(),
        seconds(low),
        seconds(high)
    );
    let subjects: Vec<Subject> = subject_of(p).into_iter().collect();
    Some(
        W11.finding(Level::Warn, says)
            .affecting(&subjects)
            .number("shards", percentiles_s.len() as f64)
            .number("low_s", low)
            .number("high_s", high),
    )
}

/// See [`percentile_of_percentiles`].
pub const W11: Check = Check {
    id: "W11",
    name: "percentile-of-percentiles",
    title: text("percentiles were averaged", "对百分位取了平均"),
    rule: text(
        "the input has one percentile for each shard, replica or window instead of requests or histograms: the mean is refused, the smallest and the largest bound it",
        "输入只有每个分片、副本或窗口的一个百分位，而非请求或直方图：拒绝取均值，只以最小值与最大值为界",
    ),
    why: text(
        "The percentile of a union lies between those of its parts, but no average of them is it.",
        "并集的百分位介于各部分之间，但任何平均都不是它。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::P90, Subject::P95, Subject::P99],
    advice: text("ask for histograms or raw requests", "索取直方图或原始请求"),
    source: Source { work: "scylla-monitoring#1886; k8s-netperf PR#148", section: "" },
    raised_by: &[],
};

/// W12: a quantile from histogram buckets that cannot hold it.
///
/// `low_s` and `high_s` bound the bucket in which the quantile falls, the upper one absent if that
/// is the +Inf bucket; `in_last` tells that it is the last finite one. `count` and `sum_s` are of
/// all observations, and zero observed throughout is no quantile either.
#[must_use]
pub fn histogram_edge(
    p: f64,
    low_s: f64,
    high_s: Option<f64>,
    in_last: bool,
    count: f64,
    sum_s: f64,
) -> Option<Finding> {
    let name = percentile_name(p);
    let subjects: Vec<Subject> = subject_of(p).into_iter().collect();
    let says = match high_s {
        _ if 0.0 < count && sum_s == 0.0 => {
            format!("all {} observations are 0: {name} has no meaning", value(count))
        }
        None => format!("{name} lies above {}, the last bound of the histogram", seconds(low_s)),
        Some(high) if in_last => format!(
            "{name} lies in the last bucket, from {} to {}: slower requests may be capped there",
            seconds(low_s),
            seconds(high)
        ),
        Some(high) if low_s <= 0.0 || 2.0 < high / low_s => format!(
            "{name} lies between {} and {}: the bucket is too wide for a number",
            seconds(low_s),
            seconds(high)
        ),
        Some(_) => return None,
    };
    Some(
        W12.finding(Level::Warn, says)
            .affecting(&subjects)
            .number("p", p)
            .number("low_s", low_s)
            .maybe("high_s", high_s)
            .maybe("mean_s", (0.0 < count).then(|| sum_s / count)),
    )
}

/// See [`histogram_edge`].
pub const W12: Check = Check {
    id: "W12",
    name: "histogram-edge",
    title: text("the histogram cannot hold the quantile", "直方图容不下该分位"),
    rule: text(
        "the quantile falls into the +Inf or the last finite bucket, or into one whose upper bound is more than twice the lower; or all observations are 0",
        "分位落入 +Inf 桶或最后一个有限桶，或落入上界超过下界两倍的桶；或所有观测均为 0",
    ),
    why: text(
        "Interpolation inside a bucket makes a number out of its bounds: below a first bound of 0.3 s every p99 is 0.297 s.",
        "桶内插值只是由边界造出数字：若首个边界为 0.3 s，任何 p99 都是 0.297 s。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::P90, Subject::P95, Subject::P99],
    advice: text(
        "read the interval, and give the engine bounds near the SLO",
        "看区间，并给引擎配置靠近 SLO 的桶边界",
    ),
    source: Source { work: "vllm#15167; vllm#6337; vllm#48175", section: "metric faults 11, 13" },
    raised_by: &[],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut samples: Vec<Sampled<'_>> = Vec::new();
    let mut shown: Vec<f64> = Vec::new();
    for (name, stated, s) in [
        ("TTFT", "TTFT that the tool had and the file has not", &facts.ttft),
        ("TPOT", "TPOT that the tool had and the file has not", &facts.tpot),
        ("E2E", "E2E that the tool had and the file has not", &facts.e2e),
    ] {
        let s: &Spread = s;
        let figures = [(0.9, s.p90), (0.95, s.p95), (0.99, s.p99)];
        if figures.iter().all(|(_, x)| x.is_none()) {
            continue;
        }
        if let Some(n) = s.n.or(facts.completed) {
            let name = if s.n.is_some() { name } else { stated };
            samples.push((name, n, s.effective));
            shown.extend(figures.iter().filter(|(_, x)| x.is_some()).map(|(p, _)| *p));
        }
    }
    shown.sort_by(f64::total_cmp);
    shown.dedup();
    too_few_samples(&samples, &shown).into_iter().collect()
}
