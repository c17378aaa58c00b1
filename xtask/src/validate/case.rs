//! A case as its file has it, checked when read.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sched_sim::Workload;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::replayed;

/// The schema that is read.
const SCHEMA: &str = "goodput-validation/2";

/// What kind of comparison a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Replay,
    OpenLoopSweep,
    BatchSweep,
    ClosedLoopSweep,
    Identities,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::OpenLoopSweep => "open_loop_sweep",
            Self::BatchSweep => "batch_sweep",
            Self::ClosedLoopSweep => "closed_loop_sweep",
            Self::Identities => "identities",
        }
    }
}

/// What a run may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May be fitted to.
    Calibrate,
    /// Must be predicted without a look at what was measured.
    Predict,
    /// The error is printed and has no gate.
    Inform,
}

/// The engine, as far as it was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct Engine {
    pub version: String,
    pub max_num_seqs: Option<u64>,
    pub max_num_batched_tokens: Option<u64>,
    pub max_model_len: Option<u64>,
    pub block_size: Option<u64>,
    pub kv_blocks: Option<u64>,
    pub kv_tokens: Option<u64>,
    pub chunked_prefill: Option<bool>,
    pub prefix_caching: Option<bool>,
}

/// Coefficients of a pure decode step, in ms.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Decode {
    pub a: f64,
    pub c: f64,
    pub d: f64,
}

/// Coefficients of a step with prefill, in ms.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Mixed {
    pub a: f64,
    pub b: f64,
    pub c: f64,
    pub d: f64,
    pub q: f64,
}

/// A two-regime step time in ms, and where it comes from.
#[derive(Clone, Debug, Deserialize)]
pub struct StepTime {
    form: String,
    unit: String,
    pub decode: Decode,
    pub mixed: Mixed,
    #[serde(default)]
    pub overhead_ms: f64,
    /// Added to TTFT and E2E: what the client and the network take.
    #[serde(default)]
    pub client_ms: f64,
    pub origin: String,
}

/// What was sent.
pub enum Load {
    /// Requests one by one.
    Replay { arrival_s: Vec<f64>, input: Vec<u64>, output: Vec<u64> },
    /// Exponential gaps scaled so that exactly so many arrive in the duration.
    PoissonFixedCount { requests: u64, duration_s: f64, input: Lengths, output: Lengths },
    /// All at once.
    AllAtZero { requests: u64, input: Lengths, output: Lengths },
    /// Users without think time, with mean lengths.
    Closed { users: u64, output_mean: f64 },
    /// Nothing to simulate.
    Stated,
}

/// How lengths are drawn.
#[derive(Clone, Copy, Debug)]
pub enum Lengths {
    Constant(u64),
    Uniform(u64, u64),
}

impl Lengths {
    fn draw(self, rng: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Constant(n) => n,
            Self::Uniform(low, high) => rng.random_range(low..=high),
        }
    }

    /// The mean.
    pub fn mean(self) -> f64 {
        match self {
            Self::Constant(n) => n as f64,
            Self::Uniform(low, high) => f64::midpoint(low as f64, high as f64),
        }
    }
}

/// One run of a case.
pub struct CaseRun {
    pub id: String,
    pub role: Role,
    pub max_num_seqs: Option<u64>,
    pub load: Load,
    pub measured: Vec<(String, f64)>,
    pub gate_pct: Vec<(String, f64)>,
    pub derived: Vec<(String, f64)>,
}

/// A case.
pub struct Case {
    pub id: String,
    pub title: String,
    pub notes: Option<String>,
    pub kind: Kind,
    pub engine: Engine,
    pub step_time: Option<StepTime>,
    pub runs: Vec<CaseRun>,
}

#[derive(Deserialize)]
struct RawCase {
    schema: String,
    id: String,
    title: String,
    notes: Option<String>,
    kind: Kind,
    engine: Engine,
    step_time: Option<StepTime>,
    runs: Vec<RawRun>,
}

