//! From a run's figures to what the diagnosis tree asks for.
//!
//! A [`Report`] says what one run was like; [`observe`] puts its figures where
//! [`diagnosis`](crate::diagnosis) looks for them and adds what only the requests together tell:
//! how many wait over time, how full the batch is, what TPOT does with the context. Figures of
//! several sources of one run are put together by [`Observations::fill`], an earlier run becomes
//! the baseline by [`Observations::against`].

use crate::alerts::{MIN_SAMPLES, Trend, keeps_growing};
use crate::concurrency::in_flight;
use crate::diagnosis::{Ends, Figure, Latency, Observations, Operand, Part, Upper};
use crate::error::Result;
use crate::metric::{Text, text};
use crate::report::{Distribution, Figures, Report};
use crate::timeline::{Outcome, RequestTimeline};
use crate::units::{
    Bytes, FlopPerByte, Quantity, Requests, Seconds, SecondsPerToken, Tokens, TokensPerSecond,
};
use crate::utilization::mean_batch_utilization;

/// How many instants a series of queue depths has.
const SAMPLES: u32 = 60;

/// What a run's requests show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The figures, all of them current.
    pub seen: Observations,
    /// Whether the queue is what the largest batch leaves over, since the file does not say when
    /// requests were scheduled: too short if something else than the batch holds them back.
    pub queue_assumed: bool,
}

/// Puts the figures of a run where the tree looks for them.
///
/// `max_batch_size` is the engine's largest batch in requests, if known: without it there is no
/// batch utilization, and no queue unless the requests say when they were scheduled.
///
/// # Errors
///
/// That of a figure that cannot be, which a checked timeline does not give.
///
/// Source: metric dictionary, 6: the operands of its table.
pub fn observe(
    report: &Report,
    timelines: &[RequestTimeline],
    max_batch_size: Option<u64>,
) -> Result<Observed> {
    let mut seen = Observations {
        ttft: latency(report, "ttft"),
        tpot: latency(report, "tpot"),
        e2e: latency(report, "e2e"),
        goodput_ratio: report.goodput.as_ref().and_then(|g| g.ratio),
        ..Observations::default()
    };
    let t = &report.throughput;
    seen.token_throughput.current = t.output;
    seen.prompt_tokens.current = t.input_length.as_ref().and_then(|l| Tokens::new(l.mean).ok());
    seen.prefill_decode_ratio.current = match (t.input_tokens, t.output_tokens) {
        (Some(i), Some(o)) if 0 < o => Some(i as f64 / o as f64),
        _ => None,
    };
    let ttft = figures(report, "ttft");
    if let (Some(wait), Some(ttft)) = (figures(report, "queue_time"), ttft) {
        seen.queue_wait.current = Seconds::new(wait.mean.value).ok();
        if 0.0 < ttft.mean.value && wait.n == ttft.n {
            seen.queue_share = Some((wait.mean.value / ttft.mean.value).min(1.0));
        }
    }
    if let (Some(late), Some(ttft)) = (figures(report, "send_delay"), ttft) {
        seen.send_delay = ratio(percentile(late, 0.99), percentile(ttft, 0.5));
    }
    let completed: Vec<&RequestTimeline> =
        timelines.iter().filter(|t| t.outcome() == Outcome::Completed).collect();
    seen.tpot_by_context = by_context(&completed);
    let queue_assumed = crowd(&mut seen, report, &completed, max_batch_size)?;
    Ok(Observed { seen, queue_assumed })
}

/// A quotient that exists.
fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let b = b.filter(|b| 0.0 < *b)?;
    Some(a? / b).filter(|x| x.is_finite())
}

fn figures<'a>(report: &'a Report, name: &str) -> Option<&'a Figures> {
    report.latency.iter().find(|d: &&Distribution| d.name == name)?.figures.as_ref()
}

fn percentile(f: &Figures, p: f64) -> Option<f64> {
    f.percentiles.iter().find(|x| x.p == Some(p)).map(|x| x.value)
}

