//! What a run says of itself, and the figures that the rules read.

use crate::slo::SloSet;
use crate::steady::Steady;
use crate::table::{Observed, RequestTable};
use crate::timeline::Outcome;

use super::Subject;

/// How fast requests were to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Requests per second: an open loop.
    PerSecond(f64),
    /// As fast as the concurrency limit lets them go, or all at once without one.
    Unlimited,
}

/// What the run was told to do; absent is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The sending rate.
    pub rate: Option<Rate>,
    /// Most requests in flight that the client allows.
    pub concurrency: Option<u64>,
    /// Shape of the gamma-distributed gaps between requests: 1 is Poisson, infinity is gaps of one
    /// length.
    pub burstiness: Option<f64>,
    /// How many requests were to be sent.
    pub number: Option<u64>,
    /// For how long requests were to be sent, in seconds.
    pub duration_s: Option<f64>,
    /// Whether the prompts are random, so that a prefix cache should find nothing.
    pub random_prompts: Option<bool>,
}

impl Load {
    /// The requests per second of an open loop.
    #[must_use]
    pub fn offered_per_s(&self) -> Option<f64> {
        match self.rate {
            Some(Rate::PerSecond(rate)) => Some(rate),
            _ => None,
        }
    }

    /// The clients of a closed loop: a limit on concurrency, and no rate that would hold them back.
    #[must_use]
    pub fn clients(&self) -> Option<u64> {
        self.concurrency.filter(|_| self.offered_per_s().is_none())
    }
}

/// Figures of one latency; absent is unknown. Seconds, or seconds per token for TPOT.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Number of samples.
    pub n: Option<u64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub std: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// How many independent samples they are worth.
    pub effective: Option<f64>,
}

impl Spread {
    /// Whether anything is known of it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.mean.is_some() || self.p50.is_some() || self.p99.is_some()
    }

    /// These figures, and the other's where these are unknown.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            n: self.n.or(other.n),
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
            p50: self.p50.or(other.p50),
            p90: self.p90.or(other.p90),
            p95: self.p95.or(other.p95),
            p99: self.p99.or(other.p99),
            max: self.max.or(other.max),
            effective: self.effective.or(other.effective),
        }
    }
}

/// Figures that a tool states, where there is no detail to compute them from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stated {
    /// Time to first token.
    pub ttft: Spread,
    /// Time per output token.
    pub tpot: Spread,
    /// Gaps, by token or by chunk as the tool has them.
    pub itl: Spread,
    /// End-to-end latency.
    pub e2e: Spread,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Output tokens per second.
    pub output_tokens_per_s: Option<f64>,
    /// Tokens per second that are not said to be output or total.
    pub tokens_per_s: Option<f64>,
    /// Completed requests.
    pub completed: Option<u64>,
    /// Failed requests.
    pub failed: Option<u64>,
    /// Tokens of all prompts that were answered.
    pub input_tokens: Option<u64>,
    /// Tokens of all answers.
    pub output_tokens: Option<u64>,
}

/// What the engine says of the same run; absent is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// Median TTFT by the server's own clock.
    pub ttft_p50_s: Option<f64>,
    /// Preemptions in the run.
    pub preemptions: Option<u64>,
    /// Requests completed in the run.
    pub completions: Option<u64>,
    /// Highest KV utilization, from 0 to 1.
    pub kv_peak: Option<f64>,
    /// Prompt tokens processed, recomputed ones included.
    pub prompt_tokens: Option<u64>,
    /// Tokens recomputed after preemption.
    pub recomputed_tokens: Option<u64>,
    /// Prompt tokens looked up in the prefix cache.
    pub lookup_tokens: Option<u64>,
    /// Of them found there.
    pub hit_tokens: Option<u64>,
    /// Of the hits, those of a request's own blocks after its preemption.
    pub refill_hit_tokens: Option<u64>,
    /// Looked-up tokens of requests that were preempted before.
    pub refill_lookup_tokens: Option<u64>,
    /// Samples in order of time, as a log or a scrape has them.
    pub samples: Vec<ServerSample>,
}

