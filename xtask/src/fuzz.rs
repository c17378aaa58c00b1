//! `cargo xtask fuzz`: every target of `fuzz/` in turn, one line each.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::repo;

/// Arguments of `fuzz`.
#[derive(clap::Args)]
pub struct FuzzArguments {
    /// Seconds of each target
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Targets; all of them if none is named
    pub targets: Vec<String>,
}

/// Where inputs to start from lie, by the targets that read them.
const SEEDS: &[(&str, &[&str])] = &[
    ("crates/serving-io/tests/data", &["detect", "formats", "prometheus", "traces"]),
    ("docs/examples", &["detect", "formats", "traces"]),
    ("scenarios", &["traces"]),
    ("fuzz/seeds/formula", &["formula"]),
    ("fuzz/seeds/slo", &["slo"]),
];

/// The largest file that is a seed: the fuzzer mutates small ones far more often.
const LARGEST_SEED: u64 = 80_000;

/// Runs the targets, and fails if one found something.
pub fn run(root: &Path, arguments: &FuzzArguments) -> Result<()> {
    let all = targets(root)?;
    let mut chosen = arguments.targets.clone();
    if chosen.is_empty() {
        chosen.clone_from(&all);
    }
    for target in &chosen {
        if !all.contains(target) {
            bail!("`{target}` is no fuzz target; there are {}", all.join(", "));
        }
    }
    let mut found = Vec::new();
    for target in &chosen {
        let corpus = root.join("fuzz/corpus").join(target);
        let seeds = seed(root, target, &corpus)?;
        #[expect(clippy::disallowed_methods, reason = "the line says how long a target ran")]
        let start = Instant::now();
        let output = cargo_fuzz(root, target, arguments.seconds)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let seconds = start.elapsed().as_secs();
        match (output.status.success(), summary(&said)) {
            (true, Some(s)) => println!("{target}: nothing found; {s}, {seeds} seeds"),
            (true, None) => {
                bail!("{target}: ran for {seconds} s without saying how often:\n{said}")
            }
            (false, _) => {
                println!("{target}: FOUND something after {seconds} s");
                let tail: Vec<&str> = said.lines().rev().take(40).collect();
                for line in tail.into_iter().rev() {
                    println!("  {line}");
                }
                found.push(target.clone());
            }
        }
    }
    if !found.is_empty() {
        bail!("found something: {}; the inputs are in fuzz/artifacts", found.join(", "));
    }
    Ok(())
}

/// The names of the targets in `fuzz/Cargo.toml`.
fn targets(root: &Path) -> Result<Vec<String>> {
    let manifest: toml::Table = repo::read(root, "fuzz/Cargo.toml")?.parse()?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array).context("no [[bin]]")?;
    let name = |bin: &toml::Value| Some(bin.get("name")?.as_str()?.to_owned());
    Ok(bins.iter().filter_map(name).collect())
}

/// Copies the small files that the tests read into the corpus; how many.
fn seed(root: &Path, target: &str, corpus: &Path) -> Result<usize> {
    std::fs::create_dir_all(corpus).with_context(|| corpus.display().to_string())?;
    let mut n = 0;
    for (folder, _) in SEEDS.iter().filter(|(_, targets)| targets.contains(&target)) {
        for file in files(&root.join(folder))? {
            if LARGEST_SEED < std::fs::metadata(&file)?.len() {
                continue;
            }
            let mut bytes = std::fs::read(&file)?;
            if target == "formats" {
                // Its first byte chooses the format.
                bytes.insert(0, u8::try_from(n % 251).unwrap_or(0));
            }
            std::fs::write(corpus.join(format!("seed-{n}")), bytes)?;
            n += 1;
        }
    }
    Ok(n)
}

/// Every file below a folder, in order.
fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

fn cargo_fuzz(root: &Path, target: &str, seconds: u64) -> Result<std::process::Output> {
    let time = format!("-max_total_time={seconds}");
    Command::new("cargo")
        .args(["fuzz", "run", "--sanitizer", "none", target, "--", &time])
        .args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-max_len=65536"])
        // The pinned toolchain is stable, and coverage is asked of the compiler as nightly's is.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root)
        .output()
        .context("cannot run `cargo fuzz`: install it with `cargo install cargo-fuzz`")
}

/// `120000 runs in 31 second(s), 4567 edges` from what libFuzzer prints last.
fn summary(said: &str) -> Option<String> {
    let done = said.lines().rev().find(|l| l.starts_with("Done "))?;
    let done = done.trim_start_matches("Done ").replace("second(s)", "s");
    let edges = said.lines().rev().find_map(|l| l.split_once(" cov: ")?.1.split(' ').next());
    Some(match edges {
        Some(edges) => format!("{done}, {edges} edges"),
        None => done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_file_and_seeds_or_is_made_of_values() {
        let root = repo::root();
        let all = targets(&root).unwrap();
        assert!(6 <= all.len(), "{all:?}");
        for target in &all {
            assert!(root.join(format!("fuzz/fuzz_targets/{target}.rs")).exists(), "{target}");
            let seeded = SEEDS.iter().any(|(_, targets)| targets.contains(&target.as_str()));
            assert!(
                seeded || ["rows", "queueing", "engine"].contains(&target.as_str()),
                "{target}"
            );
        }
        for (folder, targets) in SEEDS {
            assert!(!files(&root.join(folder)).unwrap().is_empty(), "{folder}");
            assert!(targets.iter().all(|t| all.iter().any(|a| a == t)), "{targets:?}");
        }
    }

    #[test]
    fn the_line_of_a_target_says_how_often_it_ran() {
        let said = "#2 INITED cov: 10 ft: 12\n#9 NEW    cov: 1234 ft: 9 corp: 5\nDone 51234 runs in 31 second(s)\n";
        assert_eq!(summary(said).unwrap(), "51234 runs in 31 s, 1234 edges");
        assert_eq!(summary("error: no nightly"), None);
    }
}
