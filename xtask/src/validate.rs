//! `cargo xtask validate DIR`: predicted against measured, case by case.
//!
//! A case (schema `goodput-validation/2`) says how a real engine was set up, what it was sent and
//! what was measured. Engine settings, workload and the coefficients of the case's `step_time` go
//! in; the measured figures of runs to `predict` are only compared with. Runs to `calibrate` may be
//! fitted to, and nothing else.
//!
//! With `--fits` the same cases are predicted with our own presets, which know nothing of the case,
//! and with `--lower-rates` with the preset and overheads calibrated on all rates but the highest:
//! these errors are printed whatever they are, and have no gate.

mod case;
mod closed;
mod rate;
mod record;
mod steps;
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
use sched_sim::{
    Coefficients, Extra, Simulation, StepTime, Ticks, TwoRegime, Workload, WorkloadRequest,
};

pub use case::{Case, CaseRun, Kind, Load, Role};
pub use record::{FILE, Recorded, block};
pub use steps::From;

/// Seeds of a random load; the spread over them is printed.
pub const SEEDS: u64 = 5;

/// What a figure is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// The tolerance of the case, in per cent.
    Pct(f64),
    /// None: for information, perhaps with a goal of our own in per cent.
    None { goal_pct: Option<f64> },
}

/// One figure of one run.
#[derive(Clone, Debug)]
pub struct Row {
    pub run: String,
    pub figure: String,
    pub predicted: f64,
    /// Smallest and largest over the seeds, for a random load.
    pub spread: Option<(f64, f64)>,
    pub measured: f64,
    pub gate: Gate,
}

impl Row {
    /// Error in per cent of the measured figure, with its sign.
    pub fn error_pct(&self) -> f64 {
        (self.predicted - self.measured) / self.measured * 100.0
    }

    /// Whether it is within its tolerance; a figure without one is.
    pub fn holds(&self) -> bool {
        match self.gate {
            Gate::Pct(gate) => self.error_pct().abs() <= gate,
            Gate::None { .. } => true,
        }
    }
}

/// What came out of one case.
pub struct Outcomes {
    pub id: String,
    pub title: String,
    /// Engine, GPU and source of what was measured.
    pub about: [String; 3],
    /// How the figures were made.
    pub method: String,
    /// The preset that predicted it, if one did.
    pub preset: Option<String>,
    /// Why nothing could be predicted, if so.
    pub unpredicted: Option<String>,
    /// Why the result is a fit and no prediction, if it is one.
    pub fitted: Option<String>,
    pub rows: Vec<Row>,
}

impl Outcomes {
    pub fn holds(&self) -> bool {
        self.unpredicted.is_none() && self.rows.iter().all(Row::holds)
    }
}

/// What one kind of case gives: how it was made and the figures, or why there are none.
type Predicted = std::result::Result<(String, Vec<Row>), String>;

/// Every case of a folder, in order of their files.
pub fn run(dir: &Path, from: From) -> Result<Vec<Outcomes>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("{} cannot be read", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    if files.is_empty() {
        bail!("{}: holds no case, expected *.json", dir.display());
    }
    files.iter().map(|file| one(file, from).with_context(|| file.display().to_string())).collect()
}

fn one(file: &Path, from: From) -> Result<Outcomes> {
    let case = Case::read(file)?;
    let predicted = match (case.kind, from) {
        (Kind::BatchSweep, From::Case) => Ok(sweep::run(&case)?),
        (Kind::OpenLoopSweep, _)
        | (Kind::Replay, From::Case | From::OwnFits)
        | (Kind::BatchSweep, From::OwnFits) => simulated(&case, from)?,
        (Kind::Replay | Kind::BatchSweep, From::LowerRates) => {
            Err("it has no rates: there is nothing to calibrate on".to_owned())
        }
        (Kind::ClosedLoopSweep, From::Case) => Ok(closed::run(&case)?),
        (Kind::ClosedLoopSweep, From::OwnFits | From::LowerRates) => Err(closed::unserved(&case)?),
        (Kind::Identities, From::Case) => Ok(identities(&case)?),
        (Kind::Identities, From::OwnFits | From::LowerRates) => {
            Err("identities only: there is nothing to simulate".to_owned())
        }
    };
    let preset = match (from, &predicted) {
        (From::OwnFits | From::LowerRates, Ok(_)) => steps::own(&case)?.ok().map(|p| p.name),
        _ => None,
    };
    let (method, rows, unpredicted) = match predicted {
        Ok((method, rows)) => (method, rows, None),
        Err(why) => (String::new(), Vec::new(), Some(why)),
    };
    let e = &case.engine;
    let about = [
        format!("{} {}", e.name, e.version).trim().to_owned(),
        e.gpu.clone(),
        format!("{} {}, {}", case.source.repo, case.source.commit, case.source.license),
    ];
    if from != From::Case {
        // No gate is meant for what these fits say.
        let rows =
            rows.into_iter().map(|r| Row { gate: Gate::None { goal_pct: None }, ..r }).collect();
        let (id, title) = (case.id, case.title);
        return Ok(Outcomes { id, title, about, method, preset, unpredicted, fitted: None, rows });
    }
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
    Ok(Outcomes {
        id: case.id,
        title: case.title,
        about,
        method,
        preset,
        unpredicted,
        fitted,
        rows,
    })
}

