//! Every finding fires on a case built for it, and is silent on the cases of the others.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "it is a test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    clippy::float_cmp,
    reason = "small whole numbers, and one arm a case"
)]

use std::collections::BTreeSet;

use metrics_core::interval::{Confidence, Side, order_statistic_ranks};
use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::timeline::{GapKind, Instant, TimelineFields};
use metrics_core::validity::compare::{PerToken, definition_mismatch, regime_differs};
use metrics_core::validity::content::{TraceTiming, against_ideal, trace_timing};
use metrics_core::validity::engine::{
    batch_cap, client_against_server, demand_at_output, first_hit_rate, hot_replica,
    inflated_hit_rate, kv_blind, preemption_storm, printed_concurrency,
};
use metrics_core::validity::evidence::{
    Bound, Conservation, Ideal, Load, Rate, Server, ServerSample, Spread, Stated,
};
use metrics_core::validity::load::{W01, W02, overloaded};
use metrics_core::validity::model::{
    cost_at_full_duty, crosses_saturation, errors_cancel, gpu_utilization_as_load,
    simulation_truncated,
};
use metrics_core::validity::samples::{histogram_edge, percentile_of_percentiles, too_few_samples};
use metrics_core::validity::{
    CHECKS, Command, Evidence, Facts, Finding, Level, Subject, Verdict, find, findings,
};
use metrics_core::{Outcome, RequestTimeline};

/// Uniform numbers, the same everywhere: SplitMix64.
struct Stream(u64);

impl Stream {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

/// One request of a run as a client writes it.
#[derive(Clone)]
struct R {
    at: f64,
    ttft: f64,
    gaps: Vec<f64>,
    kind: GapKind,
    tokens: u64,
    late: Option<f64>,
    failed: bool,
}

impl R {
    fn new(at: f64, ttft: f64, gaps: Vec<f64>) -> Self {
        let tokens = gaps.len() as u64 + 1;
        Self { at, ttft, gaps, kind: GapKind::Token, tokens, late: None, failed: false }
    }

    fn timeline(&self, i: usize) -> RequestTimeline {
        let e2e = self.ttft + self.gaps.iter().sum::<f64>();
        RequestTimeline::new(TimelineFields {
            id: i.to_string(),
            arrival: Some(Instant::Seconds(self.at)),
            sent: self.late.map(|d| Instant::Seconds(self.at + d)),
            ttft: Some(self.ttft),
            e2e: Some(e2e),
            gaps: Some((self.kind, self.gaps.clone())),
            input_tokens: Some(100),
            output_tokens: Some(self.tokens),
            outcome: if self.failed { Outcome::Failed } else { Outcome::Completed },
            ..TimelineFields::default()
        })
        .unwrap()
    }
}

/// A sound open loop: 4,000 Poisson arrivals at 20/s, TTFT around 50 ms, 20 to 30 tokens at 10 ms.
fn sound() -> Vec<R> {
    let mut s = Stream(7);
    let mut at = 0.0;
    (0..4_000)
        .map(|_| {
            at += s.exponential(0.05);
            let tokens = 20 + (s.uniform() * 11.0).floor() as usize;
            let gaps = (1..tokens).map(|_| 0.010 + 0.002 * s.uniform()).collect();
            R::new(at, 0.04 + 0.02 * s.uniform(), gaps)
        })
        .collect()
}

struct Case {
    requests: Vec<R>,
    load: Load,
    slo: &'static str,
    change: fn(&mut Evidence<'_>),
    cached: Vec<Option<f64>>,
    prompts: Vec<Option<String>>,
    replicas: Vec<Option<String>>,
}

impl Case {
    fn of(requests: Vec<R>) -> Self {
        Self {
            requests,
            load: Load::open(20.0),
            slo: "",
            change: |_| {},
            cached: Vec::new(),
            prompts: Vec::new(),
            replicas: Vec::new(),
        }
    }

