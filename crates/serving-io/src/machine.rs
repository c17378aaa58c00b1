//! Models and GPUs: what a replica's memory and arithmetic follow from.
//!
//! A model is a name of the table below `machine/`, or a Hugging Face `config.json`; both are read
//! by the same code. A GPU is a name of a table. What cannot be known from them is said.
//!
//! # Examples
//!
//! ```
//! use serving_io::machine::Machine;
//!
//! let machine = Machine::named("llama-3.1-8b", "h100", 1)?;
//! assert_eq!(machine.model.parameters().map(|p| p.total), Some(8_030_261_248));
//! assert_eq!(machine.model.kv(None)?.bytes_per_token().get(), 131_072.0);
//! // 0.92 of 79.65 GiB less 14.96 GiB of weights.
//! let memory = machine.kv_memory(0.92, metrics_core::units::Bytes::ZERO)?;
//! assert_eq!((memory.get() / 1_073_741_824.0 * 100.0).round(), 5832.0);
//! # Ok::<(), serving_io::IoError>(())
//! ```

mod config;
mod gpu;
mod params;

use std::path::Path;
use std::sync::OnceLock;

use metrics_core::model::{KvShape, LayerGroup, ModelFields, ModelShape};
use metrics_core::units::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use config::{ModelConfig, WeightBytes};
pub use gpu::{Gpu, Precision};
pub use params::{Experts, Parameters};

use crate::config::{once, text_of_file};
use crate::error::{IoError, Place, Result, listed, shown};
use crate::json::syntax_error;

/// What vLLM 0.33.0 takes of the GPU's memory.
pub const GPU_MEMORY_UTILIZATION: f64 = 0.92;

/// The table of models, with its file's name for messages: for each, the keys of its `config.json`
/// on Hugging Face (<https://huggingface.co/NAME>) that decide weights and KV cache, so that a name
/// and a file are read by the same code, and only that of the model that is asked for.
const TABLE: (&str, &str) = ("machine/models.json", include_str!("machine/models.json"));

/// Endings of a model's name that say how it was trained, not its shape.
const TRAINED: [&str; 6] = ["instruct", "chat", "hf", "it", "base", "pt"];

/// Element types of a KV cache with their bytes, as vLLM names them.
const DTYPES: [(&str, f64); 10] = [
    ("bf16", 2.0),
    ("bfloat16", 2.0),
    ("fp16", 2.0),
    ("float16", 2.0),
    ("fp32", 4.0),
    ("fp8", 1.0),
    ("fp8_e4m3", 1.0),
    ("fp8_e5m2", 1.0),
    ("int8", 1.0),
    // Four bits, and a byte for the scale of 16 elements.
    ("nvfp4", 0.5625),
];

/// Bytes of an element of a KV cache, by the name of its type; `None` for `auto`, which is the
/// model's own.
///
/// # Errors
///
/// [`IoError::Engine`] for another name.
pub fn kv_dtype_bytes(name: &str) -> Result<Option<f64>> {
    let plain = name.trim().to_lowercase();
    if plain == "auto" {
        return Ok(None);
    }
    let found = DTYPES.iter().find(|d| d.0 == plain).map(|d| Some(d.1));
    found.ok_or_else(|| IoError::Engine {
        problem: format!(
            "`{}` is no type of a KV cache that is known; expected auto, {}",
            shown(name),
            listed(DTYPES.map(|d| d.0)).replace('`', "")
        ),
    })
}

/// A model: its shape, and what is not known of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// The name, or the file.
    pub name: String,
    config: ModelConfig,
}

impl Model {
    /// A model of the table: case, the organization's name and endings such as `-Instruct` do not
    /// matter.
    ///
    /// # Errors
    ///
    /// [`IoError::UnknownMachine`] with the names that are nearest.
    pub fn named(name: &str) -> Result<Self> {
        let rows = rows()?;
        let names = |row: &Row| {
            std::iter::once(&row.name).chain(&row.aliases).map(|n| model_name(n)).collect()
        };
        choose("model", name, &model_name(name), rows, |row| row.name, names)?.checked()
    }

    /// All models of the table.
    ///
    /// # Errors
    ///
    /// None for the table that is built in.
    pub fn all() -> Result<Vec<Self>> {
        rows()?.iter().map(Row::checked).collect()
    }

    /// A model from its `config.json`, or from the directory that has it.
    ///
    /// # Errors
    ///
    /// As [`ModelConfig::parse`], and for a file that cannot be read.
    pub fn read_path(path: &Path) -> Result<Self> {
        let inside = path.join("config.json");
        let path = if path.is_dir() && inside.is_file() { &inside } else { path };
        let name = path.display().to_string();
        let text = text_of_file(path, "a model's config.json")?;
        let config = ModelConfig::parse(&name, &text)?;
        Ok(Self { name, config })
    }

