//! A case as its file has it, checked when read.

use std::io::Read as _;
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
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Engine {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub model: String,
    pub dtype: Option<String>,
    #[serde(default)]
    pub gpu: String,
    pub tensor_parallel: Option<u32>,
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
    PoissonFixedCount { requests: u64, duration_s: f64, lengths: LengthPairs },
    /// Exponential gaps at a rate.
    Poisson { requests: u64, rate_per_s: f64, lengths: LengthPairs },
    /// All at once.
    AllAtZero { requests: u64, lengths: LengthPairs },
    /// Users without think time, with mean lengths.
    Closed { users: u64, output_mean: f64 },
    /// A rate without lengths: nothing to simulate.
    Stated,
}

/// How a length is drawn.
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

/// How prompt and answer of a request are drawn.
#[derive(Clone, Debug)]
pub enum LengthPairs {
    /// Each by itself.
    Apart(Lengths, Lengths),
    /// A request of a file, prompt and answer together.
    Measured(Vec<(u64, u64)>),
}

impl LengthPairs {
    fn draw(&self, rng: &mut Pcg64Mcg) -> (u64, u64) {
        match self {
            Self::Apart(input, output) => (input.draw(rng), output.draw(rng)),
            Self::Measured(pairs) => pairs[rng.random_range(0..pairs.len())],
        }
    }

    /// Mean prompt and mean answer.
    pub fn means(&self) -> (f64, f64) {
        match self {
            Self::Apart(input, output) => (input.mean(), output.mean()),
            Self::Measured(pairs) => {
                let n = pairs.len() as f64;
                let sum = |of: fn(&(u64, u64)) -> u64| pairs.iter().map(of).sum::<u64>() as f64;
                (sum(|p| p.0) / n, sum(|p| p.1) / n)
            }
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

/// Where the measured figures come from.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Source {
    #[serde(default)]
    pub repo: String,
    #[serde(default)]
    pub commit: String,
    #[serde(default)]
    pub license: String,
}

/// A case.
pub struct Case {
    pub id: String,
    pub title: String,
    pub source: Source,
    pub notes: Option<String>,
    pub kind: Kind,
    pub engine: Engine,
    pub step_time: Option<StepTime>,
    pub runs: Vec<CaseRun>,
}

#[derive(Deserialize)]
struct RawCase {
    id: String,
    title: String,
    #[serde(default)]
    source: Source,
    notes: Option<String>,
    kind: Kind,
    #[serde(default)]
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
        let value: Value = serde_json::from_str(&text).context("is no JSON")?;
        // Another version has other fields, and its schema says more than the first that is missing.
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            found => bail!("has schema `{}`, expected `{SCHEMA}`", found.unwrap_or("none")),
        }
        let raw: RawCase = serde_json::from_value(value).context("is no validation case")?;
        // The folder of a case and those above it may hold the files of lengths that it names.
        let folders: Vec<&Path> = file.ancestors().skip(1).collect();
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
                run(r, &folders).with_context(|| format!("run {id}"))
            })
            .collect();
        let runs = runs?;
        if runs.is_empty() {
            bail!("has no runs");
        }
        Ok(Self {
            id: raw.id,
            title: raw.title,
            source: raw.source,
            notes: raw.notes,
            kind: raw.kind,
            engine: raw.engine,
            step_time: raw.step_time,
            runs,
        })
    }
}

fn run(raw: RawRun, folders: &[&Path]) -> Result<CaseRun> {
    Ok(CaseRun {
        load: load(&raw.load, folders)?,
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

fn load(v: &Value, folders: &[&Path]) -> Result<Load> {
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
            lengths: pairs(v, folders)?,
        },
        "all_at_zero" => {
            Load::AllAtZero { requests: whole("requests")?, lengths: pairs(v, folders)? }
        }
        "closed" => Load::Closed {
            users: whole("users")?,
            output_mean: get("output_tokens")?
                .get("mean")
                .and_then(Value::as_f64)
                .context("load.output_tokens.mean: expected a number")?,
        },
        "poisson" if v.get("input_tokens").is_none() && v.get("lengths").is_none() => Load::Stated,
        "poisson" => {
            let rate_per_s = number("rate_per_s")?;
            let requests = if v.get("requests").is_some() {
                whole("requests")?
            } else {
                // As many as arrive in that time on average; a cast of a float saturates.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let n = (rate_per_s * number("duration_s")?).round().max(1.0) as u64;
                n
            };
            Load::Poisson { requests, rate_per_s, lengths: pairs(v, folders)? }
        }
        other => bail!(
            "load.kind: found `{other}`, expected replay, poisson_fixed_count, poisson, all_at_zero or closed"
        ),
    })
}

