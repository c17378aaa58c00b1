//! Catalog and code say the same.

#[path = "common/catalog_check.rs"]
mod catalog_check;
#[path = "common/planted.rs"]
mod planted;

use metrics_core::catalog::{find, metrics};

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
fn laws_hold_their_example_and_name_their_test() {
    none(&catalog_check::wrong_laws(metrics(), env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn no_input_gives_nan_infinity_or_a_panic() {
    none(&catalog_check::partial_functions(metrics()));
}

#[test]
fn the_table_shows_latex_made_from_the_text() {
    assert_eq!(
        find("tpot").unwrap().latex(),
        concat!(
            r"\mathrm{TPOT} = \begin{cases} 0 & N_{\mathrm{out}} \le 1 \cr ",
            r"\frac{t_{\mathrm{last}} - t_{\mathrm{first}}}{N_{\mathrm{out}} - 1} ",
            r"& N_{\mathrm{out}} \gt 1 \end{cases}"
        )
    );
}

/// A law may be written as a whole statement or as its right side; the table shows statements.
#[test]
fn a_law_is_shown_as_a_statement_with_one_equals_sign() {
    for (latex, want) in [
        (r"\frac{1}{N} \sum_{i=1}^{N} I_i", r"g = \frac{1}{N} \sum_{i=1}^{N} I_i"),
        (r"g_T = \frac{1}{T} \sum_{i} I_i", r"g_T = \frac{1}{T} \sum_{i} I_i"),
        (r"g \le \left(1\right)", r"g \le \left(1\right)"),
        (r"\left(1\right)", r"g = \left(1\right)"),
    ] {
        assert_eq!(planted::shown_law(latex), want);
    }
}

fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
