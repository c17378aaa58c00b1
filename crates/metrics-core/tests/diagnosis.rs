//! Every row fires on its symptom, not beside it, and never against another.

#![allow(clippy::unwrap_used, reason = "a helper of the tests fails like a test")]

use metrics_core::alerts::Trend;
use metrics_core::diagnosis::{
    Diagnosis, Direction, Ends, Figure, Latency, Observations, Operand, Peak, ROWS, Tolerance,
    Upper, diagnose,
};
use metrics_core::metric::Language;
use metrics_core::units::{
    Bytes, FlopPerByte, Quantity, Requests, Seconds, SecondsPerToken, Tokens, TokensPerSecond,
};
use proptest::prelude::*;

fn q<Q: TryFrom<f64>>(x: f64) -> Option<Q> {
    Q::try_from(x).ok()
}

fn latency<Q: TryFrom<f64>>(p50: f64, p99: f64, slo: f64) -> Latency<Q> {
    Latency {
        p50: q(p50),
        p99: q(p99),
        baseline_p50: q(p50),
        baseline_p99: q(p99),
        slo: q(slo),
        to: Ends::exact(),
    }
}

fn figure<Q: TryFrom<f64>>(x: f64) -> Figure<Q> {
    Figure { current: q(x), baseline: q(x) }
}

fn peak<Q: TryFrom<f64>>(x: f64) -> Peak<Q> {
    Peak { peak: q(x), mean: q(x) }
}

fn trend(p_value: f64) -> Trend {
    Trend { n: 60, slope: 0.5, p_value, begins: 2.0, ends: 9.0 }
}

/// A service in good health with everything observed, no figure near a limit.
fn healthy() -> Observations {
    Observations {
        ttft: latency(0.1, 0.15, 0.2),
        tpot: latency(0.02, 0.03, 0.05),
        e2e: latency(2.0, 4.0, 10.0),
        queue_depth: figure(2.0),
        queue_trend: Some(trend(0.5)),
        queue_wait: figure(0.01),
        queue_share: Some(0.1),
        prompt_tokens: figure(500.0),
        prefill_decode_ratio: figure(2.5),
        batch_utilization: Some(0.6),
        kv_utilization: Some(0.5),
        gpu_utilization: Some(0.7),
        arithmetic_intensity: q(100.0),
        ridge_point: q(150.0),
        kv_step_bytes: figure(1e9),
        kv_scan_share: Some(0.3),
        tpot_by_context: Some(trend(0.5)),
        kv_hit_rate: figure(0.3),
        refill_rate: Some(0.01),
        reload_share: Some(0.02),
        preemptions: Some(0.001),
        send_delay: Some(0.01),
        eviction_rate: peak(1.0),
        communication_time: peak(0.001),
        token_throughput: figure(1_000.0),
        goodput_ratio: Some(0.99),
        rho: Some(0.6),
    }
}

type Change = fn(&mut Observations);

