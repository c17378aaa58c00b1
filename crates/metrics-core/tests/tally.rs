//! A run in counts and sketches against the same run in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use metrics_core::interval::Confidence;
use metrics_core::report::{Report, Settings};
use metrics_core::sketch::{RELATIVE_ERROR, Scale, Sketch};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use metrics_core::tally::Tally;
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline};
use proptest::prelude::*;

/// Requests of every kind: with and without arrival, end, count and gaps.
fn request() -> impl Strategy<Value = RequestTimeline> {
    let known = || prop::bool::weighted(0.95);
    let time = || prop_oneof![Just(0.0), 1e-9..1e-3, 1e-3..10.0, 10.0..1e5_f64];
    (0.0..1e6_f64, time(), time(), 1..400_u64, known(), known(), known(), 0..12_usize).prop_map(
        |(arrival, ttft, tail, n, has_arrival, has_e2e, has_n, kind)| {
            let outcome = Outcome::ALL.get(kind).copied().unwrap_or_default();
            let tail = if n == 1 { 0.0 } else { tail };
            RequestTimeline::new(TimelineFields {
                id: "r".to_owned(),
                arrival: has_arrival.then_some(Instant::Seconds(arrival)),
                ttft: Some(ttft),
                e2e: has_e2e.then_some(ttft + tail),
                gaps: (kind == 11).then(|| (GapKind::Chunk, vec![tail / 2.0; 2])),
                output_tokens: has_n.then_some(n),
                input_tokens: Some(n * 7),
                outcome,
                ..TimelineFields::default()
            })
            .unwrap()
        },
    )
}

fn tally(slo: &SloSet, requests: &[RequestTimeline]) -> Tally {
    let mut tally = Tally::new(slo).unwrap();
    for r in requests {
        tally.push(r).unwrap();
    }
    tally
}

fn near(sketched: f64, exact: f64, error: f64) -> bool {
    // Half a picosecond is the unit of a sketch.
    (sketched - exact).abs() <= error * exact.abs() + 0.5e-12 + 1e-15
}

