//! The command `goodput`: prints what [`goodput::run`] answers.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let answer = goodput::run(std::env::args_os());
    // A reader that went away, as `head` does, is no fault of ours; nobody else is left to tell.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(answer.out.as_bytes()).and_then(|()| out.flush());
    let _ = std::io::stderr().lock().write_all(answer.err.as_bytes());
    ExitCode::from(answer.code)
}
