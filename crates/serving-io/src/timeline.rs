//! Our own timelines: one JSON object a line and request, read and written.
//!
//! # A request
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `id` | text or whole number, required | the request's name, unique in the file |
//! | `arrival_s` or `arrival_ps` | instant | when it was due: the scheduled send time if known, else the send time |
//! | `sent_s`, `sent_ps` | instant | when the client sent it |
//! | `scheduled_s`, `scheduled_ps` | instant | when the server first took it into a batch |
//! | `first_token_s`, `first_token_ps` | instant | when the first output with a token came |
//! | `last_token_s`, `last_token_ps` | instant | when the last output with a token came |
//! | `token_s`, `token_ps` | list of instants | when each output token came |
//! | `ttft_s`, `e2e_s` | number | durations from arrival to the first and last token, instead of instants |
//! | `itl_s` | list of numbers | gaps between tokens, instead of `token_s` |
//! | `chunk_gap_s` | list of numbers | gaps between chunks of the stream, where tokens are not known one by one |
//! | `input_tokens`, `output_tokens` | whole number | token counts, at most 2^53 |
//! | `outcome` | text | `completed`, `failed`, `rejected`, `timed_out`, `cancelled` or `cut_off` |
//!
//! An instant under `…_s` is a number of seconds. Under `…_ps` it is a whole number of picoseconds
//! in a **text**, `"arrival_ps": "12345"`, since a JSON number is exact only up to 2^53 ps (2.5
//! hours); differences of two such instants are exact. All instants of a file count from one
//! origin, at or before the first arrival. A field has one of its two keys, not both.
//!
//! Absent or null means unknown. Without `outcome`, a request with any time of an output is
//! completed; without one, `outcome` is required. Unknown keys are errors, so that a misspelt one
//! is not skipped. Blank lines, a byte order mark and CRLF are allowed. An instant other than
//! `arrival` needs `arrival`.
//!
//! # A header
//!
//! The first line may say what the instants count from:
//!
//! ```json
//! {"schema_version": 1, "kind": "goodput-timelines", "epoch_s": 1700000000, "duration_s": 60}
//! ```
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `schema_version` | 1, required | this format |
//! | `kind` | `goodput-timelines`, required | this format |
//! | `epoch_s` | number | Unix time of the instants' origin |
//! | `duration_s` or `duration_ps` | number, or text as above | how long the run took, above 0: a run without length has no rate; leave it out if it is unknown |
//! | `truncated` | true or false | whether the run was stopped while requests were left; it then has no rates |
//! | `tool`, `tool_version` | text | who wrote the file |
//!
//! # Examples
//!
//! ```
//! use metrics_core::RequestTimeline;
//! use serving_io::{Options, read, timeline::{Header, Writer}};
//!
//! let request = RequestTimeline::completed("r1", 0.0, 0.4, 1.0, 4)?;
//! let mut writer = Writer::new(Vec::new(), Some(&Header::default()))?;
//! writer.request(&request)?;
//! let bytes = writer.finish()?;
//!
//! let file = read("out.jsonl", std::io::Cursor::new(bytes), &Options::default())?;
//! assert_eq!(file.runs[0].timelines, [request]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Write};

use metrics_core::format::things;
use metrics_core::timeline::{GapKind, Gaps, LARGEST_TOKENS, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result, Spot, input_of, listed};
use crate::input::{Head, Input, Lines};
use crate::json::{self, COUNT};
use crate::rows::{Ids, Row, Stream, implied_outcome, outcome_names};
use crate::run::{Clock, Run, RunDuration, Tool};

/// The value of `kind` in a header.
pub const KIND: &str = "goodput-timelines";
/// The version of the format.
pub const SCHEMA_VERSION: u64 = 1;

/// Keys of a request.
const KEYS: [&str; 20] = [
    "id",
    "arrival_s",
    "arrival_ps",
    "sent_s",
    "sent_ps",
    "scheduled_s",
    "scheduled_ps",
    "first_token_s",
    "first_token_ps",
    "last_token_s",
    "last_token_ps",
    "token_s",
    "token_ps",
    "ttft_s",
    "e2e_s",
    "itl_s",
    "chunk_gap_s",
    "input_tokens",
    "output_tokens",
    "outcome",
];
/// Keys of a header.
const HEADER_KEYS: [&str; 8] = [
    "schema_version",
    "kind",
    "epoch_s",
    "duration_s",
    "duration_ps",
    "truncated",
    "tool",
    "tool_version",
];

