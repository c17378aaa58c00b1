//! What `check` and `diff` share: the runs of a command line with their reports.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use metrics_core::compare::{
    Better, COMPLETED_SHARE, Change, Comparable, Kind, change, comparables, paired_mean,
    same_requests, share_completed,
};
use metrics_core::format;
use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report, Settings};
use metrics_core::slo::{Latency, SloSet};
use metrics_core::summary::PercentileMethod;
use metrics_core::table::RequestTable;
use metrics_core::tool_rules::{Tool, Topic, like_with_like};
use metrics_core::validity::compare::{PerToken, W13, definition_mismatch, regime_differs};
use metrics_core::validity::content::warm_cache_between;
use metrics_core::validity::{Facts, Finding, Level, Subject, findings};
use serving_io::run::{Run, Values};
use serving_io::stated::{self, Of, Statistic};

use crate::output::{one_line, same_file};
use crate::report::{as_tool, options, read, time, window};

/// How files are read, as every command that reads results says it.
#[derive(clap::Args, Debug)]
pub struct Reading {
    /// Meaning of a column: FIELD_UNIT=COLUMN, for CSV and JSON lines of any origin.
    #[arg(long, value_name = "FIELD=COLUMN[,…]")]
    map: Vec<String>,
    /// Format of the files, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    /// Which run of files with several, counted from 1; all of them if absent.
    #[arg(long, value_name = "N")]
    run: Option<usize>,
}

/// One run with its report.
pub struct Loaded {
    /// The file, and the number of the run if the file has several.
    pub name: String,
    /// What the file says.
    pub run: Run,
    /// Its figures; none where the file has no detail per request.
    pub report: Option<Report>,
    /// Those that can be compared; where the file has no detail per request, those that the tool
    /// states, without an interval.
    pub figures: Vec<Comparable>,
    /// What the rules of validity read.
    pub facts: Facts,
    /// What they found.
    pub findings: Vec<Finding>,
}

/// What figures are made under.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    pub slo: &'a SloSet,
    pub method: PercentileMethod,
    pub confidence: Confidence,
}

impl Reading {
    /// Every run of these files, or the one that `--run` names.
    pub fn load(&self, files: &[PathBuf], basis: Basis<'_>) -> Result<Vec<Loaded>> {
        let options = options(self.input_format.as_deref(), &self.map)?;
        let mut all = Vec::new();
        for path in files {
            let file = read(path, &options)?;
            let several = file.runs.len();
            if let Some(n) = self.run
                && !(1..=several).contains(&n)
            {
                bail!("--run {n}: {} has {}", file.name, format::things(several as u64, "run"));
            }
            for (i, run) in file.runs.into_iter().enumerate() {
                if self.run.is_some_and(|n| n != i + 1) {
                    continue;
                }
                let name = if several == 1 {
                    one_line(&file.name)
                } else {
                    format!("{}, run {}", one_line(&file.name), i + 1)
                };
                all.push(loaded(name, run, basis)?);
            }
        }
        Ok(all)
    }
}

/// Refuses files that are named twice: what is compared or repeated has to be of its own. `each`
/// says what a file is, such as `one run`.
pub fn distinct_files(files: &[&PathBuf], each: &str) -> Result<()> {
    for (i, file) in files.iter().enumerate() {
        let earlier = files.get(..i).unwrap_or_default();
        if file.as_os_str() == "-" {
            if earlier.contains(file) {
                bail!("`-` is given twice, but standard input can be read once");
            }
        } else if let Some(same) = earlier.iter().find(|e| same_file(e, file)) {
            if same == file {
                bail!("{} is given twice, and is {each}", file.display());
            }
            bail!("{} and {} are one file", same.display(), file.display());
        }
    }
    Ok(())
}

