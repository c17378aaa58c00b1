//! The command `goodput`: prints what [`goodput::run`] answers.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let answer = goodput::run(std::env::args_os());
    let mut out = std::io::stdout().lock();
    let written = out.write_all(answer.out.as_bytes()).and_then(|()| out.flush());
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(answer.err.as_bytes());
    match written {
        // A reader that went away, as `head` does, is no fault of ours, and nobody is left to tell;
        // but what was to be read was not.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => ExitCode::from(goodput::CLOSED_PIPE),
        Err(e) => {
            let _ = writeln!(err, "goodput: cannot write standard output: {e}");
            ExitCode::from(goodput::USAGE)
        }
        Ok(()) => ExitCode::from(answer.code),
    }
}