const SECONDS: &str = "a number of seconds";
const PICOSECONDS_TEXT: &str = "whole picoseconds in a text, for example \"12345\"";

/// What a file of timelines says about its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Unix time of the instants' origin.
    pub epoch_s: Option<f64>,
    /// How long the run took.
    pub duration: Option<Instant>,
    /// Whether the run was stopped while requests were left.
    pub truncated: bool,
    /// Who wrote the file.
    pub tool: Option<String>,
    /// Its version.
    pub tool_version: Option<String>,
}

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Timelines;

impl Reader for Timelines {
    fn format(&self) -> Format {
        Format::Timeline
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        let line = head.first_line();
        if line.contains(KIND) && head.has_key("kind") {
            return true;
        }
        options.map.is_empty()
            && !head.keys.is_empty()
            && head.keys.iter().all(|k| KEYS.contains(&k.as_str()))
            && head.has_key("id")
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let mut timelines = Vec::new();
        let mut runs = collect(input, Some(Ids::default()), |_, timeline| {
            timelines.push(timeline);
            Ok(())
        })?;
        if let Some(run) = runs.first_mut() {
            run.timelines = timelines;
        }
        Ok(runs)
    }

    fn stream(&self, input: Input, _: &Options, to: &mut Stream<'_>) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let ids = to.compare_ids.then(Ids::default);
        collect(input, ids, |line, timeline| to.push(&name, line, &timeline))
    }
}

/// Reads all rows; the run says everything but the requests, which go to `take`.
fn collect(
    input: Input,
    mut ids: Option<Ids>,
    mut take: impl FnMut(u64, RequestTimeline) -> Result<()>,
) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let mut rows = Rows::new(input)?;
    let mut run = Run { line: 1, ..Run::default() };
    let (mut requests, mut arrivals) = (0_u64, false);
    for row in rows.by_ref() {
        let (line, timeline) = row?;
        if let Some(ids) = &mut ids {
            ids.check(&name, "id", line, timeline.id())?;
        }
        requests += 1;
        arrivals |= timeline.arrival().is_some();
        take(line, timeline)?;
    }
    if requests == 0 {
        let expected = "one JSON object a line and request";
        return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
    }
    describe(rows.header, rows.implied, arrivals, &mut run);
    Ok(vec![run])
}

/// Fills what the header says.
fn describe(header: Option<Header>, implied: u64, arrivals: bool, run: &mut Run) {
    let with_header = header.is_some();
    let header = header.unwrap_or_default();
    if arrivals {
        run.clock = if with_header {
            Clock::RunStart { epoch_s: header.epoch_s }
        } else {
            Clock::Unspecified
        };
    } else {
        run.lacks("arrivals, and with them concurrency over time", "`arrival_s` in each line");
    }
    run.tool =
        Tool { name: header.tool.unwrap_or_default(), version: header.tool_version, age: None };
    run.truncated = header.truncated;
    if run.truncated {
        let text = "the run was stopped while requests were left: it has no rates, and its \
                    latencies are those of the requests that had ended";
        run.note("truncated", &["request_throughput", "goodput", "attainment"], text.to_owned());
    }
    if let Some(duration) = header.duration {
        // Checked above zero when the header was read.
        if let Ok(value) = Seconds::named("duration", duration.seconds()) {
            run.duration = Some(RunDuration { value, from: "the header's duration" });
        }
    } else {
        run.lacks("duration of the run", "a header line with `duration_s`");
    }
    if 0 < implied {
        let text =
            format!("{} without an `outcome`, taken as completed", things(implied, "request"));
        run.note("outcome-implied", &["goodput", "attainment"], text);
    }
}

/// The requests of a file, line by line, without holding the file.
///
/// Ids are not compared: who needs that keeps them.
pub struct Rows {
    lines: Lines,
    /// What the header says, if there is one.
    pub header: Option<Header>,
    /// A first line that was no header.
    first: Option<(u64, String)>,
    /// Requests so far whose outcome was not in the file.
    pub implied: u64,
}

