//! The answer of the tree, for reading and for programs.

use anyhow::Result;
use metrics_core::alerts::State;
use metrics_core::diagnosis::{Evidence, Missing, Part, Relation};
use metrics_core::format;
use metrics_core::histogram::Range;
use metrics_core::metric::{Language, Text, text as both};
use metrics_core::observe::given_by;
use metrics_core::validity::Finding;
use serde_json::{Value, json};

use super::{Alert, Answered};
use crate::output::{json_text, markdown_table, one_line};
use crate::report::{finding_json, time};

/// Width of the labels of a verdict.
const LABEL: usize = 10;

const FIRES: Text = both("Diagnosis", "诊断");
const NOTHING: Text =
    both("no row fires on what was observed", "就所观测到的数据，没有任何一行触发");
const RULED_OUT: Text = both("Ruled out", "已排除");
const UNDECIDED: Text = both("Undecided, for want of", "未定，缺少");
const THRESHOLDS: Text = both("Thresholds", "阈值");
const MORE: Text = both("What would tell more", "补充数据的方式");
const NOTES: Text = both("Notes", "说明");
const READ: Text = both("Read", "数据来源");
const UNKNOWN: Text = both("unknown", "未知");
const FOUND: Text = both("Findings", "检查结果");
const GOODPUT: Text = both("Goodput, as far as histograms tell", "Goodput（直方图所能给出的范围）");
const TOGETHER: Text = both("all limits together", "同时满足全部限值");
const APART: Text = both(
    "histograms do not tell which requests miss, so only bounds are known",
    "直方图不说明是哪些请求未达标，因此只有上下界",
);

impl Answered {
    fn say(&self, text: Text) -> &'static str {
        text.in_language(self.language)
    }

    /// Facts in one line.
    fn facts(&self, facts: &[Evidence]) -> String {
        let all: Vec<String> =
            facts.iter().map(|e| e.in_language(self.language).to_string()).collect();
        all.join("; ")
    }

    fn missing(&self, missing: &[Missing]) -> String {
        let all: Vec<String> =
            missing.iter().map(|m| m.in_language(self.language).to_string()).collect();
        all.join("; ")
    }

    /// The limits that histograms can judge, each with its share, and all together.
    fn shares(&self) -> Vec<(String, String)> {
        let Some(joint) = &self.joint else { return Vec::new() };
        let share = |r: &Range| match r.high {
            Some(high) if r.low < high => {
                format!("{}..{}", format::percent(r.low), format::percent(high))
            }
            Some(_) => format::percent(r.low),
            None => format!("> {}", format::percent(r.low)),
        };
        let mut rows: Vec<(String, String)> =
            joint.each.iter().map(|(limit, r)| (limit.clone(), share(r))).collect();
        if 1 < rows.len() {
            let why = if joint.all.is_exact() { "" } else { self.say(APART) };
            let gap = if why.is_empty() { "" } else { "; " };
            let all = format!("{}{gap}{why}", share(&joint.all));
            rows.push((self.say(TOGETHER).to_owned(), all));
        }
        rows
    }

    /// The findings, each with what to do about it.
    fn found(&self) -> Vec<String> {
        let line = |f: &Finding| {
            let level = f.level.text().in_language(self.language);
            let advice = f.check.advice.in_language(self.language);
            format!("{} {level}: {} ({advice})", f.check.id, one_line(&f.says))
        };
        self.findings.iter().map(line).collect()
    }

    /// What gives what is missing, each way once with what it gives.
    fn ways(&self) -> Vec<(&'static str, String)> {
        let mut ways: Vec<(&'static str, Vec<String>)> = Vec::new();
        let mut add = |way: &'static str, what: String| match ways.iter_mut().find(|w| w.0 == way) {
            Some((_, all)) if all.contains(&what) => {}
            Some((_, all)) => all.push(what),
            None => ways.push((way, vec![what])),
        };
        for m in self.diagnosis.undecided.iter().flat_map(|u| &u.missing) {
            let way = self.say(given_by(m.operand, m.part));
            // Limits and baselines are many of one kind, so the operand is enough.
            let what = match m.part {
                Part::Current | Part::Series | Part::Finer | Part::Baseline | Part::Mean => {
                    self.say(m.operand.name()).to_owned()
                }
                Part::Limit => m.in_language(self.language).to_string(),
            };
            add(way, what);
        }
        ways.into_iter().map(|(way, what)| (way, what.join(", "))).collect()
    }
}

