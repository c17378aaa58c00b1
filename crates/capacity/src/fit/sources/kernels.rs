//! Steps composed from the times of single kernels, as LLMServingSim publishes them.
//!
//! A folder has three tables in microseconds, each perhaps packed with gzip: `dense.csv` (`layer`,
//! `tokens`, `time_us`), `per_sequence.csv` (`layer`, `sequences`, `time_us`) and `attention.csv`
//! (`prefill_chunk`, `kv_prefill`, `n_decode`, `kv_decode`, `time_us`). Dense and attention times
//! are those of one block of the model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Options;
use super::table::Table;
use crate::error::{FitError, Result};
use crate::fit::point::{Point, Regime, Source};

/// Layers outside of the blocks.
const ONCE: [&str; 2] = ["embedding", "final_layernorm"];

/// Layers of which a block has two.
const TWICE: &str = "layernorm";

/// Blocks of models whose kernels were published, by the name of the model.
///
/// Source: `num_hidden_layers` of each model's `config.json`.
const BLOCKS: [(&str, u32); 10] = [
    ("Llama-3.1-8B", 32),
    ("Llama-3-8B", 32),
    ("Llama-3.1-70B", 80),
    ("Llama-3.3-70B", 80),
    ("Llama-2-7b", 32),
    ("Llama-2-13b", 40),
    ("Llama-2-70b", 80),
    ("Qwen3-8B", 36),
    ("Qwen3-32B", 64),
    ("Mistral-7B", 32),
];

/// The tables of a folder.
const TABLES: [&str; 3] = ["dense", "per_sequence", "attention"];
/// How their files end.
const ENDS: [&str; 2] = [".csv", ".csv.gz"];

/// Whether a file of this name is one of the tables.
#[must_use]
pub fn is_kernel_table(name: &str) -> bool {
    let is = |end| name.strip_suffix(end).is_some_and(|table| TABLES.contains(&table));
    ENDS.into_iter().any(is)
}

/// One table of the folder.
fn table(folder: &Path, name: &str, columns: &[&str]) -> Result<Table> {
    let tried: Vec<PathBuf> = ENDS.iter().map(|end| folder.join(format!("{name}{end}"))).collect();
    let shown = folder.display().to_string();
    let wrong = |found: String| FitError::UnknownSource {
        file: shown.clone(),
        found,
        expected: "kernel tables dense.csv, per_sequence.csv and attention.csv".to_owned(),
    };
    let path = tried
        .iter()
        .find(|p| p.is_file())
        .ok_or_else(|| wrong(format!("a folder without {name}.csv")))?;
    match Table::read(path, &path.display().to_string())? {
        Some(table) if table.has(columns) => Ok(table),
        _ => Err(wrong(format!("{name} without the columns {}", columns.join(", ")))),
    }
}

/// Times by size, interpolated between the sizes that were measured.
#[derive(Default)]
struct Curve(BTreeMap<u64, f64>);

impl Curve {
    /// The time at a size; none outside of what was measured.
    fn at(&self, size: f64) -> Option<f64> {
        // Sizes are counts of tokens far below 2^53; a cast of a float saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = size as u64;
        if let Some(time) = self.0.get(&whole) {
            return Some(*time);
        }
        let (low, a) = self.0.range(..whole).next_back()?;
        let (high, b) = self.0.range(whole..).next()?;
        Some(a + (b - a) * (size - *low as f64) / (high - low) as f64)
    }
}

/// The sum of all layers' times by size, one curve for what a block has and one for the rest.
///
/// A size counts only if every layer was measured there.
fn curves(table: &Table, size: &str) -> Result<(Curve, Curve)> {
    let mut layers: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for row in table.rows() {
        // As above: counts of tokens.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let n = row.positive(size)? as u64;
        let time = row.positive("time_us")? / 1e6;
        layers.entry(row.text("layer").to_owned()).or_default().insert(n, time);
    }
    let mut sums = (Curve::default(), Curve::default());
    let all = layers.len();
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for (layer, times) in &layers {
        let factor = if layer == TWICE { 2.0 } else { 1.0 };
        let sum = if ONCE.contains(&layer.as_str()) { &mut sums.1 } else { &mut sums.0 };
        for (&n, time) in times {
            *sum.0.entry(n).or_default() += factor * time;
            *counts.entry(n).or_default() += 1;
        }
    }
    for curve in [&mut sums.0, &mut sums.1] {
        curve.0.retain(|n, _| counts.get(n) == Some(&all));
    }
    Ok(sums)
}

/// How many blocks the model has.
fn blocks(name: &str, options: &Options) -> Result<(f64, String)> {
    if let Some(layers) = options.layers {
        return Ok((f64::from(layers), format!("{layers} layers, as given")));
    }
    let found =
        BLOCKS.iter().find(|(m, _)| name.to_ascii_lowercase().contains(&m.to_ascii_lowercase()));
    let (model, n) = found.ok_or_else(|| FitError::Option {
        option: "--layers",
        problem: format!(
            "{name} has the kernels of one layer and its name tells no model that is known here: say how many layers it has"
        ),
    })?;
    Ok((f64::from(*n), format!("{n} layers, as {model} has")))
}

/// Steps for each row of the attention table.
pub(super) fn read(folder: &Path, name: &str, options: &Options) -> Result<Source> {
    let dense = table(folder, TABLES[0], &["layer", "tokens", "time_us"])?;
    let heads = table(folder, TABLES[1], &["layer", "sequences", "time_us"])?;
    let columns = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"];
    let attention = table(folder, TABLES[2], &columns)?;
    let group = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let (blocks, said) = blocks(&group, options)?;
    let (block, once) = curves(&dense, "tokens")?;
    let (head, _) = curves(&heads, "sequences")?;
    let mut source = Source::new(name, "kernel tables");
    source.assumed.extend([
        said,
        "every layer's time between two measured sizes is on a line between them; two layer norms a layer"
            .to_owned(),
        "one answer token is sampled for each decode and each prompt chunk".to_owned(),
        "kernels alone: no scheduler, no CPU, no network between GPUs".to_owned(),
    ]);
    for row in attention.rows() {
        let (chunk, before) = (row.number("prefill_chunk")?, row.number("kv_prefill")?);
        let (decodes, each) = (row.number("n_decode")?, row.number("kv_decode")?);
        let sequences = decodes + f64::from(u8::from(0.0 < chunk));
        if chunk + decodes == 0.0 {
            source.exclude("neither prompt tokens nor decodes", || row.place());
            continue;
        }
        let (Some(block), Some(once), Some(head)) =
            (block.at(chunk + decodes), once.at(chunk + decodes), head.at(sequences))
        else {
            source.exclude("more tokens or sequences than the other tables have", || row.place());
            continue;
        };
        let time_s = blocks * (block + row.positive("time_us")? / 1e6) + once + head;
        let point = Point {
            regime: if 0.0 < chunk { Regime::Prefill } else { Regime::Decode },
            prefills: f64::from(u8::from(0.0 < chunk)),
            prefill_tokens: chunk,
            attention: chunk * before + chunk * chunk / 2.0,
            prefix: before,
            ..Point::decode(decodes, decodes * each, time_s)
        };
        source.points.push(point.at(row.place()).of(group.clone()));
    }
    source.drop_duplicates();
    Ok(source)
}
