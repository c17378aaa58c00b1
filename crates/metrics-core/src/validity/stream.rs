//! Findings about the streams: what one gap or one first chunk really is.

use crate::format::{fixed, percent, significant};
use crate::metric::{Source, text};

use super::evidence::{Spread, Streams};
use super::{Check, Command, Facts, Finding, Level, Subject, seconds};

/// W06: the answers were not streamed, so that TTFT is E2E and there is no TPOT.
///
/// `ttft_share` is the median, or in a summary the ratio of the means, of TTFT over E2E of answers
/// with more than one token; `tpot_s` their median TPOT; `in_one_chunk` of `answers` came in one
/// chunk.
#[must_use]
pub fn not_streamed(
    ttft_share: Option<f64>,
    tpot_s: Option<f64>,
    in_one_chunk: u64,
    answers: u64,
) -> Option<Finding> {
    // One such answer is a rare event; half of them are what the median latency is.
    if 0 < in_one_chunk && answers <= 2 * in_one_chunk {
        let says = if answers == in_one_chunk {
            format!("all {answers} answers of several tokens came in one chunk")
        } else {
            format!("{in_one_chunk} of {answers} answers of several tokens came in one chunk")
        };
        return Some(
            W06.finding(Level::Warn, says)
                .number("answers", answers as f64)
                .number("in_one_chunk", in_one_chunk as f64),
        );
    }
    let (share, tpot) = ttft_share.zip(tpot_s)?;
    if share <= 0.98 || 0.001 <= tpot {
        return None;
    }
    let says = format!(
        "TTFT is {} of E2E and the rest takes {} a token, less than any decode step: the tokens came together",
        percent(share),
        seconds(tpot)
    );
    Some(W06.finding(Level::Warn, says).number("ttft_share", share).number("tpot_s", tpot))
}

