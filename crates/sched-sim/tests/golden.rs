//! Every decision of vLLM 0.33.0's own scheduler on the recorded workloads, repeated.

#![allow(missing_docs, reason = "a test")]

// The one reader of the format; the chore that uses it is `cargo xtask conformance`.
#[path = "../../../xtask/src/conformance.rs"]
mod conformance;

use std::path::Path;

fn traces() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vllm-v1"))
}

#[test]
fn every_recorded_step_of_vllm_is_repeated() {
    let tally = conformance::run(traces()).unwrap();

    assert_eq!(tally.report(), "matched 456 of 456");
}

/// A comparison that looks at nothing would pass too: each changed figure has to be found.
#[test]
fn a_changed_trace_is_found_at_its_step() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changed-trace");
    std::fs::create_dir_all(&dir).unwrap();
    let name = "s01-single-sync";
    let copy = |file: &str| std::fs::read_to_string(traces().join(file)).unwrap();
    let workload = copy(&format!("{name}.workload.json"));
    let trace = copy(&format!("{name}.trace.jsonl"));
    std::fs::write(dir.join(format!("{name}.workload.json")), workload).unwrap();

    let changes = [
        (r#""fb2":98"#, r#""fb2":97"#, "fb2"),
        (r#""s":[[0,20,0,1]]"#, r#""s":[[0,19,0,1]]"#, "s"),
        (r#""b":[[1,2]]"#, r#""b":[[2,1]]"#, "b"),
        (r#""add":[0],"#, "", "add"),
        (r#""f":[0],"#, "", "f"),
        (r#""tokens":25"#, r#""tokens":26"#, "tokens"),
        (r#""length",0,6"#, r#""length",0,7"#, "req"),
        (r#""num_blocks":101"#, r#""num_blocks":102"#, "config"),
    ];
    for (from, to, key) in changes {
        assert!(trace.contains(from), "{from}\n{trace}");
        std::fs::write(dir.join(format!("{name}.trace.jsonl")), trace.replacen(from, to, 1))
            .unwrap();

        let report = conformance::run(&dir).unwrap().report();

        assert!(report.starts_with(&format!("{name}: ")), "{report}");
        assert!(report.contains(&format!("`{key}`: expected ")), "{report}");
        assert!(report.ends_with("\nmatched 0 of 1"), "{report}");
    }
}
