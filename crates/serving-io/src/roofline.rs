//! Step times from model and GPU, and the floor that no measurement can be below.
//!
//! # Examples
//!
//! ```
//! use serving_io::machine::Machine;
//! use serving_io::roofline::{Floor, RooflineSource};
//!
//! let text = "model=llama-3.1-8b,gpu=h100,mfu=0.5,mbu=0.8";
//! let step_time = text.parse::<RooflineSource>()?.step_time()?;
//! // 2 · 6,979,588,096 FLOP a token at half of 989.4 TFLOP/s, 15.01 GB at 0.8 · 3.35 TB/s.
//! assert_eq!((step_time.coefficients().token.seconds() * 1e9).round(), 28_217.0);
//! assert_eq!((step_time.coefficients().weights.seconds() * 1e6).round(), 5_601.0);
//!
//! let floor = Floor::of(&Machine::named("llama-3.1-8b", "h100", 1)?, None)?;
//! // An 8k prompt takes 115.6 ms even without a pause.
//! assert_eq!((floor.ttft_s(8192)? * 1e4).round(), 1156.0);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use metrics_core::model::{Attention, KvShape};
use metrics_core::roofline::{decode_step_time_lower_bound, prefill_time_lower_bound};
use metrics_core::table::{Observed, RequestTable};
use metrics_core::timeline::Outcome;
use metrics_core::units::{Bytes, BytesPerSecond, FlopPerSecond, SecondsPerToken};
use metrics_core::validity::Subject;
use metrics_core::validity::evidence::{Bound, Ideal};
use sched_sim::{ExpertReads, MeanWork, Roofline, RooflineCoefficients, StepTime, Ticks};

use crate::error::{IoError, Result, listed, shown};
use crate::machine::{Gpu, Machine, Model, kv_dtype_bytes};

/// What the text of a roofline begins with.
pub const PREFIX: &str = "roofline:";

/// Share of the peak that matrices reach, where none is said.
const MFU: f64 = 0.5;
/// Share of the bandwidth that reading reaches, where none is said.
const MBU: f64 = 0.8;

/// The parts of the text.
const KEYS: [&str; 8] =
    ["model", "config", "gpu", "tp", "mfu", "mbu", "kv-cache-dtype", "overhead"];

/// A step time from model and GPU, as a flag says it.
///
/// As text: `model=NAME` or `config=FILE`, `gpu=NAME`, and where wanted `tp=N`, `mfu=SHARE` of the
/// peak that computing reaches, `mbu=SHARE` of the bandwidth, `kv-cache-dtype=TYPE` and
/// `overhead=TIME` of a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RooflineSource {
    /// Model and GPUs.
    pub machine: Machine,
    /// Share of the peak that computing reaches.
    pub mfu: f64,
    /// Share of the bandwidth that reading reaches.
    pub mbu: f64,
    /// Of every step, on top.
    pub overhead: Ticks,
    /// Bytes of an element of the cache, if not the model's own type.
    pub kv_dtype_bytes: Option<f64>,
}

impl RooflineSource {
    /// The step time.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if parameters or weights of the model are not known, or for coefficients
    /// that are absurd.
    pub fn step_time(&self) -> Result<Roofline> {
        let Self { mfu, mbu, overhead, .. } = self;
        let simulation = |e: sched_sim::SimError| IoError::Engine {
            problem: format!(
                "roofline: mfu={mfu:?}, mbu={mbu:?}, overhead={}: {e}",
                overhead.compact()
            ),
        };
        let work = Work::of(&self.machine, self.kv_dtype_bytes)?;
        let peak = work.peak.get() * self.mfu;
        let bandwidth = work.bandwidth.get() * self.mbu;
        let ticks = |seconds| Ticks::from_seconds(seconds).map_err(simulation);
        let pair = ticks(work.flop_per_pair / peak)?.attoseconds();
        let e = work.experts;
        Roofline::new(RooflineCoefficients {
            overhead: self.overhead,
            token: ticks(2.0 * work.multiplied as f64 / peak)?,
            head: ticks(2.0 * work.head as f64 / peak)?,
            // The work of a step holds half pairs.
            pair: Ticks::from_attoseconds(pair & !1),
            weights: ticks(work.always_read / bandwidth)?,
            experts: ExpertReads {
                all: ticks(e.map_or(0.0, |e| e.bytes) / bandwidth)?,
                each_layer: e.map_or(0, |e| e.each_layer),
                chosen: e.map_or(0, |e| e.chosen),
            },
            context: ticks(work.kv.bytes_per_token().get() / bandwidth)?,
        })
        .map_err(simulation)
    }