/// The whole table, and the last line.
pub fn report(all: &[Outcomes], from: From) -> Result<String> {
    let mut text = String::new();
    for o in all {
        let mark = match (from, &o.unpredicted, o.holds()) {
            (_, Some(_), _) => "NOT PREDICTED",
            (From::OwnFits | From::LowerRates, None, _) => "for information",
            (From::Case, None, true) => "within tolerance",
            (From::Case, None, false) => "OUTSIDE",
        };
        writeln!(text, "{}: {mark}\n  {}", o.id, o.title)?;
        if let Some(why) = &o.unpredicted {
            writeln!(text, "  {why}")?;
        } else {
            writeln!(text, "  {}", o.method)?;
        }
        if let Some(why) = &o.fitted {
            writeln!(text, "  a fit, not a prediction: {why}")?;
        }
        for r in &o.rows {
            let gate = match (r.gate, r.holds()) {
                (Gate::Pct(g), true) => format!("within {g} %"),
                (Gate::Pct(g), false) => format!("OUTSIDE of {g} %"),
                (Gate::None { goal_pct: None }, _) => "for information".to_owned(),
                (Gate::None { goal_pct: Some(g) }, _) => format!("goal {g} %"),
            };
            let spread = r
                .spread
                .map(|(low, high)| format!(" ({} to {})", shown(low), shown(high)))
                .unwrap_or_default();
            writeln!(
                text,
                "  {:18}{:34}{:>10} measured {:>10}  {:>+7.1} %  {gate}{spread}",
                r.run,
                r.figure,
                shown(r.predicted),
                shown(r.measured),
                r.error_pct(),
            )?;
        }
        writeln!(text)?;
    }
    let predicted = all.iter().filter(|o| o.unpredicted.is_none()).count();
    match from {
        From::Case => {
            let held = all.iter().filter(|o| o.holds()).count();
            write!(text, "within tolerance: {held} of {} cases", all.len())?;
        }
        From::OwnFits => {
            write!(text, "predicted with our own fits: {predicted} of {} cases", all.len())?;
        }
        From::LowerRates => {
            write!(text, "predicted from their lower rates: {predicted} of {} cases", all.len())?;
        }
    }
    Ok(text)
}

/// Four significant digits.
pub fn shown(x: f64) -> String {
    metrics_core::format::significant(x, 4)
}

/// vLLM's scheduler as the case says it was set up, for one of its runs.
pub fn config(case: &Case, run: &CaseRun, longest: u64) -> (VllmConfig, Vec<String>) {
    /// At least so many blocks, where their number was not recorded.
    const NOT_BINDING: u64 = 1_000_000;
    let e = &case.engine;
    let mut notes = Vec::new();
    let block_size = e.block_size.unwrap_or(16).max(1);
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
    let room = blocks.saturating_sub(1) * block_size;
    let max_model_len = e.max_model_len.unwrap_or(room).max(longest + 1);
    let mut c = VllmConfig::new(blocks, max_model_len.min(room));
    c.engine_version = version(&e.version).unwrap_or_else(|| {
        notes.push(format!(
            "engine version `{}` has no rules here, those of vLLM {} are taken",
            e.version,
            EngineVersion::V0_33_0
        ));
        EngineVersion::V0_33_0
    });
    c.block_size = block_size;
    c.enable_chunked_prefill = e.chunked_prefill.unwrap_or(true);
    c.enable_prefix_caching = e.prefix_caching.unwrap_or(true);
    let memory_gib = memory_gib(&e.gpu);
    c = c.with_gpu_defaults(
        memory_gib,
        e.gpu.to_ascii_lowercase().contains("a100"),
        Usage::ApiServer,
    );
    if let Some(tokens) = e.max_num_batched_tokens {
        c.max_num_batched_tokens = tokens;
    }
    if let Some(seqs) = run.max_num_seqs.or(e.max_num_seqs) {
        c.max_num_seqs = seqs;
    }
    c.max_num_batched_tokens = c.max_num_batched_tokens.max(c.max_num_seqs);
    if e.kv_blocks.or(e.kv_tokens).is_none() {
        // Room for a full batch of the longest requests, and the null block.
        c.num_blocks = blocks.max(c.max_num_seqs * (longest + 1).div_ceil(block_size) + 1);
    }
    (c, notes)
}

