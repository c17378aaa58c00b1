//! The diagnosis tree: from symptoms to causes, with the evidence that decided.
//!
//! A row is data: conditions on operands, words in both languages, a precedence. [`diagnose`] asks
//! every row and sorts it into one of three: it fires, it is ruled out, or it is undecided for
//! want of an observation. Nothing is guessed: a condition on something that was not observed is
//! neither true nor false.
//!
//! What the words of a condition mean is said at [`Test`], their numbers at [`Tolerance`].

use std::fmt;

use crate::alerts::{self, Trend};
use crate::error::{Result, above, at_least, difference, within};
use crate::metric::{Language, Source, Text, text};
use crate::units::{
    Bytes, FlopPerByte, Quantity, Requests, Seconds, SecondsPerToken, Tokens, TokensPerSecond, Unit,
};

/// A figure now, and what it was when things were well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure<Q> {
    /// Its value now.
    pub current: Option<Q>,
    /// Its value in the baseline.
    pub baseline: Option<Q>,
}

/// Two percentiles of a latency, now and in the baseline, and its SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency<Q> {
    /// The median now.
    pub p50: Option<Q>,
    /// The 99th percentile now.
    pub p99: Option<Q>,
    /// The median of the baseline.
    pub baseline_p50: Option<Q>,
    /// The 99th percentile of the baseline.
    pub baseline_p99: Option<Q>,
    /// The limit that the 99th percentile is held against.
    pub slo: Option<Q>,
    /// The other ends of the percentiles, where only a range is known.
    pub to: Ends<Q>,
}

/// The upper ends of percentiles of which only a range is known, as the bucket of a histogram; the
/// percentile itself is then the lower end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ends<Q> {
    /// That of the median now.
    pub p50: Upper<Q>,
    /// That of the 99th percentile now.
    pub p99: Upper<Q>,
    /// That of the median of the baseline.
    pub baseline_p50: Upper<Q>,
    /// That of the 99th percentile of the baseline.
    pub baseline_p99: Upper<Q>,
}

/// The upper end of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Upper<Q> {
    /// The figure is known exactly.
    #[default]
    Exact,
    /// It is at most this.
    At(Q),
    /// Nothing bounds it.
    Open,
}

impl<Q> Ends<Q> {
    /// Every percentile is known exactly.
    #[must_use]
    pub const fn exact() -> Self {
        Self {
            p50: Upper::Exact,
            p99: Upper::Exact,
            baseline_p50: Upper::Exact,
            baseline_p99: Upper::Exact,
        }
    }
}

impl<Q: Quantity> Upper<Q> {
    /// The upper end in the unit of `low`, infinite if nothing bounds it.
    fn of(self, low: f64) -> f64 {
        match self {
            Self::Exact => low,
            Self::At(high) => high.number(),
            Self::Open => f64::INFINITY,
        }
    }
}

/// A figure per window of time: its highest and its mean over the windows of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak<Q> {
    /// The highest window.
    pub peak: Option<Q>,
    /// The mean over all windows.
    pub mean: Option<Q>,
}

/// What was observed; everything may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observations {
    /// Time to first token.
    pub ttft: Latency<Seconds>,
    /// Time per output token.
    pub tpot: Latency<SecondsPerToken>,
    /// End-to-end latency.
    pub e2e: Latency<Seconds>,
    /// Mean number of waiting requests.
    pub queue_depth: Figure<Requests>,
    /// What the queue depth does over time, from [`alerts::keeps_growing`].
    pub queue_trend: Option<Trend>,
    /// Mean wait in the queue.
    pub queue_wait: Figure<Seconds>,
    /// Share of the mean TTFT that is wait in the queue, from 0 to 1.
    pub queue_share: Option<f64>,
    /// Mean number of prompt tokens.
    pub prompt_tokens: Figure<Tokens>,
    /// Prompt tokens processed per output token; the baseline may be the ratio that arrives.
    pub prefill_decode_ratio: Figure<f64>,
    /// Batch utilization, from 0 to 1.
    pub batch_utilization: Option<f64>,
    /// KV-cache utilization, from 0 to 1.
    pub kv_utilization: Option<f64>,
    /// GPU utilization, from 0 to 1.
    pub gpu_utilization: Option<f64>,
    /// FLOP per byte moved in a decode step.
    pub arithmetic_intensity: Option<FlopPerByte>,
    /// FLOP per byte at which the GPU turns from memory-bound to compute-bound.
    pub ridge_point: Option<FlopPerByte>,
    /// KV bytes that a decode step reads.
    pub kv_step_bytes: Figure<Bytes>,
    /// Share of a decode step that reading the KV cache takes at full bandwidth, from 0 to 1.
    pub kv_scan_share: Option<f64>,
    /// What TPOT does with the context length, from [`alerts::keeps_growing`] over pairs of both.
    pub tpot_by_context: Option<Trend>,
    /// Prefix hit rate, from 0 to 1.
    pub kv_hit_rate: Figure<f64>,
    /// Refill rate, from 0 to 1.
    pub refill_rate: Option<f64>,
    /// Share of step time spent on swap-in and dequantization, from 0 to 1.
    pub reload_share: Option<f64>,
    /// Preemptions per completed request: one that is preempted twice counts twice.
    pub preemptions: Option<f64>,
    /// P99 of the time from when a request was due to when the client sent it, over the median
    /// TTFT, in an open loop.
    pub send_delay: Option<f64>,
    /// Evicted blocks per second, by windows.
    pub eviction_rate: Peak<f64>,
    /// Communication time in a step, by windows.
    pub communication_time: Peak<Seconds>,
    /// Output tokens per second.
    pub token_throughput: Figure<TokensPerSecond>,
    /// Share of the completed requests that meet their SLO, from 0 to 1.
    pub goodput_ratio: Option<f64>,
    /// Arrival rate over service rate; 1 and more is overload.
    pub rho: Option<f64>,
}

/// The numbers behind "up", "high" and their like.
///
/// They are conventions, not laws: what is noise in one service is an incident in another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Up is above this multiple of the baseline, down is below the baseline over it; at least 1.
    pub up: f64,
    /// A tail of TPOT is high when P99 is above this multiple of P50; at least 1.
    pub tail: f64,
    /// A peak is a spike above this multiple of the mean; at least 1.
    pub spike: f64,
    /// Batch utilization above it is high.
    pub batch: f64,
    /// KV-cache utilization above it is high.
    pub kv: f64,
    /// GPU utilization below it is low.
    pub gpu: f64,
    /// The share of TTFT or of a step above which a part dominates.
    pub share: f64,
    /// Refill rate above it is high.
    pub refill: f64,
    /// Share of a step for swap-in and dequantization above which it is high.
    pub reload: f64,
    /// Preemptions per completed request above it are many.
    pub preemptions: f64,
    /// P99 of the client's delay over the median TTFT above it is high.
    pub send_delay: f64,
    /// Goodput ratio below it is low.
    pub goodput: f64,
    /// Utilization ρ above it can explain a queue that grows.
    pub rho: f64,
}

impl Default for Tolerance {
    /// 10 % for up, the warning levels of [`alerts`] where there is one.
    fn default() -> Self {
        Self {
            up: 1.1,
            tail: 2.0,
            spike: 3.0,
            batch: 0.85,
            kv: alerts::KV_UTILIZATION.warn.number().unwrap_or(0.8),
            gpu: 0.5,
            share: 0.5,
            refill: alerts::REFILL_RATE.warn.number().unwrap_or(0.05),
            reload: 0.1,
            preemptions: 0.01,
            send_delay: 0.1,
            goodput: 0.9,
            rho: 0.8,
        }
    }
}