/// One line of an engine's log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerSample {
    /// When, in seconds from any origin.
    pub at_s: f64,
    /// Running requests.
    pub running: u64,
    /// Waiting requests.
    pub waiting: u64,
    /// KV utilization, from 0 to 1, if the line has it.
    pub kv: Option<f64>,
}

/// Where the requests of a simulation went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Put into the simulation.
    pub injected: u64,
    /// Answered.
    pub completed: u64,
    /// In a batch at the end.
    pub running: u64,
    /// Waiting at the end.
    pub queued: u64,
    /// Refused.
    pub dropped: u64,
    /// Given up by their client, who stopped waiting.
    pub timed_out: u64,
    /// Of clients who went away.
    pub cancelled: u64,
}

impl Conservation {
    /// Of these requests; whoever was cut off counts as running.
    #[must_use]
    pub fn of(requests: &RequestTable) -> Self {
        let mut books = Self::default();
        for request in requests.requests() {
            books.injected += 1;
            *match request.outcome() {
                Outcome::Completed => &mut books.completed,
                Outcome::Failed | Outcome::Rejected => &mut books.dropped,
                Outcome::TimedOut => &mut books.timed_out,
                Outcome::Cancelled => &mut books.cancelled,
                Outcome::CutOff => &mut books.running,
            } += 1;
        }
        books
    }

    /// How many requests are accounted for; none beyond what a count holds.
    #[must_use]
    pub fn accounted(&self) -> Option<u64> {
        let inside = [self.completed, self.running, self.queued];
        let gone = [self.dropped, self.timed_out, self.cancelled];
        inside.iter().chain(&gone).try_fold(0_u64, |sum, &n| sum.checked_add(n))
    }

    /// Whether every request that went in is accounted for.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.accounted() == Some(self.injected)
    }
}

/// What a latency is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The least that the hardware allows: nothing is faster, whatever the load.
    Floor,
    /// What the load would cost a server at best that had all of it in one batch. A queue and
    /// further replicas keep requests out of a batch, so that being faster says nothing.
    Load,
}

/// A latency held against what the hardware allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ideal {
    /// What it is of.
    pub subject: Subject,
    /// As measured, in seconds.
    pub measured_s: f64,
    /// The bound, in seconds.
    pub bound_s: f64,
    /// Which kind of bound that is.
    pub bound: Bound,
}

/// What is known of one run, as readers have it.
///
/// A column per request is as long as `requests`, or empty where the file does not have it.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// The requests; empty where the file has no detail.
    pub requests: &'a RequestTable,
    /// Waits in the client that are in no latency of the timeline, in seconds.
    pub client_delay_s: &'a [Option<f64>],
    /// Prompt tokens that the prefix cache held.
    pub cached_tokens: &'a [Option<f64>],
    /// What tells prompts apart: the text, a hash, or the blocks.
    pub prompts: &'a [Option<String>],
    /// The replica that answered.
    pub replicas: &'a [Option<String>],
    /// What the run was told to do.
    pub load: Load,
    /// The tool's own wall clock of the run, in seconds.
    pub window_s: Option<f64>,
    /// Whether the run was stopped while requests were left.
    pub truncated: bool,
    /// The tool's own figures.
    pub stated: Stated,
    /// In words, which counts of the file its requests contradict.
    pub counts_disagree: Option<&'a str>,
    /// In words, why the tool itself calls the run invalid.
    pub called_invalid: Option<&'a str>,
    /// The objectives.
    pub slo: &'a SloSet,
    /// What the engine says.
    pub server: Server,
    /// Where the requests of a simulation went.
    pub conservation: Option<Conservation>,
    /// Latencies to be held against the least possible.
    pub ideal: &'a [Ideal],
    /// Figures of the latencies of the completed requests, where a report has computed them.
    pub latencies: Option<Latencies>,
}

