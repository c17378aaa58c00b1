//! Values that textbooks, manuals and other programs print, row by row of `published_checks.csv`.
//!
//! Each row holds what was published and the value that is right, as far as digits are printed: a
//! figure may be off by one in the last of them, since some sources cut instead of rounding. Two rows
//! are misprints, and stand here as such: P10 prints ρ^6 as P0, and P20 prints figures of a law that
//! its own source no longer has.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test's helpers fail as its tests do, and its counts are small"
)]

use std::collections::BTreeMap;

use queueing::approx::{kingman_vut, wait_factor, whitt_gim, whitt_phi};
use queueing::lps::{Autoscaler, ServerState, ServingLaw};
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::plan::{Target, max_rate, min_servers};
use queueing::{
    LpsStateDependent, Mg1Priority, Mm1, Mmc, MmcK, Queue, ServiceMoments, WaitDistribution,
    erlang_b, erlang_c,
};

/// The rows of the table: columns by name.
fn table() -> Vec<BTreeMap<String, String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/published_checks.csv");
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// A printed number and one unit of its last digit; a whole number or a fraction is exact.
fn printed(text: &str) -> (f64, f64) {
    let text = text.split_whitespace().next().unwrap();
    if let Some((above, below)) = text.split_once('/') {
        return (above.parse::<f64>().unwrap() / below.parse::<f64>().unwrap(), 0.0);
    }
    let unit = text.split_once('.').map_or(0.0, |(_, digits)| 0.1_f64.powi(digits.len() as i32));
    (text.parse().unwrap(), unit)
}

/// The parts of a cell that are numbers, up to the first that is none.
fn numbers(cell: &str) -> Vec<(f64, f64)> {
    let starts_so = |part: &str| part.trim().starts_with(|c: char| c.is_ascii_digit());
    cell.split(';').take_while(|part| starts_so(part)).map(printed).collect()
}

const HEAD: ServingLaw = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
const BEFORE: ServingLaw = ServingLaw::V2 { alpha: 12.0, beta: 0.05, gamma: 0.0005 };

fn server(law: ServingLaw, max_batch: u64) -> Autoscaler {
    Autoscaler::new(law, 128.0, 512.0, max_batch, 128).unwrap()
}

/// The server at the largest rate that keeps mean TTFT of 60 ms and mean ITL of 20 ms.
fn sized(max_batch: u64) -> ServerState {
    let server = server(HEAD, max_batch);
    server.at(server.max_rate_for_means(60.0, 20.0).unwrap()).unwrap()
}

/// P20's figures at 3 requests a second; the source ends its search at 0.999 of the largest rate.
fn solved(law: ServingLaw) -> Vec<f64> {
    let server = server(law, 48);
    let state = server.at(3e-3).unwrap();
    let most = 0.999 * server.max_rate().unwrap() * 1e3;
    vec![state.response, state.wait, state.ttft, state.itl, most]
}

/// What our models say, in the order of the row's quantities; `None` for a row without numbers.
fn ours(id: &str) -> Option<Vec<f64>> {
    let calls = |c| Mmc::new(100.0 / 1800.0, 1.0 / 180.0, c).unwrap();
    let within = Target::WaitQuantile { p: 0.8, t: 20.0 };
    Some(match id {
        "P01" => vec![max_rate(1.0, 15, &Target::Blocking(0.01)).unwrap()],
        "P02" => vec![min_servers(33.333, 1.0, &Target::Blocking(0.01)).unwrap() as f64],
        "P03" => vec![calls(14).p_wait()],
        "P04" => vec![calls(14).wq_cdf(20.0).unwrap()],
        "P05" => vec![calls(14).wq()],
        "P06" => vec![calls(11).p_wait(), calls(11).wq_cdf(20.0).unwrap()],
        "P07" => {
            let raw = min_servers(100.0 / 1800.0, 1.0 / 180.0, &within).unwrap();
            assert!(raw == 14 && calls(raw).utilization() <= 0.85);
            vec![(raw as f64 / 0.7).round()]
        }
        "P08" => {
            let q = Mm1::new(24.0, 30.0).unwrap();
            vec![q.l(), q.w(), q.p0()]
        }
        "P09" => {
            let q = Mm1::new(0.5, 1.0 / 1.5).unwrap();
            vec![q.lq(), q.wq(), q.p0()]
        }
        "P10" => {
            let q = Mm1::new(1.0, 1.0 / 0.75).unwrap();
            vec![q.lq(), q.wq(), q.w(), q.p0()]
        }
        "P11" => {
            let q = Mmc::new(300.0, 182.5, 3).unwrap();
            vec![q.lq(), q.l(), q.wq(), q.w(), q.p0()]
        }
        "P12" => {
            let q = MmcK::new(40.0, 30.0, 3, 7).unwrap();
            vec![q.p0(), q.w()]
        }
        "P13" => vec![MmcK::new(50.0, 10.0, 4, 6).unwrap().p_block()],
        "P14" => {
            let q = MmcK::new(3.0, 2.0, 2, 5).unwrap();
            vec![q.p0(), q.p_block(), q.l(), q.wq()]
        }
        "P15" => {
            let class = |lambda| PriorityClass { lambda, service: ServiceMoments::exp(1.0) };
            let queue = Mg1Priority::new(&[class(0.2), class(0.6)]).unwrap();
            queue.means(Discipline::NonPreemptive).unwrap().iter().map(|m| m.w).collect()
        }
        "P16" => {
            let shared = LpsStateDependent::new(10.0, &[12.0, 24.0, 36.0], None).unwrap();
            assert!((shared.p0() - Mmc::new(10.0, 12.0, 3).unwrap().p0()).abs() < 1e-15);
            vec![shared.p0()]
        }
        "P18" => {
            let state = sized(48);
            let most = 0.999 * server(HEAD, 48).max_rate().unwrap() * 1e3;
            let rate = state.throughput * 1e3;
            vec![rate, state.response, state.wait, state.in_service, state.ttft, state.itl, most]
        }
        "P19" => {
            let state = sized(49);
            vec![state.throughput * 1e3, state.response, state.wait, state.ttft]
        }
        "P20" => solved(BEFORE),
        "P21" => vec![wait_factor(9.0, 2.25).unwrap() / wait_factor(1.0, 2.25).unwrap()],
        "P22" => vec![1.0 + kingman_vut(0.9, 0.18, 0.0, 1.0).unwrap()],
        _ => return None,
    })
}

