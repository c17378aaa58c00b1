//! The measured part of runs built by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use metrics_core::interval::Confidence;
use metrics_core::measured::{Cut, Cuts};
use metrics_core::report::{Input, Report, Window};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use metrics_core::timeline::{Outcome, TimelineFields};
use metrics_core::units::RequestsPerSecond;
use metrics_core::validity::evidence::Conservation;
use metrics_core::validity::{Evidence, Facts, findings};
use metrics_core::{Instant, RequestTimeline, Seconds};
use proptest::prelude::*;

fn input<'a>(timelines: &'a [RequestTimeline], slo: &'a SloSet) -> Input<'a> {
    Input {
        timelines,
        window: None,
        truncated: false,
        slo,
        method: PercentileMethod::Linear,
        confidence: Confidence::new(0.95).unwrap(),
    }
}

fn cuts(warm_up: &str, cool_down: &str) -> Cuts {
    let cut = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    Cuts { warm_up: cut(warm_up), cool_down: cut(cool_down) }
}

/// One request a second for `n` seconds, in whole picoseconds from 100 s on, of two tokens that
/// come `ttft(i)` and `e2e(i)` after it.
fn run(n: u32, ttft: impl Fn(u32) -> f64, e2e: impl Fn(u32) -> f64) -> Vec<RequestTimeline> {
    let fields = |i: u32| TimelineFields {
        id: format!("r{i}"),
        arrival: Some(Instant::Picoseconds(u128::from(100 + i) * 1_000_000_000_000)),
        ttft: Some(ttft(i)),
        e2e: Some(e2e(i)),
        input_tokens: Some(10),
        output_tokens: Some(2),
        ..TimelineFields::default()
    };
    (0..n).map(|i| RequestTimeline::new(fields(i)).unwrap()).collect()
}

/// Request i of ten ends 2 · (i + 1) s after the first arrival: half of what arrives is served.
fn overload() -> Vec<RequestTimeline> {
    run(10, |i| f64::from(i) + 1.0, |i| f64::from(i) + 2.0)
}

/// From 4 s on and before 6 s requests 4 and 5 arrive, which take 6 s and 7 s. Only request 2 ends
/// after 4 s and by 6 s, in 4 s: it is good, and in no latency. In flight are 2, 3 and 4, and for
/// the second half 5 too: (3 + 4) / 2.
#[test]
fn latencies_are_of_who_arrives_and_rates_of_who_ends() {
    let (log, slo) = (overload(), "e2e<4.5s".parse().unwrap());
    for cuts in [cuts("4", "4"), cuts("4s", "3s"), cuts("4", "3s"), cuts("4s", "4")] {
        let r = Report::measured(&input(&log, &slo), &cuts).unwrap();
        let m = r.measured.unwrap();
        assert_eq!((m.from, m.to, m.of, m.start_s, m.end_s), (4, 6, 10, 4.0, Some(6.0)));
        assert_eq!((m.completed, m.good), (1, Some(1)));
        let e2e = r.latency.iter().find(|d| d.name == "e2e").unwrap().figures.as_ref().unwrap();
        assert_eq!((e2e.n, e2e.mean.value, e2e.max), (2, 6.5, 7.0));
        assert_eq!(r.throughput.requests.unwrap().get(), 0.5);
        assert_eq!((r.throughput.completed, r.throughput.output_tokens), (1, Some(2)));
        assert_eq!(r.throughput.total.unwrap().get(), 6.0); // 12 tokens in 2 s
        let g = r.goodput.as_ref().unwrap();
        assert_eq!((g.good, g.completed, g.ratio), (0, 2, Some(0.0)));
        assert_eq!((g.rate.unwrap().get(), g.tokens.unwrap().get()), (0.5, 1.0));
        let flight = r.in_flight.unwrap();
        assert_eq!((flight.mean.get(), flight.peak, r.in_flight_n), (3.5, 4, 4));
    }
}

