//! The text that `/metrics` answers, as samples with their lines.
//!
//! Both dialects are read: Prometheus' text format 0.0.4 and OpenMetrics 1.0, with CR LF too.
//! Every sample is kept, in order, with its labels unescaped; nothing is grouped or left out, and
//! a line that is neither comment nor sample is an error with its line and column.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::{IoError, Place, Result, shown};
use crate::input::Input;

/// The declared type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, until the process is restarted.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by cumulative buckets.
    Histogram,
    /// Quantiles that the process computed itself.
    Summary,
    /// Counts by buckets that go up and down, in OpenMetrics.
    GaugeHistogram,
    /// Labels with the value 1, in OpenMetrics.
    Info,
    /// One of several states, in OpenMetrics.
    StateSet,
    /// Not declared, or declared as `untyped` or `unknown`.
    Unknown,
}

impl Kind {
    const NAMES: [(&'static str, Self); 9] = [
        ("counter", Self::Counter),
        ("gauge", Self::Gauge),
        ("histogram", Self::Histogram),
        ("summary", Self::Summary),
        ("untyped", Self::Unknown),
        ("unknown", Self::Unknown),
        ("info", Self::Info),
        ("stateset", Self::StateSet),
        ("gaugehistogram", Self::GaugeHistogram),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|&(_, kind)| kind)
    }
}

/// Labels by name; in order, so that two samples of the same labels are equal.
pub type Labels = BTreeMap<String, String>;

/// One line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its line, counted from 1.
    pub line: u64,
    /// The name as written, with `_bucket`, `_sum`, `_count` or `_total`.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its value; may be NaN or infinite.
    pub value: f64,
    /// The time stamp as written: milliseconds in Prometheus' format, seconds in OpenMetrics.
    pub timestamp: Option<f64>,
    /// An example of an observation, in OpenMetrics.
    pub exemplar: Option<Exemplar>,
}

/// An example of what a sample counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// Its labels, for example a trace id.
    pub labels: Labels,
    /// The observation.
    pub value: f64,
    /// When it was made, in seconds.
    pub timestamp: Option<f64>,
}

/// A whole answer of `/metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    /// Declared types by the name of the metric.
    pub kinds: BTreeMap<String, Kind>,
    /// The samples in the order of the file.
    pub samples: Vec<Sample>,
    /// Whether the text ends with `# EOF`, as OpenMetrics does.
    pub ended: bool,
}

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    ///
    /// [`IoError::Syntax`] with line and column for a line that is neither comment nor sample,
    /// [`IoError::Repeated`] for a second sample of the same name and labels, as in two answers
    /// that were written to one file.
    ///
    /// # Examples
    ///
    /// ```
    /// use serving_io::prometheus::Exposition;
    ///
    /// let text = "# TYPE up gauge\nup{job=\"a \\\"b\\\"\"} 1 1700000000000\n";
    /// let read = Exposition::parse("metrics.txt", text)?;
    /// assert_eq!(read.samples[0].labels["job"], "a \"b\"");
    /// assert_eq!(read.samples[0].value, 1.0);
    /// # Ok::<(), serving_io::IoError>(())
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let mut reading = Reading::new(file);
        for (i, line) in text.split('\n').enumerate() {
            reading.line(i as u64 + 1, line)?;
        }
        Ok(reading.out)
    }

    pub(super) fn read(input: Input) -> Result<Self> {
        let file = input.name.clone();
        let mut lines = input.into_lines();
        let mut reading = Reading::new(&file);
        while let Some((number, line)) = lines.next_line()? {
            reading.line(number, line)?;
        }
        Ok(reading.out)
    }
}

/// Whether a line could stand in such a text; what it could be is not told by a comment alone.
pub(super) fn is_exposition(line: &str) -> bool {
    ["# HELP ", "# TYPE ", "# UNIT "].iter().any(|c| line.trim_start().starts_with(c))
        || Line { file: "", number: 1, text: line, at: 0 }.sample().is_ok()
}

struct Reading<'a> {
    file: &'a str,
    /// The line of each sample by name and labels.
    seen: BTreeMap<(String, Labels), u64>,
    out: Exposition,
}

impl<'a> Reading<'a> {
    fn new(file: &'a str) -> Self {
        Self { file, seen: BTreeMap::new(), out: Exposition::default() }
    }

    fn line(&mut self, number: u64, text: &str) -> Result<()> {
        let text = text.strip_suffix('\r').unwrap_or(text);
        let mut line = Line { file: self.file, number, text, at: 0 };
        line.blanks();
        if line.rest().is_empty() {
            return Ok(());
        }
        if self.out.ended {
            return Err(line.wrong("the end of the text, which was `# EOF`"));
        }
        if line.take('#') {
            return self.comment(line);
        }
        let sample = line.sample()?;
        match self.seen.entry((sample.name.clone(), sample.labels.clone())) {
            Entry::Occupied(_) => {
                let at = Box::new(Place::line(self.file, number).key(sample.name));
                Err(IoError::Repeated { at })
            }
            Entry::Vacant(entry) => {
                entry.insert(number);
                self.out.samples.push(sample);
                Ok(())
            }
        }
    }

