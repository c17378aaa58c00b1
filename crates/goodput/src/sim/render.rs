//! A simulation's answer as text, JSON, CSV or Markdown.

use std::fmt::Write;

use anyhow::Result;
use metrics_core::Seconds;
use metrics_core::format;
use metrics_core::measured::Cut;
use metrics_core::report::{Distribution, Report};
use metrics_core::units::Quantity;
use metrics_core::validity::{Finding, Level};
use sched_sim::vllm_v1::VllmConfig;
use sched_sim::workload::WorkloadSpec;
use sched_sim::{
    DecodeFirst, KvStatistics, LoadLevel, OfferedLoad, Policy, RunEnd, RunStatistics, Ticks,
};
use serde_json::{Map, Value, json};
use serving_io::fitted::FittedStepTime;
use serving_io::scenario::StepTimeSource;

use super::generate::is_of_users;
use super::{Answer, Overload, Setting, Simulated, explain, generate, pools, served};
use crate::output::{self, Format};
use crate::report::{csv, finding_json, json as report_json, text as report_text};

/// The answer in one form.
pub fn render(answer: &Answer, format: Format) -> Result<String> {
    match format {
        Format::Json => json_of(answer),
        Format::Csv => csv_of(answer),
        Format::Md => markdown(answer),
        Format::Text => match answer.runs.as_slice() {
            [one] => single(answer, one),
            _ => sweep(answer),
        },
    }
}

/// A line with its label in a column of its own.
fn line(text: &mut String, label: &str, content: &str) -> Result<()> {
    Ok(writeln!(text, "  {label:17}{content}")?)
}

/// Whether settings run on several workloads.
pub(super) fn several(all: &[&Setting]) -> bool {
    all.first().is_some_and(|first| all.iter().any(|s| s.workload != first.workload))
}

/// Whether settings meet the same requests, whoever goes away from them.
pub(super) fn same_requests(all: &[&Setting]) -> bool {
    let Some(first) = all.first() else { return true };
    let spec = |s: &Setting| {
        let spec = s.drawn.as_ref().map(|drawn| &drawn.spec);
        spec.map(|spec| WorkloadSpec { cancellations: None, ..spec.clone() })
    };
    let own = spec(first);
    let same = |s: &Setting| s.workload == first.workload || spec(s) == own;
    all.iter().all(|s| !s.waits() && same(s))
}

/// How many requests, from the least to the most.
pub(super) fn requests((least, most): (u64, u64)) -> String {
    let requests = format::things(most, "request");
    if least == most { requests } else { format!("{least} to {requests}") }
}

/// Name, value: what a setting is, in the order of rows; `several`: with what its requests are drawn
/// from, which comes first, as its rows stand together.
fn settings(s: &Setting, several: bool) -> Vec<(&'static str, String)> {
    let drawn = s.drawn.iter().filter(|_| several).flat_map(|drawn| drawn.cells());
    let says = |name: &str| s.users.is_none() || is_of_users(name);
    let drawn = drawn.map(|(name, text)| (name, if says(name) { text } else { String::new() }));
    drawn.chain(settings_of_server(s)).collect()
}

