//! Catalog and code say the same.
#![cfg(feature = "catalog")]

#[path = "../../metrics-core/tests/common/catalog_check.rs"]
mod catalog_check;

use queueing::catalog::{find, metrics};

#[test]
fn every_entry_is_sound() {
    none(&catalog_check::unsound_entries(metrics()));
}

#[test]
fn examples_are_what_function_and_formula_give() {
    none(&catalog_check::wrong_examples(metrics()));
}

#[test]
fn functions_and_formulas_have_the_unit_of_their_entry() {
    none(&catalog_check::wrong_units(metrics()));
}

/// Wherever a function has a value, its formula text gives the same one, in every branch.
#[test]
fn functions_equal_their_formulas() {
    none(&catalog_check::functions_unlike_their_text(metrics()));
}

#[test]
fn laws_are_what_their_examples_and_tests_say() {
    none(&catalog_check::wrong_laws(metrics(), env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn no_input_gives_nan_infinity_or_a_panic() {
    none(&catalog_check::partial_functions(metrics()));
}

/// The laws that a user of the crate is promised, each findable by its id.
#[test]
fn the_promised_laws_are_listed() {
    for id in [
        "little_l",
        "little_lambda",
        "little_w",
        "mu_from_demand",
        "rho_from_demand",
        "offered_load",
        "utilization",
        "erlang_b",
        "erlang_c",
        "mm1_l",
        "mm1_lq",
        "mm1_w",
        "mm1_wq",
        "mm1_wq_sf",
        "mm1_w_sf",
        "mm1_wq_quantile",
        "mm1_w_quantile",
        "mmc_wq",
        "mmc_w",
        "mmc_lq",
        "mmc_wq_quantile",
        "mg1_wq",
        "mg1_w",
        "mg1_l",
        "mg1_lq",
        "mm1_service_rate_for_mean_response",
        "mm1_max_rate_for_response_quantile",
        "quantile_per_part",
    ] {
        assert!(find(id).is_some(), "{id} is not in the catalog");
    }
}

fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
