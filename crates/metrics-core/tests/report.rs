//! The report over logs built by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use metrics_core::interval::Confidence;
use metrics_core::report::{Answer, Input, Report, Window};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};
use proptest::prelude::*;

fn completed(i: usize, arrival: f64, ttft: f64, gap: f64, n: u64) -> RequestTimeline {
    let last = arrival + ttft + gap * (n - 1) as f64;
    RequestTimeline::completed(format!("r{i}"), arrival, arrival + ttft, last, n).unwrap()
}

fn ended(i: usize, arrival: f64, outcome: Outcome) -> RequestTimeline {
    RequestTimeline::new(TimelineFields {
        id: format!("e{i}"),
        arrival: Some(Instant::Seconds(arrival)),
        outcome,
        ..TimelineFields::default()
    })
    .unwrap()
}

fn report_in(timelines: &[RequestTimeline], slo: &str, window: Option<f64>) -> Report {
    let slo: SloSet = if slo.is_empty() { SloSet::none() } else { slo.parse().unwrap() };
    let window =
        window.map(|s| Window { length: Seconds::new(s).unwrap(), basis: "test".to_owned() });
    let confidence = Confidence::new(0.95).unwrap();
    let method = PercentileMethod::Linear;
    let input = Input { timelines, window, truncated: false, slo: &slo, method, confidence };
    Report::new(&input).unwrap()
}

/// By hand: 4 completed in 10 s; two meet both limits, one of them with one token; one failed and
/// one was rejected, so 6 finished; the cancelled and the cut-off one are outside.
#[test]
fn each_ratio_has_its_own_base() {
    let log = vec![
        completed(0, 0.0, 0.1, 0.01, 11),
        completed(1, 1.0, 0.1, 0.5, 1),
        completed(2, 2.0, 0.9, 0.01, 11),
        completed(3, 3.0, 0.1, 0.05, 11),
        ended(4, 4.0, Outcome::Failed),
        ended(5, 5.0, Outcome::Rejected),
        ended(6, 6.0, Outcome::Cancelled),
        ended(7, 7.0, Outcome::CutOff),
    ];
    let r = report_in(&log, "ttft<200ms,tpot<20ms", Some(10.0));
    let g = r.goodput.as_ref().unwrap();
    assert_eq!((g.good, g.good_one_token, g.completed, g.finished), (2, 1, 4, 6));
    assert_eq!(g.rate.unwrap().get(), 0.2);
    assert_eq!((g.ratio, g.attainment), (Some(0.5), Some(2.0 / 6.0)));
    assert_eq!(g.tokens.unwrap().get(), 1.2); // 11 + 1 tokens in 10 s
    assert_eq!(r.throughput.requests.unwrap().get(), 0.4);
    assert_eq!(r.throughput.output_tokens, Some(34));
    // Three meet each limit alone, so neither binds more than the other.
    assert_eq!(g.marginals.iter().map(|m| m.met).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(g.binding, None);
    let stricter = report_in(&log, "ttft<50ms,tpot<20ms", Some(10.0)).goodput.unwrap();
    assert_eq!((stricter.good, stricter.binding), (0, Some(0)));
    assert_eq!((r.sent(), r.ended(Outcome::Cancelled)), (8, 1));
    let tpot = r.latency.iter().find(|d| d.name == "tpot").unwrap();
    assert_eq!((tpot.figures.as_ref().unwrap().n, tpot.one_token_left_out), (3, 1));
}

#[test]
fn without_a_duration_the_window_runs_from_first_arrival_to_last_token() {
    let log = vec![completed(0, 5.0, 0.5, 0.5, 2), completed(1, 6.0, 1.0, 1.0, 3)];
    let r = report_in(&log, "", None);
    assert_eq!(r.window.as_ref().unwrap().length.get(), 4.0); // 5 to 6 + 1 + 2
    assert!(r.goodput.is_none());
    // 1 s and 3 s in flight over 4 s; they meet at 6, when the first has just left.
    let n = r.in_flight.unwrap();
    assert_eq!((n.mean.get(), n.peak), (1.0, 1));
}

#[test]
fn a_latency_that_the_file_lacks_leaves_goodput_without_a_value() {
    let lacking = RequestTimeline::new(TimelineFields {
        id: "x".to_owned(),
        ttft: Some(0.1),
        output_tokens: Some(5),
        ..TimelineFields::default()
    })
    .unwrap();
    let log = vec![completed(0, 0.0, 0.1, 0.01, 11), lacking];
    let g = report_in(&log, "e2e<1s @ 50%", Some(10.0)).goodput.unwrap();
    assert_eq!((g.unknown, g.rate, g.ratio, g.attainment), (1, None, None, None));
    assert_eq!(g.marginals[0].share, None);
    assert_eq!((g.targets[0].answer, g.targets[0].observed), (Answer::Indeterminate, None));
    // The limit that can be judged still is.
    let g = report_in(&log, "ttft<1s", Some(10.0)).goodput.unwrap();
    assert_eq!((g.unknown, g.attainment), (0, Some(1.0)));
}

#[test]
fn only_failures_give_goodput_zero_no_ratio_and_attainment_zero() {
    let log = vec![ended(0, 0.0, Outcome::Failed), ended(1, 1.0, Outcome::TimedOut)];
    let r = report_in(&log, "ttft<1s", Some(2.0));
    let g = r.goodput.unwrap();
    assert_eq!((g.rate.unwrap().get(), g.ratio, g.attainment), (0.0, None, Some(0.0)));
    assert!(r.latency.iter().all(|d| d.figures.is_none()));
    assert!(r.in_flight.is_none());
}

/// A fixed scramble of 0..n, so that neighbours are not alike.
fn scrambled(n: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |i| (i * 7919 + 13) % n)
}