/// Name, value: what a setting is beside its requests, in the order of the options.
fn settings_of_server(s: &Setting) -> [(&'static str, String); 18] {
    let time = |of: Option<Ticks>| of.map(Ticks::compact).unwrap_or_default();
    let cut = |of: Option<Cut>| of.map(|cut| cut.to_string()).unwrap_or_default();
    [
        ("variant", s.name.clone().unwrap_or_default()),
        ("policy", policy_name(s, |_| true)),
        ("max_num_seqs", or_dash(s.max_num_seqs)),
        ("chunk", or_dash(s.chunk)),
        ("rate_scale", format::value(s.rate_scale.factor())),
        ("step_time", step_time_name(&s.step_time)),
        ("slo", s.slo.to_string()),
        ("replicas", s.replicas.to_string()),
        ("router", if s.routes() { s.router.to_string() } else { String::new() }),
        ("users", s.users.map(|n| n.to_string()).unwrap_or_default()),
        ("think", s.users.map(|_| s.think.to_string()).unwrap_or_default()),
        ("disagg", s.pools.map(|p| p.flag()).unwrap_or_default()),
        ("kv_transfer", s.pools.map(|p| p.transfer.to_string()).unwrap_or_default()),
        ("timeout", time(s.timeout)),
        ("cancel", s.cancel.map(|law| law.to_string()).unwrap_or_default()),
        ("until", time(s.until)),
        ("warm_up", cut(s.cuts.warm_up)),
        ("cool_down", cut(s.cuts.cool_down)),
    ]
}

/// What the setting of a run is, with the batch limit that it had.
pub(super) fn settings_of(run: &Simulated, several: bool) -> Vec<(&'static str, String)> {
    let mut settings = settings(&run.setting, several);
    if let Some((_, limit)) = settings.iter_mut().find(|(name, _)| *name == "max_num_seqs") {
        *limit = run.statistics.max_num_seqs.to_string();
    }
    settings
}

/// The same for files, in columns that are there for every setting.
pub(super) fn csv_settings(run: &Simulated, several: bool) -> Vec<(&'static str, String)> {
    let of_server = settings_of(run, false);
    let Some(drawn) = run.setting.drawn.as_deref().filter(|_| several) else { return of_server };
    let users = run.setting.users.is_some();
    let mut columns = Vec::new();
    let mut turns_think = String::new();
    for (name, text) in drawn.cells() {
        let text = if users && !is_of_users(name) { String::new() } else { text };
        match name {
            "think" => turns_think = text,
            "rate" => columns.push(("rate_per_s", text.trim_end_matches("/s").to_owned())),
            _ => columns.push((name, text)),
        }
    }
    // Users think or turns do, so that one column has both.
    columns.extend(of_server.into_iter().map(|(name, text)| match name {
        "think" if !users => (name, turns_think.clone()),
        _ => (name, text),
    }));
    columns
}

/// What each setting is called beside the others: its name, or in what it differs.
pub(super) fn varying(all: &[&Setting]) -> Vec<String> {
    let several = several(all);
    let cells: Vec<_> = all.iter().map(|s| settings(s, several)).collect();
    let differs: Vec<bool> = (0..cells.first().map_or(0, Vec::len))
        .map(|i| cells.iter().any(|c| cells.first().is_some_and(|f| f[i] != c[i])))
        .collect();
    let own_name = |s: &Setting| s.name.clone().unwrap_or_default();
    let mut names: Vec<String> = all.iter().map(|s| own_name(s)).collect();
    names.sort_unstable();
    names.dedup();
    let named = names.len() == cells.len() && names.iter().all(|n| !n.is_empty());
    let name = |(c, s): (&Vec<(&'static str, String)>, &&Setting)| {
        if named {
            return own_name(s);
        }
        let own: Vec<String> = (0..c.len())
            .filter(|&i| differs[i] && c[i].1 != "-")
            .filter_map(|i| match (c[i].0, c[i].1.as_str()) {
                (name @ ("timeout" | "cancel" | "until" | "warm_up" | "cool_down"), "") => {
                    Some(format!("no {name}"))
                }
                (_, "") => None,
                ("variant", name) => Some(name.to_owned()),
                (name, value) => Some(format!("{name} {value}")),
            })
            .collect();
        match (own.is_empty(), s.name.is_none()) {
            (false, _) => own.join(", "),
            (true, false) => own_name(s),
            // What it shares with all others stands above them.
            (true, true) => s.policy.clone(),
        }
    };
    cells.iter().zip(all).map(name).collect()
}

/// What all settings share and is not the default, in the words of the line of a single one;
/// `rows_are_names`: no column has the batch limit and the chunk.
pub(super) fn shared(all: &[&Setting], rows_are_names: bool) -> Option<String> {
    // What is drawn has a line of its own.
    let cells: Vec<_> = all.iter().map(|s| settings_of_server(s)).collect();
    let (first, of_first) = (all.first()?, cells.first()?);
    let mut of = Vec::new();
    let is_default = first.policy == DecodeFirst::default().name();
    if !is_default && all.iter().all(|s| s.policy == first.policy) {
        of.push(format!("policy {}", first.policy));
    }
    for option in shared_options(all).iter().filter(|g| g.0 != "max_num_seqs") {
        of.push(format!("{} {}", option.0, option.1));
    }
    for (i, (name, value)) in of_first.iter().enumerate() {
        let told = match *name {
            "variant" => !rows_are_names,
            "max_num_seqs" | "chunk" => rows_are_names && value != "-",
            "rate_scale" | "replicas" => value != "1",
            // These have lines of their own.
            "policy" | "step_time" | "slo" => false,
            "warm_up" | "cool_down" => cuts_line(all).is_none(),
            _ => true,
        };
        if told && !value.is_empty() && cells.iter().all(|c| c[i].1 == *value) {
            of.push(format!("{name} {value}"));
        }
    }
    (!of.is_empty()).then(|| of.join(", "))
}

/// The options of a policy that were given to all settings alike.
fn shared_options(all: &[&Setting]) -> Vec<(&'static str, String)> {
    let mut options = all.first().map(|s| given(s)).unwrap_or_default();
    for setting in all {
        if !options.is_empty() {
            let own = given(setting);
            options.retain(|option| own.contains(option));
        }
    }
    options
}

/// The policy with the options that were given to it, as far as they are `shown`.
fn policy_name(s: &Setting, shown: impl Fn(&(&'static str, String)) -> bool) -> String {
    let mut name = s.policy.clone();
    for (option, value) in given(s).iter().filter(|g| g.0 != "max_num_seqs" && shown(g)) {
        name.push_str(&format!(" {option}={value}"));
    }
    name
}

/// The options that were given, vLLM's or those of another server.
pub(super) fn given(s: &Setting) -> Vec<(&'static str, String)> {
    s.engine.given().iter().cloned().chain(s.server.given()).collect()
}

/// A limit, or a dash where the policy does not have it or has its own default.
fn or_dash(limit: u64) -> String {
    if limit == 0 { "-".to_owned() } else { limit.to_string() }
}

/// What a step costs, in words.
fn step_time_lines(source: &StepTimeSource) -> Vec<String> {
    match source {
        StepTimeSource::Affine(affine) => vec![affine.to_string()],
        StepTimeSource::TwoRegime(form) => vec![form.to_string()],
        StepTimeSource::Roofline(source) => {
            source.about().iter().map(|line| output::one_line(line)).collect()
        }
        StepTimeSource::Fitted(file) => fitted_lines(file),
        _ => vec!["unknown form".to_owned()],
    }
}

/// A step time that was fitted: what, from where, how far it is off, and what it leaves out.
fn fitted_lines(file: &FittedStepTime) -> Vec<String> {
    let shards = match file.tensor_parallel {
        1 => String::new(),
        n => format!("TP {n}"),
    };
    let about = [&file.model, &file.gpu, &shards, &file.engine];
    let about: Vec<&str> =
        about.into_iter().map(String::as_str).filter(|t| !t.is_empty()).collect();
    let name = if about.is_empty() { String::new() } else { format!("{}: ", about.join(", ")) };
    let mut lines = vec![
        format!("{name}{} ({}), from {}", file.name, file.step.form(), file.source),
        file.step.to_string(),
    ];
    for r in &file.regimes {
        let signed =
            |x: f64| format!("{}{}", if x < 0.0 { "-" } else { "+" }, format::percent(x.abs()));
        let mut errors = vec![format!("mean {}", format::percent(r.mean_absolute))];
        for (what, value) in [
            ("p90", r.p90_absolute.map(format::percent)),
            ("p95", r.p95_absolute.map(format::percent)),
            ("worst", r.max_absolute.map(format::percent)),
            ("bias", r.bias.map(signed)),
        ] {
            errors.extend(value.map(|v| format!("{what} {v}")));
        }
        lines.push(format!(
            "{}: {}, error {}; up to {} prompt tokens, {} decodes and {} context tokens a step",
            r.regime,
            format::things(r.points, "point"),
            errors.join(", "),
            format::plain(r.prefill_tokens[1]),
            format::plain(r.decodes[1]),
            format::plain(r.context[1]),
        ));
    }
    lines.extend(file.limits.iter().cloned());
    lines.into_iter().map(|l| output::one_line(&l)).collect()
}

/// What a step costs, in a word.
pub(super) fn step_time_name(source: &StepTimeSource) -> String {
    match source {
        StepTimeSource::Affine(affine) => affine.to_string(),
        StepTimeSource::TwoRegime(form) => form.to_string(),
        StepTimeSource::Roofline(source) => output::one_line(&source.to_string()),
        StepTimeSource::Fitted(file) => output::one_line(&file.name),
        _ => "unknown".to_owned(),
    }
}

/// The load of a run, and what may be said of it.
fn load_lines(run: &Simulated) -> Vec<String> {
    let mut lines = match &run.pool_loads {
        Some([prefill, decode]) => {
            let named = |name, load| {
                let lines = one_load_lines(run, load).into_iter();
                lines.map(move |line| format!("{name}: {line}"))
            };
            named("prefill", prefill).chain(named("decode", decode)).collect()
        }
        None => one_load_lines(run, &run.load),
    };
    lines.extend(run.overload.map(|overload| overload.says()));
    if level(run) == Some(LoadLevel::NearSaturation) {
        lines.push(
            "near saturation: a few per cent of step time become tens of per cent of latency"
                .to_owned(),
        );
    }
    lines
}

/// One load from two sides.
fn one_load_lines(run: &Simulated, load: &OfferedLoad) -> Vec<String> {
    let pools = run.setting.pools.is_some();
    let shown = |x: Option<f64>| x.map_or("-".to_owned(), |x| format::significant(x, 3));
    let blocks = if run.statistics.kv.is_some() { " and on free KV blocks" } else { "" };
    let demand = load.saturated_demand_s.map_or_else(
        || format!("how long a request keeps its place depends on the others{blocks}"),
        |s| format!("each takes {} of a server with a full batch", report_text::time(s)),
    );
    let mut lines = vec![match load.arrival_rate {
        Some(rate) => {
            let rate = format::significant(rate, 3);
            let at = if run.setting.replicas > 1 || pools { " at each replica" } else { "" };
            match load.rho() {
                Some(rho) => {
                    format!("rho {}: {rate}/s arrive{at}, {demand}", format::significant(rho, 3))
                }
                None => format!("{rate}/s arrive{at}; no rho: {demand}"),
            }
        }
        None => format!("no arrival rate, as all arrive at one instant; {demand}"),
    }];
    lines.push(match (load.relative(), load.saturated_rate) {
        (Some(relative), _) => format!(
            "{} of the {}/s that are completed while a queue is never empty",
            format::percent(relative),
            shown(load.saturated_rate)
        ),
        (None, Some(_)) => {
            format!("{}/s are completed while a queue is never empty", shown(load.saturated_rate))
        }
        (None, None) => {
            "all requests together do not fill the batch twice, so no saturated rate can be measured"
                .to_owned()
        }
    });
    lines
}

/// The level of a load; none where too few requests came to fill the batch even all at once.
fn level(run: &Simulated) -> Option<LoadLevel> {
    run.load.relative().and_then(|_| run.load.level())
}

/// What vLLM's scheduler was told.
fn engine_line(c: &VllmConfig) -> String {
    format!(
        "vLLM {}, {}, max_num_batched_tokens {}, max_num_seqs {}, max_model_len {}, {} KV blocks of {}, prefix caching {}, chunked prefill {}",
        c.engine_version,
        if c.is_async() { "async" } else { "sync" },
        c.max_num_batched_tokens,
        c.max_num_seqs,
        c.max_model_len,
        c.num_blocks,
        c.block_size,
        on_off(c.enable_prefix_caching),
        on_off(c.enable_chunked_prefill),
    )
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Why a run is truncated.
fn truncation(run: &Simulated) -> Option<&'static str> {
    if run.end.is_truncated() && !run.is_truncated() {
        return Some("TRUNCATED after all that is measured had ended: its figures are whole");
    }
    match run.end {
        RunEnd::Completed => None,
        RunEnd::TimeLimit => Some("TRUNCATED by --until: no throughput, no goodput"),
        RunEnd::StepLimit => Some("TRUNCATED by the step limit: no throughput, no goodput"),
        _ => Some(
            "STALLED: requests are left that the policy does not serve: no throughput, no goodput",
        ),
    }
}

fn head(text: &mut String, answer: &Answer) -> Result<()> {
    writeln!(text, "{}", answer.title)?;
    if let Some(run) = answer.runs.first() {
        writeln!(text, "{}{}", format::things(run.requests as u64, "request"), seed(answer))?;
    }
    match drawn(answer) {
        Some(drawn) => line(text, "drawn", &drawn),
        None => Ok(()),
    }
}

/// What is drawn for the settings of an answer, if the requests are drawn, as far as they share it.
fn drawn(answer: &Answer) -> Option<String> {
    generate::drawn_for(&answer.settings())
}

/// The seed behind the number of requests, if they are drawn.
fn seed(answer: &Answer) -> String {
    answer.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default()
}

fn single(answer: &Answer, run: &Simulated) -> Result<String> {
    let mut text = String::new();
    head(&mut text, answer)?;
    let of: Vec<String> = settings_of(run, false)
        .iter()
        .filter(|(k, v)| !v.is_empty() && *k != "step_time" && *k != "slo")
        .filter(|(k, v)| *k != "replicas" || v != "1")
        .map(|(k, v)| format!("{k} {v}"))
        .collect();
    line(&mut text, "setting", &of.join(", "))?;
    if let Some(config) = &run.config {
        line(&mut text, "engine", &engine_line(config))?;
    }
    for (i, l) in run.remarks.iter().enumerate() {
        line(&mut text, if i == 0 { "to know" } else { "" }, l)?;
    }
    for (i, l) in step_time_lines(&run.setting.step_time).iter().enumerate() {
        line(&mut text, if i == 0 { "step time" } else { "" }, l)?;
    }
    for l in &run.beyond {
        line(&mut text, "", &format!("OUTSIDE of its range: {l}"))?;
    }
    for (i, l) in load_lines(run).iter().enumerate() {
        line(&mut text, if i == 0 { "load" } else { "" }, l)?;
    }
    if let Some(why) = truncation(run) {
        line(&mut text, "", why)?;
    }
    if let Some(measured) = measured_line(run) {
        line(&mut text, "measured", &measured)?;
    }
    if let Some(report) = &run.report {
        report_text::latency(&mut text, report, answer.confidence)?;
        if let Some(why) = no_itl(run) {
            writeln!(text, "  {why}")?;
        }
        report_text::throughput(&mut text, report)?;
    }
    resources(&mut text, answer, run)?;
    if let Some(tail) = &run.tail {
        writeln!(text, "\nWhere the time of the slowest went")?;
        for (name, says) in tail.lines(&run.setting) {
            line(&mut text, name, &says)?;
        }
    }
    diagnosis(&mut text, run)?;
    notes(&mut text, answer)?;
    findings(&mut text, run)?;
    Ok(text)
}

/// Which requests are measured, and what is left out, if anything is.
fn measured_line(run: &Simulated) -> Option<String> {
    let m = run.report.as_ref()?.measured?;
    let at = |s: f64| Seconds::new(s).map_or_else(|_| "-".to_owned(), format::duration);
    let when = match m.end_s {
        Some(end) => format!("from {} to {} after the first", at(m.start_s), at(end)),
        None => format!("{} or more after the first", at(m.start_s)),
    };
    // Where others arrive at the same instants, no time says who is measured.
    let (whom, meanwhile) = if m.by_place {
        let (from, to) = (m.from + 1, m.to);
        (format!("{from} to {to} in order of arrival"), format!("{when} arrival"))
    } else {
        (format!("those that arrive {when}"), "meanwhile".to_owned())
    };
    Some(format!(
        "{} of {}: {whom}; rates are of what is completed {meanwhile}",
        m.requests(),
        format::things(m.of as u64, "request")
    ))
}

/// Why a run has no ITL, if it has none.
fn no_itl(run: &Simulated) -> Option<&'static str> {
    let measured = run.report.as_ref().is_some_and(|r| r.measured.is_some());
    measured.then_some("ITL: none of a part of the run: gaps are counted over all of it")
}

/// What is left out of all runs, if it is the same and anything.
pub(super) fn cuts_line(settings: &[&Setting]) -> Option<String> {
    let first = settings.first()?;
    let same = settings.iter().all(|s| s.cuts == first.cuts) && !first.cuts.are_none();
    same.then(|| {
        let cuts = first.cuts.in_words();
        format!("without {cuts}; rates are of what is completed meanwhile")
    })
}

/// The findings, and the verdict as the last line; nothing where all is usable.
fn findings(text: &mut String, run: &Simulated) -> Result<()> {
    if run.findings.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nFindings")?;
    for f in &run.findings {
        let says = output::one_line(&f.says);
        writeln!(text, "  {} {:5} {says}", f.check.id, f.level.name())?;
    }
    writeln!(text, "\nverdict            {}", run.verdict)?;
    Ok(())
}

/// The runs of a row of a table, with the name of the row.
pub(super) type Named<'a> = (&'a str, Vec<&'a Simulated>);

/// In which rows some runs are, with how many of each that has several; nothing where all are.
fn which(rows: &[Named<'_>], is: impl Fn(&Simulated) -> bool) -> String {
    let counted = rows.iter().map(|(name, runs)| {
        let n = runs.iter().filter(|run| is(run)).count();
        (*name, n, runs.len())
    });
    let counted: Vec<(&str, usize, usize)> = counted.collect();
    if counted.len() < 2 || counted.iter().all(|(_, n, of)| n == of) {
        return String::new();
    }
    let some = counted.into_iter().filter(|(_, n, _)| 0 < *n);
    let some: Vec<String> = some
        .map(
            |(name, n, of)| {
                if of == 1 { name.to_owned() } else { format!("{name} in {n} of {of}") }
            },
        )
        .collect();
    format!(" ({})", few(&some.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// The findings of several runs, one line a check.
pub(super) fn findings_of_all(text: &mut String, rows: &[Named<'_>]) -> Result<()> {
    let runs: Vec<&Simulated> = rows.iter().flat_map(|(_, runs)| runs).copied().collect();
    // The first of each check stands for the others, since a title does not say what was found.
    let mut checks: Vec<(&Finding, usize)> = Vec::new();
    for finding in runs.iter().flat_map(|r| &r.findings).filter(|f| Level::Note < f.level) {
        match checks.iter_mut().find(|(f, _)| f.check.id == finding.check.id) {
            Some((_, n)) => *n += 1,
            None => checks.push((finding, 1)),
        }
    }
    checks.sort_by_key(|(f, _)| f.check.id);
    for (i, (first, n)) in checks.iter().enumerate() {
        let lead = if i == 0 { "\n" } else { "" };
        let of = runs.len();
        let (id, title) = (first.check.id, first.check.title.en);
        let says = output::one_line(&first.says);
        let first = if *n == 1 { "" } else { "the first: " };
        let rows = which(rows, |run| run.findings.iter().any(|f| f.check.id == id));
        writeln!(text, "{lead}{id} in {n} of {of} runs{rows}: {title} ({first}{says})")?;
    }
    Ok(())
}

/// The table of settings, with what stands above and below it in the text.
fn markdown(answer: &Answer) -> Result<String> {
    let mut text = format!("**{}**\n\n", answer.title);
    let mut about = String::new();
    common(&mut about, answer)?;
    for l in about.lines() {
        // A line without a label belongs to the one above it.
        let own = l.get(2..).is_some_and(|rest| !rest.starts_with(' '));
        writeln!(text, "{}- {}", if own { "" } else { "  " }, l.trim())?;
    }
    let (header, rows) = table(answer);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    writeln!(text, "\n{}", output::markdown_table(&header, &rows).trim_end())?;
    let explained = explain::explained(&answer.runs);
    for one in explained.iter().take(explain::SHOWN) {
        writeln!(text, "\n{}:\n", one.title())?;
        for (name, says) in one.lines() {
            let lead = if name.is_empty() { "  - ".to_owned() } else { format!("- {name}: ") };
            writeln!(text, "{lead}{says}")?;
        }
    }
    let mut below = String::new();
    compared_with_none(&mut below, answer, &explained)?;
    warnings(&mut below, answer)?;
    notes(&mut below, answer)?;
    for l in below.lines().filter(|l| !l.is_empty()) {
        writeln!(text, "\n{}", l.trim())?;
    }
    Ok(text)
}

fn notes(text: &mut String, answer: &Answer) -> Result<()> {
    if !answer.notes.is_empty() {
        writeln!(text, "\nHow the trace was read")?;
        for n in &answer.notes {
            writeln!(text, "  {}: {}", n.id, n.text)?;
        }
    }
    Ok(())
}

/// How full the batches are.
fn batches(text: &mut String, run: &Simulated) -> Result<()> {
    let s = &run.statistics;
    let number = |x: Option<f64>| x.map_or("-".to_owned(), format::rate);
    let share = |x: Option<f64>| x.map_or("-".to_owned(), format::percent);
    line(
        text,
        "in the system",
        &format!(
            "mean {}: {} in the batch of {}{}, {} waiting",
            number(s.mean_in_system()),
            number(s.mean_in_service()),
            s.max_num_seqs,
            if s.servers > 1 {
                format!(" on each of {} replicas", s.servers)
            } else {
                String::new()
            },
            number(s.mean_waiting())
        ),
    )?;
    if run.setting.replicas > 1 {
        for (i, l) in served::replica_lines(run.setting.router, &run.each).iter().enumerate() {
            line(text, if i == 0 { "replicas" } else { "" }, l)?;
        }
    }
    if let Some(pools) = &run.setting.pools {
        for (label, l) in pools::lines(pools, run) {
            line(text, &label, &l)?;
        }
    }
    line(
        text,
        "utilization",
        &format!(
            "{} of the batch by steps, {} by time",
            share(s.utilization_by_steps()),
            share(s.utilization_by_time())
        ),
    )
}

fn resources(text: &mut String, answer: &Answer, run: &Simulated) -> Result<()> {
    let s = &run.statistics;
    let number = |x: Option<f64>| x.map_or("-".to_owned(), format::rate);
    let share = |x: Option<f64>| x.map_or("-".to_owned(), format::percent);
    let measured = run.report.as_ref().filter(|r| r.measured.is_some());
    writeln!(text, "\nResources{}", if measured.is_some() { ", of the whole run" } else { "" })?;
    batches(text, run)?;
    if let Some(flight) = measured.and_then(|r| r.in_flight) {
        let mean = format::rate(flight.mean.get());
        let of = format::things(measured.map_or(0, |r| r.in_flight_n), "completed request");
        let says = format!("mean {mean} within the window, peak {}, over {of}", flight.peak);
        line(text, "in flight", &says)?;
    }
    line(
        text,
        "stages",
        &format!(
            "mean {} in prefill, {} in decode{}; {} prompt tokens per output token",
            number(s.mean_in_prefill()),
            number(s.mean_in_decode()),
            match s.mean_held_back().filter(|x| 0.0 < *x) {
                Some(x) => format!(", {} held back", format::rate(x)),
                None => String::new(),
            },
            number(s.prefill_decode_ratio())
        ),
    )?;
    line(
        text,
        "steps",
        &format!(
            "{}, {} of them with an event; busy {} of the time",
            s.steps,
            s.event_steps,
            share(s.busy_share())
        ),
    )?;
    let mean_tokens = s.kv_held_bytes_per_step(1);
    let mut kv = format!(
        "mean {} tokens held after a step, at most {}",
        mean_tokens.map_or("-".to_owned(), |x| format::fixed(x, 0)),
        s.kv_held_bytes_max(1)
    );
    if let Some(bytes) = answer.kv_bytes_per_token {
        let gib = |x: f64| format!("{} GiB", format::fixed(x / f64::from(1_u32 << 30), 2));
        kv.push_str(&format!(
            "; mean {}, at most {}",
            s.kv_held_bytes_per_step(bytes).map_or("-".to_owned(), gib),
            gib(s.kv_held_bytes_max(bytes) as f64)
        ));
    }
    let Some(cache) = &s.kv else { return line(text, "KV", &format!("{kv} (no limit)")) };
    line(text, "KV", &kv)?;
    line(
        text,
        "",
        &format!(
            "{} of {} blocks used by time, at most {}; OOM rate {}",
            share(s.kv_utilization()),
            cache.blocks,
            share(cache.utilization_max()),
            share(s.oom_rate())
        ),
    )?;
    // Elsewhere blocks are counted only, and nothing is found again.
    let rest = match run.config {
        Some(_) => Some(format!("refill rate {}", share(cache.refill_rate()))),
        None if cache.radix_tree => Some(format!("{} cached at the end", cache.cached_blocks)),
        None => None,
    };
    if let Some(rest) = rest {
        line(
            text,
            "",
            &format!(
                "prefix hit rate {} of {} tokens; {} blocks evicted, {rest}",
                share(cache.hit_rate()),
                cache.counters.queried_tokens,
                cache.counters.evicted_blocks,
            ),
        )?;
    }
    line(
        text,
        "preemption",
        &format!(
            "rate {}: {} of {}, {} tokens computed again",
            share(s.preemption_rate()),
            format::things(cache.preemptions, "preemption"),
            format::things(cache.preempted_requests, "request"),
            cache.recomputed_tokens
        ),
    )
}

fn diagnosis(text: &mut String, run: &Simulated) -> Result<()> {
    let s = &run.statistics;
    writeln!(text, "\nDiagnosis")?;
    line(
        text,
        "requests",
        &format!(
            "{} injected = {} completed + {} running + {} queued{}",
            s.injected,
            s.completed,
            s.running,
            s.queued,
            [("rejected", s.rejected), ("cancelled", s.cancelled), ("timed out", s.timed_out)]
                .iter()
                .filter(|(_, n)| *n > 0)
                .map(|(what, n)| format!(" + {n} {what}"))
                .collect::<String>()
        ),
    )?;
    let refused = s.refused.by_reason().into_iter().filter(|(_, n)| 0 < *n);
    let refused: Vec<String> =
        refused.map(|(why, n)| format!("{n} {}", why.replace('_', " "))).collect();
    if !refused.is_empty() {
        line(text, "refused", &refused.join(", "))?;
    }
    let little = if s.littles_law_holds() {
        "holds exactly: the area under the requests in the system is the sum of their times there"
    } else {
        "DOES NOT HOLD: this is a fault of the simulator, please report it"
    };
    line(text, "Little's law", little)?;
    match run.warm_up {
        Ok(Some(0)) => line(text, "warm-up", "none shows in TTFT (MSER-5)"),
        Ok(Some(n)) => {
            let requests = format::things(n, "request");
            let measured = run.report.as_ref().and_then(|r| r.measured);
            let cut = match measured.map(|m| m.from) {
                None | Some(0) => "not cut".to_owned(),
                Some(from) => format!("{from} are cut"),
            };
            line(text, "warm-up", &format!("the first {requests}, by TTFT (MSER-5); {cut}"))
        }
        Ok(None) => line(
            text,
            "warm-up",
            "no steady part shows in TTFT (MSER-5): the run is too short, or has no steady state",
        ),
        // Too few requests to tell.
        Err(_) => Ok(()),
    }
}

/// A percentile of a distribution, in seconds.
pub(super) fn percentile(report: Option<&Report>, name: &str, p: usize) -> Option<f64> {
    let of = |d: &Distribution| Some(d.figures.as_ref()?.percentiles.get(p)?.value);
    report.and_then(|r| r.latency.iter().find(|d| d.name == name)).and_then(of)
}

/// A percentile for a table.
fn figure(report: Option<&Report>, name: &str, p: usize) -> String {
    percentile(report, name, p).map_or("-".to_owned(), report_text::time)
}

/// Name and number of requests that were not served.
type Lost = (&'static str, fn(&Simulated) -> u64);

const LOST: [Lost; 3] = [
    ("refused", |r| r.statistics.rejected),
    ("cancelled", |r| r.statistics.cancelled),
    ("timed out", |r| r.statistics.timed_out),
];

/// One row a setting: what differs between them, then the figures.
fn table(answer: &Answer) -> (Vec<String>, Vec<Vec<String>>) {
    let settings = answer.settings();
    let several = several(&settings);
    // Of the options given to a policy, those that all runs share are not repeated in each row.
    let common = shared_options(&settings);
    let set = |run: &Simulated| {
        let mut set = settings_of(run, several);
        for (_, value) in set.iter_mut().filter(|(name, _)| *name == "policy") {
            *value = policy_name(&run.setting, |given| !common.contains(given));
        }
        set
    };
    let all: Vec<Vec<(&str, String)>> = answer.runs.iter().map(set).collect();
    let names: Vec<&str> =
        all.first().map(|set| set.iter().map(|(name, _)| *name).collect()).unwrap_or_default();
    let varies = |i: usize| all.iter().any(|s| s[i].1 != all[0][i].1);
    // Where nothing differs the batch and chunk are still worth a look.
    let is_shown = |i: usize| ["max_num_seqs", "chunk"].contains(&names[i]) || varies(i);
    let shown: Vec<usize> = (0..names.len()).filter(|&i| is_shown(i)).collect();
    let with_slo = answer.runs.iter().any(|r| !r.setting.slo.is_empty());
    let mut header: Vec<String> = shown.iter().map(|&i| names[i].to_owned()).collect();
    let figures = ["TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "ITL p99", "E2E p99"];
    for h in figures.into_iter().chain(["req/s", "tok/s"]) {
        header.push(h.to_owned());
    }
    if with_slo {
        header.extend(["goodput req/s".to_owned(), "attainment".to_owned()]);
    }
    let has_targets = |r: &Simulated| {
        r.report.as_ref().and_then(|r| r.goodput.as_ref()).is_some_and(|g| !g.targets.is_empty())
    };
    let with_targets = answer.runs.iter().any(has_targets);
    if with_targets {
        header.push("targets".to_owned());
    }
    let measured = |r: &Simulated| r.report.as_ref().and_then(|r| r.measured);
    let with_measured = answer.runs.iter().any(|r| measured(r).is_some());
    if with_measured {
        header.push("measured".to_owned());
    }
    // Who is refused or gives up is in no latency, nor in a share of what is completed.
    let lost: Vec<Lost> =
        LOST.into_iter().filter(|(_, of)| answer.runs.iter().any(|r| 0 < of(r))).collect();
    header.extend(lost.iter().map(|(name, _)| (*name).to_owned()));
    let hits = |r: &Simulated| r.statistics.kv.and_then(|kv| kv.hit_rate());
    let with_hits = answer.runs.iter().any(|r| hits(r).is_some_and(|rate| 0.0 < rate));
    if with_hits {
        header.push("hit rate".to_owned());
    }
    header.extend(["batch by time".to_owned(), "load".to_owned()]);
    let rows = answer
        .runs
        .iter()
        .zip(&all)
        .map(|(run, set)| {
            let report = run.report.as_ref();
            let mut row: Vec<String> = shown.iter().map(|&i| set[i].1.clone()).collect();
            row.extend([
                figure(report, "ttft", 0),
                figure(report, "ttft", 3),
                figure(report, "tpot", 0),
                figure(report, "tpot", 3),
                figure(report, "itl", 3),
                figure(report, "e2e", 3),
            ]);
            let rate = |x: Option<f64>| x.map_or("-".to_owned(), format::rate);
            let throughput = report.map(|r| &r.throughput);
            row.push(rate(throughput.and_then(|t| t.requests).map(Quantity::number)));
            row.push(rate(throughput.and_then(|t| t.output).map(Quantity::number)));
            if with_slo {
                let g = report.and_then(|r| r.goodput.as_ref());
                row.push(rate(g.and_then(|g| g.rate).map(Quantity::number)));
                // Not the ratio, which has only the completed for its base: who is lost is a miss.
                row.push(g.and_then(|g| g.attainment).map_or("-".to_owned(), format::percent));
            }
            if with_targets {
                let g = report.and_then(|r| r.goodput.as_ref());
                let answers: Vec<&str> =
                    g.iter().flat_map(|g| &g.targets).map(|t| t.answer.name()).collect();
                row.push(if answers.is_empty() { "-".to_owned() } else { answers.join(", ") });
            }
            if with_measured {
                let of = measured(run).map_or(run.statistics.injected, |m| m.requests());
                row.push(format!("{of} of {}", run.statistics.injected));
            }
            row.extend(lost.iter().map(|(_, of)| of(run).to_string()));
            if with_hits {
                row.push(hits(run).map_or("-".to_owned(), format::percent));
            }
            row.push(run.statistics.utilization_by_time().map_or("-".to_owned(), format::percent));
            let mark = match (run.overload, level(run)) {
                (Some(Overload::Users(_)), _) => " saturated",
                (Some(_), _) => " OVERLOADED",
                (None, Some(LoadLevel::NearSaturation)) => " near saturation",
                _ => "",
            };
            let load = run.load.relative().or(run.load.rho());
            row.push(format!("{}{mark}", load.map_or("-".to_owned(), |x| format::fixed(x, 2))));
            row
        })
        .collect();
    (header, rows)
}

/// What all runs share: workload, and settings, step time and objectives where they are the same.
fn common(text: &mut String, answer: &Answer) -> Result<()> {
    if let Some(first) = answer.runs.first() {
        let all = || answer.runs.iter().map(|r| r.requests as u64);
        let requests = requests((all().min().unwrap_or(0), all().max().unwrap_or(0)));
        line(text, "workload", &format!("{requests}{}", seed(answer)))?;
        if let Some(drawn) = drawn(answer) {
            line(text, "drawn", &drawn)?;
        }
        let settings = answer.settings();
        if let Some(shared) = shared(&settings, false) {
            line(text, "settings", &shared)?;
        }
        if answer.runs.iter().all(|r| r.setting.step_time == first.setting.step_time) {
            for (i, l) in step_time_lines(&first.setting.step_time).iter().enumerate() {
                line(text, if i == 0 { "step time" } else { "" }, l)?;
            }
        }
        if let Some(sketched) = first.report.as_ref().and_then(|r| r.sketched) {
            let error = format::percent(sketched.relative_error);
            line(text, "sketched", &format!("percentiles are off by {error} at most"))?;
        }
        if let Some(cuts) = cuts_line(&settings) {
            line(text, "measured", &cuts)?;
        }
        if !first.setting.slo.is_empty()
            && answer.runs.iter().all(|r| r.setting.slo == first.setting.slo)
        {
            line(text, "objectives", &first.setting.slo.to_string())?;
        }
    }
    Ok(())
}

/// Which runs the rules explain nothing of, since no other differs from them in the policy alone.
fn compared_with_none(
    text: &mut String,
    answer: &Answer,
    explained: &[explain::Explained<'_>],
) -> Result<()> {
    let alone = explain::alone(&answer.runs, explained);
    let names = varying(&answer.settings());
    let of: Vec<&str> = alone.iter().filter_map(|&i| names.get(i)).map(String::as_str).collect();
    if !of.is_empty() {
        writeln!(
            text,
            "\nNot compared by rules, as more than the policy differs from the others (batch limit, KV blocks, prefix cache, who is refused): {}",
            few(&of)
        )?;
    }
    if explain::wait(&answer.runs) {
        writeln!(
            text,
            "\nNot compared by rules: clients who wait for answers send a faster server more requests, and others"
        )?;
    }
    Ok(())
}

/// Some names, and how many more there are.
fn few(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names.get(..SHOWN).unwrap_or(names).join("; ");
    if 0 < more {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// What the load of some runs does to their figures.
pub(super) fn load_warnings(text: &mut String, runs: &[&Simulated]) -> Result<()> {
    let overloads = || runs.iter().filter_map(|r| r.overload);
    if overloads().any(|o| o.grows()) {
        writeln!(
            text,
            "\nAn overloaded run is no steady state: its latencies grow with the length of the run."
        )?;
    }
    if overloads().any(|o| matches!(o, Overload::Bounded { .. })) {
        writeln!(
            text,
            "\nAn overloaded run that refuses requests or loses them to time-outs has a bounded queue: its latencies are those of the others."
        )?;
    }
    if runs.iter().any(|r| level(r) == Some(LoadLevel::NearSaturation)) {
        writeln!(
            text,
            "\nNear saturation a few per cent of step time become tens of per cent of latency."
        )?;
    }
    Ok(())
}

/// That some runs were cut, and what they lack.
pub(super) fn truncation_of_all(text: &mut String, rows: &[Named<'_>]) -> Result<()> {
    let runs = || rows.iter().flat_map(|(_, runs)| runs);
    let n = runs().filter(|r| r.is_truncated()).count();
    if 0 < n {
        let (of, rows) = (runs().count(), which(rows, Simulated::is_truncated));
        writeln!(text, "\nTruncated runs have no throughput and no goodput: {n} of {of}{rows}.")?;
    }
    Ok(())
}

/// What has to be said of some rows of a table.
fn warnings(text: &mut String, answer: &Answer) -> Result<()> {
    let runs: Vec<&Simulated> = answer.runs.iter().collect();
    load_warnings(text, &runs)?;
    let names = varying(&answer.settings());
    if answer.runs.iter().any(|r| !r.beyond.is_empty()) {
        writeln!(text, "\nOutside of the range of the step time, whose error is not known there:")?;
        for (run, name) in answer.runs.iter().zip(&names).filter(|(r, _)| !r.beyond.is_empty()) {
            writeln!(text, "  {name}: {}", run.beyond.join("; "))?;
        }
    }
    let mut said: Vec<&String> = Vec::new();
    for remark in answer.runs.iter().flat_map(|r| &r.remarks) {
        if !said.contains(&remark) {
            let of: Vec<&str> = answer
                .runs
                .iter()
                .zip(&names)
                .filter(|(r, _)| r.remarks.contains(remark))
                .map(|(_, name)| name.as_str())
                .collect();
            // What holds for all of them needs no names.
            let of = if of.len() < names.len() { format!("{}: ", few(&of)) } else { String::new() };
            writeln!(text, "{}{of}{remark}", if said.is_empty() { "\n" } else { "" })?;
            said.push(remark);
        }
    }
    let named: Vec<Named<'_>> =
        names.iter().zip(&answer.runs).map(|(name, run)| (name.as_str(), vec![run])).collect();
    truncation_of_all(text, &named)?;
    findings_of_all(text, &named)
}

fn sweep(answer: &Answer) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "{}", answer.title)?;
    common(&mut text, answer)?;
    text.push('\n');
    let (header, rows) = table(answer);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    text.push_str(&output::plain_table(&header, &rows));
    let explained = explain::explained(&answer.runs);
    for one in explained.iter().take(explain::SHOWN) {
        writeln!(text, "\n{}", one.title())?;
        for (name, says) in one.lines() {
            line(&mut text, &name, &says)?;
        }
    }
    let more = explained.len().saturating_sub(explain::SHOWN);
    if 0 < more {
        writeln!(text, "\nand so for {more} more (--format json has all)")?;
    }
    compared_with_none(&mut text, answer, &explained)?;
    warnings(&mut text, answer)?;
    notes(&mut text, answer)?;
    Ok(text)
}

fn json_of(answer: &Answer) -> Result<String> {
    let several = several(&answer.settings());
    let runs: Vec<Value> = answer.runs.iter().map(|r| run_json(answer, r, several)).collect();
    let notes: Vec<Value> = answer
        .notes
        .iter()
        .map(|n| json!({ "id": n.id, "affects": n.affects, "text": n.text }))
        .collect();
    let mut json = json!({
        "schema_version": 1,
        "kind": "goodput-simulation",
        "workload": answer.title,
        "seed": answer.seed,
        "drawn": drawn(answer),
        "notes": notes,
        "runs": runs,
    });
    let explained = explain::explained(&answer.runs);
    if let (Some(map), false) = (json.as_object_mut(), explained.is_empty()) {
        let explained = explained.iter().map(explain::Explained::json).collect();
        map.insert("policies_explained".to_owned(), Value::Array(explained));
    }
    output::json_text(&json)
}

/// What a setting is, as data: numbers are numbers, and times are seconds; `several`: others have
/// other requests.
pub(super) fn setting_json(map: &mut Map<String, Value>, run: &Simulated, several: bool) {
    let setting = &run.setting;
    if let Some(drawn) = setting.drawn.as_ref().filter(|_| several) {
        map.insert("drawn".to_owned(), drawn.json(setting.users.is_some()));
    }
    map.insert("variant".to_owned(), json!(setting.name));
    map.insert("policy".to_owned(), json!(setting.policy));
    map.insert("max_num_seqs".to_owned(), json!(run.statistics.max_num_seqs));
    let chunk = (setting.chunk > 0).then_some(setting.chunk);
    map.insert("chunk_tokens".to_owned(), json!(chunk));
    if let Some(c) = &run.config {
        map.insert("engine".to_owned(), engine_json(c));
    }
    if !setting.server.given().is_empty() {
        let number = |v: String| v.parse::<u64>().map_or_else(|_| json!(v), |n| json!(n));
        let given = setting.server.given().into_iter();
        let given = given.map(|(k, v)| (k.to_owned(), number(v)));
        map.insert("server".to_owned(), Value::Object(given.collect()));
    }
    map.insert("rate_scale".to_owned(), json!(setting.rate_scale.factor()));
    if let Some(users) = setting.users {
        map.insert("users".to_owned(), json!(users));
        map.insert("think".to_owned(), json!(setting.think.to_string()));
    }
    if let Some(law) = setting.cancel {
        map.insert("cancel".to_owned(), json!(law.to_string()));
    }
    for (name, time) in setting.clients() {
        map.insert(format!("{name}_s"), json!(time.seconds()));
    }
    for (name, cut) in setting.left_out() {
        map.insert(name.to_owned(), json!(cut.to_string()));
    }
    map.insert("step_time".to_owned(), json!(step_time_name(&setting.step_time)));
    map.insert("slo".to_owned(), json!(setting.slo.to_string()));
}

/// What a run came to beside its latencies and rates: the books of its requests, and its steps.
fn simulation(answer: &Answer, s: &RunStatistics) -> Map<String, Value> {
    let refused = s.refused.by_reason().into_iter();
    let refused: Map<String, Value> = refused.map(|(why, n)| (why.to_owned(), json!(n))).collect();
    let all = [
        ("injected", json!(s.injected)),
        ("completed", json!(s.completed)),
        ("running", json!(s.running)),
        ("queued", json!(s.queued)),
        ("rejected_requests", json!(s.rejected)),
        ("timed_out_requests", json!(s.timed_out)),
        ("cancelled_requests", json!(s.cancelled)),
        ("rejected_by_reason", Value::Object(refused)),
        ("steps", json!(s.steps)),
        ("event_steps", json!(s.event_steps)),
        ("busy_share", json!(s.busy_share())),
        ("batch_utilization_by_steps", json!(s.utilization_by_steps())),
        ("batch_utilization_by_time", json!(s.utilization_by_time())),
        ("in_system_mean", json!(s.mean_in_system())),
        ("in_service_mean", json!(s.mean_in_service())),
        ("waiting_mean", json!(s.mean_waiting())),
        ("in_prefill_mean", json!(s.mean_in_prefill())),
        ("in_decode_mean", json!(s.mean_in_decode())),
        ("held_back_mean", json!(s.mean_held_back())),
        ("prefill_decode_ratio", json!(s.prefill_decode_ratio())),
        ("kv_held_tokens_mean", json!(s.kv_held_bytes_per_step(1))),
        ("kv_held_tokens_max", json!(s.kv_held_max)),
        (
            "kv_held_bytes_mean",
            json!(answer.kv_bytes_per_token.and_then(|b| s.kv_held_bytes_per_step(b))),
        ),
        ("littles_law_holds_exactly", json!(s.littles_law_holds())),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn run_json(answer: &Answer, run: &Simulated, several: bool) -> Value {
    let s = &run.statistics;
    let mut map = Map::new();
    setting_json(&mut map, run, several);
    if run.config.is_some() || !run.remarks.is_empty() {
        map.insert("remarks".to_owned(), json!(run.remarks));
    }
    if run.setting.replicas > 1 {
        let fleet = served::replicas_json(run.setting.router, &run.each);
        map.insert("fleet".to_owned(), fleet);
    }
    if let Some(pools) = &run.setting.pools {
        map.insert("disaggregation".to_owned(), pools::json(pools, run, load_json));
    }
    if let Some(tail) = &run.tail {
        map.insert("tail".to_owned(), tail.json());
    }
    map.insert("truncated".to_owned(), json!(run.end.is_truncated()));
    map.insert("overloaded".to_owned(), json!(run.is_overloaded()));
    // With a KV cache they stand there.
    let lost = [
        ("rejected_requests", s.rejected),
        ("cancelled_requests", s.cancelled),
        ("timed_out_requests", s.timed_out),
    ];
    for (key, n) in lost {
        if s.kv.is_none() && n > 0 {
            map.insert(key.to_owned(), json!(n));
        }
    }
    map.insert("outside_of_step_time_range".to_owned(), json!(run.beyond));
    let mut load = load_json(&run.load);
    if run.overload.is_some_and(|overload| !overload.grows()) {
        // Whoever is refused, gives up or waits for an answer lets the queue settle.
        load["can_be_steady"] = json!(true);
    }
    map.insert("load".to_owned(), load);
    if let Some(report) = &run.report {
        report_json::figures(&mut map, report);
    }
    if let (Some(why), Some(latency)) = (no_itl(run), map.get_mut("latency")) {
        latency["itl"] = json!({ "n": 0, "none_because": why });
    }
    map.insert("simulation".to_owned(), Value::Object(simulation(answer, s)));
    if let Some(kv) = &s.kv {
        map.insert("kv_cache".to_owned(), kv_json(s, kv, run.config.is_some()));
    }
    let findings: Vec<Value> = run.findings.iter().map(finding_json).collect();
    map.insert("findings".to_owned(), Value::Array(findings));
    map.insert(
        "verdict".to_owned(),
        json!({ "answer": run.verdict.name(), "text": run.verdict.to_string() }),
    );
    Value::Object(map)
}

fn load_json(load: &OfferedLoad) -> Value {
    json!({
        "arrival_rate_per_s": load.arrival_rate,
        "rho": load.rho(),
        "saturated_rate_per_s": load.saturated_rate,
        "relative_to_saturation": load.relative(),
        "can_be_steady": load.level().map(LoadLevel::can_be_steady),
    })
}

fn engine_json(c: &VllmConfig) -> Value {
    json!({
        "name": "vllm",
        "version": c.engine_version.to_string(),
        "async_scheduling": c.is_async(),
        "max_num_batched_tokens": c.max_num_batched_tokens,
        "max_num_seqs": c.max_num_seqs,
        "max_model_len": c.max_model_len,
        "num_gpu_blocks": c.num_blocks,
        "block_size_tokens": c.block_size,
        "enable_prefix_caching": c.enable_prefix_caching,
        "enable_chunked_prefill": c.enable_chunked_prefill,
    })
}

fn kv_json(s: &RunStatistics, kv: &KvStatistics, is_vllm: bool) -> Value {
    json!({
        "blocks": kv.blocks,
        "utilization_by_time": s.kv_utilization(),
        "utilization_max": kv.utilization_max(),
        "kv_hit_rate": kv.hit_rate(),
        "lookups": kv.counters.lookups,
        "queried_tokens": kv.counters.queried_tokens,
        "hit_tokens": kv.counters.hit_tokens,
        "registered_blocks": kv.counters.registered_blocks,
        "evicted_blocks": kv.counters.evicted_blocks,
        "cached_blocks": kv.cached_blocks,
        "refilled_blocks": kv.refilled_blocks(),
        "refill_rate": kv.refill_rate(),
        // Other policies do not try what does not fit, so that there is nothing to count.
        "failed_allocations": is_vllm.then_some(kv.counters.failed_allocations),
        "oom_rate": s.oom_rate(),
        "preemptions": kv.preemptions,
        "preempted_requests": kv.preempted_requests,
        "preemption_rate": s.preemption_rate(),
        "recomputed_tokens": kv.recomputed_tokens,
        "rejected_requests": s.rejected,
        "cancelled_requests": s.cancelled,
        "timed_out_requests": s.timed_out,
    })
}

/// The rates of the KV cache, if there is one.
fn kv_figures(s: &RunStatistics) -> Vec<(&'static str, Option<f64>)> {
    let Some(kv) = &s.kv else { return Vec::new() };
    vec![
        ("kv_utilization_by_time", s.kv_utilization()),
        ("kv_hit_rate", kv.hit_rate()),
        ("refill_rate", kv.refill_rate()),
        ("oom_rate", s.oom_rate()),
        ("preemption_rate", s.preemption_rate()),
    ]
}

/// The measured window, if something is left out, and that it has no ITL.
fn measured_figures(run: &Simulated) -> Vec<(&'static str, Option<f64>)> {
    let Some(m) = run.report.as_ref().and_then(|r| r.measured) else { return Vec::new() };
    vec![
        ("measured_requests", Some(m.requests() as f64)),
        ("measured_requests_of_run", Some(m.of as f64)),
        ("measured_start_s", Some(m.start_s)),
        ("measured_end_s", m.end_s),
        ("itl_mean_s", None),
    ]
}

/// Name and value of what a run came to, as [`simulation`] has it.
fn simulation_figures(answer: &Answer, run: &Simulated) -> Vec<(String, Option<f64>)> {
    let number = |value: &Value| value.as_f64().or(value.as_bool().map(f64::from));
    let mut figures = Vec::new();
    for (name, value) in simulation(answer, &run.statistics) {
        match value {
            Value::Object(parts) => {
                // Each reason is a figure of its own.
                let why = |part: &str| format!("rejected_{part}_requests");
                figures.extend(parts.iter().map(|(part, n)| (why(part), number(n))));
            }
            value => figures.push((name, number(&value))),
        }
    }
    figures
}

/// What is to be said of a run, in words.
fn said_figures(run: &Simulated) -> Vec<(String, String)> {
    let findings = run.findings.iter();
    let findings =
        findings.map(|f| (format!("finding_{}_{}", f.check.id, f.level.name()), &f.says));
    let remarks = run.remarks.iter().map(|says| ("remark".to_owned(), says));
    let beyond = run.beyond.iter().map(|says| ("outside_of_step_time_range".to_owned(), says));
    let all = beyond.chain(remarks).chain(findings);
    let mut said: Vec<(String, String)> =
        all.map(|(name, says)| (name, output::one_line(says))).collect();
    said.push(("verdict".to_owned(), run.verdict.to_string()));
    said
}

/// The lines of a run: what its setting is, then a figure.
fn csv_rows(answer: &Answer, run: &Simulated, several: bool) -> Vec<Vec<String>> {
    let of: Vec<String> = csv_settings(run, several).into_iter().map(|(_, v)| v).collect();
    let mut rows = Vec::new();
    for cells in run.report.iter().flat_map(csv::cells) {
        rows.push(of.iter().cloned().chain(cells).collect());
    }
    let named = |(name, value): (&str, Option<f64>)| (name.to_owned(), value);
    let loads = [
        ("rho", run.load.rho()),
        ("relative_to_saturation", run.load.relative()),
        ("truncated", Some(f64::from(run.end.is_truncated()))),
        ("overloaded", Some(f64::from(run.is_overloaded()))),
    ];
    let figures = loads
        .into_iter()
        .map(named)
        .chain(simulation_figures(answer, run))
        .chain(kv_figures(&run.statistics).into_iter().map(named))
        .chain(measured_figures(run).into_iter().map(named))
        .map(|(name, value)| (name, value.map(|x| x.to_string()).unwrap_or_default()));
    for (name, value) in figures.chain(said_figures(run)) {
        let rest = [name, value, String::new(), String::new(), String::new()];
        rows.push(of.iter().cloned().chain(rest).collect());
    }
    rows
}

fn csv_of(answer: &Answer) -> Result<String> {
    let several = several(&answer.settings());
    let of = answer.runs.first().map(|run| csv_settings(run, several));
    let mut header: Vec<&str> = of.iter().flatten().map(|(name, _)| *name).collect();
    header.extend(["figure", "value", "low", "high", "n"]);
    // The lines of all runs together would take several times the memory of the text.
    let rows = answer.runs.iter().flat_map(|run| csv_rows(answer, run, several));
    output::csv_stream(&header, rows)
}