/// For each row: what makes a healthy service fire it, and what of that taken back silences it.
const CASES: &[(&str, Change, Change)] = &[
    (
        "tpot_up",
        |o| {
            o.tpot.p50 = q(0.0221);
            o.batch_utilization = Some(0.86);
        },
        // A tenth more is not above a tenth more.
        |o| o.tpot.p50 = q(0.022),
    ),
    (
        "ttft_up",
        |o| {
            o.ttft.p50 = q(0.12);
            o.queue_depth.current = q(3.0);
            o.batch_utilization = Some(0.9);
        },
        // Places are free, so the decodes do not squeeze anything.
        |o| o.batch_utilization = Some(0.85),
    ),
    (
        "throughput_high_ttft_bad",
        |o| {
            o.ttft.p99 = q(0.3);
            o.prefill_decode_ratio.current = q(2.0);
        },
        |o| o.token_throughput.current = q(800.0),
    ),
    (
        "hit_rate_up_tpot_bad",
        |o| {
            o.kv_hit_rate.current = Some(0.5);
            o.tpot.p50 = q(0.021);
            o.tpot.p99 = q(0.06);
            o.refill_rate = Some(0.06);
        },
        |o| o.refill_rate = Some(0.05),
    ),
    (
        "p99_jitter",
        |o| {
            o.tpot.p99 = q(0.045);
            o.eviction_rate.peak = q(3.5);
        },
        |o| o.eviction_rate.peak = q(3.0),
    ),
    (
        "gpu_low_tpot_high",
        |o| {
            o.tpot.p50 = q(0.04);
            o.tpot.p99 = q(0.06);
            o.gpu_utilization = Some(0.3);
        },
        // At the ridge point it is not memory-bound.
        |o| o.arithmetic_intensity = q(150.0),
    ),
    (
        "queue_grows",
        |o| {
            o.queue_trend = Some(trend(0.001));
            o.rho = Some(1.05);
        },
        |o| o.queue_trend = Some(trend(0.01)),
    ),
    (
        "e2e_jitters",
        |o| {
            o.e2e.p99 = q(6.0);
            o.queue_wait.current = q(0.02);
        },
        |o| o.queue_wait.current = q(0.01),
    ),
    (
        "ttft_high_tpot_stable",
        |o| {
            o.ttft.p99 = q(0.3);
            o.queue_share = Some(0.6);
        },
        |o| o.tpot.p50 = q(0.025),
    ),
    (
        "tpot_grows_with_context",
        |o| {
            o.tpot_by_context = Some(trend(1e-6));
            o.kv_scan_share = Some(0.6);
        },
        |o| o.ttft.p50 = q(0.13),
    ),
    (
        "throughput_high_goodput_low",
        |o| o.goodput_ratio = Some(0.6),
        |o| o.goodput_ratio = Some(0.9),
    ),
    (
        "batch_high_e2e_high",
        |o| {
            o.batch_utilization = Some(0.95);
            o.e2e.p99 = q(12.0);
        },
        |o| o.batch_utilization = Some(0.85),
    ),
    ("client_limited", |o| o.send_delay = Some(0.11), |o| o.send_delay = Some(0.1)),
    ("preempted", |o| o.preemptions = Some(0.011), |o| o.preemptions = Some(0.01)),
];

fn ask(o: &Observations) -> Diagnosis {
    diagnose(o, &Tolerance::default()).unwrap()
}

fn fired(d: &Diagnosis) -> Vec<&'static str> {
    d.verdicts.iter().map(|v| v.row.id).collect()
}

#[test]
fn a_healthy_service_has_every_row_ruled_out() {
    let d = ask(&healthy());
    assert_eq!(d.ruled_out.len(), ROWS.len(), "{d:?}");
    assert!(d.ruled_out.iter().all(|r| !r.by.is_empty()));
}

#[test]
fn nothing_observed_leaves_every_row_undecided() {
    let d = ask(&Observations::default());
    assert_eq!(d.undecided.len(), ROWS.len(), "{d:?}");
    assert!(d.undecided.iter().all(|u| !u.missing.is_empty()));
}

#[test]
fn every_row_fires_on_its_symptom_and_not_beside_it() {
    assert_eq!(
        CASES.iter().map(|c| c.0).collect::<Vec<_>>(),
        ROWS.iter().map(|r| r.id).collect::<Vec<_>>()
    );
    for (id, symptom, take_back) in CASES {
        let mut o = healthy();
        symptom(&mut o);
        let d = ask(&o);
        assert!(fired(&d).contains(id), "{id} should fire: {d:?}");
        take_back(&mut o);
        let d = ask(&o);
        assert!(d.ruled_out.iter().any(|r| r.row.id == *id), "{id} should be ruled out: {d:?}");
    }
}

/// Two remedies of the same symptom, told apart by whether the batch has room.
#[test]
fn a_full_batch_gets_smaller_and_an_empty_one_larger() {
    let mut o = healthy();
    o.tpot.p50 = q(0.04);
    o.tpot.p99 = q(0.06);
    o.gpu_utilization = Some(0.3);
    assert_eq!(fired(&ask(&o)), ["gpu_low_tpot_high"]);
    o.kv_utilization = Some(0.95);
    let d = ask(&o);
    assert_eq!(fired(&d), ["tpot_up"]);
    let other = d.ruled_out.iter().find(|r| r.row.id == "gpu_low_tpot_high").unwrap();
    assert_eq!(
        other.by[0].in_language(Language::En).to_string(),
        "KV-cache utilization 0.95 > 0.8 (level)"
    );
}

