//! A fit as text, JSON, CSV or Markdown.

use std::fmt::Write;

use anyhow::Result;
use capacity::fit::{Errors, Form, Point, Regime, RegimeFit, Source, Term};
use metrics_core::Seconds;
use metrics_core::format;
use metrics_core::validity::Finding;
use serde_json::{Value, json};
use serving_io::error::columns_shown;

use super::{Answer, Check, Group};
use crate::output::{self, Format, one_line};

/// The answer in one form.
pub fn render(answer: &Answer, format: Format) -> Result<String> {
    match format {
        Format::Json => json_of(answer),
        Format::Csv => {
            let (header, rows) = table(answer, true);
            output::csv_text(&header, &rows)
        }
        Format::Md => {
            let (header, rows) = table(answer, false);
            let mut text = String::new();
            sources(&mut text, answer)?;
            let mut md: String = text.lines().map(|l| format!("- {}\n", l.trim())).collect();
            md.push_str(&format!("\n{}", output::markdown_table(&header, &rows)));
            Ok(md)
        }
        Format::Text => text_of(answer),
    }
}

/// A line with its label in a column of its own.
pub(super) fn line(text: &mut String, label: &str, content: &str) -> Result<()> {
    Ok(writeln!(text, "  {label:15}{}", one_line(content))?)
}

/// An error with its sign.
pub(super) fn signed(error: f64) -> String {
    let text = format::percent(error.abs());
    if error < 0.0 { format!("-{text}") } else { format!("+{text}") }
}

/// Seconds in the unit that suits them.
fn time(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0".to_owned();
    }
    for (unit, size) in [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("ps", 1e-12)] {
        if size <= seconds {
            return format!("{} {unit}", format::significant(seconds / size, 4));
        }
    }
    format!("{} fs", format::significant(seconds / 1e-15, 4))
}

fn regime_name(fit: &RegimeFit) -> String {
    let name = match fit.regime {
        Some(Regime::Decode) => "pure decode",
        Some(Regime::Prefill) => "with prefill",
        Some(Regime::Mean) => "mean steps of closed loops",
        None => "all steps",
    };
    match fit.up_to {
        Some(b) => format!("{name}, B up to {}", format::plain(b)),
        None => name.to_owned(),
    }
}

fn coefficients(fit: &RegimeFit) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (term, x) in &fit.coefficients {
        let per = if *term == Term::Base { String::new() } else { format!(" per {}", term.unit()) };
        parts.push(format!("{} {}{per}", term.symbol(), time(*x)));
    }
    if let Some(w) = fit.floor {
        parts.push(format!("w {}", time(w)));
    }
    parts.join(", ")
}

fn errors(e: &Errors) -> String {
    format!(
        "MAPE {}, p90 {}, worst {} at {}, bias {}",
        format::percent(e.mean_absolute),
        format::percent(e.p90_absolute),
        signed(e.worst),
        e.worst_point,
        signed(e.bias)
    )
}

fn sources(text: &mut String, answer: &Answer) -> Result<()> {
    for s in &answer.sources {
        let n = format::things(s.points.len() as u64, "point");
        writeln!(text, "{}: {}, {n}", one_line(&s.name), s.kind)?;
        not_used(text, s)?;
        for a in &s.assumed {
            line(text, "assumed", a)?;
        }
    }
    Ok(())
}

/// What of a file gives no point.
fn not_used(text: &mut String, s: &Source) -> Result<()> {
    for e in &s.excluded {
        let n = format::things(e.rows, "row");
        line(text, "left out", &format!("{n}: {} (first: {})", e.why, e.first))?;
    }
    if !s.unread.is_empty() {
        let columns = format!("no field is called so, not read: {}", columns_shown(&s.unread));
        line(text, "note", &columns)?;
    }
    Ok(())
}

