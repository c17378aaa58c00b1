//! The report for reading.

use std::fmt::Write;

use anyhow::Result;
use metrics_core::Seconds;
use metrics_core::format;
use metrics_core::interval::{Confidence, Interval, IntervalMethod, NoInterval};
use metrics_core::measured::Measured;
use metrics_core::report::{Distribution, Figure, Goodput, Report, Throughput, distribution_title};
use metrics_core::timeline::Outcome;
use metrics_core::units::Quantity;
use serving_io::run::{RequestRate, Run};

use super::Reported;
use crate::output::{one_line, plain_table};

/// Width of the labels.
const LABEL: usize = 17;

pub fn render(reported: &[Reported<'_>]) -> Result<String> {
    let mut text = String::new();
    for (i, r) in reported.iter().enumerate() {
        if 0 < i {
            text.push('\n');
        }
        header(&mut text, r)?;
        match &r.report {
            Some(report) => {
                latency(&mut text, report, r.confidence)?;
                throughput(&mut text, report)?;
                resources(&mut text, report)?;
                r.believed.steady_text(&mut text)?;
                diagnosis(&mut text, report)?;
            }
            None => stated(&mut text, r)?,
        }
        remarks(&mut text, r.run, r.report.is_some())?;
        r.believed.text(&mut text)?;
    }
    Ok(text)
}

/// A line with its label in a column of its own.
fn line(text: &mut String, label: &str, content: &str) -> Result<()> {
    Ok(writeln!(text, "  {label:LABEL$}{content}")?)
}

/// What the file is, what the run was told to do, and how its requests ended.
pub fn header(text: &mut String, r: &Reported<'_>) -> Result<()> {
    let of = if r.file.runs.len() == 1 {
        String::new()
    } else {
        format!(", run {} of {}", r.number, r.file.runs.len())
    };
    writeln!(text, "{}{of}: {}", one_line(&r.file.name), r.origin())?;
    let declared = &r.run.declared;
    let mut facts = Vec::new();
    facts.extend(declared.model.clone());
    facts.extend(declared.label.clone());
    facts.extend(declared.request_rate.map(|rate| match rate {
        RequestRate::PerSecond(x) => format!("open loop at {} req/s", format::value(x)),
        RequestRate::Infinite => "no rate limit".to_owned(),
    }));
    facts.extend(declared.max_concurrency.map(|n| format!("at most {n} in flight")));
    if !facts.is_empty() {
        writeln!(text, "{}", one_line(&facts.join(", ")))?;
    }
    if let Some(report) = &r.report {
        let mut counts = vec![format::things(report.sent(), "request")];
        counts.extend(
            report
                .outcomes
                .iter()
                .filter(|(_, n)| 0 < *n)
                .map(|(o, n)| format!("{n} {}", o.name().replace('_', " "))),
        );
        let window = match &report.window {
            Some(w) => format!("window {} ({})", format::duration(w.length), w.basis),
            None if r.run.truncated => "truncated, so without rates".to_owned(),
            None => "no window: no duration, and no span from an arrival to a later last token"
                .to_owned(),
        };
        writeln!(text, "{}; {window}", counts.join(", "))?;
    }
    Ok(())
}

/// A figure of a distribution: a time, whatever it is per.
pub fn time(x: f64) -> String {
    Seconds::new(x).map_or_else(|_| "-".to_owned(), format::time)
}

/// The name of a distribution for reading.
fn title(d: &Distribution) -> &'static str {
    distribution_title(d.name)
}

/// An interval in the cells under its figures; a bound that the sample cannot give stays open.
fn bounds(figure: &Figure) -> String {
    match &figure.interval {
        Ok(i) => match (i.low, i.high) {
            (Some(low), Some(high)) => format!("{}..{}", time(low), time(high)),
            (Some(low), None) => format!("{}..", time(low)),
            (None, Some(high)) => format!("..{}", time(high)),
            (None, None) => "-".to_owned(),
        },
        Err(_) => "-".to_owned(),
    }
}