impl Rows {
    /// Reads the header, if there is one.
    ///
    /// # Errors
    ///
    /// [`IoError`] for a header that is wrong or a file that cannot be read.
    pub fn new(input: Input) -> Result<Self> {
        let mut lines = input.into_lines();
        let name = lines.name().to_owned();
        let mut header = None;
        let mut first = None;
        if let Some((line, text)) = lines.next_line()? {
            let object = json::object(&name, line, text)?;
            if object.0.iter().any(|(k, _)| k == "kind" || k == "schema_version") {
                header = Some(read_header(Spot::line(&name, line), &object)?);
            } else {
                first = Some((line, text.to_owned()));
            }
        }
        Ok(Self { lines, header, first, implied: 0 })
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let first = self.first.take();
        let (name, next) = match &first {
            Some((line, text)) => (self.lines.name(), Some((*line, text.as_str()))),
            None => self.lines.next_named()?,
        };
        let Some((line, text)) = next else { return Ok(None) };
        let (fields, implied) = read_fields(name, line, text)?;
        let keys = KeysUsed::of(&fields);
        let timeline = RequestTimeline::new(fields).map_err(|source| {
            let at = Spot { key: keys.key_of(&source), ..Spot::line(name, line) }.place();
            IoError::Request { at, source, note: "" }
        })?;
        self.implied += u64::from(implied);
        Ok(Some((line, timeline)))
    }
}

impl Iterator for Rows {
    type Item = Result<(u64, RequestTimeline)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

/// Under which keys the fields of a request stood, for messages.
struct KeysUsed {
    arrival: &'static str,
    sent: &'static str,
    scheduled: &'static str,
    first_token: &'static str,
    last_token: &'static str,
    tokens: &'static str,
    gaps: &'static str,
}

impl KeysUsed {
    fn of(f: &TimelineFields) -> Self {
        let pick = |at: Option<Instant>, s, ps, duration| match at {
            Some(Instant::Picoseconds(_)) => ps,
            Some(Instant::Seconds(_)) => s,
            None => duration,
        };
        Self {
            arrival: pick(f.arrival, "arrival_s", "arrival_ps", "arrival_s"),
            sent: pick(f.sent, "sent_s", "sent_ps", "sent_s"),
            scheduled: pick(f.scheduled, "scheduled_s", "scheduled_ps", "scheduled_s"),
            first_token: pick(f.first_token, "first_token_s", "first_token_ps", "ttft_s"),
            last_token: pick(f.last_token, "last_token_s", "last_token_ps", "e2e_s"),
            tokens: pick(
                f.tokens.as_ref().and_then(|t| t.first().copied()),
                "token_s",
                "token_ps",
                "token_s",
            ),
            gaps: match f.gaps {
                Some((GapKind::Chunk, _)) => "chunk_gap_s",
                _ => "itl_s",
            },
        }
    }

    fn key_of(&self, error: &metrics_core::Error) -> Option<&'static str> {
        let key = match input_of(error)? {
            "arrival" => self.arrival,
            "sent" => self.sent,
            "scheduled" => self.scheduled,
            "first_token" => self.first_token,
            "last_token" => self.last_token,
            "ttft" => "ttft_s",
            "e2e" => "e2e_s",
            "output_tokens" => "output_tokens",
            "input_tokens" => "input_tokens",
            "a token instant" => self.tokens,
            "a gap between outputs" => self.gaps,
            _ => return None,
        };
        Some(key)
    }
}

/// A value of the wrong type or range.
fn wrong(at: Spot<'_>, value: &RawValue, expected: impl Into<String>) -> IoError {
    IoError::Value { at: at.place(), found: json::raw(value), expected: expected.into() }
}

/// Whether a value says "unknown".
fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// A JSON number as `f64`, read by the exact parser of the standard library.
pub(crate) fn number(text: &str) -> Option<f64> {
    let numeric = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    numeric.then(|| text.parse().ok()).flatten().filter(|x: &f64| x.is_finite())
}

/// A key that a request or a header does not have; one that is nearly right is named.
fn unknown_key(at: Spot<'_>, keys: &[&str], all: impl Fn() -> String) -> IoError {
    let key = at.key.unwrap_or("");
    let near = keys.iter().map(|k| (strsim::osa_distance(key, k), k)).min();
    let known = match near {
        Some((distance, near)) if distance <= 2 && 4 < near.len() => {
            format!("did you mean `{near}`?")
        }
        _ => all(),
    };
    IoError::UnknownKey { at: at.place(), known }
}

/// The keys of a request, for a message; those with two units once.
fn keys() -> String {
    let mut names: Vec<String> = Vec::new();
    for key in KEYS {
        if let Some(name) = key.strip_suffix("_ps")
            && let Some(last) = names.last_mut()
            && *last == format!("{name}_s")
        {
            last.push_str("|_ps");
        } else {
            names.push(key.to_owned());
        }
    }
    format!("expected one of {}", names.join(", "))
}