    /// What the step time is, and what it leaves out, one line each.
    #[must_use]
    pub fn about(&self) -> Vec<String> {
        let m = &self.machine;
        let mut lines = vec![
            format!("{} on {}, TP {}, roofline", m.model.name, m.gpu.name, m.tensor_parallel),
            if self.mfu == 1.0 && self.mbu == 1.0 {
                "a bound: computing and reading at the datasheet's rates; no engine is as fast"
                    .to_owned()
            } else {
                format!(
                    "an estimate that is not validated: MFU {}, MBU {}, overhead {} a step",
                    self.mfu,
                    self.mbu,
                    self.overhead.compact()
                )
            },
        ];
        if 1 < m.tensor_parallel {
            lines.push("communication between the GPUs is not in it".to_owned());
        }
        if m.model.kv(None).is_ok_and(|kv| has_windows(&kv)) {
            lines.push("reading the KV of layers with a sliding window is not in it".to_owned());
        }
        lines
    }
}

/// The configuration of a model that the parts of a roofline name, if they name one.
pub(crate) fn config_of(parts: &str) -> Option<&Path> {
    parts.split(',').find_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key.trim() == "config").then(|| Path::new(value.trim()))
    })
}

fn has_windows(kv: &KvShape) -> bool {
    kv.layer_groups().iter().any(|g| matches!(g.attention, Attention::SlidingWindow { .. }))
}

fn simulation(source: sched_sim::SimError) -> IoError {
    IoError::Simulation { source }
}

impl fmt::Display for RooflineSource {
    /// A short name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.machine;
        let (model, gpu, tp) = (&m.model.name, &m.gpu.name, m.tensor_parallel);
        write!(f, "{PREFIX}{model} on {gpu}, TP {tp}, MFU {}, MBU {}", self.mfu, self.mbu)
    }
}

impl FromStr for RooflineSource {
    type Err = IoError;

    /// The parts without `roofline:`, separated by commas, each at most once.
    fn from_str(text: &str) -> Result<Self> {
        let fault = |problem: String| IoError::Engine { problem: format!("roofline: {problem}") };
        let mut given: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let key = key.trim();
            let Some(slot) = KEYS.iter().position(|k| *k == key).and_then(|i| given.get_mut(i))
            else {
                let known = listed(KEYS);
                return Err(fault(format!("`{}`: expected one of {known}", shown(part))));
            };
            if value.trim().is_empty() {
                return Err(fault(format!("`{}`: expected {key}=VALUE", shown(part))));
            }
            if slot.replace(value.trim()).is_some() {
                return Err(fault(format!("`{}`: expected {key} once", shown(part))));
            }
        }
        let [model, config, gpu, tp, mfu, mbu, kv_dtype, overhead] = given;
        let model = match (model, config) {
            (Some(name), None) => Model::named(name)?,
            (None, Some(path)) => Model::read_path(Path::new(path))?,
            _ => return Err(fault("expected model=NAME or config=FILE, one of them".to_owned())),
        };
        let Some(gpu) = gpu else { return Err(fault("expected gpu=NAME".to_owned())) };
        let share = |key: &str, text: Option<&str>, default: f64| match text {
            None => Ok(default),
            Some(text) => {
                let share = text.parse::<f64>().ok().filter(|x| 0.0 < *x && *x <= 1.0);
                let wrong =
                    || format!("{key}: found `{}`, expected a share above 0 up to 1", shown(text));
                share.ok_or_else(|| fault(wrong()))
            }
        };
        let tensor_parallel = match tp {
            None => 1,
            Some(text) => {
                text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| {
                    fault(format!("tp: found `{}`, expected 1 to 1024 GPUs", shown(text)))
                })?
            }
        };
        let source = Self {
            machine: Machine::new(model, Gpu::named(gpu)?, tensor_parallel)?,
            mfu: share("mfu", mfu, MFU)?,
            mbu: share("mbu", mbu, MBU)?,
            overhead: overhead.map_or(Ok(Ticks::ZERO), str::parse).map_err(simulation)?,
            kv_dtype_bytes: kv_dtype.map(kv_dtype_bytes).transpose()?.flatten(),
        };
        source.step_time()?;
        Ok(source)
    }
}