#[derive(Deserialize)]
struct RawRun {
    id: String,
    role: Role,
    max_num_seqs: Option<u64>,
    load: Value,
    #[serde(default)]
    measured: Map<String, Value>,
    #[serde(default)]
    gate_pct: Map<String, Value>,
    #[serde(default)]
    derived: Map<String, Value>,
}

impl Case {
    /// Reads and checks a case.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).context("cannot be read")?;
        let raw: RawCase = serde_json::from_str(&text).context("is no validation case")?;
        if raw.schema != SCHEMA {
            bail!("has schema `{}`, expected `{SCHEMA}`", raw.schema);
        }
        if let Some(s) = &raw.step_time {
            if s.form != "two_regime_affine" || s.unit != "ms" {
                bail!(
                    "step_time: form `{}` in {}, expected two_regime_affine in ms",
                    s.form,
                    s.unit
                );
            }
            let all = [
                ("decode.a", s.decode.a),
                ("decode.c", s.decode.c),
                ("decode.d", s.decode.d),
                ("mixed.a", s.mixed.a),
                ("mixed.b", s.mixed.b),
                ("mixed.c", s.mixed.c),
                ("mixed.d", s.mixed.d),
                ("mixed.q", s.mixed.q),
                ("overhead_ms", s.overhead_ms),
                ("client_ms", s.client_ms),
            ];
            for (name, x) in all {
                if !(0.0..1e6).contains(&x) {
                    bail!("step_time: {name} must be from 0 to 1e6 ms, got {x}");
                }
            }
        }
        let runs: Result<Vec<CaseRun>> = raw
            .runs
            .into_iter()
            .map(|r| {
                let id = r.id.clone();
                run(r).with_context(|| format!("run {id}"))
            })
            .collect();
        let runs = runs?;
        if runs.is_empty() {
            bail!("has no runs");
        }
        Ok(Self {
            id: raw.id,
            title: raw.title,
            notes: raw.notes,
            kind: raw.kind,
            engine: raw.engine,
            step_time: raw.step_time,
            runs,
        })
    }
}

fn run(raw: RawRun) -> Result<CaseRun> {
    Ok(CaseRun {
        load: load(&raw.load)?,
        id: raw.id,
        role: raw.role,
        max_num_seqs: raw.max_num_seqs,
        measured: numbers("measured", &raw.measured)?,
        gate_pct: numbers("gate_pct", &raw.gate_pct)?,
        derived: numbers("derived", &raw.derived)?,
    })
}

/// The numbers of an object; null is not measured.
fn numbers(of: &str, map: &Map<String, Value>) -> Result<Vec<(String, f64)>> {
    map.iter()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| {
            let x = v.as_f64().filter(|x| x.is_finite());
            Ok((k.clone(), x.with_context(|| format!("{of}.{k}: found `{v}`, expected a number"))?))
        })
        .collect()
}