/// See [`not_streamed`].
pub const W06: Check = Check {
    id: "W06",
    name: "not-streamed",
    title: text("answers were not streamed", "回答未流式返回"),
    rule: text(
        "median TTFT / E2E of answers of several tokens > 0.98 and their median TPOT < 1 ms; or at least half of them came in one chunk",
        "多 token 回答的 TTFT / E2E 中位数 > 0.98 且 TPOT 中位数 < 1 ms；或至少一半回答在一个分块中到达",
    ),
    why: text(
        "Without a stream TTFT measures the whole answer. The share alone also fires on long queues before short answers, so the rest has to be faster than a decode step can be.",
        "没有流时 TTFT 量的是整个回答。只看占比会在短回答前有长队列时误报，故还要求其余部分快于任何解码步。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::Tpot, Subject::Itl],
    advice: text(
        "ask for a stream, and look for a proxy that buffers",
        "请求流式返回，并检查是否有缓冲的代理",
    ),
    source: Source { work: "evalscope#413; sglang PR#3888", section: "" },
    raised_by: &[Command::Report],
};

/// W07: a gap is between chunks that hold several tokens, not between tokens.
///
/// `gaps` and `tokens_after_first` count over the same answers (0 where unknown); `gap_s` and
/// `tpot_s` are medians, or both means.
#[must_use]
pub fn per_chunk(
    gaps: u64,
    tokens_after_first: u64,
    gap_s: Option<f64>,
    tpot_s: Option<f64>,
) -> Option<Finding> {
    let counted = (0 < gaps && 0 < tokens_after_first)
        .then(|| tokens_after_first as f64 / gaps as f64)
        .filter(|r| 1.25 < *r);
    let timed = gap_s
        .zip(tpot_s)
        .filter(|(_, tpot)| 0.0 < *tpot)
        .map(|(gap, tpot)| gap / tpot)
        .filter(|r| 1.5 < *r && r.is_finite());
    let ratio = counted.or(timed)?;
    let whole = ratio.round();
    let flush = if (ratio - whole).abs() < 0.1 * whole && 2.0 <= whole {
        format!("; it looks like a flush every {} tokens", fixed(whole, 0))
    } else {
        String::new()
    };
    let says = match counted {
        Some(r) => format!(
            "{gaps} gaps for {tokens_after_first} tokens after the first: {} tokens a chunk{flush}",
            significant(r, 3)
        ),
        None => format!("a gap is {} times TPOT{flush}", significant(ratio, 3)),
    };
    Some(
        W07.finding(Level::Warn, says)
            .number("tokens_per_gap", ratio)
            .maybe("gap_s", gap_s)
            .maybe("tpot_s", tpot_s),
    )
}

/// See [`per_chunk`].
pub const W07: Check = Check {
    id: "W07",
    name: "itl-per-chunk",
    title: text("ITL is per chunk", "ITL 按分块计"),
    rule: text(
        "gaps < 0.8 · (tokens − answers), or median gap / median TPOT > 1.5 (of means where only those are known)",
        "间隔数 < 0.8 ·（token 数 − 回答数），或间隔中位数 / TPOT 中位数 > 1.5（只有均值时用均值）",
    ),
    why: text(
        "With several tokens in a chunk (speculative decoding, a flush every k tokens, a slow client) the gap between chunks is not the time of a token. The counts decide before the times, as they do not depend on stalls.",
        "一个分块含多个 token 时（推测解码、每 k 个 token 刷新一次、慢客户端），分块间隔不是一个 token 的时间。计数先于时间判定，因为它不受停顿影响。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Itl],
    advice: text("read TPOT instead of ITL", "看 TPOT，不看 ITL"),
    source: Source {
        work: "TensorRT-LLM PR#18432; sglang PR#12064; InferenceX#1226",
        section: "case K008",
    },
    raised_by: &[Command::Report],
};

/// W08: few gaps hold much of the time, so that percentiles of ITL do not show them.
///
/// `stalled_share` is the share of the decode time in gaps above ten times the median, if known.
#[must_use]
pub fn giant_stalls(itl: &Spread, stalled_share: Option<f64>) -> Option<Finding> {
    let mean = itl.mean.filter(|m| 0.0 < *m)?;
    let above_p99 = itl.p99.filter(|p| *p < mean);
    let wide = itl.std.filter(|s| 5.0 * mean < *s);
    if above_p99.is_none() && wide.is_none() {
        return None;
    }
    let mut parts = Vec::new();
    if let Some(p99) = above_p99 {
        parts.push(format!("the mean gap {} is above its p99 {}", seconds(mean), seconds(p99)));
    }
    if let Some(std) = wide {
        parts.push(format!("the standard deviation {} is above 5 means", seconds(std)));
    }
    // Without the gaps, what lies above the median is at least stalled on balance.
    let share = stalled_share.or_else(|| itl.p50.map(|p| 1.0 - p / mean)).filter(|s| 0.0 < *s);
    if let Some(share) = share {
        parts.push(format!("{} of the decode time is in rare long gaps", percent(share)));
    }
    Some(
        W08.finding(Level::Warn, parts.join("; "))
            .number("mean_s", mean)
            .maybe("p99_s", itl.p99)
            .maybe("std_s", itl.std)
            .maybe("stalled_share", share),
    )
}

/// See [`giant_stalls`].
pub const W08: Check = Check {
    id: "W08",
    name: "rare-giant-stalls",
    title: text("rare giant stalls", "罕见的巨大停顿"),
    rule: text(
        "mean ITL > p99 of ITL, or its standard deviation > 5 means",
        "ITL 均值 > ITL 的 p99，或标准差 > 5 倍均值",
    ),
    why: text(
        "A gap of seconds, as when another prefill takes the batch, is one gap among hundreds and lies beyond p99 of all gaps, but every user meets it.",
        "例如别的 prefill 占住批次时，几秒的间隔在数百个间隔中只占一个，落在所有间隔的 p99 之外，但每个用户都会遇到。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Itl],
    advice: text(
        "read the largest gap of each request and TPOT; chunk the prefill",
        "看每个请求的最大间隔与 TPOT；启用分块 prefill",
    ),
    source: Source { work: "sglang#9585", section: "" },
    raised_by: &[Command::Report],
};

/// W09: the mean is no typical value.
///
/// `ttft` and `itl` are the figures of each, `modes_s` the two commonest lengths of a gap.
#[must_use]
pub fn mean_not_typical(
    ttft: &Spread,
    itl: &Spread,
    modes_s: Option<(f64, f64)>,
) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut affects = Vec::new();
    let mut numbers = Vec::new();
    let skewed = |s: &Spread| {
        let (mean, p50) = s.mean.zip(s.p50)?;
        let ratio = mean / p50;
        // Two samples have no typical value to begin with.
        let enough = s.n.is_none_or(|n| 10 <= n);
        (0.0 < p50 && enough && (1.5 < ratio || ratio < 0.67)).then_some((mean, p50, ratio))
    };
    for (subject, name, spread) in [
        (Subject::Ttft, "ttft_mean_over_median", ttft),
        (Subject::Itl, "itl_mean_over_median", itl),
    ] {
        if let Some((mean, p50, ratio)) = skewed(spread) {
            parts.push(format!(
                "mean {} {} is {} times the median {}",
                subject.text().en,
                seconds(mean),
                significant(ratio, 3),
                seconds(p50)
            ));
            affects.push(subject);
            numbers.push((name, ratio));
        }
    }
    if let Some((low, high)) = modes_s {
        parts.push(format!("gaps come in two sizes, about {} and {}", seconds(low), seconds(high)));
        affects.push(Subject::Itl);
        numbers.extend([("low_mode_s", low), ("high_mode_s", high)]);
    }
    if parts.is_empty() {
        return None;
    }
    let finding = W09.finding(Level::Note, parts.join("; ")).affecting(&affects);
    Some(numbers.into_iter().fold(finding, |f, (name, x)| f.number(name, x)))
}

/// See [`mean_not_typical`].
pub const W09: Check = Check {
    id: "W09",
    name: "mean-not-typical",
    title: text("the mean is not typical", "均值不具代表性"),
    rule: text(
        "mean / median of TTFT or ITL > 1.5 or < 0.67, of at least 10 samples; or gaps of two sizes more than three times apart, each at least 5 % of all gaps, with a valley between",
        "TTFT 或 ITL 的均值 / 中位数 > 1.5 或 < 0.67，至少 10 个样本；或间隔有两种大小，相差三倍以上，各占至少 5 %，其间有低谷",
    ),
    why: text(
        "A few long waits move the mean where no request is. The figures stand, so it is a note.",
        "少数长等待会把均值推到没有请求的位置。数字本身成立，故为提示。",
    ),
    levels: &[Level::Note],
    affects: &[Subject::Ttft, Subject::Itl],
    advice: text("read the median and the percentiles", "看中位数与百分位"),
    source: Source { work: "aarora79 PR#32; vllm PR#44558; vllm#9722", section: "" },
    raised_by: &[Command::Report],
};

/// W26: the first chunk carries no token, so that TTFT is too early.
///
/// `suspects` of `answers` have more chunks than tokens and a first gap above ten times their
/// median gap; `first_gap_s` is the median of those gaps.
#[must_use]
pub fn fake_first_token(suspects: u64, answers: u64, first_gap_s: Option<f64>) -> Option<Finding> {
    // Less than a tenth is a stall at the second token, which happens to anyone.
    if answers == 0 || suspects == 0 || suspects * 10 < answers {
        return None;
    }
    let gap = first_gap_s.map_or(String::new(), |g| format!(", {} in the median", seconds(g)));
    let says = format!(
        "{suspects} of {answers} answers have more chunks than tokens, and the first gap is above ten usual gaps{gap}: the first chunk is empty and TTFT too early by that"
    );
    Some(
        W26.finding(Level::Warn, says)
            .number("suspects", suspects as f64)
            .number("answers", answers as f64)
            .maybe("first_gap_p50_s", first_gap_s),
    )
}

/// See [`fake_first_token`].
pub const W26: Check = Check {
    id: "W26",
    name: "fake-first-token",
    title: text("the first chunk carries no token", "首个分块不含 token"),
    rule: text(
        "more chunks than tokens, and first gap > 10 · median gap, in at least a tenth of the answers",
        "分块数多于 token 数，且首个间隔 > 10 · 间隔中位数，占回答的至少十分之一",
    ),
    why: text(
        "Some servers first send an event with the role only. Its time is no TTFT; the rest of the prefill then hides in the first gap, and TPOT is too high by it.",
        "有些服务器先发一个只含角色的事件。其时刻不是 TTFT；剩余 prefill 会藏进首个间隔，TPOT 也因此偏高。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::Tpot, Subject::Itl],
    advice: text(
        "take the first chunk with content as the first token",
        "以首个有内容的分块作为首 token",
    ),
    source: Source { work: "vllm#15106", section: "metric fault 2" },
    raised_by: &[Command::Report],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let s: &Streams = &facts.streams;
    let mut found = Vec::new();
    let share = s.ttft_share_p50.or_else(|| {
        let several = facts.output.mean.is_some_and(|n| 1.5 < n);
        let (ttft, e2e) = facts.ttft.mean.zip(facts.e2e.mean)?;
        (several && !facts.has_requests && 0.0 < e2e).then(|| ttft / e2e)
    });
    let tpot = facts.tpot.p50.or(facts.tpot.mean);
    let not_streamed = not_streamed(share, tpot, s.in_one_chunk, s.judged);
    let streamed = not_streamed.is_none();
    found.extend(not_streamed);
    if s.per_token != Some(true) && streamed {
        let medians = facts.itl.p50.zip(facts.tpot.p50);
        let (gap, tpot) = medians.or(facts.itl.mean.zip(facts.tpot.mean)).unzip();
        found.extend(per_chunk(s.gaps, s.tokens_after_first, gap, tpot));
    }
    found.extend(giant_stalls(&facts.itl, s.stalled_share));
    found.extend(mean_not_typical(&facts.ttft, &facts.itl, s.two_modes_s));
    found.extend(fake_first_token(
        s.with_empty_chunk_and_long_first_gap,
        s.answers,
        s.long_first_gap_p50_s,
    ));
    found
}