/// The value of a threshold's metric.
fn value(a: &Alert) -> String {
    let shown = |x: f64| match a.threshold.id {
        "ttft_p99" => time(x),
        "queue_depth" => format::count(x),
        _ => format::percent(x),
    };
    match a.value {
        None => "-".to_owned(),
        Some((low, _)) if a.open => format!("> {}", shown(low)),
        Some((low, Some(high))) if low < high => format!("{}..{}", shown(low), shown(high)),
        Some((low, _)) => shown(low),
    }
}

fn state(answered: &Answered, a: &Alert) -> String {
    let word = |s: State| answered.say(s.text());
    match a.state {
        None => answered.say(UNKNOWN).to_owned(),
        Some((best, worst)) if best == worst => word(best).to_owned(),
        Some((best, worst)) => format!("{}..{}", word(best), word(worst)),
    }
}

/// Why a state is not known.
fn wants(answered: &Answered, a: &Alert) -> String {
    let text = match a.missing {
        None => return String::new(),
        Some("slo") => both("needs --slo 'p99(ttft)<…'", "需要 --slo 'p99(ttft)<…'"),
        Some("max_batch_size") => both("needs --max-num-seqs", "需要 --max-num-seqs"),
        Some("keeps_growing") => {
            both("needs arrivals over time for its trend", "需要含到达时刻的数据以判断趋势")
        }
        Some(_) => match a.threshold.id {
            "oom_rate" => both(
                "no engine exports it; --with oom_rate=…",
                "没有引擎导出该指标；--with oom_rate=…",
            ),
            "refill_rate" => both("needs --with refill_rate=…", "需要 --with refill_rate=…"),
            "ttft_p99" => {
                both("needs a result or a snapshot with TTFT", "需要含 TTFT 的结果或快照")
            }
            _ => both("needs a snapshot of /metrics", "需要 /metrics 快照"),
        },
    };
    answered.say(text).to_owned()
}

pub fn text(a: &Answered) -> String {
    let mut out = String::new();
    for told in &a.told {
        out.push_str(&format!("{}: {}\n", told.name, told.what));
    }
    out.push_str(&format!("\n{}\n", a.say(FIRES)));
    if a.diagnosis.verdicts.is_empty() {
        out.push_str(&format!("  {}\n", a.say(NOTHING)));
    }
    for (i, v) in a.diagnosis.verdicts.iter().enumerate() {
        let row = v.row;
        out.push_str(&format!("  {}. {} ({})\n", i + 1, a.say(row.symptom), row.id));
        let mut line = |label: Text, content: &str| {
            let label = a.say(label);
            // A Chinese character takes two columns.
            let wide = label.chars().filter(|c| !c.is_ascii()).count();
            let pad = " ".repeat(LABEL.saturating_sub(label.chars().count() + wide));
            out.push_str(&format!("     {label}{pad}{content}\n"));
        };
        line(both("do first", "先做"), a.say(row.action));
        line(both("cause", "原因"), a.say(row.cause));
        line(both("look at", "先看"), a.say(row.look_first));
        for fact in &v.decided_by {
            line(both("because", "依据"), &fact.in_language(a.language).to_string());
        }
    }
    for (title, lines) in [
        (FOUND, a.found()),
        (GOODPUT, a.shares().iter().map(|(what, share)| format!("{what}: {share}")).collect()),
    ] {
        if !lines.is_empty() {
            out.push_str(&format!("\n{}\n", a.say(title)));
        }
        for l in lines {
            out.push_str(&format!("  {l}\n"));
        }
    }
    if !a.diagnosis.ruled_out.is_empty() {
        out.push_str(&format!("\n{}\n", a.say(RULED_OUT)));
        for r in &a.diagnosis.ruled_out {
            out.push_str(&format!("  {}: {}\n", a.say(r.row.symptom), a.facts(&r.by)));
        }
    }
    if !a.diagnosis.undecided.is_empty() {
        out.push_str(&format!("\n{}\n", a.say(UNDECIDED)));
        for u in &a.diagnosis.undecided {
            out.push_str(&format!("  {}: {}\n", a.say(u.row.symptom), a.missing(&u.missing)));
        }
    }
    out.push_str(&format!("\n{}\n", a.say(THRESHOLDS)));
    for alert in &a.alerts {
        let wants = wants(a, alert);
        let levels = format!(
            "{} {}, {} {}",
            a.say(State::Warn.text()),
            alert.threshold.warn_text(a.language),
            a.say(State::Critical.text()),
            alert.threshold.critical_text(a.language)
        );
        let gap = if wants.is_empty() { "" } else { "; " };
        out.push_str(&format!(
            "  {}: {} {} ({levels}{gap}{wants})\n",
            a.say(alert.threshold.name),
            value(alert),
            state(a, alert),
        ));
    }
    let ways = a.ways();
    if !ways.is_empty() {
        out.push_str(&format!("\n{}\n", a.say(MORE)));
        for (way, what) in ways {
            out.push_str(&format!("  {way}: {what}\n"));
        }
    }
    if !a.notes.is_empty() {
        out.push_str(&format!("\n{}\n", a.say(NOTES)));
        for note in &a.notes {
            out.push_str(&format!("  {}\n", one_line(note)));
        }
    }
    out
}