/// Figures of the latencies of completed requests, and of their lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Time to first token.
    pub ttft: Spread,
    /// Time per output token, of answers of several tokens.
    pub tpot: Spread,
    /// From arrival to the last token.
    pub e2e: Spread,
    /// The lengths of the answers; none if they are left to be computed.
    pub output: Option<Lengths>,
}

impl<'a> Evidence<'a> {
    /// Requests under objectives, and nothing else known.
    #[must_use]
    pub fn of(requests: &'a RequestTable, slo: &'a SloSet) -> Self {
        Self {
            requests,
            client_delay_s: &[],
            cached_tokens: &[],
            prompts: &[],
            replicas: &[],
            load: Load::default(),
            window_s: None,
            truncated: false,
            stated: Stated::default(),
            counts_disagree: None,
            called_invalid: None,
            slo,
            server: Server::default(),
            conservation: None,
            ideal: &[],
            latencies: None,
        }
    }
}

/// Output lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// Tokens of all completed answers.
    pub total: Option<u64>,
    /// Mean length.
    pub mean: Option<f64>,
    /// Median length.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// Standard deviation over mean.
    pub cv: Option<f64>,
}

/// What the streams of the answers show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Streams {
    /// Whether gaps are between tokens; absent without gaps.
    pub per_token: Option<bool>,
    /// Completed answers of more than one token whose gaps are known.
    pub answers: u64,
    /// Their tokens after the first.
    pub tokens_after_first: u64,
    /// Their gaps.
    pub gaps: u64,
    /// Completed answers of more than one token of which the file tells whether they came in one
    /// chunk: gaps, or TTFT and E2E, are known.
    pub judged: u64,
    /// Of those, how many came in one chunk.
    pub in_one_chunk: u64,
    /// Median over answers of more than one token of TTFT over E2E.
    pub ttft_share_p50: Option<f64>,
    /// Share of the time between first and last token in gaps above ten times the median.
    pub stalled_share: Option<f64>,
    /// The two commonest lengths of a gap, in seconds, if there are two that are apart.
    pub two_modes_s: Option<(f64, f64)>,
    /// Answers with more chunks than tokens, so that some chunk carries none.
    pub with_empty_chunk: u64,
    /// Of those, answers whose first gap is above ten times their median gap.
    pub with_empty_chunk_and_long_first_gap: u64,
    /// Median over those of the first gap, in seconds.
    pub long_first_gap_p50_s: Option<f64>,
}

/// A series over the arrivals of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Whether it keeps growing.
    pub grows: bool,
    /// By how much a second, in the unit of the series.
    pub per_s: f64,
    /// The one-sided probability of such a rise in a series without a trend.
    pub p_value: f64,
    /// Median of the series.
    pub median: f64,
    /// The rise over the time that it was followed.
    pub rise: f64,
}

/// How the sending went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// Requests whose send time is known.
    pub n: u64,
    /// From the first to the last, in seconds.
    pub span_s: Option<f64>,
    /// Sent per second from the first to the last.
    pub per_s: Option<f64>,
    /// Coefficient of variation of the gaps between arrivals.
    pub gap_cv: Option<f64>,
    /// 99th percentile of the time by which requests were sent late.
    pub delay_p99_s: Option<f64>,
    /// Whether that time is inside TTFT, since the file has the instant at which a request was due.
    pub delay_in_ttft: bool,
    /// Completed requests whose arrival is unknown while that of others is known.
    pub without_arrival: u64,
    /// Share of the run in which as many were in flight as the client allows.
    pub at_cap_share: Option<f64>,
}

/// One limit on single requests, and how many completed requests meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitFacts {
    /// The limit as it is written.
    pub text: String,
    /// Completed requests whose latency is known.
    pub known: u64,
    /// How many meet the limit.
    pub met: u64,
    /// How many would meet a thousand times it.
    pub met_times_1000: u64,
    /// How many would meet a thousandth of it.
    pub met_by_1000: u64,
}