/// Experts as a step reads them.
#[derive(Clone, Copy, Debug)]
struct ExpertWork {
    bytes: f64,
    each_layer: u64,
    chosen: u64,
}

/// What steps compute and move, and how fast all GPUs together can.
#[derive(Clone, Debug)]
struct Work {
    multiplied: u64,
    head: u64,
    flop_per_pair: f64,
    /// Bytes of weights that each step reads, without experts.
    always_read: f64,
    experts: Option<ExpertWork>,
    /// The cache over all GPUs, with what several of them hold.
    kv: KvShape,
    peak: FlopPerSecond,
    bandwidth: BytesPerSecond,
}

impl Work {
    fn of(machine: &Machine, kv_dtype_bytes: Option<f64>) -> Result<Self> {
        let core = |e: metrics_core::Error| IoError::Engine { problem: e.to_string() };
        let (model, gpus) = (&machine.model, f64::from(machine.tensor_parallel));
        let reads = model.reads()?;
        let kv = model.kv(kv_dtype_bytes)?;
        let attending: u64 = kv
            .layer_groups()
            .iter()
            .filter(|g| !matches!(g.attention, Attention::NoKv | Attention::SlidingWindow { .. }))
            .map(|g| g.layers)
            .sum();
        // Each GPU reads its own part: what several hold, each of them reads.
        let one = kv.of_one_gpu(u64::from(machine.tensor_parallel)).map_err(core)?;
        let groups = one.layer_groups().iter().map(|g| metrics_core::model::LayerGroup {
            layers: g.layers * u64::from(machine.tensor_parallel),
            ..*g
        });
        Ok(Self {
            multiplied: reads.parameters.multiplied(),
            head: reads.parameters.head,
            // A query against a key and a weight against a value, 2 FLOP an element each.
            flop_per_pair: 4.0 * attending as f64 * model.query_size() as f64,
            always_read: reads.always,
            experts: reads.parameters.experts.map(|e| ExpertWork {
                bytes: reads.experts,
                each_layer: e.each_layer,
                chosen: e.chosen,
            }),
            kv: KvShape::new(groups.collect()).map_err(core)?,
            peak: FlopPerSecond::new(machine.gpu.peak(model.precision()).get() * gpus)
                .map_err(core)?,
            bandwidth: BytesPerSecond::new(machine.gpu.bandwidth.get() * gpus).map_err(core)?,
        })
    }
}

/// The least that TTFT and TPOT of a model on its GPUs can be: at the datasheet's peak (or what the
/// clock allows above it) and bandwidth, alone on the server, without attention's own work.
#[derive(Clone, Debug)]
pub struct Floor {
    work: Work,
    /// The least time of a step with several requests.
    steps: Roofline,
    /// What a single token reads of the weights.
    weights: Bytes,
}

impl Floor {
    /// The floor of a machine, with a cache of `kv_dtype_bytes` an element.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if parameters or weights of the model are not known.
    pub fn of(machine: &Machine, kv_dtype_bytes: Option<f64>) -> Result<Self> {
        let mut work = Work::of(machine, kv_dtype_bytes)?;
        let allowance = machine.gpu.clock_allowance;
        work.peak = FlopPerSecond::new(work.peak.get() * allowance)
            .map_err(|e| IoError::Engine { problem: e.to_string() })?;
        let steps = RooflineSource {
            machine: machine.clone(),
            mfu: allowance,
            mbu: 1.0,
            overhead: Ticks::ZERO,
            kv_dtype_bytes,
        }
        .step_time()?;
        let experts = work.experts.map_or(0.0, |e| e.bytes * e.chosen as f64 / e.each_layer as f64);
        let weights = Bytes::new(work.always_read + experts)
            .map_err(|e| IoError::Engine { problem: e.to_string() })?;
        Ok(Self { work, steps, weights })
    }

