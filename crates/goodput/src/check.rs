//! `goodput check`: may this ship?

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use metrics_core::compare::{
    Better, COMPLETED_SHARE, Change, Comparable, change_of_runs, gate_zero, margin_needed,
    no_regress,
};
use metrics_core::format;
use metrics_core::grammar;
use metrics_core::interval::Confidence;
use metrics_core::report::Answer;
use metrics_core::slo::{Slo, SloSet};
use metrics_core::summary::PercentileMethod;
use metrics_core::validity::{Finding, Level, Subject};
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use crate::gate::{
    Basis, Loaded, Paired, Reading, affecting, change_shown, changed, distinct_files,
    distinct_runs, interval_shown, of_both, pair, shown, subjects,
};
use crate::output::{Format, check_outputs, csv_text, json_text, markdown_table, one_line};
use crate::report::{Objectives, finding_json, time};

pub const EXAMPLES: &str = "\
An objective for a run is a target: `p99(ttft)<200ms`, `ttft<200ms @ 99%`, or
limits on single requests together with --attainment. It passes if the whole
confidence interval is on the good side, fails if the whole interval is on the
bad side, and is indeterminate else: run longer, or give more runs.

--no-regress compares with --base: a margin for the usual figures, or figures
with their own (`ttft_p99=10%`). Several runs on both sides are taken as
repeated runs of one setting, so that what differs from run to run is counted.
Where requests failed, the share that completed is one of the usual figures.

Where `goodput diff` warns that the two sides differ in more than the server
(another workload, shared prompts, other definitions), what that affects is
indeterminate too.

What the verdict of `goodput report` calls an error decides before any interval:
a figure that it affects is indeterminate, and a run with an error that affects
none of them does not pass. --warn-fatal does so for warnings that affect a
figure that is asked for. A file without detail per request states figures and
no samples, so that nothing of it can pass or fail.

Examples:
  goodput check result.json --slo 'p99(ttft)<500ms,tpot<50ms @ 95%'
  goodput check result.json --goodput ttft:150 tpot:15 --attainment 90%
  goodput check new.json --base old.json --no-regress 5%
  goodput check n1.json n2.json --base o1.json o2.json --no-regress 5%
  goodput check new.json --base old.json --no-regress tpot_mean=3%,ttft_p99=10% --junit check.xml

Exit codes:
  0  every target holds
  1  a target is missed, or a figure regressed
  2  wrong command line, or an input that cannot be read
  3  nothing is missed, but something is indeterminate";

/// Figures that a margin without a name is for.
const USUAL: [&str; 12] = [
    COMPLETED_SHARE,
    "ttft_p50_s",
    "ttft_p95_s",
    "ttft_mean_s",
    "tpot_p50_s",
    "tpot_p95_s",
    "tpot_mean_s",
    "e2e_p50_s",
    "e2e_p95_s",
    "e2e_mean_s",
    "request_throughput_per_s",
    "output_tokens_per_s",
];

/// Those of them that need limits on single requests.
const WITH_LIMITS: [&str; 2] = ["goodput_per_s", "attainment"];

/// Arguments of `check`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Benchmark results or request logs; several are judged each, or are repeated runs.
    #[arg(required_unless_present = "goodput", value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    objectives: Objectives,
    /// Share of the requests that must meet all limits together.
    #[arg(long, value_name = "SHARE")]
    attainment: Option<String>,
    /// Results to compare with; several are repeated runs of one setting.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    base: Vec<PathBuf>,
    /// How much worse figures may be than in the base: 5%, or FIGURE=5%.
    #[arg(long, value_name = "[FIGURE=]SHARE[,…]", value_delimiter = ',', requires = "base")]
    no_regress: Vec<String>,
    /// A warning that affects a figure makes it indeterminate, as an error does.
    #[arg(long)]
    warn_fatal: bool,
    /// Write the answers as JUnit XML as well.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

impl Arguments {
    /// Refuses to write over what is read, or twice into one file.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let inputs: Vec<PathBuf> = files(self).0.into_iter().chain(self.base.clone()).collect();
        check_outputs(&inputs, &[("-o", output), ("--junit", self.junit.as_deref())])
    }
}

