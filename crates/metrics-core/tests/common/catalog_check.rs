//! The checks that hold a catalog and its code together, for any catalog of metrics.
//!
//! Each check returns its findings in words, one a fault; an empty list is a pass. `queueing`
//! includes this file by path, so it uses only `metrics_core`, `proptest` and the standard library.
#![allow(dead_code, reason = "a catalog without laws, say, has no use for their check")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_core::expr::{Branches, Expr};
use metrics_core::metric::{Computed, Formula, Input, Metric, Text};
use metrics_core::units::Unit;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// How often a function is compared with its text: enough for a branch that one draw in a hundred
/// takes, and still milliseconds a metric.
const CASES: u32 = 1024;

/// How many refused draws a run survives: of five instants that must be in order, one draw in 120
/// is, and more where they tie.
const REFUSED: u32 = CASES * 120;

/// Relative tolerance of a comparison where nothing cancels. Long sums and products, in another
/// order or by a recurrence, may differ by their length times 2^-52: a million terms fit.
const RELATIVE: f64 = 1e-9;

/// How often the rounding bound of the text fits into the tolerance: once for the text, once for
/// the function, and twice that because the bound is a first-order one.
const ROUNDING: f64 = 4.0;

/// Every check at once.
pub fn every_fault(
    metrics: impl Iterator<Item = &'static Metric>,
    manifest_dir: &str,
) -> Vec<String> {
    let metrics: Vec<&'static Metric> = metrics.collect();
    let each = || metrics.iter().copied();
    let mut faults = unsound_entries(each());
    faults.extend(wrong_examples(each()));
    faults.extend(wrong_units(each()));
    faults.extend(functions_unlike_their_text(each()));
    faults.extend(wrong_laws(each(), manifest_dir));
    faults.extend(partial_functions(each()));
    faults
}

/// Entries that are incomplete or contradict themselves: ids, names, inputs, ranges, LaTeX.
pub fn unsound_entries(metrics: impl Iterator<Item = &'static Metric>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for m in metrics {
        let mut say = |what: String| faults.push(format!("{}: {what}", m.id));
        if !ids.insert(m.id) {
            say("a second entry has this id".to_string());
        }
        if !is_snake_case(m.id) {
            say("the id must be snake_case".to_string());
        }
        if !allowed_ids(m.path).iter().any(|id| id == m.id) {
            say(format!(
                "the id must be the function's name (or `type_method`), the path is {}",
                m.path
            ));
        }
        // The formula's own LaTeX is made from these symbols and has none of these faults.
        for fault in untranslated("the name", m.name)
            .into_iter()
            .chain(untranslated("the note", m.note))
            .chain(unfit_latex("the symbol", m.symbol))
            .chain(misnamed_tokens(m))
        {
            say(fault);
        }
        if m.source.work.trim().is_empty() {
            say("the source names no work".to_string());
        }
        for exported in m.exported {
            if exported.engine.is_empty() || exported.name.is_empty() {
                say("an exported name has no engine or no name".to_string());
            }
            if exported.differs.en.is_empty() != exported.differs.zh.is_empty() {
                say(format!("`{}`: what differs stands in one language only", exported.name));
            }
        }
        let mut inputs = BTreeSet::new();
        for input in m.inputs {
            if !inputs.insert(input.id) {
                say(format!("two inputs are called `{}`", input.id));
            }
            for fault in unsound_input(input) {
                say(format!("input `{}`: {fault}", input.id));
            }
        }
        match m.expression() {
            None => {}
            Some(Err(e)) => say(format!("the formula is not in the language: {e}")),
            Some(Ok(formula)) => {
                let names = formula.names();
                for name in names.iter().filter(|name| !inputs.contains(*name)) {
                    say(format!("the formula's `{name}` is not an input"));
                }
                for input in inputs.iter().filter(|input| !names.contains(*input)) {
                    say(format!("the input `{input}` does not occur in the formula"));
                }
                for index in formula.indices().iter().filter(|index| inputs.contains(*index)) {
                    say(format!("the sum's index `{index}` hides the input of that name"));
                }
            }
        }
    }
    faults
}

