//! Readers of what LLM benchmark clients, servers and simulators write.
//!
//! Every reader makes [`Run`]s of [checked timelines](metrics_core::RequestTimeline), so that one
//! code path computes metrics for all of them. A reader computes no metric. What a file cannot
//! give is said ([`Run::missing`]), what had to be decided is said ([`Run::notes`]), and what is
//! wrong is an [`IoError`] of one line with file, row, key, value, and what would be right.
//!
//! ```
//! use serving_io::{Format, Options, read};
//!
//! let log = r#"{"id": "a", "arrival_s": 0, "first_token_s": 0.4, "last_token_s": 1.0, "output_tokens": 4}"#;
//! let file = read("log.jsonl", log.as_bytes(), &Options::default())?;
//! assert_eq!(file.format, Format::Timeline);
//! assert_eq!(file.runs[0].timelines[0].ttft().map(|t| t.get()), Some(0.4));
//! # Ok::<(), serving_io::IoError>(())
//! ```
//!
//! - [`detect`]: the way in, and how a format is told
//! - [`vllm`]: results of `vllm bench serve`
//! - [`sglang`]: results of `sglang.bench_serving`
//! - [`aiperf`]: results of AIPerf
//! - [`guidellm`]: results of GuideLLM
//! - [`inference_perf`]: results of inference-perf
//! - [`llmperf`], [`mlperf`], [`llm_pilot`]: results of these tools; [`tables`]: CSV of known layouts
//! - [`timeline`]: our own timelines, read and written
//! - [`generic`]: any CSV or JSON lines, with a [column map](columns)
//! - [`prometheus`]: an engine's `/metrics`
//! - [`trace`]: what arrived, as a workload of the simulator
//! - [`lengths`]: laws of lengths, from a text or a file
//! - [`scenario`]: workload, settings and what is compared; [`preset`]: fitted step times,
//!   [`fitted`]: those of the user
//! - [`machine`]: models, from their names or their `config.json`, and GPUs; [`roofline`]: step times from them

pub mod aiperf;
mod arrays;
pub mod artifacts;
pub mod chrome_trace;
pub mod columns;
mod config;
mod csv_table;
mod decimal;
pub mod detect;
mod document;
pub mod engine;
pub mod error;
pub mod evidence;
pub mod fitted;
pub mod generic;
mod grid;
pub mod guidellm;
pub mod inference_perf;
pub mod input;
mod json;
pub mod lengths;
pub mod llm_pilot;
pub mod llmperf;
pub mod machine;
pub mod mlperf;
mod node;
pub mod parquet_table;
pub mod partial;
pub mod policy;
pub mod preset;
pub mod prometheus;
pub mod roofline;
mod rows;
pub mod run;
pub mod scenario;
pub mod series;
pub mod servers;
pub mod sglang;
pub mod simulation;
pub mod stated;
pub mod tables;
pub mod timeline;
pub mod trace;
pub mod vllm;

pub use columns::ColumnMap;
pub use detect::{Format, Options, ReadFile, Reader, read, read_path, stream};
pub use error::{IoError, Place};
pub use json::json_value;
pub use rows::{Sink, Stream};
pub use run::{Note, Run};
