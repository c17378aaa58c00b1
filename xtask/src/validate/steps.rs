//! Which step time predicts a case, and what it was made from.

use anyhow::{Context, Result};
use capacity::calibrate::{Calibration, CalibrationRun, calibrate};
use capacity::means::Means;
use capacity::watch::Watched;
use metrics_core::Seconds;
use metrics_core::format::{percent, time};
use sched_sim::{StepTime, WithOverheads};
use serving_io::fitted::{FittedRegime, FittedStepTime};
use serving_io::preset;

use super::{Case, CaseRun, Role, SEEDS, config, longest, measured, two_regime};

/// Where the step time of a prediction may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The case's own coefficients; where it has none, a preset, calibrated on the runs that the
    /// case marks for that.
    Case,
    /// A preset alone: fitted by us on other measurements, with nothing from the case.
    OwnFits,
    /// A preset with overheads calibrated on all rates of the case but the highest, as an operator
    /// has them who asks how much more a server bears.
    LowerRates,
}

/// A step time with what is added outside of the server.
pub struct Chosen {
    pub step: Watched<Box<dyn StepTime>>,
    /// Added to TTFT and E2E.
    pub client: Seconds,
    /// What it was made from, if not from the case's own coefficients.
    pub made_from: Option<String>,
    /// Where it is known to hold; empty where nobody says.
    pub ranges: Vec<FittedRegime>,
}

impl Chosen {
    /// What it was made from, and where it was asked for more than is known.
    pub fn about(&self) -> Vec<String> {
        let beyond = self.step.beyond(&self.ranges).into_iter();
        let from = self.made_from.iter().map(|m| format!("step time: {m}"));
        from.chain(beyond.map(|b| format!("OUTSIDE of its range: {b}"))).collect()
    }
}

/// The step time of a case, or why there is none.
pub fn choose(case: &Case, from: From) -> Result<std::result::Result<Chosen, String>> {
    if let (From::Case, Some(step)) = (from, &case.step_time) {
        return Ok(Ok(Chosen {
            step: Watched::new(Box::new(two_regime(step)?)),
            client: Seconds::new(step.client_ms / 1e3)?,
            made_from: None,
            ranges: Vec::new(),
        }));
    }
    let preset = match own(case)? {
        Ok(preset) => preset,
        Err(why) => return Ok(Err(why)),
    };
    let errors: Vec<String> = preset
        .regimes
        .iter()
        .map(|r| format!("{} {}", r.regime, percent(r.mean_absolute)))
        .collect();
    let mut made_from =
        format!("preset {} (MAPE: {}), {}", preset.name, errors.join(", "), preset.source);
    let ranges = preset.regimes.clone();
    let highest = case.runs.iter().filter_map(|r| r.load.rate_per_s()).fold(0.0, f64::max);
    let known = |r: &&CaseRun| match from {
        From::Case => r.role == Role::Calibrate,
        From::OwnFits => false,
        From::LowerRates => r.load.rate_per_s().is_some_and(|rate| rate < highest),
    };
    let found = calibrated(case, &preset, case.runs.iter().filter(known))?;
    if from == From::LowerRates && found.as_ref().is_none_or(|c| c.fitted.len() < 2) {
        return Ok(Err("fewer than two lower rates with requests and all three means".to_owned()));
    }
    if let Some(Calibration { overheads, fitted, held_out, .. }) = found {
        let runs: Vec<&str> = fitted.iter().map(|(run, _)| run.as_str()).collect();
        let parts = overheads
            .named()
            .iter()
            .map(|(name, s)| Ok(format!("{name} {}", time(Seconds::new(*s)?))))
            .collect::<Result<Vec<String>>>()?;
        made_from.push_str(&format!(
            "; overheads calibrated on {}: {}",
            runs.join(", "),
            parts.join(", ")
        ));
        for (run, e) in held_out {
            let [ttft, tpot, e2e] = e.values().map(|x| x * 100.0);
            made_from.push_str(&format!(
                "; {run} from the others: TTFT {ttft:+.1} %, TPOT {tpot:+.1} %, E2E {e2e:+.1} %"
            ));
        }
        let client = Seconds::new(overheads.client_s)?;
        let step = WithOverheads::new(preset.step, overheads.of_server()?)?;
        let step = Watched::<Box<dyn StepTime>>::new(Box::new(step));
        return Ok(Ok(Chosen { step, client, made_from: Some(made_from), ranges }));
    }
    let client = Seconds::new(0.0)?;
    let step = Watched::<Box<dyn StepTime>>::new(Box::new(preset.step));
    Ok(Ok(Chosen { step, client, made_from: Some(made_from), ranges }))
}

/// The preset of the case's model and GPU, or why none serves.
pub fn own(case: &Case) -> Result<std::result::Result<FittedStepTime, String>> {
    let e = &case.engine;
    let tensor_parallel = e.tensor_parallel.unwrap_or(1);
    let named = |text: &str| if text.is_empty() { "not recorded" } else { text }.to_owned();
    let on = format!("{} on {}, TP {tensor_parallel}", named(&e.model), named(&e.gpu));
    // All presets are of 16-bit weights.
    if let Some(dtype) = e.dtype.as_deref()
        && !["bfloat16", "bf16", "float16", "fp16", "half", "auto"].contains(&dtype)
    {
        return Ok(Err(format!("no preset for {on} in {dtype}")));
    }
    Ok(preset::matching(&e.model, &e.gpu, tensor_parallel)?
        .ok_or_else(|| format!("no preset for {on}")))
}

/// A calibration on these runs of a case; none where there is no run with requests and all three
/// means.
fn calibrated<'a>(
    case: &Case,
    preset: &FittedStepTime,
    known: impl Iterator<Item = &'a CaseRun>,
) -> Result<Option<Calibration>> {
    let mut runs = Vec::new();
    let mut server = None;
    for run in known {
        let get = |name: &str| measured(run, name);
        let (Some(ttft_s), Some(tpot_s), Some(e2e_s)) =
            (get("ttft_mean_s"), get("tpot_mean_s"), get("e2e_mean_s"))
        else {
            continue;
        };
        let seeds = if run.load.is_random() { SEEDS } else { 1 };
        let Ok(workloads) = (1..=seeds).map(|s| run.load.workload(s)).collect::<Result<Vec<_>>>()
        else {
            continue;
        };
        let config = config(case, run, workloads.iter().map(longest).max().unwrap_or(1)).0;
        // One server is calibrated: runs under other limits are not of it.
        if server.get_or_insert_with(|| config.clone()) != &config {
            continue;
        }
        let measured = Means { ttft_s, tpot_s, e2e_s };
        runs.push(CalibrationRun { name: run.id.clone(), workloads, measured });
    }
    let Some(server) = server else { return Ok(None) };
    Ok(Some(calibrate(&runs, &server, &preset.step).context("calibration")?))
}
