//! `goodput report`: the figures of benchmark results and request logs, rendered.

mod csv;
mod json;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use metrics_core::grammar;
use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report, Window};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use serving_io::run::Run;
use serving_io::{ColumnMap, Options, ReadFile};

use crate::output::Format;

pub const EXAMPLES: &str = "\
An objective is a limit for each request (ttft<200ms), an attainment target
(ttft<200ms @ 99%) or a percentile target (p99(ttft)<200ms). `<` counts a
request at its limit as good, as every benchmark tool does; see --strict.

Examples:
  goodput report result.json
  goodput report result.json --slo 'ttft<200ms,tpot<50ms'
  goodput report result.json --goodput ttft:200 tpot:50
  goodput report result.json --slo 'p99(ttft)<1s' --slo 'tpot<50ms @ 99%'
  goodput report a.json b.json --format md -o report.md
  goodput report log.csv --map ttft_ms=first_ms,e2e_ms=total_ms,output_tokens=n
  zcat log.jsonl.gz | goodput report - --format json";

/// Arguments of `report`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Benchmark results or request logs; `-` reads standard input, .gz is read as it is.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Objectives, separated by commas or by repeating the option.
    #[arg(long, value_name = "SLO")]
    slo: Vec<String>,
    /// Limits in milliseconds, as vLLM, SGLang and AIPerf write them.
    #[arg(long, value_name = "NAME:MS", num_args = 1..)]
    goodput: Vec<String>,
    /// A request exactly at a limit misses it.
    #[arg(long)]
    strict: bool,
    /// How percentiles are taken.
    #[arg(long, value_enum, default_value_t)]
    percentile: Percentile,
    /// Confidence of the intervals.
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    confidence: String,
    /// Meaning of a column: FIELD_UNIT=COLUMN, for CSV and JSON lines of any origin.
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',')]
    map: Vec<String>,
    /// Format of the files, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Percentile {
    /// Linear interpolation between neighbours, as numpy's default.
    #[default]
    Linear,
    /// The smallest sample that at least the share p does not pass.
    NearestRank,
}

/// One run of a file with its report; none where the file has no detail per request.
struct Reported<'a> {
    file: &'a ReadFile,
    /// Counted from 1.
    number: usize,
    run: &'a Run,
    report: Option<Report>,
    /// The objectives asked for, also where they could not be computed.
    slo: &'a SloSet,
    confidence: Confidence,
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let slo = objectives(arguments)?;
    let confidence = grammar::share(&arguments.confidence)
        .and_then(Confidence::new)
        .map_err(|e| anyhow!("--confidence: {e}"))?;
    let method = match arguments.percentile {
        Percentile::Linear => PercentileMethod::Linear,
        Percentile::NearestRank => PercentileMethod::NearestRank,
    };
    let options = options(arguments)?;
    let files: Result<Vec<ReadFile>> = arguments.files.iter().map(|f| read(f, &options)).collect();
    let files = files?;
    let mut reported = Vec::new();
    for file in &files {
        for (i, run) in file.runs.iter().enumerate() {
            let report = if run.has_requests() {
                let window = run.duration.map(|d| Window {
                    length: d.value,
                    basis: format!("in the file as {}", d.from),
                });
                let timelines = &run.timelines;
                let input = Input { timelines, window, slo: &slo, method, confidence };
                Some(Report::new(&input).with_context(|| format!("{}, run {}", file.name, i + 1))?)
            } else {
                None
            };
            reported.push(Reported { file, number: i + 1, run, report, slo: &slo, confidence });
        }
    }
    match format {
        Format::Text => text::render(&reported),
        Format::Json => json::render(&reported),
        Format::Csv => csv::render_csv(&reported),
        Format::Md => Ok(csv::render_markdown(&reported)),
    }
}

/// The objectives of the command line.
fn objectives(arguments: &Arguments) -> Result<SloSet> {
    let mut slo = SloSet::none();
    for item in &arguments.slo {
        slo = slo
            .and(item.parse().map_err(|e| anyhow!("--slo: {e}"))?)
            .map_err(|e| anyhow!("--slo: {e}"))?;
    }
    let limits = SloSet::from_goodput(arguments.goodput.iter().map(String::as_str))
        .map_err(|e| anyhow!("--goodput: {e}"))?;
    slo = slo.and(limits).map_err(|e| anyhow!("--slo and --goodput: {e}"))?;
    Ok(if arguments.strict { slo.strictly() } else { slo })
}

fn options(arguments: &Arguments) -> Result<Options> {
    let format = arguments
        .input_format
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|e: serving_io::IoError| anyhow!("--input-format: {e}"))?;
    let map = ColumnMap::parse(arguments.map.iter().map(String::as_str))
        .map_err(|e| anyhow!("--map: {e}"))?;
    Ok(Options { format, map })
}

fn read(path: &Path, options: &Options) -> Result<ReadFile> {
    // The reader's message already says what its cause says, so the chain would say it twice.
    if path.as_os_str() == "-" {
        return serving_io::read("standard input", std::io::stdin(), options)
            .map_err(|e| anyhow!("{e}"));
    }
    serving_io::read_path(path, options).map_err(|e| anyhow!("{e}"))
}