/// Without a cool-down the window ends with the run, at 20 s: from 4 s on 8 requests end in 16 s,
/// those from number 2 on, and 6 arrive. A stated window of 24 s leaves 20 s.
#[test]
fn without_a_cool_down_the_window_ends_with_the_run() {
    let (log, slo) = (overload(), SloSet::none());
    let mut input = input(&log, &slo);
    let r = Report::measured(&input, &cuts("4s", "")).unwrap();
    assert_eq!((r.sent(), r.throughput.completed), (6, 8));
    assert_eq!(r.throughput.requests.unwrap().get(), 0.5);
    input.window = Some(Window { length: Seconds::new(24.0).unwrap(), basis: "stated".to_owned() });
    let r = Report::measured(&input, &cuts("4s", "")).unwrap();
    assert_eq!(r.throughput.requests.unwrap().get(), 0.4);
    // With a cool-down alone it starts with the run: 3 requests end by 6 s.
    let r = Report::measured(&input, &cuts("", "4")).unwrap();
    assert_eq!((r.sent(), r.throughput.completed), (6, 3));
    // A run that was stopped has no rates here either.
    input.truncated = true;
    let r = Report::measured(&input, &cuts("4s", "")).unwrap();
    assert_eq!((r.throughput.requests, r.goodput.is_none()), (None, true));
}

/// Requests 4 and 5 are measured, from 4 s to 6 s, in which one request ends; they end at 10 s and
/// 12 s. A cut at 13 s takes nothing from that; a cut at 5 s takes part of the window, and one at
/// 11 s the end of request 5.
#[test]
fn a_window_that_has_ended_before_the_cut_is_whole() {
    let slo: SloSet = "e2e<4.5s".parse().unwrap();
    let cuts = cuts("4", "4");
    let cut_at = |cut_s: f64| {
        let mut log = overload();
        for (i, t) in log.iter_mut().enumerate() {
            // Request i ends 2 · (i + 1) s after the first arrival.
            if cut_s < 2.0 * (i as f64 + 1.0) {
                *t = RequestTimeline::new(TimelineFields {
                    id: format!("r{i}"),
                    arrival: t.arrival(),
                    outcome: Outcome::CutOff,
                    input_tokens: Some(10),
                    ..TimelineFields::default()
                })
                .unwrap();
            }
        }
        let mut input = input(&log, &slo);
        input.truncated = true;
        let length = Seconds::new(cut_s).unwrap();
        input.window = Some(Window { length, basis: "stated".to_owned() });
        let report = Report::measured(&input, &cuts).unwrap();
        let (all, m) = (RequestTable::of(&log), report.measured.unwrap());
        let cohort = RequestTable::of(&log[m.from..m.to]);
        let whole = Conservation::of(&all);
        assert!(whole.balances() && 0 < whole.running);
        let evidence = Evidence {
            truncated: m.truncated,
            conservation: Some(whole),
            ..Evidence::of(&cohort, &slo)
        };
        let facts = Facts::of_window(&evidence, &all, &report);
        let w28 = findings(&facts).into_iter().find(|f| f.check.id == "W28").map(|f| f.says);
        (
            report.throughput.requests.map(RequestsPerSecond::get),
            report.goodput.and_then(|g| g.ratio),
            w28,
        )
    };
    assert_eq!(cut_at(13.0), (Some(0.5), Some(0.0), None));
    let left = |n: u64| Some(format!("{n} of 2 requests were still running or waiting"));
    assert_eq!(cut_at(11.0), (None, None, left(1)));
    assert_eq!(cut_at(5.0), (None, None, left(2)));
}

/// TTFT falls for 100 requests and is then near 10 s: MSER-5 says 100.
#[test]
fn auto_is_what_mser_says() {
    let ttft = |i: u32| f64::from(i.min(100)) / 10.0 + f64::from(i * 7 % 5) / 10.0;
    let (log, slo) = (run(1000, ttft, |i| ttft(i) + 1.0), SloSet::none());
    let r = Report::measured(&input(&log, &slo), &cuts("auto", "")).unwrap();
    assert_eq!(r.measured.unwrap().from, 100);
    let growing = run(1000, f64::from, |i| f64::from(i) + 1.0);
    let error = cuts("auto", "").of(&growing).unwrap_err().to_string();
    assert!(error.ends_with("MSER-5 finds no steady part in TTFT"), "{error}");
}

