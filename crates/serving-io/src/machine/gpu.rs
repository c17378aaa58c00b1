//! GPUs: memory, bandwidth and peaks, each with its source.

use std::sync::OnceLock;

use metrics_core::units::{Bytes, BytesPerSecond, FlopPerSecond};
use serde::Deserialize;

use super::{choose, plain_name};
use crate::config::{once, parse};
use crate::error::Result;

/// The table, with its file's name for messages.
const TABLE: (&str, &str) = ("machine/gpus.toml", include_str!("gpus.toml"));

/// How matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// bf16 or fp16; also weights of fewer bits that are widened first.
    Half,
    /// fp8, weights and activations.
    Fp8,
    /// int8, weights and activations.
    Int8,
    /// fp4, weights and activations where the GPU has it.
    Fp4,
}

impl Precision {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Half => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp4 => "fp4",
        }
    }
}

/// One kind of GPU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gpu {
    /// The name that presets use.
    pub name: String,
    /// All of its memory, as `nvidia-smi` prints it; a process sees up to 1 % less.
    pub memory: Bytes,
    /// Bandwidth of the memory.
    pub bandwidth: BytesPerSecond,
    /// How many times its peak a measurement may reach, since the board runs above the boost clock
    /// at which peaks are stated; 1 for most.
    pub clock_allowance: f64,
    /// Where the figures come from.
    pub source: String,
    half: FlopPerSecond,
    fp8: Option<FlopPerSecond>,
    int8: Option<FlopPerSecond>,
    fp4: Option<FlopPerSecond>,
}

impl Gpu {
    /// The GPU of that name: case, `NVIDIA` and punctuation do not matter.
    ///
    /// # Errors
    ///
    /// [`IoError::UnknownMachine`](crate::IoError::UnknownMachine) with the names that are nearest.
    pub fn named(name: &str) -> Result<Self> {
        let rows = rows()?;
        let names = |row: &Row| {
            let also = row.aliases.iter().map(String::as_str);
            std::iter::once(row.name.as_str()).chain(also).map(gpu_name).collect()
        };
        choose("GPU", name, &gpu_name(name), rows, |row| &row.name, names)?.checked()
    }

    /// All GPUs of the table.
    ///
    /// # Errors
    ///
    /// None for the table that is built in.
    pub fn all() -> Result<Vec<Self>> {
        rows()?.iter().map(Row::checked).collect()
    }

    /// The dense peak in a precision, or in the next wider one that the GPU has.
    #[must_use]
    pub fn peak(&self, precision: Precision) -> FlopPerSecond {
        match precision {
            Precision::Half => None,
            Precision::Fp8 => self.fp8,
            Precision::Int8 => self.int8,
            Precision::Fp4 => self.fp4.or(self.fp8),
        }
        .unwrap_or(self.half)
    }

    /// Whether vLLM keeps its small default limits on it, as on a GPU of less than 70 GiB.
    #[must_use]
    pub fn has_small_defaults(&self) -> bool {
        self.name.contains("A100")
    }
}

/// A GPU's name without what does not tell GPUs apart.
fn gpu_name(name: &str) -> String {
    let plain = plain_name(name);
    let plain =
        plain.strip_prefix("nvidia").or_else(|| plain.strip_prefix("amd")).unwrap_or(&plain);
    plain.to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    gpu: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    aliases: Vec<String>,
    memory_mib: u32,
    bandwidth_gb_per_s: f64,
    half: f64,
    fp8: Option<f64>,
    int8: Option<f64>,
    fp4: Option<f64>,
    clock_allowance: Option<f64>,
    source: String,
}

fn rows() -> Result<&'static [Row]> {
    static READ: OnceLock<Table> = OnceLock::new();
    Ok(&once(&READ, || parse(TABLE.0, TABLE.1))?.gpu)
}

impl Row {
    fn checked(&self) -> Result<Gpu> {
        let core = |e: metrics_core::Error| super::wrong(&self.name, &e);
        let peak = |tera: f64| FlopPerSecond::new(tera * 1e12).map_err(core);
        Ok(Gpu {
            name: self.name.clone(),
            memory: Bytes::new(f64::from(self.memory_mib) * 1_048_576.0).map_err(core)?,
            bandwidth: BytesPerSecond::new(self.bandwidth_gb_per_s * 1e9).map_err(core)?,
            clock_allowance: self.clock_allowance.unwrap_or(1.0),
            source: self.source.clone(),
            half: peak(self.half)?,
            fp8: self.fp8.map(peak).transpose()?,
            int8: self.int8.map(peak).transpose()?,
            fp4: self.fp4.map(peak).transpose()?,
        })
    }
}
