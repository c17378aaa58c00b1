//! Partial results: what one shard of a log says, to be merged with those of the others.
//!
//! A partial result is one JSON object: the counts and sketches of a
//! [`Tally`], the objectives and options that it was made under, and the
//! shards that are in it. Merging is associative and commutative, so that any engine that maps over
//! shards and reduces in whatever order gives the same bytes. What would make the sum wrong is
//! refused by name: other objectives, another column map, another clock, a shard that is in twice.
//!
//! A duplicate id in two shards cannot be seen.
//!
//! | key | meaning |
//! |---|---|
//! | `schema_version` | 1 |
//! | `kind` | `goodput-partial` |
//! | `slo`, `strict` | the objectives, and whether a request at its limit misses it |
//! | `format`, `map` | the format of the shards and the column map |
//! | `clock` | from which origin arrivals count |
//! | `truncated` | whether a shard was stopped while requests were left |
//! | `durations_s` | the durations that the shards state, each once; null is one that states none |
//! | `shards` | name, requests and CRC-32 of the counts of each, by name |
//! | `notes`, `missing` | what readers had to decide, and what the shards cannot give |
//! | `tally` | counts and sketches |

use std::collections::BTreeMap;

use flate2::Crc;
use metrics_core::Seconds;
use metrics_core::format::{plain, things};
use metrics_core::slo::SloSet;
use metrics_core::tally::Tally;
use serde::{Deserialize, Serialize};

use crate::detect::{Options, ReadFile};
use crate::error::{IoError, Place, Result, shown};
use crate::run::{Clock, Run};

/// The value of `kind`.
pub const KIND: &str = "goodput-partial";
/// The version of the format.
pub const SCHEMA_VERSION: u64 = 1;

/// One part of a log that was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Its file.
    pub name: String,
    /// How many requests it has.
    pub requests: u64,
    /// CRC-32 of its tally, by which a shard that is in twice is known under any name.
    pub crc32: u32,
}

/// What a reader said of some shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// Of how many shards.
    shards: u64,
    /// The first of them, by name.
    example: String,
    /// What was said of that one.
    text: String,
}

/// The result of one shard, or of several that were merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partial {
    schema_version: u64,
    kind: String,
    slo: String,
    strict: bool,
    format: String,
    map: Vec<String>,
    clock: String,
    truncated: bool,
    durations_s: Vec<Option<f64>>,
    shards: Vec<Shard>,
    notes: BTreeMap<String, Said>,
    missing: BTreeMap<String, Said>,
    tally: Tally,
}

