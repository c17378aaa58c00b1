//! An answer: figures, a curve, and what they mean.

use anyhow::Result;
use metrics_core::metric::Language;
use metrics_core::validity::Finding;
use metrics_core::{Seconds, format};
use queueing::profile::{Kind, Profile, Quantity};
use serde_json::{Map, Value, json};

use super::input::Show;
use crate::output::{self, Format};
use crate::report::finding_json;

/// Words in the language of the reader.
macro_rules! say {
    ($language:expr, $en:literal, $zh:literal $(, $($rest:tt)*)?) => {
        match $language {
            metrics_core::metric::Language::En => format!($en $(, $($rest)*)?),
            metrics_core::metric::Language::Zh => format!($zh $(, $($rest)*)?),
        }
    };
}
pub(crate) use say;

/// One figure of an answer.
struct Figure {
    /// Key in JSON and CSV, without the unit.
    key: String,
    label: String,
    value: f64,
    kind: Kind,
    /// How it is shown, if not as its kind is.
    text: Option<String>,
}

/// A key with its unit.
fn full_key(key: &str, kind: Kind) -> String {
    match kind {
        Kind::Time => format!("{key}_s"),
        Kind::Rate => format!("{key}_per_s"),
        Kind::TimeSquared => format!("{key}_s2"),
        Kind::Number | Kind::Share => key.to_owned(),
    }
}

fn shown(value: f64, kind: Kind, language: Language) -> String {
    if value == f64::INFINITY {
        return say!(language, "infinite", "无穷");
    }
    match kind {
        Kind::Time => seconds(value),
        Kind::Rate => format!("{}/s", format::value(value)),
        Kind::Number => format::value(value),
        Kind::Share => figure_share(value),
        Kind::TimeSquared => format!("{} s²", format::value(value)),
    }
}

/// A time that may be infinite.
pub fn seconds(s: f64) -> String {
    Seconds::new(s).map_or_else(|_| "infinite".to_owned(), format::time)
}

/// A share with four significant digits, or with as many as it takes to tell it from all; the digits
/// of what never happens say nothing.
pub fn figure_share(x: f64) -> String {
    if 0.0 < x && x < 1e-14 {
        return "< 1e-12 %".to_owned();
    }
    match format::significant(x * 100.0, 4) {
        all if all == "100" => format::percent(x).replace("100.0 %", "100 %"),
        text => format!("{text} %"),
    }
}

/// Wait and response against load.
struct Curve {
    columns: Vec<(String, Kind)>,
    rows: Vec<Vec<Option<f64>>>,
}

/// An answer: figures and what they mean.
pub struct Answer {
    pub language: Language,
    pub model: String,
    figures: Vec<Figure>,
    curve: Option<Curve>,
    pub reading: String,
    /// Short remarks below the reading: where an approximation holds, where a law comes from.
    pub notes: Vec<String>,
    /// What the verdict's rules say of it.
    pub findings: Vec<Finding>,
}

