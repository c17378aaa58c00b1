//! One measured step, and files of them.

use sched_sim::MeanWork;

/// The shortest and the longest time of a step, in seconds.
pub(crate) const TIME_S: (f64, f64) = (1e-12, 1e6);

/// What kind of step a point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Regime {
    /// A step that only decodes.
    Decode,
    /// A step with prefill, with or without decodes.
    Prefill,
    /// The mean step of a closed loop: some with prefill, most without.
    Mean,
}

impl Regime {
    /// Its name as options and files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "prefill",
            Self::Mean => "mean step",
        }
    }

    /// One point of it, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Decode => "pure decode step",
            Self::Prefill => "step with prefill",
            Self::Mean => "mean step of a closed loop",
        }
    }
}

/// What a step processed, and how long it took.
///
/// Symbols as in [`sched_sim::StepWork`]; a mean step has fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The kind of step.
    pub regime: Regime,
    /// Prompt chunks.
    pub prefills: f64,
    /// P: prompt tokens.
    pub prefill_tokens: f64,
    /// B: requests that decode.
    pub decodes: f64,
    /// C: tokens of context that the decodes read.
    pub context: f64,
    /// A: Σ chunk · (tokens before it) + chunk² / 2.
    pub attention: f64,
    /// Prompt tokens computed before the chunks of this step, whose KV is held too.
    pub prefix: f64,
    /// How long it took, in seconds, above zero.
    pub time_s: f64,
    /// Which deployment it belongs to; points of different groups are never fitted together.
    pub group: String,
    /// Where it stands, for a message: file and line.
    pub place: String,
}

impl Point {
    /// A pure decode step.
    #[must_use]
    pub fn decode(decodes: f64, context: f64, time_s: f64) -> Self {
        Self {
            regime: Regime::Decode,
            prefills: 0.0,
            prefill_tokens: 0.0,
            decodes,
            context,
            attention: 0.0,
            prefix: 0.0,
            time_s,
            group: String::new(),
            place: String::new(),
        }
    }

    /// A step with `prefills` whole prompts of `prefill_tokens` tokens together and no decodes.
    ///
    /// A is that of prompts of one length without a prefix: P² / (2 · prefills).
    #[must_use]
    pub fn prefill(prefills: f64, prefill_tokens: f64, time_s: f64) -> Self {
        Self {
            regime: Regime::Prefill,
            prefills,
            prefill_tokens,
            attention: prefill_tokens * prefill_tokens / (2.0 * prefills),
            ..Self::decode(0.0, 0.0, time_s)
        }
    }

    /// The same point with its place.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// The same point in a group.
    #[must_use]
    pub fn of(self, group: impl Into<String>) -> Self {
        Self { group: group.into(), ..self }
    }

    /// N: all new tokens of the step.
    #[must_use]
    pub fn new_tokens(&self) -> f64 {
        self.prefill_tokens + self.decodes
    }

    /// What it processed, as a mean: a mean step has fractions.
    #[must_use]
    pub fn work(&self) -> MeanWork {
        let mut work = MeanWork::default();
        (work.prefills, work.prefill_tokens) = (self.prefills, self.prefill_tokens);
        (work.decodes, work.decode_context) = (self.decodes, self.context);
        work.attention = self.attention;
        work
    }

    /// Tokens whose KV the step needs: context of the decodes, chunks, and what is before them.
    #[must_use]
    pub fn kv_tokens(&self) -> f64 {
        self.context + self.prefix + self.prefill_tokens
    }

    /// What it is, for a message: the work, then the place.
    #[must_use]
    pub fn name(&self) -> String {
        let number = |x: f64| {
            if x.fract() == 0.0 { format!("{x:.0}") } else { format!("{x:.1}") }
        };
        let mut parts = Vec::new();
        for (symbol, x) in [("P", self.prefill_tokens), ("B", self.decodes), ("C", self.context)] {
            if x != 0.0 {
                parts.push(format!("{symbol} {}", number(x)));
            }
        }
        let work = parts.join(", ");
        if self.place.is_empty() { work } else { format!("{work} ({})", self.place) }
    }
}

/// Rows that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// How many.
    pub rows: u64,
    /// Why, as a rule that anyone can check.
    pub why: String,
    /// The first of them.
    pub first: String,
}

/// A file and the points in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The file or folder as given.
    pub name: String,
    /// What it was taken for.
    pub kind: &'static str,
    /// Its points.
    pub points: Vec<Point>,
    /// Rows that give no point.
    pub excluded: Vec<Excluded>,
    /// What had to be assumed to make points of it.
    pub assumed: Vec<String>,
    /// Columns that were not read, where others are told by their names.
    pub unread: Vec<String>,
}

impl Source {
    pub(crate) fn new(name: &str, kind: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            points: Vec::new(),
            excluded: Vec::new(),
            assumed: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Counts a row that gives no point.
    pub(crate) fn exclude(&mut self, why: &str, place: impl FnOnce() -> String) {
        match self.excluded.iter_mut().find(|e| e.why == why) {
            Some(e) => e.rows += 1,
            None => {
                self.excluded.push(Excluded { rows: 1, why: why.to_owned(), first: place() });
            }
        }
    }

    /// Leaves out points that repeat another in every figure: rows copied between tables would
    /// count twice.
    pub(crate) fn drop_duplicates(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        let mut repeated = Vec::new();
        self.points.retain(|p| {
            let figures = [
                p.prefills,
                p.prefill_tokens,
                p.decodes,
                p.context,
                p.attention,
                p.prefix,
                p.time_s,
            ];
            let new = seen.insert((p.regime, p.group.clone(), figures.map(f64::to_bits)));
            if !new {
                repeated.push(p.place.clone());
            }
            new
        });
        for place in repeated {
            self.exclude("repeats another row in every figure", || place);
        }
    }
}