/// The latency layer.
pub fn latency(text: &mut String, report: &Report, confidence: Confidence) -> Result<()> {
    match report.sketched {
        Some(s) => writeln!(
            text,
            "\nLatency (sketched: percentiles are off by {} at most)",
            format::percent(s.relative_error)
        )?,
        None => writeln!(text, "\nLatency")?,
    }
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut none = Vec::new();
    for d in &report.latency {
        let label = format!("  {}", title(d));
        let Some(f) = &d.figures else {
            rows.push(
                [label]
                    .into_iter()
                    .chain(std::iter::repeat_n("-".to_owned(), 6))
                    .chain(["0".to_owned()])
                    .collect(),
            );
            continue;
        };
        let percentile = |i: usize| f.percentiles.get(i).map_or("-".to_owned(), |x| time(x.value));
        rows.push(vec![
            label,
            percentile(0),
            percentile(1),
            percentile(2),
            percentile(3),
            time(f.max),
            time(f.mean.value),
            f.n.to_string(),
        ]);
        let all = || f.percentiles.iter().chain([&f.mean]);
        if all().all(|x| x.interval.is_err()) {
            none.extend(
                all().find_map(|x| x.interval.as_ref().err()).map(|why| (title(d), why.clone())),
            );
            left_out(&mut notes, d);
            continue;
        }
        let bound = |i: usize| f.percentiles.get(i).map_or("-".to_owned(), bounds);
        rows.push(vec![
            format!("    {}", format::percent(f64::from(confidence)).replace(".0", "")),
            bound(0),
            bound(1),
            bound(2),
            bound(3),
            String::new(),
            bounds(&f.mean),
            String::new(),
        ]);
        notes.extend(interval_note(d, all()));
        left_out(&mut notes, d);
    }
    text.push_str(&plain_table(&["", "p50", "p90", "p95", "p99", "max", "mean", "n"], &rows));
    for note in notes {
        writeln!(text, "  {note}")?;
    }
    for note in without_intervals(&none) {
        writeln!(text, "  {note}")?;
    }
    Ok(())
}

/// Why whole rows have no interval, in one line where the reason is the same.
fn without_intervals(none: &[(&str, NoInterval)]) -> Vec<String> {
    let mut short = Vec::new();
    let mut others: Vec<(String, Vec<&str>)> = Vec::new();
    for (title, why) in none {
        match why {
            NoInterval::TooShort { samples, effective, .. }
                if *effective < 0.9 * *samples as f64 =>
            {
                short.push(format!("{title} {samples} like {}", format::fixed(*effective, 0)));
            }
            other => {
                let why = other.to_string();
                match others.iter_mut().find(|(w, _)| *w == why) {
                    Some((_, titles)) => titles.push(title),
                    None => others.push((why, vec![title])),
                }
            }
        }
    }
    let mut notes: Vec<String> = others
        .into_iter()
        .map(|(why, titles)| format!("{}: no intervals: {why}", titles.join(", ")))
        .collect();
    if !short.is_empty() {
        notes.insert(
            0,
            format!(
                "no intervals: neighbours are alike, so the samples are worth few independent ones ({}); 100 needed, 1000 for p99",
                short.join(", ")
            ),
        );
    }
    notes
}

/// What a row does not hold.
fn left_out(notes: &mut Vec<String>, d: &Distribution) {
    if 0 < d.one_token_left_out {
        let answers = format::things(d.one_token_left_out, "one-token answer");
        notes.push(format!("{}: {answers} left out", title(d)));
    }
    if 0 < d.unknown_left_out {
        let requests = format::things(d.unknown_left_out, "completed request");
        notes.push(format!("{}: {requests} without it", title(d)));
    }
    if d.name == "inter_chunk_gap" {
        notes.push(
            "chunk gap: between the chunks of the stream, pooled; a chunk may hold several tokens"
                .to_owned(),
        );
    }
}

/// How the intervals of a row were formed, and which of them there is not.
fn interval_note<'a>(d: &Distribution, figures: impl Iterator<Item = &'a Figure>) -> Vec<String> {
    let mut blocks = None;
    let mut open = Vec::new();
    let mut short: Option<(u64, f64, f64, Vec<String>)> = None;
    let mut notes = Vec::new();
    for figure in figures {
        let name = figure.p.map_or("mean".to_owned(), |p| format!("p{}", format::value(p * 100.0)));
        match &figure.interval {
            Ok(i) if i.high.is_none() => open.push(name),
            Ok(i) if i.method == IntervalMethod::Blocks => blocks = i.blocks.or(blocks),
            Ok(_) => {}
            Err(NoInterval::TooShort { samples, effective, needed }) => {
                short.get_or_insert((*samples, *effective, *needed, Vec::new())).3.push(name);
            }
            Err(reason) => notes.push(format!("{}: no interval for {name}: {reason}", title(d))),
        }
    }
    if let Some(n) = blocks {
        notes.push(format!(
            "{}: neighbours are alike, so intervals come from {n} blocks of the run",
            title(d)
        ));
    }
    if !open.is_empty() {
        notes.push(format!(
            "{}: too few samples for an upper bound of {}",
            title(d),
            open.join(", ")
        ));
    }
    if let Some((samples, effective, needed, names)) = short {
        notes.push(format!(
            "{}: no interval for {}: {}",
            title(d),
            names.join(", "),
            NoInterval::TooShort { samples, effective, needed },
        ));
    }
    notes
}