    /// The least TTFT of a prompt of which nothing is cached, in seconds.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] beyond what a time can hold.
    #[inline]
    pub fn ttft_s(&self, prompt_tokens: u64) -> Result<f64> {
        let core = |e: metrics_core::Error| IoError::Engine { problem: e.to_string() };
        let w = &self.work;
        let compute =
            prefill_time_lower_bound(w.multiplied, prompt_tokens, w.peak).map_err(core)?;
        let read = decode_step_time_lower_bound(self.weights, Bytes::ZERO, w.bandwidth);
        Ok(compute.get().max(read.map_err(core)?.get()))
    }

    /// The least TPOT of a request that has at least `context` tokens, in seconds.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] beyond what a time can hold.
    #[inline]
    pub fn tpot_s(&self, context: u64) -> Result<f64> {
        let core = |e: metrics_core::Error| IoError::Engine { problem: e.to_string() };
        let kv = self.work.kv.bytes(context).map_err(core)?;
        let step = decode_step_time_lower_bound(self.weights, kv, self.work.bandwidth);
        Ok(step.map_err(core)?.get())
    }

    /// The least time of any step, as a step time.
    #[must_use]
    pub const fn steps(&self) -> &Roofline {
        &self.steps
    }

    /// The mean TTFT and TPOT of completed requests, each beside a bound that it should respect.
    ///
    /// A mean below the mean of the requests' own floors stands beside that ([`Bound::Floor`]): both
    /// are over the same requests, so that no mix of lengths can be below. A TPOT that is not stands
    /// beside the time of a step that decodes for as many requests as are in the system by Little's
    /// law ([`Bound::Load`]): whoever is many times above that is slow even for the load. It is no
    /// floor, since those who wait, and those of other replicas, are not in the step. TTFT has no
    /// such bound, since it queues.
    ///
    /// # Errors
    ///
    /// As [`Self::ttft_s`].
    pub fn against(&self, table: &RequestTable) -> Result<Vec<Ideal>> {
        let (mut ttft, mut tpot) = (Sum::default(), Sum::default());
        // What Little's law needs: time in the system, context held, and the ends of the run.
        let (mut in_system_s, mut held) = (0.0, 0.0);
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for r in table.requests().filter(|r| r.outcome() == Outcome::Completed) {
            let Some(prompt) = r.input_tokens() else { continue };
            if let Some(measured) = r.ttft() {
                ttft.add(measured.get(), self.ttft_s(prompt)?);
            }
            if let (Some(measured), Some(output @ 2..)) = (r.tpot(), r.output_tokens()) {
                tpot.add(SecondsPerToken::get(measured), self.tpot_s(prompt)?);
                if let (Some(arrival), Some(e2e)) = (r.arrival_s(), r.e2e_latency()) {
                    in_system_s += e2e.get();
                    held += (prompt as f64 + output as f64 / 2.0) * e2e.get();
                    (first, last) = (first.min(arrival), last.max(arrival + e2e.get()));
                }
            }
        }
        let both = [(Subject::Ttft, ttft), (Subject::Tpot, tpot)];
        let mut all: Vec<Ideal> =
            both.into_iter().filter_map(|(subject, sum)| sum.ideal(subject)).collect();
        if first < last && !all.iter().any(|i| i.subject == Subject::Tpot) {
            let span = last - first;
            let mut step = MeanWork::default();
            (step.decodes, step.decode_context) = (in_system_s / span, held / span);
            all.push(Ideal {
                subject: Subject::Tpot,
                measured_s: tpot.measured / tpot.n as f64,
                bound_s: self.steps.mean_seconds(&step),
                bound: Bound::Load,
            });
        }
        Ok(all)
    }
}

/// Sums over the same requests.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    n: u64,
    measured: f64,
    bound: f64,
}

impl Sum {
    fn add(&mut self, measured: f64, bound: f64) {
        self.n += 1;
        self.measured += measured;
        self.bound += bound;
    }

    fn ideal(self, subject: Subject) -> Option<Ideal> {
        let n = self.n as f64;
        (0 < self.n && self.measured < self.bound).then(|| Ideal {
            subject,
            measured_s: self.measured / n,
            bound_s: self.bound / n,
            bound: Bound::Floor,
        })
    }
}