/// A bucket of 0.25 to 0.5 s decides an SLO on either side of it, and none within.
#[test]
fn a_range_decides_unless_the_bound_lies_in_it() {
    let say = |slo: f64| {
        let mut o = healthy();
        o.queue_share = Some(0.6);
        o.ttft.p99 = q(0.25);
        o.ttft.to.p99 = Upper::At(q(0.5).unwrap());
        o.ttft.slo = q(slo);
        let d = ask(&o);
        let by_id = |id: &str| id == "ttft_high_tpot_stable";
        let fires = d.verdicts.iter().find(|v| by_id(v.row.id)).map(|v| v.decided_by[0]);
        let not = d.ruled_out.iter().find(|r| by_id(r.row.id)).map(|r| r.by[0]);
        let open = d.undecided.iter().find(|u| by_id(u.row.id)).map(|u| u.missing[0]);
        let evidence = fires.or(not).map(|e| e.in_language(Language::En).to_string());
        evidence.or(open.map(|m| m.in_language(Language::En).to_string())).unwrap()
    };
    assert_eq!(say(0.2), "TTFT P99 in 0.25..0.5 s > 0.2 s (SLO)");
    assert_eq!(say(0.5), "TTFT P99 in 0.25..0.5 s ≤ 0.5 s (SLO)");
    assert_eq!(say(0.3), "the exact value of TTFT P99, whose bucket holds the bound");
}

/// P50 in 10 to 20 ms and P99 in 30 to 40 ms: the tail is 1.5 to 4, so 2 cannot be told; with P99
/// in 80 to 90 ms it is 4 to 9. Beyond the last bucket it has no upper end.
#[test]
fn a_tail_of_two_ranges_is_a_range() {
    let of = |p99: f64, to: Upper<SecondsPerToken>| {
        let mut o = healthy();
        o.eviction_rate.peak = q(3.5);
        o.tpot.p50 = q(0.01);
        o.tpot.to.p50 = Upper::At(q(0.02).unwrap());
        o.tpot.p99 = q(p99);
        o.tpot.to.p99 = to;
        let d = ask(&o);
        d.verdicts
            .iter()
            .find(|v| v.row.id == "p99_jitter")
            .map(|v| v.decided_by[0].in_language(Language::En).to_string())
    };
    assert_eq!(of(0.03, Upper::At(q(0.04).unwrap())), None);
    assert_eq!(of(0.08, Upper::At(q(0.09).unwrap())).unwrap(), "TPOT P99/P50 in 4..9 > 2 (level)");
    assert_eq!(of(0.08, Upper::Open).unwrap(), "TPOT P99/P50 beyond 4 > 2 (level)");
}

/// A queue that grows while ρ is low is held back by something else than capacity; a ρ that nobody
/// measured does not stand in the way.
#[test]
fn a_low_rho_rules_capacity_out_and_an_unknown_one_does_not() {
    let mut o = healthy();
    o.queue_trend = Some(trend(0.001));
    assert!(!fired(&ask(&o)).contains(&"queue_grows"));
    o.rho = None;
    assert_eq!(fired(&ask(&o)), ["queue_grows"]);
}

/// A queue that was empty and holds half a request is not up.
#[test]
fn a_queue_below_one_request_is_never_up() {
    let mut o = healthy();
    o.ttft.p50 = q(0.12);
    o.batch_utilization = Some(0.9);
    o.queue_depth = Figure { current: q(0.5), baseline: q(0.01) };
    let d = ask(&o);
    let row = d.ruled_out.iter().find(|r| r.row.id == "ttft_up").unwrap();
    assert_eq!(
        row.by[0].in_language(Language::En).to_string(),
        "queue depth 0.5 request ≤ 1 request (smallest that counts)"
    );
}

/// Without a baseline TPOT is stable if its P99 is within the SLO; without either, nobody knows.
#[test]
fn stable_needs_a_baseline_or_an_slo() {
    let mut o = healthy();
    o.ttft.p99 = q(0.3);
    o.queue_share = Some(0.6);
    o.tpot.baseline_p50 = None;
    assert!(fired(&ask(&o)).contains(&"ttft_high_tpot_stable"));
    o.tpot.slo = None;
    let d = ask(&o);
    let row = d.undecided.iter().find(|u| u.row.id == "ttft_high_tpot_stable").unwrap();
    let say = |l| row.missing.iter().map(|m| m.in_language(l).to_string()).collect::<Vec<_>>();
    assert_eq!(say(Language::En), ["the baseline of TPOT P50", "the SLO of TPOT P99"]);
    assert_eq!(say(Language::Zh), ["TPOT P50 的基线", "TPOT P99 的 SLO"]);
}

