//! `goodput fit`: a step time from measured steps, with what it is worth.

mod calibrate;
mod render;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use capacity::fit::file::{About, file, step_time};
use capacity::fit::groups::{check_units, groups};
use capacity::fit::sources::{self, Options};
use capacity::fit::validate::{Replay, against_bound, replay};
use capacity::fit::{Errors, Fitted, Form, Point, Regime, Source, fit};
use capacity::means::Server;
use clap::ValueEnum;
use metrics_core::validity::Finding;
use sched_sim::DecodeFirst;
use serving_io::engine::EngineOptions;
use serving_io::error::IoError;
use serving_io::machine::Machine;
use serving_io::roofline::Floor;
use serving_io::scenario::StepTimeSource;

use crate::gate::distinct_files;
use crate::output::{Format, check_outputs};
use crate::sim::step_time_file;

pub const EXAMPLES: &str = "\
A file is told by its content: a log of steps or a closed-loop sweep (CSV or
JSON lines, with --map where the columns have other names), a folder of kernel
tables, a request log that `goodput report` reads, or one of the published
tables that the guide lists. Squares of relative errors are least, no
coefficient is below zero.

A log of steps has the columns prefill_tokens, decodes or both, time_s, time_ms,
time_us or time_ns, and where they are known context (tokens that the decodes
read), prefills (prompts in the step) and attention (sum of chunk times tokens
before it, and half of chunk squared). A closed-loop sweep has concurrency, isl,
osl and tpot_s or tpot_ms.

Examples:
  goodput fit steps.csv
  goodput fit steps.csv -o step-time.toml
  goodput sim --step-time step-time.toml
  goodput fit steps.csv --form floored --regime decode
  goodput fit batches.csv --map decodes=batch,time_ms=ms
  goodput fit steps.csv --validate other-steps.csv
  goodput fit steps.csv --validate requests.jsonl \\
      --engine-args '--max-num-seqs 128 --num-gpu-blocks-override 2588'
  goodput fit --step-time llama-3.1-8b-h100-sxm \\
      --calibrate requests.jsonl --max-num-seqs 128 -o mine.toml";

/// Which steps are fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Regimes {
    /// Steps that only decode, and mean steps of closed loops.
    Decode,
    /// Steps with prefill.
    Prefill,
    /// Both.
    #[default]
    Both,
}

/// The forms, as the command line names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FormName {
    /// Coefficients for pure decode, and others for steps with prefill.
    #[default]
    TwoRegime,
    /// One set with a floor under the new tokens.
    Floored,
    /// One set.
    Affine,
    /// Seconds per prompt token and per decode token alone.
    Linear,
    /// Two sets for decode, split at a batch size.
    Split,
}

impl FormName {
    const fn form(self) -> Form {
        match self {
            Self::TwoRegime => Form::TwoRegime,
            Self::Floored => Form::Floored,
            Self::Affine => Form::Affine,
            Self::Linear => Form::Linear,
            Self::Split => Form::Split,
        }
    }
}