fn is_snake_case(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_lowercase())
        && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The ids that a path allows: the function's name, and for a method also `type_method`, since
/// `Mm1::w` and `Mg1::w` are two metrics.
fn allowed_ids(path: &str) -> Vec<String> {
    let mut parts = path.rsplit("::");
    let function = parts.next().unwrap_or(path);
    let mut ids = vec![function.to_string()];
    if let Some(owner) = parts.next().filter(|o| o.starts_with(|c: char| c.is_ascii_uppercase())) {
        ids.push(format!("{}_{function}", owner.to_ascii_lowercase()));
    }
    ids
}

fn unsound_input(input: &Input) -> Vec<String> {
    let mut faults = untranslated("the name", input.name);
    faults.extend(unfit_latex("the symbol", input.symbol));
    if !is_snake_case(input.id) {
        faults.push("the id must be snake_case".to_string());
    }
    let (low, high) = input.range;
    if !(low.is_finite() && high.is_finite() && low < high) {
        faults.push(format!("the range {low} to {high} must be finite and not empty"));
    }
    if input.whole && (low.fract() != 0.0 || high.fract() != 0.0 || low < 0.0) {
        faults.push(format!("the range {low} to {high} of whole numbers must be whole"));
    }
    faults
}

/// What is missing in one of the languages.
///
/// A name of abbreviations alone ("MFU") may be the same in both; words may not.
fn untranslated(what: &str, text: Text) -> Vec<String> {
    const SAME: [&str; 4] = ["token", "tokens", "prefill", "decode"];
    let mut faults = Vec::new();
    if text.en.trim().is_empty() || text.zh.trim().is_empty() {
        faults.push(format!("{what} is empty in one language"));
        return faults;
    }
    let has_words = text.en.split(|c: char| !c.is_alphanumeric()).any(|word| {
        3 <= word.len() && word.chars().all(|c| c.is_ascii_lowercase()) && !SAME.contains(&word)
    });
    let is_chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    if has_words && !text.zh.contains(is_chinese) {
        faults.push(format!("{what} `{}` is not translated", text.en));
    }
    if text.en.contains(is_chinese) {
        faults.push(format!("{what} `{}` is not English", text.en));
    }
    faults
}

/// Chinese words that call a token 令牌, which is what a bucket holds.
fn misnamed_tokens(m: &Metric) -> Vec<String> {
    if m.name.zh.contains("令牌桶") {
        return Vec::new();
    }
    let names = m.inputs.iter().map(|input| input.name);
    names
        .chain([m.name, m.note])
        .filter(|text| text.zh.replace("令牌桶", "").contains("令牌"))
        .map(|text| format!("`{}` must call a token `token`: 令牌 is the bucket's", text.zh))
        .collect()
}

/// What would keep LaTeX from being typeset, or from surviving a Markdown table.
fn unfit_latex(what: &str, latex: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if latex.trim().is_empty() {
        faults.push(format!("{what} has no LaTeX"));
    }
    let mut depth = 0_i32;
    let mut balanced = true;
    let mut eaten = BTreeSet::new();
    let mut characters = latex.chars();
    while let Some(c) = characters.next() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            '\\' => eaten.extend(characters.next().filter(char::is_ascii_punctuation)),
            _ => {}
        }
        balanced &= 0 <= depth;
    }
    if latex.contains('|') {
        faults.push(format!(
            "{what} `{latex}` has a pipe, which ends a table's cell: use \\lvert or \\mid"
        ));
    }
    for c in eaten {
        faults.push(format!(
            "{what} `{latex}` has a backslash before `{c}`, which Markdown eats: write a comma for \
             \\_, and \\cr, \\lbrace, \\rbrace, \\thinspace for the like"
        ));
    }
    let pairs = [(r"\left", r"\right"), (r"\begin{", r"\end{")];
    // `\leftarrow` and its like are arrows, not parentheses.
    let count =
        |word: &str| latex.matches(word).count() - latex.matches(&format!("{word}arrow")).count();
    if !balanced || depth != 0 || pairs.iter().any(|(open, close)| count(open) != count(close)) {
        faults.push(format!("{what} `{latex}` is not balanced"));
    }
    faults
}

