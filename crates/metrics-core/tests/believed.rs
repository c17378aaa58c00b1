//! The verdict on runs that were once believed, or condemned, wrongly.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "it is a test")]

use metrics_core::interval::Confidence;
use metrics_core::report::{Answer, Input, Report};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use metrics_core::timeline::{Instant, TimelineFields};
use metrics_core::validity::counts::failures;
use metrics_core::validity::evidence::{Load, Spread, Stated};
use metrics_core::validity::{Evidence, Facts, Finding, Level, Verdict, findings};
use metrics_core::{Outcome, RequestTimeline};

/// One request of ten tokens: when it came, its TTFT and its E2E.
fn request(i: u32, at: f64, ttft: f64, e2e: f64) -> RequestTimeline {
    RequestTimeline::new(TimelineFields {
        id: i.to_string(),
        arrival: Some(Instant::Seconds(at)),
        ttft: Some(ttft),
        e2e: Some(e2e),
        input_tokens: Some(100),
        output_tokens: Some(10),
        outcome: Outcome::Completed,
        ..TimelineFields::default()
    })
    .unwrap()
}

fn ended(i: u32, outcome: Outcome) -> RequestTimeline {
    RequestTimeline::new(TimelineFields {
        id: i.to_string(),
        arrival: Some(Instant::Seconds(f64::from(i))),
        outcome,
        ..TimelineFields::default()
    })
    .unwrap()
}

fn judged(
    requests: &[RequestTimeline],
    change: impl Fn(&mut Evidence<'_>),
) -> (Facts, Vec<Finding>) {
    let table = RequestTable::of(requests);
    let slo = SloSet::none();
    let mut evidence = Evidence::of(&table, &slo);
    change(&mut evidence);
    let facts = Facts::new(&evidence);
    let found = findings(&facts);
    (facts, found)
}

fn ids(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|f| f.check.id).collect()
}

/// One server of 0.1 s, arrivals at 20/s: 10/s are served and the queue grows by 10/s. A request's
/// stay is nearly all waiting, so counting it by its stay would rate 13.9/s.
#[test]
fn a_growing_queue_has_no_steady_rate() {
    for gap in [0.05, 0.0] {
        let run: Vec<RequestTimeline> = (0..1_200)
            .map(|i| {
                let at = gap * f64::from(i);
                let end = 0.1 * f64::from(i + 1);
                request(i, at, end - 0.05 - at, end - at)
            })
            .collect();
        let (facts, found) = judged(&run, |_| {});
        assert_eq!(facts.steady, None, "gap {gap}");
        assert!(ids(&found).contains(&"W04") && !ids(&found).contains(&"W02"), "{:?}", ids(&found));
        assert!((facts.requests_per_s.unwrap() - 10.0).abs() < 1e-9);
    }
    // At 9/s nobody waits: it is steady, and requests of ten tokens and tokens agree.
    let run: Vec<RequestTimeline> =
        (0..1_200).map(|i| request(i, f64::from(i) / 9.0, 0.05, 0.1)).collect();
    let steady = judged(&run, |_| {}).0.steady.unwrap();
    assert!((steady.requests_per_s - 9.0).abs() < 0.05);
    let tokens = steady.output_tokens_per_s.unwrap();
    assert!((tokens - 10.0 * steady.requests_per_s).abs() < 1.0, "{tokens}");
}

/// One answer of 500 in one chunk is a rare event, 300 of 500 are a proxy that buffers.
#[test]
fn answers_in_one_chunk_are_a_share_of_all() {
    let run = |whole: u32| -> Vec<RequestTimeline> {
        (0..500)
            .map(|i| {
                let e2e = 0.4 + 0.001 * f64::from(i % 7);
                request(i, 0.1 * f64::from(i), if i < whole { e2e } else { 0.05 }, e2e)
            })
            .collect()
    };
    assert!(!ids(&judged(&run(1), |_| {}).1).contains(&"W06"));
    let (_, found) = judged(&run(300), |_| {});
    let f = found.iter().find(|f| f.check.id == "W06").unwrap();
    assert_eq!(f.says, "300 of 500 answers of several tokens came in one chunk");
}

/// 86 completed and 14 failed of 100 in 7 s: 14.28 of 15 req/s were sent, whatever completed.
/// Alone, 86 of 100 in 7 s would be 12.28 req/s and a wait of 1.5 s that no TTFT of 0.1 s shows.
#[test]
fn failed_requests_were_sent_as_well() {
    let of = |completed, failed| {
        let (_, found) = judged(&[], |e| {
            e.load = Load { number: Some(100), ..Load::open(15.0) };
            e.window_s = Some(7.0);
            e.stated = Stated {
                completed: Some(completed),
                failed,
                ttft: Spread { mean: Some(0.05), max: Some(0.1), ..Spread::default() },
                ..Stated::default()
            };
        });
        ids(&found).contains(&"W03")
    };
    assert!(!of(86, Some(14)));
    assert!(of(60, Some(0)));
    // Who failed is not known: the other 40 may have.
    assert!(!of(60, None));
}

/// A percentile that only the tool had is not called one of samples in the file.
#[test]
fn a_stated_percentile_has_no_samples_in_the_file() {
    let (_, found) = judged(&[], |e| {
        e.stated = Stated {
            completed: Some(27),
            ttft: Spread { p99: Some(0.4), ..Spread::default() },
            ..Stated::default()
        };
    });
    let f = found.iter().find(|f| f.check.id == "W10").unwrap();
    assert!(
        f.says.contains("27 samples of TTFT that the tool had and the file has not"),
        "{}",
        f.says
    );
}

