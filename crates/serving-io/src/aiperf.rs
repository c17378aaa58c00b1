//! Results of AIPerf (`aiperf profile`), the successor of GenAI-Perf.
//!
//! Facts from AIPerf 0.13.0 and from files that it wrote.
//!
//! # The files
//!
//! A run leaves a directory. [`read_path`](crate::read_path) takes the directory: it reads
//! `profile_export.jsonl`, and `profile_export_aiperf.json` beside it for the window and the
//! settings. Each of the three files can be read alone.
//!
//! | file | holds | becomes |
//! |---|---|---|
//! | `profile_export.jsonl` | one JSON object a request | timelines and columns; a [`Run`] for each phase |
//! | `profile_export_aiperf.json` | the tool's figures and its settings | [`Run::stated`], [`Run::counts`], [`Run::declared`], [`Run::duration`] |
//! | `profile_export_aiperf.csv` | two tables with the same figures, rounded to two digits | [`Run::stated`], [`Run::counts`] |
//!
//! With failures some `adj_…` figures have fewer statistics; a run in which every request failed
//! leaves only the first file.
//!
//! # A request
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `metadata.request_start_ns` | Unix time of sending | arrival |
//! | `metadata.credit_issued_ns` | Unix time at which it was due; older versions lack it | column `credit_issued_s`; with the start the column `client_delay_s` |
//! | `metadata.request_ack_ns`, `request_end_ns` | Unix time of the response's head, and of the stream's end | columns `request_ack_s`, `request_end_s` |
//! | `metadata.x_request_id` | the request's name | id |
//! | `metadata.session_num`, `turn_index`, `agent_depth` | which conversation, which turn | columns of these names |
//! | `metadata.conversation_id`, `x_correlation_id`, `root_correlation_id`, `worker_id`, `record_processor_id` | who | columns of these names |
//! | `metadata.phase_name`, `phase_index`, `benchmark_phase` | `warmup` or `profiling`, and its name | warm-up is left out (note `warm-up-left-out`); one [`Run`] for each other phase; [`Declared::label`](crate::run::Declared::label) where there are several |
//! | `metadata.was_cancelled` | the client gave it up | outcome |
//! | `metadata.context_overflow_skip` | it was never sent | left out, and counted in a note |
//! | `metrics.time_to_first_token` | sending to the first chunk with content | TTFT |
//! | `metrics.request_latency` | sending to the last chunk with content: TTFT + the gaps, not the stream's end | E2E |
//! | `metrics.inter_chunk_latency` | gaps between chunks with content | gaps |
//! | `metrics.usage_completion_tokens`, else `output_sequence_length` | output tokens: the server's count, else the client's | output tokens |
//! | `metrics.usage_prompt_tokens`, else `input_sequence_length`, else `error_isl` | tokens of the prompt, likewise | input tokens |
//! | `metrics.NAME`, a number with its unit | as named | column `NAME_UNIT`, for example `request_latency_ms`, `usage_prompt_cache_read_tokens`, `good_request_count` |
//! | `error.code`, `type`, `message` | why it failed | outcome; columns `error_code`, `error_type`, `error` |
//!
//! # What is decided here
//!
//! - **Arrival is the send time**, as for `vllm bench serve`: TTFT and E2E are the tool's. The wait
//!   in the client is in the column `client_delay_s`; the note `client-delay` says if some of it is
//!   above 10 ms.
//! - **Times count from the first instant of the run**, which is Unix time to the nanosecond
//!   ([`Clock::RunStart`](crate::run::Clock::RunStart)).
//! - **Outcome.** Cancelled if the tool says so; else, with an error: HTTP 429 is rejected, 408 and
//!   504 or an error type with `Timeout` is timed out, all else failed. Without: completed.
//! - **A failed request has no TTFT**, even if chunks had come: the file does not keep it.
//! - **Output tokens are the server's count** where it sent one. The client's own, which the tool's
//!   figures use, is in `output_sequence_length_tokens`; the note `token-counts-differ` says in how
//!   many answers they are not the same.
//! - **Gaps** are between chunks, unless every answer has exactly one gap fewer than tokens (note
//!   `gaps-look-per-token`).
//! - **The window** is the phase of the tool, from the JSON file beside: its throughput and goodput
//!   are over it, not over the `benchmark_duration` that it prints, which spans from the first send
//!   to the last end.
//! - **The tool's `inter_token_latency` is TPOT**, and has no value for a one-token answer.

mod records;
mod summary;
mod table;

use std::path::Path;

use crate::detect::{Format, Options, Reader};
use crate::error::Result;
use crate::input::{Head, Input};
use crate::run::Run;

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Aiperf;

impl Reader for Aiperf {
    fn format(&self) -> Format {
        Format::Aiperf
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        is_table(head) || is_summary(head) || is_records(head)
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        if is_table(&input.head) {
            table::read(input)
        } else if is_summary(&input.head) {
            summary::read(input)
        } else {
            records::read(input)
        }
    }
}

fn is_table(head: &Head) -> bool {
    head.first_line().starts_with("Metric,avg,min,max")
}

fn is_summary(head: &Head) -> bool {
    let older = || head.has_key("input_config") && head.has_key("request_throughput");
    head.has_key("aiperf_version") || older()
}

fn is_records(head: &Head) -> bool {
    // A first line that is cut off has one of them still.
    ["metadata.request_start_ns", "metadata.x_request_id"].iter().any(|k| head.has_inner_key(k))
}

/// Takes window, settings and the tool's figures from the summary that lies beside the records.
///
/// # Errors
///
/// As for the summary alone.
pub(crate) fn complete(runs: &mut [Run], summary: &Path) -> Result<()> {
    summary::complete(runs, summary)
}

/// The end of the name of a value in the tool's unit; `None` for a unit that is not known.
fn suffix(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "ns" | "nanoseconds" => "ns",
        "us" | "microseconds" => "us",
        "ms" | "milliseconds" => "ms",
        "s" | "sec" | "seconds" => "s",
        "tokens" | "token" => "tokens",
        "requests/sec" => "requests_per_s",
        "tokens/sec" => "tokens_per_s",
        "tokens/sec/user" => "tokens_per_s_per_user",
        "%" => "pct",
        "KB" => "kb",
        "MB" => "mb",
        "GB" => "gb",
        "bytes" | "B" => "bytes",
        "W" => "w",
        // Pure numbers.
        "requests" | "count" | "ratio" | "" => "",
        _ => return None,
    })
}

/// A name with its unit at the end, unless it ends so already.
fn with_unit(name: &str, unit: &str) -> String {
    let end = suffix(unit).map_or_else(|| snake(unit), str::to_owned);
    if end.is_empty() || name.ends_with(&format!("_{end}")) {
        return name.to_owned();
    }
    format!("{name}_{end}")
}

/// Words in lower case with underscores between them.
fn snake(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

/// How many of a unit of time make a second.
fn per_second(unit: &str) -> Option<f64> {
    // Division keeps the decimal digits that a multiplication by 0.001 would lose.
    match suffix(unit)? {
        "ns" => Some(1e9),
        "us" => Some(1e6),
        "ms" => Some(1e3),
        "s" => Some(1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_unit_once() {
        assert_eq!(with_unit("request_latency", "ms"), "request_latency_ms");
        assert_eq!(with_unit("usage_prompt_tokens", "tokens"), "usage_prompt_tokens");
        assert_eq!(with_unit("osl_mismatch_diff_pct", "%"), "osl_mismatch_diff_pct");
        assert_eq!(with_unit("good_request_count", "requests"), "good_request_count");
        assert_eq!(with_unit("power", "mega joules"), "power_mega_joules");
    }
}