    fn load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    fn facts(&self) -> Facts {
        let timelines: Vec<RequestTimeline> =
            self.requests.iter().enumerate().map(|(i, r)| r.timeline(i)).collect();
        let table = RequestTable::of(&timelines);
        let slo: SloSet =
            if self.slo.is_empty() { SloSet::none() } else { self.slo.parse().unwrap() };
        let mut evidence = Evidence::of(&table, &slo);
        evidence.load = self.load;
        evidence.cached_tokens = &self.cached;
        evidence.prompts = &self.prompts;
        evidence.replicas = &self.replicas;
        (self.change)(&mut evidence);
        Facts::new(&evidence)
    }
}

/// A closed loop of `clients` that send `each` requests, one after the other, from a common start.
/// `shape` gives TTFT and number of tokens of a request.
fn closed(clients: usize, each: usize, mut shape: impl FnMut(usize) -> (f64, usize)) -> Vec<R> {
    let mut free: Vec<f64> = vec![0.0; clients];
    let mut all = Vec::new();
    for i in 0..clients * each {
        let next = (0..clients).min_by(|&a, &b| free[a].total_cmp(&free[b])).unwrap();
        let (ttft, tokens) = shape(i);
        let r = R::new(free[next], ttft, vec![0.01; tokens - 1]);
        free[next] += ttft + 0.01 * (tokens - 1) as f64;
        all.push(r);
    }
    all
}

/// A case for each finding that a report can raise from requests, named by the ids that fire.
fn cases() -> Vec<(&'static [&'static str], Case)> {
    let mut s = Stream(11);
    let mut every = |f: &mut dyn FnMut(&mut R, &mut Stream)| {
        let mut requests = sound();
        for r in &mut requests {
            f(r, &mut s);
        }
        requests
    };
    let stragglers = {
        let mut s = Stream(3);
        // 4 clients, 1,200 requests; the last of each takes 100 times as long.
        let mut requests = closed(4, 300, |_| (0.05, 20 + (s.uniform() * 11.0) as usize));
        let n = requests.len();
        requests[n - 1].gaps = vec![0.01; 6_000];
        requests[n - 1].tokens = 6_001;
        requests
    };
    let calm_closed = {
        let mut s = Stream(4);
        closed(4, 300, |_| (0.05 + 0.01 * s.uniform(), 20 + (s.uniform() * 11.0) as usize))
    };
    let overload = {
        // 20/s for 200 s where 16/s are served: the wait grows by a quarter of a second each second.
        let mut r = sound();
        for x in &mut r {
            x.ttft += 0.25 * x.at;
        }
        r
    };
    let lock_step = {
        // Waves of 8 in step, fixed length; the place in the wave is TTFT.
        (0..1_600)
            .map(|i| {
                let (wave, place) = (f64::from(i / 8), f64::from(i % 8));
                let ttft = 0.1 * (place + 1.0);
                // Whoever waited less stalls more, so that all end together after 1 s.
                let mut gaps = vec![0.01; 19];
                let rest: f64 = 0.01 * 18.0;
                gaps[0] = 1.0 - ttft - rest;
                R::new(wave, ttft, gaps)
            })
            .collect::<Vec<R>>()
    };
    let bursty = {
        let mut s = Stream(9);
        let mut at = 0.0;
        sound()
            .into_iter()
            .enumerate()
            .map(|(i, r)| {
                // Bursts of 20, then a long gap.
                at += if i % 20 == 0 { 0.8 + 0.4 * s.uniform() } else { 0.000_1 };
                R { at, ..r }
            })
            .collect::<Vec<R>>()
    };
    let few = sound().into_iter().take(700).collect::<Vec<R>>();
    let prompt = |i: usize| Some(format!("prompt {i}"));
    vec![
        (&[], Case::of(sound())),
        (&[], Case::of(calm_closed.clone()).load(Load::closed(4))),
        (&["W01", "W02"], Case::of(stragglers).load(Load::closed(4))),
        (&["W01"], Case::of(calm_closed).load(Load::closed(8))),
        (
            &["W03"],
            Case::of(every(&mut |r, _| {
                r.late = Some(0.2);
                r.ttft += 0.2;
            })),
        ),
        (&["W03"], Case::of(sound()).load(Load::open(26.0))),
        (&["W03"], Case::of(sound()).load(Load { concurrency: Some(5), ..Load::open(20.0) })),
        (&["W04"], Case::of(overload)),
        (&["W05"], Case::of(lock_step).load(Load::closed(8))),
        (
            &["W06"],
            Case::of(every(&mut |r, _| {
                let all: f64 = r.gaps.iter().sum();
                r.ttft += all;
                r.gaps.iter_mut().for_each(|g| *g = 1e-6);
            })),
        ),
        (
            &["W07"],
            Case::of(every(&mut |r, _| {
                r.kind = GapKind::Chunk;
                let chunks: Vec<f64> = r.gaps.chunks(4).map(|c| c.iter().sum()).collect();
                r.gaps = chunks;
            })),
        ),
        (
            &["W08"],
            Case::of(every(&mut |r, s| {
                // One gap in 2,500 takes two minutes.
                if s.uniform() < 0.01 {
                    r.gaps[3] = 120.0;
                }
            }))
            .load(Load::default()),
        ),
        (
            &["W09"],
            Case::of(every(&mut |r, s| {
                if s.uniform() < 0.12 {
                    r.ttft = 0.5;
                }
            })),
        ),
        (&["W10"], Case::of(few)),
        (&["W14"], Case { slo: "ttft<600ms,tpot<40ms,e2e<1s", ..Case::of(sound()) }),
        (&["W15"], Case { slo: "ttft<50ms,tpot<11ms", ..Case::of(sound()) }),
        (&["W16"], Case { slo: "ttft<0.05ms", ..Case::of(sound()) }),
        (
            &["W17"],
            Case {
                cached: vec![Some(40.0); 4_000],
                load: Load { random_prompts: Some(true), ..Load::open(20.0) },
                ..Case::of(sound())
            },
        ),
        (
            &["W17"],
            Case { prompts: (0..4_000).map(|i| prompt(i % 2_000)).collect(), ..Case::of(sound()) },
        ),
        (&[], Case { prompts: (0..4_000).map(prompt).collect(), ..Case::of(sound()) }),
        (
            &["W18"],
            Case {
                change: |e| {
                    e.server = Server {
                        preemptions: Some(9),
                        completions: Some(4_000),
                        kv_peak: Some(0.99),
                        hit_tokens: Some(90),
                        lookup_tokens: Some(300),
                        refill_hit_tokens: Some(90),
                        refill_lookup_tokens: Some(100),
                        ..Server::default()
                    };
                },
                ..Case::of(sound())
            },
        ),
        (
            &["W19"],
            Case {
                change: |e| {
                    e.server.preemptions = Some(400);
                    e.server.completions = Some(4_000);
                },
                ..Case::of(sound())
            },
        ),
        (
            &["W24"],
            Case {
                // 100 tokens in and about 25 out: the total is five times the output.
                change: |e| {
                    let total: f64 = e
                        .requests
                        .requests()
                        .map(|r| {
                            use metrics_core::table::Observed;
                            (100 + r.output_tokens().unwrap()) as f64
                        })
                        .sum();
                    e.window_s = Some(200.0);
                    e.stated.tokens_per_s = Some(total / 200.0);
                },
                ..Case::of(sound())
            },
        ),
        (
            &["W25"],
            Case {
                change: |e| {
                    e.ideal = &[Ideal {
                        subject: Subject::Tpot,
                        measured_s: 0.010,
                        bound_s: 0.014,
                        bound: Bound::Floor,
                    }];
                },
                ..Case::of(sound())
            },
        ),
        (
            &["W26"],
            Case::of(every(&mut |r, _| {
                // A chunk with the role at 5 ms, then the true first token.
                r.kind = GapKind::Chunk;
                let mut gaps = vec![r.ttft + 0.2];
                gaps.extend(r.gaps.iter());
                r.gaps = gaps;
                r.ttft = 0.005;
            })),
        ),
        (&["W27"], Case { change: |e| e.server.ttft_p50_s = Some(0.4), ..Case::of(sound()) }),
        (&["W28"], Case { change: |e| e.truncated = true, ..Case::of(sound()) }),
        (&["W31"], Case { ..Case::of(every(&mut |r, _| r.at = 3.0)) }.load(Load::open(20.0))),
        (
            &["W32"],
            Case {
                replicas: (0..4_000)
                    .map(|i| Some(if i % 10 < 8 { "a" } else { "b" }.to_owned()))
                    .collect(),
                ..Case::of(sound())
            },
        ),
        (&["W35"], Case::of(bursty).load(Load::default())),
        (&["W37"], Case::of(every(&mut |r, s| r.failed = s.uniform() < 0.1))),
        // 4,000 requests that took 200 s, in a window of 100 s.
        (&["W38"], Case { change: |e| e.window_s = Some(100.0), ..Case::of(sound()) }),
        (
            &["W39"],
            Case {
                change: |e| e.called_invalid = Some("`Result is: INVALID`"),
                ..Case::of(sound())
            },
        ),
    ]
}

/// What fires on one case beside what it is built for, as one fault has several symptoms; each with
/// its reason.
const ALONGSIDE: &[(&str, &str, &str)] = &[
    ("W03", "W04", "an arrival rate that cannot be held back looks like a burst"),
    ("W26", "W09", "the rest of the prefill is a gap of its own size"),
    ("W04", "W09", "a growing wait has its mean beside its median"),
    ("W04", "W10", "a growing wait is worth one sample"),
    ("W05", "W09", "waves have gaps of two sizes"),
    ("W05", "W10", "waves are alike"),
    ("W08", "W02", "an answer of two minutes drains for as long"),
    ("W08", "W09", "a giant stall moves the mean"),
    ("W31", "W02", "all at one instant have no steady stretch"),
    ("W31", "W04", "all at one instant are a burst"),
    ("W31", "W09", "a burst"),
    ("W35", "W02", "a burst has no usual number in flight"),
];

#[test]
fn each_finding_fires_on_its_case_and_is_silent_on_the_others() {
    let mut fired: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = String::new();
    for (i, (wanted, case)) in cases().into_iter().enumerate() {
        let found = findings(&case.facts());
        let ids: Vec<&str> = found.iter().map(|f| f.check.id).collect();
        fired.extend(wanted.iter().copied());
        let known = |id: &str| {
            wanted.contains(&id)
                || ALONGSIDE.iter().any(|(case, other, _)| wanted.contains(case) && *other == id)
        };
        let missing: Vec<&&str> = wanted.iter().filter(|w| !ids.contains(*w)).collect();
        let extra: Vec<String> = found
            .iter()
            .filter(|f| !known(f.check.id))
            .map(|f| format!("{} {}", f.check.id, f.says))
            .collect();
        if !missing.is_empty() || !extra.is_empty() {
            wrong.push_str(&format!("case {i} {wanted:?}: missing {missing:?}, extra {extra:?}\n"));
        }
        for f in &found {
            assert!(f.numbers.iter().all(|n| n.value.is_finite()), "{f:?}");
            assert!(!f.says.contains("NaN") && !f.says.contains("inf "), "{}", f.says);
            assert!(f.check.levels.contains(&f.level), "{f:?}");
            assert!(f.affects.iter().all(|s| f.check.affects.contains(s)), "{f:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // What a report raises from a file is in the matrix; the rest has its functions tested below.
    for c in CHECKS.iter().filter(|c| c.raised_by.contains(&Command::Report)) {
        assert!(fired.contains(c.id), "{} has no case", c.id);
    }
}

/// Every rule that is a plain function, in both directions.
#[test]
fn rules_of_other_commands_fire_and_are_silent() {
    let id = |f: Option<Finding>| f.map(|f| f.check.id);
    // What a report shows has its cases above.
    let mut shown: BTreeSet<&str> =
        cases().iter().flat_map(|(ids, _)| ids.iter().copied()).collect();
    let sample =
        |at_s: f64, running, waiting| ServerSample { at_s, running, waiting, kv: Some(0.99) };
    let log = |running: [u64; 3], waiting: [u64; 3]| Server {
        samples: (0..3).map(|i| sample(5.0 * i as f64, running[i], waiting[i])).collect(),
        ..Server::default()
    };
    let whole = Conservation { injected: 10, completed: 10, ..Conservation::default() };
    let beside =
        |measured_s, bound| Ideal { subject: Subject::Tpot, measured_s, bound_s: 0.0176, bound };
    let ideal = |measured_s| beside(measured_s, Bound::Floor);
    let load = |measured_s| beside(measured_s, Bound::Load);
    let closed = |mean: f64| Facts {
        load: Load::closed(8),
        output: metrics_core::validity::evidence::Lengths {
            mean: Some(mean),
            ..Default::default()
        },
        ..Facts::default()
    };
    let open = |rate: f64, answered: f64| Facts {
        load: Load { rate: Some(Rate::PerSecond(rate)), ..Load::default() },
        requests_per_s: Some(answered),
        ..Facts::default()
    };
    let at_once =
        Facts { load: Load { rate: Some(Rate::Unlimited), ..Load::default() }, ..Facts::default() };
    let prompts =
        |tokens| Facts { completed: Some(10), input_tokens: Some(tokens), ..Facts::default() };
    let trace = |t: &[Option<f64>]| trace_timing(&TraceTiming::of(t));
    let ms = TraceTiming {
        n: 100,
        distinct: 100,
        span_s: 9_900.0,
        stated_per_s: Some(10.0),
        ..TraceTiming::default()
    };
    for (wanted, fires, silent) in [
        (
            "W11",
            percentile_of_percentiles(0.99, &[0.1, 0.4]),
            percentile_of_percentiles(0.99, &[0.1]),
        ),
        (
            "W12",
            histogram_edge(0.99, 60.0, None, true, 100.0, 900.0),
            histogram_edge(0.99, 1.0, Some(1.5), false, 100.0, 90.0),
        ),
        ("W12", histogram_edge(0.99, 0.0, Some(0.3), false, 1000.0, 40.0), None),
        (
            "W13",
            definition_mismatch(PerToken::AllTokens, PerToken::AfterFirst, true),
            definition_mismatch(PerToken::AfterFirst, PerToken::AfterFirst, false),
        ),
        (
            "W19",
            preemption_storm(&log([247, 241, 233], [740, 746, 754])),
            preemption_storm(&log([247, 241, 233], [740, 741, 742])),
        ),
        (
            "W20",
            printed_concurrency(100_000, 32_768, 1_000.0),
            printed_concurrency(100_000, 1_000, 1_000.0),
        ),
        ("W21", batch_cap(64, 80.0, Some(100.0)), batch_cap(64, 40.0, Some(100.0))),
        ("W21", batch_cap(64, 40.0, Some(30.0)), None),
        ("W22", kv_blind(true, 0.16), kv_blind(true, 0.9)),
        ("W23", demand_at_output(true, 5.0, 4.0, None), demand_at_output(true, 0.0, 4.0, None)),
        (
            "W23",
            demand_at_output(false, 0.0, 1.0, Some(1.0)),
            demand_at_output(false, 0.0, 0.5, Some(1.0)),
        ),
        ("W25", against_ideal(&ideal(0.015_09)), against_ideal(&ideal(0.02))),
        ("W25", against_ideal(&ideal(0.106)), None),
        // What the load would cost in one batch is beaten by whoever waits.
        ("W25", against_ideal(&load(0.106)), against_ideal(&load(0.001))),
        ("W27", client_against_server(0.5, 0.3), client_against_server(0.33, 0.3)),
        (
            "W28",
            simulation_truncated(&Conservation { completed: 9, ..whole }),
            simulation_truncated(&whole),
        ),
        ("W28", simulation_truncated(&Conservation { completed: 9, timed_out: 1, ..whole }), None),
        ("W29", crosses_saturation(0.98, 0.05), crosses_saturation(0.8, 0.05)),
        ("W30", errors_cancel(0.05, -0.5, 0.4), errors_cancel(0.05, 0.5, 0.4)),
        ("W31", trace(&[Some(1.0), Some(0.5), None]), trace(&[Some(0.5), Some(1.0)])),
        (
            "W31",
            trace_timing(&TraceTiming { span_s: 9.9e3 * 1.0, ..ms })
                .or_else(|| trace_timing(&TraceTiming { span_s: 9_900.0, ..ms })),
            None,
        ),
        ("W32", hot_replica(&[785, 215], &[], Some(0.6)), hot_replica(&[520, 480], &[], None)),
        // The same shares of a busy fleet and of an idle one, whose ties go to the first.
        (
            "W32",
            hot_replica(&[527, 73], &[12.0, 1.5], None),
            hot_replica(&[527, 73], &[0.14, 0.02], None),
        ),
        // Many short requests on one replica and few long ones on the other are balanced.
        (
            "W32",
            hot_replica(&[400, 100], &[9.0, 3.0], None),
            hot_replica(&[400, 100], &[6.0, 6.0], None),
        ),
        ("W04", overloaded(2.39), overloaded(0.99)),
        (
            "W33",
            gpu_utilization_as_load("avg(DCGM_FI_DEV_GPU_UTIL) > 90"),
            gpu_utilization_as_load("vllm:num_requests_waiting > 0"),
        ),
        (
            "W34",
            cost_at_full_duty(None, 4_000.0, None),
            cost_at_full_duty(Some(0.5), 4_000.0, Some(400.0)),
        ),
        ("W34", cost_at_full_duty(Some(0.5), 50.0, Some(400.0)), None),
        (
            "W36",
            regime_differs(&closed(100.0), &closed(200.0)),
            regime_differs(&closed(100.0), &closed(104.0)),
        ),
        // One rate that one of the servers does not keep up with.
        (
            "W36",
            regime_differs(&open(20.0, 20.0), &open(20.0, 12.0)),
            regime_differs(&open(20.0, 20.0), &open(20.0, 19.0)),
        ),
        // A rate against everything at once.
        ("W36", regime_differs(&open(20.0, 20.0), &at_once), regime_differs(&at_once, &at_once)),
        // Prompts of 100 and of 150 tokens on average.
        (
            "W36",
            regime_differs(&prompts(1_000), &prompts(1_500)),
            regime_differs(&prompts(1_000), &prompts(1_040)),
        ),
    ] {
        assert_eq!(id(fires), Some(wanted));
        assert_eq!(id(silent), None, "{wanted}");
        shown.insert(wanted);
    }
    let untested: Vec<&str> =
        CHECKS.iter().map(|c| c.id).filter(|id| !shown.contains(id)).collect();
    assert!(untested.is_empty(), "no case shows {untested:?}");
    let storm = preemption_storm(&log([247, 241, 233], [740, 746, 754])).unwrap();
    assert!((storm.get("preemptions_per_s").unwrap() - 1.4).abs() < 1e-12); // 14 in 10 s
    assert_eq!(inflated_hit_rate(&Server::default()), None);
    assert_eq!(first_hit_rate(90, 300, 90, 100), Some(0.0));
}

/// sglang#9585: closed loop of 32, 300 requests of 4,000 in and 1,000 out in 637.27 s; summaries
/// only. L = 300 / 637.27 · 65.09 = 30.64 of 32; mean TTFT 15.51 s and (49.6 - 38.9) ms · 999 =
/// 10.69 s stalled make 26.2 s, beside a p99 of 27.44 s: a wave.
#[test]
fn the_public_run_sglang_9585_is_usable_for_throughput_and_not_for_ttft() {
    let table = RequestTable::default();
    let slo = SloSet::none();
    let mut e = Evidence::of(&table, &slo);
    e.load = Load { rate: Some(Rate::Unlimited), ..Load::closed(32) };
    e.window_s = Some(637.27);
    e.stated = Stated {
        completed: Some(300),
        failed: Some(0),
        input_tokens: Some(1_200_000),
        output_tokens: Some(300_000),
        ttft: Spread { mean: Some(15.51), p50: Some(15.83), p99: Some(27.44), ..Spread::default() },
        tpot: Spread { mean: Some(0.0496), ..Spread::default() },
        itl: Spread {
            mean: Some(0.0496),
            p50: Some(0.0389),
            p95: Some(0.0397),
            p99: Some(0.0401),
            ..Spread::default()
        },
        e2e: Spread { mean: Some(65.09), ..Spread::default() },
        ..Stated::default()
    };
    let facts = Facts::new(&e);
    let found = findings(&facts);
    let verdict = Verdict::of(&found, &facts.subjects());
    assert_eq!(verdict.is_usable_for(Subject::Throughput), Some(true), "{verdict}");
    assert_eq!(verdict.is_usable_for(Subject::Ttft), Some(false), "{verdict}");
    let levels: Vec<(&str, &str)> = found.iter().map(|f| (f.check.id, f.level.name())).collect();
    assert_eq!(
        levels,
        [("W05", "warn"), ("W08", "warn"), ("W10", "warn"), ("W01", "note"), ("W02", "note")]
    );
    assert_eq!(
        verdict.to_string(),
        "usable for throughput, TPOT, E2E and p95, not for TTFT (W05), not for ITL (W08), not for p99 (W10)"
    );
}

/// K008 and K010: 0.892 of the nominal concurrency warns, 0.99984 says nothing; and 0.69 is no run
/// at that concurrency.
#[test]
fn the_nominal_concurrency_is_judged_at_its_bounds() {
    let of = |l: f64| {
        metrics_core::validity::load::concurrency_not_reached(l, 4096, 0, 100).map(|f| f.level)
    };
    assert_eq!(of(4096.0 * 0.8919), Some(Level::Warn));
    assert_eq!(of(4096.0 * 0.9575), Some(Level::Note));
    assert_eq!((of(4095.3), of(4096.0 * 0.97)), (None, None));
    assert_eq!(of(4096.0 * 0.69), Some(Level::Error));
    // Half of the requests failed: they may have filled the rest.
    let failed = metrics_core::validity::load::concurrency_not_reached(2100.0, 4096, 50, 100);
    assert_eq!(failed, None);
    assert_eq!((W01.id, W02.id), ("W01", "W02"));
}

/// Chance bounds: n(1 - p) = 10 is enough, and p99 of 298 has no upper bound.
#[test]
fn percentiles_need_ten_samples_beyond_them() {
    let of = |n| too_few_samples(&[("TTFT", n, None)], &[0.9, 0.95, 0.99]);
    assert_eq!(of(1_000), None);
    let f = of(298).unwrap();
    assert_eq!(f.affects, [Subject::P99]);
    assert!(f.says.contains("needs 299 samples"), "{}", f.says);
    assert_eq!(of(150).unwrap().affects, [Subject::P95, Subject::P99]);
    // A thousand alike are worth fifty.
    let alike = too_few_samples(&[("TTFT", 1_000, Some(50.0))], &[0.9, 0.99]).unwrap();
    assert_eq!(alike.affects, [Subject::P90, Subject::P99]);
    // What is beyond a percentile and what bounds it are counted in what the samples are worth.
    assert_eq!(
        alike.says,
        "p90, p99 from 1000 samples of TTFT, whose neighbours are alike: worth 50 independent ones, \
         of which 0.5 beyond it; its 95 % upper bound needs 299 independent samples"
    );
    assert!((alike.get("samples_beyond").unwrap() - 10.0).abs() < 1e-12);
    assert!((alike.get("effective_samples_beyond").unwrap() - 0.5).abs() < 1e-12);
    let few = too_few_samples(&[("TTFT", 5_000, Some(500.0))], &[0.99]).unwrap();
    let ranks = order_statistic_ranks(500, 0.99, Confidence::P95, Side::Both).unwrap();
    let (low, high) = (ranks.0.unwrap(), ranks.1.unwrap());
    let says = format!(
        "5 beyond it; so many independent samples would put it between ranks {low} and {high}"
    );
    assert!(few.says.ends_with(&says), "{}", few.says);
}

#[test]
fn the_catalog_is_whole_and_in_order() {
    let ids: Vec<String> = (1..=39).map(|i| format!("W{i:02}")).collect();
    assert_eq!(CHECKS.iter().map(|c| c.id).collect::<Vec<_>>(), ids);
    let mut names = BTreeSet::new();
    for c in CHECKS {
        assert!(names.insert(c.name), "{} twice", c.name);
        assert!(c.name.chars().all(|x| x.is_ascii_lowercase() || x == '-'), "{}", c.name);
        assert!(c.levels.is_sorted() && !c.levels.is_empty() && !c.affects.is_empty(), "{}", c.id);
        for t in [c.title, c.rule, c.why, c.advice] {
            assert!(!t.en.is_empty() && !t.en.ends_with('x') || t.en.len() > 3, "{}", c.id);
            assert!(!t.zh.is_ascii(), "{}: {}", c.id, t.zh);
        }
        assert_eq!(find(&c.id.to_lowercase()).map(|x| x.id), Some(c.id));
        assert_eq!(find(c.name).map(|x| x.id), Some(c.id));
    }
    assert!(find("W40").is_none());
}

/// An empty run, one request, one token: nothing is undefined, and nothing is 0 for want of data.
#[test]
fn small_runs_have_no_figures_that_do_not_exist() {
    for requests in [vec![], vec![R::new(0.0, 0.3, vec![])], vec![R::new(0.0, 0.3, vec![]); 5]] {
        let n = requests.len();
        let facts = Case::of(requests).load(Load::closed(2)).facts();
        assert_eq!(facts.tpot, Spread::default());
        let found = findings(&facts);
        let verdict = Verdict::of(&found, &facts.subjects());
        assert_eq!(verdict.is_usable_for(Subject::Tpot), None);
        assert!(!verdict.to_string().contains("TPOT"), "{n}: {verdict}");
    }
}