/// One question and its answer.
struct Assertion {
    /// Which run, or both sides.
    subject: String,
    /// What was asked.
    asked: String,
    answer: Answer,
    /// What was seen, for reading.
    seen: String,
    /// Key of the figure and numbers, for machines.
    data: Value,
    /// What it is about, so that a finding can affect it.
    about: Vec<Subject>,
    /// The checks that make it indeterminate.
    checks: Vec<&'static str>,
}

impl Assertion {
    /// Says what would decide it, since more of the same would not.
    fn needs(&mut self, what: &str) {
        self.seen.push_str(&format!("; needs {what}"));
        if let Some(data) = self.data.as_object_mut() {
            data.insert("needs".to_owned(), json!(what));
        }
    }

    /// Indeterminate if a finding of these runs affects it.
    fn doubt(&mut self, runs: &[&Loaded], least: Level) {
        for run in runs {
            let of = if runs.len() == 1 { String::new() } else { format!(" of {}", run.name) };
            self.doubt_by(&run.findings, &of, least);
        }
    }

    /// Indeterminate if its runs cannot be compared in it: a warning is enough, as in `diff`.
    fn doubt_between(&mut self, between: &[Between]) {
        if let Some(b) = between.iter().find(|b| b.subject == self.subject) {
            self.doubt_by(&b.findings, "", Level::Warn);
        }
    }

    /// Indeterminate if one of these findings affects it.
    fn doubt_by(&mut self, findings: &[Finding], of: &str, least: Level) {
        let about = self.about.clone();
        for finding in affecting(findings, &about, least) {
            let id = finding.check.id;
            self.answer = Answer::Indeterminate;
            self.seen.push_str(&format!("; {id}{of}: {}", one_line(&finding.says)));
            if !self.checks.contains(&id) {
                self.checks.push(id);
            }
        }
    }
}

