//! `goodput explain`: one metric or law, with the user's numbers put in.

use std::fmt::Write;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use metrics_core::diagnosis::{ROWS, Row, Tolerance};
use metrics_core::format;
use metrics_core::grammar;
use metrics_core::metric::{Formula, Input, Language, Layer, Metric};
use metrics_core::units::Unit;
use metrics_core::validity::{self, Check};
use serde_json::{Value, json};

use crate::output::{self, Format};

pub const EXAMPLES: &str = "\
Examples:
  goodput explain
  goodput explain tpot
  goodput explain tpot --lang zh
  goodput explain tpot --with t_first=250ms,t_last=1.25s,n_out=6
  goodput explain erlang_c --with c=2,a=1
  goodput explain kv_bytes_per_token --format json
  goodput explain W02";

/// Arguments of `explain`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Id of a metric, law, finding (W01) or row of `goodput diagnose`; without one, all are listed.
    id: Option<String>,
    /// Language of the words.
    #[arg(long, value_enum, default_value_t)]
    lang: Lang,
    /// Your numbers, as NAME=VALUE, separated by commas; times may carry a unit (250ms).
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', requires = "id")]
    with: Vec<String>,
}

/// A language on the command line.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Lang {
    /// English.
    #[default]
    En,
    /// 中文.
    Zh,
}

impl From<Lang> for Language {
    fn from(lang: Lang) -> Self {
        match lang {
            Lang::En => Self::En,
            Lang::Zh => Self::Zh,
        }
    }
}

/// Every metric and law, layer by layer.
fn all() -> impl Iterator<Item = &'static Metric> {
    let mut metrics: Vec<&'static Metric> =
        metrics_core::catalog::metrics().chain(queueing::catalog::metrics()).collect();
    // The sort is stable, so that within a layer docs order stays.
    metrics.sort_by_key(|m| m.layer);
    metrics.into_iter()
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let language = Language::from(arguments.lang);
    let Some(id) = &arguments.id else { return list(language, format) };
    if let Some(check) = validity::find(id) {
        return finding(check, arguments, language, format);
    }
    if let Some(row) = ROWS.iter().find(|r| r.id == normal(id)) {
        return diagnosis(row, arguments, language, format);
    }
    let metric = find(id).ok_or_else(|| unknown(id))?;
    let numbers = numbers(metric, &arguments.with)?;
    match format {
        Format::Text => page(metric, numbers.as_deref(), language),
        Format::Json => output::json_text(&as_json(metric, numbers.as_deref())),
        Format::Csv | Format::Md => {
            bail!("explain writes text or JSON: use --format text or --format json")
        }
    }
}

/// What people and our own reports call a metric beside its id.
const ALIASES: &[(&str, &str)] = &[
    ("itl", "inter_token_latency"),
    ("inter_chunk_gap", "inter_token_latency"),
    ("chunk_gap", "inter_token_latency"),
    ("e2e", "e2e_latency"),
    ("e2el", "e2e_latency"),
    ("latency", "e2e_latency"),
    ("attainment", "slo_attainment"),
    ("throughput", "request_throughput"),
    ("output_throughput", "token_throughput"),
    ("in_flight", "requests_in_system"),
    ("little", "requests_in_system"),
    ("kv_cache_usage", "kv_utilization"),
    ("rho", "utilization"),
    ("b_max", "max_batch_size"),
];

/// An id as it is kept.
fn normal(id: &str) -> String {
    id.trim().to_ascii_lowercase().replace([' ', '-'], "_")
}

/// The metric with this id or alias, in any case, with spaces or dashes for underscores.
fn find(id: &str) -> Option<&'static Metric> {
    let id = normal(id);
    let id = ALIASES.iter().find(|(alias, _)| *alias == id).map_or(id.as_str(), |(_, id)| id);
    all().find(|m| m.id == id)
}

