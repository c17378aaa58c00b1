//! Fits of made points, files of every general kind, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;

use capacity::fit::file::{About, file, step_time};
use capacity::fit::groups::{check_units, groups};
use capacity::fit::model::Term;
use capacity::fit::sources::{Options, read};
use capacity::fit::{Fitted, Form, Point, Regime, Weakness, fit};
use capacity::watch::Watched;
use sched_sim::{StepTime, StepWork};
use serving_io::fitted::FittedStepTime;

/// A file in a folder of its own, named after the test.
fn written(name: &str, text: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("goodput-fit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Why a file gives no points, without its folder.
fn refused(name: &str, text: &str) -> String {
    let path = written(name, text);
    let error = read(&path, &Options::default()).unwrap_err().to_string();
    error.replace(&format!("{}/", path.parent().unwrap().display()), "")
}

/// Decode: 8 ms + 0.1 ms·B + 0.2 µs·C. With prefill: 9 ms + 0.05 ms·P + 0.15 ms·B + 0.5 µs·C +
/// 4 ns·A.
fn points() -> Vec<Point> {
    let mut all = Vec::new();
    for b in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
        for each in [100.0, 1000.0, 4000.0] {
            let c = b * each;
            all.push(Point::decode(b, c, 0.008 + 1e-4 * b + 2e-7 * c));
            for p in [64.0, 512.0, 2048.0] {
                let a: f64 = p * p / 2.0;
                let t = 0.009 + 5e-5 * p + 1.5e-4 * b + 5e-7 * c + 4e-9 * a;
                all.push(Point { decodes: b, context: c, ..Point::prefill(1.0, p, t) });
            }
        }
    }
    all
}

fn exact(fitted: &Fitted, terms: &[(Term, f64)], prefill: bool) {
    let part = if prefill { &fitted.prefill } else { &fitted.decode };
    let part = part.as_ref().unwrap();
    for (term, x) in terms {
        let found = part.coefficient(*term);
        assert!((found / x - 1.0).abs() < 1e-6, "{term:?} {found} {x}");
    }
}

#[test]
fn known_coefficients_are_found() {
    let fitted = fit(&points(), Form::TwoRegime).unwrap();
    exact(&fitted, &[(Term::Base, 0.008), (Term::Decodes, 1e-4), (Term::Context, 2e-7)], false);
    exact(
        &fitted,
        &[(Term::Base, 0.009), (Term::PrefillTokens, 5e-5), (Term::Attention, 4e-9)],
        true,
    );
    assert_eq!(fitted.prefill.as_ref().unwrap().floor, None);
    assert!(fitted.parts().all(|p| p.weaknesses.is_empty()), "{fitted:?}");
    // One set for both regimes cannot have both.
    let one = fit(&points(), Form::Affine).unwrap();
    assert!(0.01 < one.decode.unwrap().errors.mean_absolute);
}

/// max(20 ms, 5 ms + 0.1 ms·P): prompts of up to 150 tokens cost 20 ms.
#[test]
fn a_floor_is_found_where_there_is_one() {
    let times = |p: f64| f64::max(0.020, 0.005 + 1e-4 * p);
    let steps: Vec<Point> = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0]
        .into_iter()
        .map(|p| Point::prefill(1.0, p, times(p)))
        .collect();
    let prefill = fit(&steps, Form::TwoRegime).unwrap().prefill.unwrap();
    assert!((prefill.floor.unwrap() - 0.020).abs() < 1e-9, "{prefill:?}");
    assert!(prefill.errors.mean_absolute < 1e-6);
}

