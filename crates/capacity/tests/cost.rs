//! Costs against published figures: each case has its source in the name.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use capacity::cost::{CostRequest, cost};

fn request(price_per_h: f64, output_tokens_per_s: f64) -> CostRequest {
    CostRequest { price_per_h, output_tokens_per_s, ..CostRequest::default() }
}

/// K065, K067 and K068, gmicloud.ai: 2.00 an hour at 85, 120 and 400 tokens a second.
/// 2 / (85 * 3600) * 10^6 = 6.536, and so on.
#[test]
fn published_costs_of_gmicloud_are_met() {
    for (rate, published) in [(85.0, 6.54), (120.0, 4.63), (400.0, 1.39)] {
        let answer = cost(&request(2.0, rate)).unwrap();
        let off = answer.full.per_million_output / published - 1.0;
        assert!(off.abs() < 0.005, "{rate}: {off}");
    }
}

/// K064, peakinfer.com: 2.50 an hour at 50 tokens a second is said to be 0.14 per million; the formula of
/// the page gives 2.5 / 180,000 * 10^6 = 13.89, a hundred times as much.
#[test]
fn the_published_cost_that_is_a_hundred_times_too_low_is_flagged() {
    let asked = CostRequest { claimed_per_token: Some(0.14e-6), ..request(2.5, 50.0) };
    let answer = cost(&asked).unwrap();
    assert!((answer.full.per_million_output - 13.89).abs() < 0.005);
    let claim = answer.claim.unwrap();
    assert!(claim.impossible && (claim.too_low_by - 99.2).abs() < 0.05, "{claim:?}");
    assert_eq!(answer.finding().unwrap().check.id, "W34");
}

/// A claim may be above the bound: it then names the utilization at which it holds.
#[test]
fn a_claim_above_the_bound_is_possible() {
    let asked = CostRequest { claimed_per_token: Some(20e-6), ..request(3.6, 100.0) };
    // 3.6 an hour over 360,000 tokens is 10 per million: 20 is half of the hours.
    let claim = cost(&asked).unwrap().claim.unwrap();
    assert!(!claim.impossible && (claim.too_low_by - 0.5).abs() < 1e-12);
}

/// 3.60 an hour is 0.001 a second. 100 tokens out and 400 in a second at full load: 10 per million
/// out, 2 per million of all; at a quarter of the load, four times as much.
#[test]
fn idle_hours_are_paid() {
    let answer = cost(&CostRequest {
        input_tokens_per_s: Some(400.0),
        utilization: Some(0.25),
        slo_output_tokens_per_s: Some(50.0),
        input_weight: Some(0.25),
        ..request(3.6, 100.0)
    })
    .unwrap();
    assert!((answer.full.per_million_output - 10.0).abs() < 1e-9);
    assert!((answer.full.per_million_tokens.unwrap() - 2.0).abs() < 1e-9);
    assert!((answer.real.unwrap().per_million_output - 40.0).abs() < 1e-9);
    assert!((answer.at_slo.unwrap().per_million_output - 20.0).abs() < 1e-9);
    // 100 + 400 / 4 tokens bear it: 5 per million out, 1.25 in, and together they pay the hour.
    let w = answer.full.weighted.unwrap();
    assert!((w.per_million_output - 5.0).abs() < 1e-9 && (w.per_million_input - 1.25).abs() < 1e-9);
    let paid = w.per_million_output * 100.0 + w.per_million_input * 400.0;
    assert!((paid * 3600.0 / 1e6 - 3.6).abs() < 1e-9);
    assert!(answer.finding().is_none());
}

/// An API at 10 per million out, no input: 0.001 a second buys 100 tokens of it.
#[test]
fn the_break_even_is_where_both_cost_the_same() {
    let asked = |full, slo| CostRequest {
        api_output_per_token: Some(10e-6),
        slo_output_tokens_per_s: slo,
        ..request(3.6, full)
    };
    let even = cost(&asked(400.0, None)).unwrap().break_even.unwrap();
    assert!((even.output_tokens_per_s - 100.0).abs() < 1e-9 && even.reachable);
    assert!((even.utilization - 0.25).abs() < 1e-12);
    assert!(!cost(&asked(50.0, None)).unwrap().break_even.unwrap().reachable);
    // Above the limit of the SLO it does not help that the machine could do more.
    assert!(!cost(&asked(400.0, Some(90.0))).unwrap().break_even.unwrap().reachable);
}

#[test]
fn what_costs_nothing_or_cannot_be_is_refused() {
    let said = |r: &CostRequest| cost(r).unwrap_err().to_string();
    assert_eq!(
        said(&request(0.0, 50.0)),
        "price must be above 0.0001 and at most 1000000/h, got 0"
    );
    assert_eq!(
        said(&request(1e9, 50.0)),
        "price must be above 0.0001 and at most 1000000/h, got 1000000000"
    );
    assert_eq!(
        said(&request(f64::NAN, 50.0)),
        "price must be above 0.0001 and at most 1000000/h, got NaN"
    );
    assert!(said(&request(2.0, 0.0)).starts_with("output rate must be above 0"));
    let over = CostRequest { utilization: Some(1.5), ..request(2.0, 50.0) };
    assert_eq!(said(&over), "utilization must be above 0 and at most 1, got 1.5");
    let weight = CostRequest { input_weight: Some(0.5), ..request(2.0, 50.0) };
    assert!(said(&weight).starts_with("input rate: "));
    let slo = CostRequest { slo_output_tokens_per_s: Some(60.0), ..request(2.0, 50.0) };
    assert!(said(&slo).contains("at most the output rate at full load, 50 tokens/s, got 60"));
}
