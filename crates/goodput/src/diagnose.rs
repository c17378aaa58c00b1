//! `goodput diagnose`: from symptoms to a cause and the first action.

mod render;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use metrics_core::alerts::{Assessment, Observed, State, THRESHOLDS, Threshold, assess};
use metrics_core::diagnosis::{Diagnosis, Observations, Tolerance, Upper, diagnose};
use metrics_core::grammar;
use metrics_core::metric::Language;
use metrics_core::units::{Quantity, Seconds};
use metrics_core::validity::Finding;

use crate::explain::Lang;
use crate::gate::{Basis, Reading, distinct_files, distinct_runs};
use crate::output::{Format, check_outputs};
use crate::report::Objectives;
use sources::{Joint, Sources, Told};

pub const EXAMPLES: &str = "\
Give what there is of one run: a benchmark result or our timelines, one
snapshot of the engine's /metrics (totals since its start) or two (what
happened between them). --baseline names the same of a time when things were
well: without it nothing is \"up\". A row of the tree fires only on what was
observed; what is missing is listed with the file or option that gives it.

Examples:
  goodput diagnose result.json --goodput ttft:200 tpot:50
  goodput diagnose metrics.txt --slo 'p99(ttft)<500ms' --max-num-seqs 256
  goodput diagnose result.json metrics.txt --baseline good.json
  goodput diagnose before.txt after.txt --interval 60s
  goodput diagnose result.json --with gpu_utilization=40%,arithmetic_intensity=60,ridge_point=295
  goodput diagnose result.json --lang zh --format md

Exit codes:
  0  nothing is critical
  1  an alert threshold is critical
  2  wrong command line, or an input that cannot be read
  3  nothing can be told: no row is decided and no threshold has a state";

/// Arguments of `diagnose`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// A result or timelines, and one or two snapshots of /metrics, the earlier one first.
    #[arg(required_unless_present = "goodput", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The same of an earlier time, when things were well.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    baseline: Vec<PathBuf>,
    #[command(flatten)]
    objectives: Objectives,
    /// The engine's largest batch in requests.
    #[arg(long, visible_aliases = ["max-running-requests", "max-batch-size"], value_name = "N")]
    max_num_seqs: Option<String>,
    /// Time between two snapshots, for rates.
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// Figures that no file gives, as NAME=VALUE; `baseline_NAME` for the baseline.
    #[arg(long, value_name = "NAME=VALUE[,…]", value_delimiter = ',')]
    with: Vec<String>,
    #[command(flatten)]
    reading: Reading,
    /// Language of the words.
    #[arg(long, value_enum, default_value_t)]
    lang: Lang,
}

impl Arguments {
    /// The files, those behind `--goodput` included.
    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().chain(self.objectives.swallowed()).collect()
    }

    /// Refuses to write over what is read, and to read a file twice.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let files = self.files();
        distinct_files(&files.iter().chain(&self.baseline).collect::<Vec<_>>(), "one run")?;
        let inputs: Vec<PathBuf> = files.into_iter().chain(self.baseline.clone()).collect();
        check_outputs(&inputs, &[("-o", output)])
    }
}

/// What was asked and what the tree answers, for rendering.
pub struct Answered {
    pub told: Vec<Told>,
    pub notes: Vec<String>,
    pub findings: Vec<Finding>,
    pub joint: Option<Joint>,
    pub diagnosis: Diagnosis,
    pub alerts: Vec<Alert>,
    pub tolerance: Tolerance,
    pub language: Language,
}

/// One threshold and its state.
pub struct Alert {
    pub threshold: &'static Threshold,
    /// The value and, where only a range is known, its upper end.
    pub value: Option<(f64, Option<f64>)>,
    /// Whether the upper end is open.
    pub open: bool,
    /// The best and the worst state that the range allows; equal if it is certain.
    pub state: Option<(State, State)>,
    /// What is missing to tell.
    pub missing: Option<&'static str>,
}

/// Runs the command; what it prints, and the exit code.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let slo = arguments.objectives.set(&arguments.objectives.swallowed())?;
    let basis = Basis {
        slo: &slo,
        method: arguments.objectives.method(),
        confidence: arguments.objectives.confidence()?,
    };
    let files = arguments.files();
    if files.is_empty() {
        bail!("no file was given: `goodput diagnose FILE --goodput ttft:200`");
    }
    let max_batch = arguments.max_num_seqs.as_deref().map(grammar::count).transpose();
    let max_batch = max_batch.map_err(|e| anyhow!("--max-num-seqs: {e}"))?;
    if max_batch == Some(0) {
        bail!("--max-num-seqs: must be at least 1, got 0");
    }
    let interval = arguments.interval.as_deref().map(grammar::duration).transpose();
    let interval = interval.map_err(|e| anyhow!("--interval: {e}"))?;
    if interval == Some(Seconds::ZERO) {
        bail!("--interval: must be above 0");
    }

    let mut sources = Sources {
        max_batch,
        interval,
        told: Vec::new(),
        notes: Vec::new(),
        findings: Vec::new(),
        joint: None,
        two_snapshots: false,
    };
    let now = arguments.reading.load(&files, basis)?;
    let earlier = arguments.reading.load(&arguments.baseline, basis)?;
    distinct_runs(&now.iter().chain(&earlier).collect::<Vec<_>>())?;
    let mut seen = sources.read(now, "", &slo)?;
    if !earlier.is_empty() {
        let earlier = sources.read(earlier, "baseline: ", &slo)?;
        seen.against(&earlier);
    }
    if interval.is_some() && !sources.two_snapshots {
        bail!("--interval: is the time between two snapshots, and there are no two");
    }
    sources::objectives(&mut seen, &slo);
    let oom = with(&mut seen, &arguments.with)?;
    let tolerance = Tolerance::default();
    let diagnosis = diagnose(&seen, &tolerance).map_err(|e| anyhow!("{e}"))?;
    let alerts = alerts(&seen, oom, max_batch)?;
    let answered = Answered {
        told: sources.told,
        notes: sources.notes,
        findings: sources.findings,
        joint: sources.joint,
        diagnosis,
        alerts,
        tolerance,
        language: arguments.lang.into(),
    };
    let text = match format {
        Format::Text => render::text(&answered),
        Format::Md => render::markdown(&answered),
        Format::Json => render::json(&answered)?,
        Format::Csv => {
            bail!("diagnose writes text, JSON or Markdown: use --format text, json or md")
        }
    };
    Ok((text, code(&answered)))
}

