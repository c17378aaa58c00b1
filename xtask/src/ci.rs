//! `cargo xtask ci`: what continuous integration runs, in the order of the fastest answer.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{docs, repo, snapshots, tidy};

/// Runs everything up to the first failure.
pub fn run(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    repo::settle(&tidy::check(root)?, "the tree is tidy")?;
    repo::settle(&snapshots::check(root)?, "snapshots are settled")?;
    repo::settle(&docs::check(root)?, "docs are fresh")?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo(root, &clippy, &[])?;
    for package in repo::packages(root)? {
        let name = package.rsplit('/').next().unwrap_or(&package);
        cargo(root, &["check", "-p", name], &[])?;
        let manifest: toml::Table = repo::read(root, &format!("{package}/Cargo.toml"))?.parse()?;
        if manifest.contains_key("features") {
            cargo(root, &["check", "-p", name, "--no-default-features"], &[])?;
        }
    }
    // A test that would write a snapshot fails instead.
    cargo(root, &["test", "--workspace"], &[("INSTA_UPDATE", "no")])?;
    cargo(root, &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    println!("all checks passed");
    Ok(())
}

/// The long comparisons with queueing theory, and what each of them found.
pub fn theory(root: &Path) -> Result<()> {
    let test = ["test", "--release", "-p", "sched-sim", "--test", "theory"];
    let long = ["--", "--ignored", "--nocapture"];
    cargo(root, &[test.as_slice(), &long].concat(), &[])
}

/// Runs one cargo command, and says which one failed.
fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let set: Vec<String> = environment.iter().map(|(k, v)| format!("{k}={v:?} ")).collect();
    let shown = format!("{}cargo {}", set.concat(), arguments.join(" "));
    println!("$ {shown}");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("failed: `{shown}`");
    }
    Ok(())
}
