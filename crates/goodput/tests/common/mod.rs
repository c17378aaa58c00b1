//! What several tests of the program share.
#![allow(dead_code, reason = "each of them uses a part")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

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

/// What `sim` prints.
pub fn sim(arguments: &str) -> String {
    sim_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

/// What a text says as data.
pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What `sim` prints as data.
pub fn json(arguments: &str) -> Value {
    parsed(&sim(&format!("{arguments} --format json")))
}
