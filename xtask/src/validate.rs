//! `cargo xtask validate DIR`: predicted against measured, case by case.
//!
//! A case (schema `goodput-validation/2`) says how a real engine was set up, what it was sent and
//! what was measured. Engine settings, workload and the coefficients of the case's `step_time` go
//! in; the measured figures of runs to `predict` are only compared with. Runs to `calibrate` may be
//! fitted to, and nothing else.

mod case;
mod closed;
mod sweep;

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use metrics_core::RequestTimeline;
use metrics_core::Seconds;
use metrics_core::slo::Latency;
use metrics_core::summary::Summary;
use metrics_core::timeline::Outcome;
use sched_sim::vllm_v1::{EngineVersion, Usage, VllmConfig, VllmV1Run};
use sched_sim::{Coefficients, Extra, Simulation, Ticks, TwoRegime, Workload, WorkloadRequest};

pub use case::{Case, CaseRun, Kind, Load, Role};

/// Seeds of a random load; the spread over them is printed.
pub const SEEDS: u64 = 5;

/// One figure of one run.
pub struct Row {
    pub run: String,
    pub figure: String,
    pub predicted: f64,
    /// Smallest and largest over the seeds, for a random load.
    pub spread: Option<(f64, f64)>,
    pub measured: f64,
    /// Allowed error in per cent; none is for information.
    pub gate_pct: Option<f64>,
}

impl Row {
    /// Error in per cent of the measured figure, with its sign.
    pub fn error_pct(&self) -> f64 {
        (self.predicted - self.measured) / self.measured * 100.0
    }

    /// Whether it is within its tolerance; a figure without one is.
    pub fn holds(&self) -> bool {
        self.gate_pct.is_none_or(|gate| self.error_pct().abs() <= gate)
    }
}

/// What came out of one case.
pub struct Outcomes {
    pub id: String,
    pub title: String,
    /// How the figures were made.
    pub method: String,
    /// Why the result is a fit and no prediction, if it is one.
    pub fitted: Option<String>,
    pub rows: Vec<Row>,
}

impl Outcomes {
    pub fn holds(&self) -> bool {
        self.rows.iter().all(Row::holds)
    }
}

/// Every case of a folder, in order of their files.
pub fn run(dir: &Path) -> Result<Vec<Outcomes>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("{} cannot be read", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    if files.is_empty() {
        bail!("{}: holds no case, expected *.json", dir.display());
    }
    files.iter().map(|file| one(file).with_context(|| file.display().to_string())).collect()
}

fn one(file: &Path) -> Result<Outcomes> {
    let case = Case::read(file)?;
    let (method, rows) = match case.kind {
        Kind::Replay | Kind::OpenLoopSweep => simulated(&case)?,
        Kind::BatchSweep => sweep::run(&case)?,
        Kind::ClosedLoopSweep => closed::run(&case)?,
        Kind::Identities => identities(&case)?,
    };
    // Figures chosen or fitted on the run itself prove nothing about runs that were never seen.
    let origin = case.step_time.as_ref().map(|s| s.origin.as_str()).unwrap_or_default();
    let notes = case.notes.as_deref().unwrap_or_default();
    let fit = |text: &str| {
        text.contains("chosen on this run")
            || text.contains("fitted end to end")
            || text.contains("picked on this run")
    };
    let fitted = if fit(origin) {
        Some(origin.to_owned())
    } else if fit(notes) {
        notes.split(". ").find(|s| fit(s)).map(str::to_owned)
    } else {
        None
    };
    Ok(Outcomes { id: case.id, title: case.title, method, fitted, rows })
}

/// The whole table, and the last line.
pub fn report(all: &[Outcomes]) -> Result<String> {
    let mut text = String::new();
    for o in all {
        let mark = if o.holds() { "within tolerance" } else { "OUTSIDE" };
        writeln!(text, "{}: {mark}\n  {}\n  {}", o.id, o.title, o.method)?;
        if let Some(why) = &o.fitted {
            writeln!(text, "  a fit, not a prediction: {why}")?;
        }
        for r in &o.rows {
            let gate = match (r.gate_pct, r.holds()) {
                (Some(g), true) => format!("within {g} %"),
                (Some(g), false) => format!("OUTSIDE of {g} %"),
                (None, _) => "for information".to_owned(),
            };
            let spread = r
                .spread
                .map(|(low, high)| format!(" ({} to {})", shown(low), shown(high)))
                .unwrap_or_default();
            writeln!(
                text,
                "  {:18}{:22}{:>10} measured {:>10}  {:>+7.1} %  {gate}{spread}",
                r.run,
                r.figure,
                shown(r.predicted),
                shown(r.measured),
                r.error_pct(),
            )?;
        }
        writeln!(text)?;
    }
    let held = all.iter().filter(|o| o.holds()).count();
    write!(text, "within tolerance: {held} of {} cases", all.len())?;
    Ok(text)
}

