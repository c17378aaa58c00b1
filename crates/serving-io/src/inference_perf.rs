//! Results of inference-perf.
//!
//! Facts from inference-perf 0.7.0 and from files that it and version 0.2 wrote.
//!
//! # The files
//!
//! A run leaves a directory. [`read_path`](crate::read_path) takes the directory: it prefers the
//! requests, and splits them into the stages that the stage files describe.
//!
//! | file | holds | becomes |
//! |---|---|---|
//! | `per_request_lifecycle_metrics.json` | one JSON array, a request each, of all stages | timelines and columns |
//! | `stage_N_lifecycle_metrics.json` | the figures of one stage | [`Run::stated`], [`Run::counts`], [`Run::duration`] |
//! | `summary_lifecycle_metrics.json` | the figures of all stages together | the same |
//! | `stage_N_prometheus_metrics.json` | figures of the server's metrics over the same stage | stated; note `from-server-metrics` |
//!
//! # A request
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `start_time`, `end_time` | sending, and the end of the stream, on the client's monotonic clock | arrival; columns `request_end_s` (on the same clock), `request_latency_s` |
//! | `info.response_metrics.output_token_times` (`info.output_token_times` before) | a stamp for each token of each chunk, each chunk tokenized again | TTFT, E2E; column `token_stamps` |
//! | `info.response_metrics.chunk_times` | a stamp for each chunk; older versions lack it | gaps |
//! | `info.response_metrics.server_usage` | the server's counts | tokens; columns `server_output_tokens`, `server_prompt_tokens`, `cached_tokens` |
//! | `info.response_metrics.output_tokens` (`info.output_tokens`) | the text tokenized again by the client | tokens where the server sent no count; column `retokenized_output_tokens` |
//! | `info.input_tokens` | tokens of the prompt by the client | tokens where the server sent no count; column `client_prompt_tokens` |
//! | `info.lora_adapter` | as named | column |
//! | `error.error_type`, `error.error_msg` | why it failed | outcome; columns `error_type`, `error` |
//! | `request`, `response`, `response_chunks` | text | not read |
//!
//! # A stage or summary
//!
//! Every number becomes a stated figure under its keys, without `successes` and `latency`, and
//! with its unit: `successes.latency.time_to_first_token.p99` is `time_to_first_token_p99_s`,
//! `failures.request_latency.mean` is `failures_request_latency_mean_s`.
//! `benchmark_time_seconds` is the window, `load_summary.requested_rate` the rate, and
//! `load_summary.concurrency` the concurrency, where the rate says nothing.
//!
//! # What is decided here
//!
//! - **Arrival is the send time.** When each request was due is not in the file; the stage file has
//!   the distribution of `schedule_delay`.
//! - **E2E ends with the last token**, not with the stream (column `request_latency_s`).
//! - **Outcome.** An error of type `HTTP Error 429` is rejected, 408, 504 or one with `Timeout` is
//!   timed out, one with `Cancel` is cancelled, all else failed. The tool keeps no times of those.
//! - **Stages** of the requests are not in the file. With the stage files beside it, the requests in
//!   time order are cut by the stages' counts, and that is believed only if successes, failures and
//!   the length of each stage are those of its file; else all stay one run (note
//!   `stages-not-matched`).
//! - **Halved figures.** Versions up to 0.2 tokenize each chunk with a start token, so that there
//!   are twice as many stamps as tokens, and TPOT and ITL are half the truth. In requests this is
//!   seen by the stamps and undone (note `stamps-doubled`); in a summary by its own means, and said
//!   (note `tpot-halved`).
//! - **Gaps** are between chunks, unless every answer has exactly one gap fewer than tokens.
//! - **A one-token answer** has a TTFT here; the tool gives it neither TTFT nor TPOT, and leaves it
//!   out of both distributions.
//! - **Its load of type `constant`** has gaps like a Poisson process: no burstiness is taken.

mod requests;
mod summary;

use std::path::PathBuf;

use crate::detect::{Format, Options, Reader};
use crate::error::Result;
use crate::input::{Head, Input};
use crate::run::Run;

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct InferencePerf;

impl Reader for InferencePerf {
    fn format(&self) -> Format {
        Format::InferencePerf
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        if head.is_json_object() {
            return ["load_summary", "successes", "failures"].iter().all(|k| head.has_key(k));
        }
        is_requests(head)
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        if input.head.is_json_object() { summary::read(input) } else { requests::read(input) }
    }
}

/// A list whose first element is a request.
fn is_requests(head: &Head) -> bool {
    let has = |key: &str| head.has_element_key(key);
    has("start_time") && has("end_time") && (has("request") || has("info"))
}

/// The requests of a directory, as one run a stage where the stage files tell which is which.
///
/// # Errors
///
/// As for each of the files alone.
pub(crate) fn read_stages(requests: Input, stages: &[(u64, PathBuf)]) -> Result<Vec<Run>> {
    requests::read_stages(requests, stages)
}

/// The figures of the stages of a directory without requests.
///
/// # Errors
///
/// As for each of the files alone.
pub(crate) fn read_stage_files(stages: &[(u64, PathBuf)]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for (number, path) in stages {
        let mut run = summary::read_one(path)?;
        run.declared.label = Some(format!("stage {number}"));
        runs.push(run);
    }
    Ok(runs)
}