fn read_header(line: Spot<'_>, object: &json::Object<'_>) -> Result<Header> {
    let mut header = Header::default();
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in &object.0 {
        let here = line.key(key);
        if !HEADER_KEYS.contains(&key.as_ref()) {
            return Err(unknown_key(here, &HEADER_KEYS, || {
                format!("expected one of {}", listed(HEADER_KEYS))
            }));
        }
        if seen.contains(&key.as_ref()) {
            return Err(IoError::Repeated { at: here.place() });
        }
        seen.push(key);
        match key.as_ref() {
            "schema_version" if number(value.get()) != Some(SCHEMA_VERSION as f64) => {
                return Err(wrong(here, value, format!("{SCHEMA_VERSION}")));
            }
            "kind" if value.get() != format!("\"{KIND}\"") => {
                return Err(wrong(here, value, format!("\"{KIND}\"")));
            }
            "schema_version" | "kind" => {}
            _ if is_null(value) => {}
            "epoch_s" => header.epoch_s = Some(seconds(here, value)?),
            "duration_s" | "duration_ps" if header.duration.is_some() => {
                return Err(IoError::Repeated { at: here.place() });
            }
            "duration_s" | "duration_ps" => {
                let duration = instant(here, value)?;
                if duration.seconds() <= 0.0 {
                    let expected = "a duration above 0; leave it out if it is unknown";
                    return Err(wrong(here, value, expected));
                }
                Seconds::named("duration", duration.seconds())
                    .map_err(|source| IoError::Request { at: here.place(), source, note: "" })?;
                header.duration = Some(duration);
            }
            "truncated" => {
                header.truncated = match value.get() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(wrong(here, value, "true or false")),
                }
            }
            "tool" => header.tool = Some(text(here, value)?),
            _ => header.tool_version = Some(text(here, value)?),
        }
    }
    for key in ["schema_version", "kind"] {
        if !seen.contains(&key) {
            let found = "a header without it".to_owned();
            let expected = format!("\"schema_version\": {SCHEMA_VERSION} and \"kind\": \"{KIND}\"");
            let at = line.key(key).place();
            return Err(IoError::Value { at, found, expected });
        }
    }
    Ok(header)
}

fn seconds(at: Spot<'_>, value: &RawValue) -> Result<f64> {
    number(value.get()).ok_or_else(|| wrong(at, value, SECONDS))
}

fn text(at: Spot<'_>, value: &RawValue) -> Result<String> {
    serde_json::from_str(value.get()).map_err(|_| wrong(at, value, "a text"))
}

/// A text of whole picoseconds.
fn picoseconds(value: &str) -> Option<u128> {
    let digits = value.strip_prefix('"')?.strip_suffix('"')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// An instant under a key that ends in its unit.
fn instant(at: Spot<'_>, value: &RawValue) -> Result<Instant> {
    if at.key.is_some_and(|k| k.ends_with("_ps")) {
        return picoseconds(value.get())
            .map(Instant::Picoseconds)
            .ok_or_else(|| wrong(at, value, PICOSECONDS_TEXT));
    }
    seconds(at, value).map(Instant::Seconds)
}

/// A list of such values.
fn list<'a, T>(
    at: Spot<'a>,
    value: &RawValue,
    one: impl Fn(Spot<'a>, &RawValue) -> Result<T>,
) -> Result<Vec<T>> {
    let items: Vec<&RawValue> = serde_json::from_str(value.get())
        .map_err(|_| wrong(at, value, "a list, one value a token or gap"))?;
    items.into_iter().enumerate().map(|(i, v)| one(at.index(i), v)).collect()
}

fn count(at: Spot<'_>, value: &RawValue) -> Result<u64> {
    value.get().parse().ok().filter(|&n| n <= LARGEST_TOKENS).ok_or_else(|| wrong(at, value, COUNT))
}

/// Puts a value into a slot that two keys can fill, or a second time.
fn put<T>(slot: &mut Option<T>, at: Spot<'_>, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(IoError::Repeated { at: at.place() });
    }
    Ok(())
}

