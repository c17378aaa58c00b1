//! What the tools' modules share: the client's view of a request, statistics, and ours beside.

use super::{Known, Tool, ToolFigure, Topic, fault, rule};
use crate::latency::RequestMetrics;
use crate::report::PERCENTILES;
use crate::slo::{Latency, Limit};
use crate::summary::{PercentileMethod, Summary};
use crate::timeline::{Gaps, Outcome, RequestTimeline};
use crate::units::{Quantity, Seconds};

/// A value, or why the run cannot give it.
pub(super) type Value<T = f64> = Result<T, String>;

/// The tool's figures as they are put together.
pub(super) struct Sheet<'a> {
    tool: Tool,
    pub(super) known: &'a Known<'a>,
    figures: Vec<ToolFigure>,
    ours: Ours,
}

/// Our own samples of completed requests.
struct Ours {
    ttft: Option<Summary>,
    tpot: Option<Summary>,
    gaps: Option<Summary>,
    e2e: Option<Summary>,
    output: Option<Summary>,
    input: Option<Summary>,
}

/// Which of our samples a tool's figure stands beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Ttft,
    Tpot,
    Gaps,
    E2e,
    Output,
    Input,
    Nothing,
}

/// One statistic of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stat {
    Mean,
    Median,
    /// n in the denominator.
    Std,
    /// n − 1 in the denominator.
    StdSample,
    Min,
    Max,
    /// A percentile, in percent.
    P(f64),
}

impl Stat {
    /// The statistic of a summary; a percentile is the tool's own division by 100.
    pub(super) fn of(self, s: &Summary, method: PercentileMethod) -> Option<f64> {
        match self {
            Self::Mean => Some(s.mean()),
            Self::Median => s.percentile_by(0.5, method).ok(),
            Self::Std => Some(s.std_population()),
            Self::StdSample => s.std(),
            Self::Min => Some(s.min()),
            Self::Max => Some(s.max()),
            Self::P(percent) => s.percentile_by(percent / 100.0, method).ok(),
        }
    }
}

/// A percentile in percent as tools write it: `99`, `99.9`.
pub(super) fn percent_name(percent: f64) -> String {
    crate::format::plain(percent)
}