/// Refuses two files with the same content: a copy is no run of its own.
pub fn distinct_runs(runs: &[&Loaded]) -> Result<()> {
    for (i, new) in runs.iter().enumerate() {
        for base in runs.get(..i).unwrap_or_default() {
            let (a, b) = (&base.run, &new.run);
            if a.has_requests() && a.timelines == b.timelines {
                bail!("{} and {} hold the same requests: the same run twice", base.name, new.name);
            }
            let figures_only = |r: &Run| !r.has_requests() && r.server.is_none();
            let both = figures_only(a) && figures_only(b);
            if both && !a.stated.is_empty() && a.stated == b.stated {
                bail!("{} and {} state the same figures: the same run twice", base.name, new.name);
            }
            if a.server.is_some() && a.server == b.server {
                bail!("{} and {} hold the same values: one snapshot twice", base.name, new.name);
            }
        }
    }
    Ok(())
}

/// The prompts of a run, as texts or hashes, where the file tells them apart.
fn prompts(run: &Run) -> Vec<Option<String>> {
    let column = ["prompt_hash", "prompt"].iter().find_map(|name| run.column(name));
    match column.map(|c| &c.values) {
        Some(Values::Text(texts)) => texts.clone(),
        Some(Values::Number(n)) => n.iter().map(|x| x.map(|x| x.to_string())).collect(),
        None => Vec::new(),
    }
}

/// Whether both files show that the prompts are the same, one by one.
fn same_prompts(base: &Run, new: &Run) -> bool {
    let (a, b) = (prompts(base), prompts(new));
    !a.is_empty() && a == b && a.iter().all(Option::is_some)
}

fn loaded(name: String, run: Run, basis: Basis<'_>) -> Result<Loaded> {
    let Basis { slo, method, confidence } = basis;
    let table = RequestTable::of(&run.timelines);
    let (report, figures) = if run.has_requests() {
        let (window, truncated) = (window(&run), run.truncated);
        let settings = Settings { window, truncated, slo, method, confidence };
        let report = Report::of_table(&table, &settings).with_context(|| name.clone())?;
        let figures = comparables(&report, &run.timelines, confidence);
        (Some(report), figures)
    } else {
        let mut figures = of_stated(&stated::figures(&run));
        figures.extend(completed_as_stated(&run));
        (None, figures)
    };
    let facts = serving_io::evidence::facts(&run, &table, slo, report.as_ref());
    let findings = findings(&facts);
    Ok(Loaded { name, run, report, figures, facts, findings })
}

/// What a report of the run is made of.
fn input<'a>(run: &'a Run, basis: Basis<'a>) -> Input<'a> {
    Input {
        timelines: &run.timelines,
        window: window(run),
        truncated: run.truncated,
        slo: basis.slo,
        method: basis.method,
        confidence: basis.confidence,
    }
}

/// Why a stated figure has no interval.
pub const STATED: &str = "the file states the figure and not the samples behind it";