impl Tolerance {
    fn check(&self) -> Result<()> {
        for (name, factor) in [("up", self.up), ("tail", self.tail), ("spike", self.spike)] {
            at_least(name, factor, 1.0)?;
        }
        for (name, share) in [
            ("batch", self.batch),
            ("kv", self.kv),
            ("gpu", self.gpu),
            ("share", self.share),
            ("refill", self.refill),
            ("reload", self.reload),
            ("goodput", self.goodput),
        ] {
            within(name, share, 0.0, 1.0)?;
        }
        for (name, level) in
            [("preemptions", self.preemptions), ("send_delay", self.send_delay), ("rho", self.rho)]
        {
            at_least(name, level, 0.0)?;
        }
        Ok(())
    }
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Median TTFT.
    TtftP50,
    /// P99 of TTFT.
    TtftP99,
    /// Median TPOT.
    TpotP50,
    /// P99 of TPOT.
    TpotP99,
    /// P99 over P50 of TPOT.
    TpotTail,
    /// Median E2E.
    E2eP50,
    /// P99 of E2E.
    E2eP99,
    /// P99 over P50 of E2E.
    E2eTail,
    /// Mean number of waiting requests.
    QueueDepth,
    /// Queue depth over time.
    QueueTrend,
    /// Mean wait in the queue.
    QueueWait,
    /// Share of TTFT that is wait.
    QueueShare,
    /// Mean prompt length.
    PromptTokens,
    /// Prompt tokens processed per output token.
    PrefillDecodeRatio,
    /// Batch utilization.
    BatchUtilization,
    /// KV-cache utilization.
    KvUtilization,
    /// GPU utilization.
    GpuUtilization,
    /// FLOP per byte of a decode step.
    ArithmeticIntensity,
    /// KV bytes per step.
    KvStepBytes,
    /// Share of a step that reading KV takes.
    KvScanShare,
    /// TPOT over the context length.
    TpotByContext,
    /// Prefix hit rate.
    KvHitRate,
    /// Refill rate.
    RefillRate,
    /// Share of a step for swap-in and dequantization.
    ReloadShare,
    /// Preemptions per completed request.
    Preemptions,
    /// P99 of the client's delay over the median TTFT.
    SendDelay,
    /// Evictions per second.
    EvictionRate,
    /// Communication time of a step.
    CommunicationTime,
    /// Token throughput.
    TokenThroughput,
    /// Goodput ratio.
    GoodputRatio,
    /// Utilization ρ.
    Rho,
}

impl Operand {
    /// Every operand, in the order of the observations.
    pub const ALL: &[Self] = &[
        Self::TtftP50,
        Self::TtftP99,
        Self::TpotP50,
        Self::TpotP99,
        Self::TpotTail,
        Self::E2eP50,
        Self::E2eP99,
        Self::E2eTail,
        Self::QueueDepth,
        Self::QueueTrend,
        Self::QueueWait,
        Self::QueueShare,
        Self::PromptTokens,
        Self::PrefillDecodeRatio,
        Self::BatchUtilization,
        Self::KvUtilization,
        Self::GpuUtilization,
        Self::ArithmeticIntensity,
        Self::KvStepBytes,
        Self::KvScanShare,
        Self::TpotByContext,
        Self::KvHitRate,
        Self::RefillRate,
        Self::ReloadShare,
        Self::Preemptions,
        Self::SendDelay,
        Self::EvictionRate,
        Self::CommunicationTime,
        Self::TokenThroughput,
        Self::GoodputRatio,
        Self::Rho,
    ];

    /// Its id, as JSON and tables name it.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.entry().0
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> Text {
        self.entry().1
    }

    /// The unit of its value; that of the series for a trend.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.entry().2
    }

    const fn entry(self) -> (&'static str, Text, Unit) {
        const PER_TOKEN: Unit = Unit::SECOND.per(Unit::TOKEN);
        const PER_SECOND: Unit = Unit::TOKEN.per(Unit::SECOND);
        const PER_BYTE: Unit = Unit::FLOP.per(Unit::BYTE);
        match self {
            Self::TtftP50 => ("ttft_p50", text("TTFT P50", "TTFT P50"), Unit::SECOND),
            Self::TtftP99 => ("ttft_p99", text("TTFT P99", "TTFT P99"), Unit::SECOND),
            Self::TpotP50 => ("tpot_p50", text("TPOT P50", "TPOT P50"), PER_TOKEN),
            Self::TpotP99 => ("tpot_p99", text("TPOT P99", "TPOT P99"), PER_TOKEN),
            Self::TpotTail => ("tpot_tail", text("TPOT P99/P50", "TPOT P99/P50"), Unit::ONE),
            Self::E2eP50 => ("e2e_p50", text("E2E P50", "E2E P50"), Unit::SECOND),
            Self::E2eP99 => ("e2e_p99", text("E2E P99", "E2E P99"), Unit::SECOND),
            Self::E2eTail => ("e2e_tail", text("E2E P99/P50", "E2E P99/P50"), Unit::ONE),
            Self::QueueDepth => ("queue_depth", text("queue depth", "队列深度"), Unit::REQUEST),
            Self::QueueTrend => {
                ("queue_trend", text("queue depth over time", "队列深度的变化"), Unit::REQUEST)
            }
            Self::QueueWait => {
                ("queue_wait", text("mean wait in the queue", "平均排队时间"), Unit::SECOND)
            }
            Self::QueueShare => (
                "queue_share",
                text("share of TTFT spent queueing", "TTFT 中的排队占比"),
                Unit::ONE,
            ),
            Self::PromptTokens => {
                ("prompt_tokens", text("mean prompt length", "平均 prompt 长度"), Unit::TOKEN)
            }
            Self::PrefillDecodeRatio => (
                "prefill_decode_ratio",
                text("prefill/decode ratio in tokens", "prefill/decode 的 token 比"),
                Unit::ONE,
            ),
            Self::BatchUtilization => {
                ("batch_utilization", text("batch utilization", "batch 利用率"), Unit::ONE)
            }
            Self::KvUtilization => {
                ("kv_utilization", text("KV-cache utilization", "KV Cache 利用率"), Unit::ONE)
            }
            Self::GpuUtilization => {
                ("gpu_utilization", text("GPU utilization", "GPU 利用率"), Unit::ONE)
            }
            Self::ArithmeticIntensity => {
                ("arithmetic_intensity", text("arithmetic intensity", "算术强度"), PER_BYTE)
            }
            Self::KvStepBytes => {
                ("kv_step_bytes", text("KV bytes per step", "每步 KV 读取量"), Unit::BYTE)
            }
            Self::KvScanShare => (
                "kv_scan_share",
                text("share of a step spent reading KV", "KV 读取占单步时间的比例"),
                Unit::ONE,
            ),
            Self::TpotByContext => (
                "tpot_by_context",
                text("TPOT over the context length", "TPOT 随上下文长度的变化"),
                PER_TOKEN,
            ),
            Self::KvHitRate => ("kv_hit_rate", text("KV hit rate", "KV 命中率"), Unit::ONE),
            Self::RefillRate => ("refill_rate", text("refill rate", "回填率"), Unit::ONE),
            Self::ReloadShare => (
                "reload_share",
                text(
                    "share of a step for swap-in and dequantization",
                    "回迁与反量化占单步时间的比例",
                ),
                Unit::ONE,
            ),
            Self::Preemptions => {
                ("preemptions", text("preemptions per request", "每个请求的抢占次数"), Unit::ONE)
            }
            Self::SendDelay => (
                "send_delay",
                text("P99 of the client's delay over TTFT P50", "客户端延迟 P99 与 TTFT P50 之比"),
                Unit::ONE,
            ),
            Self::EvictionRate => {
                ("eviction_rate", text("evictions", "驱逐速率"), Unit::BLOCK.per(Unit::SECOND))
            }
            Self::CommunicationTime => {
                ("communication_time", text("communication time", "通信时间"), Unit::SECOND)
            }
            Self::TokenThroughput => {
                ("token_throughput", text("token throughput", "token 吞吐"), PER_SECOND)
            }
            Self::GoodputRatio => {
                ("goodput_ratio", text("goodput ratio", "goodput 比率"), Unit::ONE)
            }
            Self::Rho => ("rho", text("utilization ρ", "利用率 ρ"), Unit::ONE),
        }
    }

    /// Below it a figure is never up: a queue that grows from 0.01 to 0.02 requests is empty.
    const fn floor(self) -> f64 {
        match self {
            Self::QueueDepth => 1.0,
            _ => 0.0,
        }
    }
}