/// 2 ms + max(6 ms, 0.05 ms·N) + 0.3 µs·C + 0.02 ms a request; the overhead and the floor can be
/// told apart because some steps have more than 120 new tokens.
#[test]
fn the_floored_form_finds_its_coefficients() {
    let mut steps = Vec::new();
    for b in [1.0, 8.0, 64.0, 128.0, 256.0, 512.0] {
        for each in [100.0, 2000.0] {
            let t = 0.002 + f64::max(0.006, 5e-5 * b) + 3e-7 * b * each + 2e-5 * b;
            steps.push(Point::decode(b, b * each, t));
            let p = 1000.0;
            let t = 0.002 + 5e-5 * (p + b) + 3e-7 * b * each + 2e-5 * (b + 1.0);
            steps.push(Point { decodes: b, context: b * each, ..Point::prefill(1.0, p, t) });
        }
    }
    let fit = fit(&steps, Form::Floored).unwrap().decode.unwrap();
    assert!(fit.errors.mean_absolute < 1e-6, "{fit:?}");
    assert!((fit.floor.unwrap() - 0.006).abs() < 1e-8, "{fit:?}");
}

/// Steps of more than 256 requests take 4 ms longer, as without a CUDA graph.
#[test]
fn a_jump_at_a_batch_size_is_named() {
    let with = |jump: f64| -> Vec<Point> {
        (1..=16)
            .map(|i| 32.0 * f64::from(i))
            .map(|b| {
                let t = 0.010 + 2e-5 * b + if 256.0 < b { jump } else { 0.0 };
                Point::decode(b, 500.0 * b, t)
            })
            .collect()
    };
    let of = |jump| fit(&with(jump), Form::TwoRegime).unwrap().decode.unwrap().jump;
    let found = of(0.004).unwrap();
    assert_eq!((found.below, found.above), (256.0, 288.0));
    assert!((found.seconds - 0.004).abs() < 1e-4, "{found:?}");
    assert_eq!(of(0.0), None);
}

/// Every request has 500 tokens, so B and C grow together; one step is three times too long.
#[test]
fn what_the_points_cannot_tell_is_said_and_outliers_are_named() {
    let mut steps: Vec<Point> = (1..=20)
        .map(f64::from)
        .map(|b| Point::decode(b, 500.0 * b, 0.010 + 2e-4 * b).at(format!("line {b}")))
        .collect();
    steps[6].time_s *= 3.0;
    let decode = fit(&steps, Form::TwoRegime).unwrap().decode.unwrap();
    let together = |w: &Weakness| matches!(w, Weakness::Collinear(t, _) if *t == [Term::Decodes, Term::Context]);
    assert!(decode.weaknesses.iter().any(together), "{:?}", decode.weaknesses);
    assert_eq!(decode.outliers.0, 1);
    assert!(decode.outliers.1[0].point.contains("line 7"), "{:?}", decode.outliers);
}

/// Whole attoseconds change no step by more than one part in 10⁶.
#[test]
fn a_file_keeps_the_fit_to_a_millionth() {
    let fitted = fit(&points(), Form::TwoRegime).unwrap();
    let made = file(&fitted, About { name: "made".to_owned(), ..About::default() }).unwrap();
    let again = FittedStepTime::parse("made.toml", &made.to_toml()).unwrap();
    assert_eq!(again, made);
    for p in points() {
        // The points are whole.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = |x: f64| x as u64;
        let mut work = StepWork::default();
        work.prefills = whole(p.prefills);
        work.prefill_tokens = whole(p.prefill_tokens);
        work.decodes = whole(p.decodes);
        work.decode_context = whole(p.context);
        work.attention_doubled = u128::from(whole(2.0 * p.attention));
        let seconds = again.step.step(&work).seconds();
        assert!((seconds / fitted.seconds(&p).unwrap() - 1.0).abs() < 1e-6, "{p:?}");
    }
    for form in [Form::Affine, Form::Linear, Form::Floored, Form::Split] {
        let fitted = fit(&points(), form).unwrap();
        let made = file(&fitted, About::default()).unwrap();
        assert_eq!(FittedStepTime::parse("f.toml", &made.to_toml()).unwrap(), made);
    }
}

#[test]
fn steps_beyond_the_range_are_noticed() {
    let fitted = fit(&points(), Form::TwoRegime).unwrap();
    let made = file(&fitted, About::default()).unwrap();
    let watched = Watched::new(made.step);
    let mut work = StepWork::default();
    work.decodes = 64;
    work.decode_context = 256_000;
    watched.step(&work);
    assert!(watched.beyond(&made.regimes).is_empty());
    work.decodes = 100;
    watched.step(&work);
    insta::assert_snapshot!(
        watched.beyond(&made.regimes).join("\n"),
        @"pure decode steps of up to 100 decodes, measured up to 64"
    );
}

