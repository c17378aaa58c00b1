//! Points from files, told by their content.
//!
//! | kind | told by | points |
//! |---|---|---|
//! | step log | columns `time_s`, `time_ms`, `time_us` or `time_ns` with `prefill_tokens` or `decodes` | one a row |
//! | closed-loop sweep | columns `concurrency`, `isl`, `osl` and `tpot_ms` or `tpot_s` | the mean step of each row |
//! | Splitwise static batches | columns `prompt_size`, `batch_size`, `token_size`, `prompt_time`, `token_time` | a prefill and a decode step a row |
//! | LLM-Pilot users sweep | columns `users`, `n_bad`, `in_mean`, `out_mean`, `tpot_mean` | the mean step of each row |
//! | decode batch sweep | columns `phase`, `set_batch`, `in_len`, `out_len`, `median_tpot_ms` | a decode step a row |
//! | AIConfigurator silicon sample | columns `silicon_data_source`, `isl`, `osl`, `silicon_tpot_ms` | the mean step of each row |
//! | kernel tables | a folder with `dense.csv`, `per_sequence.csv` and `attention.csv` | a step for each row of `attention.csv` |
//! | request log | anything that `goodput report` reads | the mean step that each request saw |
//!
//! What is known to be wrong in published files is left out by rule and counted
//! ([`Source::excluded`]); what had to be assumed is said ([`Source::assumed`]).

mod kernels;
mod published;
mod requests;
mod steps;
mod table;

use std::path::Path;

use self::table::Table;
use super::model::check;
use super::point::Source;
use crate::error::{FitError, Result};

pub use self::kernels::is_kernel_table;

/// What a source of requests is called; its file can be replayed.
pub const REQUEST_LOG: &str = "request log";

/// How to read a file of points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What columns mean: field and column.
    pub map: Vec<(String, String)>,
    /// The columns by which rows are put into groups; by the kind of file if empty.
    pub by: Vec<String>,
    /// How many layers a model has whose kernels were measured one by one.
    pub layers: Option<u32>,
    /// How many tokens the KV cache holds: steps that need more cannot happen.
    pub kv_tokens: Option<u64>,
}

impl Options {
    /// Reads `FIELD=COLUMN` items.
    ///
    /// # Errors
    ///
    /// [`FitError::Option`] for an item without `=` or with a field that there is not.
    pub fn map<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Vec<(String, String)>> {
        items.into_iter().map(steps::map_item).collect()
    }
}

/// The points of a file or of a folder with kernel tables.
///
/// # Errors
///
/// [`FitError`] with file and line: a file that cannot be read or is of no known kind, a cell that
/// is no number, a time that is not above zero, a column that is there twice or nearly has the name
/// of a field, units that contradict each other.
pub fn read(path: &Path, options: &Options) -> Result<Source> {
    let mut source = read_all(path, options)?;
    for p in &source.points {
        check(p).map_err(|e| {
            let place = if p.place.is_empty() { source.name.clone() } else { p.place.clone() };
            FitError::Point { place, problem: e.to_string() }
        })?;
    }
    if let Some(most) = options.kv_tokens {
        let mut beyond = Vec::new();
        source.points.retain(|p| {
            let fits = p.kv_tokens() <= most as f64;
            if !fits {
                beyond.push(p.place.clone());
            }
            fits
        });
        for place in beyond {
            source.exclude("more tokens than --kv-tokens: such a step cannot happen", || place);
        }
    }
    Ok(source)
}

fn read_all(path: &Path, options: &Options) -> Result<Source> {
    let name = path.display().to_string();
    if path.is_dir() {
        return kernels::read(path, &name, options);
    }
    let Some(mut table) = Table::read(path, &name)? else {
        return requests::read(path, &name, options);
    };
    let mut source = if let Some(source) = published::read(&table, options)? {
        source
    } else if let Some(source) = steps::read(&table, options)? {
        source
    } else {
        return requests::read(path, &name, options);
    };
    table.refuse_repeated()?;
    if let Some(column) = options.by.iter().find(|c| table.column(c).is_none()) {
        let problem = format!("{name} has no column `{column}`: it has {}", table.shown_columns());
        return Err(FitError::Option { option: "--by", problem });
    }
    source.drop_duplicates();
    Ok(source)
}