/// Stated figures as those of a report: means, percentiles and rates.
fn of_stated(figures: &[stated::Figure<'_>]) -> Vec<Comparable> {
    figures.iter().filter_map(|f| stated_as(f, f.value)).collect()
}

/// The share of requests that completed, from the counts that a file states.
fn completed_as_stated(run: &Run) -> Option<Comparable> {
    let (done, failed) = (run.counts.completed?, run.counts.failed?);
    let finished = done.checked_add(failed).filter(|n| 0 < *n)?;
    Some(share_completed(done as f64 / finished as f64, Err(STATED.to_owned())))
}

/// The value of that stated figure's kind as a figure; none of what no report compares.
fn stated_as(f: &stated::Figure<'_>, value: f64) -> Option<Comparable> {
    let (of, title) = match f.of {
        Of::Ttft => ("ttft", "TTFT"),
        Of::Tpot => ("tpot", "TPOT"),
        Of::Itl => ("stated_itl", "ITL as stated"),
        Of::E2e => ("e2e", "E2E"),
        Of::Requests => ("throughput", "requests"),
        Of::OutputTokens => ("throughput", "output tokens"),
        Of::TotalTokens | Of::Tokens => return None,
    };
    let key = match f.of {
        Of::Requests => "request_throughput_per_s".to_owned(),
        Of::OutputTokens => "output_tokens_per_s".to_owned(),
        _ => format!("{of}_{}_s", statistic(f.statistic)?.replace('.', "_")),
    };
    let is_rate = matches!(f.of, Of::Requests | Of::OutputTokens);
    let title = match statistic(f.statistic) {
        Some(name) if !is_rate => format!("{title} {name}"),
        _ => title.to_owned(),
    };
    Some(Comparable {
        key,
        title,
        of,
        better: if is_rate { Better::Higher } else { Better::Lower },
        kind: if is_rate { Kind::Rate } else { Kind::Time },
        value,
        interval: Err(STATED.to_owned()),
    })
}

/// `mean`, or one of the percentiles of a report.
fn statistic(s: Statistic) -> Option<String> {
    match s {
        Statistic::Mean => Some("mean".to_owned()),
        Statistic::P(p) => metrics_core::report::PERCENTILES
            .iter()
            .any(|x| (x - p).abs() < 1e-9)
            .then(|| format!("p{}", format::value((p * 1e5).round() / 1e3))),
        _ => None,
    }
}

/// Figures of two runs that are the same thing, and those that are not, with the reason.
#[derive(Default)]
pub struct Paired {
    /// The same figure of the base and of the new run.
    pub pairs: Vec<(Comparable, Comparable)>,
    /// What is stated of both and cannot be compared: the figures, and why.
    pub refused: Vec<(String, String)>,
    /// Under whose rules the pairs stand, if not under ours.
    pub under: Option<String>,
    /// Whether both served the same requests, so that means are compared pair by pair.
    pub same: bool,
}

impl Paired {
    fn refuse(&mut self, what: &str, why: String) {
        match self.refused.iter_mut().find(|(_, w)| *w == why) {
            Some((all, _)) => {
                all.push_str(", ");
                all.push_str(what);
            }
            None => self.refused.push((what.to_owned(), why)),
        }
    }
}

/// The figures of two runs, like with like.
///
/// With requests on both sides all figures are ours. A file that has figures only is compared under
/// the rules of its tool: the other side is computed under them, or stands there under its own
/// tool's if their definitions are the same.
pub fn pair(base: &Loaded, new: &Loaded, basis: Basis<'_>) -> Paired {
    let mut paired = Paired::default();
    match (&base.report, &new.report) {
        (Some(_), Some(_)) => {
            let both = |b: &Comparable| Some((b.clone(), new.figure(&b.key)?.clone()));
            let figures = base.figures.iter().filter(|b| b.key != COMPLETED_SHARE);
            paired.pairs = figures.filter_map(both).collect();
            apart(&mut paired, base, new);
            let prompts = same_prompts(&base.run, &new.run);
            paired.same = same_requests(&base.run.timelines, &new.run.timelines, prompts);
        }
        (None, None) => of_two_summaries(&mut paired, base, new),
        (Some(report), None) => {
            of_summary(&mut paired, base, report, new, basis, |ours, stated| (ours, stated));
        }
        (None, Some(report)) => {
            of_summary(&mut paired, new, report, base, basis, |ours, stated| (stated, ours));
        }
    }
    // Counts are counts under any tool's rules.
    let counted = base.figure(COMPLETED_SHARE).zip(new.figure(COMPLETED_SHARE));
    paired.pairs.extend(counted.map(|(b, n)| (b.clone(), n.clone())));
    paired
}

/// Takes out what two files with requests do not have of the same kind.
fn apart(paired: &mut Paired, base: &Loaded, new: &Loaded) {
    let late = |l: &Loaded| l.run.notes.iter().any(|n| n.id == "e2e-to-end-of-stream");
    if late(base) != late(new) {
        let (late, other) = if late(base) { (base, new) } else { (new, base) };
        let why = format!(
            "in {} E2E runs to the end of the stream, in {} to the last token",
            late.name, other.name
        );
        paired.pairs.retain(|(b, _)| !matches!(b.of, "e2e" | "tpot"));
        paired.refuse("E2E and TPOT", why);
    }
    let has = |l: &Loaded, of: &str| l.figures.iter().any(|f| f.of == of);
    for (one, other) in [(base, new), (new, base)] {
        if has(one, "itl") && has(other, "inter_chunk_gap") && !has(other, "itl") {
            let why = format!(
                "the gaps of {} are between tokens, those of {} between chunks",
                one.name, other.name
            );
            paired.refuse("ITL", why);
        }
    }
}

/// A run with requests under the rules of the tool that states the figures of the other.
fn of_summary(
    paired: &mut Paired,
    detail: &Loaded,
    report: &Report,
    summary: &Loaded,
    basis: Basis<'_>,
    order: impl Fn(Comparable, Comparable) -> (Comparable, Comparable),
) {
    let Some(tool) = stated::tool(&summary.run) else {
        let why = format!("{} does not say whose figures it states", summary.name);
        paired.refuse("all figures", why);
        return;
    };
    let stated = stated::figures(&summary.run);
    let input = input(&detail.run, basis);
    let computed = as_tool::beside(tool, &detail.run, &input, report, &stated);
    for (f, value) in stated.iter().zip(computed) {
        let Some(theirs) = stated_as(f, f.value) else { continue };
        match value {
            Some(Ok(x)) => {
                if let Some(ours) = stated_as(f, x / f.per) {
                    paired.pairs.push(order(ours, theirs));
                }
            }
            Some(Err(why)) => {
                paired.refuse(&theirs.title, format!("{} cannot give it: {why}", detail.name));
            }
            None => {
                let why = format!("the rules of {} that we know do not have it", tool.title());
                paired.refuse(&theirs.title, why);
            }
        }
    }
    paired.under = Some(format!(
        "{} is computed under the rules of {} {}, as {} states its figures",
        detail.name,
        tool.title(),
        tool.version(),
        summary.name
    ));
}

/// Two files without requests: the same figure of the same tool, or of tools that define it alike.
fn of_two_summaries(paired: &mut Paired, base: &Loaded, new: &Loaded) {
    let tools = (stated::tool(&base.run), stated::tool(&new.run));
    for b in base.figures.iter().filter(|b| b.key != COMPLETED_SHARE) {
        let Some(n) = new.figure(&b.key) else { continue };
        let topic = match b.of {
            "ttft" => Topic::Ttft,
            "tpot" => Topic::Tpot,
            "e2e" => Topic::E2e,
            "throughput" => Topic::TimeBase,
            _ => Topic::Itl,
        };
        let like = match tools {
            (Some(a), Some(b)) => like_with_like(a, b, topic),
            _ if !base.run.tool.name.is_empty() && base.run.tool.name == new.run.tool.name => {
                Ok(())
            }
            _ => Err("it is not known whose figures these are".to_owned()),
        };
        match like {
            Ok(()) => paired.pairs.push((b.clone(), n.clone())),
            Err(why) => paired.refuse(&b.title, why),
        }
    }
}

/// What can only be seen from both runs together; `under` is under whose rules they are compared.
pub fn of_both(base: &Loaded, new: &Loaded, under: Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    if base.report.is_some() && new.report.is_some() {
        // The figures are ours on both sides; what the tools print under one name may not be alike.
        found.extend(per_token(base).zip(per_token(new)).and_then(|((a, of_a), (b, of_b))| {
            let mut finding = definition_mismatch(a, b, true)?;
            finding.says = format!("{of_a} against {of_b}: {}", finding.says);
            Some(finding)
        }));
    }
    found.extend(regime_differs(&base.facts, &new.facts));
    found.extend(sent_in_both(&base.run, &new.run));
    found.extend(under.map(|under| W13.finding(Level::Note, under)));
    found
}

/// What the tool of a run calls its time per output token, and its definition.
fn per_token(run: &Loaded) -> Option<(PerToken, String)> {
    let tool = serving_io::stated::tool(&run.run)?;
    let name = match tool {
        Tool::Vllm | Tool::Sglang => "tpot",
        Tool::Guidellm | Tool::InferencePerf => "time_per_output_token",
        Tool::Aiperf => "inter_token_latency",
        _ => return None,
    };
    Some((PerToken::named(tool.name(), name)?, format!("{} of {}", name, tool.title())))
}

/// W17: prompts of the new run that the base had sent, where both files tell prompts apart.
fn sent_in_both(base: &Run, new: &Run) -> Option<Finding> {
    let sent: HashSet<String> = prompts(base).into_iter().flatten().collect();
    let prompts: Vec<String> = prompts(new).into_iter().flatten().collect();
    let shared = prompts.iter().filter(|p| sent.contains(*p)).count();
    warm_cache_between(shared as u64, prompts.len() as u64)
}

/// What a figure is about, so that a finding can affect it.
pub fn subjects(of: &str, key: &str) -> Vec<Subject> {
    let mut subjects = match of {
        "ttft" | "queue_time" | "send_delay" => vec![Subject::Ttft],
        "tpot" => vec![Subject::Tpot],
        "itl" | "inter_chunk_gap" | "stated_itl" => vec![Subject::Itl],
        "e2e" => vec![Subject::E2e],
        "throughput" => vec![Subject::Throughput],
        _ => vec![Subject::Goodput],
    };
    let is = |p: &str| key.contains(p);
    if is("_p99") {
        subjects.push(Subject::P99);
    } else if is("_p95") {
        subjects.push(Subject::P95);
    } else if is("_p90") {
        subjects.push(Subject::P90);
    }
    subjects
}

/// The findings of at least that level that affect a figure about these subjects.
///
/// A finding on one latency affects only that one's percentiles.
pub fn affecting<'a>(
    findings: &'a [Finding],
    subjects: &'a [Subject],
    least: Level,
) -> impl Iterator<Item = &'a Finding> {
    findings.iter().filter(move |f| least <= f.level && affects(f, subjects))
}