/// One block of figures over the same samples.
pub(super) struct Block<'b> {
    pub(super) beside: Beside,
    /// The samples in seconds, or in tokens.
    pub(super) values: Value<Vec<f64>>,
    /// From seconds to the tool's unit.
    pub(super) scale: f64,
    pub(super) topic: Topic,
    /// Key, label and statistic of each figure.
    pub(super) rows: Vec<(String, String, Stat)>,
    pub(super) fault: Option<&'b str>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(tool: Tool, known: &'a Known<'a>) -> Self {
        Self { tool, known, figures: Vec::new(), ours: Ours::new(known) }
    }

    pub(super) fn done(self) -> Vec<ToolFigure> {
        self.figures
    }

    /// Peak token rate and peak concurrency by buckets of a second, as vLLM's client and SGLang's,
    /// which began as a copy of it, both count them.
    pub(super) fn push_peaks(&mut self, completed: &[Seen<'_>]) {
        let peaks = buckets(completed);
        self.push(
            ("max_output_tokens_per_s", "Peak output token throughput (tok/s)"),
            peaks.clone().map(|p| p.0),
            None,
            Topic::Tokens,
        );
        let our_peak = self.known.report.in_flight.map(|f| f.peak as f64);
        self.push(
            ("max_concurrent_requests", "Peak concurrent requests"),
            peaks.map(|p| p.1),
            our_peak,
            Topic::InFlight,
        );
    }

    /// Adds one figure.
    pub(super) fn push(
        &mut self,
        (key, label): (&str, &str),
        value: Value,
        ours: Option<f64>,
        topic: Topic,
    ) {
        // A division by zero under a tool's rule is no figure, whatever the tool prints.
        let value = value.and_then(|x| {
            if x.is_finite() {
                Ok(x)
            } else {
                Err("the tool's rule divides by zero here".to_owned())
            }
        });
        self.figures.push(ToolFigure {
            key: key.to_owned(),
            label: label.to_owned(),
            value,
            ours,
            rule: rule(self.tool, topic),
            fault: None,
        });
    }

    /// Names the fault behind the figure that was added last.
    pub(super) fn with_fault(&mut self, id: &str) {
        if let Some(last) = self.figures.last_mut() {
            last.fault = fault(id);
        }
    }

    /// Adds the figures of a block, percentiles by linear interpolation.
    pub(super) fn block(&mut self, block: Block<'_>) {
        self.block_by(block, PercentileMethod::Linear);
    }

    /// Adds the figures of a block.
    pub(super) fn block_by(&mut self, block: Block<'_>, method: PercentileMethod) {
        let summary = block.values.and_then(|v| {
            if v.is_empty() {
                return Err("no completed request has it".to_owned());
            }
            Summary::new(v).map_err(|e| e.to_string())
        });
        for (key, label, stat) in block.rows {
            let scale = block.scale;
            let value = match &summary {
                Ok(s) => stat
                    .of(s, method)
                    .map(|x| x * scale)
                    .ok_or_else(|| "one sample has no such statistic".to_owned()),
                Err(why) => Err(why.clone()),
            };
            let ours = self.ours_of(block.beside, stat).map(|x| x * scale);
            self.push((&key, &label), value, ours, block.topic);
            if let Some(id) = block.fault {
                self.with_fault(id);
            }
        }
    }

    /// Our own statistic.
    pub(super) fn ours_of(&self, beside: Beside, stat: Stat) -> Option<f64> {
        let summary = match beside {
            Beside::Ttft => &self.ours.ttft,
            Beside::Tpot => &self.ours.tpot,
            Beside::Gaps => &self.ours.gaps,
            Beside::E2e => &self.ours.e2e,
            Beside::Output => &self.ours.output,
            Beside::Input => &self.ours.input,
            Beside::Nothing => return None,
        };
        stat.of(summary.as_ref()?, self.known.input.method)
    }

    /// The percentiles wanted, else those of a report.
    pub(super) fn percentiles(&self) -> Vec<f64> {
        if self.known.percentiles.is_empty() {
            PERCENTILES.iter().map(|p| p * 100.0).collect()
        } else {
            self.known.percentiles.to_vec()
        }
    }

    /// The completed requests with their place among the timelines.
    pub(super) fn completed(&self) -> Vec<Seen<'a>> {
        self.seen().into_iter().filter(|r| r.t.outcome() == Outcome::Completed).collect()
    }

    /// All requests.
    pub(super) fn seen(&self) -> Vec<Seen<'a>> {
        let known = self.known;
        known.input.timelines.iter().enumerate().map(|(i, t)| Seen { known, t, i }).collect()
    }

    /// How many requests completed.
    pub(super) fn completed_n(&self) -> f64 {
        self.known.report.throughput.completed as f64
    }

    /// How many requests there are.
    pub(super) fn sent_n(&self) -> f64 {
        self.known.report.sent() as f64
    }

    /// How many requests failed, were rejected or timed out.
    pub(super) fn missed_n(&self) -> f64 {
        let misses = self.known.report.outcomes.iter().filter(|(o, _)| o.is_miss());
        misses.map(|(_, n)| *n as f64).sum()
    }

    /// The wall clock of the run in seconds: stated, else the span of its requests.
    pub(super) fn wall(&self) -> Value {
        if self.known.input.truncated {
            return Err(
                "the run was stopped while requests were left, so it has no rates".to_owned()
            );
        }
        let window = self.known.report.window.as_ref();
        window
            .map(|w| w.length.get())
            .ok_or_else(|| "the file does not say how long the run took".to_owned())
    }

    /// Our own window in seconds.
    pub(super) fn our_window(&self) -> Option<f64> {
        self.known.report.window.as_ref().map(|w| w.length.get())
    }

    /// Output and input tokens of completed requests.
    pub(super) fn tokens(&self) -> (Value, Value) {
        let t = &self.known.report.throughput;
        let of = |n: Option<u64>, what| {
            n.map(|n| n as f64)
                .ok_or_else(|| format!("the file lacks the {what} tokens per request"))
        };
        (of(t.output_tokens, "output"), of(t.input_tokens, "input"))
    }

    /// Our rates: requests, output tokens, all tokens.
    pub(super) fn our_rates(&self) -> [Option<f64>; 3] {
        let t = &self.known.report.throughput;
        [
            t.requests.map(Quantity::number),
            t.output.map(Quantity::number),
            t.total.map(Quantity::number),
        ]
    }

    /// Our goodput in requests per second, and attainment.
    pub(super) fn our_goodput(&self) -> (Option<f64>, Option<f64>) {
        let g = self.known.report.goodput.as_ref();
        (g.and_then(|g| g.rate).map(Quantity::number), g.and_then(|g| g.attainment))
    }

    /// The limits on single requests; none without objectives.
    pub(super) fn limits(&self) -> Vec<Limit> {
        self.known.input.slo.limits().copied().collect()
    }

    /// How many completed requests meet every limit, where a request is judged by `of`: `Ok(None)`
    /// is a latency that the tool's rule has no value for, and so misses.
    pub(super) fn good(
        &self,
        of: impl Fn(&Seen<'_>, Latency) -> Value<Option<f64>>,
    ) -> Value<Vec<Seen<'a>>> {
        let limits = self.limits();
        if limits.is_empty() {
            return Err("no limit on single requests was given: --slo".to_owned());
        }
        let mut good = Vec::new();
        for r in self.completed() {
            let mut met = true;
            for limit in &limits {
                met &= of(&r, limit.latency)?.is_some_and(|x| limit.is_met_by(x));
            }
            if met {
                good.push(r);
            }
        }
        Ok(good)
    }
}