#[test]
fn a_regime_without_points_is_a_limit_and_no_step_time() {
    let steps: Vec<Point> = points().into_iter().filter(|p| p.regime == Regime::Decode).collect();
    let fitted = fit(&steps, Form::TwoRegime).unwrap();
    insta::assert_snapshot!(
        fitted.limits.join("\n"),
        @"no point is a step with prefill: what one costs is not known, and a simulation needs both"
    );
    insta::assert_snapshot!(
        step_time(&fitted).unwrap_err(),
        @"no point is a step with prefill: a simulation needs both regimes, give a file with such steps too"
    );
    // One set for all steps would let prompts cost nothing.
    for form in [Form::Affine, Form::Floored, Form::Linear] {
        let said = step_time(&fit(&steps, form).unwrap()).unwrap_err().to_string();
        assert!(said.starts_with("no point is a step with prefill"), "{said}");
    }
    insta::assert_snapshot!(
        fit(&steps[..2], Form::TwoRegime).unwrap_err(),
        @"decode: 2 points with 3 coefficients (a, c, d), expected at least as many points, or a form with fewer (floored has one set for all steps, linear two coefficients)"
    );
    insta::assert_snapshot!(
        fit(&[], Form::TwoRegime).unwrap_err(),
        @"no point is a measured step: give a file with measured steps"
    );
    insta::assert_snapshot!(
        fit(&[Point::decode(1.0, 1.0, 0.0)], Form::TwoRegime).unwrap_err(),
        @"time in seconds must be finite and from 1e-12 to 1000000, got 0"
    );
}

#[test]
fn step_logs_are_read_with_their_units_and_columns() {
    let csv = written(
        "steps.csv",
        "prefill_tokens,decodes,context,time_ms,gpu\n0,4,400,10,a\n100,4,400,15,a\n0,0,0,1,a\n",
    );
    let source = read(&csv, &Options::default()).unwrap();
    assert_eq!((source.kind, source.points.len()), ("step log", 2));
    assert_eq!(source.points[1].attention, 5000.0);
    assert!((source.points[0].time_s - 0.010).abs() < 1e-15);
    assert_eq!(source.excluded[0].rows, 1);
    assert_eq!(source.assumed.len(), 1);
    let lines =
        written("steps.jsonl", "{\"batch\": 4, \"us\": 9000}\n{\"batch\": 8, \"us\": 9500}\n");
    let map = Options::map(["decodes=batch", "time_us=us"]).unwrap();
    let source = read(&lines, &Options { map, ..Options::default() }).unwrap();
    assert!((source.points[1].time_s - 0.0095).abs() < 1e-15);
    let by = Options { by: vec!["gpu".to_owned()], ..Options::default() };
    assert_eq!(groups(&[read(&csv, &by).unwrap()])[0].0, "a");
}

/// 8 users, prompts of 100 and answers of 50: each step has 8 · 100 / 50 = 16 prompt tokens and a
/// context of 8 · (100 + 25).
#[test]
fn closed_loops_give_mean_steps() {
    let path = written("loops.csv", "concurrency,isl,osl,tpot_ms\n8,100,50,12\n");
    let source = read(&path, &Options::default()).unwrap();
    let p = &source.points[0];
    assert_eq!(
        (p.regime, p.decodes, p.context, p.prefill_tokens),
        (Regime::Mean, 8.0, 1000.0, 16.0)
    );
}