/// Whether a finding affects a figure about these subjects.
pub fn affects(finding: &Finding, subjects: &[Subject]) -> bool {
    let percentile = |s: &Subject| matches!(s, Subject::P90 | Subject::P95 | Subject::P99);
    let only_percentiles = finding.affects.iter().all(percentile);
    finding.affects.iter().any(|s| (only_percentiles || !percentile(s)) && subjects.contains(s))
}

impl Loaded {
    /// The figure of that key.
    pub fn figure(&self, key: &str) -> Option<&Comparable> {
        self.figures.iter().find(|f| f.key == key)
    }
}

/// A figure for reading.
pub fn shown(kind: Kind, x: f64) -> String {
    match kind {
        Kind::Time => time(x),
        Kind::Rate => format!("{}/s", format::rate(x)),
        Kind::Share => format::percent(x),
    }
}

/// A relative change for reading: `+3.1 %`.
pub fn change_shown(x: f64) -> String {
    let text = format!("{:.1}", x * 100.0);
    let text = if text == "-0.0" { "0.0".to_owned() } else { text };
    if text.starts_with('-') || text == "0.0" { format!("{text} %") } else { format!("+{text} %") }
}

/// The interval of a change for reading; an open side is `..`.
pub fn interval_shown(low: Option<f64>, high: Option<f64>) -> String {
    let bound = |x: Option<f64>| x.map_or("..".to_owned(), change_shown);
    format!("{} to {}", bound(low), bound(high))
}

/// The change of a figure between two runs: from the pairs where the runs served the same requests
/// (`same`) and the figure is a mean, else from both intervals. The second value says where an interval is
/// lacking.
pub fn changed(
    figures: (&Comparable, &Comparable),
    (base, new): (&Loaded, &Loaded),
    same: bool,
    confidence: Confidence,
    sides: [&str; 2],
) -> (Option<Change>, Option<String>) {
    let (b, n) = figures;
    let latency = b.key.strip_suffix("_mean_s").and_then(Latency::named);
    if let Some(latency) = latency
        && same
        && let Some(paired) =
            paired_mean(latency, &base.run.timelines, &new.run.timelines, confidence)
    {
        let why = paired.none_because.clone().map(|why| format!("the pairs: {why}"));
        return (Some(paired), why);
    }
    let change = change(b.value, b.interval.as_ref().ok(), n.value, n.interval.as_ref().ok());
    let why = sides
        .iter()
        .zip([b, n])
        .find_map(|(side, f)| f.interval.as_ref().err().map(|e| format!("{side}: {e}")));
    (change.ok(), why)
}