/// What is asked of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Above [`Tolerance::up`] times the baseline (and, for a queue, above one request).
    Up,
    /// Below the baseline over [`Tolerance::up`].
    Down,
    /// Above its limit: the SLO of a latency, the level of [`Tolerance`] for others.
    High,
    /// Below its limit: the ridge point of an arithmetic intensity, else a level of [`Tolerance`].
    Low,
    /// The highest window above [`Tolerance::spike`] times the mean one.
    Spikes,
    /// A trend: [`Trend::keeps_growing`].
    KeepsGrowing,
    /// A latency's median is not up against the baseline and its P99 not high against the SLO; one
    /// of the two has to be known.
    Stable,
}

/// One condition of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it is about.
    pub operand: Operand,
    /// What is asked.
    pub test: Test,
    /// The answer that the row wants.
    pub wanted: bool,
}

const fn is(operand: Operand, test: Test) -> Condition {
    Condition { operand, test, wanted: true }
}

const fn is_not(operand: Operand, test: Test) -> Condition {
    Condition { operand, test, wanted: false }
}

/// What a row's action does to the batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It makes the batch, or the memory left to it, smaller.
    Smaller,
    /// It makes the batch larger.
    Larger,
    /// It leaves the batch size alone.
    None,
}

impl Direction {
    /// The direction in words.
    #[must_use]
    pub const fn text(self) -> Text {
        match self {
            Self::Smaller => text("smaller", "减小"),
            Self::Larger => text("larger", "增大"),
            Self::None => text("unchanged", "不变"),
        }
    }
}

/// One row of the diagnosis tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: &'static str,
    /// Its place among rows that fire together: 1 is read first.
    pub precedence: u8,
    /// What is seen.
    pub symptom: Text,
    /// What to look at first.
    pub look_first: Text,
    /// The likely cause.
    pub cause: Text,
    /// What to do.
    pub action: Text,
    /// What the action does to the batch size.
    pub batch: Direction,
    /// The row fires if of each of these groups at least one condition holds.
    pub all: &'static [&'static [Condition]],
    /// Conditions that rule the row out where they are observed, but need not be known.
    pub unless: &'static [Condition],
    /// Where it comes from.
    pub source: Source,
}

impl Row {
    /// When it fires, in words with the numbers of `tolerance`.
    #[must_use]
    pub const fn in_language(&self, tolerance: Tolerance, language: Language) -> RowText<'_> {
        RowText { row: self, tolerance, language }
    }

    /// The operands that it asks for, each once, in its order.
    #[must_use]
    pub fn evidence(&self) -> Vec<Operand> {
        let mut operands = Vec::new();
        for c in self.all.iter().copied().flatten().chain(self.unless) {
            if !operands.contains(&c.operand) {
                operands.push(c.operand);
            }
        }
        operands
    }
}

const DICTIONARY: Source = Source { work: "metric dictionary", section: "6" };
const WALKTHROUGH_1: Source = Source { work: "formula walkthrough", section: "1.3" };
const WALKTHROUGH_71: Source = Source { work: "formula walkthrough", section: "7.1" };
const WALKTHROUGH_72: Source = Source { work: "formula walkthrough", section: "6.3, 7.2" };
const WALKTHROUGH_73: Source = Source { work: "formula walkthrough", section: "7.3" };
const WALKTHROUGH_74: Source = Source { work: "formula walkthrough", section: "7.4" };

use Operand as O;
use Test::{Down, High, KeepsGrowing, Low, Spikes, Stable, Up};

/// TPOT up: the batch is too large.
///
/// It asks for a batch or a KV cache that is full, which tells it from [`GPU_LOW_TPOT_HIGH`].
pub const TPOT_UP: Row = Row {
    id: "tpot_up",
    precedence: 9,
    symptom: text("TPOT up", "TPOT 升高"),
    look_first: text("batch utilization, KV-cache utilization", "batch 利用率、KV Cache 利用率"),
    cause: text(
        "the batch is too large: more KV to read in each step, memory-bound gets worse",
        "batch 过大：每步读取的 KV 增多，memory-bound 加剧",
    ),
    action: text("make the batch smaller or quantize the KV cache", "减小 batch 或量化 KV"),
    batch: Direction::Smaller,
    all: &[&[is(O::TpotP50, Up)], &[is(O::BatchUtilization, High), is(O::KvUtilization, High)]],
    unless: &[is_not(O::ArithmeticIntensity, Low)],
    source: DICTIONARY,
};

/// TTFT up: decodes squeeze prefill out.
pub const TTFT_UP: Row = Row {
    id: "ttft_up",
    precedence: 12,
    symptom: text("TTFT up", "TTFT 升高"),
    look_first: text("queue depth", "队列深度"),
    cause: text("decodes squeeze prefill out", "prefill 被 decode 挤压"),
    action: text("turn on chunked prefill", "启用 chunked prefill"),
    batch: Direction::None,
    all: &[&[is(O::TtftP50, Up)], &[is(O::QueueDepth, Up)], &[is(O::BatchUtilization, High)]],
    unless: &[],
    source: DICTIONARY,
};

/// Throughput high, TTFT bad: the decodes take the whole step.
pub const THROUGHPUT_HIGH_TTFT_BAD: Row = Row {
    id: "throughput_high_ttft_bad",
    precedence: 10,
    symptom: text("throughput high, TTFT bad", "吞吐高但 TTFT 差"),
    look_first: text("prefill/decode ratio", "prefill/decode 比例"),
    cause: text("the decode batch takes all resources", "decode batch 过大，占满资源"),
    action: text("set a quota for prefill admission", "设定 prefill 准入配额"),
    batch: Direction::None,
    all: &[
        &[is_not(O::TokenThroughput, Down)],
        &[is(O::TtftP99, High)],
        &[is(O::PrefillDecodeRatio, Down)],
    ],
    unless: &[],
    source: DICTIONARY,
};

/// Hit rate up, TPOT bad: the hits are paid for by swap-in or dequantization.
pub const HIT_RATE_UP_TPOT_BAD: Row = Row {
    id: "hit_rate_up_tpot_bad",
    precedence: 6,
    symptom: text("hit rate up, TPOT bad", "命中率升但 TPOT 差"),
    look_first: text("refill rate, dequantization", "回填率、反量化"),
    cause: text("swap-in or dequantization jitter", "回迁或反量化抖动"),
    action: text("raise the swap-in budget or evict less often", "增加回迁预算或降低驱逐频率"),
    batch: Direction::None,
    all: &[
        &[is(O::KvHitRate, Up)],
        &[is(O::TpotP99, High)],
        &[is(O::RefillRate, High), is(O::ReloadShare, High)],
    ],
    unless: &[],
    source: DICTIONARY,
};

