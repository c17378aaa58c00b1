//! A package outside this workspace needs `metrics-core` alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// Twelve lines that a user would write.
const MAIN: &str = r#"use metrics_core::{RequestTimeline, Seconds, goodput::goodput};

fn main() -> Result<(), metrics_core::Error> {
    let log = [
        RequestTimeline::completed("a", 0.0, 0.3, 0.9, 7)?,
        RequestTimeline::completed("b", 0.0, 0.8, 1.6, 5)?,
    ];
    let metrics: Vec<_> = log.iter().filter_map(|t| t.metrics()).collect();
    let good = goodput(&metrics, Seconds::new(2.0)?, &"ttft<500ms,tpot<120ms".parse()?)?;
    println!("goodput {} req/s", good.get());
    Ok(())
}
"#;

/// By hand: one of two requests meets the limits, in 2 s: 0.5 req/s.
#[test]
fn an_outside_package_computes_goodput_in_twelve_lines() {
    assert_eq!(MAIN.lines().count(), 12);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    std::fs::create_dir_all(package.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nmetrics-core = {{ path = {here:?} }}\n"
    );
    std::fs::write(package.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(package.join("src/main.rs"), MAIN).unwrap();
    // The same versions as the workspace, which are already on this machine.
    std::fs::copy(here.join("../../Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(package.join("target"))
        .current_dir(&package)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "goodput 0.5 req/s\n");
}