/// A run in which nothing completed says so, whether all failed or all were cancelled.
#[test]
fn nothing_completed_is_an_error() {
    for outcome in [Outcome::Failed, Outcome::Cancelled] {
        let run: Vec<RequestTimeline> = (0..20).map(|i| ended(i, outcome)).collect();
        let (facts, found) = judged(&run, |_| {});
        let f = found.iter().find(|f| f.check.id == "W37").unwrap();
        assert_eq!(f.level, Level::Error);
        assert!(f.says.starts_with("none of 20 requests completed"), "{}", f.says);
        assert!(!Verdict::of(&found, &facts.subjects()).is_usable());
    }
}

/// 1 % is nothing, 2 % a note, 10 % a warning, half an error; each at its bound.
#[test]
fn failures_weigh_by_their_share() {
    let of = |missed| failures(1_000 - missed, missed, 0).map(|f| f.level);
    assert_eq!((of(0), of(10), of(11)), (None, None, Some(Level::Note)));
    assert_eq!((of(50), of(51)), (Some(Level::Note), Some(Level::Warn)));
    assert_eq!((of(499), of(500)), (Some(Level::Warn), Some(Level::Error)));
}

/// 120 requests over 6.5 s in a window of 0.5 s: 240 req/s never were. In 6.4 s they may be.
#[test]
fn a_window_shorter_than_its_requests_is_not_believed() {
    let run: Vec<RequestTimeline> =
        (0..120).map(|i| request(i, 0.05 * f64::from(i), 0.05, 0.5)).collect();
    let of = |window| {
        let (_, found) = judged(&run, |e| e.window_s = Some(window));
        found.into_iter().find(|f| f.check.id == "W38")
    };
    let f = of(0.5).unwrap();
    assert_eq!(f.level, Level::Error);
    assert!(f.says.contains("shorter than") && f.says.contains("never more than"), "{}", f.says);
    assert_eq!((of(6.4), of(60.0)), (None, None));
}

/// Three completed, one without an end: 0.5 and 0.5 s of the other two lie in a window of 0.5 s, so
/// that two are in flight, on average and at the peak.
#[test]
fn a_request_without_an_end_is_neither_in_the_mean_nor_at_the_peak() {
    let known = |id: &str, ttft| TimelineFields {
        id: id.to_owned(),
        arrival: Some(Instant::Seconds(0.0)),
        ttft,
        e2e: Some(0.5),
        ..TimelineFields::default()
    };
    let open = TimelineFields { e2e: None, ..known("c", Some(0.1)) };
    let run: Vec<RequestTimeline> = [known("a", Some(0.1)), known("b", None), open]
        .into_iter()
        .map(|fields| RequestTimeline::new(fields).unwrap())
        .collect();
    let (facts, found) = judged(&run, |_| {});
    assert_eq!((facts.stays_in_flight, facts.peak_in_flight), (Some(2.0), Some(2)));
    assert!(!ids(&found).contains(&"W38"), "{found:?}");
}

/// What a reader found to disagree reaches the verdict.
#[test]
fn counts_that_disagree_are_a_finding() {
    let run: Vec<RequestTimeline> =
        (0..120).map(|i| request(i, 0.05 * f64::from(i), 0.05, 0.5)).collect();
    let (_, found) = judged(&run, |e| e.counts_disagree = Some("104 completed stated, 120 read"));
    let f = found.iter().find(|f| f.check.id == "W38").unwrap();
    assert_eq!((f.level, f.says.as_str()), (Level::Warn, "104 completed stated, 120 read"));
}

/// Milliseconds in a column of seconds: TTFT 101 s may be, 111 s for each token is not.
#[test]
fn milliseconds_read_as_seconds_are_a_unit_trap() {
    let run = |scale: f64| -> Vec<RequestTimeline> {
        (0..200).map(|i| request(i, f64::from(i), 0.1 * scale, scale)).collect()
    };
    assert!(!ids(&judged(&run(1.0), |_| {}).1).contains(&"W16"));
    let (_, found) = judged(&run(1_000.0), |_| {});
    let f = found.iter().find(|f| f.check.id == "W16").unwrap();
    // (1,000 - 100) / 9 = 100 s for each token; TTFT of 100 s alone says nothing.
    assert_eq!(f.says, "TPOT is 100.00 s for each token: are these milliseconds read as seconds?");
}

/// None of the requests meets the limit, with a failure or without: the outcomes are all alike, so
/// the drift of the latency decides, and it is too strong to answer.
#[test]
fn all_missed_is_judged_by_the_latency_whether_or_not_some_failed() {
    let slo: SloSet = "ttft<1ms @ 50%".parse().unwrap();
    for failed in [0, 10] {
        let mut run: Vec<RequestTimeline> =
            (0..120).map(|i| request(i, f64::from(i), 0.05 + 0.01 * f64::from(i), 5.0)).collect();
        run.extend((0..failed).map(|i| ended(200 + i, Outcome::Failed)));
        let report = Report::new(&Input {
            timelines: &run,
            window: None,
            truncated: false,
            slo: &slo,
            method: PercentileMethod::default(),
            confidence: Confidence::P95,
        })
        .unwrap();
        let goodput = report.goodput.unwrap();
        let target = &goodput.targets[0];
        assert_eq!(target.observed, Some(0.0));
        assert_eq!(target.answer, Answer::Indeterminate, "{failed} failed: {:?}", target.interval);
    }
}