/// The fields in one line, and whether its outcome had to be implied.
fn read_fields(file: &str, line: u64, text_of_line: &str) -> Result<(TimelineFields, bool)> {
    let object = json::object(file, line, text_of_line)?;
    let row = Spot::line(file, line);
    let mut f = TimelineFields::default();
    let mut id = None;
    let mut outcome = None;
    let mut seen: Vec<&str> = Vec::with_capacity(object.0.len());
    for (key, value) in &object.0 {
        let at = row.key(key);
        if !KEYS.contains(&key.as_ref()) {
            return Err(unknown_key(at, &KEYS, keys));
        }
        if seen.contains(&key.as_ref()) {
            return Err(IoError::Repeated { at: at.place() });
        }
        seen.push(key);
        if is_null(value) {
            continue;
        }
        match key.as_ref() {
            "id" => id = Some(read_id(at, value)?),
            "arrival_s" | "arrival_ps" => put(&mut f.arrival, at, instant(at, value)?)?,
            "sent_s" | "sent_ps" => put(&mut f.sent, at, instant(at, value)?)?,
            "scheduled_s" | "scheduled_ps" => put(&mut f.scheduled, at, instant(at, value)?)?,
            "first_token_s" | "first_token_ps" => {
                put(&mut f.first_token, at, instant(at, value)?)?;
            }
            "last_token_s" | "last_token_ps" => put(&mut f.last_token, at, instant(at, value)?)?,
            "token_s" | "token_ps" => put(&mut f.tokens, at, list(at, value, instant)?)?,
            "ttft_s" => f.ttft = Some(seconds(at, value)?),
            "e2e_s" => f.e2e = Some(seconds(at, value)?),
            "itl_s" => put(&mut f.gaps, at, (GapKind::Token, list(at, value, seconds)?))?,
            "chunk_gap_s" => put(&mut f.gaps, at, (GapKind::Chunk, list(at, value, seconds)?))?,
            "input_tokens" => f.input_tokens = Some(count(at, value)?),
            "output_tokens" => f.output_tokens = Some(count(at, value)?),
            _ => outcome = Some(read_outcome(at, value)?),
        }
    }
    f.id = id.ok_or_else(|| IoError::Value {
        at: row.key("id").place(),
        found: "a request without it".to_owned(),
        expected: "the request's name".to_owned(),
    })?;
    let implied = outcome.is_none();
    f.outcome = outcome.or_else(|| implied_outcome(&f)).ok_or_else(|| IoError::Value {
        at: row.key("outcome").place(),
        found: "a request without it and without a time of an output".to_owned(),
        expected: format!("one of {}", outcome_names()),
    })?;
    Ok((f, implied))
}

fn read_id(at: Spot<'_>, value: &RawValue) -> Result<String> {
    let raw = value.get();
    if raw.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(raw.to_owned());
    }
    serde_json::from_str::<String>(raw)
        .ok()
        .filter(|id| !id.is_empty())
        .ok_or_else(|| wrong(at, value, "a text that is not empty, or a whole number"))
}

fn read_outcome(at: Spot<'_>, value: &RawValue) -> Result<Outcome> {
    serde_json::from_str(value.get())
        .map_err(|_| wrong(at, value, format!("one of {}", outcome_names())))
}

/// Writes timelines line by line.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file, with a header if there is one.
    ///
    /// # Errors
    ///
    /// What the system says, or a number that is not finite.
    pub fn new(out: W, header: Option<&Header>) -> io::Result<Self> {
        let mut writer = Self { out };
        if let Some(h) = header {
            let mut line = Map::new();
            line.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
            line.insert("kind".to_owned(), KIND.into());
            if let Some(epoch) = h.epoch_s {
                line.insert("epoch_s".to_owned(), finite(epoch)?);
            }
            if let Some(duration) = h.duration {
                insert_instant(&mut line, "duration", duration)?;
            }
            if h.truncated {
                line.insert("truncated".to_owned(), true.into());
            }
            for (key, value) in [("tool", &h.tool), ("tool_version", &h.tool_version)] {
                if let Some(value) = value {
                    line.insert(key.to_owned(), value.as_str().into());
                }
            }
            writer.line(line)?;
        }
        Ok(writer)
    }

    /// Writes a request from its fields; whole picoseconds stay exact.
    ///
    /// # Errors
    ///
    /// What the system says, or a number that is not finite.
    pub fn fields(&mut self, f: &TimelineFields) -> io::Result<()> {
        let mut line = Map::new();
        line.insert("id".to_owned(), f.id.as_str().into());
        for (name, at) in [
            ("arrival", f.arrival),
            ("sent", f.sent),
            ("scheduled", f.scheduled),
            ("first_token", f.first_token),
            ("last_token", f.last_token),
        ] {
            if let Some(at) = at {
                insert_instant(&mut line, name, at)?;
            }
        }
        for (name, duration) in [("ttft_s", f.ttft), ("e2e_s", f.e2e)] {
            if let Some(duration) = duration {
                line.insert(name.to_owned(), finite(duration)?);
            }
        }
        if let Some(tokens) = &f.tokens {
            insert_instants(&mut line, tokens)?;
        }
        if let Some((kind, gaps)) = &f.gaps {
            let name = if *kind == GapKind::Token { "itl_s" } else { "chunk_gap_s" };
            let gaps: io::Result<Vec<Value>> = gaps.iter().map(|&g| finite(g)).collect();
            line.insert(name.to_owned(), gaps?.into());
        }
        for (name, n) in [("input_tokens", f.input_tokens), ("output_tokens", f.output_tokens)] {
            if let Some(n) = n {
                line.insert(name.to_owned(), n.into());
            }
        }
        line.insert("outcome".to_owned(), f.outcome.name().into());
        self.line(line)
    }

    /// Writes a checked request, so that reading gives the same TTFT, E2E and gaps bit for bit.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn request(&mut self, timeline: &RequestTimeline) -> io::Result<()> {
        self.fields(&fields_of(timeline))
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, line: Map<String, Value>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Value::Object(line))?;
        self.out.write_all(b"\n")
    }
}