/// An error that names the ids which look like what was asked for.
fn unknown(id: &str) -> anyhow::Error {
    let number = id.trim().strip_prefix(['w', 'W']);
    if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        let last = validity::CHECKS.last().map_or("W01", |c| c.id);
        return anyhow!(
            "no finding is called `{id}`: they are W01 to {last}, and `goodput explain` lists them"
        );
    }
    let findings = validity::CHECKS.iter().map(|c| c.name);
    let ids = all().map(|m| m.id).chain(findings).chain(ROWS.iter().map(|r| r.id));
    let mut near: Vec<(f64, &str)> = ids
        .map(|known| (strsim::jaro_winkler(id, known), known))
        .filter(|(score, _)| 0.75 < *score)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let near: Vec<&str> = near.into_iter().take(3).map(|(_, id)| id).collect();
    if near.is_empty() {
        anyhow!(
            "no metric, law, finding or row of `goodput diagnose` is called `{id}`: `goodput explain` lists all"
        )
    } else {
        anyhow!(
            "no metric, law, finding or row of `goodput diagnose` is called `{id}`: did you mean {}?",
            near.join(", ")
        )
    }
}

fn list(language: Language, format: Format) -> Result<String> {
    let rows: Vec<Vec<String>> = all()
        .map(|m| vec![m.id.to_owned(), m.name.in_language(language).to_owned(), m.unit.to_string()])
        .collect();
    let header = match language {
        Language::En => ["id", "name", "unit"],
        Language::Zh => ["id", "名称", "单位"],
    };
    Ok(match format {
        Format::Csv => output::csv_text(&header, &rows)?,
        Format::Md => output::markdown_table(&header, &rows),
        Format::Json => {
            let metrics: Vec<Value> = all().map(|m| as_json(m, None)).collect();
            output::json_text(&json!({ "schema_version": 1, "metrics": metrics }))?
        }
        Format::Text => {
            let width = all().map(|m| m.id.len()).max().unwrap_or(0);
            let mut text = String::new();
            let mut layer = None;
            for m in all() {
                if layer != Some(m.layer) {
                    let gap = if layer.is_some() { "\n" } else { "" };
                    writeln!(text, "{gap}{}", layer_name(m.layer, language))?;
                    layer = Some(m.layer);
                }
                writeln!(text, "  {:width$}  {} [{}]", m.id, m.name.in_language(language), m.unit)?;
            }
            let heading = match language {
                Language::En => "Findings",
                Language::Zh => "发现",
            };
            writeln!(text, "\n{heading}")?;
            for c in validity::CHECKS {
                let title = c.title.in_language(language);
                writeln!(text, "  {:width$}  {title} [{}]", c.id, c.name)?;
            }
            let heading = match language {
                Language::En => "Rows of the diagnosis tree",
                Language::Zh => "诊断树的行",
            };
            writeln!(text, "\n{heading}")?;
            for r in ROWS {
                writeln!(text, "  {:width$}  {}", r.id, r.symptom.in_language(language))?;
            }
            text
        }
    })
}

/// The name of a layer in a list of metrics.
fn layer_name(layer: Layer, language: Language) -> &'static str {
    match language {
        Language::En => match layer {
            Layer::Latency => "Latency",
            Layer::Throughput => "Throughput and goodput",
            Layer::Resources => "Resources",
            Layer::Diagnosis => "Diagnosis",
            Layer::Capacity => "Capacity",
            Layer::Scheduling => "Scheduling",
            Layer::Queueing => "Queueing",
        },
        Language::Zh => match layer {
            Layer::Latency => "时延",
            Layer::Throughput => "吞吐与 Goodput",
            Layer::Resources => "资源",
            Layer::Diagnosis => "诊断",
            Layer::Capacity => "容量",
            Layer::Scheduling => "调度",
            Layer::Queueing => "排队论",
        },
    }
}