    /// The longest request that it was made for.
    #[must_use]
    pub fn max_model_len(&self) -> Option<u64> {
        self.config.max_model_len
    }

    /// Its parameters, if they can be counted.
    #[must_use]
    pub fn parameters(&self) -> Option<Parameters> {
        self.config.parameters
    }

    /// What matrices are multiplied in.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.config.precision
    }

    /// What is not counted, one line each.
    #[must_use]
    pub fn limitations(&self) -> &[String] {
        &self.config.limitations
    }

    /// What its file does not say and was assumed, one line each.
    #[must_use]
    pub fn assumptions(&self) -> &[String] {
        &self.config.assumptions
    }

    /// Bytes of the weights: of the parameters, in the types that the file names.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if parameters or types are not known.
    pub fn weights(&self) -> Result<Bytes> {
        let Some(bytes) = self.config.weights() else {
            return Err(self.unknown("give the size of the weights, such as 16GB"));
        };
        Bytes::new(bytes).map_err(|e| wrong(&self.name, &e))
    }

    /// Heads of the queries times the elements of one.
    #[must_use]
    pub fn query_size(&self) -> u64 {
        self.config.query_size
    }

    /// What steps read of the weights.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if parameters or the types of the weights are not known.
    pub(crate) fn reads(&self) -> Result<Reads> {
        let (Some(parameters), Some(w)) = (self.config.parameters, self.config.weight_bytes) else {
            return Err(self.unknown("a step time needs parameters and the types of the weights"));
        };
        let layers = parameters.always_read() - parameters.head;
        let (quantized, plain) = if w.experts_only { (0, layers) } else { (layers, 0) };
        let experts = parameters.experts.map_or(0, |e| e.all());
        Ok(Reads {
            parameters,
            always: self.config.bytes_of(quantized, plain + parameters.head),
            experts: self.config.bytes_of(experts, 0),
        })
    }

    /// That something of the model is not known.
    fn unknown(&self, needed: &str) -> IoError {
        let why = self.limitations().join("; ");
        IoError::Engine { problem: format!("{}: {needed}: {why}", shown(&self.name)) }
    }

    /// The layers as a KV cache of `dtype_bytes` an element sees them; `None` is the model's type.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] for a shape that cannot be.
    pub fn kv(&self, dtype_bytes: Option<f64>) -> Result<KvShape> {
        KvShape::new(self.groups(dtype_bytes)).map_err(|e| wrong(&self.name, &e))
    }

    fn groups(&self, dtype_bytes: Option<f64>) -> Vec<LayerGroup> {
        let of =
            |g: &LayerGroup| LayerGroup { dtype_bytes: dtype_bytes.unwrap_or(g.dtype_bytes), ..*g };
        self.config.layer_groups.iter().map(of).collect()
    }

    /// Parameters, weights and KV cache together.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if parameters or weights are not known.
    pub fn shape(&self, kv_dtype_bytes: Option<f64>) -> Result<ModelShape> {
        let weights = self.weights()?;
        let Some(p) = self.parameters() else {
            return Err(self.unknown("the number of parameters is needed"));
        };
        ModelShape::new(ModelFields {
            params: p.total,
            active_params: Some(p.active()),
            weight_dtype_bytes: weights.get() / p.total as f64,
            layer_groups: self.groups(kv_dtype_bytes),
        })
        .map_err(|e| wrong(&self.name, &e))
    }
}

/// What steps read of a model's weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// The parameters.
    pub(crate) parameters: Parameters,
    /// Bytes that each step reads, without experts.
    pub(crate) always: f64,
    /// Bytes of all experts.
    pub(crate) experts: f64,
}

/// Model and GPUs of one replica.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub gpu: Gpu,
    /// GPUs of one replica, by tensor parallelism.
    pub tensor_parallel: u32,
}

impl Machine {
    /// A model on so many GPUs.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] for no GPU.
    pub fn new(model: Model, gpu: Gpu, tensor_parallel: u32) -> Result<Self> {
        if tensor_parallel == 0 {
            let problem = "tensor parallelism must be over at least 1 GPU, got 0".to_owned();
            return Err(IoError::Engine { problem });
        }
        Ok(Self { model, gpu, tensor_parallel })
    }

    /// A model and a GPU by their names in the tables.
    ///
    /// # Errors
    ///
    /// As [`Model::named`], [`Gpu::named`] and [`Self::new`].
    pub fn named(model: &str, gpu: &str, tensor_parallel: u32) -> Result<Self> {
        Self::new(Model::named(model)?, Gpu::named(gpu)?, tensor_parallel)
    }

