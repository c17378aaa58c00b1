//! `goodput report`: the figures of benchmark results and request logs, rendered.

pub mod as_tool;
pub mod csv;
pub mod groups;
pub mod json;
mod large;
pub mod text;
mod verdict;

pub use text::time;
pub use verdict::finding as finding_json;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use metrics_core::grammar;
use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report, Settings, Window};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use metrics_core::tool_rules::Tool;
use serving_io::evidence::{facts, sketched};
use serving_io::machine::{Gpu, Machine, Model};
use serving_io::partial::Partial;
use serving_io::roofline::Floor;
use serving_io::run::Run;
use serving_io::{ColumnMap, Options, ReadFile};

use self::large::{Held, Log};
use crate::output::{Format, check_outputs, one_line};
use verdict::Believed;

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
  goodput report result.json --warn-fatal || echo 'not usable for all'
  goodput report result.json --as sglang --goodput ttft:150
  goodput report result.json --model qwen2.5-0.5b --gpu t4
  goodput report result.json --by input_tokens:3 --slo 'ttft<150ms'
  goodput report log.csv --map ttft_ms=first_ms,e2e_ms=total_ms,output_tokens=n
  zcat log.jsonl.gz | goodput report - --format json
  goodput report result.json --slo 'ttft<200ms' --partial shard-1.part
  goodput report --merge shard-1.part";

/// Arguments of `report`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Benchmark results, request logs, or the directory that AIPerf or inference-perf left; `-`
    /// reads standard input, .gz is read as it is.
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
    /// The model that answered: a latency below what it allows is an error (W25).
    #[arg(long, value_name = "NAME|config.json", requires = "gpu", conflicts_with_all = ["sketch", "partial", "merge"])]
    model: Option<String>,
    /// The GPU that it ran on.
    #[arg(long, value_name = "NAME", requires = "model")]
    gpu: Option<String>,
    /// GPUs of one replica, by tensor parallelism [default: 1].
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N", requires = "model")]
    tp: Option<u32>,
    /// Exit with 3 for a warning too, not for an error alone.
    #[arg(long)]
    warn_fatal: bool,
    /// Figures under that tool's rules, beside ours, with the difference in words.
    #[arg(long = "as", value_name = "TOOL", value_parser = tool, conflicts_with_all = ["by", "sketch", "partial", "merge"])]
    as_tool: Option<Tool>,
    /// A report for each value of a column: outcome, input_tokens, output_tokens, or one of the file;
    /// numbers are binned, as in input_tokens:4 (bins of like size) or input_tokens:100,1000 (edges).
    #[arg(long, value_name = "COLUMN[:BINS]", value_parser = groups::By::parse, conflicts_with_all = ["sketch", "partial", "merge"])]
    by: Option<groups::By>,
    /// Count and sketch requests in bounded memory instead of holding them: percentiles are off by
    /// 0.05 % at most, and have no intervals.
    #[arg(long)]
    sketch: bool,
    /// Write what this log says as a partial result, to be merged with those of other shards.
    #[arg(long, value_name = "FILE")]
    partial: Option<PathBuf>,
    /// Report partial results as one run.
    #[arg(long, value_name = "PARTIAL", num_args = 1.., conflicts_with_all = ["files", "goodput", "map", "input_format", "sketch"])]
    merge: Vec<PathBuf>,
}

/// The tool of that name, for the parser of the arguments.
fn tool(name: &str) -> std::result::Result<Tool, String> {
    name.parse().map_err(|_| format!("the tools are {}", Tool::ALL.map(Tool::name).join(", ")))
}

impl Arguments {
    /// The least that latencies can be on the machine that is named.
    fn floor(&self) -> Result<Option<Floor>> {
        let Some((model, gpu)) = self.model.as_deref().zip(self.gpu.as_deref()) else {
            return Ok(None);
        };
        let path = Path::new(model);
        let model = if path.exists() { Model::read_path(path) } else { Model::named(model) };
        let model = model.map_err(|e| anyhow!("--model: {e}"))?;
        let gpu = Gpu::named(gpu).map_err(|e| anyhow!("--gpu: {e}"))?;
        let machine = Machine::new(model, gpu, self.tp.unwrap_or(1));
        let machine = machine.map_err(|e| anyhow!("--tp: {e}"))?;
        Floor::of(&machine, None).map(Some).map_err(|e| anyhow!("--model: {e}"))
    }