impl Partial {
    /// The partial result of a file that was counted into `tally`.
    ///
    /// # Errors
    ///
    /// [`IoError::Partial`] if the tally cannot be written.
    pub fn new(file: &ReadFile, run: &Run, options: &Options, tally: Tally) -> Result<Self> {
        let text = serde_json::to_string(&tally).map_err(|e| wrong(&file.name, e.to_string()))?;
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        let shard = Shard { name: file.name.clone(), requests: tally.requests(), crc32: crc.sum() };
        let said =
            |text: &str| Said { shards: 1, example: file.name.clone(), text: text.to_owned() };
        let slo = tally.slo();
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            kind: KIND.to_owned(),
            slo: slo.to_string(),
            strict: !slo.is_empty() && *slo == slo.clone().strictly(),
            format: file.format.name().to_owned(),
            map: options.map.items().iter().map(|(t, c)| format!("{t}={c}")).collect(),
            clock: clock(run.clock),
            truncated: run.truncated,
            durations_s: vec![run.duration.map(|d| d.value.get())],
            shards: vec![shard],
            notes: run.notes.iter().map(|n| (n.id.to_owned(), said(&n.text))).collect(),
            missing: run.missing.iter().map(|m| (m.what.to_owned(), said(&m.with))).collect(),
            tally,
        })
    }

    /// Reads a partial result.
    ///
    /// # Errors
    ///
    /// [`IoError::Partial`] for what is none, or whose counts do not fit.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Version {
            kind: String,
            schema_version: u64,
        }
        let v: Version = serde_json::from_slice(bytes).map_err(|e| {
            if e.is_eof() && bytes.trim_ascii_start().starts_with(b"{") {
                return wrong(name, "ends in the middle of a JSON object: is it truncated?");
            }
            wrong(name, "is no partial result: write one with `goodput report LOG --partial FILE`")
        })?;
        if v.kind != KIND || v.schema_version != SCHEMA_VERSION {
            let (kind, version) = (shown(&v.kind), v.schema_version);
            let expected = format!("`{KIND}` of version {SCHEMA_VERSION}");
            return Err(wrong(name, format!("is `{kind}` of version {version}, not {expected}")));
        }
        let partial: Self = serde_json::from_slice(bytes)
            .map_err(|e| wrong(name, format!("is damaged: {}", shown(&e.to_string()))))?;
        let slo = partial.objectives(name)?;
        let Self { tally, .. } = partial;
        let tally = tally.under(&slo).map_err(|e| wrong(name, format!("is damaged: {e}")))?;
        let requests = partial.shards.iter().try_fold(0_u64, |n, s| n.checked_add(s.requests));
        if requests != Some(tally.requests()) {
            return Err(wrong(name, "is damaged: its shards and its counts do not fit"));
        }
        let damaged = |what: String| Err(wrong(name, format!("is damaged: {what}")));
        let known = |d: &f64| 0.0 < *d && Seconds::new(*d).is_ok();
        if let Some(d) = partial.durations_s.iter().flatten().find(|d| !known(d)) {
            let d = plain(*d);
            return damaged(format!("a duration of {d} s, expected one above 0 and at most 1e100"));
        }
        if !is_clock(&partial.clock) {
            return damaged(format!("`{}` is no clock", shown(&partial.clock)));
        }
        Ok(Self { tally, ..partial })
    }

    /// The objectives as text again.
    fn objectives(&self, name: &str) -> Result<SloSet> {
        if self.slo.is_empty() {
            return Ok(SloSet::none());
        }
        let slo: SloSet =
            self.slo.parse().map_err(|e: metrics_core::Error| wrong(name, e.to_string()))?;
        Ok(if self.strict { slo.strictly() } else { slo })
    }

    /// As a file has it.
    ///
    /// # Errors
    ///
    /// [`IoError::Partial`] if a number cannot be written.
    pub fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string(self);
        text.map(|t| t + "\n").map_err(|e| wrong(KIND, e.to_string()))
    }

    /// Adds the shards of another one, whose file is `name`.
    ///
    /// # Errors
    ///
    /// [`IoError::Partial`] with what differs, or the shard that is in both.
    pub fn merge(&mut self, name: &str, other: Self) -> Result<()> {
        let map = |p: &Self| p.map.join(",");
        for (what, ours, theirs) in [
            ("objectives", self.slo.clone(), other.slo.clone()),
            ("strictness", self.strict.to_string(), other.strict.to_string()),
            ("format", self.format.clone(), other.format.clone()),
            ("column map", map(self), map(&other)),
            ("clock of arrivals", self.clock.clone(), other.clock.clone()),
        ] {
            if ours != theirs {
                let said = |s: &str| if s.is_empty() { "none".to_owned() } else { shown(s) };
                let (ours, theirs) = (said(&ours), said(&theirs));
                let first = self.shards.first().map_or("", |s| s.name.as_str());
                return Err(wrong(
                    name,
                    format!("its {what}: `{theirs}`; `{}` has `{ours}`", shown(first)),
                ));
            }
        }
        for shard in &other.shards {
            let twice = |s: &&Shard| s.crc32 == shard.crc32 && s.requests == shard.requests;
            if let Some(same) = self.shards.iter().find(twice) {
                let (a, b) = (shown(&shard.name), shown(&same.name));
                return Err(wrong(name, format!("its shard `{a}` is in already, as `{b}`")));
            }
        }
        self.tally.merge(&other.tally).map_err(|e| wrong(name, e.to_string()))?;
        self.truncated |= other.truncated;
        self.durations_s.extend(other.durations_s);
        self.durations_s.sort_by(|a, b| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0)));
        self.durations_s.dedup();
        self.shards.extend(other.shards);
        self.shards.sort();
        for (ours, theirs) in [(&mut self.notes, other.notes), (&mut self.missing, other.missing)] {
            for (id, said) in theirs {
                match ours.get_mut(&id) {
                    None => drop(ours.insert(id, said)),
                    Some(first) => {
                        first.shards += said.shards;
                        if (&said.example, &said.text) < (&first.example, &first.text) {
                            (first.example, first.text) = (said.example, said.text);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The counts and sketches.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The parts of the log that are in it, by name.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The name of the shards' format.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }

    /// Whether a shard was stopped while requests were left.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The duration of the run, if all shards state the same one.
    #[must_use]
    pub fn duration(&self) -> Option<Seconds> {
        match self.durations_s.as_slice() {
            [Some(one)] => Seconds::new(*one).ok().filter(|d| 0.0 < d.get()),
            _ => None,
        }
    }

    /// What readers and merging had to decide: name and text.
    #[must_use]
    pub fn notes(&self) -> Vec<(String, String)> {
        let all = self.shards.len() as u64;
        let said = |s: &Said| {
            if s.shards == all && all == 1 {
                return s.text.clone();
            }
            format!("in {} of {}, as in {}: {}", s.shards, things(all, "shard"), s.example, s.text)
        };
        let mut notes: Vec<(String, String)> =
            self.notes.iter().map(|(id, s)| (id.clone(), said(s))).collect();
        if 1 < self.durations_s.len() {
            let stated: Vec<String> =
                self.durations_s.iter().flatten().map(|&d| plain(d)).collect();
            let text = format!(
                "the shards state different durations ({} s), so the window runs from the first \
                 arrival to the last token",
                stated.join(", ")
            );
            notes.push(("durations-differ".to_owned(), text));
        }
        notes
    }

    /// What the shards cannot give, and what would.
    #[must_use]
    pub fn missing(&self) -> Vec<(String, String)> {
        self.missing.iter().map(|(what, s)| (what.clone(), s.text.clone())).collect()
    }
}

/// The clock as a word; two that differ must not be mixed.
fn clock(clock: Clock) -> String {
    match clock {
        Clock::Unknown => "unknown".to_owned(),
        Clock::Unspecified => "unspecified".to_owned(),
        Clock::Monotonic => "monotonic".to_owned(),
        Clock::RunStart { epoch_s: None } => "run start".to_owned(),
        Clock::RunStart { epoch_s: Some(epoch) } => format!("run start at {} s", plain(epoch)),
        Clock::Epoch => "epoch".to_owned(),
    }
}

/// Whether a clock can be so called.
fn is_clock(name: &str) -> bool {
    let epoch = name.strip_prefix("run start at ").and_then(|rest| rest.strip_suffix(" s"));
    let epoch = epoch.map(str::parse::<f64>);
    match epoch {
        Some(epoch) => epoch.is_ok_and(|x| clock(Clock::RunStart { epoch_s: Some(x) }) == name),
        None => [
            Clock::Unknown,
            Clock::Unspecified,
            Clock::Monotonic,
            Clock::RunStart { epoch_s: None },
            Clock::Epoch,
        ]
        .iter()
        .any(|&c| clock(c) == name),
    }
}

fn wrong(name: &str, what: impl Into<String>) -> IoError {
    IoError::Partial { at: Box::new(Place::file(name)), what: what.into() }
}