fn text_of(answer: &Answer) -> Result<String> {
    let mut text = String::new();
    sources(&mut text, answer)?;
    writeln!(text, "\n{}: {}", answer.form.name(), answer.form.formula())?;
    if answer.groups.len() <= super::FEW {
        for group in &answer.groups {
            one(&mut text, group)?;
        }
    } else {
        writeln!(text)?;
        let (header, rows) = table(answer, false);
        text.push_str(&output::plain_table(&header, &rows));
        overall(&mut text, answer)?;
    }
    let (count, first) = &answer.skipped;
    if let Some(first) = first {
        let n = format::things(*count, "deployment");
        writeln!(text, "\n{n} without a fit, the first: {}", one_line(first))?;
    }
    match &answer.bounds {
        None => {}
        Some(Err(why)) => {
            writeln!(text, "\nnot held against what the hardware allows: {}", one_line(why))?;
        }
        Some(Ok(findings)) if findings.is_empty() => {
            writeln!(text, "\nno step is faster than bandwidth and FLOP allow, none all too slow")?;
        }
        Some(Ok(findings)) => {
            writeln!(text)?;
            for f in findings {
                finding(&mut text, f)?;
            }
        }
    }
    for check in &answer.checks {
        checked(&mut text, answer, check)?;
    }
    if let Some(path) = &answer.written {
        writeln!(text, "\nwrote {path}: goodput sim --step-time {path}")?;
    }
    Ok(text)
}

/// The mean and the median of the deployments' errors, by regime.
fn overall(text: &mut String, answer: &Answer) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    let all: Vec<(String, f64)> = answer
        .groups
        .iter()
        .flat_map(|g| g.fitted.parts())
        .map(|f| (regime_name(f), f.errors.mean_absolute))
        .collect();
    for (name, _) in &all {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    writeln!(text)?;
    for name in names {
        let mut of: Vec<f64> = all.iter().filter(|(n, _)| *n == name).map(|(_, e)| *e).collect();
        of.sort_by(f64::total_cmp);
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        writeln!(
            text,
            "{name}: MAPE of {} deployments: mean {}, median {}, worst {}",
            of.len(),
            format::percent(mean),
            format::percent(of[of.len() / 2]),
            format::percent(of[of.len() - 1])
        )?;
    }
    Ok(())
}

/// One deployment in full.
fn one(text: &mut String, group: &Group) -> Result<()> {
    for fit in group.fitted.parts() {
        let name = if group.name.is_empty() {
            String::new()
        } else {
            format!("{}: ", one_line(&group.name))
        };
        let n = format::things(fit.errors.points, "point");
        writeln!(text, "\n{name}{}, {n}", regime_name(fit))?;
        line(text, "coefficients", &coefficients(fit))?;
        line(text, "error", &errors(&fit.errors))?;
        if let Some((r2, e)) = &fit.ordinary {
            line(
                text,
                "least squares",
                &format!(
                    "ordinary, for comparison: R2 {}, MAPE {}, worst {}",
                    format::fixed(*r2, 3),
                    format::percent(e.mean_absolute),
                    signed(e.worst)
                ),
            )?;
        }
        line(text, "known for", &ranges(fit))?;
        for w in &fit.weaknesses {
            line(text, "not told", &w.text())?;
        }
        if let Some(j) = fit.jump {
            line(
                text,
                "jump",
                &format!(
                    "steps are {} ({}) longer above B {}, from {} on: no CUDA graph was captured for larger batches?",
                    time(j.seconds),
                    format::percent(j.share),
                    format::plain(j.below),
                    format::plain(j.above)
                ),
            )?;
        }
        let (count, named) = &fit.outliers;
        for (i, o) in named.iter().enumerate() {
            let label = if i == 0 { "outliers" } else { "" };
            let of = if i == 0 { format!("{count} stand apart: ") } else { String::new() };
            line(text, label, &format!("{of}{} {}", o.point, signed(o.error)))?;
        }
        plot(text, group, fit)?;
    }
    for limit in &group.fitted.limits {
        writeln!(text, "\n{}", one_line(limit))?;
    }
    Ok(())
}