fn latency<Q: Quantity + TryFrom<f64>>(report: &Report, name: &str) -> Latency<Q> {
    let f = figures(report, name);
    let of = |p| f.and_then(|f| percentile(f, p)).and_then(|x| Q::try_from(x).ok());
    // A median of 0 is no base for "times as much", and stays unknown.
    let p50 = of(0.5).filter(|q| 0.0 < q.number());
    Latency {
        p50,
        p99: of(0.99),
        baseline_p50: None,
        baseline_p99: None,
        slo: None,
        to: Ends::exact(),
    }
}

/// Mean TPOT over the mean context length of a request, in order of the length.
fn by_context(completed: &[&RequestTimeline]) -> Option<Trend> {
    let mut pairs: Vec<(f64, f64)> = completed
        .iter()
        .filter_map(|t| {
            let m = t.metrics().filter(crate::latency::RequestMetrics::has_gaps)?;
            // Each decode step reads the prompt and what was put out so far.
            let context = t.input_tokens()? as f64 + t.output_tokens()? as f64 / 2.0;
            Some((context, m.tpot.get()))
        })
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let means: Vec<(f64, f64)> = pairs
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| {
            let sum: f64 = same.iter().map(|p| p.1).sum();
            Some((same.first()?.0, sum / same.len() as f64))
        })
        .collect();
    if means.len() < MIN_SAMPLES {
        return None;
    }
    keeps_growing(&means).ok()
}

/// Queue and batch over time; whether they rest on the largest batch alone.
fn crowd(
    seen: &mut Observations,
    report: &Report,
    completed: &[&RequestTimeline],
    max_batch_size: Option<u64>,
) -> Result<bool> {
    let Some(window) = report.window.as_ref().map(|w| w.length) else { return Ok(false) };
    let spans: Option<Vec<(f64, Option<f64>, f64)>> = completed
        .iter()
        .map(|t| {
            let arrival = t.arrival_s()?;
            let queue = t.queue_time().map(|q| arrival + q.get());
            Some((arrival, queue, arrival + t.e2e_latency()?.get()))
        })
        .collect();
    let Some(spans) = spans.filter(|s| !s.is_empty()) else { return Ok(false) };
    let scheduled: Option<Vec<f64>> = spans.iter().map(|s| s.1).collect();
    let starts: Vec<f64> = spans.iter().map(|s| s.0).collect();
    let ends: Vec<f64> = spans.iter().map(|s| s.2).collect();
    if let Some(scheduled) = scheduled {
        let between =
            |a: &[f64], b: &[f64]| in_flight(a.iter().copied().zip(b.iter().copied()), window);
        let (waiting, serving) = (between(&starts, &scheduled)?, between(&scheduled, &ends)?);
        seen.queue_depth.current = Some(waiting.mean);
        if let Some(b) = max_batch_size {
            seen.batch_utilization = batch(serving.mean.get(), b)?;
        }
        let depth = |t: f64| count(&starts, t) - count(&scheduled, t);
        seen.queue_trend = trend(&starts, depth);
        return Ok(false);
    }
    let Some(b) = max_batch_size else { return Ok(false) };
    let most = b as f64;
    let inside = |t: f64| count(&starts, t) - count(&ends, t);
    seen.queue_trend = trend(&starts, |t| (inside(t) - most).max(0.0));
    let (mut waiting, mut serving) = (0.0, 0.0);
    let mut edges: Vec<f64> = starts.iter().chain(&ends).copied().collect();
    edges.sort_by(f64::total_cmp);
    let (mut sorted_starts, mut sorted_ends) = (starts.clone(), ends.clone());
    sorted_starts.sort_by(f64::total_cmp);
    sorted_ends.sort_by(f64::total_cmp);
    for pair in edges.windows(2) {
        let &[from, to] = pair else { continue };
        let n = sorted_starts.partition_point(|s| *s <= from) as f64
            - sorted_ends.partition_point(|e| *e <= from) as f64;
        waiting += (n - most).max(0.0) * (to - from);
        serving += n.min(most) * (to - from);
    }
    seen.queue_depth.current = Requests::new(waiting / window.get()).ok();
    seen.batch_utilization = batch(serving / window.get(), b)?;
    Ok(true)
}

/// How many of these instants lie up to `t`.
fn count(instants: &[f64], t: f64) -> f64 {
    instants.iter().filter(|&&x| x <= t).count() as f64
}