    /// What stands behind `#`; anything else than the four known words is for people.
    fn comment(&mut self, mut line: Line<'_>) -> Result<()> {
        line.blanks();
        if line.rest().trim_end() == "EOF" {
            self.out.ended = true;
            return Ok(());
        }
        let Some(rest) = line.rest().strip_prefix("TYPE") else { return Ok(()) };
        if !rest.starts_with([' ', '\t']) {
            return Ok(());
        }
        line.at += "TYPE".len();
        line.blanks();
        let name = if line.rest().starts_with('"') { line.quoted()? } else { line.name(true)? };
        line.blanks();
        let Some(kind) = Kind::named(line.rest().trim_end()) else {
            let names: Vec<&str> = Kind::NAMES.iter().map(|(n, _)| *n).collect();
            return Err(line.wrong(&format!("a type: {}", names.join(", "))));
        };
        self.out.kinds.insert(name, kind);
        Ok(())
    }
}

/// A line and how far it is read.
#[derive(Clone, Copy)]
struct Line<'a> {
    file: &'a str,
    number: u64,
    text: &'a str,
    /// In bytes.
    at: usize,
}

impl<'a> Line<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn wrong(&self, expected: &str) -> IoError {
        let rest = self.rest();
        let found = if rest.is_empty() {
            "the end of the line".to_owned()
        } else {
            format!("`{}`", shown(rest))
        };
        IoError::Syntax {
            at: Box::new(Place::line(self.file, self.number)),
            column: self.at as u64 + 1,
            found,
            expected: expected.to_owned(),
        }
    }

    fn sample(mut self) -> Result<Sample> {
        self.blanks();
        let mut name = None;
        if !self.rest().starts_with('{') {
            name = Some(self.name(true)?);
        }
        self.blanks();
        let mut labels = Labels::new();
        if self.take('{') {
            self.labels(&mut labels, &mut name)?;
        }
        let Some(name) = name else {
            return Err(self.wrong("a sample with a name"));
        };
        let value = self.number("a number, NaN, +Inf or -Inf")?;
        self.blanks();
        let mut timestamp = None;
        if !self.rest().is_empty() && !self.rest().starts_with('#') {
            timestamp = Some(self.number("a time stamp")?);
            self.blanks();
        }
        let exemplar = if self.take('#') { Some(self.exemplar()?) } else { None };
        self.blanks();
        if !self.rest().is_empty() {
            return Err(self.wrong("the end of the line"));
        }
        Ok(Sample { line: self.number, name, labels, value, timestamp, exemplar })
    }

    fn exemplar(&mut self) -> Result<Exemplar> {
        self.blanks();
        if !self.take('{') {
            return Err(self.wrong("the labels of an exemplar, in braces"));
        }
        let mut labels = Labels::new();
        self.labels(&mut labels, &mut Some(String::new()))?;
        let value = self.number("the exemplar's value")?;
        self.blanks();
        let timestamp =
            if self.rest().is_empty() { None } else { Some(self.number("a time stamp")?) };
        Ok(Exemplar { labels, value, timestamp })
    }

    /// Labels up to the closing brace; a quoted text alone is the name of the metric, which may
    /// then be any text.
    fn labels(&mut self, labels: &mut Labels, metric: &mut Option<String>) -> Result<()> {
        loop {
            self.blanks();
            if self.take('}') {
                return Ok(());
            }
            let start = *self;
            let quoted = self.rest().starts_with('"');
            let name = if quoted { self.quoted()? } else { self.name(false)? };
            self.blanks();
            if self.take('=') {
                self.blanks();
                let value = self.quoted()?;
                if labels.insert(name.clone(), value).is_some() {
                    let at = Place::line(self.file, self.number).key(name);
                    return Err(IoError::Repeated { at: Box::new(at) });
                }
            } else if quoted && metric.is_none() {
                *metric = Some(name);
            } else if quoted {
                return Err(start.wrong("a label with a value, as in name=\"value\""));
            } else {
                return Err(self.wrong("`=` and a value in quotes"));
            }
            self.blanks();
            if !self.take(',') && !self.rest().starts_with('}') {
                return Err(self.wrong("`,` or `}`"));
            }
        }
    }

    /// A name; colons are for metrics.
    fn name(&mut self, colons: bool) -> Result<String> {
        let rest = self.rest();
        let of_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || (colons && c == ':');
        let n = rest.find(|c| !of_name(c)).unwrap_or(rest.len());
        let name = rest.get(..n).unwrap_or_default();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong(if colons {
                "a comment, or a metric's name and its value"
            } else {
                "a label's name or `}`"
            }));
        }
        self.at += n;
        Ok(name.to_owned())
    }

    /// A text in quotes.
    fn quoted(&mut self) -> Result<String> {
        if !self.take('"') {
            return Err(self.wrong("a value in double quotes"));
        }
        let mut out = String::new();
        loop {
            let before = *self;
            let Some(c) = self.rest().chars().next() else {
                return Err(self.wrong("the closing quote"));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => {
                    let escaped = self.rest().chars().next();
                    let plain = match escaped {
                        Some('n') => '\n',
                        Some(c @ ('"' | '\\')) => c,
                        _ => return Err(before.wrong("one of the escapes `\\\\`, `\\\"`, `\\n`")),
                    };
                    self.at += 1;
                    out.push(plain);
                }
                c => out.push(c),
            }
        }
    }

    fn number(&mut self, expected: &str) -> Result<f64> {
        self.blanks();
        let rest = self.rest();
        let n = rest.find([' ', '\t']).unwrap_or(rest.len());
        let word = rest.get(..n).unwrap_or_default();
        let value: f64 = word.parse().map_err(|_| self.wrong(expected))?;
        // Digits beyond the range are read as infinite, which `+Inf` alone is.
        if value.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong("a number of at most 1.8e308 in size"));
        }
        self.at += n;
        Ok(value)
    }
}
