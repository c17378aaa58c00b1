//! `goodput report`: the figures of benchmark results and request logs, rendered.

pub mod csv;
pub mod json;
mod large;
pub mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use metrics_core::grammar;
use metrics_core::interval::Confidence;
use metrics_core::report::{Report, Settings, Window};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use serving_io::partial::Partial;
use serving_io::run::Run;
use serving_io::{ColumnMap, Options, ReadFile};

use self::large::{Held, Log};
use crate::output::{Format, one_line, same_file};

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
  zcat log.jsonl.gz | goodput report - --format json
  goodput report result.json --slo 'ttft<200ms' --partial shard-1.part
  goodput report --merge shard-1.part";

/// Arguments of `report`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Benchmark results or request logs; `-` reads standard input, .gz is read as it is.
    #[arg(required_unless_present_any = ["goodput", "merge"], value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    objectives: Objectives,
    /// Meaning of a column: FIELD_UNIT=COLUMN, for CSV and JSON lines of any origin.
    #[arg(long, value_name = "FIELD=COLUMN[,…]")]
    map: Vec<String>,
    /// Format of the files, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    /// Count and sketch requests in bounded memory instead of holding them: percentiles are off by
    /// 0.05 % at most, and have no intervals.
    #[arg(long)]
    sketch: bool,
    /// Write what this log says as a partial result, to be merged with those of other shards.
    #[arg(long, value_name = "FILE")]
    partial: Option<PathBuf>,
    /// Report partial results as one run.
    #[arg(long, value_name = "PARTIAL", num_args = 1.., conflicts_with_all = ["files", "goodput", "map", "input_format"])]
    merge: Vec<PathBuf>,
}

impl Arguments {
    /// Files behind `--goodput`, which takes every value up to the next option.
    fn swallowed(&self) -> Vec<PathBuf> {
        let values = self.objectives.goodput.iter().filter(|v| !v.contains(':'));
        values.map(PathBuf::from).filter(|f| f.exists()).collect()
    }

    /// The files, wherever they stand on the command line.
    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().chain(self.swallowed()).collect()
    }
}

/// What is asked of a run, and how its figures are taken.
#[derive(clap::Args, Debug)]
pub struct Objectives {
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
    #[arg(long, value_name = "SHARE", default_value = "95%", allow_hyphen_values = true)]
    confidence: String,
}

impl Objectives {
    /// The objectives of the command line, without the values of `--goodput` that are files.
    pub fn set(&self, files: &[PathBuf]) -> Result<SloSet> {
        let mut slo = SloSet::none();
        for item in &self.slo {
            let more = item.parse().map_err(|e| anyhow!("--slo: {e}"))?;
            slo = slo.and(more).map_err(|e| anyhow!("--slo: {e}"))?;
        }
        let is_limit = |item: &&str| !files.iter().any(|f| f.as_os_str() == *item);
        let limits = SloSet::from_goodput(self.goodput.iter().map(String::as_str).filter(is_limit))
            .map_err(|e| anyhow!("--goodput: {e}"))?;
        slo = slo.and(limits).map_err(|e| anyhow!("--slo and --goodput: {e}"))?;
        Ok(if self.strict { slo.strictly() } else { slo })
    }

    /// The confidence of the intervals.
    pub fn confidence(&self) -> Result<Confidence> {
        grammar::share(&self.confidence)
            .and_then(Confidence::new)
            .map_err(|e| anyhow!("--confidence: {e}"))
    }

    /// How percentiles are taken.
    pub fn method(&self) -> PercentileMethod {
        match self.percentile {
            Percentile::Linear => PercentileMethod::Linear,
            Percentile::NearestRank => PercentileMethod::NearestRank,
        }
    }
}

impl Arguments {
    /// Refuses to write over an input, and to read standard input twice.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        if 1 < self.files.iter().filter(|f| f.as_os_str() == "-").count() {
            bail!("`-` is given twice, but standard input can be read once");
        }
        for (option, output) in [("-o", output), ("--partial", self.partial.as_deref())] {
            let Some(output) = output else { continue };
            if self.files().iter().any(|f| same_file(f, output)) {
                bail!("{option} {}: is an input file, name another one", output.display());
            }
        }
        Ok(())
    }
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
pub struct Reported<'a> {
    file: &'a ReadFile,
    /// Counted from 1.
    number: usize,
    run: &'a Run,
    report: Option<Report>,
    /// The objectives asked for, also where they could not be computed.
    slo: &'a SloSet,
    confidence: Confidence,
}