impl Answer {
    pub fn new(language: Language, model: impl Into<String>) -> Self {
        Self {
            language,
            model: model.into(),
            figures: Vec::new(),
            curve: None,
            reading: String::new(),
            notes: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub fn add(
        &mut self,
        kind: Kind,
        key: impl Into<String>,
        label: impl Into<String>,
        value: f64,
    ) {
        self.figures.push(Figure { key: key.into(), label: label.into(), value, kind, text: None });
    }

    /// A number that is shown in its own way; its key names the unit.
    pub fn add_shown(
        &mut self,
        key: &str,
        label: impl Into<String>,
        value: f64,
        text: impl Into<String>,
    ) {
        let (key, kind, text) = (key.to_owned(), Kind::Number, Some(text.into()));
        self.figures.push(Figure { key, label: label.into(), value, kind, text });
    }

    /// A figure that models share, under its own name.
    pub fn quantity(&mut self, quantity: Quantity, value: f64) {
        let label = quantity.name().in_language(self.language);
        self.add(quantity.kind(), quantity.key(), label, value);
    }

    /// Everything that a model knows, and what was asked for beside it.
    pub fn profile(&mut self, profile: &Profile, show: &Show) -> Result<()> {
        let language = self.language;
        for (quantity, value) in profile.figures() {
            self.quantity(quantity, value);
        }
        let parts = [
            ("wq", say!(language, "of the wait", "等待时间"), profile.wait()),
            ("w", say!(language, "of the response", "响应时间"), profile.response()),
        ];
        for (key, what, part) in &parts {
            let Some(part) = part else { continue };
            for (name, p) in show.percentiles()? {
                let label = say!(language, "p{name} {what}", "{what} p{name}");
                self.add(Kind::Time, format!("{key}_p{name}"), label, part.quantile(p)?);
            }
        }
        if let Some(t) = show.within()? {
            let mut known = false;
            for (key, what, part) in &parts {
                let Some(part) = part else { continue };
                known = true;
                let time = seconds(t);
                let label = say!(language, "within {time}, {what}", "{what}不超过 {time}");
                self.add(Kind::Share, format!("{key}_cdf"), label, part.cdf(t)?);
                let label = say!(language, "longer than {time}, {what}", "{what}超过 {time}");
                self.add(Kind::Share, format!("{key}_sf"), label, part.sf(t)?);
            }
            if !known {
                anyhow::bail!("--within: this model has means only, no distribution of its times");
            }
        }
        if let Some(last) = show.states()? {
            for n in 0..=last {
                let Some(p) = profile.pn(n) else {
                    anyhow::bail!("--states: this model does not know the states");
                };
                let label = say!(language, "{n} in the system", "系统内有 {n} 个");
                self.add(Kind::Share, format!("p_n{n}"), label, p?);
            }
        }
        Ok(())
    }

    /// The curve over these loads, each a share of the rate `full`.
    pub fn curve(
        &mut self,
        loads: &[f64],
        full: f64,
        at: &dyn Fn(f64) -> Result<Profile>,
    ) -> Result<()> {
        let mut columns = vec![("load".to_owned(), Kind::Share), ("rate".to_owned(), Kind::Rate)];
        let known = [Quantity::PWait, Quantity::PBlock, Quantity::L, Quantity::Wq, Quantity::W];
        let mut rows = Vec::new();
        let (mut has, mut waits, mut responds) = (Vec::new(), false, false);
        for &load in loads {
            let profile = at(load * full)?;
            if rows.is_empty() {
                has = known.iter().copied().filter(|&q| profile.get(q).is_some()).collect();
                columns.extend(has.iter().map(|q| (q.key().to_owned(), q.kind())));
                (waits, responds) = (profile.wait().is_some(), profile.response().is_some());
                if waits {
                    columns.push(("wq_p99".to_owned(), Kind::Time));
                }
                if responds {
                    columns.push(("w_p99".to_owned(), Kind::Time));
                }
            }
            let mut row = vec![Some(load), Some(load * full)];
            row.extend(has.iter().map(|&q| profile.get(q)));
            let parts = [(waits, profile.wait()), (responds, profile.response())];
            for (_, part) in parts.into_iter().filter(|(has, _)| *has) {
                row.push(part.map(|part| part.quantile(0.99)).transpose()?);
            }
            rows.push(row);
        }
        self.curve = Some(Curve { columns, rows });
        Ok(())
    }

    fn curve_table(&self, curve: &Curve) -> (Vec<String>, Vec<Vec<String>>) {
        let cell = |value: &Option<f64>, kind: Kind| {
            value.map_or_else(|| "-".to_owned(), |v| shown(v, kind, self.language))
        };
        let mut header: Vec<String> = curve.columns.iter().map(|(key, _)| key.clone()).collect();
        let mut rows: Vec<Vec<String>> = curve
            .rows
            .iter()
            .map(|row| {
                row.iter().zip(&curve.columns).map(|(v, (_, kind))| cell(v, *kind)).collect()
            })
            .collect();
        // A bar of the mean response, the longest twenty wide.
        if let Some(w) = curve.columns.iter().position(|(key, _)| key == "w") {
            let value = |row: &[Option<f64>]| row[w].filter(|v| v.is_finite()).unwrap_or(0.0);
            let most = curve.rows.iter().map(|row| value(row)).fold(0.0, f64::max);
            header.push(String::new());
            for (row, values) in rows.iter_mut().zip(&curve.rows) {
                let length = if 0.0 < most { 20.0 * value(values) / most } else { 0.0 };
                row.push(format!("{:<20}", bar(length)));
            }
        }
        (header, rows)
    }

    fn json(&self) -> Result<String> {
        // JSON has no infinity; an unbounded time is null.
        let figures: Map<String, Value> =
            self.figures.iter().map(|f| (full_key(&f.key, f.kind), json!(f.value))).collect();
        let mut object = json!({
            "schema_version": 1,
            "model": self.model,
            "figures": figures,
            "reading": self.reading,
        });
        if let Some(object) = object.as_object_mut() {
            if !self.notes.is_empty() {
                object.insert("notes".to_owned(), json!(self.notes));
            }
            if !self.findings.is_empty() {
                let findings = self.findings.iter().map(finding_json).collect();
                object.insert("findings".to_owned(), Value::Array(findings));
            }
            if let Some(curve) = &self.curve {
                let rows: Vec<Value> = curve
                    .rows
                    .iter()
                    .map(|row| {
                        let named = curve.columns.iter().zip(row);
                        named
                            .map(|((key, kind), v)| (full_key(key, *kind), json!(v)))
                            .collect::<Map<_, _>>()
                            .into()
                    })
                    .collect();
                object.insert("curve".to_owned(), Value::Array(rows));
            }
        }
        output::json_text(&object)
    }

    pub fn render(&self, format: Format) -> Result<String> {
        let rows = |full: bool| -> Vec<Vec<String>> {
            self.figures
                .iter()
                .map(|f| {
                    if full {
                        vec![full_key(&f.key, f.kind), f.value.to_string()]
                    } else {
                        let own = || shown(f.value, f.kind, self.language);
                        vec![f.label.clone(), f.text.clone().unwrap_or_else(own)]
                    }
                })
                .collect()
        };
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        Ok(match format {
            Format::Text => {
                let indented = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
                    rows.into_iter()
                        .map(|mut row| {
                            if let Some(first) = row.first_mut() {
                                first.insert_str(0, "  ");
                            }
                            row
                        })
                        .collect()
                };
                let table = output::plain_table(&["", ""], &indented(rows(false)));
                let mut text = format!("{}\n{}", self.model, table.trim_start_matches('\n'));
                if let Some(curve) = &self.curve {
                    let (header, rows) = self.curve_table(curve);
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    let mut header = header;
                    let first = format!("  {}", header[0]);
                    header[0] = &first;
                    text += &format!("\n{}", output::plain_table(&header, &indented(rows)));
                }
                format!("{text}\n{}\n{notes}", self.reading)
            }
            Format::Csv => match &self.curve {
                // The curve alone: one row a load, so that it can be plotted as it is.
                Some(curve) => {
                    let header: Vec<String> =
                        curve.columns.iter().map(|(key, kind)| full_key(key, *kind)).collect();
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    let cell = |v: &Option<f64>| v.map_or_else(String::new, |v| v.to_string());
                    let rows: Vec<Vec<String>> =
                        curve.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
                    output::csv_text(&header, &rows)?
                }
                None => output::csv_text(&["figure", "value"], &rows(true))?,
            },
            Format::Md => {
                let header = match self.language {
                    Language::En => ["figure", "value"],
                    Language::Zh => ["指标", "数值"],
                };
                let mut table = output::markdown_table(&header, &rows(false));
                if let Some(curve) = &self.curve {
                    let header: Vec<&str> =
                        curve.columns.iter().map(|(key, _)| key.as_str()).collect();
                    let (_, mut rows) = self.curve_table(curve);
                    for row in &mut rows {
                        row.truncate(header.len());
                    }
                    table += &format!("\n{}", output::markdown_table(&header, &rows));
                }
                let notes = if notes.is_empty() { notes } else { format!("\n{notes}") };
                format!("**{}**\n\n{table}\n{}\n{notes}", self.model, self.reading)
            }
            Format::Json => self.json()?,
        })
    }
}

/// A bar of `length` cells, from 0 to 20, in eighths.
fn bar(length: f64) -> String {
    let mut text = String::new();
    let mut left = length;
    while 1.0 <= left {
        text.push('█');
        left -= 1.0;
    }
    let eighths = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let part = eighths.iter().rev().zip((1..=7).rev()).find(|(_, n)| f64::from(*n) <= 8.0 * left);
    if let Some((part, _)) = part {
        text.push(*part);
    }
    text
}

/// What a tenth more load does, in words: `now` and `more` are a model's figures at the rate and at
/// 1.1 times it; `None` if it cannot take that much.
pub fn tenth_more(now: &Profile, more: Option<&Profile>, language: Language) -> String {
    let Some(more) = more else {
        return say!(
            language,
            "A tenth more load is more than it can take: the queue would grow without end.",
            "负载再增一成就超出服务能力：队列会无限增长。"
        );
    };
    let mean = |q| Some((now.get(q)?, more.get(q)?)).filter(|(a, b)| 0.0 < *a && b.is_finite());
    let (what, (a, b)) = match (mean(Quantity::Wq), mean(Quantity::W)) {
        (Some(wait), _) => (say!(language, "mean wait", "平均等待"), wait),
        (None, Some(response)) => (say!(language, "mean response", "平均响应时间"), response),
        (None, None) => return String::new(),
    };
    let (from, to, by) = (seconds(a), seconds(b), crate::gate::change_shown(b / a - 1.0));
    say!(
        language,
        "A tenth more load takes the {what} from {from} to {to} ({by}).",
        "负载再增一成，{what}从 {from} 变为 {to}（{by}）。"
    )
}

/// What the figures of a model mean, in plain words.
pub fn reading(profile: &Profile, tenth: Option<String>, language: Language) -> String {
    let mut parts = Vec::new();
    if let Some(rho) = profile.get(Quantity::Utilization) {
        let busy = format::percent(rho);
        parts.push(say!(language, "Busy {busy} of the time.", "忙碌时间占 {busy}。"));
    }
    if let Some(p) = profile.get(Quantity::PBlock).filter(|p| 0.0 < *p) {
        let lost = figure_share(p);
        parts.push(say!(
            language,
            "{lost} of the arrivals are turned away.",
            "{lost} 的到达被拒绝。"
        ));
    }
    if let Some(p) = profile.get(Quantity::PAbandon).filter(|p| 0.0 < *p) {
        let lost = figure_share(p);
        parts.push(say!(
            language,
            "{lost} of the arrivals leave unserved.",
            "{lost} 的到达未获服务即离开。"
        ));
    }
    if let (Some(p), Some(wq)) = (profile.get(Quantity::PWait), profile.get(Quantity::WqGivenWait))
    {
        let (share, wait) = (figure_share(p), seconds(wq));
        if wq.is_finite() && 0.0 < p {
            parts.push(say!(
                language,
                "{share} of the arrivals wait, those for {wait} on average.",
                "{share} 的到达需要等待，平均 {wait}。"
            ));
        }
    }
    if let (Some(w), Some(response)) = (profile.get(Quantity::W), profile.response())
        && let Ok(p99) = response.quantile(0.99)
        && 0.0 < w
        && w.is_finite()
    {
        let times = format::significant(p99 / w, 3);
        parts.push(say!(
            language,
            "The P99 of the response is {times} times its mean.",
            "响应时间的 P99 是均值的 {times} 倍。"
        ));
    }
    if profile.get(Quantity::W) == Some(f64::INFINITY) {
        parts.push(say!(
            language,
            "The wait has no finite mean: service times of infinite variance leave none at any load.",
            "等待没有有限均值：服务时间方差无穷，任何负载下都是如此。"
        ));
    } else if let Some(tenth) = tenth.filter(|t| !t.is_empty()) {
        parts.push(tenth);
    }
    parts.join(if language == Language::Zh { "" } else { " " })
}
