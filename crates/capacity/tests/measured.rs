//! Fits of published measurements: the errors that are known from other fits are reached, and each
//! term is worth what it should be.
//!
//! The data are third parties' and not in the repository: `GOODPUT_DATA`, by default
//! `../shared/data` beside the workspace, holds them, and a test without them says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use capacity::fit::file::{About, file};
use capacity::fit::groups::groups;
use capacity::fit::model::{Term, fit_terms};
use capacity::fit::sources::{Options, read};
use capacity::fit::{Form, Point, Regime, Source, fit};

/// A measured file; none, and a line on standard error, if it is not there.
fn measured(name: &str, options: &Options) -> Option<Source> {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("measured").join(name);
    if !path.exists() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {} is not there (set GOODPUT_DATA)",
            path.display()
        );
        return None;
    }
    Some(read(&path, options).unwrap())
}

fn mape(points: &[&Point], form: Form, terms: &[Term]) -> f64 {
    fit_terms(points, form, terms).unwrap().errors(points).unwrap().mean_absolute
}

fn of(points: &[Point], regime: Regime) -> Vec<&Point> {
    points.iter().filter(|p| p.regime == regime).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Halfway between the two in the middle of an even number.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn excluded(source: &Source, why: &str) -> u64 {
    source.excluded.iter().find(|e| e.why.contains(why)).map_or(0, |e| e.rows)
}

const BATCH: [Term; 2] = [Term::Base, Term::Decodes];
const BATCH_AND_CONTEXT: [Term; 3] = [Term::Base, Term::Decodes, Term::Context];

/// Other fits: prefill 15.7 % without and 10.1 % with a floor, decode 2.1 % and 1.8 % with context.
///
/// The pair 2.1 and 1.8 is what our fits give in the median over the eight deployments with every
/// row in, the batch that did not fit too: 2.14 and 1.82 %. That batch is left out by rule here, and
/// of the rows that stand in the table three times one is kept. Where the model ended an answer
/// early, the context is that of the tokens that were generated.
#[test]
fn splitwise_static_batches() {
    let Some(source) = measured("splitwise_sim/perf_model.csv", &Options::default()) else {
        return;
    };
    assert_eq!(excluded(&source, "power-capped"), 420);
    assert_eq!(excluded(&source, "did not fit and waited"), 15);
    let deployments = groups(&[source]);
    assert_eq!(deployments.len(), 8);
    let (mut batch, mut context, mut prefill, mut ordinary) = (vec![], vec![], vec![], vec![]);
    for (_, points) in &deployments {
        let decode = of(points, Regime::Decode);
        batch.push(mape(&decode, Form::TwoRegime, &BATCH));
        context.push(mape(&decode, Form::TwoRegime, &BATCH_AND_CONTEXT));
        let fitted = fit(points, Form::TwoRegime).unwrap().prefill.unwrap();
        assert!(fitted.floor.is_some());
        prefill.push(fitted.errors.mean_absolute);
        // R² says nothing: ordinary least squares misses short prompts by far.
        let (r2, e) = fitted.ordinary.unwrap();
        assert!(0.98 < r2);
        ordinary.push(e.worst.abs());
    }
    assert!(mean(&context) <= mean(&batch), "{context:?} {batch:?}");
    assert!(mean(&context) < 0.0205, "{}", mean(&context));
    assert!(median(&batch) <= 0.021 && median(&context) <= 0.018, "{batch:?} {context:?}");
    assert!(mean(&prefill) < 0.101, "{}", mean(&prefill));
    assert!(1.0 < ordinary.iter().copied().fold(0.0, f64::max), "{ordinary:?}");
}

/// Other fits: decode 9 to 15 % by batch alone, 0.9 to 1.3 % with context, mixed steps 5 to 9 %;
/// one set of coefficients for both regimes is 20 to 40 % off on pure decode.
///
/// A step fits into the memory only with the tokens before its chunk; of all steps of these tables,
/// mixed ones are up to 10.8 % off. What is missing there is a term for reading the tokens before a
/// chunk whatever its length: A has them only times the chunk.
#[test]
fn kernel_tables() {
    for (name, kv_tokens) in [
        ("RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1", 41_408),
        ("RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1", 400_000),
        ("RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2", 400_000),
    ] {
        let path = format!("llmservingsim/profile/{name}");
        let Some(all) = measured(&path, &Options::default()) else { return };
        let decode = of(&all.points, Regime::Decode);
        let with = mape(&decode, Form::TwoRegime, &BATCH_AND_CONTEXT);
        let without = mape(&decode, Form::TwoRegime, &BATCH);
        assert!(with < 0.013, "{name} {with}");
        assert!(0.08 < without, "{name} {with} {without}");
        let two = fit(&all.points, Form::TwoRegime).unwrap();
        let one = fit(&all.points, Form::Affine).unwrap();
        let single = one.errors(&decode).unwrap().mean_absolute;
        assert!(0.2 < single, "{name} {with} {single}");
        // A context token costs 1.6 to 2.8 times more beside prefill.
        let d =
            |f: &Option<capacity::fit::RegimeFit>| f.as_ref().unwrap().coefficient(Term::Context);
        let ratio = d(&two.prefill) / d(&two.decode);
        assert!(1.5 < ratio && ratio < 3.7, "{name} {ratio}");
        // Steps that fit into the memory are those that a simulation asks for.
        let options = Options { kv_tokens: Some(kv_tokens), ..Options::default() };
        let Some(fits) = measured(&path, &options) else { return };
        let prefill = fit(&fits.points, Form::TwoRegime).unwrap().prefill.unwrap();
        assert!(prefill.errors.mean_absolute < 0.09, "{name} {:?}", prefill.errors);
    }
}

/// Other fits, up to a batch of 800: 5.9 % by batch alone, 3.1 % with context; leaving out one
/// length of answer and predicting it 2.9, 2.3 and 4.3 %.
#[test]
fn decode_batch_sweep() {
    let name = "gpullm_digital_twin/vllm_llama31_8b_batch_sweep.csv";
    let Some(source) = measured(name, &Options::default()) else { return };
    let points: Vec<&Point> = source.points.iter().filter(|p| p.decodes <= 800.0).collect();
    assert_eq!(points.len(), 18);
    let with = mape(&points, Form::TwoRegime, &BATCH_AND_CONTEXT);
    let without = mape(&points, Form::TwoRegime, &BATCH);
    assert!(with < 0.0310 && 0.058 < without, "{with} {without}");
    for (output, other) in [(100.0, 0.029), (200.0, 0.0235), (400.0, 0.043)] {
        // C / B = prompt of 5 tokens and half of the answer.
        let own = |p: &&Point| (p.context / p.decodes - 5.0 - output / 2.0).abs() < 1.0;
        let (held, rest): (Vec<&Point>, Vec<&Point>) = points.iter().copied().partition(own);
        assert_eq!(held.len(), 6);
        let fitted = fit_terms(&rest, Form::TwoRegime, &BATCH_AND_CONTEXT).unwrap();
        let error = fitted.errors(&held).unwrap().mean_absolute;
        assert!(error < other + 0.0005, "{output} {error}");
    }
    // Between the batches of 400 and 600 steps get longer at once. vLLM 0.8.5 captures CUDA graphs
    // up to a batch of 512, which would explain it, but no batch in between was measured.
    let jump = fit(&source.points, Form::TwoRegime).unwrap().decode.unwrap().jump.unwrap();
    assert_eq!((jump.below, jump.above), (400.0, 600.0));
}

/// Another fit: a line through 1, 4, 16 and 64 users predicts 2, 8 and 32 with 5.5 %, at worst
/// 8.1 %.
#[test]
fn llm_pilot_users() {
    let Some(source) = measured("llm_pilot/summary.csv", &Options::default()) else { return };
    assert_eq!(excluded(&source, "requests failed"), 13);
    let points: Vec<&Point> =
        source.points.iter().filter(|p| p.group == "llama-7b 1 h100").collect();
    assert_eq!(points.len(), 7);
    let (known, held): (Vec<&Point>, Vec<&Point>) =
        points.iter().copied().partition(|p| [1.0, 4.0, 16.0, 64.0].contains(&p.decodes));
    // Prompts and answers are alike in all runs, so four points cannot tell users from context.
    let all = fit_terms(&known, Form::TwoRegime, &BATCH_AND_CONTEXT).unwrap();
    let all = all.errors(&held).unwrap();
    assert!(all.mean_absolute < 0.06 && all.worst.abs() < 0.1, "{all:?}");
    let as_decode = |points: &[&Point]| -> Vec<Point> {
        points.iter().map(|p| Point { regime: Regime::Decode, ..(*p).clone() }).collect()
    };
    let (known, held) = (as_decode(&known), as_decode(&held));
    let line = fit_terms(&known.iter().collect::<Vec<_>>(), Form::TwoRegime, &BATCH).unwrap();
    let line = line.errors(&held.iter().collect::<Vec<_>>()).unwrap();
    assert!(line.mean_absolute < 0.0551 && line.worst.abs() < 0.0815, "{line:?}");
}

/// A preset of ours is the fit of its tables, made anew.
#[test]
fn presets_are_what_a_fresh_fit_gives() {
    for (name, folder, kv_tokens) in [
        ("llama-3.1-8b-rtx-4090", "RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1", 41_408),
        ("llama-3.1-8b-rtx-pro-6000", "RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1", 400_000),
        ("qwen3-32b-rtx-pro-6000", "RTXPRO6000_Qwen_Qwen3-32B_bf16_tp1", 80_000),
    ] {
        let options = Options { kv_tokens: Some(kv_tokens), ..Options::default() };
        let path = format!("llmservingsim/profile/{folder}");
        let Some(source) = measured(&path, &options) else { return };
        let fresh = file(&fit(&source.points, Form::TwoRegime).unwrap(), About::default()).unwrap();
        let kept = serving_io::preset::named(name).unwrap();
        assert_eq!((&kept.step, &kept.regimes), (&fresh.step, &fresh.regimes), "{name}");
    }
}

/// Other fits over deployments: TPOT 15.1 % by users alone, 10.6 % with context, 5.7 % with what
/// the prompts of others add.
#[test]
fn silicon_sample() {
    let name = "aiconfigurator/silicon_sample.csv.gz";
    let Some(source) = measured(name, &Options::default()) else { return };
    assert_eq!(excluded(&source, "different GPUs"), 1602);
    let (mut users, mut context, mut prompts) = (vec![], vec![], vec![]);
    for (_, points) in groups(&[source]).iter().filter(|(_, p)| 8 <= p.len()) {
        let all: Vec<&Point> = points.iter().collect();
        // Without prompts, a mean step is fitted as if it were a decode step.
        let decode: Vec<Point> =
            points.iter().map(|p| Point { regime: Regime::Decode, ..p.clone() }).collect();
        let decode: Vec<&Point> = decode.iter().collect();
        users.push(mape(&decode, Form::TwoRegime, &BATCH));
        context.push(mape(&decode, Form::TwoRegime, &BATCH_AND_CONTEXT));
        prompts.push(mape(&all, Form::TwoRegime, &BATCH_AND_CONTEXT));
    }
    assert!(125 <= users.len());
    let (users, context, prompts) = (mean(&users), mean(&context), mean(&prompts));
    assert!(prompts < 0.058, "{prompts}");
    assert!(prompts < 0.7 * context && context < 0.9 * users, "{users} {context} {prompts}");
}
