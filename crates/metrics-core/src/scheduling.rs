//! Update rules of the scheduler: prefill slots, chunks, decode steps.

use crate::error::{Error, Result, difference};
#[cfg(feature = "catalog")]
use crate::metric::{
    Computed, Formula, Input, Layer, Metric, Refusal, Source, computed_as, text, whole,
};
use crate::timeline::LARGEST_TOKENS;
#[cfg(feature = "catalog")]
use crate::units::Unit;

/// Places left for prefill in a step that serves decodes first.
///
/// ```text
/// prefill_slots = max(b_max - b_decode, 0)
/// ```
///
/// `b_max` is the most requests that a step can hold, `b_decode` the number of requests ready to
/// decode. Never negative: with more decodes than places, the step takes `b_max` of them and
/// prefill gets none. So more decodes hurt TTFT first.
///
/// # Examples
///
/// ```
/// use metrics_core::scheduling::prefill_slots;
///
/// assert_eq!(prefill_slots(8, 5), 3);
/// assert_eq!(prefill_slots(8, 11), 0);
/// ```
///
/// Source: formula walkthrough, 4.2.
#[must_use]
pub fn prefill_slots(b_max: u64, b_decode: u64) -> u64 {
    b_max.saturating_sub(b_decode)
}

/// The catalog entry of [`prefill_slots`].
#[cfg(feature = "catalog")]
pub const PREFILL_SLOTS: Metric = Metric {
    id: "prefill_slots",
    symbol: r"B_t^{\mathrm{prefill}}",
    name: text("Places left for prefill", "prefill 剩余位置数"),
    layer: Layer::Scheduling,
    unit: Unit::REQUEST,
    inputs: &[
        Input::whole(
            "b_max",
            r"B_{\max}",
            Unit::REQUEST,
            (0.0, 64.0),
            text("most requests that a step can hold", "每步可容纳的最大请求数"),
        ),
        Input::whole(
            "b_decode",
            r"B_t^{\mathrm{decode}}",
            Unit::REQUEST,
            (0.0, 128.0),
            text("requests ready to decode", "可 decode 的请求数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "max(b_max - b_decode, 0)",
        eval: |x| {
            count(Unit::REQUEST, Ok(prefill_slots(whole("b_max", x[0])?, whole("b_decode", x[1])?)))
        },
        example: (&[8.0, 5.0], 3.0),
    },
    path: "metrics_core::scheduling::prefill_slots",
    source: Source { work: "formula walkthrough", section: "4.2" },
    note: text(
        "Decode first protects TPOT and lets TTFT pay: with enough decodes no prompt gets in.",
        "decode 优先保护 TPOT，代价由 TTFT 承担：decode 足够多时，任何 prompt 都进不来。",
    ),
    exported: &[],
};

/// The value of a function that counts, with the unit of what it counts.
#[cfg(feature = "catalog")]
fn count(unit: Unit, n: Result<u64>) -> std::result::Result<Computed, Refusal> {
    computed_as(unit, n.map(|n| n as f64))
}

/// Prompt tokens done after one more chunk.
///
/// ```text
/// prefill_update = min(t_in, p + c_prefill)
/// ```
///
/// `p` counts the prompt tokens done before the step, `t_in` those of the whole prompt,
/// `c_prefill` the most that one step takes of it. A step that gives a request nothing has
/// `c_prefill` 0.
///
/// # Errors
///
/// [`Error::Order`] if `p > t_in`: more done than there is.
///
/// # Examples
///
/// ```
/// use metrics_core::scheduling::prefill_update;
///
/// assert_eq!(prefill_update(512, 900, 256)?, 768);
/// assert_eq!(prefill_update(768, 900, 256)?, 900);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 4.3.
pub fn prefill_update(p: u64, t_in: u64, c_prefill: u64) -> Result<u64> {
    difference(("t_in", t_in as f64), ("p", p as f64))?;
    // The sum may pass the type's end, the minimum with `t_in` never does.
    Ok(t_in.min(p.saturating_add(c_prefill)))
}

/// The catalog entry of [`prefill_update`].
#[cfg(feature = "catalog")]
pub const PREFILL_UPDATE: Metric = Metric {
    id: "prefill_update",
    symbol: r"p_{t+1}",
    name: text("Prefill update", "prefill 更新式"),
    layer: Layer::Scheduling,
    unit: Unit::TOKEN,
    inputs: &[
        Input::whole(
            "p",
            r"p_t",
            Unit::TOKEN,
            (0.0, 2_048.0),
            text("prompt tokens done before the step", "本步之前已完成 prefill 的 token 数"),
        ),
        Input::whole(
            "t_in",
            r"T_{\mathrm{in}}",
            Unit::TOKEN,
            (0.0, 4_096.0),
            text("tokens of the prompt", "prompt 的 token 数"),
        ),
        Input::whole(
            "c_prefill",
            r"C_{\mathrm{prefill}}",
            Unit::TOKEN,
            (0.0, 2_048.0),
            text("most prompt tokens in a step", "每步最多推进的 prompt token 数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "min(t_in, p + c_prefill)",
        eval: |x| {
            let done =
                prefill_update(whole("p", x[0])?, whole("t_in", x[1])?, whole("c_prefill", x[2])?);
            count(Unit::TOKEN, done)
        },
        example: (&[512.0, 900.0, 256.0], 768.0),
    },
    path: "metrics_core::scheduling::prefill_update",
    source: Source { work: "formula walkthrough", section: "4.3" },
    note: text(
        "A larger chunk needs fewer steps for a long prompt, but makes each of them longer for the decodes beside it.",
        "chunk 越大，长 prompt 所需步数越少，但同一步内的 decode 会被拖得更久。",
    ),
    exported: &[],
};

/// Output tokens after one more decode step.
///
/// ```text
/// decode_update = d + 1
/// ```
///
/// `d` counts the output tokens before the step; a step yields one, without speculation.
///
/// # Errors
///
/// [`Error::TooLarge`] from 2^53 tokens on, where counts stop being exact.
///
/// # Examples
///
/// ```
/// use metrics_core::scheduling::decode_update;
///
/// assert_eq!(decode_update(127)?, 128);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 4.3.
pub fn decode_update(d: u64) -> Result<u64> {
    if LARGEST_TOKENS <= d {
        let max = (LARGEST_TOKENS - 1) as f64;
        return Err(Error::TooLarge { input: "d", max, value: d as f64 });
    }
    Ok(d + 1)
}

/// The catalog entry of [`decode_update`].
#[cfg(feature = "catalog")]
pub const DECODE_UPDATE: Metric = Metric {
    id: "decode_update",
    symbol: r"d_{t+1}",
    name: text("Decode update", "decode 更新式"),
    layer: Layer::Scheduling,
    unit: Unit::TOKEN,
    inputs: &[D],
    formula: Formula::Scalar {
        text: "d + 1",
        eval: |x| count(Unit::TOKEN, decode_update(whole("d", x[0])?)),
        example: (&[127.0], 128.0),
    },
    path: "metrics_core::scheduling::decode_update",
    source: Source { work: "formula walkthrough", section: "4.3" },
    note: text(
        "One token a step holds without speculative decoding only.",
        "每步一个 token 仅在不使用投机解码时成立。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const D: Input = Input::whole(
    "d",
    "d_t",
    Unit::TOKEN,
    (0.0, 256.0),
    text("output tokens so far", "已输出的 token 数"),
);

/// Whether a request has all its output tokens.
///
/// ```text
/// decode_done = if d >= n_out then 1 else 0
/// ```
///
/// `d` counts the output tokens so far, the step just ended included; `n_out` those of the whole
/// answer.
///
/// # Examples
///
/// ```
/// use metrics_core::scheduling::decode_done;
///
/// assert!(decode_done(128, 128));
/// assert!(!decode_done(127, 128));
/// ```
///
/// Source: formula walkthrough, 4.3.
#[must_use]
pub fn decode_done(d: u64, n_out: u64) -> bool {
    n_out <= d
}

/// The catalog entry of [`decode_done`].
#[cfg(feature = "catalog")]
pub const DECODE_DONE: Metric = Metric {
    id: "decode_done",
    symbol: r"\mathbb{1}_{\mathrm{done}}",
    name: text("Decode done", "decode 完成判定"),
    layer: Layer::Scheduling,
    unit: Unit::ONE,
    inputs: &[
        D,
        Input::whole(
            "n_out",
            r"N_{\mathrm{out}}",
            Unit::TOKEN,
            (0.0, 256.0),
            text("output tokens of the whole answer", "整个回答的输出 token 数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "if d >= n_out then 1 else 0",
        eval: |x| {
            let done = decode_done(whole("d", x[0])?, whole("n_out", x[1])?);
            count(Unit::ONE, Ok(u64::from(done)))
        },
        example: (&[128.0, 128.0], 1.0),
    },
    path: "metrics_core::scheduling::decode_done",
    source: Source { work: "formula walkthrough", section: "4.3" },
    note: text(
        "1 means done; it is asked after the step, with the new token counted.",
        "1 表示完成；在该步之后判定，新 token 已计入。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&PREFILL_SLOTS, &PREFILL_UPDATE, &DECODE_UPDATE, &DECODE_DONE];

#[cfg(test)]
mod tests {
    use super::*;

    /// 900 prompt tokens in chunks of 256: 256, 512, 768, 900 and no further.
    #[test]
    fn chunks_end_exactly_at_the_prompt() {
        let mut p = 0;
        let mut steps = Vec::new();
        while p < 900 {
            p = prefill_update(p, 900, 256).unwrap();
            steps.push(p);
        }
        assert_eq!(steps, [256, 512, 768, 900]);
        assert_eq!(prefill_update(900, 900, 256), Ok(900));
    }

    #[test]
    fn counts_at_the_end_of_their_range_do_not_wrap() {
        assert_eq!(prefill_update(5, u64::MAX, u64::MAX), Ok(u64::MAX));
        assert_eq!(decode_update(LARGEST_TOKENS - 1), Ok(LARGEST_TOKENS));
        assert!(matches!(decode_update(LARGEST_TOKENS), Err(Error::TooLarge { .. })));
        assert_eq!(
            prefill_update(3, 2, 1).unwrap_err().to_string(),
            "t_in must be at least p = 3, got 2"
        );
    }
}