/// Printed figures that are wrong: row, and which of its quantities.
const MISPRINTS: [(&str, usize); 1] = [("P10", 3)];

/// Relative error that 32 bits leave in the autoscaler's figures; its wait is a small difference.
fn single_precision(id: &str, value: f64) -> f64 {
    let f32_rows = ["P18", "P19", "P20"].contains(&id);
    match (f32_rows, value < 30.0 && 10.0 < value) {
        (true, true) => 6e-5,
        (true, false) => 2e-5,
        _ => 4.0 * f64::EPSILON,
    }
}

#[test]
fn every_row_holds_or_is_a_known_misprint() {
    let rows = table();
    let mut without_numbers = Vec::new();
    for row in &rows {
        let id = row["id"].as_str();
        let Some(got) = ours(id) else {
            without_numbers.push(id);
            continue;
        };
        // The right value has its digits in full.
        let right = numbers(&row["our_value"]);
        assert_eq!(right.len(), got.len(), "{id}: {}", row["our_value"]);
        for (&got, &(want, unit)) in got.iter().zip(&right) {
            let bound = unit.max(4.0 * f64::EPSILON * want);
            assert!((got - want).abs() <= bound, "{id}: {got} is not {want} within {bound}");
        }
        let published = numbers(&row["published"]);
        assert_eq!(published.len(), got.len(), "{id}: {}", row["published"]);
        for (i, (&got, &(want, unit))) in got.iter().zip(&published).enumerate() {
            let bound = unit.max(single_precision(id, want) * want);
            let held = (got - want).abs() <= bound;
            assert_eq!(held, !MISPRINTS.contains(&(id, i)), "{id}, part {i}: {got} for {want}");
        }
    }
    // 20 values that the row does not name, and formulas: below.
    assert_eq!((rows.len(), without_numbers), (23, vec!["P17", "P23"]));
}

/// P02's neighbours at its 100 / 3 erlangs: 45 trunks keep 1 %, 44 do not.
#[test]
fn one_trunk_less_blocks_more() {
    assert!((erlang_b(45, 100.0 / 3.0).unwrap() - 0.009_654_016_9).abs() < 1e-10);
    assert!((erlang_b(44, 100.0 / 3.0).unwrap() - 0.013_159_969).abs() < 1e-9);
}

/// P10: the page's P0 of 0.178 is ρ^6, the probability of six jobs or more.
#[test]
fn the_misprint_of_p10_is_another_probability() {
    let q = Mm1::new(1.0, 1.0 / 0.75).unwrap();
    let six_or_more = 1.0 - (0..6).map(|n| q.pn(n).unwrap()).sum::<f64>();
    assert!((six_or_more - 0.178).abs() < 5e-4 && (q.p0() - 0.25).abs() < 1e-15);
}

/// P20: the README shows figures of the law before; today's law gives others.
#[test]
fn the_misprint_of_p20_is_the_law_before() {
    let row = table().into_iter().find(|row| row["id"] == "P20").unwrap();
    assert!(row["agree"].contains("HEAD NO"));
    let head = solved(HEAD);
    let (_, said) = row["our_value"].split_once("HEAD law gives ").unwrap();
    for (got, (want, unit)) in head.iter().zip(numbers(said)) {
        assert!((got - want).abs() <= unit, "{got} is not {want}");
    }
    for (got, (want, _)) in head.iter().zip(numbers(&row["published"])) {
        assert!(1e-2 < (got / want - 1.0).abs(), "{got} is {want}");
    }
}

/// P17: Erlang C at 2 to 20 servers and loads of 0.5 to 0.9, by the textbook's sum.
#[test]
fn erlang_c_is_the_sum_to_eight_digits() {
    for c in 2..=20_u64 {
        for rho in [0.5, 0.6, 0.7, 0.8, 0.9] {
            let a = rho * c as f64;
            let (mut term, mut sum) = (1.0, 0.0);
            for k in 1..=c {
                sum += term;
                term *= a / k as f64;
            }
            let waiting = term / (1.0 - rho);
            assert!((erlang_c(c, a).unwrap() - waiting / (sum + waiting)).abs() < 6e-9);
        }
    }
}

/// P23: Whitt's formula is exact for M/M/m, and has a value of its own for arrivals without spread.
#[test]
fn whitts_formula_has_its_fixed_points() {
    for (c, a) in [(1, 0.7), (3, 2.0), (20, 18.0)] {
        let exact = Mmc::new(a, 1.0, c).unwrap().wq();
        assert!((whitt_gim(c, a, 1.0, 1.0, 1.0).unwrap() / exact - 1.0).abs() < 1e-13);
        assert!((whitt_phi(c, a, 1.0, 1.0).unwrap() - 1.0).abs() < 1e-13);
    }
    // Without spread anywhere nobody waits: the factor is multiplied by (ca2 + cs2) / 2 = 0.
    assert!(whitt_gim(3, 2.0, 0.0, 0.0, 1.0).unwrap().abs() < 1e-300);
}