/// Several rows at once: overload is read first.
#[test]
fn verdicts_come_in_order_of_precedence_with_their_numbers() {
    let mut o = healthy();
    o.batch_utilization = Some(0.95);
    o.e2e.p99 = q(12.0);
    o.goodput_ratio = Some(0.5);
    o.queue_trend = Some(trend(0.000_02));
    o.rho = None;
    o.queue_wait.current = q(0.5);
    let d = ask(&o);
    let mut lines = Vec::new();
    for v in &d.verdicts {
        lines.push(v.row.id.to_owned());
        lines.extend(v.decided_by.iter().map(|e| format!("  {}", e.in_language(Language::En))));
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    queue_grows
      queue depth over time keeps growing (p = 2e-5, 60 samples)
    batch_high_e2e_high
      batch utilization 0.95 > 0.85 (level)
      E2E P99 12 s > 10 s (SLO)
    throughput_high_goodput_low
      token throughput 1000 token/s ≥ 909.1 token/s (baseline 1000 / 1.1)
      goodput ratio 0.5 < 0.9 (level)
    e2e_jitters
      E2E P99/P50 6 > 2.2 (1.1 × baseline 2)
      mean wait in the queue 0.5 s > 0.011 s (1.1 × baseline 0.01)
    ");
    let zh = |i: usize| d.verdicts[i].decided_by[0].in_language(Language::Zh).to_string();
    assert_eq!(zh(0), "队列深度的变化：持续增长（p = 2e-5，60 个样本）");
    assert_eq!(zh(3), "E2E P99/P50 6 > 2.2（1.1 × 基线 2）");
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let say = |change: Change| {
        let mut o = healthy();
        change(&mut o);
        diagnose(&o, &Tolerance::default()).unwrap_err().to_string()
    };
    assert_eq!(
        say(|o| o.batch_utilization = Some(1.5)),
        "batch_utilization must be at most 1, got 1.5"
    );
    assert_eq!(say(|o| o.rho = Some(f64::NAN)), "rho must be a finite number, got NaN");
    assert_eq!(
        say(|o| o.tpot.p99 = q(0.01)),
        "TPOT P99 must be at least TPOT P50 = 0.02, got 0.01"
    );
    assert_eq!(say(|o| o.ttft.slo = q(0.0)), "TTFT SLO must be above 0, got 0");
    assert_eq!(
        say(|o| o.eviction_rate.peak = q(0.5)),
        "peak eviction_rate must be at least its mean = 1, got 0.5"
    );
    let bad = Tolerance { up: 0.9, ..Tolerance::default() };
    assert_eq!(
        diagnose(&healthy(), &bad).unwrap_err().to_string(),
        "up must be at least 1, got 0.9"
    );
}

#[test]
fn rows_operands_and_thresholds_are_told_apart() {
    let mut precedence: Vec<_> = ROWS.iter().map(|r| r.precedence).collect();
    precedence.sort_unstable();
    assert_eq!(precedence, (1..=14).collect::<Vec<u8>>());
    let mut ids: Vec<_> = Operand::ALL.iter().map(|o| o.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Operand::ALL.len());
    let asked: Vec<_> = ROWS.iter().flat_map(|r| r.evidence()).collect();
    assert!(Operand::ALL.iter().all(|o| asked.contains(o)), "an operand that no row asks for");
    #[cfg(feature = "catalog")]
    for t in metrics_core::alerts::THRESHOLDS {
        let known = ids.contains(&t.metric) || metrics_core::catalog::find(t.metric).is_some();
        assert!(known, "{}: neither a metric nor an operand", t.metric);
    }
    let words = ROWS.iter().flat_map(|r| [r.symptom, r.look_first, r.cause, r.action]);
    for w in words.chain(Operand::ALL.iter().map(|o| o.name())) {
        assert!(!w.en.is_empty() && !w.zh.is_empty(), "{w:?}");
        assert!(!w.zh.contains("令牌"), "{}: a token stays a token", w.zh);
    }
}

/// The property on opposite advice rests on these marks.
#[test]
fn actions_that_change_the_batch_are_marked_so() {
    let rows = |x| ROWS.iter().filter(|r| r.batch == x).map(|r| r.id).collect::<Vec<_>>();
    assert_eq!(rows(Direction::Smaller), ["tpot_up", "p99_jitter", "preempted"]);
    assert_eq!(rows(Direction::Larger), ["gpu_low_tpot_high"]);
}

/// When a row fires is printed from the conditions themselves.
#[test]
fn a_row_says_when_it_fires_in_both_languages() {
    let say = |id: &str, l| {
        let row = ROWS.iter().find(|r| r.id == id).unwrap();
        row.in_language(Tolerance::default(), l).to_string()
    };
    insta::assert_snapshot!([
        say("tpot_up", Language::En),
        say("tpot_up", Language::Zh),
        say("gpu_low_tpot_high", Language::En),
        say("p99_jitter", Language::En),
        say("ttft_high_tpot_stable", Language::Zh),
        say("queue_grows", Language::En),
    ].join("\n"), @"
    TPOT P50 > 1.1 × baseline and (batch utilization > 0.85 or KV-cache utilization > 0.8), unless arithmetic intensity ≥ ridge point
    TPOT P50 > 1.1 × 基线 且 (batch 利用率 > 0.85 或 KV Cache 利用率 > 0.8)，除非 算术强度 ≥ 脊点
    TPOT P99 > SLO and GPU utilization < 0.5 and arithmetic intensity < ridge point and batch utilization ≤ 0.85 and KV-cache utilization ≤ 0.8 and TPOT P99/P50 ≤ 2, unless preemptions per request > 0.01
    TPOT P99/P50 > 2 and (evictions peak > 3 × mean or communication time peak > 3 × mean)
    TTFT P99 > SLO 且 TPOT P50 稳定 且 (TTFT 中的排队占比 > 0.5 或 平均 prompt 长度 > 1.1 × 基线)
    queue depth over time keeps growing, unless utilization ρ ≤ 0.8
    ");
}

/// The levels that alerts and tree share stand once.
#[test]
fn the_tree_takes_its_levels_from_the_alerts() {
    let t = Tolerance::default();
    assert_eq!(metrics_core::alerts::KV_UTILIZATION.warn.number(), Some(t.kv));
    assert_eq!(metrics_core::alerts::REFILL_RATE.warn.number(), Some(t.refill));
}

/// A value around 1, so that ratios fall on both sides of every tolerance; often unknown.
fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        1 => Just(None),
        3 => prop_oneof![Just(0.5), Just(0.8), Just(1.0), 0.01..4.0_f64].prop_map(Some),
    ]
}