/// A rate with its unit, or a dash.
fn rate(x: Option<impl Quantity>, unit: &str) -> String {
    x.map_or_else(|| "-".to_owned(), |x| format!("{} {unit}", format::rate(x.number())))
}

/// The throughput layer.
pub fn throughput(text: &mut String, report: &Report) -> Result<()> {
    let t: &Throughput = &report.throughput;
    writeln!(text, "\nThroughput")?;
    // Rates of a part of a run count what is completed in it, and not who arrives in it.
    let (where_, whose) = match report.measured {
        Some(_) => (" within the window", "requests completed within it"),
        None => ("", "completed requests"),
    };
    let completed = format!("{:15} {} completed{where_}", rate(t.requests, "req/s"), t.completed);
    line(text, "requests", &completed)?;
    let tokens = |n: Option<u64>| {
        n.map_or("token counts unknown".to_owned(), |n| {
            format!("{} of {whose}", format::things(n, "token"))
        })
    };
    line(text, "output", &format!("{:15} {}", rate(t.output, "tok/s"), tokens(t.output_tokens)))?;
    if t.input_tokens.is_some() {
        line(
            text,
            "total",
            &format!("{:15} input and output tokens together", rate(t.total, "tok/s")),
        )?;
    }
    for (label, lengths) in [("output length", &t.output_length), ("input length", &t.input_length)]
    {
        let Some(l) = lengths else { continue };
        let percentiles: Vec<String> = ["p50", "p90", "p95", "p99"]
            .iter()
            .zip(&l.percentiles)
            .map(|(name, x)| format!("{name} {}", format::count(*x)))
            .collect();
        let content = format!(
            "{}, max {}, mean {} tokens (nearest rank)",
            percentiles.join(", "),
            format::count(l.max),
            format::count(l.mean)
        );
        line(text, label, &content)?;
    }
    if let Some(g) = &report.goodput {
        goodput(text, g, report.measured.as_ref())?;
    }
    Ok(())
}

fn goodput(text: &mut String, g: &Goodput, measured: Option<&Measured>) -> Result<()> {
    line(text, "objectives", &g.slo.to_string())?;
    if !g.has_limits() {
        line(text, "goodput", "-  no limit on single requests; ttft<200ms would be one")?;
    } else if 0 < g.unknown {
        line(
            text,
            "goodput",
            &format!(
                "-  {} without a latency that a limit needs",
                format::things(g.unknown, "completed request")
            ),
        )?;
    } else {
        let one = if g.good_one_token == 0 {
            String::new()
        } else {
            let answer = if g.good_one_token == 1 { "answer" } else { "answers" };
            format!(", {} of them one-token {answer} (TPOT 0)", g.good_one_token)
        };
        let good = match measured.and_then(|m| m.good) {
            Some(n) => format!("{n} good and completed within the window"),
            None => format!("{} good{one}", g.good),
        };
        line(text, "goodput", &format!("{:15} {good}", rate(g.rate, "req/s")))?;
        if g.tokens.is_some() {
            line(
                text,
                "",
                &format!("{:15} output tokens of good requests", rate(g.tokens, "tok/s")),
            )?;
        }
        let share = |x: Option<f64>| x.map_or("-".to_owned(), format::percent);
        line(
            text,
            "goodput ratio",
            &format!("{:15} {} of {} completed", share(g.ratio), g.good, g.completed),
        )?;
        let interval = match &g.attainment_interval {
            Some(i) => {
                let narrow =
                    if g.too_narrow.is_some() { " if requests were independent" } else { "" };
                format!(", {} interval {}{narrow}", confidence(i.confidence), share_bounds(i))
            }
            None => {
                g.too_narrow.as_ref().map_or(String::new(), |why| format!(", no interval: {why}"))
            }
        };
        line(
            text,
            "attainment",
            &format!("{:15} {} of {} finished{interval}", share(g.attainment), g.good, g.finished),
        )?;
    }
    for (i, m) in g.marginals.iter().enumerate() {
        let binding =
            if g.binding == Some(i) && 1 < g.marginals.len() { ", the binding limit" } else { "" };
        let share = m.share.map_or("-".to_owned(), format::percent);
        let label = if i == 0 { "each limit" } else { "" };
        line(
            text,
            label,
            &if m.share.is_some() {
                format!("{share:15} {} of {} finished meet {}{binding}", m.met, g.finished, m.limit)
            } else {
                format!("{share:15} unknown how many of {} finished meet {}", g.finished, m.limit)
            },
        )?;
    }
    for t in &g.targets {
        let answer = t.answer.name();
        let is_share = matches!(t.slo, metrics_core::slo::Slo::Attainment { .. });
        let shown = |x: f64| if is_share { format::percent(x) } else { time(x) };
        let observed = t.observed.map_or("-".to_owned(), shown);
        let interval = match &t.interval {
            Ok(i) => {
                let low = i.low.map_or("..".to_owned(), shown);
                let high = i.high.map_or("..".to_owned(), shown);
                format!("{} interval {low} to {high}", confidence(i.confidence))
            }
            Err(reason) => format!("no interval: {reason}"),
        };
        line(text, "target", &format!("{}: {answer}, observed {observed}, {interval}", t.slo))?;
    }
    Ok(())
}