/// Worked examples that the function or the formula text does not reproduce to 12 digits.
pub fn wrong_examples(metrics: impl Iterator<Item = &'static Metric>) -> Vec<String> {
    let mut faults = Vec::new();
    for m in metrics {
        let Formula::Scalar { example: (inputs, want), .. } = m.formula else { continue };
        match m.evaluate(inputs) {
            Ok(got) if is_close(got.value, want, 1e-12) => {}
            Ok(got) => faults
                .push(format!("{}: the example says {want}, the function {}", m.id, got.value)),
            Err(e) => faults.push(format!("{}: the function refuses the example: {e}", m.id)),
        }
        match m.by_text(inputs) {
            Ok(got) if is_close(got, want, 1e-12) => {}
            Ok(got) => {
                faults.push(format!("{}: the example says {want}, the formula {got}", m.id));
            }
            Err(e) => faults.push(format!("{}: the formula has no example: {e}", m.id)),
        }
    }
    faults
}

fn is_close(got: f64, want: f64, relative: f64) -> bool {
    (got - want).abs() <= relative * want.abs()
}

/// Units of functions and formula texts that are not the entry's.
pub fn wrong_units(metrics: impl Iterator<Item = &'static Metric>) -> Vec<String> {
    let mut faults = Vec::new();
    for m in metrics {
        let Formula::Scalar { example: (inputs, _), .. } = m.formula else { continue };
        if let Ok(got) = m.evaluate(inputs)
            && got.unit != m.unit
        {
            faults.push(wrong_unit(m.id, m.unit, "the function returns", got.unit));
        }
        match m.text_unit() {
            Ok(unit) if unit == m.unit => {}
            Ok(unit) => faults.push(wrong_unit(m.id, m.unit, "the formula has", unit)),
            Err(e) => faults.push(format!("{}: {e}", m.id)),
        }
    }
    faults
}

fn wrong_unit(id: &str, entry: Unit, which: &str, unit: Unit) -> String {
    format!("{id}: the entry's unit is {entry}, {which} {unit}")
}

/// Functions whose value differs from their formula text somewhere in the ranges of their inputs,
/// and branches of the text that no accepted draw reaches.
///
/// One run a metric, so that a function which always refuses is a fault and not a pass. Draws that
/// the function refuses are not compared. The draws are the same in every run: a pass stays one.
pub fn functions_unlike_their_text(metrics: impl Iterator<Item = &'static Metric>) -> Vec<String> {
    let mut faults = Vec::new();
    for m in metrics {
        // A text that does not parse is found by `unsound_entries`.
        if let Some(Ok(formula)) = m.expression() {
            faults.extend(compare(m, &formula));
        }
    }
    faults
}

fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        max_global_rejects: REFUSED,
        failure_persistence: None,
        // Enough for numbers, and a panic prints itself at each.
        max_shrink_iters: 128,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn compare(m: &'static Metric, formula: &Expr) -> Vec<String> {
    let branches = RefCell::new(Branches::of(formula));
    let refusal = RefCell::new(String::new());
    let run = runner(CASES).run(&draws(m), |x| {
        let got = m.evaluate(&x).map_err(|e| {
            *refusal.borrow_mut() = e.to_string();
            TestCaseError::reject("refused")
        })?;
        same(m, formula, &x, got, &mut branches.borrow_mut()).map_err(TestCaseError::fail)
    });
    match run {
        Ok(()) => branches
            .borrow()
            .missed()
            .into_iter()
            .map(|branch| format!("{}: the ranges of the inputs never reach {branch}", m.id))
            .collect(),
        Err(TestError::Abort(_)) => vec![format!(
            "{}: too many rejects, the function refuses nearly every draw from its ranges: {}",
            m.id,
            refusal.borrow()
        )],
        Err(TestError::Fail(why, x)) => {
            let named: Vec<String> =
                m.inputs.iter().zip(&x).map(|(i, x)| format!("{} = {x:?}", i.id)).collect();
            vec![format!("{}: for {}: {}", m.id, named.join(", "), why.message())]
        }
    }
}

