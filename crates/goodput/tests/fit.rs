//! `goodput fit` as a user sees it: output, files and exit code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// A folder with the examples of the documentation.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["steps.csv", "other-steps.csv"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(name);
        std::fs::copy(from, dir.path().join(name)).unwrap();
    }
    dir
}

/// What the tool prints, and its exit code where it is not 0.
fn run(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_goodput"))
        .current_dir(dir)
        .args(arguments)
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    match output.status.code() {
        Some(0) => text,
        code => format!("{text}exit {code:?}\n"),
    }
}

/// The example was made from 8 ms + 0.1 ms·B + 0.2 us·C for pure decode and 9 ms + 0.05 ms·P +
/// 0.15 ms·B + 0.5 us·C + 4 ns·A with prefill, each time off by up to 3 %.
#[test]
fn a_step_log_is_fitted() {
    let dir = folder();
    insta::assert_snapshot!("fit", run(dir.path(), &["fit", "steps.csv"]));
}

#[test]
fn what_was_not_fitted_is_compared() {
    let dir = folder();
    let text = run(dir.path(), &["fit", "steps.csv", "--validate", "other-steps.csv"]);
    let (_, validation) = text.split_once("validation on").unwrap();
    insta::assert_snapshot!(validation, @"
    other-steps.csv: step log, 9 points
     error          pure decode step: MAPE 1.2 %, p90 2.8 %, worst -2.8 % at B 3, C 6000 (other-steps.csv line 3), bias -0.6 %
     error          step with prefill: MAPE 2.1 %, p90 3.2 %, worst -3.2 % at P 128, B 4, C 3200 (other-steps.csv line 8), bias -1.3 %
    ");
}

/// The file is read by a simulation, which says where it leaves the range of the fit.
#[test]
fn the_file_is_what_a_simulation_takes() {
    let dir = folder();
    let said = run(
        dir.path(),
        &["fit", "steps.csv", "-o", "mine.toml", "--name", "mine", "--gpu", "H100"],
    );
    assert!(said.ends_with("\nwrote mine.toml: goodput sim --step-time mine.toml\n"), "{said}");
    let file = std::fs::read_to_string(dir.path().join("mine.toml")).unwrap();
    insta::assert_snapshot!("fit_file", file);
    let sim = |seqs: &str| {
        run(
            dir.path(),
            &["sim", "--step-time", "mine.toml", "--max-num-seqs", seqs, "--chunk", "512"],
        )
    };
    let lines = |text: &str| -> String {
        let shown = |l: &&str| l.contains("OUTSIDE") || l.contains("mine (");
        text.lines().filter(shown).map(|l| format!("{}\n", l.trim())).collect()
    };
    insta::assert_snapshot!(lines(&sim("32")), @"
    step time        H100: mine (two-regime), from steps.csv
    OUTSIDE of its range: steps with prefill of up to 7126 prompt tokens, measured up to 2048
    ");
    insta::assert_snapshot!(lines(&sim("128")), @"
    step time        H100: mine (two-regime), from steps.csv
    OUTSIDE of its range: pure decode steps of up to 128 decodes, measured up to 64; of up to 223898 context tokens, measured up to 192000
    OUTSIDE of its range: steps with prefill of up to 7911 prompt tokens, measured up to 2048; of up to 127 decodes, measured up to 64; of up to 233345 context tokens, measured up to 128000
    ");
}

/// A request log is replayed on a simulated server: here the server is simulated too, so the errors
/// are those of the fit.
#[test]
fn a_request_log_is_replayed() {
    let dir = folder();
    let truth = "decode:base=8ms,decode=100us/request,context=200ns/token; \
                 mixed:base=9ms,prefill=50us/token,decode=150us/request,context=500ns/token,attention=4ns/pair";
    run(
        dir.path(),
        &[
            "sim",
            "--step-time",
            truth,
            "--max-num-seqs",
            "48",
            "--chunk",
            "512",
            "--rate-scale",
            "0.2",
            "--requests-out",
            "requests.jsonl",
        ],
    );
    let text = run(
        dir.path(),
        &[
            "fit",
            "steps.csv",
            "--validate",
            "requests.jsonl",
            "--max-num-seqs",
            "48",
            "--chunk",
            "512",
        ],
    );
    let (_, validation) = text.split_once("validation on").unwrap();
    insta::assert_snapshot!(validation, @"
    requests.jsonl: request log, 2000 points
     error          mean step of a closed loop: MAPE 5.4 %, p90 9.5 %, worst +185.0 % at P 496.5, B 10.6, C 18625.6 (request 749), bias -3.1 %
     replay         2000 requests, decode first
     mean TTFT      -0.7 % (predicted 173.31 ms, measured 174.49 ms)
     mean TPOT      -0.9 % (predicted 16.24 ms, measured 16.39 ms)
     mean E2E       -0.9 % (predicted 3638.37 ms, measured 3672.72 ms)
    ");
}

/// The same under vLLM's scheduler: the log is of a simulated server with the true step time, and
/// the fit is some per cent off. One KV block is the null block, and a server whose blocks hold a
/// fifth of the tokens is predicted wrong by far.
#[test]
fn a_request_log_is_replayed_under_vllm() {
    let dir = folder();
    let truth = "decode:base=8ms,decode=100us/request,context=200ns/token; \
                 mixed:base=9ms,prefill=50us/token,decode=150us/request,context=500ns/token,attention=4ns/pair";
    let server = "--max-num-seqs 48 --max-num-batched-tokens 2048 --num-gpu-blocks-override 4000";
    run(
        dir.path(),
        &[
            "sim",
            "--engine",
            "vllm",
            "--engine-args",
            server,
            "--step-time",
            truth,
            "--rate-scale",
            "0.2",
            "--requests-out",
            "requests.jsonl",
        ],
    );
    let fitted = |server: &str| {
        let text = run(
            dir.path(),
            &["fit", "steps.csv", "--validate", "requests.jsonl", "--engine-args", server],
        );
        let (_, validation) = text.split_once("\n  replay ").unwrap();
        validation.lines().map(|l| format!("{}\n", l.trim())).collect::<String>()
    };
    insta::assert_snapshot!(fitted(server), @"
    2000 requests, vllm-v1 as of 0.33.0, max_num_seqs 48, max_num_batched_tokens 2048, 4000 KV blocks
    max_model_len 63984: all of the KV cache, as no model says more
    mean TTFT      -0.2 % (predicted 153.21 ms, measured 153.49 ms)
    mean TPOT      -0.9 % (predicted 15.36 ms, measured 15.50 ms)
    mean E2E       -0.9 % (predicted 3442.76 ms, measured 3473.92 ms)
    ");
    let tight = server.replace("4000", "800");
    let text = fitted(&tight);
    let error = |name: &str| -> f64 {
        let (_, rest) = text.split_once(name).unwrap();
        rest.trim().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(100.0 < error("mean TTFT"), "{text}");
    // So few blocks are just full: the error of the fit decides whether the queue grows.
    assert!(text.contains("W29 error"), "{text}");
}

/// The example has one law for all batches; a split of it is made by hand, and read back.
#[test]
fn a_split_and_a_table_can_be_simulated() {
    let dir = folder();
    let said = run(dir.path(), &["fit", "steps.csv", "--form", "split", "-o", "split.toml"]);
    assert!(said.ends_with("wrote split.toml: goodput sim --step-time split.toml\n"), "{said}");
    let file = std::fs::read_to_string(dir.path().join("split.toml")).unwrap();
    assert!(file.contains("form = \"split\"") && file.contains("decodes = 16"), "{file}");
    let table = r#"schema_version = 1
name = "grid"
model = ""
gpu = ""
engine = ""
form = "table"
source = "made up"
licence = ""
method = "by hand"
limits = []
[decode_table_ms]
decodes = [1, 64]
context_each = [0, 10000]
times = [["8", "10"], ["14", "142"]]
[prefill_table_ms]
prompt_tokens = [0, 512]
context = [0, 640000]
times = [["9", "329"], ["34.6", "354.6"]]
c = "0.15"
q = "0.000004"
"#;
    std::fs::write(dir.path().join("table.toml"), table).unwrap();
    let step_time = |name: &str| {
        let text = run(
            dir.path(),
            &["sim", "--step-time", name, "--max-num-seqs", "48", "--chunk", "512"],
        );
        let lines = text.lines().filter(|l| l.contains("decode:") || l.contains("step time"));
        lines.map(|l| format!("{}\n", l.trim())).collect::<String>()
    };
    insta::assert_snapshot!(step_time("split.toml") + &step_time("table.toml"), @"
    step time        steps.csv (split), from steps.csv
    decode:base=7.889039894626013ms,decode=109.416726602552us/request,context=191.573365493ns/token; mixed:base=11.842602542387902ms,prefill=59.696688837797us/token,decode=109.416726602552us/request,context=191.573365493ns/token; above 16 decodes:base=7.819732063410736ms,decode=99.577682341162us/request,context=208.21779585ns/token
    decode: 15 points, error mean 1.1 %, p90 2.3 %, bias -0.02 %; up to 0 prompt tokens, 16 decodes and 48000 context tokens a step
    decode: 6 points, error mean 0.8 %, p90 1.8 %, bias -0.009 %; up to 0 prompt tokens, 64 decodes and 192000 context tokens a step
    step time        grid (table), from made up
    decode: table of 2 x 2, mixed: table of 2 x 2, beyond them their last lines
    ");
    let mut said = String::new();
    for (old, new) in [("[1, 64]", "[64, 1]"), ("c = \"0.15\"\n", ""), ("\"8\"", "\"x\"")] {
        std::fs::write(dir.path().join("bad-table.toml"), table.replacen(old, new, 1)).unwrap();
        said.push_str(&run(dir.path(), &["sim", "--step-time", "bad-table.toml"]));
    }
    insta::assert_snapshot!(said, @"
    goodput: --step-time: bad-table.toml, line 11, `decode_table_ms`: step-time table `first axis: 1 after 64`: expected amounts that rise
    exit Some(2)
    goodput: --step-time: bad-table.toml, line 15, `prefill_table_ms`: missing field `c`
    exit Some(2)
    goodput: --step-time: bad-table.toml, line 11, `decode_table_ms`: `times`: found `x`, expected a decimal number of milliseconds
    exit Some(2)
    ");
}

#[test]
fn other_forms_and_outputs() {
    let dir = folder();
    let mut said = String::new();
    for form in ["floored", "affine", "linear", "split"] {
        said.push_str(&run(dir.path(), &["fit", "steps.csv", "--form", form, "--format", "md"]));
        said.push('\n');
    }
    let tables: String =
        said.lines().filter(|l| l.starts_with("|  |")).map(|l| format!("{l}\n")).collect();
    insta::assert_snapshot!(tables, @"
    |  | all steps | 41 | 9.5 % | 20.8 % | -39.0 % | -1.8 % | 7.26 ms | 59.89 us |  | 251.4 ns |
    |  | all steps | 41 | 9.6 % | 21.3 % | -39.4 % | -1.8 % | 7.607 ms | 59.61 us | 112.7 us | 252 ns |
    |  | all steps | 41 | 42.5 % | 87.7 % | +115.3 % | -27.7 % |  | 69.05 us | 573.1 us |  |
    |  | pure decode, B up to 16 | 15 | 1.1 % | 2.3 % | -2.7 % | -0.02 % | 7.889 ms |  | 109.4 us | 191.6 ns |
    |  | pure decode | 6 | 0.8 % | 1.8 % | +1.8 % | -0.009 % | 7.82 ms |  | 99.58 us | 208.2 ns |
    |  | with prefill | 20 | 28.8 % | 61.1 % | -81.3 % | -13.3 % | 11.84 ms | 59.7 us |  |  |
    ");
    let json = run(dir.path(), &["fit", "steps.csv", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["kind"], "goodput-fit");
    assert_eq!(json["deployments"][0]["fits"].as_array().unwrap().len(), 2);
    run(dir.path(), &["fit", "steps.csv", "--residuals", "r.csv"]);
    let residuals = std::fs::read_to_string(dir.path().join("r.csv")).unwrap();
    assert_eq!(residuals.lines().count(), 42);
}

#[test]
fn what_cannot_be_fitted_says_why() {
    let dir = folder();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("zero.csv", "decodes,context,time_ms\n1,10,0\n");
    write("few.csv", "decodes,context,time_ms\n1,10,8\n2,10,8.1\n");
    write("decode.csv", "decodes,context,time_ms\n1,10,8\n2,30,8.1\n4,50,9\n");
    write("seconds.csv", "decodes,context,time_s\n1,10,8\n2,30,8.1\n4,50,9\n");
    write("both.csv", "decodes,context,time_s,time_ms\n1,10,8,8000\n");
    write("none.csv", "a,b\n1,2\n");
    write("log.csv", "arrival_s,ttft_s,e2e_s,input_tokens,output_tokens\n0,0.5,3,100,11\n");
    write("bad.toml", "schema_version = 1\n");
    let mut said = String::new();
    for arguments in [
        &["fit", "absent.csv"][..],
        &["fit", "zero.csv"],
        &["fit", "few.csv"],
        &["fit", "decode.csv", "-o", "x.toml"],
        &["fit", "decode.csv", "seconds.csv"],
        &["fit", "both.csv"],
        &["fit", "none.csv"],
        &["fit", "steps.csv", "-o", "steps.csv"],
        &["fit", "steps.csv", "--validate", "log.csv", "--engine-args", "--nope 1"],
        &["fit", "steps.csv", "--map", "batch=b"],
        &["fit", "steps.csv", "--by", "gpu"],
        &["fit", "steps.csv", "--only", "nothing"],
        &["sim", "--step-time", "bad.toml"],
        &["sim", "--step-time", "absent.toml"],
    ] {
        said.push_str(&run(dir.path(), arguments));
    }
    insta::assert_snapshot!(said, @"
    goodput: absent.csv: cannot be read: No such file or directory (os error 2)
    exit Some(2)
    goodput: zero.csv: line 2, `time_ms`: found `0`, expected a number above 0
    exit Some(2)
    goodput: few.csv: decode: 2 points with 3 coefficients (a, c, d), expected at least as many points, or a form with fewer (floored has one set for all steps, linear two coefficients)
    exit Some(2)
    goodput: -o x.toml: no point is a step with prefill: a simulation needs both regimes, give a file with such steps too
    exit Some(2)
    goodput: seconds.csv: times are 1000 times those of decode.csv for the same work: is one in milliseconds and the other in seconds? name the unit with --map time_ms=… or time_s=…
    exit Some(2)
    goodput: both.csv: `time_s` and `time_ms` both give the time: name one with --map
    exit Some(2)
    goodput: none.csv: no column has a field's name; the file has `a`, `b`; map them, as in `--map ttft_ms=a`, to id, input_tokens, output_tokens, outcome, or with _s, _ms, _us or _ns arrival, sent, scheduled, first_token, last_token, ttft, tpot, e2e
    exit Some(2)
    goodput: -o steps.csv: is an input file, name another one
    exit Some(2)
    goodput: --engine-args: no KV capacity: give --num-kv-blocks, or --kv-memory with --kv-bytes-per-token, or a step-time preset whose model and GPU are known
    exit Some(2)
    goodput: --map: no field `batch`, expected one of prefill_tokens, decodes, context, attention, prefills, concurrency, isl, osl, time_s, time_ms, time_us, time_ns, tpot_ms, tpot_s
    exit Some(2)
    goodput: --by: steps.csv has no column `gpu`: it has prefill_tokens, decodes, context, time_ms
    exit Some(2)
    goodput: no points are left: see --only and --regime
    exit Some(2)
    goodput: --step-time: bad.toml, line 1: missing field `name`
    exit Some(2)
    goodput: --step-time: absent.toml: cannot be read: No such file or directory (os error 2)
    exit Some(2)
    ");
}

/// What a row does not say is no 0: such rows are left out with their reason, and an idle step is
/// one whose zeros are there. Both files have the same three whole rows.
#[test]
fn a_missing_cell_is_no_zero() {
    let dir = folder();
    let rows = "1,10,8\n2,30,8.1\n4,50,9\n";
    let csv = format!("decodes,context,time_ms,host\n{}", rows.replace('\n', ",a\n"));
    let csv = format!("{csv}8,,17,a\n,900,17,a\n16,,17,a\n0,,1,a\n");
    std::fs::write(dir.path().join("holes.csv"), csv).unwrap();
    let lines: String = rows
        .lines()
        .map(|row| {
            let x: Vec<&str> = row.split(',').collect();
            format!("{{\"decodes\":{},\"context\":{},\"time_ns\":{}e6}}\n", x[0], x[1], x[2])
        })
        .collect();
    let lines = format!("{lines}{{\"decodes\":8,\"time_ns\":17e6,\"kv\":[1]}}\n");
    std::fs::write(dir.path().join("holes.jsonl"), lines).unwrap();
    let of = |file: &str| {
        let text = run(dir.path(), &["fit", file]);
        let until = text.find("\n\n").unwrap_or(text.len());
        format!("{}\n", &text[..until])
    };
    insta::assert_snapshot!(of("holes.csv") + &of("holes.jsonl"), @"
    holes.csv: step log, 3 points
      left out       2 rows: context is not known (first: holes.csv line 5)
      left out       1 row: decodes are not known (first: holes.csv line 6)
      left out       1 row: neither prompt tokens nor decodes: an idle step (first: holes.csv line 8)
      note           no field is called so, not read: `host`
    holes.jsonl: step log, 3 points
      left out       1 row: context is not known (first: holes.jsonl line 4)
      note           no field is called so, not read: `kv`
    ");
    let coefficients = |file: &str| {
        let json = run(dir.path(), &["fit", file, "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["deployments"][0]["fits"][0]["coefficients"].clone()
    };
    assert_eq!(coefficients("holes.csv"), coefficients("holes.jsonl"));
}

#[test]
fn a_column_that_is_not_what_it_seems_is_refused() {
    let dir = folder();
    let mut said = String::new();
    for (file, text) in [
        ("near.csv", "decodes,context,prefill_token,time_ms\n1,10,0,8\n"),
        ("near2.csv", "decode,context,time_ms\n1,10,8\n"),
        ("near3.csv", "concurency,isl,osl,tpot_ms\n8,100,50,12\n"),
        ("near.jsonl", "{\"decodes\":1,\"Context\":10,\"time_ms\":8}\n"),
        ("list.jsonl", "{\"decodes\":1,\"context\":[10],\"time_ms\":8}\n"),
        ("twice.csv", "decodes,context,time_ms,context\n1,10,8,20\n"),
        ("twice.jsonl", "{\"decodes\":1,\"context\":10,\"context\":20,\"time_ms\":8}\n"),
        ("unit.csv", "decodes,context,time\n1,10,8\n"),
        ("timeless.csv", "decodes,context,elapsed\n1,10,8\n"),
        ("few-context.csv", "decodes,context,time_ms\n1,10,8\n8,2,9\n"),
        ("long.csv", "decodes,context,time_ms\n1,10,1e300\n"),
        ("many.csv", "decodes,context,time_ms\n1,1e300,10\n"),
        ("unknown.csv", "decodes,context,time_ms\n1,,10\n2,,11\n"),
        ("empty.csv", "decodes,context,time_ms\n"),
    ] {
        std::fs::write(dir.path().join(file), text).unwrap();
        said.push_str(&run(dir.path(), &["fit", file]));
    }
    insta::assert_snapshot!(said.replace("exit Some(2)\n", ""), @"
    goodput: near.csv, line 1, `prefill_token`: no field is called so, did you mean `prefill_tokens`? Rename it, or say with `--map` what each column means
    goodput: near2.csv, line 1, `decode`: no field is called so, did you mean `decodes`? Rename it, or say with `--map` what each column means
    goodput: near3.csv, line 1, `concurency`: no field is called so, did you mean `concurrency`? Rename it, or say with `--map` what each column means
    goodput: near.jsonl, line 1, `Context`: no field is called so, did you mean `context`? Rename it, or say with `--map` what each column means
    goodput: list.jsonl: line 1, `context`: found `a list`, expected a number of at least 0
    goodput: twice.csv, line 1, `context`: appears twice, expected once
    goodput: twice.jsonl, line 1, `context`: appears twice, expected once
    goodput: unit.csv: `time` has no unit, expected one of time_s, time_ms, time_us, time_ns
    goodput: timeless.csv: a step log without a time, expected one of time_s, time_ms, time_us, time_ns; it has decodes, context, elapsed
    goodput: few-context.csv: line 3: `context` is 2 for 8 decodes, expected at least 8: each decode has a token or more
    goodput: long.csv: line 2, `time_ms`: found `1e300`, expected a time from 1e-12 s to 1e6 s
    goodput: many.csv line 2: context must be finite and from 0 to 1000000000000000, got 1e300
    goodput: unknown.csv: no row gives a point: context is not known (first: unknown.csv line 2)
    goodput: empty.csv: has no rows
    ");
    // A map says that the other columns are meant to be left.
    let text = run(dir.path(), &["fit", "near.csv", "--map", "time_ms=time_ms"]);
    assert!(text.contains("near.csv: decode: 1 point with 3 coefficients"), "{text}");
}

/// What `--map` takes for a field, the help names.
#[test]
fn the_help_names_the_fields() {
    let dir = folder();
    let help = run(dir.path(), &["fit", "--help"]);
    let said = run(dir.path(), &["fit", "steps.csv", "--map", "x=y"]);
    let (_, fields) = said.lines().next().unwrap().split_once("expected one of ").unwrap();
    assert_eq!(fields.split(", ").count(), 14);
    for field in fields.split(", ") {
        assert!(help.contains(field), "{field}: {help}");
    }
}

#[test]
fn a_file_that_is_read_twice_is_refused() {
    let dir = folder();
    std::fs::create_dir(dir.path().join("x")).unwrap();
    let said: String = [
        &["fit", "steps.csv", "steps.csv"][..],
        &["fit", "steps.csv", "x/../steps.csv"],
        &["fit", "steps.csv", "--validate", "steps.csv"],
        &["fit", "--step-time", "llama-3.1-8b-h100-sxm", "--calibrate", "a.jsonl", "a.jsonl"],
    ]
    .iter()
    .map(|arguments| run(dir.path(), arguments))
    .collect();
    insta::assert_snapshot!(said.replace("exit Some(2)\n", ""), @"
    goodput: steps.csv is given twice, and is one set of measurements
    goodput: steps.csv and x/../steps.csv are one file
    goodput: steps.csv is given twice, and is one set of measurements
    goodput: a.jsonl is given twice, and is one set of measurements
    ");
}

#[test]
fn an_option_that_nothing_can_use_is_refused() {
    let dir = folder();
    let said: String = [
        &["--name", "x"][..],
        &["--licence", "x"],
        &["--layers", "32"],
        &["--layers", "0"],
        &["--kv-tokens", "0"],
        &["--chunk", "5"],
        &["--chunk", "5", "--validate", "other-steps.csv"],
        &["--tensor-parallel", "2"],
        &["--validate", "other-steps.csv", "--max-num-seqs", "8"],
        &["-o", "-"],
    ]
    .map(|more| run(dir.path(), &[&["fit", "steps.csv"], more].concat()))
    .concat();
    insta::assert_snapshot!("refusals", said);
}

/// The example has a decode step of 8.07 ms: an H100 reads the 15 GB of weights in 4.5 ms, an L40S in
/// 17.4 ms.
#[test]
fn steps_are_held_against_what_the_hardware_allows() {
    let dir = folder();
    let at = |model: &str, gpu: &str, more: &[&str]| {
        let mut arguments = vec!["fit", "steps.csv", "--model", model, "--gpu", gpu];
        arguments.extend(more);
        let text = run(dir.path(), &arguments);
        let lines = text.lines().filter(|l| {
            ["W25", "no step is", "not held", "goodput:", "exit"].iter().any(|w| l.contains(w))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(at("llama-3.1-8b", "h100", &[]), @"
    no step is faster than bandwidth and FLOP allow, none all too slow
    ");
    insta::assert_snapshot!(at("llama-3.1-8b", "l40s", &[]), @"
    W25 error      faster than possible, or many times slower: TPOT 8.07 ms is faster than the 17.43 ms that bandwidth and FLOP allow: another precision, cached tokens, or another model, in a pure decode step: B 2, C 400 (steps.csv line 5)
    W25 error      faster than possible, or many times slower: TTFT 11.88 ms is faster than the 17.37 ms that bandwidth and FLOP allow: another precision, cached tokens, or another model, in a step with prefill: P 64 (steps.csv line 23)
    ");
    insta::assert_snapshot!(at("llama-3.1-8b", "my gpu", &[]), @"
    goodput: --model, --gpu: `my gpu` is no GPU that is known; nearest are `NVIDIA A100 PCIe`, `NVIDIA A10G`, `NVIDIA L4`
    exit Some(2)
    ");
    insta::assert_snapshot!(at("mine", "my gpu", &["-o", "mine.toml"]), @"
    not held against what the hardware allows: `mine` is no model that is known; nearest are `mistralai/Mistral-7B-v0.3`, `mistralai/Mixtral-8x7B-v0.1`, `mistralai/Mistral-7B-v0.1`
    ");
}

/// The "engine" is a simulation whose steps are 1 ms longer than its kernels and 20 us for each
/// request; 400 requests of 1, 6 and 12 a second are its runs. What a prompt and the client add is
/// 0, and no run is far off when it is predicted from the others.
#[test]
fn overheads_are_calibrated_on_runs_and_kept_in_the_file() {
    let dir = folder();
    let kernels = "decode:base=6ms,decode=20us/request,context=40ns/token; \
                   mixed:base=7ms,prefill=30us/token,decode=30us/request,context=60ns/token";
    let engine = "decode:base=7ms,decode=40us/request,context=40ns/token; \
                  mixed:base=8.02ms,prefill=30us/token,decode=50us/request,context=60ns/token";
    for rate in ["1", "6", "12"] {
        let out = format!("r{rate}.jsonl");
        let rate = format!("{rate}/s");
        let sim = ["sim", "--step-time", engine, "--max-num-seqs", "64", "--chunk", "512"];
        let load = ["--rate", &rate, "--requests", "400", "--requests-out", &out];
        run(dir.path(), &[&sim[..], &load].concat());
    }
    let calibrate = |more: &[&str]| {
        let server = ["--max-num-seqs", "64", "--chunk", "512"];
        let runs = ["--calibrate", "r1.jsonl", "r6.jsonl", "r12.jsonl"];
        run(dir.path(), &[&["fit", "--step-time", kernels][..], &server, more, &runs].concat())
    };
    insta::assert_snapshot!("calibrated", calibrate(&["-o", "mine.toml", "--name", "mine"]));
    let again = ["sim", "--step-time", "mine.toml", "--max-num-seqs", "64", "--requests", "50"];
    let said = run(dir.path(), &again);
    assert!(said.contains("; overheads: "), "{said}");
    assert!(said.contains("calibrated end to end on r1.jsonl, r6.jsonl, r12.jsonl"), "{said}");
    let json = calibrate(&["--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let per_step = json["overheads"]["per_step_s"].as_f64().unwrap();
    assert!((per_step / 1e-3 - 1.0).abs() < 0.05, "{json}");
    let said = [
        run(dir.path(), &["fit", "--step-time", "mine.toml", "--calibrate", "r1.jsonl"]),
        run(dir.path(), &["fit", "--step-time", kernels]),
        run(dir.path(), &["fit", "steps.csv", "--max-num-seqs", "64"]),
        calibrate(&["--format", "csv"]),
        calibrate(&["--residuals", "x.csv"]),
    ]
    .concat();
    insta::assert_snapshot!("calibration_refused", said);
}