/// Arguments of `fit`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Files with measured steps, or folders of kernel tables.
    #[arg(required_unless_present = "step_time", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The form of the step time.
    #[arg(long, value_enum, default_value_t)]
    form: FormName,
    /// Which steps are fitted.
    #[arg(long, value_enum, default_value_t)]
    regime: Regimes,
    /// Meaning of a column: FIELD=COLUMN, with the unit in the field of a time.
    #[arg(long, value_name = "FIELD=COLUMN[,…]")]
    map: Vec<String>,
    /// Columns that tell deployments apart; each is fitted alone.
    #[arg(long, value_delimiter = ',', value_name = "COLUMN[,…]")]
    by: Vec<String>,
    /// Only deployments with this in their name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Layers of the model, for kernel tables of a single one.
    #[arg(long, value_name = "NUMBER")]
    layers: Option<u32>,
    /// Tokens that the KV cache holds: steps with more are left out.
    #[arg(long, value_name = "NUMBER")]
    kv_tokens: Option<u64>,
    /// Files that were not fitted, to see how far the fit is off there.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    validate: Vec<PathBuf>,
    /// Runs of one engine at several rates, to find what it adds to its kernels: results or request
    /// logs with every request.
    #[arg(long, value_name = "RUN", num_args = 1..)]
    calibrate: Vec<PathBuf>,
    /// The kernels for --calibrate, in place of a fit: coefficients, a preset, a step-time file or
    /// roofline:….
    #[arg(long, value_name = "STEP TIME", requires = "calibrate", conflicts_with = "files")]
    step_time: Option<Kernels>,
    /// Largest batch of the server, to replay a request log with --validate or --calibrate.
    #[arg(long, value_name = "NUMBER")]
    max_num_seqs: Option<u32>,
    /// Most prompt tokens of a request in a step, beside --max-num-seqs [default: 2048].
    #[arg(long, value_name = "NUMBER")]
    chunk: Option<u32>,
    /// A `vllm serve` command line, or its flags: the replay follows vLLM's scheduler.
    #[arg(long, value_name = "LINE", conflicts_with = "max_num_seqs", allow_hyphen_values = true)]
    engine_args: Option<String>,
    /// Write the error of every point as CSV.
    #[arg(long, value_name = "FILE")]
    residuals: Option<PathBuf>,
    /// Name of the step time in the file of -o [default: that of the deployment].
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Model, for the file and, with --gpu, for what no step can be faster than.
    #[arg(long, value_name = "TEXT", default_value = "")]
    model: String,
    /// GPU, for the same.
    #[arg(long, value_name = "TEXT", default_value = "")]
    gpu: String,
    /// How many GPUs hold one replica by tensor parallelism, for the same [default: 1].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    tensor_parallel: Option<u32>,
    /// Engine with its version, for the file.
    #[arg(long, value_name = "TEXT", default_value = "")]
    engine: String,
    /// Licence of the measurements, for the file.
    #[arg(long, value_name = "TEXT", default_value = "")]
    licence: String,
}

/// A step time with the file that it comes from.
#[derive(Clone, Debug)]
struct Kernels {
    source: StepTimeSource,
    file: Option<PathBuf>,
}

impl FromStr for Kernels {
    type Err = IoError;

    fn from_str(text: &str) -> std::result::Result<Self, IoError> {
        Ok(Self { source: text.parse()?, file: step_time_file(Some(text)) })
    }
}

impl Arguments {
    /// Refuses to read a file twice, whose points would count twice or be held against themselves,
    /// and to write over what is read, or twice into one file.
    fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let inputs: Vec<PathBuf> =
            self.files.iter().chain(&self.validate).chain(&self.calibrate).cloned().collect();
        distinct_files(&inputs.iter().collect::<Vec<_>>(), "one set of measurements")?;
        let kernels = self.step_time.iter().filter_map(|kernels| kernels.file.clone());
        let inputs: Vec<PathBuf> = inputs.into_iter().chain(kernels).collect();
        check_outputs(&inputs, &[("-o", output), ("--residuals", self.residuals.as_deref())])
    }

    /// Refuses options that nothing here can use.
    fn check_use(&self, output: Option<&Path>) -> Result<()> {
        let of_file = [
            ("--name", self.name.as_deref().unwrap_or_default()),
            ("--engine", self.engine.as_str()),
            ("--licence", self.licence.as_str()),
        ];
        if let (None, Some((option, _))) = (output, of_file.iter().find(|(_, v)| !v.is_empty())) {
            bail!("{option}: stands in the file of -o, which is not given");
        }
        for (option, value, other) in
            [("--model", &self.model, &self.gpu), ("--gpu", &self.gpu, &self.model)]
        {
            if output.is_none() && !value.is_empty() && other.is_empty() {
                bail!(
                    "{option}: alone it only stands in the file of -o, which is not given; --model and --gpu together tell what no step can be faster than"
                );
            }
        }
        let tensor_parallel = self.tensor_parallel.is_some();
        if tensor_parallel && output.is_none() && (self.model.is_empty() || self.gpu.is_empty()) {
            bail!(
                "--tensor-parallel: stands in the file of -o or is of --model and --gpu, and neither is given"
            );
        }
        if self.validate.is_empty() && self.calibrate.is_empty() {
            for (option, given) in [
                ("--max-num-seqs", self.max_num_seqs.is_some()),
                ("--chunk", self.chunk.is_some()),
                ("--engine-args", self.engine_args.is_some()),
            ] {
                if given {
                    bail!(
                        "{option}: is the server of --validate and --calibrate, and neither is given"
                    );
                }
            }
        }
        if self.chunk.is_some() && self.max_num_seqs.is_none() {
            bail!(
                "--chunk: is of the server of --max-num-seqs, which is not given; in --engine-args it is --max-num-batched-tokens"
            );
        }
        if !self.calibrate.is_empty() {
            for (option, given) in [
                ("--validate", !self.validate.is_empty()),
                ("--residuals", self.residuals.is_some()),
            ] {
                if given {
                    bail!("{option}: is of a fit alone, without --calibrate");
                }
            }
        }
        for (option, value) in
            [("--layers", self.layers.map(u64::from)), ("--kv-tokens", self.kv_tokens)]
        {
            if value == Some(0) {
                bail!("{option}: must be at least 1, got 0");
            }
        }
        let mut inputs = self.files.iter().chain(&self.validate);
        if self.layers.is_some() && !inputs.any(|f| f.is_dir()) {
            bail!("--layers: is for folders of kernel tables, and none is given");
        }
        Ok(())
    }

    /// GPUs of one replica.
    fn gpus(&self) -> u32 {
        self.tensor_parallel.unwrap_or(1)
    }

    fn options(&self) -> Result<Options> {
        let items = crate::report::map_items(&self.map);
        Ok(Options {
            map: Options::map(items.iter().map(String::as_str)).map_err(|e| anyhow!("{e}"))?,
            by: self.by.clone(),
            layers: self.layers,
            kv_tokens: self.kv_tokens,
        })
    }
}