fn load(v: &Value) -> Result<Load> {
    let get = |key: &str| v.get(key).with_context(|| format!("load.{key} is missing"));
    let whole = |key: &str| -> Result<u64> {
        let x = get(key)?;
        x.as_u64().with_context(|| format!("load.{key}: found `{x}`, expected a whole number"))
    };
    let number = |key: &str| -> Result<f64> {
        let x = get(key)?;
        let positive = x.as_f64().filter(|x| 0.0 < *x && x.is_finite());
        positive.with_context(|| format!("load.{key}: found `{x}`, expected a number above 0"))
    };
    let list = |key: &str| -> Result<Vec<u64>> {
        let x = get(key)?.as_array().with_context(|| format!("load.{key}: expected a list"))?;
        x.iter()
            .map(|n| {
                n.as_u64().with_context(|| format!("load.{key}: found `{n}`, expected a count"))
            })
            .collect()
    };
    let kind = get("kind")?.as_str().unwrap_or_default();
    Ok(match kind {
        "replay" => {
            let arrivals =
                get("arrival_s")?.as_array().context("load.arrival_s: expected a list")?;
            let arrival_s: Result<Vec<f64>> = arrivals
                .iter()
                .map(|x| {
                    let ok = x.as_f64().filter(|x| 0.0 <= *x && x.is_finite());
                    ok.with_context(|| {
                        format!("load.arrival_s: found `{x}`, expected seconds from 0")
                    })
                })
                .collect();
            Load::Replay {
                arrival_s: arrival_s?,
                input: list("input_tokens")?,
                output: list("output_tokens")?,
            }
        }
        "poisson_fixed_count" => Load::PoissonFixedCount {
            requests: whole("requests")?,
            duration_s: number("duration_s")?,
            input: lengths("input_tokens", get("input_tokens")?)?,
            output: lengths("output_tokens", get("output_tokens")?)?,
        },
        "all_at_zero" => Load::AllAtZero {
            requests: whole("requests")?,
            input: lengths("input_tokens", get("input_tokens")?)?,
            output: lengths("output_tokens", get("output_tokens")?)?,
        },
        "closed" => Load::Closed {
            users: whole("users")?,
            output_mean: get("output_tokens")?
                .get("mean")
                .and_then(Value::as_f64)
                .context("load.output_tokens.mean: expected a number")?,
        },
        "poisson" => Load::Stated,
        other => bail!(
            "load.kind: found `{other}`, expected replay, poisson_fixed_count, poisson, all_at_zero or closed"
        ),
    })
}

fn lengths(key: &str, v: &Value) -> Result<Lengths> {
    if let Some(n) = v.get("constant").and_then(Value::as_u64) {
        return Ok(Lengths::Constant(n));
    }
    if let Some([low, high]) = v.get("uniform").and_then(Value::as_array).map(Vec::as_slice)
        && let (Some(low), Some(high)) = (low.as_u64(), high.as_u64())
        && low <= high
    {
        return Ok(Lengths::Uniform(low, high));
    }
    bail!("load.{key}: found `{v}`, expected {{\"constant\": N}} or {{\"uniform\": [LOW, HIGH]}}")
}

impl Load {
    /// Whether a seed changes it.
    pub const fn is_random(&self) -> bool {
        matches!(self, Self::PoissonFixedCount { .. })
    }

    /// Its requests.
    pub fn workload(&self, seed: u64) -> Result<Workload> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        match self {
            Self::Replay { arrival_s, input, output } => replayed(arrival_s, input, output),
            Self::PoissonFixedCount { requests, duration_s, input, output } => {
                // The gap after the last request belongs to the duration too.
                let mut at = 0.0;
                let mut times: Vec<f64> = (0..=*requests)
                    .map(|_| {
                        at -= (1.0 - rng.random::<f64>()).ln();
                        at
                    })
                    .collect();
                let total = times.pop().unwrap_or(1.0);
                let arrivals: Vec<f64> = times.iter().map(|t| t / total * duration_s).collect();
                let inputs: Vec<u64> = arrivals.iter().map(|_| input.draw(&mut rng)).collect();
                let outputs: Vec<u64> = arrivals.iter().map(|_| output.draw(&mut rng)).collect();
                replayed(&arrivals, &inputs, &outputs)
            }
            Self::AllAtZero { requests, input, output } => {
                let of = |l: Lengths, rng: &mut Pcg64Mcg| -> Vec<u64> {
                    (0..*requests).map(|_| l.draw(rng)).collect()
                };
                let arrivals: Vec<f64> = (0..*requests).map(|_| 0.0).collect();
                let inputs = of(*input, &mut rng);
                let outputs = of(*output, &mut rng);
                replayed(&arrivals, &inputs, &outputs)
            }
            Self::Closed { .. } | Self::Stated => {
                bail!("this load is not simulated request by request")
            }
        }
    }
}