impl Ours {
    fn new(known: &Known<'_>) -> Self {
        let completed: Vec<&RequestTimeline> =
            known.input.timelines.iter().filter(|t| t.outcome() == Outcome::Completed).collect();
        let summary = |values: Vec<f64>| Summary::new(values).ok();
        let metrics = completed.iter().filter_map(|t| t.metrics());
        let tokens = |of: fn(&RequestTimeline) -> Option<u64>| {
            summary(completed.iter().filter_map(|t| of(t)).map(|n| n as f64).collect())
        };
        Self {
            ttft: summary(completed.iter().filter_map(|t| Latency::Ttft.of(t)).collect()),
            tpot: summary(metrics.filter(RequestMetrics::has_gaps).map(|m| m.tpot.get()).collect()),
            gaps: summary(
                completed
                    .iter()
                    .filter_map(|t| t.gaps())
                    .flat_map(|g| g.values().iter().map(|s| s.get()))
                    .collect(),
            ),
            e2e: summary(completed.iter().filter_map(|t| Latency::E2e.of(t)).collect()),
            output: tokens(RequestTimeline::output_tokens),
            input: tokens(RequestTimeline::input_tokens),
        }
    }
}

/// A request as the client that sent it saw it: its times count from sending.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    known: &'a Known<'a>,
    pub(super) t: &'a RequestTimeline,
    i: usize,
}

impl Seen<'_> {
    /// The value of this request in the first of these columns that there is.
    pub(super) fn column(&self, names: &[&str]) -> Option<f64> {
        self.known.column(names)?.get(self.i).copied().flatten()
    }

    /// How long after it was due it was sent.
    fn delay(&self) -> f64 {
        self.t.send_delay().map_or(0.0, Seconds::get)
    }

    /// When it was sent, from the origin of the arrivals.
    pub(super) fn start(&self) -> Option<f64> {
        Some(self.t.arrival_s()? + self.delay())
    }

    /// TTFT from sending, as the tool wrote it where the reader had to take another.
    pub(super) fn ttft(&self) -> Option<f64> {
        self.column(&["ttft_as_written_s"]).or(Some(self.t.ttft()?.get() - self.delay()))
    }

    /// From sending to the last token.
    pub(super) fn e2e(&self) -> Option<f64> {
        Some(self.t.e2e_latency()?.get() - self.delay())
    }

    /// From sending to the end of the stream, where the file has it; else to the last token.
    pub(super) fn stream_end(&self) -> Option<f64> {
        self.column(STREAM).or_else(|| self.e2e())
    }

    /// The last token after the first, per further token; `None` for one token.
    pub(super) fn tpot(&self) -> Value<Option<f64>> {
        let lacks = |what| format!("the file lacks the {what} per request");
        let n = self.output().ok_or_else(|| lacks("output tokens"))?;
        if n <= 1.0 {
            return Ok(None);
        }
        let e2e = self.e2e().ok_or_else(|| lacks("e2e latency"))?;
        let ttft = self.ttft().ok_or_else(|| lacks("ttft"))?;
        Ok(Some((e2e - ttft) / (n - 1.0)))
    }

    /// Gaps between outputs.
    pub(super) fn gaps(&self) -> Option<Vec<f64>> {
        Some(self.t.gaps()?.values().iter().map(|s| s.get()).collect())
    }

    /// Whether the gaps are between chunks rather than tokens.
    pub(super) fn gaps_are_chunks(&self) -> bool {
        matches!(self.t.gaps(), Some(Gaps::Chunk(_)))
    }

    /// Output tokens.
    pub(super) fn output(&self) -> Option<f64> {
        self.t.output_tokens().map(|n| n as f64)
    }

    /// Input tokens.
    pub(super) fn input(&self) -> Option<f64> {
        self.t.input_tokens().map(|n| n as f64)
    }
}