/// Observations from a list of values, each of which is drawn on its own.
fn observations() -> impl Strategy<Value = Observations> {
    let trends = prop::option::of(prop_oneof![Just(0.001), Just(0.5)]);
    (prop::collection::vec(value(), 62), trends.clone(), trends).prop_map(|(values, a, b)| {
        let mut values = values.into_iter().cycle();
        let mut next = move || values.next().flatten();
        build(&mut next, a.map(trend), b.map(trend))
    })
}

fn build(
    next: &mut impl FnMut() -> Option<f64>,
    queue_trend: Option<Trend>,
    tpot_by_context: Option<Trend>,
) -> Observations {
    fn typed<Q: Quantity + TryFrom<f64>>(x: Option<f64>) -> Option<Q> {
        x.and_then(q)
    }
    /// The smaller one and the larger one, as a median and a P99 are.
    fn ordered(a: Option<f64>, b: Option<f64>) -> (Option<f64>, Option<f64>) {
        match (a, b) {
            (Some(a), Some(b)) => (Some(a.min(b)), Some(a.max(b))),
            other => other,
        }
    }
    fn latency<Q: Quantity + TryFrom<f64>>(next: &mut impl FnMut() -> Option<f64>) -> Latency<Q> {
        let (p50, p99) = ordered(next(), next());
        let (b50, b99) = ordered(next(), next());
        Latency {
            p50: typed(p50),
            p99: typed(p99),
            baseline_p50: typed(b50),
            baseline_p99: typed(b99),
            slo: typed(next()),
            to: Ends {
                p50: upper(p50, next()),
                p99: upper(p99, next()),
                baseline_p50: upper(b50, next()),
                baseline_p99: upper(b99, next()),
            },
        }
    }
    /// A range in some of the cases, without an end in a few.
    fn upper<Q: Quantity + TryFrom<f64>>(low: Option<f64>, width: Option<f64>) -> Upper<Q> {
        match (low, width) {
            (Some(_), Some(width)) if 3.0 < width => Upper::Open,
            (Some(low), Some(width)) if 1.0 < width => {
                typed(Some(low * width)).map_or(Upper::Exact, Upper::At)
            }
            _ => Upper::Exact,
        }
    }
    fn figure<Q: Quantity + TryFrom<f64>>(next: &mut impl FnMut() -> Option<f64>) -> Figure<Q> {
        Figure { current: typed(next()), baseline: typed(next()) }
    }
    fn peak<Q: Quantity + TryFrom<f64>>(next: &mut impl FnMut() -> Option<f64>) -> Peak<Q> {
        let (mean, peak) = ordered(next(), next().map(|x| x * x));
        Peak { peak: typed(peak), mean: typed(mean) }
    }
    fn share(next: &mut impl FnMut() -> Option<f64>) -> Option<f64> {
        next().map(|x| (x / 1.1).min(1.0))
    }
    Observations {
        ttft: latency::<Seconds>(next),
        tpot: latency::<SecondsPerToken>(next),
        e2e: latency::<Seconds>(next),
        queue_depth: figure::<Requests>(next),
        queue_trend,
        queue_wait: figure::<Seconds>(next),
        queue_share: share(next),
        prompt_tokens: figure::<Tokens>(next),
        prefill_decode_ratio: figure::<f64>(next),
        batch_utilization: share(next),
        kv_utilization: share(next),
        gpu_utilization: share(next),
        arithmetic_intensity: typed::<FlopPerByte>(next()),
        ridge_point: typed::<FlopPerByte>(next()),
        kv_step_bytes: figure::<Bytes>(next),
        kv_scan_share: share(next),
        tpot_by_context,
        kv_hit_rate: Figure { current: share(next), baseline: share(next) },
        refill_rate: share(next),
        reload_share: share(next),
        preemptions: next().map(|x| x / 100.0),
        send_delay: next().map(|x| x / 10.0),
        eviction_rate: peak::<f64>(next),
        communication_time: peak::<Seconds>(next),
        token_throughput: figure::<TokensPerSecond>(next),
        goodput_ratio: share(next),
        rho: next(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Rows that fire together never want both a smaller and a larger batch, and while one says to
    /// judge overload before adding batch, none adds.
    #[test]
    fn no_observations_give_opposite_advice(o in observations()) {
        let d = ask(&o);
        let wants = |x| d.verdicts.iter().any(|v| v.row.batch == x);
        prop_assert!(!(wants(Direction::Smaller) && wants(Direction::Larger)), "{:?}", fired(&d));
        let backlog = fired(&d).contains(&"batch_high_e2e_high");
        prop_assert!(!(backlog && wants(Direction::Larger)), "{:?}", fired(&d));
    }

    /// Each row is in exactly one list, in order, with its reasons.
    #[test]
    fn every_row_gets_one_answer_with_reasons(o in observations()) {
        let d = ask(&o);
        let lists = [
            d.verdicts.iter().map(|v| (v.row.precedence, v.decided_by.len())).collect::<Vec<_>>(),
            d.ruled_out.iter().map(|r| (r.row.precedence, r.by.len())).collect(),
            d.undecided.iter().map(|u| (u.row.precedence, u.missing.len())).collect(),
        ];
        for list in &lists {
            prop_assert!(list.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(list.iter().all(|&(_, reasons)| 0 < reasons));
        }
        prop_assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), ROWS.len());
    }

    /// Knowing more never turns a verdict around, except through a condition that need not be
    /// known: what fires on part of the facts fires on all of them.
    #[test]
    fn a_verdict_stands_when_more_is_observed(o in observations(), blank in 0_usize..8) {
        let mut less = o;
        match blank {
            0 => less.ttft = Latency::default(),
            1 => less.tpot.slo = None,
            2 => less.batch_utilization = None,
            3 => less.kv_utilization = None,
            4 => less.gpu_utilization = None,
            5 => less.e2e.baseline_p50 = None,
            6 => less.refill_rate = None,
            _ => less.token_throughput = Figure::default(),
        }
        let (part, whole) = (ask(&less), ask(&o));
        // Stable is the one test that a second reference can overturn, by what it says.
        let stable = ["ttft_high_tpot_stable", "tpot_grows_with_context"];
        for id in fired(&part).iter().filter(|id| !stable.contains(id)) {
            prop_assert!(fired(&whole).contains(id), "{id} fires only while less is known");
        }
        for r in &part.ruled_out {
            prop_assert!(!fired(&whole).contains(&r.row.id), "{} was ruled out on less", r.row.id);
        }
    }
}

/// The property above says something only if both directions do fire on drawn observations.
#[test]
fn drawn_observations_reach_both_directions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let o = observations().new_tree(&mut runner).unwrap().current();
        seen.extend(fired(&ask(&o)));
    }
    assert_eq!(seen.len(), ROWS.len(), "{seen:?}");
}
