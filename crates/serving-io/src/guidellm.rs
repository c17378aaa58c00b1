//! Results of GuideLLM (`guidellm run`, `guidellm benchmark`).
//!
//! Facts from GuideLLM 0.8.1 and from files that it wrote.
//!
//! # The files
//!
//! | file | holds | becomes |
//! |---|---|---|
//! | `….json` | `benchmarks`: one for each rate or concurrency, with its requests | a [`Run`] each |
//! | `….csv` | three header lines, then one row a benchmark, figures only | a [`Run`] each, without requests |
//!
//! # A benchmark
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `requests.successful`, `.errored`, `.incomplete` | requests by how they ended; `incomplete` were in flight when the run ended | completed, failed, cut off |
//! | `duration` | from the first send to the last end, without warm-up and cool-down | [`Run::duration`](crate::Run::duration) |
//! | `config.strategy` | rate, or number of streams | [`Declared`](crate::run::Declared), label `poisson@12` |
//! | `config.slo`, `warmup`, `cooldown`, `run_id`, `scheduler_metrics` times | settings, and the window as Unix time | metadata |
//! | `metrics`, `scheduler_metrics` | the tool's figures | stated, `time_to_first_token_ms.successful.mean` as `time_to_first_token_successful_mean_ms`; the share `slo_attainment` and others without a unit as they are |
//! | `warnings` | what the tool itself doubts | note `tool-warning` |
//!
//! # A request
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `info.timings.request_start` | Unix time of sending | arrival |
//! | `info.timings.targeted_start` | when it was due | column `targeted_start_s`; with the start the column `client_delay_s` |
//! | `info.timings.first_token_iteration`, `last_token_iteration` | first and last chunk that carries a token | TTFT, E2E |
//! | `info.timings.request_end` | the stream was closed, after the last token | column `request_end_s` |
//! | `info.timings.NAME`, other stamps | as named | columns `NAME_s` |
//! | `info.timings.request_iterations`, `token_iterations` | chunks, and chunks with a token | columns |
//! | `prompt_tokens`, `output_tokens` | the server's counts, else the client's | token counts; columns |
//! | `cached_tokens`, `total_tokens` | as named | columns |
//! | `request_latency` | to the end of the stream, in s | column `request_latency_s` |
//! | `time_per_output_token_ms` | (last token − start) / N: holds TTFT | column |
//! | `inter_token_latency_ms` | (last − first) / (N − 1): our TPOT | column; the tool weighs it by N − 1 |
//! | other keys with a number | as named; those of times without a unit are seconds | columns, `request_dispatch_delay_s` |
//! | `info.conversation_id`, `turn_index`, `scheduler_process_id`, `info.error` | as named | columns; `error` |
//!
//! # What is decided here
//!
//! - **Arrival is the send time**, as for `vllm bench serve`; the wait before is in
//!   `client_delay_s` (note `client-delay`).
//! - **E2E ends with the last token**, not with the stream: the tool's own latency is in
//!   `request_latency_s`.
//! - **TTFT is to the first chunk with a token.** A chunk with a role only comes earlier
//!   (`first_request_iteration_s`).
//! - **A failed request** keeps its TTFT if a token had come; its E2E is unknown, and its tokens
//!   are: the tool counts chunks there (column `output_tokens`).
//! - **A warm-up or cool-down** leaves requests out of the tool's figures but not out of the file:
//!   the note `warmup-in-file` says so, and no duration is taken.
//! - **A sample of requests** (`sample_size`) has no rates: the note `requests-sampled` says so.
//! - **Gaps** are not in the file, only their mean per request.

mod document;
mod table;

use crate::detect::{Format, Options, Reader};
use crate::error::Result;
use crate::input::{Head, Input};
use crate::run::Run;

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Guidellm;

impl Reader for Guidellm {
    fn format(&self) -> Format {
        Format::Guidellm
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        is_table(head) || head.has_inner_key("metadata.guidellm_version")
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        if is_table(&input.head) { table::read(input) } else { document::read(input) }
    }
}

fn is_table(head: &Head) -> bool {
    head.first_line().starts_with("Run Info,Run Info,")
}

/// A figure's name with its unit at the end: `time_to_first_token_ms_mean` has it in the middle,
/// times without one are seconds.
fn with_unit(name: &str) -> String {
    const TIMES: [&str; 5] = ["latency", "delay", "duration", "queued_time", "resolve_time"];
    if let Some((front, rest)) = name.split_once("_ms_") {
        return format!("{front}_{rest}_ms");
    }
    let is_time = TIMES.iter().any(|t| name.contains(t)) || name.starts_with("request_time_avg");
    if is_time && !name.ends_with("_count") && !name.ends_with("_ms") {
        return format!("{name}_s");
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::with_unit;

    #[test]
    fn a_unit_stands_at_the_end() {
        for (from, to) in [
            ("time_to_first_token_ms_successful_mean", "time_to_first_token_successful_mean_ms"),
            ("request_latency_successful_p50", "request_latency_successful_p50_s"),
            ("request_latency_successful_count", "request_latency_successful_count"),
            ("requests_per_second_total_mean", "requests_per_second_total_mean"),
            ("inter_token_latency_ms", "inter_token_latency_ms"),
        ] {
            assert_eq!(with_unit(from), to);
        }
    }
}