/// How many requests of a run failed, which no percentile of it shows.
struct Failed {
    run: String,
    share: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Failed {
    /// Those of a run, if there are any.
    fn of(run: &Loaded) -> Option<Self> {
        let completed = run.figure(COMPLETED_SHARE).filter(|f| f.value < 1.0)?;
        let interval = completed.interval.as_ref().ok();
        Some(Self {
            run: run.name.clone(),
            share: 1.0 - completed.value,
            low: interval.and_then(|i| i.high).map(|x| 1.0 - x),
            high: interval.and_then(|i| i.low).map(|x| 1.0 - x),
        })
    }

    fn shown(&self) -> String {
        let bound = |x: Option<f64>| x.map_or("..".to_owned(), format::percent);
        let interval = match (self.low, self.high) {
            (None, None) => "no interval".to_owned(),
            (low, high) => format!("{} to {}", bound(low), bound(high)),
        };
        format!("{} of the finished requests, {interval}", format::percent(self.share))
    }

    fn as_json(&self) -> Value {
        json!({ "run": self.run, "failed_share": self.share, "low": self.low, "high": self.high })
    }
}

/// Runs the command; what it prints and its exit code.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let (files, limits) = files(arguments);
    let slo = arguments.objectives.set(&limits)?;
    let attainment = arguments
        .attainment
        .as_deref()
        .map(grammar::share)
        .transpose()
        .map_err(|e| anyhow!("--attainment: {e}"))?;
    asks(arguments, &slo, attainment)?;
    let percentile = slo.items().iter().any(|s| matches!(s, Slo::Percentile { .. }));
    if arguments.objectives.method() != PercentileMethod::default()
        && !percentile
        && arguments.base.is_empty()
    {
        bail!("--percentile: is for percentiles, and none is asked for, as p99(ttft)<500ms does");
    }
    let confidence = arguments.objectives.confidence()?;
    let basis = Basis { slo: &slo, method: arguments.objectives.method(), confidence };
    let named: Vec<&PathBuf> = files.iter().chain(&arguments.base).collect();
    distinct_files(&named, "one run")?;
    let margins = margins(&arguments.no_regress, &slo)?;
    let news = arguments.reading.load(&files, basis)?;
    let least = if arguments.warn_fatal { Level::Warn } else { Level::Error };
    let bases = arguments.reading.load(&arguments.base, basis)?;
    distinct_runs(&news.iter().chain(&bases).collect::<Vec<_>>())?;
    let mut all = Vec::new();
    for run in &news {
        targets(&mut all, run, &slo, attainment, least)?;
    }
    let between = if bases.is_empty() {
        Vec::new()
    } else {
        regressions(&mut all, &margins, &news, &bases, basis, least)?
    };
    let failed: Vec<Failed> = news.iter().chain(&bases).filter_map(Failed::of).collect();
    let invalid: Vec<String> = news.iter().chain(&bases).filter_map(invalid).collect();
    let overall = overall(&all, !invalid.is_empty());
    if let Some(path) = &arguments.junit {
        let xml = junit(&all)?;
        std::fs::write(path, xml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = match format {
        Format::Text => text(&all, &between, &failed, &invalid, overall, confidence)?,
        Format::Json => json_text(&json!({
            "schema_version": 1,
            "kind": "goodput-check",
            "confidence": f64::from(confidence),
            "result": word(overall),
            "invalid_runs": invalid,
            "findings_between_runs": between.iter().flat_map(Between::as_json).collect::<Vec<Value>>(),
            "failed": failed.iter().map(Failed::as_json).collect::<Vec<Value>>(),
            "assertions": all.iter().map(as_json).collect::<Vec<Value>>(),
        }))?,
        Format::Csv => csv_text(&HEADER, &rows(&all, &failed))?,
        Format::Md => markdown_table(&HEADER, &rows(&all, &failed)),
    };
    Ok((text, code(overall)))
}

/// The files, those behind `--goodput` included, and the latter alone.
fn files(arguments: &Arguments) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let swallowed = arguments.objectives.swallowed();
    let files = arguments.files.iter().chain(&swallowed).cloned().collect();
    (files, swallowed)
}

/// Refuses a command line that asks nothing, or asks it so that no run can answer.
fn asks(arguments: &Arguments, slo: &SloSet, attainment: Option<f64>) -> Result<()> {
    let limit = slo.items().iter().find(|s| matches!(s, Slo::PerRequest(_)));
    match (limit, attainment) {
        (Some(limit), None) if arguments.no_regress.is_empty() => bail!(
            "--slo {limit}: is a limit on single requests, and no run is asked to meet it: \
             write `{limit} @ 99%`, or --attainment 99% for all limits together"
        ),
        (None, Some(_)) if slo.items().iter().all(|s| s.per_request().is_none()) => {
            bail!("--attainment: there is no limit on single requests, such as --slo 'ttft<200ms'")
        }
        _ => {}
    }
    if slo.is_empty() && arguments.base.is_empty() {
        bail!("nothing is asked: give --slo 'p99(ttft)<500ms', or --base FILE --no-regress 5%");
    }
    if !arguments.base.is_empty() && arguments.no_regress.is_empty() {
        bail!("--base: how much worse may it be? give --no-regress 5%");
    }
    Ok(())
}

/// What makes the run another than it says it is, if anything does.
fn invalid(run: &Loaded) -> Option<String> {
    let error = run.findings.iter().find(|f| f.level == Level::Error)?;
    let (id, says) = (error.check.id, one_line(&error.says));
    Some(format!("{} is not usable: {id}: {says}", run.name))
}

/// What the objective is about.
fn about(slo: &Slo) -> Vec<Subject> {
    let of = slo.limit().latency.name();
    match slo {
        Slo::Percentile { p, .. } => subjects(of, &format!("_{}", percentile_key(*p))),
        Slo::PerRequest(_) | Slo::Attainment { .. } => {
            [subjects(of, ""), vec![Subject::Goodput]].concat()
        }
    }
}

/// `p99`, `p99_9`: a percentile in a key.
fn percentile_key(p: f64) -> String {
    format!("p{}", format::value((p * 1e5).round() / 1e3)).replace('.', "_")
}

/// The answers of a file that states figures only: nothing is decided, and what would is said.
fn stated_only(all: &mut Vec<Assertion>, run: &Loaded, slo: &SloSet, attainment: Option<f64>) {
    let with = run
        .run
        .missing
        .iter()
        .find(|m| m.what.contains("per request") || m.what == "requests")
        .map_or_else(|| "a file with every request".to_owned(), |m| one_line(&m.with));
    let mut push = |asked: String, of: Vec<Subject>, stated: Option<f64>, what: &str| {
        let states = stated.map_or_else(
            || "the file has no detail per request".to_owned(),
            |x| format!("the file states {}, and no samples to judge it by", time(x)),
        );
        all.push(Assertion {
            subject: run.name.clone(),
            seen: format!("{states}; for {what}: {with}"),
            data: json!({ "figure": asked, "stated": stated, "needs": with }),
            asked,
            answer: Answer::Indeterminate,
            about: of,
            checks: Vec::new(),
        });
    };
    if let Some(target) = attainment {
        let asked = format!("{} of requests meet {slo}", format::percent(target));
        push(asked, vec![Subject::Goodput], None, "an attainment");
    }
    for item in slo.items() {
        let stated = match item {
            Slo::PerRequest(_) => continue,
            Slo::Attainment { .. } => None,
            Slo::Percentile { p, limit } => {
                let key = format!("{}_{}_s", limit.latency.name(), percentile_key(*p));
                run.figure(&key).map(|f| f.value)
            }
        };
        let what = if stated.is_some() { "an interval" } else { "an attainment or a percentile" };
        push(item.to_string(), about(item), stated, what);
    }
}

/// What would decide a target of 100 % that no request has missed.
const BELOW_ALL: &str =
    "a target below 100 %: one miss disproves 100 %, and no finite run proves it";

/// What the run says of each target.
fn targets(
    all: &mut Vec<Assertion>,
    run: &Loaded,
    slo: &SloSet,
    attainment: Option<f64>,
    least: Level,
) -> Result<()> {
    let needed =
        attainment.is_some() || slo.items().iter().any(|s| !matches!(s, Slo::PerRequest(_)));
    if !needed {
        return Ok(());
    }
    if run.run.server.is_some() {
        bail!(
            "{}: is a scrape of an engine, whose buckets hold no single request: `goodput diagnose` \
             reads it",
            run.name
        );
    }
    let Some(report) = &run.report else {
        stated_only(all, run, slo, attainment);
        return Ok(());
    };
    let Some(goodput) = &report.goodput else {
        bail!("{}: the run is truncated, so that no objective can be judged", run.name);
    };
    let mut push = |asked, answer, seen, data, about, all_of_them: Option<f64>| {
        let (subject, checks) = (run.name.clone(), Vec::new());
        let mut a = Assertion { subject, asked, answer, seen, data, about, checks };
        if answer == Answer::Indeterminate && all_of_them.is_some() {
            a.needs(BELOW_ALL);
        }
        a.doubt(&[run], least);
        all.push(a);
    };
    if let Some(target) = attainment {
        let interval =
            goodput.attainment_interval.as_ref().filter(|_| goodput.too_narrow.is_none());
        let one_missed = goodput.good.saturating_add(goodput.unknown) < goodput.finished;
        let answer = Answer::of_share(target, one_missed, interval);
        let all_of_them = Some(target).filter(|t| 1.0 <= *t);
        let share = goodput.attainment.map_or("-".to_owned(), format::percent);
        let interval = match (&goodput.attainment_interval, &goodput.too_narrow) {
            (_, Some(why)) => format!("no interval: {why}"),
            (Some(i), None) => {
                let bound = |x: Option<f64>| x.map_or("..".to_owned(), format::percent);
                format!("{} to {}", bound(i.low), bound(i.high))
            }
            (None, None) => "no interval".to_owned(),
        };
        let (low, high) = match (&goodput.attainment_interval, &goodput.too_narrow) {
            (Some(i), None) => (i.low, i.high),
            _ => (None, None),
        };
        push(
            format!("{} of requests meet {slo}", format::percent(target)),
            answer,
            format!("{share} ({} of {}), {interval}", goodput.good, goodput.finished),
            json!({ "figure": "attainment", "target": target, "observed": goodput.attainment,
                    "low": low, "high": high }),
            vec![Subject::Goodput],
            all_of_them,
        );
    }
    for t in &goodput.targets {
        let is_share = matches!(t.slo, Slo::Attainment { .. });
        let number = |x: f64| if is_share { format::percent(x) } else { time(x) };
        let bound = |x: Option<f64>| x.map_or("..".to_owned(), number);
        let interval = match &t.interval {
            Ok(i) => format!("{} to {}", bound(i.low), bound(i.high)),
            Err(why) => format!("no interval: {why}"),
        };
        let (low, high) = t.interval.as_ref().map_or((None, None), |i| (i.low, i.high));
        push(
            t.slo.to_string(),
            t.answer,
            format!("{}, {interval}", t.observed.map_or("-".to_owned(), number)),
            json!({ "figure": t.slo.to_string(), "observed": t.observed, "low": low, "high": high }),
            about(&t.slo),
            match t.slo {
                Slo::Attainment { target, .. } => Some(target).filter(|t| 1.0 <= *t),
                _ => None,
            },
        );
    }
    Ok(())
}

/// What may get worse by how much.
enum Margin {
    /// A figure that was named: it must be there.
    Named(String, f64),
    /// One of the usual ones: left out where a file does not have it.
    Usual(&'static str, f64),
}

/// Reads `5%` and `ttft_p99=10%`.
fn margins(items: &[String], slo: &SloSet) -> Result<Vec<Margin>> {
    let mut margins = Vec::new();
    let mut seen: Vec<Option<&str>> = Vec::new();
    for item in items {
        let (name, share) = match item.split_once('=') {
            Some((name, share)) => (Some(name.trim()), share),
            None => (None, item.as_str()),
        };
        let margin = grammar::share(share.trim())
            .map_err(|e| anyhow!("--no-regress {}: {e}", one_line(item)))?;
        if seen.contains(&name.map(stem)) {
            let what = name.unwrap_or("the margin of all figures");
            bail!("--no-regress: {} is given twice, keep one", one_line(what));
        }
        seen.push(name.map(stem));
        if let Some(name) = name {
            margins.push(Margin::Named(name.to_owned(), margin));
        } else {
            let limits = slo.items().iter().any(|s| s.per_request().is_some());
            let more = WITH_LIMITS.iter().filter(|_| limits);
            margins.extend(USUAL.iter().chain(more).map(|&k| Margin::Usual(k, margin)));
        }
    }
    // A figure named on its own has its own margin.
    let named: Vec<String> = margins
        .iter()
        .filter_map(|m| match m {
            Margin::Named(name, _) => Some(stem(name).to_owned()),
            Margin::Usual(..) => None,
        })
        .collect();
    margins.retain(|m| !matches!(m, Margin::Usual(k, _) if named.iter().any(|n| n == stem(k))));
    Ok(margins)
}

/// A key without its unit: what people type.
fn stem(key: &str) -> &str {
    key.strip_suffix("_per_s").or_else(|| key.strip_suffix("_s")).unwrap_or(key)
}

/// What the comparison of runs finds.
struct Between {
    /// The new run, or both sides.
    subject: String,
    findings: Vec<Finding>,
}

impl Between {
    fn as_json(&self) -> Vec<Value> {
        let one = |f| {
            let mut value = finding_json(f);
            if let Some(map) = value.as_object_mut() {
                map.insert("run".to_owned(), json!(self.subject));
            }
            value
        };
        self.findings.iter().map(one).collect()
    }
}

/// What each comparison finds: of one new run with the base, or of repeated runs, where each check
/// is said once.
fn between(news: &[Loaded], bases: &[Loaded], paired: &[Paired]) -> Vec<Between> {
    if let ([base], false) = (bases, paired.is_empty()) {
        let one = |(new, paired): (&Loaded, &Paired)| Between {
            subject: new.name.clone(),
            findings: of_both(base, new, paired.under.clone()),
        };
        return news.iter().zip(paired).map(one).collect();
    }
    let mut findings: Vec<Finding> = Vec::new();
    let pairs = news.iter().flat_map(|new| bases.iter().map(move |base| (base, new)));
    for finding in pairs.flat_map(|(base, new)| of_both(base, new, None)) {
        match findings.iter_mut().find(|f| f.check.id == finding.check.id) {
            Some(known) if known.level < finding.level => *known = finding,
            Some(_) => {}
            None => findings.push(finding),
        }
    }
    vec![Between { subject: sides(news, bases), findings }]
}

/// Both sides of repeated runs.
fn sides(news: &[Loaded], bases: &[Loaded]) -> String {
    format!("{} runs against {}", news.len(), bases.len())
}

/// Compares each figure that has a margin; what the comparison itself finds.
fn regressions(
    all: &mut Vec<Assertion>,
    margins: &[Margin],
    news: &[Loaded],
    bases: &[Loaded],
    basis: Basis<'_>,
    least: Level,
) -> Result<Vec<Between>> {
    for run in news.iter().chain(bases) {
        if run.run.server.is_some() {
            bail!("{}: is a scrape of an engine, not a run", run.name);
        }
    }
    let repeated = 1 < news.len() && 1 < bases.len();
    if !repeated && 1 < bases.len() {
        bail!("--base has {} runs and FILE has one: give two or more on both sides", bases.len());
    }
    let paired: Vec<Paired> = match bases.first() {
        Some(base) if !repeated => news.iter().map(|new| pair(base, new, basis)).collect(),
        _ => Vec::new(),
    };
    let crossed: Vec<(&Loaded, &Loaded, Paired)> = if repeated {
        let pairs = news.iter().flat_map(|new| bases.iter().map(move |base| (base, new)));
        pairs.map(|(base, new)| (base, new, pair(base, new, basis))).collect()
    } else {
        Vec::new()
    };
    let between = between(news, bases, &paired);
    for margin in margins {
        let (key, limit) = match margin {
            Margin::Named(name, limit) => (named(name, news, bases)?, *limit),
            Margin::Usual(key, limit) => {
                let of_all: Option<Vec<&Comparable>> =
                    news.iter().chain(bases).map(|r| r.figure(key)).collect();
                let Some(of_all) = of_all else { continue };
                // Where nothing failed there is nothing to tell.
                if *key == COMPLETED_SHARE && of_all.iter().all(|f| 1.0 <= f.value) {
                    continue;
                }
                ((*key).to_owned(), *limit)
            }
        };
        if repeated {
            let mut a = match unlike(&key, &crossed) {
                Some(why) => Assertion {
                    seen: format!("not compared: {why}"),
                    ..missing(sides(news, bases), &key)
                },
                None => of_runs(&key, limit, news, bases, basis.confidence),
            };
            let runs: Vec<&Loaded> = news.iter().chain(bases).collect();
            a.doubt(&runs, least);
            a.doubt_between(&between);
            all.push(a);
        } else if let Some(base) = bases.first() {
            for (new, paired) in news.iter().zip(&paired) {
                let mut a = of_intervals(&key, limit, (base, new), paired, basis.confidence);
                a.doubt(&[new, base], least);
                a.doubt_between(&between);
                all.push(a);
            }
        }
    }
    Ok(between)
}

/// The key that a name stands for, if every run has it.
fn named(name: &str, news: &[Loaded], bases: &[Loaded]) -> Result<String> {
    for run in news.iter().chain(bases) {
        if !run.figures.iter().any(|f| f.key == name || stem(&f.key) == name) {
            let keys: Vec<&str> = run.figures.iter().map(|f| stem(&f.key)).collect();
            bail!("--no-regress {name}: {} has no such figure, but {}", run.name, keys.join(", "));
        }
    }
    let found =
        news.iter().flat_map(|r| &r.figures).find(|f| f.key == name || stem(&f.key) == name);
    found.map(|f| f.key.clone()).ok_or_else(|| anyhow!("--no-regress {name}: no run"))
}

/// Why a figure of repeated runs is not the same thing on both sides, if it is not.
fn unlike(key: &str, crossed: &[(&Loaded, &Loaded, Paired)]) -> Option<String> {
    crossed.iter().find_map(|(base, new, paired)| {
        if base.report.is_some() != new.report.is_some() {
            let (with, without) = if base.report.is_some() { (base, new) } else { (new, base) };
            return Some(format!(
                "{} has detail per request and {} has not",
                with.name, without.name
            ));
        }
        if paired.pairs.iter().any(|(b, _)| b.key == key) {
            return None;
        }
        let refused = paired.refused.first().map(|(what, why)| format!("{what}: {why}"));
        Some(refused.unwrap_or_else(|| format!("{} and {}", base.name, new.name)))
    })
}

fn of_intervals(
    key: &str,
    margin: f64,
    (base, new): (&Loaded, &Loaded),
    paired: &Paired,
    confidence: Confidence,
) -> Assertion {
    let subject = new.name.clone();
    let Some((b, n)) = paired.pairs.iter().find(|(b, _)| b.key == key) else {
        let mut a = missing(subject, key);
        if let Some((what, why)) = paired.refused.first() {
            a.seen = format!("not compared: {what}: {why}");
        }
        return a;
    };
    let sides = ["the base", "this run"];
    let (change, why) = changed((b, n), (base, new), paired.same, confidence, sides);
    regression(subject, n, margin, b.value, n.value, change, why)
}

fn of_runs(
    key: &str,
    margin: f64,
    news: &[Loaded],
    bases: &[Loaded],
    confidence: Confidence,
) -> Assertion {
    let subject = sides(news, bases);
    let values = |runs: &[Loaded]| -> Option<Vec<f64>> {
        runs.iter().map(|r| r.figure(key).map(|f| f.value)).collect()
    };
    let (Some(n), Some(b), Some(first)) =
        (values(news), values(bases), news.first().and_then(|r| r.figure(key)))
    else {
        return missing(subject, key);
    };
    // Where a run has a figure of 0 there is no ratio, and the sum tells whether all have.
    let sum = |x: &[f64]| x.iter().sum::<f64>();
    let changed = change_of_runs(&b, &n, confidence);
    regression(subject, first, margin, sum(&b), sum(&n), changed.ok(), None)
}

fn missing(subject: String, key: &str) -> Assertion {
    Assertion {
        subject,
        asked: stem(key).to_owned(),
        answer: Answer::Indeterminate,
        seen: "not in every file".to_owned(),
        data: json!({ "figure": key }),
        about: Vec::new(),
        checks: Vec::new(),
    }
}

fn regression(
    subject: String,
    figure: &Comparable,
    margin: f64,
    base: f64,
    new: f64,
    change: Option<Change>,
    why: Option<String>,
) -> Assertion {
    let worse = match figure.better {
        Better::Lower => "more",
        Better::Higher => "less",
    };
    let asked = format!("{} at most {} {worse}", figure.title, format::percent(margin));
    let from =
        |new, base| format!("{} after {}", shown(figure.kind, new), shown(figure.kind, base));
    let Some(c) = change else {
        let answer = gate_zero(base, new, figure.better);
        let data = json!({ "figure": figure.key, "margin": margin, "base": base, "new": new });
        let seen = format!("{}: no ratio to 0", from(new, base));
        let (about, checks) = (subjects(figure.of, &figure.key), Vec::new());
        return Assertion { subject, asked, answer, seen, data, about, checks };
    };
    let from = from(c.new, c.base);
    let answer = no_regress(&c, figure.better, margin);
    let interval = match (c.low, c.high) {
        (None, None) => {
            format!("no interval: {}", why.or_else(|| c.none_because.clone()).unwrap_or_default())
        }
        (low, high) => interval_shown(low, high),
    };
    let passes = match (answer, margin_needed(&c, figure.better)) {
        (Answer::Indeterminate, Some(m)) if 0.0 <= m => {
            format!("; would pass at {}", format::percent((m * 1000.0).ceil() / 1000.0))
        }
        _ => String::new(),
    };
    Assertion {
        subject,
        asked,
        answer,
        seen: format!("{from}: {}, {interval}{passes}", change_shown(c.relative)),
        data: json!({ "figure": figure.key, "margin": margin, "base": c.base, "new": c.new,
                      "relative": c.relative, "relative_low": c.low, "relative_high": c.high }),
        about: subjects(figure.of, &figure.key),
        checks: Vec::new(),
    }
}

/// The worst answer: a miss is a miss whatever else is open, and an invalid run does not pass.
fn overall(all: &[Assertion], invalid: bool) -> Answer {
    let any = |answer| all.iter().any(|a| a.answer == answer);
    if any(Answer::Missed) {
        Answer::Missed
    } else if any(Answer::Indeterminate) || all.is_empty() || invalid {
        Answer::Indeterminate
    } else {
        Answer::Holds
    }
}

const fn code(answer: Answer) -> u8 {
    match answer {
        Answer::Holds => 0,
        Answer::Missed => 1,
        Answer::Indeterminate => 3,
    }
}

const fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Holds => "pass",
        Answer::Missed => "fail",
        Answer::Indeterminate => "indeterminate",
    }
}