/// P99 jitter: an eviction storm or a peak of communication.
///
/// A reserve of KV blocks takes memory from the batch, hence [`Direction::Smaller`].
pub const P99_JITTER: Row = Row {
    id: "p99_jitter",
    precedence: 5,
    symptom: text("P99 jitters", "P99 剧烈抖动"),
    look_first: text("KV eviction spikes, communication", "KV 驱逐尖峰、通信"),
    cause: text(
        "an eviction storm or a peak of communication between GPUs",
        "驱逐风暴或跨卡通信峰值",
    ),
    action: text("reserve a KV buffer, improve communication", "预留 KV buffer，优化通信"),
    batch: Direction::Smaller,
    all: &[
        &[is(O::TpotTail, High)],
        &[is(O::EvictionRate, Spikes), is(O::CommunicationTime, Spikes)],
    ],
    unless: &[],
    source: DICTIONARY,
};

/// GPU utilization low, TPOT high: memory-bound with room in the batch.
///
/// It asks for room in batch and KV cache, which tells it from [`TPOT_UP`], and for a tail that is
/// not wide, since memory-bound slows every step alike, which tells it from [`P99_JITTER`].
pub const GPU_LOW_TPOT_HIGH: Row = Row {
    id: "gpu_low_tpot_high",
    precedence: 7,
    symptom: text("GPU utilization low, TPOT high", "GPU 利用率低但 TPOT 高"),
    look_first: text("arithmetic intensity", "算术强度"),
    cause: text(
        "memory-bound: each step reads all weights for few requests",
        "memory-bound：每步读取全部权重，却只服务少量请求",
    ),
    action: text(
        "make the batch larger (more tokens per byte read) or quantize the weights",
        "增大 batch（每字节读取产出更多 token）或量化权重",
    ),
    batch: Direction::Larger,
    all: &[
        &[is(O::TpotP99, High)],
        &[is(O::GpuUtilization, Low)],
        &[is(O::ArithmeticIntensity, Low)],
        &[is_not(O::BatchUtilization, High)],
        &[is_not(O::KvUtilization, High)],
        &[is_not(O::TpotTail, High)],
    ],
    // A batch that is preempted has no room, whatever a sample of the KV cache shows.
    unless: &[is(O::Preemptions, High)],
    source: DICTIONARY,
};

/// The queue keeps growing: not enough capacity.
pub const QUEUE_GROWS: Row = Row {
    id: "queue_grows",
    precedence: 2,
    symptom: text("queue depth keeps growing", "队列深度持续增长"),
    look_first: text("utilization ρ", "利用率 ρ"),
    cause: text("not enough capacity", "服务容量不足"),
    action: text("scale out or rate-limit", "扩容或限流"),
    batch: Direction::None,
    all: &[&[is(O::QueueTrend, KeepsGrowing)]],
    // With servers to spare, a queue that grows is held back by something else than capacity.
    unless: &[is_not(O::Rho, High)],
    source: DICTIONARY,
};

/// E2E jitters: queueing grew or the decode path slowed.
pub const E2E_JITTERS: Row = Row {
    id: "e2e_jitters",
    precedence: 14,
    symptom: text("E2E jitters", "E2E 抖动"),
    look_first: text("wait in the queue and TPOT apart", "分别查看 W_queue 与 TPOT"),
    cause: text("queueing grew, or the decode path slowed", "排队变长，或 decode 路径变慢"),
    action: text(
        "split the budget first: wait, prefill, decode",
        "先拆分时延预算：排队、prefill、decode",
    ),
    batch: Direction::None,
    all: &[&[is(O::E2eTail, Up)], &[is(O::QueueWait, Up), is(O::TpotP50, Up)]],
    unless: &[],
    source: WALKTHROUGH_1,
};

/// TTFT high, TPOT stable: the time is lost before the first token.
pub const TTFT_HIGH_TPOT_STABLE: Row = Row {
    id: "ttft_high_tpot_stable",
    precedence: 11,
    symptom: text("TTFT high, TPOT stable", "TTFT 高、TPOT 稳"),
    look_first: text("admission, queue, prompt length", "准入、排队、prompt 长度"),
    cause: text(
        "tight admission, decode-first scheduling that starves prefill, or long prompts",
        "准入过紧、decode 优先使 prefill 长期得不到调度，或 prompt 偏长",
    ),
    action: text(
        "look at the wait in the queue and the prefill share of TTFT",
        "查看 W_queue 与 prefill 在 TTFT 中的占比",
    ),
    batch: Direction::None,
    all: &[
        &[is(O::TtftP99, High)],
        &[is(O::TpotP50, Stable)],
        &[is(O::QueueShare, High), is(O::PromptTokens, Up)],
    ],
    unless: &[],
    source: WALKTHROUGH_71,
};

/// TTFT stable, TPOT grows with the context: KV reads dominate the decode step.
pub const TPOT_GROWS_WITH_CONTEXT: Row = Row {
    id: "tpot_grows_with_context",
    precedence: 8,
    symptom: text("TTFT stable, TPOT grows with the context", "TTFT 稳、TPOT 随上下文变长而升高"),
    look_first: text("KV bytes per step, decode scheduling", "每步 KV 读取量、decode 调度"),
    cause: text(
        "KV scan: the decode is memory-bound, or its quota is unstable",
        "KV 扫描量过大：decode 受显存带宽限制，或 decode 配额不稳定",
    ),
    action: text("suspect KV access before admission", "先怀疑 KV 访问，再怀疑准入"),
    batch: Direction::None,
    all: &[
        &[is(O::TtftP50, Stable)],
        &[is(O::TpotByContext, KeepsGrowing)],
        &[is(O::KvStepBytes, Up), is(O::KvScanShare, High)],
    ],
    unless: &[],
    source: WALKTHROUGH_72,
};

/// Throughput high, goodput low: more is served, less of it in time.
pub const THROUGHPUT_HIGH_GOODPUT_LOW: Row = Row {
    id: "throughput_high_goodput_low",
    precedence: 13,
    symptom: text("throughput high, goodput low", "吞吐高、goodput 低"),
    look_first: text("goodput ratio, not token throughput", "goodput 比率，而不是 token 吞吐"),
    cause: text("SLO violations grow with the load", "SLO 违约随负载上升"),
    action: text(
        "reduce the load per replica or change the policy",
        "降低单副本负载或更换调度策略",
    ),
    batch: Direction::None,
    all: &[&[is_not(O::TokenThroughput, Down)], &[is(O::GoodputRatio, Low)]],
    unless: &[],
    source: WALKTHROUGH_73,
};

/// Batch utilization high, E2E high: a backlog, not efficiency.
pub const BATCH_HIGH_E2E_HIGH: Row = Row {
    id: "batch_high_e2e_high",
    precedence: 3,
    symptom: text("batch utilization high, E2E high", "batch 利用率高、E2E 也高"),
    look_first: text(
        "Little's law, then ρ with M/M/1 or M/G/1",
        "Little 定律，再用 M/M/1 或 M/G/1 看 ρ",
    ),
    cause: text("a backlog: the system is near overload", "请求积压：系统接近过载"),
    action: text(
        "judge the distance to overload before adding batch",
        "先判断离过载还有多远，再考虑增大 batch",
    ),
    batch: Direction::None,
    all: &[&[is(O::BatchUtilization, High)], &[is(O::E2eP99, High), is(O::E2eP50, Up)]],
    unless: &[],
    source: WALKTHROUGH_74,
};

