//! `goodput trace`: what a trace is like, and traces in our form.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use metrics_core::format;
use metrics_core::report::PERCENTILES;
use metrics_core::summary::{PercentileMethod, Summary};
use sched_sim::WorkloadRequest;
use serde_json::{Map, Value, json};
use serving_io::run::Note;
use serving_io::scenario::{Scenario, WorkloadSource};
use serving_io::trace::{
    Slice, TraceFile, TraceMap, TraceOptions, TraceProfile, read_trace, read_trace_path,
    write_request,
};

use crate::output::{self, Format, check_outputs};
use crate::sim::{GeneratorArguments, described, takes_one};

pub const EXAMPLES: &str = "\
Examples:
  goodput trace inspect azure.csv
  goodput trace inspect mooncake.jsonl --slice 0..1000 --format json
  goodput trace convert azure.csv --slice 0..1000 -o first.jsonl
  goodput trace generate --rate 5/s --requests 10k --input-tokens uniform:100,2000 -o mine.jsonl
  goodput sim --trace mine.jsonl";

/// Arguments of `trace`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Requests, rates, bursts, lengths, shared prefixes, and what is missing.
    Inspect(Input),
    /// The requests as JSON lines that read back the same, prefixes included.
    Convert(Input),
    /// Requests drawn from a seed, in the same form, one by one: memory does not grow with them.
    #[command(mut_args(takes_one))]
    Generate {
        /// The scenario whose generated requests are meant [default: the built-in one].
        #[arg(long, value_name = "FILE")]
        scenario: Option<PathBuf>,
        #[command(flatten)]
        generate: Box<GeneratorArguments>,
    },
}

impl Arguments {
    /// The files that are read, but those that a scenario names.
    fn files(&self) -> Vec<PathBuf> {
        match &self.command {
            Command::Inspect(input) | Command::Convert(input) => vec![input.file.clone()],
            Command::Generate { scenario, generate } => {
                scenario.iter().cloned().chain(generate.files()).collect()
            }
        }
    }
}

/// A trace and which part of it.
#[derive(clap::Args, Debug)]
pub struct Input {
    /// The trace; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    part: Part,
}

/// How a trace is read, and which part of it.
#[derive(clap::Args, Debug)]
pub struct Part {
    /// Meaning of a column of the trace: FIELD_UNIT=COLUMN.
    #[arg(long, value_name = "FIELD=COLUMN[,…]")]
    pub map: Vec<String>,
    /// A part of the trace: requests 0..1000, times from the start 10m-30m, or times of day
    /// 18:20-18:30.
    #[arg(long, value_name = "FROM-TO")]
    pub slice: Option<String>,
}

impl Part {
    /// A flag that was given, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [("--map", !self.map.is_empty()), ("--slice", self.slice.is_some())];
        flags.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Reads a trace; `-` is standard input.
    pub fn read(&self, path: &Path) -> Result<TraceFile> {
        let map = TraceMap::parse(crate::report::map_items(&self.map).iter().map(String::as_str))
            .map_err(|e| anyhow!("--map: {e}"))?;
        let options = TraceOptions { map, ..TraceOptions::default() };
        let file = if path.as_os_str() == "-" {
            read_trace("standard input", std::io::stdin(), &options)
        } else {
            read_trace_path(path, &options)
        };
        let mut file = file.map_err(|e| anyhow!("{e}"))?;
        if let Some(text) = &self.slice {
            let slice = text.parse::<Slice>().map_err(|e| anyhow!("--{e}"))?;
            let all = file.workload.len();
            if slice.is_past(all) {
                let text = format!("slice {slice} ends with the {all} requests that there are");
                file.notes.push(Note { id: "slice-past-the-end", affects: &[], text });
            }
            file.workload = slice.of(&file.workload, file.epoch).map_err(|e| anyhow!("--{e}"))?;
        }
        Ok(file)
    }
}

