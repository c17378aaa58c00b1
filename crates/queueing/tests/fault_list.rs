//! The list of public faults, walked line by line: each has a check here, and one that is new has none
//! until somebody writes it.
//!
//! The numbers stand in the tests of `faults.rs` and `general_properties.rs` too; here the file itself
//! is what must be covered, with the class of each fault and, where it is one of simulators, what a
//! library of formulas can say about it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::too_many_lines, reason = "it is a test")]

use std::io::Write as _;
use std::path::PathBuf;

use queueing::approx::{kingman_vut, sakasegawa};
use queueing::closed::interactive_response;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::plan::{Target, min_servers};
use queueing::stability::{kv_memory_limit, memory_iterations, token_budget_limit};
use queueing::{
    ErlangA, Mg1, MmInf, Mmc, MmcK, Queue, QueueError, WaitDistribution, erlang_b, erlang_c,
    erlang_c_real,
};

fn near(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got:e} is not {want:e}");
}

fn unstable<T: std::fmt::Debug>(result: Result<T, QueueError>) -> f64 {
    match result {
        Err(QueueError::Unstable { rho }) => rho,
        other => panic!("{other:?}"),
    }
}

/// The published server: 12 ms a step, 128 and 512 tokens, in milliseconds.
fn server(max_batch: u64, max_queue: u64) -> Autoscaler {
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    Autoscaler::new(law, 128.0, 512.0, max_batch, max_queue).unwrap()
}

/// M/M/1/K next to full load, where other tools give 140.7, −140.7, 0 or 100.
fn next_to_full_load() {
    for (lambda, want) in [
        (1.0 - 1e-9, 49.999_999_15),
        (1.0 + 1e-9, 50.000_000_85),
        (1.0 - 1e-14, 49.999_999_999_991_5),
    ] {
        near(MmcK::new(lambda, 1.0, 1, 100).unwrap().l(), want, 1e-14);
    }
}