impl Reported<'_> {
    /// What the file is and who wrote it.
    fn origin(&self) -> String {
        let title = self.file.format.title();
        let tool = &self.run.tool;
        let version = tool.version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
        // The title of a tool's own format names the tool already.
        if tool.name.is_empty() && version.is_empty() {
            title.to_owned()
        } else if tool.name.is_empty() {
            one_line(&format!("{title}, written by version{version}"))
        } else if title.starts_with(tool.name.as_str()) {
            one_line(&format!("{title}{version}"))
        } else {
            one_line(&format!("{title}, written by {}{version}", tool.name))
        }
    }
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let mut slo = arguments.objectives.set(&arguments.swallowed())?;
    let confidence = arguments.objectives.confidence()?;
    let method = arguments.objectives.method();
    let options = options(arguments)?;
    let sketch = arguments.sketch || arguments.partial.is_some() || !arguments.merge.is_empty();
    let logs = if arguments.merge.is_empty() {
        let sketch = sketch.then_some(&slo);
        let logs: Result<Vec<Log>> =
            arguments.files().iter().map(|path| large::read(path, &options, sketch)).collect();
        let logs = logs?;
        if let Some(path) = &arguments.partial {
            write_partial(path, &large::partial(&logs, &options)?)?;
        }
        logs
    } else {
        let partial = large::merge(&arguments.merge)?;
        if let Some(path) = &arguments.partial {
            write_partial(path, &partial)?;
        }
        if slo.is_empty() {
            slo = partial.tally().slo().clone();
        }
        let held = Held::Sketches(vec![partial.tally().clone()]);
        vec![Log { file: large::merged_file(&partial)?, held }]
    };
    let mut files = Vec::new();
    for Log { file, held } in logs {
        let mut reports = Vec::new();
        for (i, run) in file.runs.iter().enumerate() {
            let window = run
                .duration
                .map(|d| Window { length: d.value, basis: format!("in the file as {}", d.from) });
            let settings =
                Settings { window, truncated: run.truncated, slo: &slo, method, confidence };
            let report = match &held {
                Held::Columns(table) => Some(Report::of_table(table, &settings)),
                Held::Sketches(tallies) => tallies
                    .get(i)
                    .filter(|t| 0 < t.requests())
                    .map(|tally| Report::of_tally(tally, &settings)),
                Held::Timelines if run.has_requests() => {
                    Some(Report::of_table(&RequestTable::of(&run.timelines), &settings))
                }
                Held::Timelines => None,
            };
            let of = || format!("{}, run {}", file.name, i + 1);
            reports.push(report.transpose().with_context(of)?);
        }
        files.push((file, reports));
    }
    if files.is_empty() {
        bail!("no file was given: `goodput report FILE --goodput ttft:200`");
    }
    let mut reported = Vec::new();
    for (file, reports) in &mut files {
        for (i, (run, report)) in file.runs.iter().zip(reports.drain(..)).enumerate() {
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

fn write_partial(path: &Path, partial: &Partial) -> Result<()> {
    let text = partial.to_text().map_err(|e| anyhow!("{e}"))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn options(arguments: &Arguments) -> Result<Options> {
    let format = arguments
        .input_format
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|e: serving_io::IoError| anyhow!("--input-format: {e}"))?;
    let map = ColumnMap::parse(map_items(&arguments.map).iter().map(String::as_str))
        .map_err(|e| anyhow!("--map: {e}"))?;
    Ok(Options { format, map })
}

/// The items of `--map`, split at commas; a part without `=` belongs to the name before it.
pub fn map_items(map: &[String]) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for text in map {
        let mut first = true;
        for part in text.split(',') {
            match items.last_mut() {
                Some(last) if !first && !part.contains('=') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => items.push(part.to_owned()),
            }
            first = false;
        }
    }
    items
}
