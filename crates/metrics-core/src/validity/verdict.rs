//! What a run is usable for, from its findings.

use std::fmt;

use super::{Check, Finding, Level, Subject};

/// What a run is usable for.
///
/// A subject is usable unless a warning affects it. An error makes the whole run unusable: it is
/// not the run that it says it is. Notes change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The checks whose findings are errors.
    pub errors: Vec<&'static Check>,
    /// What is usable, in the order of [`Subject::ALL`].
    pub usable: Vec<Subject>,
    /// What is not, each with the checks that say so.
    pub unusable: Vec<(Subject, Vec<&'static Check>)>,
}

impl Verdict {
    /// The verdict of these findings over the subjects that the run has figures of.
    #[must_use]
    pub fn of(findings: &[Finding], subjects: &[Subject]) -> Self {
        let mut errors: Vec<&'static Check> = Vec::new();
        for f in findings.iter().filter(|f| f.level == Level::Error) {
            if !errors.contains(&f.check) {
                errors.push(f.check);
            }
        }
        errors.sort_by_key(|c| c.id);
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        for subject in Subject::ALL.into_iter().filter(|s| subjects.contains(s)) {
            let mut against: Vec<&'static Check> = Vec::new();
            for f in findings {
                if Level::Warn <= f.level
                    && f.affects.contains(&subject)
                    && !against.contains(&f.check)
                {
                    against.push(f.check);
                }
            }
            against.sort_by_key(|c| c.id);
            if against.is_empty() {
                usable.push(subject);
            } else {
                unusable.push((subject, against));
            }
        }
        Self { errors, usable, unusable }
    }

    /// Whether anything of the run is usable.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.errors.is_empty() && !self.usable.is_empty()
    }

    /// Whether this subject is usable; none if the run has no figure of it.
    #[must_use]
    pub fn is_usable_for(&self, subject: Subject) -> Option<bool> {
        if self.usable.contains(&subject) {
            return Some(self.errors.is_empty());
        }
        self.unusable.iter().any(|(s, _)| *s == subject).then_some(false)
    }

    /// The verdict in a word for files: `usable`, `usable_in_part`, `not_usable`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if !self.is_usable() {
            "not_usable"
        } else if self.unusable.is_empty() {
            "usable"
        } else {
            "usable_in_part"
        }
    }
}

/// `W01, W02`.
fn ids<'a>(checks: impl IntoIterator<Item = &'a &'static Check>) -> String {
    let ids: Vec<&str> = checks.into_iter().map(|c| c.id).collect();
    ids.join(", ")
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

impl fmt::Display for Verdict {
    /// `usable`, `usable for TPOT, not for TTFT (W05)`, `not usable (W01)` or, of a run without any
    /// figure, `not usable, as it has no figures`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.errors.is_empty() {
            return write!(f, "not usable ({})", ids(&self.errors));
        }
        if self.unusable.is_empty() {
            let known = !self.usable.is_empty();
            return f.write_str(if known { "usable" } else { "not usable, as it has no figures" });
        }
        // Subjects with the same reasons stand together.
        let mut groups: Vec<(&[&'static Check], Vec<&str>)> = Vec::new();
        for (subject, checks) in &self.unusable {
            match groups.iter_mut().find(|(c, _)| *c == checks.as_slice()) {
                Some((_, subjects)) => subjects.push(subject.text().en),
                None => groups.push((checks, vec![subject.text().en])),
            }
        }
        let not: Vec<String> =
            groups.iter().map(|(c, s)| format!("{} ({})", listed(s), ids(*c))).collect();
        let not = not.join(", not for ");
        if self.usable.is_empty() {
            return write!(f, "not usable for {not}");
        }
        let usable: Vec<&str> = self.usable.iter().map(|s| s.text().en).collect();
        write!(f, "usable for {}, not for {not}", listed(&usable))
    }
}
