//! `goodput fit --calibrate`: what an engine adds to its kernels, from its own runs.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use capacity::calibrate::{Calibration, CalibrationRun, calibrate};
use capacity::fit::file::file;
use capacity::fit::validate::measured;
use capacity::means::Means;
use metrics_core::Seconds;
use metrics_core::format;
use sched_sim::WithOverheads;
use serde_json::{Value, json};
use serving_io::fitted::{FittedStep, FittedStepTime};
use serving_io::scenario::StepTimeSource;

use super::render::{self, signed};
use super::{Arguments, Group, about, names, server};
use crate::output::{self, Format};

/// Everything that is shown.
struct Answer {
    kernels: String,
    server: String,
    notes: Vec<String>,
    /// Of each run: its name, its requests, and how many were left out.
    runs: Vec<(String, u64, u64)>,
    found: Calibration,
    written: Option<String>,
}

/// Runs the command; what it prints. The kernels are those of the fit, or of `--step-time`.
pub(super) fn run(
    arguments: &Arguments,
    group: Option<&Group>,
    format: Format,
    output: Option<&Path>,
) -> Result<String> {
    if !matches!(format, Format::Text | Format::Json) {
        bail!("--format: a calibration is printed as text or json");
    }
    let kernels = kernels(arguments, group)?;
    let Some((name, notes, server)) = server(arguments)? else {
        bail!(
            "--calibrate: give --max-num-seqs, the largest batch of the server, or --engine-args"
        );
    };
    let mut runs = Vec::new();
    let mut counts = Vec::new();
    for path in &arguments.calibrate {
        let read = serving_io::read_path(path, &serving_io::Options::default());
        let read = read.map_err(|e| anyhow!("{e}"))?;
        let several = 1 < read.runs.len();
        for (i, run) in read.runs.iter().enumerate() {
            let shown = path.display().to_string();
            let name = if several { format!("{shown} run {}", i + 1) } else { shown };
            let m = measured(&run.timelines).map_err(|e| anyhow!("{name}: {e}"))?;
            counts.push((name.clone(), m.workload.requests().len() as u64, m.left_out));
            runs.push(CalibrationRun { name, workloads: vec![m.workload], measured: m.means });
        }
    }
    let found = calibrate(&runs, server.as_ref(), &kernels.step)
        .map_err(|e| anyhow!("--calibrate: {e}"))?;
    let said = format!("{} ({})", kernels.name, kernels.step.form());
    let written = output.map(|path| write(path, kernels, &found, arguments)).transpose()?;
    let answer = Answer { kernels: said, server: name, notes, runs: counts, found, written };
    match format {
        Format::Json => json_of(&answer),
        _ => text_of(&answer),
    }
}

/// The step time without what the engine adds.
fn kernels(arguments: &Arguments, group: Option<&Group>) -> Result<FittedStepTime> {
    let file_names = names(&arguments.files);
    let plain = |step: FittedStep, text: &str| FittedStepTime {
        name: arguments.name.clone().unwrap_or_else(|| "calibrated".to_owned()),
        model: arguments.model.clone(),
        gpu: arguments.gpu.clone(),
        tensor_parallel: arguments.gpus(),
        engine: arguments.engine.clone(),
        source: text.to_owned(),
        licence: arguments.licence.clone(),
        method: "given coefficients".to_owned(),
        limits: Vec::new(),
        step,
        regimes: Vec::new(),
    };
    match (group, arguments.step_time.as_ref().map(|kernels| &kernels.source)) {
        (Some(group), _) => file(&group.fitted, about(arguments, group, &file_names))
            .map_err(|e| anyhow!("--calibrate: {e}")),
        (None, Some(StepTimeSource::Fitted(f))) => {
            if let FittedStep::Calibrated(_) = f.step {
                bail!("--step-time: {} has overheads already: give the kernels alone", f.name);
            }
            let mut kernels = f.as_ref().clone();
            if let Some(name) = &arguments.name {
                kernels.name.clone_from(name);
            }
            Ok(kernels)
        }
        (None, Some(StepTimeSource::Affine(t))) => {
            Ok(plain(FittedStep::Affine(*t), &t.to_string()))
        }
        (None, Some(StepTimeSource::TwoRegime(t))) => {
            Ok(plain(FittedStep::TwoRegime(*t), &t.to_string()))
        }
        (None, _) => {
            bail!(
                "--step-time: expected coefficients, a preset or a step-time file for --calibrate"
            )
        }
    }
}

