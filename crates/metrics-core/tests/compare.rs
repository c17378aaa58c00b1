//! Changes between runs: by hand, and against the truth of simulated runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the test functions")]

use metrics_core::compare::{
    Better, change, change_of_runs, change_paired, gate_zero, no_regress, rate_interval,
    same_requests,
};
use metrics_core::interval::{Confidence, Interval};
use metrics_core::report::Answer;
use metrics_core::summary::Summary;
use metrics_core::timeline::TimelineFields;
use metrics_core::units::Seconds;
use metrics_core::{Error, Outcome, RequestTimeline};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn exponential(rng: &mut Pcg64Mcg) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

/// An interval with these bounds.
fn interval(low: Option<f64>, high: Option<f64>) -> Interval {
    let summary = Summary::new((0..100).map(|i| f64::from(i * i % 101)).collect()).unwrap();
    Interval { low, high, ..summary.run().mean(Confidence::P95).unwrap() }
}

/// 100 within 80 to 125 (factor 1.25 both ways), then 200 within 160 to 250: the logarithms have
/// half-widths ln 1.25 each, so the factor of the change is 1.25 to the power √2 = 1.3710.
/// 2 / 1.3710 = 1.4588 and 2 · 1.3710 = 2.7420.
#[test]
fn the_interval_of_a_change_joins_both_sides() {
    let base = interval(Some(80.0), Some(125.0));
    let new = interval(Some(160.0), Some(250.0));
    let c = change(100.0, Some(&base), 200.0, Some(&new)).unwrap();
    assert!((c.relative - 1.0).abs() < 1e-12);
    assert!((c.low.unwrap() - 0.4588).abs() < 1e-4, "{c:?}");
    assert!((c.high.unwrap() - 1.7420).abs() < 1e-4, "{c:?}");
    assert!(!c.may_be_none());
}

#[test]
fn an_open_side_stays_open() {
    let open = interval(Some(80.0), None);
    let closed = interval(Some(160.0), Some(250.0));
    let c = change(100.0, Some(&open), 200.0, Some(&closed)).unwrap();
    assert_eq!(c.low, None);
    assert!(c.high.is_some());
    let zero = interval(Some(0.0), Some(125.0));
    let c = change(100.0, Some(&zero), 200.0, Some(&closed)).unwrap();
    assert_eq!(c.high, None); // the base may be next to nothing
    let c = change(100.0, None, 200.0, Some(&closed)).unwrap();
    assert_eq!(c.none_because.as_deref(), Some("a side has no interval"));
}

/// Welch by hand: ln of (1, e², e) has mean 1 and variance 1, so se² = 1/3 a side; both sides
/// alike give df = 4 and t(0.975, 4) = 2.7764: d = 1, half = 2.7764 · √(2/3) = 2.2670.
#[test]
fn repeated_runs_give_welchs_interval() {
    let e = 1.0_f64.exp();
    let base = [1.0, e * e, e];
    let new = base.map(|x| x * e);
    let c = change_of_runs(&base, &new, Confidence::P95).unwrap();
    assert!((c.relative - (e - 1.0)).abs() < 1e-12);
    assert!((c.low.unwrap().ln_1p() - (1.0 - 2.2670)).abs() < 1e-4, "{c:?}");
    assert!((c.high.unwrap().ln_1p() - (1.0 + 2.2670)).abs() < 1e-4, "{c:?}");
}

#[test]
fn a_gate_holds_only_if_the_whole_interval_does() {
    let with = |low, high| {
        let c = change(1.0, None, 1.0, None).unwrap();
        metrics_core::compare::Change { low, high, ..c }
    };
    let cases = [
        (Some(-0.02), Some(0.04), Answer::Holds, Answer::Holds),
        (Some(-0.02), Some(0.06), Answer::Indeterminate, Answer::Holds),
        (Some(0.06), Some(0.10), Answer::Missed, Answer::Holds),
        (Some(-0.10), Some(-0.06), Answer::Holds, Answer::Missed),
        (Some(-0.10), Some(0.02), Answer::Holds, Answer::Indeterminate),
        (None, Some(0.04), Answer::Holds, Answer::Indeterminate),
        (None, None, Answer::Indeterminate, Answer::Indeterminate),
    ];
    for (low, high, lower, higher) in cases {
        assert_eq!(no_regress(&with(low, high), Better::Lower, 0.05), lower, "{low:?} {high:?}");
        assert_eq!(no_regress(&with(low, high), Better::Higher, 0.05), higher, "{low:?} {high:?}");
    }
    // A goodput that fell to nothing is a regression although it has no ratio.
    assert_eq!(gate_zero(3.0, 0.0, Better::Higher), Answer::Missed);
    assert_eq!(gate_zero(0.0, 0.0, Better::Higher), Answer::Holds);
    assert_eq!(gate_zero(0.0, 1.0, Better::Lower), Answer::Indeterminate);
}