fn ranges(fit: &RegimeFit) -> String {
    let r = &fit.range;
    let of = |symbol: &str, (low, high): (f64, f64)| {
        let n = |x: f64| if 1e6 <= x { format::significant(x, 3) } else { format::fixed(x, 0) };
        (high != 0.0).then(|| format!("{symbol} {} to {}", n(low), n(high)))
    };
    let parts =
        [of("P", r.prefill_tokens), of("B", r.decodes), of("C", r.context), of("A", r.attention)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The points of a regime.
fn own<'a>(group: &'a Group, fit: &RegimeFit) -> Vec<&'a Point> {
    let in_set = |p: &&Point| match fit.regime {
        Some(r) if r != p.regime => false,
        Some(Regime::Decode) => {
            let cut = group.fitted.decode.as_ref().and_then(|f| f.up_to);
            cut.is_none_or(|b| (p.decodes <= b) == fit.up_to.is_some())
        }
        None | Some(_) => true,
    };
    group.points.iter().filter(in_set).collect()
}

/// Most lines of a residual plot.
const BINS: usize = 8;

/// The mean error over bins of the measured time, short steps first.
fn plot(text: &mut String, group: &Group, fit: &RegimeFit) -> Result<()> {
    let mut all: Vec<(f64, f64)> =
        own(group, fit).into_iter().map(|p| (p.time_s, fit.seconds(p) / p.time_s - 1.0)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = all.len();
    let bins = BINS.min(n / 2);
    if bins < 2 {
        return Ok(());
    }
    for i in 0..bins {
        let bin = &all[i * n / bins..(i + 1) * n / bins];
        let (Some(first), Some(last)) = (bin.first(), bin.last()) else { continue };
        let mean = bin.iter().map(|b| b.1).sum::<f64>() / bin.len() as f64;
        // One mark is one per cent; at most 30.
        let marks: String = (1..=30)
            .take_while(|&m| f64::from(m) - 0.5 <= mean.abs() * 100.0)
            .map(|_| if mean < 0.0 { '-' } else { '+' })
            .collect();
        let content =
            format!("{:>9} to {:>9}  {:>8}  {marks}", time(first.0), time(last.0), signed(mean));
        line(text, if i == 0 { "error by time" } else { "" }, content.trim_end())?;
    }
    Ok(())
}

fn finding(text: &mut String, f: &Finding) -> Result<()> {
    let label = format!("{} {}", f.check.id, f.level.name());
    line(text, &label, &format!("{}: {}", f.check.title.en, f.says))
}

fn checked(text: &mut String, answer: &Answer, check: &Check) -> Result<()> {
    let s = &check.source;
    let n = format::things(s.points.len() as u64, "point");
    writeln!(text, "\nvalidation on {}: {}, {n}", one_line(&s.name), s.kind)?;
    not_used(text, s)?;
    for (group, regime, e) in &check.errors {
        let name = if answer.groups.len() == 1 { String::new() } else { format!("{group}: ") };
        line(text, "error", &format!("{name}{regime}: {}", errors(e)))?;
    }
    if 0 < check.unknown {
        let n = format::things(check.unknown, "point");
        line(text, "no fit", &format!("{n} of deployments or regimes that were not fitted"))?;
    }
    match &check.replay {
        None => {}
        Some(Err(why)) => line(text, "no replay", why)?,
        Some(Ok(replayed)) => {
            let r = &replayed.replay;
            let left = if r.left_out == 0 {
                String::new()
            } else {
                format!("; {} left out, which makes the load lower", r.left_out)
            };
            line(
                text,
                "replay",
                &format!("{}, {}{left}", format::things(r.requests, "request"), replayed.server),
            )?;
            for note in &replayed.notes {
                line(text, "", note)?;
            }
            let names = ["mean TTFT", "mean TPOT", "mean E2E"];
            for (i, name) in names.into_iter().enumerate() {
                let (p, m) = (r.predicted.values()[i], r.measured.values()[i]);
                let shown = |x: f64| Seconds::new(x).map_or("-".to_owned(), format::time);
                line(
                    text,
                    name,
                    &format!(
                        "{} (predicted {}, measured {})",
                        signed(r.errors.values()[i]),
                        shown(p),
                        shown(m)
                    ),
                )?;
            }
            for f in &replayed.findings {
                finding(text, f)?;
            }
        }
    }
    Ok(())
}

/// One row for each deployment and regime.
fn table(answer: &Answer, plain: bool) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let share = |x: f64| if plain { x.to_string() } else { format::percent(x) };
    let sign = |x: f64| if plain { x.to_string() } else { signed(x) };
    let cost = |x: f64| if plain { x.to_string() } else { time(x) };
    let header = if plain {
        vec![
            "deployment",
            "regime",
            "points",
            "mape",
            "p90",
            "worst",
            "worst_point",
            "bias",
            "a_s",
            "b_s",
            "c_s",
            "d_s",
            "q_s",
            "e_s",
            "w_s",
        ]
    } else {
        vec!["deployment", "regime", "points", "MAPE", "p90", "worst", "bias", "a", "b", "c", "d"]
    };
    let mut rows = Vec::new();
    for group in &answer.groups {
        for fit in group.fitted.parts() {
            let of = |symbol: &str| {
                let found = fit.coefficients.iter().find(|(t, _)| t.symbol() == symbol);
                found.map_or(String::new(), |(_, x)| cost(*x))
            };
            let e = &fit.errors;
            let mut row = vec![
                group.name.clone(),
                regime_name(fit),
                e.points.to_string(),
                share(e.mean_absolute),
                share(e.p90_absolute),
                sign(e.worst),
            ];
            if plain {
                row.push(e.worst_point.clone());
            }
            row.push(sign(e.bias));
            let last: &[&str] =
                if plain { &["a", "b", "c", "d", "q", "e"] } else { &["a", "b", "c", "d"] };
            row.extend(last.iter().map(|s| of(s)));
            if plain {
                row.push(fit.floor.map_or(String::new(), cost));
            }
            rows.push(row);
        }
    }
    (header, rows)
}

