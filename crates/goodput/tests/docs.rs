//! Every command shown in the book prints what the book says.
//!
//! `UPDATE_DOCS=1 cargo test -p goodput --test docs` writes the outputs anew; the diff is for
//! reading, and `cargo xtask translated` stamps the Chinese pages afterwards.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "it is a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "```console\n";
const END: &str = "```";

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page under `folder`.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// A folder with the files that the pages name.
fn folder_of_examples() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for from in [
        "docs/examples",
        "scenarios",
        "crates/serving-io/tests/data/vllm-0.33.0",
        "crates/serving-io/tests/data/prometheus",
    ] {
        for entry in std::fs::read_dir(root().join(from)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let run = "rate15-fail";
    let from = root().join("crates/serving-io/tests/data/aiperf-0.13.0").join(run);
    std::fs::create_dir(dir.path().join(run)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(run).join(path.file_name().unwrap())).unwrap();
    }
    dir
}

/// What `command` prints in `dir`, errors first.
fn output_of(command: &str, dir: &Path) -> String {
    let tool_folder = Path::new(env!("CARGO_BIN_EXE_goodput")).parent().unwrap();
    let path = format!("{}:{}", tool_folder.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", command])
        .env("PATH", path)
        .current_dir(dir)
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap()
}

/// Whether the tools beside ours that `command` pipes into are on this machine.
fn can_run(command: &str) -> bool {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    !command.contains("| jq") || has("jq")
}

/// A block with the outputs of its commands as they are now.
fn rerun(block: &str, dir: &Path, commands: &mut usize) -> String {
    let mut text = String::new();
    for part in format!("\n{block}").split("\n$ ").skip(1) {
        let (command, shown) = part.split_once('\n').unwrap_or((part, ""));
        let ours = command.starts_with("goodput ") && can_run(command);
        if !ours {
            println!("skipped, not ours or its tools are absent: {command}");
        }
        // A command shown without output is for the reader to run.
        let now = if ours && !shown.is_empty() {
            *commands += 1;
            output_of(command, dir)
        } else {
            shown.to_owned()
        };
        text.push_str(&format!("$ {command}\n"));
        let now = now.trim_end_matches('\n');
        if !now.is_empty() {
            text.push_str(&format!("{now}\n"));
        }
    }
    text
}

#[test]
fn commands_in_the_book_print_what_it_shows() {
    let dir = folder_of_examples();
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let mut commands = 0;
    let mut stale = Vec::new();
    for page in found {
        let old = std::fs::read_to_string(&page).unwrap();
        let mut new = String::new();
        let mut rest = old.as_str();
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (block, tail) = after.split_once(END).unwrap();
            new.push_str(before);
            new.push_str(BEGIN);
            new.push_str(&rerun(block, dir.path(), &mut commands));
            new.push_str(END);
            rest = tail;
        }
        new.push_str(rest);
        if new != old {
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&page, &new).unwrap();
            }
            let line = old.lines().zip(new.lines()).position(|(a, b)| a != b).unwrap_or(0) + 1;
            let shows = old.lines().nth(line - 1).unwrap_or_default();
            let prints = new.lines().nth(line - 1).unwrap_or_default();
            stale.push(format!("{}:{line}\n  shows  {shows}\n  prints {prints}", page.display()));
        }
    }
    assert!(
        stale.is_empty(),
        "pages are stale: run `UPDATE_DOCS=1 cargo test -p goodput --test docs`, read the diff, \
         then `cargo xtask translated` each Chinese page\n{}",
        stale.join("\n")
    );
    assert!(60 <= commands, "only {commands} commands were found in the book");
}

/// The guide quotes pieces of one report; each must still be a piece of it.
#[test]
fn pieces_quoted_in_the_guide_are_in_the_report() {
    let dir = folder_of_examples();
    let report =
        output_of("goodput report rate20-fail.json --slo 'ttft<150ms,tpot<15ms'", dir.path());
    let mut pieces = 0;
    for language in ["en", "zh"] {
        let page = root().join(format!("docs/{language}/guides/read-a-report.md"));
        let text = std::fs::read_to_string(page).unwrap();
        for block in text.split("```text\n").skip(1) {
            let (piece, _) = block.split_once(END).unwrap();
            assert!(report.contains(piece), "{language}: not in the report any more:\n{piece}");
            pieces += 1;
        }
    }
    assert!(4 <= pieces, "only {pieces} pieces were found");
}