/// Requests are sent late: the client is the bottleneck, and no latency of the server means much.
pub const CLIENT_LIMITED: Row = Row {
    id: "client_limited",
    precedence: 1,
    symptom: text("requests are sent late", "请求发送滞后"),
    look_first: text("send time against the time that was due", "实际发送时间与计划发送时间"),
    cause: text(
        "the client cannot keep up with its own schedule, so the load is not the one asked for and latencies from sending hide the wait (coordinated omission)",
        "客户端跟不上自己的发送计划：实际负载低于要求，且从发送时刻算起的时延掩盖了等待（coordinated omission）",
    ),
    action: text(
        "give the client more workers or lift its concurrency limit, and measure again",
        "增加客户端 worker 或放宽并发上限，然后重新测量",
    ),
    batch: Direction::None,
    all: &[&[is(O::SendDelay, High)]],
    unless: &[],
    source: Source {
        work: "Tene, How NOT to Measure Latency; wrk2",
        section: "coordinated omission",
    },
};

/// Requests are preempted: the KV cache is too small for the batch.
pub const PREEMPTED: Row = Row {
    id: "preempted",
    precedence: 4,
    symptom: text("requests are preempted", "请求被抢占"),
    look_first: text("preemptions, KV-cache utilization", "抢占次数、KV Cache 利用率"),
    cause: text(
        "KV-bound: the running requests outgrow the KV cache, and what is preempted is prefilled again",
        "KV 受限：运行中的请求超出 KV Cache 容量，被抢占者需要重新 prefill",
    ),
    action: text(
        "lower max_num_seqs, or give the KV cache more memory",
        "调低 max_num_seqs，或为 KV Cache 提供更多显存",
    ),
    batch: Direction::Smaller,
    all: &[&[is(O::Preemptions, High)]],
    unless: &[],
    source: Source {
        work: "vLLM 0.33.0 docs/configuration/optimization.md",
        section: "Preemption",
    },
};

/// Every row: those of the source's table in its order, then ours.
///
/// The precedence is another: first a client whose load is not the one asked for; then overload,
/// as every other symptom follows from it; then what disturbs memory; then the decode path, then
/// the prefill path; last the two that only say that something is wrong.
pub const ROWS: &[&Row] = &[
    &TPOT_UP,
    &TTFT_UP,
    &THROUGHPUT_HIGH_TTFT_BAD,
    &HIT_RATE_UP_TPOT_BAD,
    &P99_JITTER,
    &GPU_LOW_TPOT_HIGH,
    &QUEUE_GROWS,
    &E2E_JITTERS,
    &TTFT_HIGH_TPOT_STABLE,
    &TPOT_GROWS_WITH_CONTEXT,
    &THROUGHPUT_HIGH_GOODPUT_LOW,
    &BATCH_HIGH_E2E_HIGH,
    &CLIENT_LIMITED,
    &PREEMPTED,
];

/// What a bound was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// A multiple of the baseline.
    Baseline {
        /// The multiple.
        factor: f64,
        /// The baseline.
        baseline: f64,
    },
    /// The baseline over a number.
    BaselineOver {
        /// The number.
        factor: f64,
        /// The baseline.
        baseline: f64,
    },
    /// A multiple of the mean over windows.
    Mean {
        /// The multiple.
        factor: f64,
        /// The mean.
        mean: f64,
    },
    /// The SLO.
    Slo,
    /// The GPU's ridge point.
    RidgePoint,
    /// A level of [`Tolerance`].
    Level,
    /// The smallest value that counts as up, where the baseline is below it.
    Floor,
}

/// How a value stands to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `>`
    Above,
    /// `≤`
    AtMost,
    /// `<`
    Below,
    /// `≥`
    AtLeast,
}

/// One fact that decided, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// A value against a bound.
    Compared {
        /// What was observed.
        operand: Operand,
        /// Its value; the lower end where only a range is known.
        value: f64,
        /// The upper end, infinite if nothing bounds it; the value itself where that is known.
        upto: f64,
        /// How it stands to the bound.
        relation: Relation,
        /// The bound.
        bound: f64,
        /// What the bound was made from.
        against: Against,
    },
    /// A trend.
    Trend {
        /// What was observed.
        operand: Operand,
        /// Its trend.
        trend: Trend,
    },
}

impl Evidence {
    /// What was observed.
    #[must_use]
    pub const fn operand(&self) -> Operand {
        match self {
            Self::Compared { operand, .. } | Self::Trend { operand, .. } => *operand,
        }
    }

    /// The fact in words.
    #[must_use]
    pub const fn in_language(self, language: Language) -> EvidenceText {
        EvidenceText { evidence: self, language }
    }
}

/// Something that was not observed and would be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Of what.
    pub operand: Operand,
    /// Which of its values.
    pub part: Part,
}

impl Missing {
    /// What is missing, in words.
    #[must_use]
    pub const fn in_language(self, language: Language) -> MissingText {
        MissingText { missing: self, language }
    }
}

/// A value of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its value now.
    Current,
    /// Its baseline.
    Baseline,
    /// Its mean over windows.
    Mean,
    /// Its SLO or ridge point.
    Limit,
    /// A series of it.
    Series,
    /// A value finer than the range that is known, which lies on both sides of the bound.
    Finer,
}

/// A row that fires.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The row.
    pub row: &'static Row,
    /// The facts that made it fire.
    pub decided_by: Vec<Evidence>,
}

/// A row that cannot be the cause.
#[derive(Clone, Debug, PartialEq)]
pub struct RuledOut {
    /// The row.
    pub row: &'static Row,
    /// The facts that contradict it.
    pub by: Vec<Evidence>,
}

/// A row about which the observations say too little.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided {
    /// The row.
    pub row: &'static Row,
    /// What would decide.
    pub missing: Vec<Missing>,
}

/// The answer of the tree; each row is in one list, and each list in order of precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The rows that fire.
    pub verdicts: Vec<Verdict>,
    /// The rows that are ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// The rows that are undecided.
    pub undecided: Vec<Undecided>,
}

/// Asks every row of the tree.
///
/// No two rows that fire together advise opposite things about the batch size: their conditions
/// exclude each other.
///
/// # Errors
///
/// [`Error::NotFinite`](crate::Error::NotFinite), [`Error::TooSmall`](crate::Error::TooSmall) or
/// [`Error::TooLarge`](crate::Error::TooLarge) for a share outside 0 to 1 or another number out of
/// range, [`Error::NotAbove`](crate::Error::NotAbove) for a median, an SLO or a ridge point of 0,
/// [`Error::Order`](crate::Error::Order) for a P99 below its P50 or a peak below its mean.
///
/// # Examples
///
/// ```
/// use metrics_core::SecondsPerToken;
/// use metrics_core::diagnosis::{Observations, Tolerance, diagnose};
/// use metrics_core::metric::Language;
///
/// let mut seen = Observations::default();
/// seen.tpot.p50 = Some(SecondsPerToken::new(0.06)?);
/// seen.tpot.baseline_p50 = Some(SecondsPerToken::new(0.04)?);
/// seen.batch_utilization = Some(0.95);
///
/// let answer = diagnose(&seen, &Tolerance::default())?;
/// let first = &answer.verdicts[0];
/// assert_eq!(first.row.id, "tpot_up");
/// assert_eq!(
///     first.decided_by[0].in_language(Language::En).to_string(),
///     "TPOT P50 0.06 s/token > 0.044 s/token (1.1 × baseline 0.04)"
/// );
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 6; formula walkthrough, 1.3 and 7.
pub fn diagnose(observations: &Observations, tolerance: &Tolerance) -> Result<Diagnosis> {
    tolerance.check()?;
    observations.check()?;
    let mut rows = ROWS.to_vec();
    rows.sort_by_key(|row| row.precedence);
    let mut answer = Diagnosis::default();
    for row in rows {
        match observations.ask(row, tolerance) {
            Answer::Yes(decided_by) => answer.verdicts.push(Verdict { row, decided_by }),
            Answer::No(by) => answer.ruled_out.push(RuledOut { row, by }),
            Answer::Unknown(missing) => answer.undecided.push(Undecided { row, missing }),
        }
    }
    Ok(answer)
}