    /// Memory of one GPU that is left for the KV cache, as vLLM counts it: its share of the memory,
    /// less this GPU's part of the weights and what is reserved.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if nothing is left, or the weights are not known.
    pub fn kv_memory(&self, utilization: f64, reserved: Bytes) -> Result<Bytes> {
        let weights = self.model.weights()?.get() / f64::from(self.tensor_parallel);
        kv_memory(self.gpu.memory, utilization, weights, reserved).ok_or_else(|| IoError::Engine {
            problem: format!(
                "no memory for the KV cache: {utilization} of {} GiB is {} GiB, the weights of {} \
                 take {} GiB of each GPU{}",
                gib(self.gpu.memory.get()),
                gib(self.gpu.memory.get() * utilization),
                self.model.name,
                gib(weights),
                if reserved == Bytes::ZERO {
                    String::new()
                } else {
                    format!(" and {} GiB are reserved", gib(reserved.get()))
                }
            ),
        })
    }
}

/// What is left of a share of one GPU's memory, if anything is.
#[must_use]
pub fn kv_memory(memory: Bytes, utilization: f64, weights: f64, reserved: Bytes) -> Option<Bytes> {
    let left = memory.get() * utilization - weights - reserved.get();
    Bytes::new(left).ok().filter(|&b| Bytes::ZERO < b)
}

/// Bytes in GiB, as messages have them.
#[must_use]
pub fn gib(bytes: f64) -> String {
    metrics_core::format::fixed(bytes / 1_073_741_824.0, 2)
}

/// A name without case and punctuation.
fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

/// A model's name without organization, case, punctuation and how it was trained.
fn model_name(name: &str) -> String {
    let own = name.trim().rsplit('/').next().unwrap_or(name).to_lowercase();
    let own = own.strip_prefix("meta-").unwrap_or(&own);
    let mut parts: Vec<&str> = own.split(['-', '_', ' ']).collect();
    while 1 < parts.len() && parts.last().is_some_and(|last| TRAINED.contains(last)) {
        parts.pop();
    }
    plain_name(&parts.concat())
}

/// The row that one of its names selects; else an error with the three nearest.
fn choose<'a, R>(
    kind: &'static str,
    given: &str,
    plain: &str,
    rows: &'a [R],
    shown_name: impl Fn(&R) -> &str,
    names: impl Fn(&R) -> Vec<String>,
) -> Result<&'a R> {
    if let Some(row) = rows.iter().find(|row| names(row).iter().any(|n| n == plain)) {
        return Ok(row);
    }
    let likeness = |row: &R| {
        let names = names(row);
        let scores = names.iter().map(|n| strsim::jaro_winkler(n, plain));
        scores.fold(0.0, f64::max)
    };
    let mut near: Vec<(f64, &R)> = rows.iter().map(|row| (likeness(row), row)).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    Err(IoError::UnknownMachine {
        kind,
        name: shown(given),
        near: listed(near.iter().take(3).map(|(_, row)| shown_name(row))),
    })
}

/// What cannot be of a row or a file.
fn wrong(name: &str, problem: &metrics_core::Error) -> IoError {
    IoError::Config { at: Box::new(Place::file(name)), problem: problem.to_string() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: &'static str,
    #[serde(default)]
    aliases: Vec<&'static str>,
    /// What the model's page states, which the tests count from the shape, to the last one. Left out
    /// where the page counts a vision tower (Gemma 3 from 4B on) or a head that predicts further
    /// tokens (Qwen3-Next) along; that of DeepSeek-V3 is without such a head.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests compare it with the shape"))]
    params: Option<u64>,
    config: &'static RawValue,
}

fn rows() -> Result<&'static [Row]> {
    static READ: OnceLock<Vec<Row>> = OnceLock::new();
    let (file, text) = TABLE;
    let read = || serde_json::from_str(text).map_err(|e| syntax_error(file, text, 0, &e));
    Ok(once(&READ, read)?.as_slice())
}

impl Row {
    fn checked(&self) -> Result<Model> {
        let config = ModelConfig::parse(self.name, self.config.get())?;
        Ok(Model { name: self.name.to_owned(), config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the models' pages state, to the last parameter.
    #[test]
    fn parameters_follow_from_the_shape() {
        let rows = rows().unwrap();
        assert!(30 < rows.iter().filter(|r| r.params.is_some()).count());
        for row in rows {
            let counted = row.checked().unwrap().parameters().unwrap();
            assert_eq!(counted.total, row.params.unwrap_or(counted.total), "{}", row.name);
            assert!(counted.multiplied() < counted.active(), "{}", row.name);
        }
    }

    /// By name: no two rows answer to the same.
    #[test]
    fn names_are_unique() {
        let mut all = Vec::new();
        for row in rows().unwrap() {
            let own = std::iter::once(&row.name).chain(&row.aliases).map(|n| model_name(n));
            let own: std::collections::BTreeSet<String> = own.collect();
            all.extend(own);
            assert_eq!(Model::named(row.name).unwrap().name, row.name);
        }
        for gpu in Gpu::all().unwrap() {
            assert_eq!(Gpu::named(&gpu.name).unwrap(), gpu);
        }
        let n = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