#[test]
fn what_has_no_ratio_is_refused() {
    assert!(matches!(change(0.0, None, 1.0, None), Err(Error::NotAbove { .. })));
    assert!(matches!(change(1.0, None, f64::NAN, None), Err(Error::NotFinite { .. })));
    assert!(matches!(
        change_of_runs(&[1.0], &[1.0, 2.0], Confidence::P95),
        Err(Error::TooFew { min: 2, len: 1, .. })
    ));
}

/// Two runs whose true ratio is 1.2: the interval of the change holds it about as often as said.
/// 400 pairs at 95 %: three standard errors below 380 are 367; from above nothing is wrong.
#[test]
fn the_interval_of_a_change_covers_the_truth() {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let (mut mean, mut p90) = (0, 0);
    for _ in 0..400 {
        let mut run = |scale: f64| {
            Summary::new((0..300).map(|_| scale * (0.2 + exponential(&mut rng))).collect()).unwrap()
        };
        let (base, new) = (run(1.0), run(1.2));
        let interval = |s: &Summary| s.run().mean(Confidence::P95).ok();
        let c = change(base.mean(), interval(&base).as_ref(), new.mean(), interval(&new).as_ref())
            .unwrap();
        let holds = |c: &metrics_core::compare::Change| {
            c.low.is_none_or(|l| l <= 0.2) && c.high.is_none_or(|h| 0.2 <= h)
        };
        mean += i32::from(holds(&c));
        let interval = |s: &Summary| s.run().percentile(0.9, Confidence::P95).ok();
        let value = |s: &Summary| s.percentile(0.9).unwrap();
        let c =
            change(value(&base), interval(&base).as_ref(), value(&new), interval(&new).as_ref())
                .unwrap();
        p90 += i32::from(holds(&c));
    }
    assert!(367 <= mean, "{mean} of 400");
    assert!(367 <= p90, "{p90} of 400");
}

/// The same 300 requests, of very different length, 3 % slower with a noise of 5 % each: the pairs
/// show the change where the two intervals alone cannot, and cover it about as often as said.
#[test]
fn pairs_show_what_lengths_hide() {
    let mut rng = Pcg64Mcg::seed_from_u64(21);
    let (mut held, mut shown, mut shown_apart) = (0, 0, 0);
    for _ in 0..300 {
        let pairs: Vec<(f64, f64)> = (0..300)
            .map(|_| {
                let length = 0.1 + exponential(&mut rng);
                let noise = |rng: &mut Pcg64Mcg| 0.95 + 0.1 * rng.random::<f64>();
                (length * noise(&mut rng), 1.03 * length * noise(&mut rng))
            })
            .collect();
        let c = change_paired(&pairs, Confidence::P95).unwrap();
        held += i32::from(c.low.is_none_or(|l| l <= 0.03) && c.high.is_none_or(|h| 0.03 <= h));
        shown += i32::from(!c.may_be_none());
        let side = |of: fn(&(f64, f64)) -> f64| {
            let s = Summary::new(pairs.iter().map(of).collect()).unwrap();
            (s.mean(), s.run().mean(Confidence::P95).ok())
        };
        let ((b, bi), (n, ni)) = (side(|p| p.0), side(|p| p.1));
        shown_apart += i32::from(!change(b, bi.as_ref(), n, ni.as_ref()).unwrap().may_be_none());
    }
    assert!(273 <= held, "{held} of 300");
    assert!(280 <= shown, "{shown} of 300");
    assert!(shown_apart <= 30, "{shown_apart} of 300");
}