/// Why a function's value is not that of its text, if it is not.
///
/// Near a cancellation (two instants at 600 s a microsecond apart, `1 - rho` near saturation) both
/// sides lose digits, the function perhaps fewer than the textbook's line. The loss is that of the
/// magnitude of the inputs and of what stands between, which the evaluator follows through the
/// formula; that much is allowed beside the relative tolerance, and no more.
fn same<'e>(
    m: &Metric,
    formula: &'e Expr,
    x: &[f64],
    got: Computed,
    branches: &mut Branches<'e>,
) -> Result<(), String> {
    let want = formula
        .evaluate_recording(&|name| m.value_of(name, x), branches)
        .map_err(|e| format!("the function says {}, but of its text {e}", got.value))?;
    let tolerance = RELATIVE * want.value.abs() + ROUNDING * want.rounding;
    if got.unit != m.unit {
        return Err(format!("the function's unit is {}, not {}", got.unit, m.unit));
    }
    // Written so that NaN fails.
    if (got.value - want.value).abs() <= tolerance {
        return Ok(());
    }
    Err(format!(
        "the function says {}, its text {} (tolerance {tolerance:e})",
        got.value, want.value
    ))
}

/// Inputs in order, each from its range.
///
/// Now and then an input repeats an earlier one of its unit: a limit that is met exactly tells `<`
/// from `<=`.
fn draws(m: &'static Metric) -> impl Strategy<Value = Vec<f64>> + use<> {
    let values: Vec<_> = m.inputs.iter().map(draw).collect();
    let repeats = prop::collection::vec(prop::bool::weighted(0.1), m.inputs.len());
    (values, repeats).prop_map(|(mut values, repeats)| {
        for i in 1..values.len() {
            let input = &m.inputs[i];
            let (low, high) = input.range;
            let earlier = (0..i).rev().find(|&j| m.inputs[j].unit == input.unit);
            if let Some(x) = earlier.map(|j| values[j])
                && repeats[i]
                && low <= x
                && x <= high
                && (!input.whole || x.fract() == 0.0)
            {
                values[i] = x;
            }
        }
        values
    })
}

/// One input: often the ends of its range and small whole numbers, where branches are, else spread
/// evenly or by orders of magnitude.
fn draw(input: &'static Input) -> BoxedStrategy<f64> {
    let (low, high) = input.range;
    let span = high - low;
    prop_oneof![
        2 => Just(low),
        2 => Just(high),
        1 => Just(low + 1.0),
        2 => (0_u32..12).prop_map(f64::from),
        4 => (0.0..1.0_f64).prop_map(move |u| low + u * span),
        3 => (0.0..9.0_f64).prop_map(move |orders| low + span * 10_f64.powf(-orders)),
    ]
    .prop_map(move |x| if input.whole { x.round() } else { x }.clamp(low, high))
    .boxed()
}

/// Laws whose example, unit, LaTeX or named test is not as the entry says.
///
/// `manifest_dir` is the `CARGO_MANIFEST_DIR` of the crate that the catalog belongs to.
pub fn wrong_laws(
    metrics: impl Iterator<Item = &'static Metric>,
    manifest_dir: &str,
) -> Vec<String> {
    let mut faults = Vec::new();
    for m in metrics {
        let Formula::Law { latex, why, test, example, run, value } = m.formula else { continue };
        let mut say = |what: String| faults.push(format!("{}: {what}", m.id));
        match run() {
            Ok(got) => {
                if !is_close(got.value, value, 1e-12) {
                    say(format!("the example says {value}, the function {}", got.value));
                }
                if got.unit != m.unit {
                    say(format!(
                        "the entry's unit is {}, the function returns {}",
                        m.unit, got.unit
                    ));
                }
            }
            Err(e) => say(format!("the function refuses the example: {e}")),
        }
        for fault in unfit_latex("the law", latex)
            .into_iter()
            .chain(untranslated("the reason", why))
            .chain(untranslated("the example", example))
            .chain(missing_test(Path::new(manifest_dir), test))
        {
            say(fault);
        }
    }
    faults
}