/// Runs the command; what it prints. Traces go to `output` by themselves, line by line.
pub fn run(arguments: &Arguments, format: Format, output: Option<&Path>) -> Result<String> {
    check_outputs(&arguments.files(), &[("-o", output)])?;
    match &arguments.command {
        Command::Inspect(input) => {
            let file = input.part.read(&input.file)?;
            let profile = TraceProfile::of(&file.workload)
                .ok_or_else(|| anyhow!("{}: holds no requests", file.name))?;
            let text = inspect(input, &file, &profile, format)?;
            output::Output { format, output: output.map(Path::to_path_buf) }.deliver(text)
        }
        Command::Convert(input) => {
            only_json_lines("convert", format)?;
            let file = input.part.read(&input.file)?;
            write(output, file.workload.requests().iter().cloned().map(Ok))
        }
        Command::Generate { scenario, generate } => {
            only_json_lines("generate", format)?;
            let scenario = match scenario {
                Some(path) => Scenario::read_path(path),
                None => Scenario::built_in(),
            }
            .map_err(|e| anyhow!("{e}"))?;
            let WorkloadSource::Generated(mut spec) = scenario.workload else {
                bail!("scenario {}: its requests are not drawn from a seed", scenario.name);
            };
            check_outputs(&scenario.files, &[("-o", output)])?;
            generate.apply(&mut spec)?;
            let text = write(output, spec.stream()?)?;
            let Some(path) = output else { return Ok(text) };
            Ok(format!(
                "{}: {}, seed {}\n  {:17}{}\n",
                path.display(),
                format::things(spec.requests, "request"),
                spec.seed,
                "drawn",
                described(&spec)
            ))
        }
    }
}

/// A trace has one form.
fn only_json_lines(command: &str, format: Format) -> Result<()> {
    if format != Format::Text {
        bail!("--format: trace {command} writes JSON lines, and no other form");
    }
    Ok(())
}

/// Writes requests to a file, or gives them back as text.
fn write(
    output: Option<&Path>,
    requests: impl Iterator<Item = sched_sim::Result<WorkloadRequest>>,
) -> Result<String> {
    fn all(
        out: &mut impl Write,
        requests: impl Iterator<Item = sched_sim::Result<WorkloadRequest>>,
    ) -> Result<()> {
        for request in requests {
            write_request(out, &request?)?;
        }
        Ok(out.flush()?)
    }
    let Some(path) = output else {
        let mut text = Vec::new();
        all(&mut text, requests)?;
        return Ok(String::from_utf8(text)?);
    };
    let cannot = || format!("cannot write {}", path.display());
    let file = std::fs::File::create(path).with_context(cannot)?;
    all(&mut BufWriter::new(file), requests).with_context(cannot)?;
    Ok(String::new())
}

/// Figures of a summary: quantiles by nearest rank, so that each is a length that occurs.
fn quantiles(summary: &Summary) -> Result<Vec<(String, f64)>> {
    let mut all = vec![("min".to_owned(), summary.min())];
    for p in PERCENTILES {
        let value = summary.percentile_by(p, PercentileMethod::NearestRank)?;
        all.push((format!("p{}", format::significant(100.0 * p, 3)), value));
    }
    all.push(("max".to_owned(), summary.max()));
    all.push(("mean".to_owned(), summary.mean()));
    Ok(all)
}

/// Label, key and value of each figure, none where there is no such figure.
fn figures(p: &TraceProfile) -> [(&'static str, &'static str, Option<f64>); 5] {
    [
        ("span", "span_s", Some(p.span_s)),
        ("rate", "rate_per_s", p.rate_per_s),
        ("peak minute", "peak_minute_per_s", p.peak_minute_per_s),
        ("CV of gaps", "gap_cv", p.gap_cv),
        ("shared prefixes", "shared_prefix", p.shared_prefix),
    ]
}