/// Request b decodes alone for its last second: from 1 to 3 s both, from 3 to 4 s one, so its mean
/// batch is (2 · 2 + 1) / 3.
#[test]
fn a_request_log_gives_the_batch_that_each_request_saw() {
    let path = written(
        "requests.csv",
        "arrival_s,ttft_s,e2e_s,input_tokens,output_tokens\n0,0.5,3,100,11\n0.5,0.5,3.5,200,31\n",
    );
    let source = read(&path, &Options::default()).unwrap();
    assert_eq!(source.kind, "request log");
    let b = &source.points[1];
    assert!((b.decodes - 5.0 / 3.0).abs() < 1e-12, "{b:?}");
    assert!((b.time_s - 0.1).abs() < 1e-12);
    // The first token of b came while a decoded: 200 prompt tokens over 10 steps.
    assert!((source.points[0].prefill_tokens - 20.0).abs() < 1e-12);
}

/// One block: dense 2 · 1 + 3 = 5 µs at 1 and 10 µs at 3 tokens, so 7.5 µs at 2; attention 4 µs;
/// twice for two blocks, plus 1 µs once and 7 µs of the head: 2 · 11.5 + 1 + 7 = 31 µs.
#[test]
fn kernel_tables_are_composed_to_steps() {
    let folder = written("at.txt", "").with_file_name("Some-Model");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write(
        "dense.csv",
        "layer,tokens,time_us\nlayernorm,1,1\nlayernorm,3,2\no_proj,1,3\no_proj,3,6\nembedding,1,1\nembedding,3,1\n",
    );
    write("per_sequence.csv", "layer,sequences,time_us\nlm_head,1,7\nlm_head,2,7\n");
    write(
        "attention.csv",
        "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,2,50,4\n9,0,0,0,4\n",
    );
    let layers = |n| Options { layers: n, ..Options::default() };
    let source = read(&folder, &layers(Some(2))).unwrap();
    let p = &source.points[0];
    assert_eq!((p.decodes, p.context), (2.0, 100.0));
    assert!((p.time_s - 31e-6).abs() < 1e-15, "{p:?}");
    assert_eq!(source.excluded[0].rows, 1);
    let said = read(&folder, &layers(None)).unwrap_err().to_string();
    assert!(said.starts_with("--layers: Some-Model has the kernels of one layer"), "{said}");
}

#[test]
fn faults_name_file_line_and_value() {
    insta::assert_snapshot!(
        refused("zero.csv", "decodes,time_ms\n4,10\n8,0\n"),
        @"zero.csv: line 3, `time_ms`: found `0`, expected a number above 0"
    );
    insta::assert_snapshot!(
        refused("word.csv", "decodes,time_ms\nfour,10\n"),
        @"word.csv: line 2, `decodes`: found `four`, expected a number of at least 0"
    );
    insta::assert_snapshot!(
        refused("units.csv", "decodes,time_ms,time_s\n4,10,0.01\n"),
        @"units.csv: `time_s` and `time_ms` both give the time: name one with --map"
    );
    insta::assert_snapshot!(
        refused("short.csv", "decodes,time_ms\n4\n"),
        @"short.csv: line 2: 1 cells, expected 2 as in the header"
    );
    insta::assert_snapshot!(
        Options::map(["batch=b"]).unwrap_err(),
        @"--map: no field `batch`, expected one of prefill_tokens, decodes, context, attention, prefills, concurrency, isl, osl, time_s, time_ms, time_us, time_ns, tpot_ms, tpot_s"
    );
}

#[test]
fn files_that_disagree_on_their_unit_are_refused() {
    let one = written("ms.csv", "decodes,context,time_ms\n1,10,10\n8,500,12\n16,700,15\n");
    // The same in milliseconds, called seconds.
    let two = written("s.csv", "decodes,context,time_s\n2,10,10\n9,500,12\n17,700,15\n");
    let sources = [one, two].map(|p| read(&p, &Options::default()).unwrap());
    let all = groups(&sources);
    let fitted = fit(&all[0].1, Form::TwoRegime).unwrap();
    let said = check_units(&sources, &all[0].0, &fitted).unwrap_err().to_string();
    assert!(
        said.contains("s.csv: times are ") && said.contains("ms.csv for the same work"),
        "{said}"
    );
    assert!(check_units(&sources[..1], &all[0].0, &fitted).is_ok());
}