/// The lengths of a load: of the file that it names, or each by itself.
fn pairs(v: &Value, folders: &[&Path]) -> Result<LengthPairs> {
    if let Some(name) = v.get("lengths").filter(|n| !n.is_null()) {
        let name = name.as_str().with_context(|| {
            format!("load.lengths: found `{name}`, expected the name of a file")
        })?;
        if let Some(path) = folders.iter().map(|f| f.join(name)).find(|p| p.is_file()) {
            return measured_lengths(&path).with_context(|| path.display().to_string());
        }
        if v.get("input_tokens").is_none() {
            bail!("load.lengths: no `{name}` in the folder of the case or above it");
        }
    }
    let of = |key: &str| {
        let value = v.get(key).with_context(|| format!("load.{key} is missing"))?;
        lengths(key, value)
    };
    Ok(LengthPairs::Apart(of("input_tokens")?, of("output_tokens")?))
}

/// Prompt and answer of each request of a CSV file, perhaps packed with gzip.
fn measured_lengths(path: &Path) -> Result<LengthPairs> {
    const INPUT: [&str; 3] = ["input_tokens", "input_len", "prompt_tokens"];
    const OUTPUT: [&str; 3] = ["output_tokens", "output_len", "generation_tokens"];
    let bytes = std::fs::read(path)?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text)?;
    } else {
        text = String::from_utf8(bytes).context("is no text")?;
    }
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |names: &[&str]| {
        let found = header.iter().position(|h| names.contains(h));
        found.with_context(|| format!("has no column {}", names.join(" or ")))
    };
    let (input, output) = (column(&INPUT)?, column(&OUTPUT)?);
    let mut all = Vec::new();
    for (line, row) in (2..).zip(lines) {
        let cell = |i: usize| -> Result<u64> {
            let cell = row.split(',').nth(i).unwrap_or_default().trim();
            cell.parse().with_context(|| format!("line {line}: found `{cell}`, expected a count"))
        };
        let pair = (cell(input)?, cell(output)?);
        // A request without a prompt or an answer has no latency to compare.
        if 0 < pair.0 && 0 < pair.1 {
            all.push(pair);
        }
    }
    if all.is_empty() {
        bail!("has no request with a prompt and an answer");
    }
    Ok(LengthPairs::Measured(all))
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
    // All that is known of the lengths: each request has the mean.
    if let Some(mean) = v.get("mean").and_then(Value::as_f64).filter(|m| (1.0..1e9).contains(m)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return Ok(Lengths::Constant(mean.round() as u64));
    }
    bail!(
        "load.{key}: found `{v}`, expected {{\"constant\": N}}, {{\"uniform\": [LOW, HIGH]}} or {{\"mean\": X}}"
    )
}

impl Load {
    /// Whether a seed changes it.
    pub fn is_random(&self) -> bool {
        match self {
            Self::PoissonFixedCount { .. } | Self::Poisson { .. } => true,
            Self::AllAtZero { lengths, .. } => {
                !matches!(lengths, LengthPairs::Apart(Lengths::Constant(_), Lengths::Constant(_)))
            }
            _ => false,
        }
    }

    /// Requests per second, where it has a rate.
    pub fn rate_per_s(&self) -> Option<f64> {
        match self {
            Self::PoissonFixedCount { requests, duration_s, .. } => {
                Some(*requests as f64 / duration_s)
            }
            Self::Poisson { rate_per_s, .. } => Some(*rate_per_s),
            _ => None,
        }
    }

    /// Its requests.
    pub fn workload(&self, seed: u64) -> Result<Workload> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let exponential = |rng: &mut Pcg64Mcg| -(1.0 - rng.random::<f64>()).ln();
        let (arrivals, lengths): (Vec<f64>, _) = match self {
            Self::Replay { arrival_s, input, output } => {
                return replayed(arrival_s, input, output);
            }
            Self::PoissonFixedCount { requests, duration_s, lengths } => {
                // The gap after the last request belongs to the duration too.
                let mut at = 0.0;
                let mut times: Vec<f64> = (0..=*requests)
                    .map(|_| {
                        at += exponential(&mut rng);
                        at
                    })
                    .collect();
                let total = times.pop().unwrap_or(1.0);
                (times.iter().map(|t| t / total * duration_s).collect(), lengths)
            }
            Self::Poisson { requests, rate_per_s, lengths } => {
                let mut at = 0.0;
                let times = (0..*requests)
                    .map(|_| {
                        at += exponential(&mut rng) / rate_per_s;
                        at
                    })
                    .collect();
                (times, lengths)
            }
            Self::AllAtZero { requests, lengths } => {
                ((0..*requests).map(|_| 0.0).collect(), lengths)
            }
            Self::Closed { .. } | Self::Stated => {
                bail!("this load is not simulated request by request")
            }
        };
        let pairs: Vec<(u64, u64)> = arrivals.iter().map(|_| lengths.draw(&mut rng)).collect();
        let inputs: Vec<u64> = pairs.iter().map(|p| p.0).collect();
        let outputs: Vec<u64> = pairs.iter().map(|p| p.1).collect();
        replayed(&arrivals, &inputs, &outputs)
    }
}