/// The utilization of a batch; none where more requests were served than it holds, as then the
/// size is not the engine's.
fn batch(mean: f64, max_batch_size: u64) -> Result<Option<f64>> {
    let most = max_batch_size as f64;
    // A sum of durations may round above what fits.
    if most * (1.0 + 1e-9) < mean {
        return Ok(None);
    }
    mean_batch_utilization(Requests::new(mean.min(most))?, Requests::new(most)?).map(Some)
}

/// The trend of a depth while requests arrive: what drains afterwards is no fall.
fn trend(arrivals: &[f64], depth: impl Fn(f64) -> f64) -> Option<Trend> {
    let first = arrivals.iter().copied().min_by(f64::total_cmp)?;
    let last = arrivals.iter().copied().max_by(f64::total_cmp)?;
    if last <= first {
        return None;
    }
    let at = |i: u32| first + (last - first) * f64::from(i) / f64::from(SAMPLES);
    let series: Vec<(f64, f64)> = (1..=SAMPLES).map(|i| (at(i), depth(at(i)))).collect();
    keeps_growing(&series).ok()
}

/// Fills the empty fields of a figure.
macro_rules! fill {
    ($into:expr, $from:expr, $($field:ident),+) => {
        $( if $into.$field.is_none() { $into.$field = $from.$field; } )+
    };
}

/// Takes what `from` has of a figure that `into` lacks, value and baseline apart.
fn fill_figure<Q: Copy>(into: &mut Figure<Q>, from: &Figure<Q>) {
    fill!(into, from, current, baseline);
}

fn fill_latency<Q: Copy>(into: &mut Latency<Q>, from: &Latency<Q>) {
    // Both percentiles of one source, so that they stay in order.
    if into.p50.is_none() && into.p99.is_none() {
        (into.p50, into.p99) = (from.p50, from.p99);
        (into.to.p50, into.to.p99) = (from.to.p50, from.to.p99);
    }
    if into.baseline_p50.is_none() && into.baseline_p99.is_none() {
        (into.baseline_p50, into.baseline_p99) = (from.baseline_p50, from.baseline_p99);
        (into.to.baseline_p50, into.to.baseline_p99) = (from.to.baseline_p50, from.to.baseline_p99);
    }
    fill!(into, from, slo);
}

fn earlier_latency<Q: Copy>(into: &mut Latency<Q>, earlier: &Latency<Q>) {
    (into.baseline_p50, into.baseline_p99) = (earlier.p50, earlier.p99);
    (into.to.baseline_p50, into.to.baseline_p99) = (earlier.to.p50, earlier.to.p99);
}

impl Observations {
    /// Takes from another source of the same run what this one lacks.
    pub fn fill(&mut self, other: &Self) {
        fill_latency(&mut self.ttft, &other.ttft);
        fill_latency(&mut self.tpot, &other.tpot);
        fill_latency(&mut self.e2e, &other.e2e);
        fill_figure(&mut self.queue_depth, &other.queue_depth);
        fill_figure(&mut self.queue_wait, &other.queue_wait);
        fill_figure(&mut self.prompt_tokens, &other.prompt_tokens);
        fill_figure(&mut self.prefill_decode_ratio, &other.prefill_decode_ratio);
        fill_figure(&mut self.kv_step_bytes, &other.kv_step_bytes);
        fill_figure(&mut self.kv_hit_rate, &other.kv_hit_rate);
        fill_figure(&mut self.token_throughput, &other.token_throughput);
        fill!(self.eviction_rate, other.eviction_rate, peak, mean);
        fill!(self.communication_time, other.communication_time, peak, mean);
        fill!(
            self,
            other,
            queue_trend,
            queue_share,
            batch_utilization,
            kv_utilization,
            gpu_utilization,
            arithmetic_intensity,
            ridge_point,
            kv_scan_share,
            tpot_by_context,
            refill_rate,
            reload_share,
            preemptions,
            send_delay,
            goodput_ratio,
            rho
        );
    }