/// A row of the diagnosis tree.
fn diagnosis(
    row: &Row,
    arguments: &Arguments,
    language: Language,
    format: Format,
) -> Result<String> {
    if !arguments.with.is_empty() {
        bail!("{} is a row of the diagnosis tree: `goodput diagnose --with` takes numbers", row.id);
    }
    let fires = |language| row.in_language(Tolerance::default(), language).to_string();
    match format {
        Format::Text => {}
        Format::Json => {
            let both = |t: metrics_core::metric::Text| json!({ "en": t.en, "zh": t.zh });
            return output::json_text(&json!({
                "schema_version": 1,
                "id": row.id,
                "precedence": row.precedence,
                "symptom": both(row.symptom),
                "fires_if": { "en": fires(Language::En), "zh": fires(Language::Zh) },
                "look_first": both(row.look_first),
                "cause": both(row.cause),
                "action": both(row.action),
                "source": { "work": row.source.work, "section": row.source.section },
            }));
        }
        Format::Csv | Format::Md => {
            bail!("explain writes text or JSON: use --format text or --format json")
        }
    }
    let [fires_if, look, cause, action, source] = match language {
        Language::En => ["fires if", "look at", "cause", "do", "source"],
        Language::Zh => ["触发条件", "先看", "原因", "处理", "来源"],
    };
    let mut text = String::new();
    writeln!(text, "{}: {}", row.id, row.symptom.in_language(language))?;
    writeln!(text)?;
    for (label, content) in [
        (fires_if, fires(language).as_str()),
        (look, row.look_first.in_language(language)),
        (cause, row.cause.in_language(language)),
        (action, row.action.in_language(language)),
        (source, format!("{}, {}", row.source.work, row.source.section).as_str()),
    ] {
        writeln!(text, "{}", line(label, content))?;
    }
    Ok(text)
}

/// A finding of the validity verdict.
fn finding(
    check: &'static Check,
    arguments: &Arguments,
    language: Language,
    format: Format,
) -> Result<String> {
    if !arguments.with.is_empty() {
        bail!("{} is a finding: it takes no numbers", check.id);
    }
    match format {
        Format::Text => {}
        Format::Json => {
            let levels: Vec<&str> = check.levels.iter().map(|l| l.name()).collect();
            let affects: Vec<&str> = check.affects.iter().map(|s| s.id()).collect();
            let commands: Vec<&str> = check.raised_by.iter().map(|c| c.name()).collect();
            let both = |t: metrics_core::metric::Text| json!({ "en": t.en, "zh": t.zh });
            return output::json_text(&json!({
                "schema_version": 1,
                "id": check.id,
                "name": check.name,
                "title": both(check.title),
                "rule": both(check.rule),
                "why": both(check.why),
                "advice": both(check.advice),
                "levels": levels,
                "affects": affects,
                "raised_by": commands,
                "source": { "work": check.source.work, "section": check.source.section },
            }));
        }
        Format::Csv | Format::Md => {
            bail!("explain writes text or JSON: use --format text or --format json")
        }
    }
    let [rule, why, level, affects, advice, source, by] = match language {
        Language::En => ["rule", "why", "level", "affects", "do", "seen in", "raised by"],
        Language::Zh => ["规则", "原因", "级别", "影响", "处理", "见于", "由谁给出"],
    };
    let joint = if matches!(language, Language::En) { ", " } else { "、" };
    let subjects: Vec<&str> =
        check.affects.iter().map(|s| s.text().in_language(language)).collect();
    let seen = match check.source.section {
        "" => check.source.work.to_owned(),
        section => format!("{} ({section})", check.source.work),
    };
    let mut text = String::new();
    writeln!(text, "{} {}: {}", check.id, check.name, check.title.in_language(language))?;
    writeln!(text)?;
    for (label, content) in [
        (rule, check.rule.in_language(language)),
        (why, check.why.in_language(language)),
        (level, check.level_names(language).as_str()),
        (affects, subjects.join(joint).as_str()),
        (advice, check.advice.in_language(language)),
        (source, seen.as_str()),
        (by, check.command_names(language).as_str()),
    ] {
        writeln!(text, "{}", line(label, content))?;
    }
    Ok(text)
}