/// Yes or no with the facts, or what is missing.
enum Answer {
    Yes(Vec<Evidence>),
    No(Vec<Evidence>),
    Unknown(Vec<Missing>),
}

impl Answer {
    fn from(holds: bool, evidence: Vec<Evidence>) -> Self {
        if holds { Self::Yes(evidence) } else { Self::No(evidence) }
    }
}

/// The two ends of a number, equal where it is known.
#[derive(Clone, Copy)]
struct Span {
    low: f64,
    high: f64,
}

impl Span {
    const fn exactly(x: f64) -> Self {
        Self { low: x, high: x }
    }
}

/// The numbers of one operand.
#[derive(Clone, Copy, Default)]
struct Reading {
    current: Option<Span>,
    baseline: Option<Span>,
    limit: Option<f64>,
    trend: Option<Trend>,
}

impl Reading {
    fn of<Q: Quantity>(current: Option<Q>, baseline: Option<Q>, limit: Option<Q>) -> Self {
        let number = |q: Option<Q>| q.map(Quantity::number);
        let span = |q: Option<Q>| number(q).map(Span::exactly);
        Self { current: span(current), baseline: span(baseline), limit: number(limit), trend: None }
    }

    fn figure<Q: Quantity>(f: Figure<Q>) -> Self {
        Self::of(f.current, f.baseline, None)
    }

    fn peak<Q: Quantity>(p: Peak<Q>) -> Self {
        Self::of(p.peak, p.mean, None)
    }

    fn median<Q: Quantity>(l: Latency<Q>) -> Self {
        Self {
            current: span(l.p50, l.to.p50),
            baseline: span(l.baseline_p50, l.to.baseline_p50),
            ..Self::default()
        }
    }

    fn p99<Q: Quantity>(l: Latency<Q>) -> Self {
        Self {
            current: span(l.p99, l.to.p99),
            baseline: span(l.baseline_p99, l.to.baseline_p99),
            limit: l.slo.map(Quantity::number),
            trend: None,
        }
    }

    fn tail<Q: Quantity>(l: Latency<Q>) -> Self {
        let ratio = |p99: Option<Span>, p50: Option<Span>| {
            let (p99, p50) = (p99?, p50?);
            // Both may lie in one bucket, and P99 is never below P50.
            let low = if p50.high.is_finite() { (p99.low / p50.high).max(1.0) } else { 1.0 };
            let high = if 0.0 < p50.low { p99.high / p50.low } else { f64::INFINITY };
            Some(Span { low, high })
        };
        let (median, p99) = (Self::median(l), Self::p99(l));
        Self {
            current: ratio(p99.current, median.current),
            baseline: ratio(p99.baseline, median.baseline),
            ..Self::default()
        }
    }

    fn level(current: Option<f64>, level: f64) -> Self {
        Self { current: current.map(Span::exactly), limit: Some(level), ..Self::default() }
    }

    fn series(trend: Option<Trend>) -> Self {
        Self { trend, ..Self::default() }
    }
}

/// A percentile with its upper end.
fn span<Q: Quantity>(low: Option<Q>, to: Upper<Q>) -> Option<Span> {
    let low = low?.number();
    Some(Span { low, high: to.of(low) })
}

impl Observations {
    fn check(&self) -> Result<()> {
        check_latency(
            &self.ttft,
            ["TTFT P50", "TTFT P99", "baseline TTFT P50", "baseline TTFT P99", "TTFT SLO"],
        )?;
        check_latency(
            &self.tpot,
            ["TPOT P50", "TPOT P99", "baseline TPOT P50", "baseline TPOT P99", "TPOT SLO"],
        )?;
        check_latency(
            &self.e2e,
            ["E2E P50", "E2E P99", "baseline E2E P50", "baseline E2E P99", "E2E SLO"],
        )?;
        for (name, share) in [
            ("queue_share", self.queue_share),
            ("batch_utilization", self.batch_utilization),
            ("kv_utilization", self.kv_utilization),
            ("gpu_utilization", self.gpu_utilization),
            ("kv_scan_share", self.kv_scan_share),
            ("kv_hit_rate", self.kv_hit_rate.current),
            ("baseline kv_hit_rate", self.kv_hit_rate.baseline),
            ("refill_rate", self.refill_rate),
            ("reload_share", self.reload_share),
            ("goodput_ratio", self.goodput_ratio),
        ] {
            if let Some(x) = share {
                within(name, x, 0.0, 1.0)?;
            }
        }
        for (name, number) in [
            ("prefill_decode_ratio", self.prefill_decode_ratio.current),
            ("baseline prefill_decode_ratio", self.prefill_decode_ratio.baseline),
            ("preemptions", self.preemptions),
            ("send_delay", self.send_delay),
            ("eviction_rate", self.eviction_rate.peak),
            ("mean eviction_rate", self.eviction_rate.mean),
            ("rho", self.rho),
        ] {
            if let Some(x) = number {
                at_least(name, x, 0.0)?;
            }
        }
        if let Some(ridge) = self.ridge_point {
            above("ridge_point", ridge.get(), 0.0)?;
        }
        check_order(
            "peak eviction_rate",
            self.eviction_rate.peak,
            "its mean",
            self.eviction_rate.mean,
        )?;
        let communication = self.communication_time;
        check_order("peak communication_time", communication.peak, "its mean", communication.mean)
    }

    fn reading(&self, operand: Operand, t: &Tolerance) -> Reading {
        match operand {
            O::TtftP50 => Reading::median(self.ttft),
            O::TtftP99 => Reading::p99(self.ttft),
            O::TpotP50 => Reading::median(self.tpot),
            O::TpotP99 => Reading::p99(self.tpot),
            O::TpotTail => Reading { limit: Some(t.tail), ..Reading::tail(self.tpot) },
            O::E2eP50 => Reading::median(self.e2e),
            O::E2eP99 => Reading::p99(self.e2e),
            O::E2eTail => Reading::tail(self.e2e),
            O::QueueDepth => Reading::figure(self.queue_depth),
            O::QueueTrend => Reading::series(self.queue_trend),
            O::QueueWait => Reading::figure(self.queue_wait),
            O::QueueShare => Reading::level(self.queue_share, t.share),
            O::PromptTokens => Reading::figure(self.prompt_tokens),
            O::PrefillDecodeRatio => Reading::figure(self.prefill_decode_ratio),
            O::BatchUtilization => Reading::level(self.batch_utilization, t.batch),
            O::KvUtilization => Reading::level(self.kv_utilization, t.kv),
            O::GpuUtilization => Reading::level(self.gpu_utilization, t.gpu),
            O::ArithmeticIntensity => {
                Reading::of(self.arithmetic_intensity, None, self.ridge_point)
            }
            O::KvStepBytes => Reading::figure(self.kv_step_bytes),
            O::KvScanShare => Reading::level(self.kv_scan_share, t.share),
            O::TpotByContext => Reading::series(self.tpot_by_context),
            O::KvHitRate => Reading::figure(self.kv_hit_rate),
            O::RefillRate => Reading::level(self.refill_rate, t.refill),
            O::ReloadShare => Reading::level(self.reload_share, t.reload),
            O::Preemptions => Reading::level(self.preemptions, t.preemptions),
            O::SendDelay => Reading::level(self.send_delay, t.send_delay),
            O::EvictionRate => Reading::peak(self.eviction_rate),
            O::CommunicationTime => Reading::peak(self.communication_time),
            O::TokenThroughput => Reading::figure(self.token_throughput),
            O::GoodputRatio => Reading::level(self.goodput_ratio, t.goodput),
            O::Rho => Reading::level(self.rho, t.rho),
        }
    }