/// A number as JSON; JSON has no NaN and no infinity.
fn finite(x: f64) -> io::Result<Value> {
    serde_json::Number::from_f64(x).map(Value::Number).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("JSON cannot hold the number {x}"))
    })
}

fn insert_instant(line: &mut Map<String, Value>, name: &str, at: Instant) -> io::Result<()> {
    match at {
        Instant::Seconds(s) => line.insert(format!("{name}_s"), finite(s)?),
        Instant::Picoseconds(ps) => line.insert(format!("{name}_ps"), ps.to_string().into()),
    };
    Ok(())
}

/// A list is in picoseconds if all its instants are.
fn insert_instants(line: &mut Map<String, Value>, tokens: &[Instant]) -> io::Result<()> {
    let exact: Option<Vec<Value>> = tokens
        .iter()
        .map(|t| match t {
            Instant::Picoseconds(ps) => Some(Value::from(ps.to_string())),
            Instant::Seconds(_) => None,
        })
        .collect();
    if let Some(exact) = exact {
        line.insert("token_ps".to_owned(), exact.into());
        return Ok(());
    }
    let list: io::Result<Vec<Value>> = tokens.iter().map(|t| finite(t.seconds())).collect();
    line.insert("token_s".to_owned(), list?.into());
    Ok(())
}

/// The fields that make this timeline again.
///
/// TTFT, E2E and gaps are exact. The instants `sent` and `scheduled` are rebuilt from arrival: with
/// an arrival in seconds they are exact to the rounding of the instant, and never later than the
/// first token because of it.
#[must_use]
pub fn fields_of(t: &RequestTimeline) -> TimelineFields {
    let ceiling = [t.ttft(), t.e2e_latency()].into_iter().flatten().map(Seconds::get);
    let ceiling = ceiling.fold(f64::INFINITY, f64::min);
    let instant =
        |after: Option<Seconds>| after.and_then(|s| later(t.arrival()?, s.get(), ceiling));
    TimelineFields {
        id: t.id().to_owned(),
        arrival: t.arrival(),
        sent: instant(t.send_delay()),
        scheduled: instant(t.queue_time()),
        ttft: t.ttft().map(Seconds::get),
        e2e: t.e2e_latency().map(Seconds::get),
        gaps: t.gaps().map(|gaps| {
            let kind = match gaps {
                Gaps::Token(_) => GapKind::Token,
                Gaps::Chunk(_) => GapKind::Chunk,
            };
            (kind, gaps.values().iter().map(|g| g.get()).collect())
        }),
        input_tokens: t.input_tokens(),
        output_tokens: t.output_tokens(),
        outcome: t.outcome(),
        ..TimelineFields::default()
    }
}

/// The instant `after` seconds after `arrival`, on the same scale, at most `ceiling` after it.
fn later(arrival: Instant, after: f64, ceiling: f64) -> Option<Instant> {
    match arrival {
        Instant::Picoseconds(ps) => {
            let gap = (after * 1e12).round();
            // The cast saturates and the gap is not negative.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let mut gap = gap as u128;
            while 0 < gap && ceiling < gap as f64 / 1e12 {
                gap -= 1;
            }
            ps.checked_add(gap).map(Instant::Picoseconds)
        }
        Instant::Seconds(s) => {
            let mut at = s + after;
            while s < at && ceiling < at - s {
                at = at.next_down();
            }
            Some(Instant::Seconds(at))
        }
    }
}