/// One request a second for 100 s, each there for 30 s: over the 129 s of the run the rate is
/// 100 / 129, in the steady stretch 1/s. From 40 s to 90 s nothing of ramp or drain is left, and
/// from 5 s on without a cool-down it is.
#[test]
fn ramp_and_drain_are_those_of_the_window() {
    let (log, slo) = (run(100, |_| 1.0, |_| 30.0), SloSet::none());
    let all = RequestTable::of(&log);
    let raised = |cuts: &Cuts| {
        let report = Report::measured(&input(&log, &slo), cuts).unwrap();
        let m = report.measured.unwrap();
        let cohort = RequestTable::of(&log[m.from..m.to]);
        let facts = Facts::of_window(&Evidence::of(&cohort, &slo), &all, &report);
        let w02 = findings(&facts).into_iter().find(|f| f.check.id == "W02");
        (facts, w02.map(|f| f.says))
    };
    let (facts, w02) = raised(&cuts("40s", "9s"));
    assert_eq!((facts.requests_per_s, facts.span_s, w02), (Some(1.0), Some(50.0), None));
    let steady = facts.steady.unwrap();
    assert!((steady.requests_per_s - 1.0).abs() < 1e-12 && (steady.share() - 1.0).abs() < 1e-12);
    // 5 s to 129 s: the steady 27 s to 99 s are 58.9 % of it.
    let w02 = raised(&cuts("5s", "")).1.unwrap();
    assert!(w02.starts_with("ramp and drain fill 41.1 % of the run"), "{w02}");
}

#[test]
fn what_cannot_be_left_out_is_named() {
    let log = overload();
    let say =
        |warm_up: &str, cool_down: &str| cuts(warm_up, cool_down).of(&log).unwrap_err().to_string();
    assert_eq!(
        say("10", ""),
        "a warm-up of 10 requests leaves none of the run, in which 10 requests arrived"
    );
    assert_eq!(
        say("", "11"),
        "a cool-down of 11 requests leaves none of the run, in which 10 requests arrived"
    );
    assert_eq!(
        say("9.5s", ""),
        "warm-up of 9.5 s leaves no request: the last one arrives 9 s after the first"
    );
    assert_eq!(
        say("6", "4"),
        "a warm-up of 6 requests and a cool-down of 4 requests leave none of 10 requests"
    );
    assert!(Cut::cool_down("auto").is_err() && "5 %".parse::<Cut>().is_err());
    let slo = SloSet::none();
    assert!(Report::measured(&input(&[], &slo), &cuts("1", "")).is_err());
    let backwards: Vec<RequestTimeline> = log.iter().rev().cloned().collect();
    assert!(cuts("1", "").of(&backwards).is_err());
    let burst: Vec<RequestTimeline> =
        (0..9).map(|_| RequestTimeline::completed("r", 0.0, 1.0, 2.0, 2).unwrap()).collect();
    let error = cuts("2", "2").of(&burst).unwrap_err().to_string();
    assert!(error.contains(" leave a window from") && error.ends_with("has no length"), "{error}");
    let error = cuts("", "4").of(&burst).unwrap_err().to_string();
    assert!(error.starts_with("a cool-down of 4 requests leaves a window"), "{error}");
    for wrong in ["-1s", "-1", "9223372036854775807"] {
        let error = wrong.parse::<Cut>().unwrap_err().to_string();
        assert!(error.contains("up to 2^53 or a time, neither negative"), "{error}");
    }
}

/// Nine requests at one instant, each of 2 s: a count cuts between them, and no instant does. The
/// window is the whole run, in which all nine end: 4.5/s.
#[test]
fn a_count_cuts_between_equal_arrivals_by_place() {
    let burst: Vec<RequestTimeline> =
        (0..9).map(|_| RequestTimeline::completed("r", 0.0, 1.0, 2.0, 2).unwrap()).collect();
    let slo = SloSet::none();
    let report = Report::measured(&input(&burst, &slo), &cuts("4", "")).unwrap();
    let m = report.measured.unwrap();
    assert_eq!((m.from, m.to, m.by_place, m.start_s, m.completed), (4, 9, true, 0.0, 9));
    assert_eq!(report.sent(), 5);
    assert_eq!(
        report.throughput.requests.map(metrics_core::units::RequestsPerSecond::get),
        Some(4.5)
    );
    assert!(!cuts("4", "4").of(&overload()).unwrap().unwrap().by_place);
}