/// What the objectives say of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objectives {
    /// Limit on TTFT, in seconds.
    pub ttft_s: Option<f64>,
    /// Limit on TPOT, in seconds per token.
    pub tpot_s: Option<f64>,
    /// Limit on E2E, in seconds.
    pub e2e_s: Option<f64>,
    /// Each limit alone.
    pub limits: Vec<LimitFacts>,
    /// Requests that meet all of them.
    pub good: u64,
    /// Finished requests: completed, failed, rejected or timed out.
    pub finished: u64,
    /// Completed requests that cannot be judged.
    pub unknown: u64,
}

/// What the prompts show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prompts {
    /// Requests whose prompt is known.
    pub known: u64,
    /// Of them, those whose prompt came before in the run.
    pub repeated: u64,
    /// Prompt tokens of requests whose cached tokens are known.
    pub tokens: f64,
    /// Of them cached.
    pub cached: Option<f64>,
}

/// The figures of one run that the rules read; absent is unknown.
///
/// Made from [`Evidence`] by [`Facts::new`], or field by field by a caller that has figures only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What the run was told to do.
    pub load: Load,
    /// The window of the rates, in seconds.
    pub window_s: Option<f64>,
    /// Whether the run was stopped while requests were left.
    pub truncated: bool,
    /// Whether there is detail per request.
    pub has_requests: bool,
    /// Completed requests.
    pub completed: Option<u64>,
    /// Failed, rejected or timed out.
    pub missed: Option<u64>,
    /// Cancelled, or cut off by the end of the run.
    pub outside: u64,
    /// Time to first token.
    pub ttft: Spread,
    /// Time per output token, one-token answers left out.
    pub tpot: Spread,
    /// Gaps.
    pub itl: Spread,
    /// End-to-end latency.
    pub e2e: Spread,
    /// Tokens of completed prompts.
    pub input_tokens: Option<u64>,
    /// Lengths of the answers.
    pub output: Lengths,
    /// Requests per second, by the window or as stated.
    pub requests_per_s: Option<f64>,
    /// Tokens per second that the tool does not say to be output or total.
    pub tokens_per_s: Option<f64>,
    /// Mean number in flight, by Little's law over the window.
    pub in_flight: Option<f64>,
    /// From the first send to the last end, in seconds, where the intervals are known.
    pub span_s: Option<f64>,
    /// Most requests in flight, where the intervals are known.
    pub peak_in_flight: Option<u64>,
    /// Mean number in flight over the window of the requests that the peak counts.
    pub stays_in_flight: Option<f64>,
    /// In words, which counts of the file its requests contradict.
    pub counts_disagree: Option<String>,
    /// In words, why the tool itself calls the run invalid.
    pub called_invalid: Option<String>,
    /// Where the run is steady, from the intervals in flight.
    pub steady: Option<Steady>,
    /// Of a measured window: completed requests per second by the share of each stay within it, as
    /// the steady rate counts them.
    pub stays_per_s: Option<f64>,
    /// TTFT over the arrivals.
    pub ttft_growth: Option<Growth>,
    /// Requests in flight over the arrivals.
    pub in_flight_growth: Option<Growth>,
    /// Correlation of TTFT with that of the request as many places later as there are clients.
    pub ttft_at_lag_n: Option<f64>,
    /// How the sending went.
    pub sending: Sending,
    /// What the streams show.
    pub streams: Streams,
    /// What the objectives say.
    pub objectives: Objectives,
    /// What the prompts show.
    pub prompts: Prompts,
    /// Requests of each replica, where there are several.
    pub replicas: Vec<u64>,
    /// Mean number of requests that each of them had at a time; empty where that is not known.
    pub replicas_in_system: Vec<f64>,
    /// What the engine says.
    pub server: Server,
    /// Where the requests of a simulation went.
    pub conservation: Option<Conservation>,
    /// Latencies to be held against the least possible.
    pub ideal: Vec<Ideal>,
}

impl Facts {
    /// Mean tokens of the completed prompts.
    #[must_use]
    pub fn input_mean(&self) -> Option<f64> {
        let n = self.completed.filter(|n| 0 < *n)?;
        self.input_tokens.map(|tokens| tokens as f64 / n as f64)
    }
}
