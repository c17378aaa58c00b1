//! Whether two tools' figures of one name are the same thing, where only the figures are there.

use super::{Tool, Topic};

/// What a tool's figure is, in words that are equal where the definitions are.
///
/// Two tools whose percentiles are taken otherwise differ by less than a sample, which does not
/// make another thing of a figure.
const fn definition(tool: Tool, topic: Topic) -> Option<&'static str> {
    Some(match (topic, tool) {
        (Topic::Ttft, Tool::Mlperf) => "from the instant at which a query was scheduled",
        (Topic::Ttft, _) => "from sending to the first output",
        (Topic::Tpot, Tool::Vllm | Tool::Aiperf | Tool::Mlperf | Tool::DistServe) => {
            "(E2E - TTFT) / (N - 1) up to the last token"
        }
        (Topic::Tpot, Tool::Sglang) => "(E2E - TTFT) / (N - 1) up to the last line of the stream",
        (Topic::Tpot, Tool::Guidellm) => "(E2E - TTFT) / (N - 1), each answer weighted by N - 1",
        (Topic::Tpot, Tool::InferencePerf) => {
            "(E2E - TTFT) / (N - 1) with N by the client's own tokenizer"
        }
        (Topic::Itl, Tool::Vllm | Tool::Aiperf) => "gaps between chunks, pooled",
        (Topic::Itl, Tool::Sglang) => {
            "gaps between chunks, divided by their tokens on the native endpoint"
        }
        (Topic::Itl, Tool::InferencePerf) => "gaps between token stamps, 0 inside a chunk",
        (Topic::E2e, Tool::Vllm | Tool::Aiperf | Tool::DistServe) => "to the last token",
        (Topic::E2e, Tool::Mlperf) => "from the scheduled instant to the last token",
        (Topic::E2e, _) => "to the end of the stream",
        (Topic::TimeBase, Tool::Vllm | Tool::Sglang) => "over the wall clock of the run",
        (Topic::TimeBase, Tool::Aiperf) => "over the phase, which the file does not print",
        (Topic::TimeBase, Tool::Guidellm) => "a time-weighted mean over the measured window",
        (Topic::TimeBase, Tool::InferencePerf) => "from the first start to the last end",
        (Topic::TimeBase, Tool::Llmperf) => "over the wall clock, with the start of its workers",
        (Topic::TimeBase, Tool::Mlperf) => "from the first scheduled to the last completed query",
        _ => return None,
    })
}

/// Whether the figures that two tools state on a topic are the same thing; else the reason, as a
/// clause.
///
/// # Errors
///
/// Both definitions in words, or that one of the tools has no such figure.
///
/// # Examples
///
/// ```
/// use metrics_core::tool_rules::{Tool, Topic, like_with_like};
///
/// assert!(like_with_like(Tool::Vllm, Tool::Sglang, Topic::Ttft).is_ok());
/// let why = like_with_like(Tool::Vllm, Tool::Sglang, Topic::E2e).unwrap_err();
/// assert_eq!(why, "E2E of vLLM is to the last token, of SGLang to the end of the stream");
/// ```
pub fn like_with_like(a: Tool, b: Tool, topic: Topic) -> std::result::Result<(), String> {
    let title = match topic {
        Topic::Itl => "ITL",
        Topic::E2e => "E2E",
        Topic::TimeBase => "a rate",
        other => other.title().en,
    };
    match (definition(a, topic), definition(b, topic)) {
        _ if a == b => Ok(()),
        (Some(x), Some(y)) if x == y => Ok(()),
        (Some(x), Some(y)) => Err(format!("{title} of {} is {x}, of {} {y}", a.title(), b.title())),
        (x, _) => {
            let without = if x.is_none() { a } else { b };
            Err(format!("{} does not state {title}", without.title()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_as_the_rules_have_it() {
        for tool in Tool::ALL {
            assert_eq!(like_with_like(tool, tool, Topic::Itl), Ok(()));
        }
        // Both end at the last token; the stream of the other ends later.
        assert!(like_with_like(Tool::Vllm, Tool::Aiperf, Topic::E2e).is_ok());
        assert!(like_with_like(Tool::Guidellm, Tool::Aiperf, Topic::E2e).is_err());
        assert!(like_with_like(Tool::Guidellm, Tool::Aiperf, Topic::Tpot).is_err());
        let why = like_with_like(Tool::Vllm, Tool::Llmperf, Topic::Tpot);
        assert_eq!(why, Err("llmperf does not state TPOT".to_owned()));
    }
}