    /// Takes the current figures of an earlier run as the baseline.
    pub fn against(&mut self, earlier: &Self) {
        earlier_latency(&mut self.ttft, &earlier.ttft);
        earlier_latency(&mut self.tpot, &earlier.tpot);
        earlier_latency(&mut self.e2e, &earlier.e2e);
        self.queue_depth.baseline = earlier.queue_depth.current;
        self.queue_wait.baseline = earlier.queue_wait.current;
        self.prompt_tokens.baseline = earlier.prompt_tokens.current;
        self.prefill_decode_ratio.baseline = earlier.prefill_decode_ratio.current;
        self.kv_step_bytes.baseline = earlier.kv_step_bytes.current;
        self.kv_hit_rate.baseline = earlier.kv_hit_rate.current;
        self.token_throughput.baseline = earlier.token_throughput.current;
    }

    /// Sets a figure by its name, as somebody who measured it elsewhere says it; whether there is
    /// one of that name in [`SETTABLE`].
    ///
    /// # Errors
    ///
    /// That of a number which the figure cannot have.
    pub fn set(&mut self, name: &str, x: f64) -> Result<bool> {
        match name {
            "gpu_utilization" => self.gpu_utilization = Some(x),
            "kv_utilization" => self.kv_utilization = Some(x),
            "batch_utilization" => self.batch_utilization = Some(x),
            "queue_share" => self.queue_share = Some(x),
            "kv_scan_share" => self.kv_scan_share = Some(x),
            "refill_rate" => self.refill_rate = Some(x),
            "reload_share" => self.reload_share = Some(x),
            "preemptions" => self.preemptions = Some(x),
            "goodput_ratio" => self.goodput_ratio = Some(x),
            "rho" => self.rho = Some(x),
            "arithmetic_intensity" => self.arithmetic_intensity = Some(FlopPerByte::new(x)?),
            "ridge_point" => self.ridge_point = Some(FlopPerByte::new(x)?),
            "queue_depth" => self.queue_depth.current = Some(Requests::new(x)?),
            "queue_wait" => self.queue_wait.current = Some(Seconds::new(x)?),
            "kv_step_bytes" => self.kv_step_bytes.current = Some(Bytes::new(x)?),
            "kv_hit_rate" => self.kv_hit_rate.current = Some(x),
            "token_throughput" => self.token_throughput.current = Some(TokensPerSecond::new(x)?),
            "prefill_decode_ratio" => self.prefill_decode_ratio.current = Some(x),
            "eviction_rate_peak" => self.eviction_rate.peak = Some(x),
            "eviction_rate_mean" => self.eviction_rate.mean = Some(x),
            "communication_time_peak" => self.communication_time.peak = Some(Seconds::new(x)?),
            "communication_time_mean" => self.communication_time.mean = Some(Seconds::new(x)?),
            "baseline_queue_depth" => self.queue_depth.baseline = Some(Requests::new(x)?),
            "baseline_queue_wait" => self.queue_wait.baseline = Some(Seconds::new(x)?),
            "baseline_kv_step_bytes" => self.kv_step_bytes.baseline = Some(Bytes::new(x)?),
            "baseline_kv_hit_rate" => self.kv_hit_rate.baseline = Some(x),
            "baseline_prefill_decode_ratio" => self.prefill_decode_ratio.baseline = Some(x),
            "baseline_token_throughput" => {
                self.token_throughput.baseline = Some(TokensPerSecond::new(x)?);
            }
            "baseline_ttft_p50" => {
                self.ttft.baseline_p50 = Some(Seconds::new(x)?);
                self.ttft.to.baseline_p50 = Upper::Exact;
            }
            "baseline_tpot_p50" => {
                self.tpot.baseline_p50 = Some(SecondsPerToken::new(x)?);
                self.tpot.to.baseline_p50 = Upper::Exact;
            }
            "baseline_e2e_p50" => {
                self.e2e.baseline_p50 = Some(Seconds::new(x)?);
                self.e2e.to.baseline_p50 = Upper::Exact;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The names that [`Observations::set`] knows.
pub const SETTABLE: &[&str] = &[
    "gpu_utilization",
    "kv_utilization",
    "batch_utilization",
    "queue_share",
    "kv_scan_share",
    "refill_rate",
    "reload_share",
    "preemptions",
    "goodput_ratio",
    "rho",
    "arithmetic_intensity",
    "ridge_point",
    "queue_depth",
    "queue_wait",
    "kv_step_bytes",
    "kv_hit_rate",
    "token_throughput",
    "prefill_decode_ratio",
    "eviction_rate_peak",
    "eviction_rate_mean",
    "communication_time_peak",
    "communication_time_mean",
    "baseline_queue_depth",
    "baseline_queue_wait",
    "baseline_kv_step_bytes",
    "baseline_kv_hit_rate",
    "baseline_prefill_decode_ratio",
    "baseline_token_throughput",
    "baseline_ttft_p50",
    "baseline_tpot_p50",
    "baseline_e2e_p50",
];

/// What gives a value that the tree lacks: a file, or an option of `goodput diagnose`.
#[must_use]
pub const fn given_by(operand: Operand, part: Part) -> Text {
    use Operand as O;
    const WITH: Text =
        text("`--with NAME=VALUE`, from a profiler", "`--with 名称=数值`（取自性能分析工具）");
    match (part, operand) {
        (Part::Finer, _) => text(
            "a result file with latencies per request, or buckets with the objective among their bounds",
            "含逐请求时延的结果文件，或把目标值设为桶界",
        ),
        (Part::Baseline, _) => text(
            "`--baseline FILE`: a run or a snapshot from when things were well",
            "`--baseline FILE`：正常时期的结果或快照",
        ),
        (Part::Limit, O::TtftP99) => text("`--slo 'p99(ttft)<500ms'`", "`--slo 'p99(ttft)<500ms'`"),
        (Part::Limit, O::TpotP99) => text("`--slo 'p99(tpot)<50ms'`", "`--slo 'p99(tpot)<50ms'`"),
        (Part::Limit, O::E2eP99) => text("`--slo 'p99(e2e)<10s'`", "`--slo 'p99(e2e)<10s'`"),
        (Part::Limit | Part::Mean, _)
        | (
            _,
            O::GpuUtilization
            | O::ArithmeticIntensity
            | O::KvStepBytes
            | O::KvScanShare
            | O::ReloadShare
            | O::RefillRate
            | O::EvictionRate
            | O::CommunicationTime
            | O::Rho,
        ) => WITH,
        (_, O::BatchUtilization | O::QueueTrend) => text(
            "`--max-num-seqs N` with arrivals per request, or with a snapshot of `/metrics` for the moment",
            "`--max-num-seqs N`，配合含到达时刻的结果文件，或配合 `/metrics` 快照（仅当时）",
        ),
        (_, O::QueueDepth | O::QueueWait | O::QueueShare) => text(
            "a snapshot of `/metrics`, or timelines with `scheduled_s`",
            "`/metrics` 快照，或含 `scheduled_s` 的时间线",
        ),
        (_, O::KvUtilization | O::KvHitRate | O::Preemptions) => {
            text("a snapshot of `/metrics`", "`/metrics` 快照")
        }
        (_, O::SendDelay) => text(
            "timelines with `sent_s`, or a client that writes when a request was due",
            "含 `sent_s` 的时间线，或会写出计划发送时刻的客户端",
        ),
        (_, O::GoodputRatio) => text(
            "`--goodput ttft:200 tpot:50` with a result file",
            "`--goodput ttft:200 tpot:50` 与结果文件",
        ),
        (_, O::TokenThroughput) => text(
            "a result file, or two snapshots with `--interval 60s`",
            "结果文件，或两个快照加 `--interval 60s`",
        ),
        _ => text("a result file with detail per request", "含逐请求明细的结果文件"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Confidence;
    use crate::report::{Input, Window};
    use crate::slo::SloSet;
    use crate::summary::PercentileMethod;
    use crate::timeline::{Instant, TimelineFields};

    fn request(
        id: u32,
        arrival: f64,
        scheduled: Option<f64>,
        first: f64,
        last: f64,
    ) -> RequestTimeline {
        let at = |s| Some(Instant::Seconds(s));
        RequestTimeline::new(TimelineFields {
            id: id.to_string(),
            arrival: at(arrival),
            scheduled: scheduled.map(Instant::Seconds),
            first_token: at(first),
            last_token: at(last),
            input_tokens: Some(u64::from(10 * id + 10)),
            output_tokens: Some(3),
            ..TimelineFields::default()
        })
        .unwrap()
    }

    fn seen(timelines: &[RequestTimeline], b: Option<u64>) -> Observed {
        let slo = SloSet::none();
        let window = Some(Window { length: Seconds::new(4.0).unwrap(), basis: String::new() });
        let input = Input {
            timelines,
            window,
            truncated: false,
            slo: &slo,
            method: PercentileMethod::Linear,
            confidence: Confidence::new(0.95).unwrap(),
        };
        observe(&Report::new(&input).unwrap(), timelines, b).unwrap()
    }

    /// By hand, over 4 s with a batch of 1: the first is served from 0 to 2 s, the second arrives
    /// at 1 s, is scheduled at 2 s and ends at 4 s. One waits for 1 of 4 s: depth 0.25; the batch
    /// is full all the time; waits of 0 and 1 s, TTFT 1 and 2 s: a share of 1 of 3 s. Without the
    /// scheduling instants, the batch of 1 gives the same.
    #[test]
    fn queue_and_batch_come_from_scheduling_or_from_the_batch() {
        let with = [request(0, 0.0, Some(0.0), 1.0, 2.0), request(1, 1.0, Some(2.0), 3.0, 4.0)];
        let o = seen(&with, Some(1));
        assert_eq!(o.seen.queue_depth.current.unwrap().get(), 0.25);
        assert_eq!(o.seen.batch_utilization, Some(1.0));
        assert!((o.seen.queue_share.unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(o.seen.prompt_tokens.current.unwrap().get(), 15.0);
        assert_eq!(o.seen.prefill_decode_ratio.current, Some(5.0));
        assert!(!o.queue_assumed);
        let without = [request(0, 0.0, None, 1.0, 2.0), request(1, 1.0, None, 3.0, 4.0)];
        let o = seen(&without, Some(1));
        assert!(o.queue_assumed);
        assert_eq!(o.seen.queue_depth.current.unwrap().get(), 0.25);
        assert_eq!(o.seen.batch_utilization, Some(1.0));
        let o = seen(&without, None);
        assert_eq!((o.seen.queue_depth.current, o.seen.batch_utilization), (None, None));
    }

    /// Arrivals of one a second, each served for two seconds by one place: the queue grows.
    #[test]
    fn an_overloaded_queue_keeps_growing_and_a_light_one_does_not() {
        let trend = |service: f64| {
            let mut free = 0.0_f64;
            let requests: Vec<_> = (0..40)
                .map(|i| {
                    let arrival = f64::from(i);
                    let start = free.max(arrival);
                    free = start + service;
                    request(i, arrival, Some(start), start + 0.5 * service, free)
                })
                .collect();
            seen(&requests, None).seen.queue_trend.unwrap().keeps_growing()
        };
        assert!(trend(2.0));
        assert!(!trend(0.5));
    }

    /// TPOT of 1 ms for each ten tokens of prompt more grows with the context.
    #[test]
    fn tpot_is_followed_over_the_context() {
        let grows = |per: f64| {
            let r: Vec<_> = (0..20)
                .map(|i| request(i, 0.0, None, 0.1, 0.1 + 2.0 * (0.02 + per * f64::from(i))))
                .collect();
            seen(&r, None).seen.tpot_by_context.unwrap().keeps_growing()
        };
        assert!(grows(0.001));
        assert!(!grows(0.0));
    }

    #[test]
    fn every_settable_name_sets_something() {
        for name in SETTABLE {
            let mut o = Observations::default();
            assert_eq!(o.set(name, 0.5), Ok(true), "{name}");
            assert_ne!(o, Observations::default(), "{name}");
        }
        assert_eq!(Observations::default().set("tpott", 1.0), Ok(false));
    }

    #[test]
    fn sources_fill_each_other_and_an_earlier_run_is_the_baseline() {
        let mut o = Observations::default();
        o.set("kv_utilization", 0.5).unwrap();
        let mut other = Observations::default();
        other.set("kv_utilization", 0.9).unwrap();
        other.set("queue_depth", 3.0).unwrap();
        o.fill(&other);
        assert_eq!(o.kv_utilization, Some(0.5));
        let mut now = Observations::default();
        now.against(&o);
        assert_eq!(now.queue_depth.baseline, Requests::new(3.0).ok());
        assert_eq!(now.queue_depth.current, None);
    }
}