/// Poisson ends at 10/s over 200 s: the interval of the rate holds 10 about as often as said.
/// 300 runs at 95 %: three standard errors below 285 are 273.
#[test]
fn the_interval_of_a_rate_covers_the_truth() {
    let mut rng = Pcg64Mcg::seed_from_u64(9);
    let length = Seconds::new(200.0).unwrap();
    let (mut held, mut given) = (0, 0);
    for _ in 0..300 {
        let mut at = 0.0;
        let mut events = Vec::new();
        loop {
            at += exponential(&mut rng) / 10.0;
            if length.get() < at {
                break;
            }
            events.push((at, 1.0));
        }
        if let Ok(i) = rate_interval(&events, length, Confidence::P95) {
            given += 1;
            held += i32::from(i.contains(10.0));
        }
    }
    assert!(270 <= given, "{given} of 300 have an interval");
    assert!(f64::from(held) >= 0.91 * f64::from(given), "{held} of {given}");
}

#[test]
fn a_rate_of_few_ends_or_with_a_drift_has_no_interval() {
    let length = Seconds::new(10.0).unwrap();
    let few: Vec<(f64, f64)> = (0..50).map(|i| (f64::from(i) / 5.0, 1.0)).collect();
    let why = rate_interval(&few, length, Confidence::P95).unwrap_err();
    assert_eq!(why, "50 ends are too few for the interval of a rate, 100 needed");
    // Ends that come ever faster: i² / 1e5 has a falling gap.
    let drift: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i).sqrt() / 3.17, 1.0)).collect();
    assert!(rate_interval(&drift, length, Confidence::P95).is_err());
}

proptest! {
    /// The change back is the inverse, and so are its ends.
    #[test]
    fn the_change_back_is_the_inverse(a in 0.01..100.0_f64, b in 0.01..100.0_f64, wa in 0.0..2.0_f64, wb in 0.0..2.0_f64) {
        let ia = interval(Some(a / (1.0 + wa)), Some(a * (1.0 + wa)));
        let ib = interval(Some(b / (1.0 + wb)), Some(b * (1.0 + wb)));
        let there = change(a, Some(&ia), b, Some(&ib)).unwrap();
        let back = change(b, Some(&ib), a, Some(&ia)).unwrap();
        let close = |x: f64, y: f64| ((1.0 + x) * (1.0 + y) - 1.0).abs() < 1e-9;
        prop_assert!(close(there.relative, back.relative));
        prop_assert!(close(there.low.unwrap(), back.high.unwrap()));
        prop_assert!(close(there.high.unwrap(), back.low.unwrap()));
    }
}

/// Requests of one constant prompt length fit any load: rows that were numbered pair only where
/// prompts and answers vary alike, or where something else tells the requests apart.
#[test]
fn a_length_that_all_loads_have_pairs_nothing() {
    let run = |id: &dyn Fn(u64) -> String, lengths: &dyn Fn(u64) -> (Option<u64>, u64)| {
        let one = |i| {
            let (input, output) = lengths(i);
            RequestTimeline::new(TimelineFields {
                id: id(i),
                outcome: Outcome::Completed,
                input_tokens: input,
                output_tokens: Some(output),
                ..TimelineFields::default()
            })
            .unwrap()
        };
        (0..50).map(one).collect::<Vec<_>>()
    };
    let row = |i: u64| (i + 2).to_string();
    let named = |i: u64| format!("req-{i:x}");
    let constant = |_| (Some(512), 128);
    let outputs_vary = |i| (Some(512), 100 + i % 7);
    let both_vary = |i| (Some(300 + i % 11), 100 + i % 7);
    let same = |a: &[RequestTimeline], prompts| same_requests(a, a, prompts);
    assert!(!same(&run(&row, &constant), false));
    assert!(!same(&run(&row, &outputs_vary), false));
    assert!(!same(&run(&row, &|i| (None, 100 + i % 7)), false));
    assert!(same(&run(&row, &both_vary), false));
    assert!(same(&run(&named, &constant), false));
    assert!(same(&run(&row, &constant), true));
    // Lengths that differ are other requests, whatever else is alike.
    assert!(!same_requests(&run(&named, &constant), &run(&named, &both_vary), true));
}

/// 1e90 after 1e-300 is more than any number can say, and no infinity is printed for it.
#[test]
fn a_ratio_beyond_every_number_is_none() {
    assert!(matches!(change(1e-300, None, 1e90, None), Err(Error::NotFinite { .. })));
    let pairs = [(1e-300, 1e90), (1e-300, 2e90)];
    assert!(change_paired(&pairs, Confidence::P95).is_err());
    let wide = interval(Some(1e-300), Some(1e300));
    let c = change(1.0, Some(&wide), 1.0, Some(&wide)).unwrap();
    assert_eq!(c.high, None, "{c:?}");
    assert!(c.low.is_some_and(f64::is_finite));
}