/// What is wrong with the test that a law names as `file::name`.
fn missing_test(root: &Path, test: &str) -> Option<String> {
    let (Some((file, _)), Some((_, name))) = (test.split_once("::"), test.rsplit_once("::")) else {
        return Some(format!("the test `{test}` must be named as `file::name`"));
    };
    let candidates = [
        file.to_string(),
        format!("tests/{file}.rs"),
        format!("src/{file}.rs"),
        format!("src/{file}/mod.rs"),
        format!("src/{file}/tests.rs"),
    ];
    let sources: Vec<String> = candidates
        .iter()
        .filter_map(|file| std::fs::read_to_string(root.join(file)).ok())
        .collect();
    if sources.is_empty() {
        return Some(format!("the file of the test `{test}` is neither in tests/ nor in src/"));
    }
    if sources.iter().any(|source| has_test(source, name)) {
        return None;
    }
    Some(format!("`{file}` has no test `{name}`"))
}

/// Whether a source has `fn name` under `#[test]`.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_named = |line: &str| {
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.trim_start().starts_with('('))
    };
    lines.iter().enumerate().any(|(i, line)| {
        is_named(line)
            && lines[..i]
                .iter()
                .rev()
                .take_while(|above| above.starts_with("#[") || above.starts_with("//"))
                .any(|above| *above == "#[test]")
    })
}

/// Functions that give NaN or infinity, panic or do not end, for whatever numbers they are given.
///
/// Every answer must be a finite value or a refusal. Each metric runs in a thread of its own, which
/// is how a panic or an endless loop gets reported with its inputs.
pub fn partial_functions(metrics: impl Iterator<Item = &'static Metric>) -> Vec<String> {
    /// Far beyond what the run takes on any machine: only a loop that does not end waits so long.
    const GIVEN_UP: Duration = Duration::from_mins(1);
    let mut faults = Vec::new();
    for m in metrics {
        if !matches!(m.formula, Formula::Scalar { .. }) {
            continue;
        }
        let last = Arc::new(Mutex::new(Vec::new()));
        let (done, result) = mpsc::channel();
        let seen = Arc::clone(&last);
        std::thread::spawn(move || {
            let run = runner(256).run(&anything(m), |x| {
                if let Ok(mut seen) = seen.lock() {
                    seen.clone_from(&x);
                }
                match m.evaluate(&x) {
                    Ok(got) if !got.value.is_finite() => {
                        Err(TestCaseError::fail(format!("gives {}", got.value)))
                    }
                    _ => Ok(()),
                }
            });
            // The receiver is gone only if it gave up.
            let _ = done.send(match run {
                Err(TestError::Fail(why, x)) => Some(format!("{} for {x:?}", why.message())),
                Err(TestError::Abort(why)) => Some(why.message().to_string()),
                Ok(()) => None,
            });
        });
        let inputs = || last.lock().map(|x| format!("{x:?}")).unwrap_or_default();
        match result.recv_timeout(GIVEN_UP) {
            Ok(None) => {}
            Ok(Some(fault)) => faults.push(format!("{}: the function {fault}", m.id)),
            Err(RecvTimeoutError::Disconnected) => {
                faults.push(format!("{}: the function panics for {}", m.id, inputs()));
            }
            Err(RecvTimeoutError::Timeout) => {
                faults.push(format!("{}: the function does not end for {}", m.id, inputs()));
            }
        }
    }
    faults
}

/// Numbers in, at and beyond the ranges, and what is no number at all.
fn anything(m: &'static Metric) -> Vec<BoxedStrategy<f64>> {
    m.inputs
        .iter()
        .map(|input| {
            let (low, high) = input.range;
            let edges = vec![
                low,
                high,
                low - 1.0,
                high + 1.0,
                high * 1e3,
                -high,
                0.0,
                -0.0,
                -1.0,
                0.5,
                1.0,
                f64::MIN_POSITIVE,
                5e-324,
                1e-100,
                4_294_967_296.0,
                9_007_199_254_740_992.0,
                1e18,
                1e100,
                1e101,
                1e300,
                f64::MAX,
                f64::MIN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
            ];
            // Most inputs stay in range, so that the odd one out is reached behind other checks.
            prop_oneof![
                3 => draw(input),
                2 => prop::sample::select(edges),
                1 => prop::num::f64::ANY,
            ]
            .boxed()
        })
        .collect()
}