/// The user's numbers in the order of the inputs; `None` if there are none.
fn numbers(metric: &Metric, with: &[String]) -> Result<Option<Vec<f64>>> {
    if with.is_empty() {
        return Ok(None);
    }
    if metric.inputs.is_empty() {
        bail!("{} is computed over many items: it takes no numbers", metric.id);
    }
    let names = || metric.inputs.iter().map(|i| i.id).collect::<Vec<_>>().join(", ");
    let mut values: Vec<Option<f64>> = vec![None; metric.inputs.len()];
    for item in with {
        let (name, text) = item.split_once('=').ok_or_else(|| {
            anyhow!("`{item}` is not NAME=VALUE; {} takes {}", metric.id, names())
        })?;
        let (input, slot) = metric
            .inputs
            .iter()
            .zip(&mut values)
            .find(|(input, _)| input.id == name.trim())
            .ok_or_else(|| {
                anyhow!("{} has no input `{}`; it takes {}", metric.id, name.trim(), names())
            })?;
        if slot.replace(number(input, text.trim())?).is_some() {
            bail!("`{}` is given twice", name.trim());
        }
    }
    let missing: Vec<&str> = metric
        .inputs
        .iter()
        .zip(&values)
        .filter(|(_, value)| value.is_none())
        .map(|(input, _)| input.id)
        .collect();
    if !missing.is_empty() {
        bail!("{} also needs {}", metric.id, missing.join(", "));
    }
    Ok(values.into_iter().collect())
}

/// One number; a time, size, rate or share may carry its unit.
fn number(input: &Input, text: &str) -> Result<f64> {
    if let Ok(x) = text.parse::<f64>() {
        if !x.is_finite() {
            bail!("{} must be a finite number, got {text}", input.id);
        }
        return Ok(x);
    }
    let per_second = Unit::REQUEST.per(Unit::SECOND);
    let read = if input.unit == Unit::SECOND || input.unit == Unit::SECOND.per(Unit::TOKEN) {
        grammar::duration(text).map(metrics_core::Seconds::get)
    } else if input.unit == per_second || input.unit == Unit::ONE.per(Unit::SECOND) {
        grammar::rate(text).map(f64::from)
    } else if input.unit == Unit::BYTE || input.unit == Unit::BYTE.per(Unit::SECOND) {
        grammar::size(text.strip_suffix("/s").unwrap_or(text)).map(f64::from)
    } else if input.unit == Unit::ONE {
        grammar::share(text)
    } else {
        grammar::count(text).map(|n| n as f64)
    };
    read.map_err(|e| anyhow!("{} [{}]: {e}", input.id, input.unit))
}

/// A value with its unit; the unit of a pure number is left out.
fn with_unit(value: f64, unit: Unit) -> String {
    if unit.is_one() { format::value(value) } else { format!("{} {unit}", format::value(value)) }
}

/// The words around the entry.
struct Words {
    formula: &'static str,
    inputs: &'static str,
    example: &'static str,
    yours: &'static str,
    note: &'static str,
    source: &'static str,
    code: &'static str,
    exported: &'static str,
    no_value: &'static str,
}

const EN: Words = Words {
    formula: "formula",
    inputs: "inputs",
    example: "example",
    yours: "yours",
    note: "note",
    source: "source",
    code: "code",
    exported: "exported as",
    no_value: "no value",
};

const ZH: Words = Words {
    formula: "公式",
    inputs: "输入",
    example: "示例",
    yours: "代入",
    note: "注意",
    source: "出处",
    code: "源码",
    exported: "导出名",
    no_value: "无值",
};

fn page(m: &Metric, numbers: Option<&[f64]>, language: Language) -> Result<String> {
    let w = match language {
        Language::En => EN,
        Language::Zh => ZH,
    };
    let mut text = String::new();
    writeln!(text, "{} ({}) [{}]", m.name.in_language(language), m.id, m.unit)?;
    writeln!(text)?;
    match &m.formula {
        Formula::Scalar { text: formula, example, .. } => {
            writeln!(text, "{}", line(w.formula, &format!("{} = {formula}", m.id)))?;
            writeln!(text, "{}", line("LaTeX", &m.latex()))?;
            for (i, input) in m.inputs.iter().enumerate() {
                let label = if i == 0 { w.inputs } else { "" };
                let name = input.name.in_language(language);
                writeln!(
                    text,
                    "{}",
                    line(label, &format!("{} [{}]  {name}", input.id, input.unit))
                )?;
            }
            let (inputs, value) = example;
            if numbers != Some(*inputs) {
                writeln!(text, "{}", line(w.example, &worked(m, inputs, *value)))?;
            }
        }
        Formula::Law { latex, why, example, value, .. } => {
            writeln!(text, "{}", line("LaTeX", latex))?;
            writeln!(text, "{}", line("", why.in_language(language)))?;
            let example = example.in_language(language);
            writeln!(
                text,
                "{}",
                line(w.example, &format!("{example} → {}", with_unit(*value, m.unit)))
            )?;
        }
    }
    if let Some(numbers) = numbers {
        let yours = match m.evaluate(numbers) {
            Ok(c) => worked(m, numbers, c.value),
            Err(refusal) => format!("{}: {refusal}", w.no_value),
        };
        writeln!(text, "{}", line(w.yours, &yours))?;
    }
    writeln!(text, "{}", line(w.note, m.note.in_language(language)))?;
    for (i, source) in sources(m).iter().enumerate() {
        writeln!(text, "{}", line(if i == 0 { w.source } else { "" }, source))?;
    }
    writeln!(text, "{}", line(w.code, m.path))?;
    for (i, e) in m.exported.iter().enumerate() {
        let label = if i == 0 { w.exported } else { "" };
        let differs = e.differs.in_language(language);
        let differs = if differs.is_empty() { String::new() } else { format!(" ({differs})") };
        writeln!(text, "{}", line(label, &format!("{}: {}{differs}", e.engine, e.name)))?;
    }
    Ok(text)
}