#[test]
fn a_target_holds_or_is_missed_only_if_the_whole_interval_says_so() {
    // TTFT from 1 ms to 1 s in steps of 1 ms, in an order without memory.
    let log: Vec<RequestTimeline> = scrambled(1000)
        .enumerate()
        .map(|(i, rank)| completed(i, i as f64, (rank + 1) as f64 / 1e3, 0.01, 5))
        .collect();
    let answer = |slo: &str| report_in(&log, slo, None).goodput.unwrap().targets[0].answer;
    // 95 % of the requests are within 950 ms; its interval is about 1.4 points wide on each side.
    assert_eq!(answer("ttft<950ms @ 90%"), Answer::Holds);
    assert_eq!(answer("ttft<950ms @ 95%"), Answer::Indeterminate);
    assert_eq!(answer("ttft<950ms @ 99%"), Answer::Missed);
    // p90 is 900 ms, its interval about 20 ms on each side.
    assert_eq!(answer("p90(ttft)<950ms"), Answer::Holds);
    assert_eq!(answer("p90(ttft)<900ms"), Answer::Indeterminate);
    assert_eq!(answer("p90(ttft)<850ms"), Answer::Missed);
}

#[test]
fn an_empty_run_and_a_window_of_zero_are_refused() {
    let slo = SloSet::none();
    let confidence = Confidence::new(0.95).unwrap();
    let method = PercentileMethod::Linear;
    let zero = Some(Window { length: Seconds::ZERO, basis: "test".to_owned() });
    let log = [completed(0, 0.0, 0.1, 0.01, 2)];
    let say = |timelines: &[RequestTimeline], window| {
        Report::new(&Input { timelines, window, truncated: false, slo: &slo, method, confidence })
            .unwrap_err()
            .to_string()
    };
    assert_eq!(say(&[], None), "the run must hold at least one request, got none");
    assert_eq!(say(&log, zero), "t_total must be above 0, got 0");
}

proptest! {
    /// Where arrivals are known, the order of the file changes no figure.
    #[test]
    fn the_order_of_the_file_does_not_matter(
        requests in prop::collection::vec((0.0..100.0_f64, 0.0..2.0_f64, 0.0..0.2_f64, 1..50_u64), 2..60),
    ) {
        // Equal arrivals would leave the order between them to the file.
        let mut log: Vec<RequestTimeline> = requests
            .iter()
            .enumerate()
            .map(|(i, &(a, t, g, n))| completed(i, a + i as f64 * 1e-3, t, g, n))
            .collect();
        let slo = "ttft<1s,tpot<100ms";
        let forward = format!("{:?}", report_in(&log, slo, None));
        log.reverse();
        prop_assert_eq!(forward, format!("{:?}", report_in(&log, slo, None)));
    }
}

/// By hand: stopped at 3 s, one of two requests has ended; 1 / 3 s would be the rate of the short.
#[test]
fn a_truncated_run_has_latencies_and_no_rates() {
    let log = [completed(0, 0.0, 1.0, 1.0, 2), ended(1, 0.0, Outcome::CutOff)];
    let slo: SloSet = "ttft<2s".parse().unwrap();
    let window = Some(Window { length: Seconds::new(3.0).unwrap(), basis: "test".to_owned() });
    let method = PercentileMethod::Linear;
    let confidence = Confidence::new(0.95).unwrap();
    let input = Input { timelines: &log, window, truncated: true, slo: &slo, method, confidence };
    let r = Report::new(&input).unwrap();
    assert!(r.window.is_none() && r.throughput.requests.is_none() && r.goodput.is_none());
    assert_eq!(r.latency[0].figures.as_ref().unwrap().n, 1);
}