/// Four significant digits.
pub fn shown(x: f64) -> String {
    metrics_core::format::significant(x, 4)
}

/// vLLM's scheduler as the case says it was set up, for one of its runs.
pub fn config(case: &Case, run: &CaseRun, longest: u64) -> Result<(VllmConfig, Vec<String>)> {
    /// A pool that no run of a case fills, where its size was not recorded.
    const NOT_BINDING: u64 = 10_000_000;
    let e = &case.engine;
    let mut notes = Vec::new();
    let block_size = e.block_size.unwrap_or(16);
    let blocks = match (e.kv_blocks, e.kv_tokens) {
        (Some(blocks), _) => blocks,
        (None, Some(tokens)) => tokens / block_size,
        (None, None) => {
            notes.push("KV size not recorded, taken as not binding".to_owned());
            NOT_BINDING
        }
    };
    // vLLM wants room for one request of the largest length; where the length was not recorded it
    // only bounds what no request of the run reaches.
    let max_model_len = e.max_model_len.unwrap_or((blocks - 1) * block_size).max(longest + 1);
    let mut c = VllmConfig::new(blocks, max_model_len.min((blocks - 1) * block_size));
    c.engine_version = e.version.parse::<EngineVersion>()?;
    c.block_size = block_size;
    c.enable_chunked_prefill = e.chunked_prefill.unwrap_or(true);
    c.enable_prefix_caching = e.prefix_caching.unwrap_or(true);
    c = c.with_gpu_defaults(80.0, false, Usage::ApiServer);
    if let Some(tokens) = e.max_num_batched_tokens {
        c.max_num_batched_tokens = tokens;
    }
    if let Some(seqs) = run.max_num_seqs.or(e.max_num_seqs) {
        c.max_num_seqs = seqs;
    }
    c.max_num_batched_tokens = c.max_num_batched_tokens.max(c.max_num_seqs);
    Ok((c, notes))
}

/// Replays and open-loop sweeps under the coefficients of the case.
fn simulated(case: &Case) -> Result<(String, Vec<Row>)> {
    let Some(step) = &case.step_time else {
        bail!("a {} case needs `step_time`", case.kind.name());
    };
    let step_time = two_regime(step)?;
    let client = Seconds::new(step.client_ms / 1e3)?;
    let mut rows = Vec::new();
    let mut method = String::new();
    for run in &case.runs {
        let seeds = if run.load.is_random() { SEEDS } else { 1 };
        let mut figures: Vec<Vec<(String, f64)>> = Vec::new();
        for seed in 1..=seeds {
            let workload = run.load.workload(seed)?;
            let longest =
                workload.requests().iter().map(|r| r.input_tokens + r.output_tokens).max();
            let (config, notes) = config(case, run, longest.unwrap_or(1))?;
            if method.is_empty() {
                method = format!(
                    "vllm-v1 as of {}, max_num_seqs {}, max_num_batched_tokens {}, {} KV blocks{}",
                    config.engine_version,
                    config.max_num_seqs,
                    config.max_num_batched_tokens,
                    config.num_blocks,
                    notes.iter().map(|n| format!("; {n}")).collect::<String>(),
                );
            }
            let result = Simulation::vllm_v1(&workload, VllmV1Run::new(config), step_time).run()?;
            figures.push(of_timelines(&result.timelines()?, client)?);
        }
        rows.extend(compare(run, &figures));
    }
    Ok((method, rows))
}

/// The case's coefficients as a step time.
pub fn two_regime(step: &case::StepTime) -> Result<TwoRegime> {
    let t = |ms: f64| Ticks::from_attoseconds(attoseconds(ms));
    let even = |ms: f64| Ticks::from_attoseconds(attoseconds(ms) & !1);
    let decode = Coefficients {
        base: t(step.decode.a),
        decode: t(step.decode.c),
        context: t(step.decode.d),
        ..Coefficients::default()
    };
    let mixed = Coefficients {
        base: t(step.mixed.a),
        prefill: t(step.mixed.b),
        decode: t(step.mixed.c),
        context: t(step.mixed.d),
        attention: even(step.mixed.q),
    };
    let extra = Extra { overhead: t(step.overhead_ms), ..Extra::default() };
    Ok(TwoRegime::new(decode, mixed, extra)?)
}

/// Milliseconds in ticks.
pub fn two_regime_ticks(ms: f64) -> Ticks {
    Ticks::from_attoseconds(attoseconds(ms))
}

/// Milliseconds as whole attoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "coefficients are checked to be at least 0, and a cast saturates"
)]
fn attoseconds(ms: f64) -> u128 {
    (ms * 1e15).round() as u128
}