/// The error of every point as CSV.
pub fn residuals(groups: &[Group]) -> Result<String> {
    let header = [
        "deployment",
        "regime",
        "prefill_tokens",
        "decodes",
        "context",
        "attention",
        "time_s",
        "fitted_s",
        "error",
        "place",
    ];
    let mut rows = Vec::new();
    for group in groups {
        for p in &group.points {
            let fitted = group.fitted.seconds(p);
            let shown = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
            rows.push(vec![
                group.name.clone(),
                p.regime.name().to_owned(),
                p.prefill_tokens.to_string(),
                p.decodes.to_string(),
                p.context.to_string(),
                p.attention.to_string(),
                p.time_s.to_string(),
                shown(fitted),
                shown(fitted.map(|s| s / p.time_s - 1.0)),
                p.place.clone(),
            ]);
        }
    }
    output::csv_text(&header, &rows)
}

fn errors_json(e: &Errors) -> Value {
    json!({
        "points": e.points,
        "mean_absolute": e.mean_absolute,
        "p90_absolute": e.p90_absolute,
        "worst": e.worst,
        "worst_point": e.worst_point,
        "bias": e.bias,
    })
}

fn fit_json(fit: &RegimeFit) -> Value {
    let mut coefficients = serde_json::Map::new();
    for (term, x) in &fit.coefficients {
        coefficients.insert(format!("{}_s", term.symbol()), json!(x));
    }
    if let Some(w) = fit.floor {
        coefficients.insert("w_s".to_owned(), json!(w));
    }
    let pair = |(low, high): (f64, f64)| json!([low, high]);
    json!({
        "regime": fit.regime.map_or("all", Regime::name),
        "decodes_up_to": fit.up_to,
        "coefficients": coefficients,
        "errors": errors_json(&fit.errors),
        "ordinary_least_squares": fit.ordinary.as_ref().map(|(r2, e)| json!({
            "r2": r2,
            "errors": errors_json(e),
        })),
        "range": {
            "prefill_tokens": pair(fit.range.prefill_tokens),
            "decodes": pair(fit.range.decodes),
            "context": pair(fit.range.context),
            "attention": pair(fit.range.attention),
        },
        "not_told": fit.weaknesses.iter().map(capacity::fit::Weakness::text).collect::<Vec<_>>(),
        "outliers": fit.outliers.0,
        "outliers_worst": fit.outliers.1.iter()
            .map(|o| json!({ "point": o.point, "error": o.error })).collect::<Vec<_>>(),
        "jump": fit.jump.map(|j| json!({
            "decodes_below": j.below,
            "decodes_above": j.above,
            "longer_s": j.seconds,
            "share": j.share,
        })),
    })
}