/// The release whose rules apply, from a text such as `0.19.0` or `0.19.0+cu128`.
fn version(text: &str) -> Option<EngineVersion> {
    let numbers = text.trim_start_matches('v').split(|c: char| !c.is_ascii_digit() && c != '.');
    let version: EngineVersion = numbers.take(1).next()?.trim_end_matches('.').parse().ok()?;
    (EngineVersion::OLDEST <= version && version <= EngineVersion::V0_33_0).then_some(version)
}

/// The memory of a GPU as its name states it, else the 80 GB of most servers: what vLLM's own
/// limits depend on where none was given.
fn memory_gib(gpu: &str) -> f64 {
    let lower = gpu.to_ascii_lowercase();
    let stated = lower.split_once("gb").and_then(|(before, _)| {
        let digits: Vec<char> =
            before.trim_end().chars().rev().take_while(char::is_ascii_digit).collect();
        digits.into_iter().rev().collect::<String>().parse().ok()
    });
    stated.unwrap_or(80.0)
}

/// A measured figure of a run.
pub fn measured(run: &CaseRun, name: &str) -> Option<f64> {
    run.measured.iter().find(|(n, _)| n == name).map(|(_, x)| *x)
}

/// The longest request of a workload.
pub fn longest(workload: &Workload) -> u64 {
    workload.requests().iter().map(|r| r.input_tokens + r.output_tokens).max().unwrap_or(1)
}

/// Replays, open-loop sweeps and, with our own fits, batch sweeps: every request simulated.
fn simulated(case: &Case, from: From) -> Result<Predicted> {
    let chosen = match steps::choose(case, from)? {
        Ok(chosen) => chosen,
        Err(why) => {
            return Ok(Err(if from == From::Case {
                format!("the case has no step_time, and there is {why}")
            } else {
                why
            }));
        }
    };
    let mut rows = Vec::new();
    let mut method = String::new();
    for run in case.runs.iter().filter(|r| from == From::LowerRates || r.role != Role::Calibrate) {
        if matches!(run.load, Load::Stated | Load::Closed { .. }) {
            bail!("run {}: a {} needs requests to simulate", run.id, case.kind.name());
        }
        let seeds = if run.load.is_random() { SEEDS } else { 1 };
        let mut figures: Vec<Vec<(String, f64)>> = Vec::new();
        for seed in 1..=seeds {
            let workload = run.load.workload(seed)?;
            let (config, notes) = config(case, run, longest(&workload));
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
            figures.push(simulate(&workload, config, &chosen.step, chosen.client)?);
        }
        rows.extend(compare(run, &figures));
    }
    rows.extend(rate::rows(&case.runs, &rows, from));
    for line in chosen.about() {
        method.push_str(&format!("\n  {line}"));
    }
    Ok(Ok((method, rows)))
}

/// The figures of one workload on a server.
fn simulate(
    workload: &Workload,
    config: VllmConfig,
    step: &dyn StepTime,
    client: Seconds,
) -> Result<Vec<(String, f64)>> {
    let result = Simulation::vllm_v1(workload, VllmV1Run::new(config), step).run()?;
    of_timelines(&result.timelines()?, client)
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
        let gate = gate(run, figure);
        let told = matches!(gate, Gate::Pct(_))
            || figure.ends_with("_mean_s")
            || figure.ends_with("_p99_s");
        if values.is_empty() || !told {
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
            gate,
        });
    }
    rows
}

/// What the case holds a figure to.
fn gate(run: &CaseRun, figure: &str) -> Gate {
    let found = run.gate_pct.iter().find(|(n, _)| n == figure);
    found.map_or(Gate::None { goal_pct: None }, |(_, g)| Gate::Pct(*g))
}

/// Little's law, and E2E from its parts.
fn identities(case: &Case) -> Result<(String, Vec<Row>)> {
    let mut rows = Vec::new();
    for run in &case.runs {
        let get = |name: &str| {
            measured(run, name).with_context(|| format!("run {}: `{name}` is not measured", run.id))
        };
        // The identity holds for means: lengths and gaps of a request are nearly independent.
        let parts = get("ttft_mean_s")? + get("tpot_mean_s")? * (get("output_tokens_mean")? - 1.0);
        let in_flight = queueing::little::little_l(get("completed_per_s")?, get("e2e_mean_s")?)?;
        let mut push = |figure: &str, predicted: f64, measured: f64, gate: Gate| {
            rows.push(Row {
                run: run.id.clone(),
                figure: figure.to_owned(),
                predicted,
                spread: None,
                measured,
                gate,
            });
        };
        push("e2e_mean_s", parts, get("e2e_mean_s")?, gate(run, "e2e_mean_s"));
        for (figure, value) in &run.derived {
            match figure.as_str() {
                "in_flight_mean" => push(figure, in_flight, *value, Gate::Pct(0.1)),
                "e2e_from_parts_mean_s" => push(figure, parts, *value, Gate::Pct(0.1)),
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

#[cfg(test)]
mod tests;