proptest! {
    /// Counts, sums, shares, rates and extremes are the same; percentiles are within the error.
    #[test]
    fn a_tally_says_what_the_requests_say(
        requests in prop::collection::vec(request(), 1..60),
        nearest in any::<bool>(),
    ) {
        let slo: SloSet = "ttft<500ms,tpot<50ms @ 90%,p95(e2e)<20s".parse().unwrap();
        let method =
            if nearest { PercentileMethod::NearestRank } else { PercentileMethod::Linear };
        let confidence = Confidence::P95;
        let settings = Settings { window: None, truncated: false, slo: &slo, method, confidence };
        let exact = Report::of_table(&RequestTable::of(&requests), &settings).unwrap();
        let sketched = Report::of_tally(&tally(&slo, &requests), &settings).unwrap();

        prop_assert_eq!(&exact.outcomes, &sketched.outcomes);
        prop_assert_eq!(&exact.window, &sketched.window);
        prop_assert_eq!(exact.in_flight_n, sketched.in_flight_n);
        if let (Some(a), Some(b)) = (exact.in_flight_mean(), sketched.in_flight_mean()) {
            // The same stays in another order: each addition rounds once.
            prop_assert!((a.get() - b.get()).abs() <= 60.0 * f64::EPSILON * a.get());
        }
        prop_assert_eq!(exact.latency.len(), sketched.latency.len());
        for (a, b) in exact.latency.iter().zip(&sketched.latency) {
            prop_assert_eq!((a.name, a.unit), (b.name, b.unit));
            prop_assert_eq!(a.one_token_left_out, b.one_token_left_out, "{}", a.name);
            prop_assert_eq!(a.unknown_left_out, b.unknown_left_out, "{}", a.name);
            let (Some(a), Some(b)) = (&a.figures, &b.figures) else {
                prop_assert!(a.figures.is_none() && b.figures.is_none());
                continue;
            };
            prop_assert_eq!((a.n, a.max), (b.n, b.max));
            prop_assert!(near(b.mean.value, a.mean.value, 1e-14));
            for (a, b) in a.percentiles.iter().zip(&b.percentiles) {
                prop_assert!(near(b.value, a.value, RELATIVE_ERROR), "{} {}", a.value, b.value);
            }
        }
        let (a, b) = (&exact.throughput, &sketched.throughput);
        prop_assert_eq!(a.completed, b.completed);
        prop_assert_eq!(a.requests.map(metrics_core::units::Quantity::number), b.requests.map(metrics_core::units::Quantity::number));
        prop_assert_eq!((a.output_tokens, a.input_tokens), (b.output_tokens, b.input_tokens));
        prop_assert_eq!(a.total.map(metrics_core::units::Quantity::number), b.total.map(metrics_core::units::Quantity::number));
        let (a, b) = (exact.goodput.unwrap(), sketched.goodput.unwrap());
        prop_assert_eq!((a.good, a.good_one_token, a.unknown), (b.good, b.good_one_token, b.unknown));
        prop_assert_eq!((a.ratio, a.attainment), (b.ratio, b.attainment));
        prop_assert_eq!(a.tokens.map(metrics_core::units::Quantity::number), b.tokens.map(metrics_core::units::Quantity::number));
        prop_assert_eq!((a.marginals, a.binding), (b.marginals, b.binding));
        for (a, b) in a.targets.iter().zip(&b.targets) {
            prop_assert_eq!(a.slo, b.slo);
            match (a.observed, b.observed) {
                (Some(a), Some(b)) => prop_assert!(near(b, a, RELATIVE_ERROR)),
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }

    /// However a log is cut, and in whatever order its parts are merged, the tally is the same.
    #[test]
    fn merging_is_associative_and_commutative(
        parts in prop::collection::vec(prop::collection::vec(request(), 0..15), 3..4),
    ) {
        let slo: SloSet = "ttft<500ms,e2e<20s".parse().unwrap();
        let all: Vec<RequestTimeline> = parts.concat();
        let tallies: Vec<Tally> = parts.iter().map(|p| tally(&slo, p)).collect();
        let merged = |order: [usize; 3]| {
            let mut sum = tallies[order[0]].clone();
            sum.merge(&tallies[order[1]]).unwrap();
            sum.merge(&tallies[order[2]]).unwrap();
            sum
        };
        let whole = tally(&slo, &all);
        prop_assert_eq!(&merged([0, 1, 2]), &whole);
        prop_assert_eq!(&merged([2, 0, 1]), &whole);
        let mut right = tallies[1].clone();
        right.merge(&tallies[2]).unwrap();
        let mut left = tallies[0].clone();
        left.merge(&right).unwrap();
        prop_assert_eq!(&left, &whole);
        let bytes = serde_json::to_string(&whole).unwrap();
        prop_assert_eq!(serde_json::to_string(&merged([1, 2, 0])).unwrap(), bytes);
    }
}

#[test]
fn other_objectives_are_refused_by_name() {
    let (a, b): (SloSet, SloSet) = ("ttft<1s".parse().unwrap(), "ttft<2s".parse().unwrap());
    let mut tally = Tally::new(&a).unwrap();
    let said = tally.merge(&Tally::new(&b).unwrap()).unwrap_err().to_string();
    assert_eq!(said, "objectives `ttft<=1s` and `ttft<=2s` cannot be merged");
}

/// At 651,299.2263 s the next instant is 116 ps away: a stay of 1 ns ends 9 × 116 ps = 1.05 ns or
/// 8 × 116 ps = 0.93 ns later. The window is that long, and the only request fills it, no more.
#[test]
fn one_request_is_one_in_flight_however_late_and_short() {
    let request = RequestTimeline::new(TimelineFields {
        arrival: Some(Instant::Seconds(651_299.226_3)),
        ttft: Some(1e-9),
        e2e: Some(1e-9),
        output_tokens: Some(1),
        ..TimelineFields::default()
    })
    .unwrap();
    let slo = SloSet::default();
    let settings = Settings {
        window: None,
        truncated: false,
        slo: &slo,
        method: PercentileMethod::Linear,
        confidence: Confidence::P95,
    };
    let requests = [request];
    let exact = Report::of_table(&RequestTable::of(&requests), &settings).unwrap();
    let file = serde_json::to_string(&tally(&slo, &requests)).unwrap();
    let sketched: Tally = serde_json::from_str(&file).unwrap();
    let sketched = Report::of_tally(&sketched.under(&slo).unwrap(), &settings).unwrap();
    for report in [exact, sketched] {
        assert_eq!(report.in_flight_mean().unwrap().get(), 1.0);
    }
}

/// Seconds and tokens have buckets of other sizes.
#[test]
fn sketches_of_two_units_are_not_merged() {
    let mut seconds = Sketch::new(Scale::Picosecond).unwrap();
    let said = seconds.merge(&Sketch::new(Scale::One).unwrap()).unwrap_err().to_string();
    assert!(said.contains("different units"), "{said}");
}