/// The figures of a run under the names that cases use.
pub fn of_timelines(timelines: &[RequestTimeline], client: Seconds) -> Result<Vec<(String, f64)>> {
    let done: Vec<&RequestTimeline> =
        timelines.iter().filter(|t| t.outcome() == Outcome::Completed).collect();
    let mut figures = Vec::new();
    for (name, latency, added) in [
        ("ttft", Latency::Ttft, client.get()),
        ("tpot", Latency::Tpot, 0.0),
        ("e2e", Latency::E2e, client.get()),
    ] {
        // One-token answers have no gaps.
        let has = |t: &&&RequestTimeline| latency != Latency::Tpot || t.output_tokens() != Some(1);
        let values: Vec<f64> =
            done.iter().filter(has).filter_map(|t| Some(latency.of(*t)? + added)).collect();
        let Ok(summary) = Summary::new(values) else { continue };
        figures.push((format!("{name}_mean_s"), summary.mean()));
        for (p, label) in [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.97, "p97"), (0.99, "p99")]
        {
            figures.push((format!("{name}_{label}_s"), summary.percentile(p)?));
        }
    }
    let end = |t: &&RequestTimeline| Some(t.arrival_s()? + t.e2e_latency()?.get());
    let first = done.iter().filter_map(|t| t.arrival_s()).min_by(f64::total_cmp);
    let last = done.iter().filter_map(end).max_by(f64::total_cmp);
    if let (Some(first), Some(last)) = (first, last) {
        let duration = last - first;
        let tokens: u64 = done.iter().filter_map(|t| t.output_tokens()).sum();
        figures.push(("duration_s".to_owned(), duration));
        figures.push(("output_tokens_per_s".to_owned(), tokens as f64 / duration));
    }
    Ok(figures)
}

/// The figures of a run beside what was measured: those that have a gate, and the means.
pub fn compare(run: &CaseRun, seeds: &[Vec<(String, f64)>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (figure, measured) in &run.measured {
        let values: Vec<f64> = seeds
            .iter()
            .filter_map(|figures| figures.iter().find(|(n, _)| n == figure).map(|(_, x)| *x))
            .collect();
        let gate = run.gate_pct.iter().find(|(n, _)| n == figure).map(|(_, g)| *g);
        let told = gate.is_some() || figure.ends_with("_mean_s") || figure.ends_with("_p99_s");
        if values.is_empty() || !told || run.role == Role::Calibrate {
            continue;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        rows.push(Row {
            run: run.id.clone(),
            figure: figure.clone(),
            predicted: mean,
            spread: (1 < values.len()).then_some((low, high)),
            measured: *measured,
            gate_pct: gate,
        });
    }
    rows
}

/// Little's law, and E2E from its parts.
fn identities(case: &Case) -> Result<(String, Vec<Row>)> {
    let mut rows = Vec::new();
    for run in &case.runs {
        let get = |name: &str| {
            run.measured
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, x)| *x)
                .with_context(|| format!("run {}: `{name}` is not measured", run.id))
        };
        // The identity holds for means: lengths and gaps of a request are nearly independent.
        let parts = get("ttft_mean_s")? + get("tpot_mean_s")? * (get("output_tokens_mean")? - 1.0);
        let in_flight = queueing::little::little_l(get("completed_per_s")?, get("e2e_mean_s")?)?;
        let mut push = |figure: &str, predicted: f64, measured: f64, gate_pct: Option<f64>| {
            rows.push(Row {
                run: run.id.clone(),
                figure: figure.to_owned(),
                predicted,
                spread: None,
                measured,
                gate_pct,
            });
        };
        let gate = run.gate_pct.iter().find(|(n, _)| n == "e2e_mean_s").map(|(_, g)| *g);
        push("e2e_mean_s", parts, get("e2e_mean_s")?, gate);
        for (figure, value) in &run.derived {
            match figure.as_str() {
                "in_flight_mean" => push(figure, in_flight, *value, Some(0.1)),
                "e2e_from_parts_mean_s" => push(figure, parts, *value, Some(0.1)),
                _ => {}
            }
        }
    }
    Ok(("identities only: no simulation".to_owned(), rows))
}

/// Requests from lists of the same length.
pub fn replayed(arrival_s: &[f64], input: &[u64], output: &[u64]) -> Result<Workload> {
    if arrival_s.len() != input.len() || input.len() != output.len() {
        bail!(
            "a replay has {} arrivals, {} input_tokens and {} output_tokens: expected as many of each",
            arrival_s.len(),
            input.len(),
            output.len()
        );
    }
    let requests = arrival_s.iter().zip(input).zip(output).enumerate().map(|(i, ((a, n), m))| {
        let arrival = Ticks::from_attoseconds(attoseconds(a * 1e3));
        WorkloadRequest::new(i.to_string(), arrival, *n, *m)
    });
    Ok(Workload::new(requests.collect())?)
}