fn json_of(answer: &Answer) -> Result<String> {
    let sources: Vec<Value> = answer
        .sources
        .iter()
        .map(|s| {
            json!({
                "file": s.name,
                "kind": s.kind,
                "points": s.points.len(),
                "left_out": s.excluded.iter().map(|e| json!({
                    "rows": e.rows, "why": e.why, "first": e.first,
                })).collect::<Vec<_>>(),
                "assumed": s.assumed,
                "unread_columns": s.unread,
            })
        })
        .collect();
    let deployments: Vec<Value> = answer
        .groups
        .iter()
        .map(|g| {
            json!({
                "name": g.name,
                "fits": g.fitted.parts().map(fit_json).collect::<Vec<_>>(),
                "limits": g.fitted.limits,
            })
        })
        .collect();
    let checks: Vec<Value> = answer
        .checks
        .iter()
        .map(|c| {
            let replay = match &c.replay {
                None => Value::Null,
                Some(Err(why)) => json!({ "none_because": why }),
                Some(Ok(replayed)) => {
                    let r = &replayed.replay;
                    let three = |m: &capacity::means::Means| {
                        json!({ "ttft_s": m.ttft_s, "tpot_s": m.tpot_s, "e2e_s": m.e2e_s })
                    };
                    json!({
                        "requests": r.requests,
                        "left_out": r.left_out,
                        "measured_mean": three(&r.measured),
                        "predicted_mean": three(&r.predicted),
                        "error": {
                            "ttft": r.errors.ttft_s,
                            "tpot": r.errors.tpot_s,
                            "e2e": r.errors.e2e_s,
                        },
                        "server": replayed.server,
                        "notes": replayed.notes,
                        "findings": replayed.findings.iter()
                            .map(crate::report::finding_json).collect::<Vec<_>>(),
                        "relative_to_saturation": r.load,
                    })
                }
            };
            json!({
                "file": c.source.name,
                "errors": c.errors.iter().map(|(g, regime, e)| json!({
                    "deployment": g, "regime": regime, "errors": errors_json(e),
                })).collect::<Vec<_>>(),
                "points_without_fit": c.unknown,
                "replay": replay,
            })
        })
        .collect();
    let form: Form = answer.form;
    output::json_text(&json!({
        "schema_version": 1,
        "kind": "goodput-fit",
        "form": form.name(),
        "formula": form.formula(),
        "sources": sources,
        "deployments": deployments,
        "deployments_without_fit": answer.skipped.0,
        "validation": checks,
        "findings": match &answer.bounds {
            Some(Ok(findings)) => findings.iter().map(crate::report::finding_json).collect(),
            _ => Value::Null,
        },
        "findings_none_because": match &answer.bounds {
            None => Some("give --model and --gpu"),
            Some(Err(why)) => Some(why.as_str()),
            Some(Ok(_)) => None,
        },
        "written": answer.written,
    }))
}