/// Each work with its own section: the catalog lists both with semicolons, in the same order.
fn sources(m: &Metric) -> Vec<String> {
    let mut sections = m.source.section.split("; ");
    m.source
        .work
        .split("; ")
        .map(|work| match sections.next() {
            Some(section) if !section.is_empty() => format!("{work}, {section}"),
            _ => work.to_owned(),
        })
        .collect()
}

/// A label in a column of its own; a Chinese character is two columns wide.
fn line(label: &str, content: &str) -> String {
    const WIDTH: usize = 13;
    let width: usize = label.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
    format!("  {label}{}{content}", " ".repeat(WIDTH.saturating_sub(width)))
}

/// The formula with numbers put in, and its value.
fn worked(m: &Metric, inputs: &[f64], value: f64) -> String {
    let lookup = |name: &str| {
        m.inputs.iter().zip(inputs).find(|(input, _)| input.id == name).map(|(_, &x)| x)
    };
    let substituted = match m.expression() {
        Some(Ok(expression)) => expression.substituted(&lookup),
        _ => String::new(),
    };
    format!("{substituted} = {}", with_unit(value, m.unit))
}

/// The entry as JSON, with the user's numbers and their value.
fn as_json(m: &Metric, numbers: Option<&[f64]>) -> Value {
    let formula = match &m.formula {
        Formula::Scalar { text, .. } => Some(*text),
        Formula::Law { .. } => None,
    };
    let inputs: Vec<Value> = m
        .inputs
        .iter()
        .map(|i| json!({ "id": i.id, "unit": i.unit.to_string(), "name": { "en": i.name.en, "zh": i.name.zh } }))
        .collect();
    let mut entry = json!({
        "schema_version": 1,
        "id": m.id,
        "name": { "en": m.name.en, "zh": m.name.zh },
        "unit": m.unit.to_string(),
        "formula": formula,
        "latex": m.latex(),
        "inputs": inputs,
        "note": { "en": m.note.en, "zh": m.note.zh },
        "source": { "work": m.source.work, "section": m.source.section },
        "path": m.path,
    });
    if let (Some(numbers), Some(entry)) = (numbers, entry.as_object_mut()) {
        let given: serde_json::Map<String, Value> =
            m.inputs.iter().zip(numbers).map(|(i, x)| (i.id.to_owned(), json!(x))).collect();
        entry.insert("with".to_owned(), Value::Object(given));
        // As on the page for reading: that there is no value, and why, is an answer.
        let (value, why) = match m.evaluate(numbers) {
            Ok(c) => (json!(c.value), Value::Null),
            Err(refusal) => (Value::Null, json!(refusal.to_string())),
        };
        entry.insert("value".to_owned(), value);
        entry.insert("no_value_because".to_owned(), why);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_leads_to_an_entry() {
        for (alias, id) in ALIASES {
            assert_eq!(find(alias).map(|m| m.id), Some(*id), "{alias}");
        }
        assert_eq!(find("TPOT").map(|m| m.id), Some("tpot"));
    }
}