/// One deployment with its fit.
struct Group {
    name: String,
    points: Vec<Point>,
    fitted: Fitted,
}

/// A file that was not fitted.
struct Check {
    source: Source,
    /// Deployment, regime, and how far the fit is off there.
    errors: Vec<(String, &'static str, Errors)>,
    /// Points of deployments or regimes without a fit.
    unknown: u64,
    /// A replay of its requests, or why there is none.
    replay: Option<std::result::Result<Replayed, String>>,
}

/// A log on a simulated server.
struct Replayed {
    /// Whose scheduler was followed, and what was assumed of it.
    server: String,
    notes: Vec<String>,
    replay: Replay,
    findings: Vec<Finding>,
}

/// How many deployments have no fit, and why the first has none.
type Skipped = (u64, Option<String>);

/// Everything that is shown.
struct Answer {
    form: Form,
    sources: Vec<Source>,
    groups: Vec<Group>,
    skipped: Skipped,
    checks: Vec<Check>,
    /// What the steps are beside what the hardware allows, or why that is not known; none if it is
    /// not asked for.
    bounds: Option<std::result::Result<Vec<Finding>, String>>,
    /// The file that was written.
    written: Option<String>,
}

/// With more deployments than this, those with few points are left out and counted.
const FEW: usize = 3;

/// The most prompt tokens of a request in a step, if nothing is said.
const CHUNK: u32 = 2048;

/// The least number of points of a deployment among many.
const LEAST: usize = 8;

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format, output: Option<&Path>) -> Result<String> {
    arguments.check_files(output)?;
    arguments.check_use(output)?;
    if arguments.step_time.is_some() {
        return calibrate::run(arguments, None, format, output);
    }
    let options = arguments.options()?;
    let read = |path: &PathBuf| sources::read(path, &options).map_err(|e| anyhow!("{e}"));
    let mut sources: Vec<Source> = arguments.files.iter().map(read).collect::<Result<_>>()?;
    for source in &mut sources {
        check_points(source)?;
        chosen(source, arguments);
    }
    let form = arguments.form.form();
    let (groups, skipped) = fitted(&sources, form)?;
    if !arguments.calibrate.is_empty() {
        let [group] = groups.as_slice() else {
            bail!(
                "--calibrate: {} deployments were fitted and runs are of one: choose with --only",
                groups.len()
            );
        };
        return calibrate::run(arguments, Some(group), format, output);
    }
    let mut checks = Vec::new();
    for path in &arguments.validate {
        checks.push(check(arguments, path, read(path)?, &groups)?);
    }
    if arguments.max_num_seqs.is_some() && checks.iter().all(|c| c.replay.is_none()) {
        bail!("--max-num-seqs: is to replay a request log on one fit, and --validate has none");
    }
    if let Some(path) = &arguments.residuals {
        std::fs::write(path, render::residuals(&groups)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let bounds = bounds(arguments, &groups);
    if let (None, Some(Err(why))) = (output, &bounds) {
        bail!("--model, --gpu: {why}");
    }
    let written = output.map(|path| write(arguments, path, &groups)).transpose()?;
    let answer = Answer { form, sources, groups, skipped, checks, bounds, written };
    render::render(&answer, format)
}

/// Refuses a file that gives no point, and says why its first row gives none.
fn check_points(source: &Source) -> Result<()> {
    let name = crate::output::one_line(&source.name);
    match (source.points.as_slice(), source.excluded.first()) {
        ([], Some(e)) => bail!("{name}: no row gives a point: {} (first: {})", e.why, e.first),
        ([], None) => bail!("{name}: has no rows"),
        _ => Ok(()),
    }
}

/// Keeps the points that were asked for, and counts the others.
fn chosen(source: &mut Source, arguments: &Arguments) {
    let regime = arguments.regime;
    source.points.retain(|p| match regime {
        Regimes::Both => true,
        Regimes::Decode => p.regime != Regime::Prefill,
        Regimes::Prefill => p.regime == Regime::Prefill,
    });
    if let Some(text) = &arguments.only {
        source.points.retain(|p| p.group.contains(text.as_str()));
    }
}

/// The fit of each deployment.
fn fitted(sources: &[Source], form: Form) -> Result<(Vec<Group>, Skipped)> {
    let all = groups(sources);
    let many = FEW < all.len();
    let mut skipped = (0, None);
    let mut fits = Vec::new();
    for (name, points) in all {
        let too_few = many && points.len() < LEAST;
        match fit(&points, form) {
            Ok(fitted) if !too_few => {
                check_units(sources, &name, &fitted).map_err(|e| anyhow!("{e}"))?;
                fits.push(Group { name, points, fitted });
            }
            Err(e) if !many => {
                let files = files_of(sources, &name);
                let at = if name.is_empty() { name } else { format!("{name}: ") };
                bail!("{files}: {at}{e}");
            }
            other => {
                skipped.0 += 1;
                let why = other.err().map_or_else(
                    || format!("{name}: {} points, fewer than {LEAST}", points.len()),
                    |e| format!("{name}: {e}"),
                );
                skipped.1.get_or_insert(why);
            }
        }
    }
    if fits.is_empty() {
        match skipped.1 {
            Some(why) => bail!("no deployment has enough points: {why}"),
            None => bail!("no points are left: see --only and --regime"),
        }
    }
    Ok((fits, skipped))
}

/// The files with points of a deployment, for a message.
fn files_of(sources: &[Source], group: &str) -> String {
    let of_group = |s: &&Source| s.points.iter().any(|p| p.group == group);
    let names: Vec<String> =
        sources.iter().filter(of_group).map(|s| crate::output::one_line(&s.name)).collect();
    match names.as_slice() {
        [first, _, _, ..] => format!("{first} and {} more", names.len() - 1),
        _ => names.join(" and "),
    }
}

/// The steps beside what model and GPU allow.
fn bounds(
    arguments: &Arguments,
    groups: &[Group],
) -> Option<std::result::Result<Vec<Finding>, String>> {
    let (model, gpu) = (arguments.model.as_str(), arguments.gpu.as_str());
    if model.is_empty() || gpu.is_empty() {
        return None;
    }
    let [group] = groups else {
        return Some(Err(format!(
            "{} deployments were fitted and these are of one: choose with --only",
            groups.len()
        )));
    };
    let floor =
        Machine::named(model, gpu, arguments.gpus()).and_then(|machine| Floor::of(&machine, None));
    Some(floor.map_err(|e| e.to_string()).map(|f| against_bound(&group.points, f.steps())))
}

/// A file that was not fitted, against the fits.
fn check(arguments: &Arguments, path: &Path, source: Source, groups: &[Group]) -> Result<Check> {
    let mut errors = Vec::new();
    let mut known = 0;
    for group in groups {
        // With one fit there is nothing to choose between.
        let own = |p: &&Point| groups.len() == 1 || p.group == group.name;
        for regime in [Regime::Decode, Regime::Prefill, Regime::Mean] {
            let points: Vec<&Point> =
                source.points.iter().filter(own).filter(|p| p.regime == regime).collect();
            if let Some(e) = group.fitted.errors(&points) {
                known += e.points;
                errors.push((group.name.clone(), regime.title(), e));
            }
        }
    }
    let unknown = source.points.len() as u64 - known;
    let replay = match groups {
        [group] if source.kind == sources::REQUEST_LOG => Some(replayed(arguments, path, group)?),
        _ => None,
    };
    Ok(Check { source, errors, unknown, replay })
}

/// The server of a replay: what it is called, what was assumed of it, and it.
type Served = (String, Vec<String>, Box<dyn Server>);

/// The server that the arguments describe; none if they describe none.
fn server(arguments: &Arguments) -> Result<Option<Served>> {
    if let Some(line) = &arguments.engine_args {
        let wrong = |e: serving_io::IoError| anyhow!("--engine-args: {e}");
        let options = EngineOptions::from_command_line(line).map_err(wrong)?;
        let machine = Machine::named(&arguments.model, &arguments.gpu, arguments.gpus()).ok();
        let resolved = options.resolve(machine.as_ref()).map_err(wrong)?;
        let mut notes = options.left_out().to_vec();
        notes.extend(resolved.notes);
        let c = &resolved.config;
        let name = format!(
            "vllm-v1 as of {}, max_num_seqs {}, max_num_batched_tokens {}, {} KV blocks",
            c.engine_version, c.max_num_seqs, c.max_num_batched_tokens, c.num_blocks
        );
        return Ok(Some((name, notes, Box::new(resolved.config))));
    }
    let Some(seqs) = arguments.max_num_seqs else { return Ok(None) };
    let server = DecodeFirst::new(u64::from(seqs), u64::from(arguments.chunk.unwrap_or(CHUNK)))?;
    Ok(Some(("decode first".to_owned(), Vec::new(), Box::new(server))))
}

/// The requests of a log on a simulated server.
fn replayed(
    arguments: &Arguments,
    path: &Path,
    group: &Group,
) -> Result<std::result::Result<Replayed, String>> {
    let Some((name, notes, server)) = server(arguments)? else {
        return Ok(Err(
            "give --max-num-seqs, the largest batch of the server, or --engine-args for vLLM's scheduler, to replay it".into(),
        ));
    };
    let (step, _) = match step_time(&group.fitted) {
        Ok(step) => step,
        Err(e) => return Ok(Err(e.to_string())),
    };
    let options = serving_io::Options::default();
    let file = serving_io::read_path(path, &options).map_err(|e| anyhow!("{e}"))?;
    let [run] = file.runs.as_slice() else {
        return Ok(Err(format!("it has {} runs, and a replay takes one", file.runs.len())));
    };
    let error = group.fitted.parts().map(|f| f.errors.mean_absolute).fold(0.0, f64::max);
    Ok(replay(&run.timelines, server.as_ref(), &step).map_err(|e| e.to_string()).map(|replay| {
        let findings = replay.findings(error);
        Replayed { server: name, notes, replay, findings }
    }))
}

/// What a step-time file says of itself, for the fit of a deployment from files of these names.
fn about(arguments: &Arguments, group: &Group, files: &[String]) -> About {
    About {
        name: arguments.name.clone().unwrap_or_else(|| {
            if group.name.is_empty() { files.join(" ") } else { group.name.clone() }
        }),
        model: arguments.model.clone(),
        gpu: arguments.gpu.clone(),
        tensor_parallel: arguments.gpus(),
        engine: arguments.engine.clone(),
        source: files.join(", "),
        licence: arguments.licence.clone(),
    }
}

/// The names of files without their folders.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let named = |p: &PathBuf| {
        p.file_name().map_or_else(|| p.display().to_string(), |n| n.to_string_lossy().into_owned())
    };
    paths.iter().map(named).collect()
}

/// Writes the step-time file.
fn write(arguments: &Arguments, path: &Path, groups: &[Group]) -> Result<String> {
    let [group] = groups else {
        bail!(
            "-o {}: {} deployments were fitted and a file holds one: choose with --only",
            path.display(),
            groups.len()
        );
    };
    let about = about(arguments, group, &names(&arguments.files));
    let file = file(&group.fitted, about).map_err(|e| anyhow!("-o {}: {e}", path.display()))?;
    std::fs::write(path, file.to_toml())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}