/// A confidence without decimals where it has none.
fn confidence(c: Confidence) -> String {
    format!("{} %", format::value((f64::from(c) * 1e6).round() / 1e4))
}

fn share_bounds(i: &Interval) -> String {
    let bound = |x: Option<f64>| x.map_or("..".to_owned(), format::percent);
    format!("{} to {}", bound(i.low), bound(i.high))
}

fn resources(text: &mut String, report: &Report) -> Result<()> {
    writeln!(text, "\nResources")?;
    let sketched = report.sketched.and_then(|s| s.in_flight_mean);
    match report.in_flight {
        None if sketched.is_some() => line(
            text,
            "in flight",
            &format!(
                "mean {} by Little's law, over {}; a sketch does not know the peak",
                sketched.map_or("-".to_owned(), |n| format::rate(n.get())),
                format::things(report.in_flight_n, "completed request")
            ),
        )?,
        Some(n) => line(
            text,
            "in flight",
            &format!(
                "mean {}, peak {}, over {}",
                format::rate(n.mean.get()),
                n.peak,
                format::things(report.in_flight_n, "completed request")
            ),
        )?,
        None => line(text, "in flight", "-  no completed request with an arrival and a later end")?,
    }
    line(
        text,
        "not in the file",
        "batch utilization, KV utilization, GPU utilization: scrape the engine's /metrics",
    )
}

fn diagnosis(text: &mut String, report: &Report) -> Result<()> {
    writeln!(text, "\nDiagnosis")?;
    let sent = report.sent();
    for outcome in Outcome::ALL.into_iter().filter(|o| *o != Outcome::Completed) {
        let n = report.ended(outcome);
        if 0 < n {
            let what =
                if outcome.is_miss() { "a miss of every objective" } else { "outside attainment" };
            let share = format::percent(n as f64 / sent as f64);
            line(
                text,
                &outcome.name().replace('_', " "),
                &format!("{n} of {sent} ({share}), {what}"),
            )?;
        }
    }
    line(
        text,
        "not in the file",
        "queue depth, hit rate, refill rate, preemptions: scrape the engine's /metrics",
    )
}

/// The tool's own figures, where nothing can be recomputed.
pub fn stated(text: &mut String, r: &Reported<'_>) -> Result<()> {
    let counts = &r.run.counts;
    let shown = |x: Option<u64>| x.map_or("-".to_owned(), |n| n.to_string());
    writeln!(text, "{} completed, {} failed", shown(counts.completed), shown(counts.failed))?;
    if !r.slo.is_empty() {
        writeln!(
            text,
            "\nThe file has no detail per request, so goodput under {} cannot be computed.",
            r.slo
        )?;
    }
    writeln!(text, "\nThe tool's own figures, not recomputed")?;
    let all = r.run.stated.len();
    // A tool writes up to two thousand figures: those that people read come to a screen.
    let read: Vec<&str> =
        serving_io::stated::figures(r.run).iter().filter(|f| f.is_main()).map(|f| f.name).collect();
    let few = all <= MOST_STATED || read.is_empty();
    let rows: Vec<Vec<String>> = r
        .run
        .stated
        .iter()
        .filter(|(name, _)| few || read.contains(name))
        .map(|(name, x)| vec![format!("  {}", one_line(name)), format::value(x)])
        .collect();
    text.push_str(&plain_table(&["", ""], &rows));
    if rows.len() < all {
        let more = format::things((all - rows.len()) as u64, "more figure");
        writeln!(text, "  {more} in --format json")?;
    }
    Ok(())
}

/// As many stated figures as a screen holds are all shown.
const MOST_STATED: usize = 40;

fn remarks(text: &mut String, run: &Run, has_report: bool) -> Result<()> {
    if run.notes.is_empty() && run.missing.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nHow the file was read")?;
    for note in &run.notes {
        writeln!(text, "  {}: {}", note.id, one_line(&note.text))?;
    }
    for m in &run.missing {
        writeln!(text, "  not in the file: {}; {}", m.what, m.with)?;
    }
    if has_report && !run.stated.is_empty() && !run.missing.is_empty() {
        let figures = format::things(run.stated.len() as u64, "figure");
        writeln!(
            text,
            "  {figures} that the tool itself states are in --format json, not recomputed"
        )?;
    }
    Ok(())
}