    /// The files, wherever they stand on the command line.
    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().chain(self.objectives.swallowed()).collect()
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
    /// Files behind `--goodput`, which takes every value up to the next option.
    pub fn swallowed(&self) -> Vec<PathBuf> {
        let values = self.goodput.iter().filter(|v| !v.contains(':'));
        values.map(PathBuf::from).filter(|f| f.exists()).collect()
    }

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
        if self.strict && slo.is_empty() {
            bail!("--strict: is for the limits of --slo and --goodput, and none is given");
        }
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
        let inputs: Vec<PathBuf> = self.files().into_iter().chain(self.merge.clone()).collect();
        check_outputs(&inputs, &[("-o", output), ("--partial", self.partial.as_deref())])
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
    /// The findings and what they add up to.
    believed: Believed,
    /// The objectives asked for, also where they could not be computed.
    slo: &'a SloSet,
    confidence: Confidence,
    /// The run under the rules of the tool that `--as` names.
    as_tool: Option<as_tool::Sheet>,
    /// The groups that `--by` asks for.
    groups: Option<groups::Groups>,
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

/// What is computed of one run.
struct Computed {
    report: Option<Report>,
    believed: Believed,
    as_tool: Option<as_tool::Sheet>,
    groups: Option<groups::Groups>,
}

/// What is asked of every run.
struct Asked<'a> {
    slo: &'a SloSet,
    method: PercentileMethod,
    confidence: Confidence,
    as_tool: Option<Tool>,
    by: Option<&'a groups::By>,
    floor: Option<Floor>,
}

impl Asked<'_> {
    /// The figures of the `i`-th run of a log.
    fn of(&self, log: &Log, i: usize, run: &Run) -> Result<Computed> {
        let (slo, method, confidence) = (self.slo, self.method, self.confidence);
        let window = window(run);
        let truncated = run.truncated;
        let settings = Settings { window: window.clone(), truncated, slo, method, confidence };
        if let Held::Sketches(tallies) = &log.held {
            let tally = tallies.get(i).filter(|t| 0 < t.requests());
            let report = tally.map(|t| Report::of_tally(t, &settings)).transpose()?;
            let believed = Believed::new(match &report {
                Some(report) => sketched(run, report, slo),
                None => facts(run, &RequestTable::default(), slo, None),
            });
            return Ok(Computed { report, believed, as_tool: None, groups: None });
        }
        let own;
        let table = if let Held::Columns(table) = &log.held {
            table.as_ref()
        } else {
            own = RequestTable::of(&run.timelines);
            &own
        };
        let report = (!table.is_empty()).then(|| Report::of_table(table, &settings)).transpose()?;
        let mut facts = facts(run, table, slo, report.as_ref());
        if let Some(floor) = &self.floor {
            facts.ideal = floor.against(table)?;
        }
        let believed = Believed::new(facts);
        let Some(report) = report else {
            return Ok(Computed { report: None, believed, as_tool: None, groups: None });
        };
        let timelines = &run.timelines;
        let input = Input { timelines, window, truncated, slo, method, confidence };
        let as_tool = self.as_tool.map(|tool| as_tool::sheet(tool, run, &input, &report));
        let groups = self.by.map(|by| groups::groups(by, run, &input, &report)).transpose()?;
        Ok(Computed { report: Some(report), believed, as_tool, groups })
    }
}

/// Reads what the command line names; the objectives of partial results stand if it has none.
fn logs(arguments: &Arguments, options: &Options, slo: &mut SloSet) -> Result<Vec<Log>> {
    if !arguments.merge.is_empty() {
        let partial = large::merge(&arguments.merge)?;
        if let Some(path) = &arguments.partial {
            write_partial(path, &partial)?;
        }
        if slo.is_empty() {
            *slo = partial.tally().slo().clone();
        }
        let held = Held::Sketches(vec![partial.tally().clone()]);
        return Ok(vec![Log { file: large::merged_file(&partial)?, held }]);
    }
    let form = if arguments.sketch || arguments.partial.is_some() {
        large::Form::Sketches(slo)
    } else if arguments.as_tool.is_some() || arguments.by.is_some() {
        // Both need the requests themselves.
        large::Form::Timelines
    } else {
        large::Form::BySize
    };
    let files = arguments.files();
    let logs: Result<Vec<Log>> = files.iter().map(|f| large::read(f, options, form)).collect();
    let logs = logs?;
    if let Some(path) = &arguments.partial {
        write_partial(path, &large::partial(&logs, options)?)?;
    }
    Ok(logs)
}