/// Columns with the time from sending to the end of the stream, in seconds.
const STREAM: &[&str] = &["stream_end_s", "request_latency_s"];

/// One value for each request, or that the file lacks it.
pub(super) fn every<'b, T>(
    requests: &[Seen<'b>],
    what: &str,
    of: impl Fn(&Seen<'b>) -> Option<T>,
) -> Value<Vec<T>> {
    let values: Vec<T> = requests.iter().filter_map(of).collect();
    if values.len() == requests.len() {
        Ok(values)
    } else if values.is_empty() {
        Err(format!("the file lacks the {what} per request"))
    } else {
        let without = requests.len() - values.len();
        Err(format!("{without} of {} requests have no {what}", requests.len()))
    }
}

/// The values that there are; none at all is an error.
pub(super) fn known<'b, T>(
    requests: &[Seen<'b>],
    what: &str,
    of: impl Fn(&Seen<'b>) -> Option<T>,
) -> Value<Vec<T>> {
    let values: Vec<T> = requests.iter().filter_map(of).collect();
    if values.is_empty() && !requests.is_empty() {
        return Err(format!("the file lacks the {what} per request"));
    }
    Ok(values)
}

/// TPOT of the requests that have one.
pub(super) fn tpots(requests: &[Seen<'_>]) -> Value<Vec<f64>> {
    let values: Value<Vec<Option<f64>>> = requests.iter().map(Seen::tpot).collect();
    Ok(values?.into_iter().flatten().collect())
}

/// Runs longer than this would need too many buckets; it is four months.
const MOST_BUCKETS: f64 = 1e7;

/// Peaks over buckets of one second from the first send: outputs in one, and requests that touch
/// one.
///
/// vLLM and SGLang print these; a request that lasts 1.1 s can touch three buckets, and all that
/// touch one are counted as concurrent.
fn buckets(requests: &[Seen<'_>]) -> Value<(f64, f64)> {
    let starts = every(requests, "send time", Seen::start)?;
    let ends = every(requests, "e2e latency", Seen::e2e)?;
    let firsts = every(requests, "ttft", Seen::ttft)?;
    let gaps = every(requests, "gaps", Seen::gaps)?;
    let origin = starts.iter().copied().fold(f64::INFINITY, f64::min);
    let end = starts.iter().zip(&ends).map(|(s, e)| s + e).fold(origin, f64::max);
    if MOST_BUCKETS <= end - origin {
        return Err("the run is too long for buckets of a second".to_owned());
    }
    let bucket = |t: f64| whole(t - origin);
    let n = bucket(end) + 2;
    let mut outputs = vec![0_u64; n];
    let mut touching = vec![0_u64; n];
    for (((start, e2e), first), gaps) in starts.iter().zip(&ends).zip(&firsts).zip(&gaps) {
        let mut at = start + first;
        let mut count = |at: f64| {
            if let Some(slot) = outputs.get_mut(bucket(at)) {
                *slot += 1;
            }
        };
        count(at);
        for gap in gaps {
            at += gap;
            count(at);
        }
        for slot in touching.iter_mut().take(bucket(start + e2e) + 1).skip(bucket(*start)) {
            *slot += 1;
        }
    }
    let most = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0) as f64;
    Ok((most(&outputs), most(&touching)))
}

/// The whole part of a number of seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to lie between 0 and the longest run"
)]
fn whole(seconds: f64) -> usize {
    seconds.max(0.0) as usize
}