const HEADER: [&str; 4] = ["answer", "asked", "seen", "run"];

fn rows(all: &[Assertion], failed: &[Failed]) -> Vec<Vec<String>> {
    let answers = all.iter().map(|a| {
        vec![word(a.answer).to_owned(), a.asked.clone(), a.seen.clone(), a.subject.clone()]
    });
    let not_asked = failed.iter().map(|f| {
        vec!["-".to_owned(), "failed requests, not asked".to_owned(), f.shown(), f.run.clone()]
    });
    answers.chain(not_asked).collect()
}

fn text(
    all: &[Assertion],
    between: &[Between],
    failed: &[Failed],
    invalid: &[String],
    overall: Answer,
    confidence: Confidence,
) -> Result<String> {
    let mut text = String::new();
    let mut subject = "";
    for a in all {
        if a.subject != subject {
            subject = &a.subject;
            writeln!(text, "{}{subject}", if text.is_empty() { "" } else { "\n" })?;
        }
        writeln!(text, "  {:15}{}", word(a.answer), a.asked)?;
        writeln!(text, "  {:15}{}", "", a.seen)?;
    }
    let count = |answer| all.iter().filter(|a| a.answer == answer).count();
    let open = |a: &&Assertion| a.answer == Answer::Indeterminate && a.checks.is_empty();
    if all.iter().filter(open).any(|a| a.data.get("needs").is_none()) {
        writeln!(text, "\nindeterminate: run longer, or give two or more runs on each side")?;
    }
    if all.iter().any(|a| !a.checks.is_empty()) {
        writeln!(text, "\nindeterminate by a finding: `goodput report` says what to do about it")?;
    }
    if between.iter().any(|b| !b.findings.is_empty()) {
        writeln!(text, "\nbetween this run and the base, as in `goodput diff`")?;
    }
    for b in between {
        for f in &b.findings {
            let (id, level, says) = (f.check.id, f.level, one_line(&f.says));
            writeln!(text, "  {}: {id} {level}: {says}", b.subject)?;
        }
    }
    if !failed.is_empty() {
        writeln!(text, "\nfailed, a miss of every limit and in no percentile")?;
    }
    for f in failed {
        writeln!(text, "  {}: {}", f.run, f.shown())?;
    }
    for why in invalid {
        writeln!(text, "\n{why}")?;
    }
    writeln!(
        text,
        "\n{}: {} of {} passed, {} failed, {} indeterminate, at {} confidence",
        word(overall),
        count(Answer::Holds),
        all.len(),
        count(Answer::Missed),
        count(Answer::Indeterminate),
        format::percent(f64::from(confidence)),
    )?;
    Ok(text)
}