/// What is right for each fault.
fn check(id: &str) -> bool {
    match id {
        "Q01" => near(unstable(erlang_c_real(14.01, 44.34 / 1800.0 * 646.0)), 1.1358, 1e-4),
        "Q02" => {
            let law = ServingLaw::V1 { alpha: 12.0, beta: 0.05, gamma: 0.0, delta: 0.0005 };
            let error = Autoscaler::new(law, 0.0, 1.0, 48, 128).unwrap_err();
            assert_eq!(error.to_string(), "service must be above 0, got 0");
        }
        // No servers: the models that would divide by them refuse, and Erlang B loses everyone.
        "Q04" | "Q05" => {
            assert!(matches!(
                Mmc::new(1.0, 1.0, 0).map(|q| q.wq()),
                Err(QueueError::OutOfRange { name: "c", .. })
            ));
            assert_eq!(erlang_b(0, 1.0), Ok(1.0));
        }
        // Simulators: a job without an end, a change of the servers, a queue that loses its state, a
        // percentile of few samples. No formula has jobs in flight or a warm-up: a steady state never
        // has a negative service time or queue, at any load. What a percentile of three samples is,
        // metrics-core says.
        "Q07" | "Q17" => {
            for load in [0.0, 0.5, 0.999_999, 1.0, 50.0] {
                let q = MmcK::new(load * 3.0, 1.0, 3, 40).unwrap();
                assert!(0.0 <= q.lq() && 0.0 <= q.wq() && 1.0 <= q.w() - q.wq() + 1e-12);
            }
        }
        "Q08" => {
            // After a second server joined, the two jobs at the head start at once: the chain with
            // two servers has less waiting in every state than that with one.
            let (one, two) =
                (MmcK::new(0.9, 1.0, 1, 9).unwrap(), MmcK::new(0.9, 1.0, 2, 9).unwrap());
            assert!(
                two.lq() < one.lq()
                    && two.wq_quantile(0.99).unwrap() < one.wq_quantile(0.99).unwrap()
            );
        }
        "Q16" => {
            use metrics_core::summary::{PercentileMethod, percentile_by};
            let samples = [10.0, 20.0, 30.0];
            assert_eq!(percentile_by(&samples, 0.99, PercentileMethod::NearestRank), Ok(30.0));
        }
        "Q10" => {
            near(Mmc::new(1.2, 1.0, 4).unwrap().wq(), 0.013_232_050_967_9, 1e-11);
            near(Mmc::new(2.0, 1.0, 4).unwrap().wq(), 0.086_956_521_739_1, 1e-11);
        }
        // The steady state's factor knows no burst size: 1 + ρ (1 + cs²) / (2 (1 − ρ)).
        "Q11" => near(1.0 + kingman_vut(0.5, 1.0, 1.0, 1.0).unwrap(), 2.0, 1e-15),
        "Q13" => {
            near(sakasegawa(2, 1.6, 1.0, 1.0, 1.0).unwrap(), 1.809_130_68, 1e-8);
            near(Mmc::new(1.6, 1.0, 2).unwrap().wq(), 1.777_777_78, 1e-8);
        }
        "Q14" => {
            let late =
                |x: f64| erlang_c_real(x, 10.0).unwrap() * (-(x - 10.0) * 20.0 / 180.0).exp();
            near(1.0 - late(13.037_206_466_4), 0.8, 1e-10);
            let target = Target::WaitQuantile { p: 0.8, t: 20.0 };
            assert_eq!(min_servers(10.0 / 180.0, 1.0 / 180.0, &target), Ok(14));
        }
        // 0.768 of a client is no client: the response that one connection must see.
        "Q19" => near(interactive_response(1.0, 17_924.0, 0.0).unwrap(), 55.79e-6, 1e-4),
        "Q20" => {
            let tokens = token_budget_limit(512, 0.03, 1000, 250).unwrap();
            let held = memory_iterations(1000, 250, 512).unwrap();
            assert!(tokens < kv_memory_limit(1_000_000, 0.03, held).unwrap());
        }
        "Q22" => {
            for lambda in [1.0, 19.9, 20.0, 39.0, 1e6] {
                assert!(MmcK::new(lambda, 1.0, 20, 40).unwrap().utilization() <= 1.0);
            }
        }
        "Q23" => {
            assert!(erlang_c(0, 1.0).is_err());
            assert_eq!(MmInf::new(1.0, 1.0).unwrap().wq(), 0.0);
        }
        // Who leaves is lost to this visit only: served and leaving add up to the arrivals, so that a
        // retry is an arrival like any other.
        "Q25" => {
            let q = ErlangA::new(30.0, 1.0, 10, 0.5).unwrap();
            near(q.throughput() + 0.5 * q.lq(), 30.0, 1e-13);
        }
        "Q26" | "Q32" => next_to_full_load(),
        "Q28" => near(unstable(erlang_c(5, 6.0)), 1.2, 1e-15),
        "Q29" => {
            let q = Mmc::new(3.0 + 1e-14, 1.0, 4).unwrap();
            near(q.w_sf(1.0).unwrap(), 0.555_289_722_522_931_8, 1e-14);
        }
        "Q31" => near(MmcK::new(2.0, 1.0, 4, 4).unwrap().w_cdf(0.5).unwrap(), 0.393_469_34, 1e-8),
        "Q34" => {
            near(erlang_c(760, 740.0).unwrap(), 0.355_021_113_243_704_9, 1e-14);
            near(erlang_c(1000, 950.0).unwrap(), 0.068_253_415_377_141_42, 1e-14);
            let p99 = |c, a| Mmc::new(a, 1.0, c).unwrap().wq_quantile(0.99).unwrap();
            near(p99(760, 740.0), 0.178_479_608_432, 1e-11);
            near(p99(1000, 950.0), 0.038_412_847_639_5, 1e-11);
        }
        "Q35" => {
            near(erlang_c(150, 135.0).unwrap(), 0.140_308_636_103_494_3, 1e-14);
            assert_eq!(min_servers(160.0, 1.0, &Target::PWait(0.2)), Ok(174));
            near(unstable(Mg1::from_cv(1.2, 1.0, 1.0)), 1.2, 1e-15);
            assert_eq!(min_servers(2.5, 1.0, &Target::MeanWait(10.0)), Ok(3));
        }
        "Q37" => {
            let state = server(1, 0).at(0.05e-3).unwrap();
            near(state.chain.p0(), 0.760_846_938_3, 1e-10);
            near(state.throughput * 1e3, 0.038_042_346_91, 1e-9);
        }
        "Q38" => {
            let state = server(48, 128).at(3e-3).unwrap();
            near(state.wait, 21.405_387_156_7, 1e-11);
            near(state.response, 10_348.367_477_9, 1e-11);
        }
        "Q40" => {
            let (c, a) = (1_000_000_u32, 998_300.0);
            let b = (1..=c).fold(1.0, |b, k| a * b / (f64::from(k) + a * b));
            near(erlang_b(u64::from(c), a).unwrap(), b, 1e-13);
        }
        _ => return false,
    }
    true
}

/// Every id that [`check`] knows.
const IDS: [&str; 27] = [
    "Q01", "Q02", "Q04", "Q05", "Q07", "Q08", "Q10", "Q11", "Q13", "Q14", "Q16", "Q17", "Q19",
    "Q20", "Q22", "Q23", "Q25", "Q26", "Q28", "Q29", "Q31", "Q32", "Q34", "Q35", "Q37", "Q38",
    "Q40",
];

#[test]
fn every_fault_has_its_right_value_or_typed_error() {
    for id in IDS {
        assert!(check(id), "{id}");
    }
}

/// The list as it lies beside the repository has these faults and no others.
#[test]
fn the_list_has_no_fault_without_a_check() {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("cases/queueing-faults.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        let shown = path.display();
        let _ = writeln!(std::io::stderr(), "skipped: {shown} is not there");
        return;
    };
    // The id is the first value of each line.
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split("\"id\": \"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(ids, IDS);
}