    /// Whether there is a value or a trend of it now.
    #[must_use]
    pub fn has(&self, operand: Operand) -> bool {
        let r = self.reading(operand, &Tolerance::default());
        r.current.is_some() || r.trend.is_some()
    }

    /// Asks one row: a group that fails rules it out, then a contradiction, then what is missing.
    fn ask(&self, row: &Row, t: &Tolerance) -> Answer {
        let (mut yes, mut no, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for group in row.all {
            match self.ask_group(group, t) {
                Answer::Yes(facts) => yes.extend(facts),
                Answer::No(facts) => no.extend(facts),
                Answer::Unknown(missing) => unknown.extend(missing),
            }
        }
        for condition in row.unless {
            if let Answer::Yes(facts) = self.ask_condition(*condition, t) {
                no.extend(facts);
            }
        }
        if !no.is_empty() {
            Answer::No(no)
        } else if !unknown.is_empty() {
            Answer::Unknown(unknown)
        } else {
            Answer::Yes(yes)
        }
    }

    /// Any condition that holds is enough; one that is unknown keeps the group open.
    fn ask_group(&self, group: &[Condition], t: &Tolerance) -> Answer {
        let (mut yes, mut no, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for condition in group {
            match self.ask_condition(*condition, t) {
                Answer::Yes(facts) => yes.extend(facts),
                Answer::No(facts) => no.extend(facts),
                Answer::Unknown(missing) => unknown.extend(missing),
            }
        }
        if !yes.is_empty() {
            Answer::Yes(yes)
        } else if !unknown.is_empty() {
            Answer::Unknown(unknown)
        } else {
            Answer::No(no)
        }
    }

    fn ask_condition(&self, condition: Condition, t: &Tolerance) -> Answer {
        let Condition { operand, test, wanted } = condition;
        match (self.ask_test(operand, test, t), wanted) {
            (Answer::Yes(facts), false) => Answer::No(facts),
            (Answer::No(facts), false) => Answer::Yes(facts),
            (answer, _) => answer,
        }
    }

    fn ask_test(&self, operand: Operand, test: Test, t: &Tolerance) -> Answer {
        let r = self.reading(operand, t);
        let missing = |part| Answer::Unknown(vec![Missing { operand, part }]);
        if test == KeepsGrowing {
            return match r.trend {
                Some(trend) => {
                    Answer::from(trend.keeps_growing(), vec![Evidence::Trend { operand, trend }])
                }
                None => missing(Part::Series),
            };
        }
        if test == Stable {
            return self.ask_stable(operand, t);
        }
        let Some(value) = r.current else { return missing(Part::Current) };
        // The bound where it is hardest to be above it, and where it is easiest.
        let (bound, against) = match test {
            Up | Down => {
                let Some(baseline) = r.baseline else { return missing(Part::Baseline) };
                let factor = t.up;
                let of = |baseline: f64| {
                    if test == Down {
                        (baseline / factor, Against::BaselineOver { factor, baseline })
                    } else if factor * baseline < operand.floor() {
                        (operand.floor(), Against::Floor)
                    } else {
                        (factor * baseline, Against::Baseline { factor, baseline })
                    }
                };
                let (low, high) = (of(baseline.low), of(baseline.high));
                (Span { low: low.0, high: high.0 }, [low.1, high.1])
            }
            Spikes => {
                let Some(mean) = r.baseline.map(|b| b.low) else { return missing(Part::Mean) };
                let against = Against::Mean { factor: t.spike, mean };
                (Span::exactly(t.spike * mean), [against; 2])
            }
            High | Low | KeepsGrowing | Stable => {
                let Some(limit) = r.limit else { return missing(Part::Limit) };
                let against = match operand {
                    O::TtftP99 | O::TpotP99 | O::E2eP99 => Against::Slo,
                    O::ArithmeticIntensity => Against::RidgePoint,
                    _ => Against::Level,
                };
                (Span::exactly(limit), [against; 2])
            }
        };
        let [against_low, against_high] = against;
        let downwards = matches!(test, Down | Low);
        // Each answer names the end of the bound that it had to clear.
        let (holds, relation, bound, against) = match downwards {
            true if value.high < bound.low => (true, Relation::Below, bound.low, against_low),
            true if bound.high <= value.low => (false, Relation::AtLeast, bound.high, against_high),
            false if bound.high < value.low => (true, Relation::Above, bound.high, against_high),
            false if value.high <= bound.low => (false, Relation::AtMost, bound.low, against_low),
            _ => return missing(Part::Finer),
        };
        let (value, upto) = (value.low, value.high);
        Answer::from(
            holds,
            vec![Evidence::Compared { operand, value, upto, relation, bound, against }],
        )
    }

    /// Neither up nor high, wherever either can be told.
    fn ask_stable(&self, median: Operand, t: &Tolerance) -> Answer {
        let p99 = match median {
            O::TtftP50 => O::TtftP99,
            O::TpotP50 => O::TpotP99,
            _ => O::E2eP99,
        };
        let (mut steady, mut moved, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for answer in [self.ask_test(median, Up, t), self.ask_test(p99, High, t)] {
            match answer {
                Answer::Yes(facts) => moved.extend(facts),
                Answer::No(facts) => steady.extend(facts),
                Answer::Unknown(missing) => unknown.extend(missing),
            }
        }
        if !moved.is_empty() {
            Answer::No(moved)
        } else if !steady.is_empty() {
            Answer::Yes(steady)
        } else {
            Answer::Unknown(unknown)
        }
    }
}

/// Names of a latency's p50, p99, baseline p50, baseline p99 and SLO, in this order.
fn check_latency<Q: Quantity>(l: &Latency<Q>, names: [&'static str; 5]) -> Result<()> {
    let [p50, p99, baseline_p50, baseline_p99, slo] = names;
    for (name, q, to) in [
        (p50, l.p50, l.to.p50),
        (p99, l.p99, l.to.p99),
        (baseline_p50, l.baseline_p50, l.to.baseline_p50),
        (baseline_p99, l.baseline_p99, l.to.baseline_p99),
    ] {
        if let (Some(low), Upper::At(high)) = (q, to) {
            difference((name, high.number()), ("its lower end", low.number()))?;
        }
    }
    let exact = |q: Option<Q>, to: Upper<Q>| q.filter(|_| matches!(to, Upper::Exact));
    for (name, q) in [
        (p50, exact(l.p50, l.to.p50)),
        (baseline_p50, exact(l.baseline_p50, l.to.baseline_p50)),
        (slo, l.slo),
    ] {
        if let Some(q) = q {
            above(name, q.number(), 0.0)?;
        }
    }
    // A range starts at the lower end of a bucket, which says nothing about the order.
    check_order(p99, exact(l.p99, l.to.p99), p50, l.p50)?;
    check_order(
        baseline_p99,
        exact(l.baseline_p99, l.to.baseline_p99),
        baseline_p50,
        l.baseline_p50,
    )
}

fn check_order<Q: Quantity>(
    larger: &'static str,
    a: Option<Q>,
    smaller: &'static str,
    b: Option<Q>,
) -> Result<()> {
    if let (Some(a), Some(b)) = (a, b) {
        difference((larger, a.number()), (smaller, b.number()))?;
    }
    Ok(())
}

/// When a row fires, in one language:
/// `TPOT P50 > 1.1 × baseline and (batch utilization > 0.85 or KV-cache utilization > 0.8)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowText<'a> {
    /// The row.
    pub row: &'a Row,
    /// The numbers.
    pub tolerance: Tolerance,
    /// The language.
    pub language: Language,
}

impl fmt::Display for RowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (and, or, unless) = match self.language {
            Language::En => (" and ", " or ", ", unless "),
            Language::Zh => (" 且 ", " 或 ", "，除非 "),
        };
        for (i, group) in self.row.all.iter().enumerate() {
            let words: Vec<_> = group.iter().map(|c| self.condition(*c)).collect();
            let (open, close) = if words.len() == 1 { ("", "") } else { ("(", ")") };
            write!(f, "{}{open}{}{close}", if i == 0 { "" } else { and }, words.join(or))?;
        }
        for condition in self.row.unless {
            write!(f, "{unless}{}", self.condition(*condition))?;
        }
        Ok(())
    }
}

impl RowText<'_> {
    fn condition(&self, c: Condition) -> String {
        let say = |t: Text| t.in_language(self.language);
        let t = &self.tolerance;
        let name = say(c.operand.name());
        let (above, below) = if c.wanted { (">", "<") } else { ("≤", "≥") };
        // The level does not depend on what was observed.
        let level = Observations::default().reading(c.operand, t).limit;
        let limit = match (level, c.operand) {
            (Some(level), _) => short(level),
            (None, O::ArithmeticIntensity) => say(RIDGE_POINT).to_owned(),
            (None, _) => "SLO".to_owned(),
        };
        match c.test {
            Up => format!("{name} {above} {} × {}", short(t.up), say(BASELINE)),
            Down => format!("{name} {below} {} / {}", say(BASELINE), short(t.up)),
            High => format!("{name} {above} {limit}"),
            Low => format!("{name} {below} {limit}"),
            Spikes => {
                let (peak, mean) = (say(text("peak", "峰值")), say(MEAN));
                format!("{name} {peak} {above} {} × {mean}", short(t.spike))
            }
            KeepsGrowing => format!("{name} {}", say(growth(c.wanted))),
            Stable if c.wanted => format!("{name} {}", say(text("stable", "稳定"))),
            Stable => format!("{name} {}", say(text("not stable", "不稳定"))),
        }
    }
}