fn as_json(a: &Assertion) -> Value {
    let mut value = json!({
        "run": a.subject,
        "asked": a.asked,
        "answer": word(a.answer),
        "seen": a.seen,
        "findings": a.checks,
    });
    if let (Some(map), Value::Object(data)) = (value.as_object_mut(), &a.data) {
        map.extend(data.clone());
    }
    value
}

/// One test case an answer; what is indeterminate is an error, not a failure.
fn junit(all: &[Assertion]) -> Result<String> {
    let mut report = Junit::new("goodput check");
    let mut suites: Vec<TestSuite> = Vec::new();
    for a in all {
        let status = match a.answer {
            Answer::Holds => TestCaseStatus::success(),
            Answer::Missed => TestCaseStatus::non_success(NonSuccessKind::Failure),
            Answer::Indeterminate => TestCaseStatus::non_success(NonSuccessKind::Error),
        };
        let mut case = TestCase::new(a.asked.as_str(), status);
        if a.answer == Answer::Holds {
            case.set_system_out(a.seen.as_str());
        } else {
            case.status.set_message(a.seen.as_str());
            case.status.set_type(word(a.answer));
        }
        match suites.last_mut() {
            Some(suite) if suite.name.as_str() == a.subject => {
                suite.add_test_case(case);
            }
            _ => {
                let mut suite = TestSuite::new(a.subject.as_str());
                suite.add_test_case(case);
                suites.push(suite);
            }
        }
    }
    report.add_test_suites(suites);
    Ok(report.to_string()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_typed_without_their_unit() {
        assert_eq!(stem("ttft_p99_s"), "ttft_p99");
        assert_eq!(stem("goodput_per_s"), "goodput");
        assert_eq!(stem("attainment"), "attainment");
    }

    #[test]
    fn a_miss_decides_and_nothing_asked_is_no_pass() {
        let with = |answers: &[Answer]| {
            let all: Vec<Assertion> = answers
                .iter()
                .map(|&answer| Assertion {
                    subject: String::new(),
                    asked: String::new(),
                    answer,
                    seen: String::new(),
                    data: Value::Null,
                    about: Vec::new(),
                    checks: Vec::new(),
                })
                .collect();
            code(overall(&all, false))
        };
        assert_eq!(with(&[Answer::Holds, Answer::Missed, Answer::Indeterminate]), 1);
        assert_eq!(with(&[Answer::Holds, Answer::Indeterminate]), 3);
        assert_eq!(with(&[Answer::Holds]), 0);
        assert_eq!(with(&[]), 3);
        assert_eq!(code(overall(&[], true)), 3);
    }
}