/// Writes the kernels with the overheads as a step-time file.
fn write(
    path: &Path,
    kernels: FittedStepTime,
    found: &Calibration,
    arguments: &Arguments,
) -> Result<String> {
    let overheads = found.overheads.of_server().map_err(|e| anyhow!("{e}"))?;
    let step = WithOverheads::new(kernels.step, overheads)?;
    let mut limits = kernels.limits;
    limits.push(format!(
        "overheads calibrated end to end on {}; the client adds {} to TTFT and E2E, which is not in a step",
        names(&arguments.calibrate).join(", "),
        time(found.overheads.client_s)
    ));
    let file = FittedStepTime {
        step: FittedStep::Calibrated(Box::new(step)),
        limits,
        method: format!("{}, with calibrated overheads", kernels.method),
        ..kernels
    };
    std::fs::write(path, file.to_toml())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}

fn time(seconds: f64) -> String {
    Seconds::new(seconds).map_or("-".to_owned(), format::time)
}

/// Three errors with their signs.
fn errors(e: &Means) -> String {
    let [ttft, tpot, e2e] = e.values().map(signed);
    format!("mean TTFT {ttft}, TPOT {tpot}, E2E {e2e}")
}

fn text_of(answer: &Answer) -> Result<String> {
    let mut text = String::new();
    let mut line = |label: &str, content: &str| render::line(&mut text, label, content);
    line("kernels", &answer.kernels)?;
    line("server", &answer.server)?;
    for note in &answer.notes {
        line("", note)?;
    }
    for (name, requests, left_out) in &answer.runs {
        let left = match left_out {
            0 => String::new(),
            n => format!("; {n} left out, which makes the load lower"),
        };
        line("run", &format!("{name}: {}{left}", format::things(*requests, "request")))?;
    }
    let o = answer.found.overheads.named();
    let parts: Vec<String> = o.iter().map(|(name, s)| format!("{name} {}", time(*s))).collect();
    line("overheads", &parts.join(", "))?;
    for confused in &answer.found.confused {
        line("not told", confused)?;
    }
    for (name, e) in &answer.found.fitted {
        line("error of fit", &format!("{name}: {}", errors(e)))?;
    }
    for (name, e) in &answer.found.held_out {
        line("left out", &format!("{name} from the others: {}", errors(e)))?;
    }
    if answer.found.held_out.is_empty() {
        line("left out", "one run alone: nothing says how far another is off")?;
    }
    for name in &answer.found.near_saturation {
        line("near full", &format!("{name} is near saturation: predicted, not fitted"))?;
    }
    let mut all = format!("calibration on {}\n", format::things(answer.runs.len() as u64, "run"));
    all.push_str(&text);
    if let Some(path) = &answer.written {
        writeln!(all, "\nwrote {path}: goodput sim --step-time {path}")?;
    }
    Ok(all)
}

fn json_of(answer: &Answer) -> Result<String> {
    let of = |all: &[(String, Means)]| -> Vec<Value> {
        all.iter()
            .map(|(run, e)| {
                json!({ "run": run, "ttft": e.ttft_s, "tpot": e.tpot_s, "e2e": e.e2e_s })
            })
            .collect()
    };
    let o = &answer.found.overheads;
    output::json_text(&json!({
        "schema_version": 1,
        "kind": "goodput-calibration",
        "kernels": answer.kernels,
        "server": answer.server,
        "notes": answer.notes,
        "runs": answer.runs.iter().map(|(name, requests, left_out)| json!({
            "run": name, "requests": requests, "left_out": left_out,
        })).collect::<Vec<_>>(),
        "overheads": {
            "per_step_s": o.per_step_s,
            "per_prompt_chunk_s": o.per_prefill_s,
            "per_request_s": o.per_request_s,
            "client_s": o.client_s,
        },
        "not_told": answer.found.confused,
        "error_of_fit": of(&answer.found.fitted),
        "error_left_out": of(&answer.found.held_out),
        "near_saturation": answer.found.near_saturation,
        "written": answer.written,
    }))
}