/// 1 if something is certainly critical, 3 if nothing at all can be told, else 0.
fn code(answered: &Answered) -> u8 {
    let states = || answered.alerts.iter().filter_map(|a| a.state);
    let decided =
        !answered.diagnosis.verdicts.is_empty() || !answered.diagnosis.ruled_out.is_empty();
    if states().any(|(best, _)| best == State::Critical) {
        1
    } else if !decided && states().next().is_none() {
        3
    } else {
        0
    }
}

/// Figures of the command line, which outrank those of files; the OOM rate, which is only a
/// threshold's, is given back.
fn with(seen: &mut Observations, items: &[String]) -> Result<Option<f64>> {
    let mut oom = None;
    for (i, item) in items.iter().enumerate() {
        let Some((name, value)) = item.split_once('=') else {
            bail!("--with {item}: expected NAME=VALUE, for example gpu_utilization=40%");
        };
        let (name, value) = (name.trim(), value.trim());
        let named = |other: &String| other.split_once('=').is_some_and(|(n, _)| n.trim() == name);
        if items.iter().take(i).any(named) {
            bail!("--with {name}: is given twice, keep one");
        }
        let plain = value.parse::<f64>().ok().filter(|x| x.is_finite());
        let number = plain
            .or_else(|| grammar::share(value).ok())
            .or_else(|| grammar::duration(value).ok().map(Seconds::get))
            .or_else(|| grammar::size(value).ok().map(Quantity::number));
        let Some(number) = number else {
            bail!("--with {name}: `{value}` is no number, share (40%), time (3ms) or size (2GB)");
        };
        if name == "oom_rate" {
            oom = Some(number);
        } else if !seen.set(name, number).map_err(|e| anyhow!("--with {name}: {e}"))? {
            let known = metrics_core::observe::SETTABLE.iter().chain(&["oom_rate"]);
            let near = known.clone().max_by(|a, b| {
                strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name))
            });
            let near = near.copied().unwrap_or_default();
            let all: Vec<&str> = known.copied().collect();
            bail!(
                "--with {name}: no figure is called so, did you mean {near}? Known: {}",
                all.join(", ")
            );
        }
    }
    Ok(oom)
}

/// The state of each threshold.
fn alerts(seen: &Observations, oom: Option<f64>, max_batch: Option<u64>) -> Result<Vec<Alert>> {
    let trend = seen.queue_trend.map(|t| t.keeps_growing());
    THRESHOLDS
        .iter()
        .map(|&threshold| {
            let number = |q: Option<Seconds>| q.map(Seconds::get);
            let (low, to) = match threshold.id {
                "kv_utilization" => (seen.kv_utilization, Upper::Exact),
                "ttft_p99" => (number(seen.ttft.p99), seen.ttft.to.p99),
                "oom_rate" => (oom, Upper::Exact),
                "refill_rate" => (seen.refill_rate, Upper::Exact),
                "queue_depth" => (seen.queue_depth.current.map(Quantity::number), Upper::Exact),
                _ => (None, Upper::Exact),
            };
            let open = matches!(to, Upper::Open);
            let Some(low) = low else {
                return Ok(Alert {
                    threshold,
                    value: None,
                    open,
                    state: None,
                    missing: Some("value"),
                });
            };
            let high = match to {
                Upper::At(high) => Some(high.get()),
                Upper::Exact | Upper::Open => None,
            };
            let at = |value| -> Result<Assessment> {
                let observed = Observed {
                    value,
                    slo: number(seen.ttft.slo),
                    max_batch_size: max_batch.map(|b| b as f64),
                    keeps_growing: trend,
                };
                assess(threshold, &observed).map_err(|e| anyhow!("{}: {e}", threshold.id))
            };
            let best = at(low)?;
            let worst = if open { best } else { at(high.unwrap_or(low))? };
            // What is unknown could make it worse, unless the worst is certain already.
            let missing = best.missing();
            let known = missing.is_none() || best.at_least() != State::Fine;
            let worst = match (open && missing.is_none(), missing) {
                (true, _) | (_, Some(_)) => State::Critical,
                _ => worst.at_least(),
            };
            let state = known.then_some((best.at_least(), worst));
            Ok(Alert { threshold, value: Some((low, high)), open, state, missing })
        })
        .collect()
}
