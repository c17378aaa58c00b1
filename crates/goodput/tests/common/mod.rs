//! What several tests of the program share.

use std::path::Path;
use std::process::Command;

/// What it prints in a directory, with its exit code if that is not 0.
pub fn run_in<'a>(dir: &Path, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
    let output = command.args(arguments).current_dir(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => text + &said,
        code => format!("{text}{said}exit {}\n", code.unwrap()),
    }
}

/// The same for `sim`, with its arguments in one text.
pub fn sim_in(dir: &Path, arguments: &str) -> String {
    run_in(dir, std::iter::once("sim").chain(arguments.split_whitespace()))
}
