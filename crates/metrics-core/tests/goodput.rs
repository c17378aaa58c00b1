//! Goodput against plain loops, and its relations to throughput and the limits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use metrics_core::goodput::{goodput, goodput_from_ratio, goodput_ratio};
use metrics_core::latency::{RequestMetrics, e2e_from_ttft_tpot, request_metrics};
use metrics_core::slo::SloSet;
use metrics_core::throughput::request_throughput;
use metrics_core::{RequestTimeline, Seconds};
use proptest::prelude::*;

/// A request as its TTFT and the gaps after it, so that no test starts from TPOT.
fn requests() -> impl Strategy<Value = Vec<(f64, Vec<f64>)>> {
    prop::collection::vec((0.0..2.0_f64, prop::collection::vec(0.0..0.3_f64, 0..20)), 1..40)
}

fn metrics_of(requests: &[(f64, Vec<f64>)]) -> Vec<RequestMetrics> {
    requests
        .iter()
        .map(|(ttft, gaps)| {
            let e2e = ttft + gaps.iter().sum::<f64>();
            let s = |x| Seconds::new(x).unwrap();
            request_metrics(s(0.0), s(*ttft), s(e2e), gaps.len() as u64 + 1).unwrap()
        })
        .collect()
}

fn limits(ttft_ms: f64, tpot_ms: f64) -> SloSet {
    format!("ttft<{ttft_ms}ms,tpot<{tpot_ms}ms").parse().unwrap()
}

proptest! {
    /// E2E = TTFT + max(N − 1, 0) · TPOT for every request, from the gaps.
    #[test]
    fn e2e_is_ttft_plus_the_gaps(requests in requests()) {
        for (m, (ttft, gaps)) in metrics_of(&requests).iter().zip(&requests) {
            let want = ttft + gaps.iter().sum::<f64>();
            let got = e2e_from_ttft_tpot(m.ttft, m.tpot, m.output_tokens).unwrap().get();
            prop_assert!((got - want).abs() <= 1e-12 * want.max(1.0), "{got} != {want}");
        }
    }

    #[test]
    fn goodput_counts_what_a_plain_loop_counts(requests in requests(), a in 1.0..2000.0_f64, b in 1.0..300.0_f64) {
        let mut good = 0;
        for (ttft, gaps) in &requests {
            let mean = if gaps.is_empty() { 0.0 } else { gaps.iter().sum::<f64>() / gaps.len() as f64 };
            // A mean within rounding of the limit could fall on either side of it.
            prop_assume!((mean - b / 1e3).abs() > 1e-9 && (ttft - a / 1e3).abs() > 1e-9);
            good += u32::from(*ttft <= a / 1e3 && mean <= b / 1e3);
        }
        let ratio = goodput_ratio(&metrics_of(&requests), &limits(a, b)).unwrap();
        prop_assert_eq!(ratio, f64::from(good) / requests.len() as f64);
    }

    #[test]
    fn goodput_is_at_most_throughput_and_equal_only_if_all_are_good(
        requests in requests(), a in 1.0..4000.0_f64, b in 1.0..600.0_f64, t in 0.1..100.0_f64,
    ) {
        let metrics = metrics_of(&requests);
        let (slo, t) = (limits(a, b), Seconds::new(t).unwrap());
        let rate = request_throughput(metrics.len() as u64, t).unwrap();
        let good = goodput(&metrics, t, &slo).unwrap();
        prop_assert!(good <= rate);
        prop_assert_eq!(good == rate, metrics.iter().all(|m| slo.is_met_by(m)));
        let by_ratio = goodput_from_ratio(rate, goodput_ratio(&metrics, &slo).unwrap()).unwrap();
        prop_assert!((by_ratio.get() - good.get()).abs() <= 1e-12 * rate.get());
    }

    #[test]
    fn a_looser_limit_never_lowers_goodput(
        requests in requests(), a in 1.0..2000.0_f64, b in 1.0..300.0_f64, more in 0.0..500.0_f64,
    ) {
        let metrics = metrics_of(&requests);
        let t = Seconds::new(1.0).unwrap();
        let tight = goodput(&metrics, t, &limits(a, b)).unwrap();
        for slo in [limits(a + more, b), limits(a, b + more)] {
            prop_assert!(tight <= goodput(&metrics, t, &slo).unwrap());
        }
        prop_assert!(goodput(&metrics, t, &limits(a, b).strictly()).unwrap() <= tight);
    }

    /// A timeline and the bare formulas give the same metrics.
    #[test]
    fn a_timeline_has_the_metrics_of_its_formulas(arrive in 0.0..1e4_f64, requests in requests()) {
        for (ttft, gaps) in requests {
            // One token means first = last; the next property of a timeline is its own test.
            let e2e = ttft + gaps.iter().sum::<f64>();
            let t = RequestTimeline::completed("r", arrive, arrive + ttft, arrive + e2e, gaps.len() as u64 + 1);
            let m = t.unwrap().metrics().unwrap();
            // Adding and taking away the arrival costs the digits of an instant of 1e4 s.
            prop_assert!((m.ttft.get() - ttft).abs() < 1e-11);
            prop_assert!((m.e2e_latency.get() - e2e).abs() < 1e-11);
        }
    }
}

#[test]
fn an_empty_log_has_goodput_zero_but_no_ratio() {
    let slo = limits(1.0, 1.0);
    assert_eq!(goodput(&[], Seconds::new(2.0).unwrap(), &slo).unwrap().get(), 0.0);
    assert_eq!(
        goodput_ratio(&[], &slo).unwrap_err().to_string(),
        "metrics must hold at least one completed request, got none"
    );
    assert_eq!(
        goodput(&[], Seconds::ZERO, &slo).unwrap_err().to_string(),
        "t_total must be above 0, got 0"
    );
}
