//! The steady stretch, the findings and the verdict of a run, in each form.

use std::fmt::Write;

use anyhow::Result;
use metrics_core::format;
use metrics_core::validity::{Facts, Finding, Level, Verdict, findings};
use serde_json::{Map, Value, json};

/// What a run says of itself, and what follows for its use.
pub struct Believed {
    facts: Facts,
    findings: Vec<Finding>,
    verdict: Verdict,
}

/// Width of the labels, as in the other sections.
const LABEL: usize = 17;

impl Believed {
    pub fn new(facts: Facts) -> Self {
        let findings = findings(&facts);
        let verdict = Verdict::of(&findings, &facts.subjects());
        Self { facts, findings, verdict }
    }

    /// Whether the exit code has to say that something is wrong.
    pub fn is_fatal(&self, warnings_too: bool) -> bool {
        let least = if warnings_too { Level::Warn } else { Level::Error };
        self.findings.iter().any(|f| least <= f.level)
    }

    /// Ramp, drain and the rates between them.
    pub fn steady_text(&self, text: &mut String) -> Result<()> {
        let Some(s) = self.facts.steady.filter(|_| !self.facts.truncated) else { return Ok(()) };
        writeln!(text, "\nRamp and drain")?;
        let line = |text: &mut String, label: &str, content: &str| {
            writeln!(text, "  {label:LABEL$}{content}")
        };
        line(
            text,
            "steady",
            &format!(
                "{:15} of the run: {} s to {} s, {} in flight (level {})",
                format::percent(s.share()),
                format::fixed(s.from_s, 2),
                format::fixed(s.to_s, 2),
                format::rate(s.in_flight),
                format::count(s.level),
            ),
        )?;
        let tokens = s
            .output_tokens_per_s
            .map_or(String::new(), |x| format!("{} tok/s out", format::rate(x)));
        line(
            text,
            "steady rate",
            format!("{:15} {tokens}", format!("{} req/s", format::rate(s.requests_per_s)))
                .trim_end(),
        )?;
        Ok(())
    }

    /// The findings, and the verdict as the last line.
    pub fn text(&self, text: &mut String) -> Result<()> {
        if !self.findings.is_empty() {
            writeln!(text, "\nFindings")?;
        }
        for f in &self.findings {
            let says = crate::output::one_line(&f.says);
            writeln!(text, "  {} {:5} {says}", f.check.id, f.level.name())?;
            if Level::Note < f.level {
                writeln!(text, "            {}", f.check.advice.en)?;
            }
        }
        writeln!(text, "\nverdict            {}", self.verdict)?;
        Ok(())
    }

    pub fn json(&self, map: &mut Map<String, Value>) {
        let steady = self.facts.steady.filter(|_| !self.facts.truncated).map(|s| {
            json!({
                "from_s": s.from_s,
                "to_s": s.to_s,
                "share_of_run": s.share(),
                "level_in_flight": s.level,
                "in_flight_mean": s.in_flight,
                "request_throughput_per_s": s.requests_per_s,
                "output_tokens_per_s": s.output_tokens_per_s,
            })
        });
        map.insert("steady".to_owned(), json!(steady));
        let findings: Vec<Value> = self.findings.iter().map(finding).collect();
        map.insert("findings".to_owned(), Value::Array(findings));
        let against: Map<String, Value> = self
            .verdict
            .unusable
            .iter()
            .map(|(subject, checks)| {
                let ids: Vec<&str> = checks.iter().map(|c| c.id).collect();
                (subject.id().to_owned(), json!(ids))
            })
            .collect();
        let errors: Vec<&str> = self.verdict.errors.iter().map(|c| c.id).collect();
        let usable: Vec<&str> = if self.verdict.errors.is_empty() {
            self.verdict.usable.iter().map(|s| s.id()).collect()
        } else {
            Vec::new()
        };
        map.insert(
            "verdict".to_owned(),
            json!({
                "answer": self.verdict.name(),
                "text": self.verdict.to_string(),
                "usable_for": usable,
                "not_usable_for": against,
                "errors": errors,
            }),
        );
    }

    /// Rows of the CSV: figure, value, low, high, n.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let row = |name: String, value: String| {
            vec![name, value, String::new(), String::new(), String::new()]
        };
        let mut rows = Vec::new();
        if let Some(s) = self.facts.steady.filter(|_| !self.facts.truncated) {
            let figures = [
                ("steady_from_s", Some(s.from_s)),
                ("steady_to_s", Some(s.to_s)),
                ("steady_requests_per_s", Some(s.requests_per_s)),
                ("steady_output_tokens_per_s", s.output_tokens_per_s),
            ];
            rows.extend(figures.into_iter().map(|(name, x)| {
                row(name.to_owned(), x.map(|x| x.to_string()).unwrap_or_default())
            }));
        }
        rows.extend(
            self.findings
                .iter()
                .map(|f| row(format!("finding_{}_{}", f.check.id, f.level.name()), f.says.clone())),
        );
        rows.push(row("verdict".to_owned(), self.verdict.to_string()));
        rows
    }

    /// The findings as a list, and the verdict in bold.
    pub fn markdown(&self, text: &mut String) {
        text.push('\n');
        for f in &self.findings {
            let says = crate::output::one_line(&f.says);
            let _ = writeln!(text, "- {} {}: {says}", f.check.id, f.level.name());
        }
        if !self.findings.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "**Verdict: {}**", self.verdict);
    }
}

/// A finding as files have it.
pub fn finding(f: &Finding) -> Value {
    let affects: Vec<&str> = f.affects.iter().map(|s| s.id()).collect();
    let evidence: Map<String, Value> =
        f.numbers.iter().map(|n| (n.name.to_owned(), json!(n.value))).collect();
    json!({
        "id": f.check.id,
        "name": f.check.name,
        "level": f.level.name(),
        "affects": affects,
        "text": f.says,
        "evidence": evidence,
        "advice": f.check.advice.en,
    })
}