fn inspect(input: &Input, file: &TraceFile, p: &TraceProfile, format: Format) -> Result<String> {
    let lengths = [("input", &p.input_tokens), ("output", &p.output_tokens)];
    match format {
        Format::Text | Format::Md => {}
        Format::Json => {
            let mut map = Map::new();
            map.insert("schema_version".to_owned(), json!(1));
            map.insert("kind".to_owned(), json!("goodput-trace"));
            map.insert("format".to_owned(), json!(file.format.name()));
            map.insert("epoch".to_owned(), json!(file.epoch.map(|e| e.to_string())));
            map.insert("requests".to_owned(), json!(p.requests));
            for (_, key, value) in figures(p) {
                map.insert(key.to_owned(), json!(value));
            }
            for (name, summary) in lengths {
                let all: Map<String, Value> =
                    quantiles(summary)?.into_iter().map(|(k, v)| (k, json!(v))).collect();
                map.insert(format!("{name}_tokens"), Value::Object(all));
            }
            let note = |n: &serving_io::run::Note| json!({ "id": n.id, "text": n.text });
            map.insert("notes".to_owned(), file.notes.iter().map(note).collect());
            return output::json_text(&Value::Object(map));
        }
        Format::Csv => {
            let mut rows = vec![vec!["requests".to_owned(), p.requests.to_string()]];
            for (_, key, value) in figures(p) {
                let value = value.map(|x| x.to_string()).unwrap_or_default();
                rows.push(vec![key.to_owned(), value]);
            }
            for (name, summary) in lengths {
                for (figure, value) in quantiles(summary)? {
                    rows.push(vec![format!("{name}_tokens_{figure}"), value.to_string()]);
                }
            }
            return output::csv_text(&["figure", "value"], &rows);
        }
    }
    let mut text = format!("{}: {}", file.name, file.format.title());
    if let Some(slice) = &input.part.slice {
        text.push_str(&format!(", slice {slice}"));
    }
    text.push('\n');
    let mut line = |label: &str, content: String| {
        let bullet = if format == Format::Md { "\n- " } else { "  " };
        text.push_str(&format!("{bullet}{label:17}{content}\n"));
    };
    line("requests", p.requests.to_string());
    if let Some(epoch) = file.epoch {
        line("time zero", epoch.to_string());
    }
    for (label, key, value) in figures(p) {
        let content = match (key, value) {
            ("span_s", Some(x)) => {
                format!("{} s from the first arrival to the last", format::rate(x))
            }
            ("rate_per_s", Some(x)) => format!("{}/s", format::significant(x, 4)),
            ("peak_minute_per_s", Some(x)) => {
                format!("{}/s, most arrivals in a minute of the clock", format::significant(x, 4))
            }
            ("gap_cv", Some(x)) => {
                format!("{}; 1 is Poisson, more is bursts", format::significant(x, 3))
            }
            ("shared_prefix", Some(x)) => format!(
                "{} of the prompt tokens: the hit rate of a prefix cache that never evicts",
                format::percent(x)
            ),
            ("rate_per_s", None) => "none: all arrive at one instant".to_owned(),
            ("peak_minute_per_s", None) => "none: not one whole minute".to_owned(),
            ("gap_cv", None) => "none: fewer than two gaps, or all are 0".to_owned(),
            ("shared_prefix", None) => "unknown: the trace does not say which tokens".to_owned(),
            (_, None) => "-".to_owned(),
            (_, Some(x)) => format::value(x),
        };
        line(label, content);
    }
    for (name, summary) in lengths {
        let all = quantiles(summary)?;
        let shown: Vec<String> =
            all.iter().map(|(k, v)| format!("{k} {}", format::count(*v))).collect();
        line(&format!("{name} tokens"), format!("{} (nearest rank)", shown.join(", ")));
    }
    for (i, n) in file.notes.iter().enumerate() {
        let label = if i == 0 { "to know" } else { "" };
        line(label, format!("{}: {}", n.id, output::one_line(&n.text)));
    }
    Ok(text)
}
