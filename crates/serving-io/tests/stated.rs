//! Every tool's summary, without its requests, has the figures that the verdict reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::validity::{Verdict, findings};
use serving_io::evidence::facts;
use serving_io::stated::{Of, Statistic, figures};
use serving_io::{Options, read_path};

fn data() -> PathBuf {
    std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// File, TTFT p99 in ms and E2E mean in ms as the file prints them, requests a second, verdict.
const SUMMARIES: &[(&str, f64, f64, f64, &str)] = &[
    (
        "aiperf-0.13.0/closed-c8/profile_export_aiperf.json",
        169.726,
        397.269,
        18.2969,
        "usable for TTFT, TPOT, ITL and E2E, not for throughput (W02), not for p90, p95 and p99 (W10)",
    ),
    (
        "aiperf-0.13.0/closed-c8/profile_export_aiperf.csv",
        169.73,
        397.27,
        18.30,
        "usable for throughput, TTFT, TPOT, ITL and E2E, not for p90, p95 and p99 (W10)",
    ),
    (
        "guidellm-0.8.1/conc.csv",
        49.84,
        222.87,
        8.59,
        "usable for throughput, TTFT, TPOT and E2E, not for p90, p95 and p99 (W10)",
    ),
    (
        "llmperf-f1d6bed/conc4-fail/mock-model_300_20_summary.json",
        54.92,
        170.439,
        2.166,
        "usable for throughput, TTFT and E2E, not for p90, p95 and p99 (W10)",
    ),
];

#[test]
fn a_summary_alone_gets_its_verdict() {
    let samples = data().join("samples");
    if !samples.exists() {
        let mut err = std::io::stderr();
        let _ = writeln!(err, "skipped: no {} (set GOODPUT_DATA)", samples.display());
        return;
    }
    for (name, ttft_p99_ms, e2e_mean_ms, requests_per_s, expected) in SUMMARIES {
        let file = read_path(&samples.join(name), &Options::default()).unwrap();
        let run = file.runs.first().unwrap();
        assert!(!run.has_requests(), "{name}");
        let facts = facts(run, &RequestTable::of(&run.timelines), &SloSet::none(), None);
        let near = |found: Option<f64>, printed: f64| {
            found.is_some_and(|x| (x - printed).abs() < 0.005 * printed)
        };
        assert!(near(facts.ttft.p99.map(|x| x * 1e3), *ttft_p99_ms), "{name}: {:?}", facts.ttft);
        assert!(near(facts.e2e.mean.map(|x| x * 1e3), *e2e_mean_ms), "{name}: {:?}", facts.e2e);
        let rate = figures(run).iter().find(|f| f.of == Of::Requests).map(|f| f.value);
        assert!(near(rate, *requests_per_s), "{name}: {rate:?}");
        let verdict = Verdict::of(&findings(&facts), &facts.subjects());
        assert_eq!(verdict.to_string(), *expected, "{name}");
    }
}

/// loadgen writes nanoseconds: 99.00 percentile first token latency 2.1 s, mean time to output token
/// 72 ms.
#[test]
fn nanoseconds_of_loadgen_are_read() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mlperf/mlperf_log_summary.txt");
    let file = read_path(&path, &Options::default()).unwrap();
    let stated = figures(file.runs.first().unwrap());
    let of = |of, statistic| stated.iter().find(|f| (f.of, f.statistic) == (of, statistic));
    let value = |of_: Of, s| of(of_, s).map(|f| f.value);
    assert_eq!(value(Of::Ttft, Statistic::P(0.99)), Some(2.1));
    assert_eq!(value(Of::Tpot, Statistic::Mean), Some(0.072));
    assert_eq!(value(Of::E2e, Statistic::P(0.5)), Some(20.0));
    assert_eq!(value(Of::Requests, Statistic::Mean), Some(11.9));
}
