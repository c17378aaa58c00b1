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
//! - [`timeline`]: our own timelines, read and written
//! - [`generic`]: any CSV or JSON lines, with a [column map](columns)
//! - [`trace`]: what arrived, as a workload of the simulator
//! - [`scenario`]: workload, settings and what is compared; [`preset`]: fitted step times

pub mod columns;
mod config;
mod csv_table;
mod decimal;
pub mod detect;
pub mod error;
pub mod generic;
pub mod input;
mod json;
pub mod partial;
pub mod preset;
mod rows;
pub mod run;
pub mod scenario;
pub mod simulation;
pub mod timeline;
pub mod trace;
pub mod vllm;

pub use columns::ColumnMap;
pub use detect::{Format, Options, ReadFile, Reader, open, read, read_path, stream};
pub use error::{IoError, Place};
pub use rows::{Sink, Stream};
pub use run::{Note, Run};