const BASELINE: Text = text("baseline", "基线");
const MEAN: Text = text("mean", "均值");
const RIDGE_POINT: Text = text("ridge point", "脊点");

const fn growth(grows: bool) -> Text {
    if grows {
        text("keeps growing", "持续增长")
    } else {
        text("does not keep growing", "未持续增长")
    }
}

/// A fact in one language: `TPOT P50 0.06 s/token > 0.044 s/token (1.1 × baseline 0.04)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvidenceText {
    /// The fact.
    pub evidence: Evidence,
    /// The language.
    pub language: Language,
}

impl fmt::Display for EvidenceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |t: Text| t.in_language(self.language);
        let (open, comma, close) = match self.language {
            Language::En => (" (", ", ", ")"),
            Language::Zh => ("（", "，", "）"),
        };
        match self.evidence {
            Evidence::Compared { operand, value, upto, relation, bound, against } => {
                let sign = match relation {
                    Relation::Above => ">",
                    Relation::AtMost => "≤",
                    Relation::Below => "<",
                    Relation::AtLeast => "≥",
                };
                let unit = match operand.unit() {
                    u if u.is_one() => String::new(),
                    u => format!(" {u}"),
                };
                let name = say(operand.name());
                let (shown, bound) = distinct(value, bound);
                match upto {
                    _ if upto.total_cmp(&value).is_eq() => write!(f, "{name} {shown}")?,
                    f64::INFINITY => {
                        let beyond = say(text("beyond", "超过"));
                        write!(f, "{name} {beyond} {shown}")?;
                    }
                    _ => {
                        let within = say(text("in", "介于"));
                        write!(f, "{name} {within} {shown}..{}", short(upto))?;
                    }
                }
                write!(f, "{unit} {sign} {bound}{unit}{open}")?;
                match against {
                    Against::Baseline { factor, baseline } => {
                        let word = say(BASELINE);
                        write!(f, "{} × {word} {}", short(factor), short(baseline))?;
                    }
                    Against::BaselineOver { factor, baseline } => {
                        let word = say(BASELINE);
                        write!(f, "{word} {} / {}", short(baseline), short(factor))?;
                    }
                    Against::Mean { factor, mean } => {
                        let word = say(MEAN);
                        write!(f, "{} × {word} {}", short(factor), short(mean))?;
                    }
                    Against::Slo => f.write_str("SLO")?,
                    Against::RidgePoint => f.write_str(say(RIDGE_POINT))?,
                    Against::Level => f.write_str(say(text("level", "阈值")))?,
                    Against::Floor => {
                        f.write_str(say(text("smallest that counts", "计入的最小值")))?;
                    }
                }
                f.write_str(close)
            }
            Evidence::Trend { operand, trend } => {
                let says = growth(trend.keeps_growing());
                let gap = match self.language {
                    Language::En => " ",
                    Language::Zh => "：",
                };
                let samples = say(text("samples", "个样本"));
                write!(f, "{}{gap}{}{open}", say(operand.name()), say(says))?;
                write!(f, "p = {}{comma}{} {samples}{close}", short(trend.p_value), trend.n)
            }
        }
    }
}

/// What is missing in one language: `the baseline of TPOT P50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingText {
    /// What is missing.
    pub missing: Missing,
    /// The language.
    pub language: Language,
}

impl fmt::Display for MissingText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = self.missing.operand;
        let part = match (self.missing.part, operand) {
            (Part::Current, _) => text("value", "当前值"),
            (Part::Baseline, _) => BASELINE,
            (Part::Mean, _) => text("mean over windows", "各时间窗均值"),
            (Part::Limit, O::ArithmeticIntensity) => RIDGE_POINT,
            (Part::Limit, _) => text("SLO", "SLO"),
            (Part::Series, _) => text("series of samples", "采样序列"),
            (Part::Finer, _) => text("exact value", "精确值"),
        };
        let (name, part) =
            (operand.name().in_language(self.language), part.in_language(self.language));
        match self.language {
            Language::En if self.missing.part == Part::Finer => {
                write!(f, "the {part} of {name}, whose bucket holds the bound")
            }
            Language::En => write!(f, "the {part} of {name}"),
            Language::Zh => {
                // A space sets Latin letters off from Chinese ones.
                let latin = |c: char| c.is_ascii();
                let before = if name.ends_with(latin) { " " } else { "" };
                let after = if part.starts_with(latin) { " " } else { "" };
                write!(f, "{name}{before}的{after}{part}")?;
                if self.missing.part == Part::Finer {
                    f.write_str("（界限落在其桶内）")?;
                }
                Ok(())
            }
        }
    }
}

/// Four significant digits without trailing zeros.
fn short(x: f64) -> String {
    let rounded: f64 = format!("{x:.3e}").parse().unwrap_or(x);
    let size = rounded.abs();
    if size != 0.0 && (size < 1e-4 || 1e6 <= size) {
        format!("{rounded:e}")
    } else {
        format!("{rounded}")
    }
}

/// Both numbers short, or in full where rounding would make them look equal.
fn distinct(a: f64, b: f64) -> (String, String) {
    let (short_a, short_b) = (short(a), short(b));
    if short_a == short_b && a.total_cmp(&b).is_ne() {
        return (a.to_string(), b.to_string());
    }
    (short_a, short_b)
}