/// Runs the command; what it prints, and the exit code: 3 for a run that is not valid.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let mut slo = arguments.objectives.set(&arguments.objectives.swallowed())?;
    let confidence = arguments.objectives.confidence()?;
    let method = arguments.objectives.method();
    let options = options(arguments.input_format.as_deref(), &arguments.map)?;
    let logs = logs(arguments, &options, &mut slo)?;
    if logs.is_empty() {
        bail!("no file was given: `goodput report FILE --goodput ttft:200`");
    }
    let (as_tool, by) = (arguments.as_tool, arguments.by.as_ref());
    let floor = arguments.floor()?;
    let asked = Asked { slo: &slo, method, confidence, as_tool, by, floor };
    let mut reported = Vec::new();
    for log in &logs {
        let file = &log.file;
        for (i, run) in file.runs.iter().enumerate() {
            let number = i + 1;
            let of = || format!("{}, run {number}", file.name);
            let Computed { report, believed, as_tool, groups } =
                asked.of(log, i, run).with_context(of)?;
            reported.push(Reported {
                file,
                number,
                run,
                report,
                believed,
                slo: &slo,
                confidence,
                as_tool,
                groups,
            });
        }
    }
    let text = match format {
        Format::Text if arguments.as_tool.is_some() => as_tool::render_text(&reported)?,
        Format::Csv if arguments.as_tool.is_some() => as_tool::render_csv(&reported)?,
        Format::Md if arguments.as_tool.is_some() => as_tool::render_markdown(&reported),
        Format::Text if arguments.by.is_some() => groups::render_text(&reported)?,
        Format::Csv if arguments.by.is_some() => groups::render_csv(&reported)?,
        Format::Md if arguments.by.is_some() => groups::render_markdown(&reported),
        Format::Text => text::render(&reported)?,
        Format::Json => json::render(&reported)?,
        Format::Csv => csv::render_csv(&reported)?,
        Format::Md => csv::render_markdown(&reported),
    };
    let fatal = reported.iter().any(|r| r.believed.is_fatal(arguments.warn_fatal));
    Ok((text, if fatal { INVALID } else { 0 }))
}

/// Exit code for a run that is not what it says it is.
const INVALID: u8 = 3;

fn write_partial(path: &Path, partial: &Partial) -> Result<()> {
    let text = partial.to_text().map_err(|e| anyhow!("{e}"))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How files are read, from `--input-format` and `--map`.
pub fn options(input_format: Option<&str>, map: &[String]) -> Result<Options> {
    let format = input_format
        .map(str::parse)
        .transpose()
        .map_err(|e: serving_io::IoError| anyhow!("--input-format: {e}"))?;
    if let Some(item) = map.iter().find(|item| item.trim_end().ends_with(',')) {
        let item = one_line(item);
        bail!("--map {item}: ends in a comma, expected another FIELD=COLUMN behind it");
    }
    let map = ColumnMap::parse(map_items(map).iter().map(String::as_str))
        .map_err(|e| anyhow!("--map: {e}"))?;
    Ok(Options { format, map })
}

/// The window of a run's rates, if its file states one.
pub fn window(run: &Run) -> Option<Window> {
    run.duration.map(|d| Window { length: d.value, basis: format!("in the file as {}", d.from) })
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

/// Reads one file; `-` is standard input.
pub fn read(path: &Path, options: &Options) -> Result<ReadFile> {
    // The reader's message already says what its cause says, so the chain would say it twice.
    if path.as_os_str() == "-" {
        return serving_io::read("standard input", std::io::stdin(), options)
            .map_err(|e| anyhow!("{e}"));
    }
    serving_io::read_path(path, options).map_err(|e| anyhow!("{e}"))
}