pub fn markdown(a: &Answered) -> String {
    let heading = |text: Text| format!("\n## {}\n\n", a.say(text));
    let table = |header: [Text; 2], rows: Vec<[String; 2]>| {
        let header = header.map(|t| a.say(t));
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        markdown_table(&header, &rows).replace("---:", "---")
    };
    let symptom = both("Symptom", "症状");
    let mut out = format!("# goodput diagnose\n{}", heading(READ));
    for told in &a.told {
        out.push_str(&format!("- {}: {}\n", one_line(&told.name), told.what));
    }
    out.push_str(&heading(FIRES));
    if a.diagnosis.verdicts.is_empty() {
        out.push_str(&format!("{}\n", a.say(NOTHING)));
    } else {
        let header = [
            symptom,
            both("Do first", "先做"),
            both("Likely cause", "可能的原因"),
            both("Because", "依据"),
        ]
        .map(|t| a.say(t));
        let rows: Vec<Vec<String>> = a
            .diagnosis
            .verdicts
            .iter()
            .map(|v| {
                let row = v.row;
                let name = format!("{} (`{}`)", a.say(row.symptom), row.id);
                vec![
                    name,
                    a.say(row.action).into(),
                    a.say(row.cause).into(),
                    a.facts(&v.decided_by),
                ]
            })
            .collect();
        out.push_str(&markdown_table(&header, &rows).replace("---:", "---"));
    }
    let found = a.found();
    if !found.is_empty() {
        out.push_str(&heading(FOUND));
    }
    for f in found {
        out.push_str(&format!("- {f}\n"));
    }
    let shares = a.shares();
    if !shares.is_empty() {
        out.push_str(&heading(GOODPUT));
    }
    for (what, share) in shares {
        out.push_str(&format!("- {what}: {share}\n"));
    }
    if !a.diagnosis.ruled_out.is_empty() {
        let rows = a.diagnosis.ruled_out.iter();
        let rows = rows.map(|r| [a.say(r.row.symptom).to_owned(), a.facts(&r.by)]).collect();
        out.push_str(&heading(RULED_OUT));
        out.push_str(&table([symptom, both("By", "依据")], rows));
    }
    if !a.diagnosis.undecided.is_empty() {
        let rows = a.diagnosis.undecided.iter();
        let rows = rows.map(|u| [a.say(u.row.symptom).to_owned(), a.missing(&u.missing)]).collect();
        out.push_str(&heading(UNDECIDED));
        out.push_str(&table([symptom, both("Missing", "缺少")], rows));
    }
    out.push_str(&heading(THRESHOLDS));
    out.push_str(&thresholds(a));
    let ways = a.ways();
    if !ways.is_empty() {
        out.push_str(&heading(MORE));
        for (way, what) in ways {
            out.push_str(&format!("- {way}: {what}\n"));
        }
    }
    if !a.notes.is_empty() {
        out.push_str(&heading(NOTES));
        for note in &a.notes {
            out.push_str(&format!("- {}\n", one_line(note)));
        }
    }
    out
}

/// The state of each alert threshold as a Markdown table.
fn thresholds(a: &Answered) -> String {
    let header = [
        both("Figure", "指标"),
        both("Value", "数值"),
        both("State", "状态"),
        both("Warn", "预警"),
        both("Critical", "紧急"),
        both("Missing", "缺少"),
    ]
    .map(|t| a.say(t));
    let rows: Vec<Vec<String>> = a
        .alerts
        .iter()
        .map(|alert| {
            vec![
                a.say(alert.threshold.name).to_owned(),
                value(alert),
                state(a, alert),
                alert.threshold.warn_text(a.language),
                alert.threshold.critical_text(a.language),
                wants(a, alert),
            ]
        })
        .collect();
    markdown_table(&header, &rows)
}

