//! The command line tool: arguments, rendering, exit codes; no formulas.
//!
//! It is a library so that the documentation can show what the tool prints without starting it.

mod check;
mod cli;
mod cost;
mod diagnose;
mod diff;
mod explain;
mod fit;
mod gate;
mod kv;
mod output;
mod plan;
mod queue;
mod report;
mod sim;
mod trace;
mod tune;

use std::ffi::OsString;

use clap::Parser;

pub use cli::{CLOSED_PIPE, USAGE};

/// What a call of the tool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
    /// Exit code: 0 fine, 1 a target missed or a regression, 2 a wrong command line or an input that
    /// cannot be read, 3 indeterminate or a run that is not valid.
    pub code: u8,
}

/// Runs the tool with these arguments, the first of which is its own name.
///
/// Reads the files that the arguments name, standard input for `-`, and writes the file of `-o`.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Answer {
    let cli = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render().to_string();
            let code = u8::try_from(error.exit_code()).unwrap_or(cli::USAGE);
            return if error.use_stderr() {
                Answer { out: String::new(), err: text, code }
            } else {
                Answer { out: text, err: String::new(), code }
            };
        }
    };
    match cli.run() {
        Ok((out, code)) => Answer { out, err: String::new(), code },
        Err(error) if is_closed_pipe(&error) => {
            Answer { out: String::new(), err: String::new(), code: cli::CLOSED_PIPE }
        }
        // The alternate form joins the causes, outermost first, in one line.
        Err(error) => {
            Answer { out: String::new(), err: format!("goodput: {error:#}\n"), code: cli::USAGE }
        }
    }
}

/// Whether a file could not be written because it is a pipe whose reader is gone, `/dev/stdout` for one.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let system = cause.downcast_ref::<std::io::Error>();
        system.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