/// Waves of ten requests each 4 s, of 4 s each: ten are in flight throughout. From 4.1 s to 16.9 s
/// three waves end, 30 in 12.8 s; by the shares of stays both rates are 10 in 4 s.
#[test]
fn a_window_that_is_steady_throughout_has_no_ramp() {
    let wave = |w: u32| (0..10).map(move |i| f64::from(4 * w) + 1e-3 * f64::from(i));
    let log: Vec<RequestTimeline> = (0..8)
        .flat_map(wave)
        .map(|t| RequestTimeline::completed("r", t, t + 0.1, t + 4.0, 2).unwrap())
        .collect();
    let (slo, all) = (SloSet::none(), RequestTable::of(&log));
    let cuts = cuts("4.1s", "11.1s");
    let report = Report::measured(&input(&log, &slo), &cuts).unwrap();
    let m = report.measured.unwrap();
    let cohort = RequestTable::of(&log[m.from..m.to]);
    let facts = Facts::of_window(&Evidence::of(&cohort, &slo), &all, &report);
    let steady = facts.steady.as_ref().unwrap();
    assert_eq!(1.0 - steady.share(), 0.0);
    assert_eq!(facts.stays_per_s, Some(steady.requests_per_s));
    assert!((steady.requests_per_s - 2.5).abs() < 1e-9, "{steady:?}");
    assert!(findings(&facts).iter().all(|f| f.check.id != "W02"));
}

proptest! {
    /// Whoever leaves nothing out has the report of the run, bit for bit, and a window that is cut
    /// anywhere holds as many as the others leave.
    #[test]
    fn cuts_keep_the_books(
        gaps in prop::collection::vec((0_u32..4, 1_u32..30), 2..60),
        warm_up in 0_u64..70,
        cool_down in 0_u64..70,
    ) {
        let mut at = 0.0;
        let log: Vec<RequestTimeline> = gaps
            .iter()
            .map(|&(gap, stay)| {
                at += f64::from(gap);
                RequestTimeline::completed("r", at, at + 0.5, at + f64::from(stay), 3).unwrap()
            })
            .collect();
        let slo = "e2e<9s,ttft<1s @ 50%".parse().unwrap();
        let input = input(&log, &slo);
        let plain = format!("{:?}", Report::new(&input).unwrap());
        for nothing in [cuts("", ""), cuts("0", "0"), cuts("0s", "0s"), cuts("", "0")] {
            prop_assert_eq!(&plain, &format!("{:?}", Report::measured(&input, &nothing).unwrap()));
        }
        let of = |warm_up, cool_down| {
            let cut = |n| Some(Cut::Requests(n));
            Report::measured(&input, &Cuts { warm_up: cut(warm_up), cool_down: cut(cool_down) })
        };
        let n = log.len() as u64;
        if let Ok(report) = of(warm_up, cool_down) {
            prop_assert_eq!(report.sent() + warm_up + cool_down, n);
        } else {
            let edge = |i: u64| {
                log.get(usize::try_from(i).unwrap()).map(RequestTimeline::arrival_s)
            };
            let no_length = 0 < cool_down && edge(warm_up) == edge(n.saturating_sub(cool_down));
            prop_assert!(n <= warm_up + cool_down || no_length);
        }
        // What ends before an instant and what ends after it are all.
        if 0 < warm_up
            && let (Ok(before), Ok(after)) = (of(0, n - warm_up.min(n)), of(warm_up, 0))
            && before.measured.is_some()
        {
            let ended = before.throughput.completed + after.throughput.completed;
            prop_assert_eq!(ended, n);
        }
    }
}