fn evidence(a: &Answered, facts: &[Evidence]) -> Vec<Value> {
    facts
        .iter()
        .map(|e| {
            let text = e.in_language(a.language).to_string();
            match *e {
                Evidence::Compared { operand, value, upto, relation, bound, .. } => json!({
                    "operand": operand.id(),
                    "value": value,
                    // An end that is open is no number.
                    "value_at_most": upto.is_finite().then_some(upto),
                    "relation": match relation {
                        Relation::Above => ">",
                        Relation::AtMost => "<=",
                        Relation::Below => "<",
                        Relation::AtLeast => ">=",
                    },
                    "bound": bound,
                    "unit": operand.unit().to_string(),
                    "text": text,
                }),
                Evidence::Trend { operand, trend } => json!({
                    "operand": operand.id(),
                    "keeps_growing": trend.keeps_growing(),
                    "p_value": trend.p_value,
                    "slope": trend.slope,
                    "samples": trend.n,
                    "text": text,
                }),
            }
        })
        .collect()
}

pub fn json(a: &Answered) -> Result<String> {
    let inputs: Vec<Value> = a
        .told
        .iter()
        .map(|t| {
            let operands: Vec<&str> = t.operands.iter().map(|o| o.id()).collect();
            json!({ "name": t.name, "what": t.what, "operands": operands })
        })
        .collect();
    let verdicts: Vec<Value> = a
        .diagnosis
        .verdicts
        .iter()
        .map(|v| {
            json!({
                "row": v.row.id,
                "precedence": v.row.precedence,
                "symptom": a.say(v.row.symptom),
                "look_first": a.say(v.row.look_first),
                "cause": a.say(v.row.cause),
                "action": a.say(v.row.action),
                "batch": v.row.batch.text().in_language(Language::En),
                "when": v.row.in_language(a.tolerance, a.language).to_string(),
                "decided_by": evidence(a, &v.decided_by),
            })
        })
        .collect();
    let ruled_out: Vec<Value> = a
        .diagnosis
        .ruled_out
        .iter()
        .map(|r| json!({ "row": r.row.id, "by": evidence(a, &r.by) }))
        .collect();
    let undecided: Vec<Value> = a
        .diagnosis
        .undecided
        .iter()
        .map(|u| {
            let missing: Vec<Value> = u
                .missing
                .iter()
                .map(|m| {
                    json!({
                        "operand": m.operand.id(),
                        "what": m.in_language(a.language).to_string(),
                        "with": a.say(given_by(m.operand, m.part)),
                    })
                })
                .collect();
            json!({ "row": u.row.id, "missing": missing })
        })
        .collect();
    let word = |s: State| s.text().in_language(Language::En);
    let thresholds: Vec<Value> = a
        .alerts
        .iter()
        .map(|alert| {
            let end = alert
                .value
                .and_then(|(low, high)| if alert.open { None } else { Some(high.unwrap_or(low)) });
            json!({
                "id": alert.threshold.id,
                "value": alert.value.map(|v| v.0),
                "value_at_most": end,
                "state": alert.state.filter(|(x, y)| x == y).map(|s| word(s.0)),
                "state_at_least": alert.state.map(|s| word(s.0)),
                "warn": alert.threshold.warn_text(Language::En),
                "critical": alert.threshold.critical_text(Language::En),
                "missing": alert.missing,
            })
        })
        .collect();
    json_text(&json!({
        "schema_version": 1,
        "kind": "goodput-diagnosis",
        "inputs": inputs,
        "verdicts": verdicts,
        "ruled_out": ruled_out,
        "undecided": undecided,
        "thresholds": thresholds,
        "findings": a.findings.iter().map(finding_json).collect::<Vec<Value>>(),
        "joint_share": a.joint.as_ref().map(|j| json!({
            "limits": j.each.iter().map(|(limit, r)| json!({
                "limit": limit, "share_at_least": r.low, "share_at_most": r.high,
            })).collect::<Vec<Value>>(),
            "share_at_least": j.all.low,
            "share_at_most": j.all.high,
        })),
        "notes": a.notes,
    }))
}
