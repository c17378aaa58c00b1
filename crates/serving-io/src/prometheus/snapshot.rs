//! What one engine's metrics said at one moment, or between two.

use std::collections::BTreeMap;

use metrics_core::histogram::Histogram;

use super::engines::{Engine, Form, Known, What, known, prefixes};
use super::text::{Exposition, Labels, Sample};
use crate::error::{IoError, Place, Result, shown};

/// The metrics of one model on one target, as totals since the server's start or, after
/// [`since`](Self::since), between two scrapes.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The engine.
    pub engine: &'static str,
    /// Whose source was read for the names; the text does not tell the version.
    pub names_from: &'static str,
    /// The model, if the metrics carry it.
    pub model: Option<String>,
    /// What the scraper added: instance, pod, job and their like.
    pub target: Labels,
    /// Unix time in seconds at which the process started, if it is exported.
    pub started_s: Option<f64>,
    /// Whether this is the difference of two scrapes.
    pub difference: bool,
    /// Latencies and lengths.
    pub histograms: BTreeMap<What, Histogram>,
    /// Totals.
    pub counters: BTreeMap<What, f64>,
    /// Levels at the (later) scrape.
    pub gauges: BTreeMap<What, Levels>,
    /// Ended requests by the engine's word for why, where it counts by reason.
    pub finished: BTreeMap<String, f64>,
    /// What had to be decided, as sentences.
    pub decided: Vec<String>,
}

/// A level in each engine behind one server: data-parallel replicas report one each.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels(pub Vec<f64>);

impl Levels {
    /// All together.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The highest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Labels that tell one server from another; figures of two servers are never mixed.
const SERVER: [&str; 9] =
    ["model_name", "model", "instance", "pod", "namespace", "job", "cluster", "node", "container"];
/// Labels of the processes of one engine, which all report the same figures.
const RANKS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];
/// Words for requests that did not end by themselves.
const NOT_COMPLETED: [&str; 2] = ["abort", "error"];

impl Snapshot {
    fn new(engine: &'static Engine, server: &Labels) -> Self {
        let mut target = server.clone();
        let model = target.remove("model_name").or_else(|| target.remove("model"));
        Self {
            engine: engine.name,
            names_from: engine.source,
            model,
            target,
            started_s: None,
            difference: false,
            histograms: BTreeMap::new(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            finished: BTreeMap::new(),
            decided: Vec::new(),
        }
    }

    /// A total.
    #[must_use]
    pub fn counter(&self, what: What) -> Option<f64> {
        self.counters.get(&what).copied()
    }

    /// Requests that ended by themselves: all that ended, less those aborted or in error; where no
    /// reason is counted, those whose E2E was observed.
    #[must_use]
    pub fn completed(&self) -> Option<f64> {
        if self.finished.is_empty() {
            let observed = self.histograms.get(&What::E2e).map(|h| h.count() as f64);
            return self.counter(What::Finished).or(observed);
        }
        let by_itself =
            self.finished.iter().filter(|(reason, _)| !NOT_COMPLETED.contains(&reason.as_str()));
        Some(by_itself.map(|(_, n)| n).sum())
    }

    /// Look-ups in the prefix cache and how many of them hit, in the engine's unit.
    #[must_use]
    pub fn prefix_cache(&self) -> Option<(f64, f64)> {
        let hits = self.counter(What::PrefixHits)?;
        let queries = match (self.counter(What::PrefixQueries), self.counter(What::PrefixMisses)) {
            (Some(queries), _) => queries,
            (None, Some(misses)) => hits + misses,
            // SGLang counts cached tokens of all prompt tokens.
            (None, None) => self.counter(What::PromptTokens)?,
        };
        Some((hits, queries))
    }

    /// What happened since `earlier`, a scrape of the same server; levels are those of now.
    ///
    /// # Errors
    ///
    /// What went back, as a clause: the server was restarted in between, or the two are in the
    /// wrong order; or that they are of two servers.
    pub fn since(&self, earlier: &Self) -> std::result::Result<Self, String> {
        if (self.engine, &self.model) != (earlier.engine, &earlier.model) {
            let name = |s: &Self| match &s.model {
                Some(model) => format!("{} with {}", s.engine, shown(model)),
                None => s.engine.to_owned(),
            };
            return Err(format!(
                "the scrapes are of two servers, {} and {}",
                name(earlier),
                name(self)
            ));
        }
        if let (Some(a), Some(b)) = (earlier.started_s, self.started_s)
            && a.total_cmp(&b).is_ne()
        {
            return Err(if a < b {
                "the server was restarted between the scrapes, so their totals do not differ by what happened".to_owned()
            } else {
                "the first scrape is of a process that started later: give the earlier file first"
                    .to_owned()
            });
        }
        let mut out = self.clone();
        out.difference = true;
        let back = |name: &str, was: f64, is: f64| {
            format!(
                "`{name}` went back from {was} to {is}: the server was restarted in between, or the files are in the wrong order"
            )
        };
        for (what, now) in &mut out.counters {
            let was = earlier.counter(*what).unwrap_or(0.0);
            if *now < was {
                return Err(back(what.name(), was, *now));
            }
            *now -= was;
        }
        for (reason, now) in &mut out.finished {
            let was = earlier.finished.get(reason).copied().unwrap_or(0.0);
            if *now < was {
                return Err(back(reason, was, *now));
            }
            *now -= was;
        }
        for (what, now) in &mut out.histograms {
            if let Some(was) = earlier.histograms.get(what) {
                *now = now.since(was).map_err(|e| format!("`{}`: {e}", what.name()))?;
            }
        }
        // A metric with labels is not there before its first event, but never goes away again.
        let gone = earlier.counters.keys().find(|w| !self.counters.contains_key(w));
        let gone = gone.or(earlier.histograms.keys().find(|w| !self.histograms.contains_key(w)));
        match gone {
            Some(what) => Err(format!(
                "`{}` is in the first scrape and not in the second: give the earlier file first",
                what.name()
            )),
            None => Ok(out),
        }
    }
}

/// Buckets, sum and count of one histogram while it is read.
#[derive(Default)]
struct Buckets {
    /// Bound as text and count, in the order of the file.
    bounds: Vec<(f64, u64, u64)>,
    count: Option<u64>,
    sum: Option<f64>,
    line: u64,
}

/// Every known metric of a text, by server.
pub(super) fn snapshots(file: &str, text: &Exposition) -> Result<Vec<Snapshot>> {
    /// A server and its parts: each metric by what tells its replicas apart.
    type Parts<T> = BTreeMap<(Labels, What), BTreeMap<Labels, T>>;
    let mut servers: Vec<(Labels, Snapshot)> = Vec::new();
    let mut histograms: Parts<Buckets> = BTreeMap::new();
    let mut values: Parts<(f64, Labels)> = BTreeMap::new();
    let mut empty: Vec<What> = Vec::new();
    // The first of several names for one thing, by server.
    let mut names: BTreeMap<(Labels, What), usize> = BTreeMap::new();
    for sample in &text.samples {
        if let Some((Known { what, place, .. }, _)) = meaning(&sample.name) {
            let first = names.entry((split(&sample.labels).0, what)).or_insert(place);
            *first = place.min(*first);
        }
    }
    for sample in &text.samples {
        let Some((Known { engine, what, place }, part)) = meaning(&sample.name) else { continue };
        let (server, mut rest) = split(&sample.labels);
        if !servers.iter().any(|(s, snapshot)| *s == server && snapshot.engine == engine.name) {
            servers.push((server.clone(), Snapshot::new(engine, &server)));
        }
        let key = (server, what);
        if names.get(&key).is_some_and(|first| *first < place) {
            continue;
        }
        if part == Part::Value {
            if sample.value.is_nan() {
                empty.push(what);
                continue;
            }
            let value = plain(file, sample)?;
            if what == What::KvUtilization && 1.0 < value {
                return Err(wrong(file, sample, "a share from 0 to 1"));
            }
            values.entry(key).or_default().insert(rest.clone(), (value, rest));
            continue;
        }
        let le = if part == Part::Bucket { Some(bound(file, sample, &mut rest)?) } else { None };
        let buckets = histograms.entry(key).or_default().entry(rest).or_default();
        buckets.line = sample.line;
        match (part, le) {
            (Part::Bucket, Some(le)) => {
                buckets.bounds.push((le, whole(file, sample)?, sample.line));
            }
            (Part::Count, _) => buckets.count = Some(whole(file, sample)?),
            _ => buckets.sum = Some(plain(file, sample)?),
        }
    }
    if servers.is_empty() {
        return Err(IoError::UnknownFormat {
            at: Box::new(Place::file(file)),
            found: "Prometheus text without a metric of a known engine".to_owned(),
            expected: format!("names that begin with {}", prefixes()),
        });
    }
    empty.sort_unstable();
    empty.dedup();
    let started = text.samples.iter().find(|s| s.name == "process_start_time_seconds");
    for (server, snapshot) in &mut servers {
        snapshot.started_s = started.map(|s| s.value).filter(|v| v.is_finite());
        for what in &empty {
            snapshot.decided.push(format!("{}: NaN, which is no value", what.name()));
        }
        for ((_, what), parts) in histograms.iter().filter(|((s, _), _)| s == server) {
            let mut all: Option<Histogram> = None;
            for buckets in one_of_each_rank(parts, &mut snapshot.decided, *what) {
                let next = finished(file, *what, buckets)?;
                all = Some(match all {
                    None => next,
                    Some(all) => all.plus(&next).map_err(|source| IoError::Request {
                        at: Box::new(Place::line(file, buckets.line).key(what.name())),
                        source,
                        note: "",
                    })?,
                });
            }
            snapshot.histograms.extend(all.map(|h| (*what, h)));
        }
        for ((_, what), parts) in values.iter().filter(|((s, _), _)| s == server) {
            let each = one_of_each_rank(parts, &mut snapshot.decided, *what);
            if what.form() == Form::Gauge {
                let levels = each.iter().map(|(v, _)| *v).collect();
                snapshot.gauges.insert(*what, Levels(levels));
                continue;
            }
            snapshot.counters.insert(*what, each.iter().map(|(v, _)| v).sum());
            if *what == What::Finished {
                for (value, labels) in each {
                    if let Some(reason) = labels.get("finished_reason") {
                        *snapshot.finished.entry(reason.clone()).or_default() += value;
                    }
                }
            }
        }
    }
    Ok(servers.into_iter().map(|(_, snapshot)| snapshot).collect())
}

/// The parts of a metric, of which the ranks of one engine count once.
fn one_of_each_rank<'a, T>(
    parts: &'a BTreeMap<Labels, T>,
    decided: &mut Vec<String>,
    what: What,
) -> Vec<&'a T> {
    let mut seen: Vec<Labels> = Vec::new();
    let mut kept = Vec::new();
    for (labels, value) in parts {
        let mut engine = labels.clone();
        engine.retain(|name, _| !RANKS.contains(&name.as_str()));
        if seen.contains(&engine) {
            continue;
        }
        seen.push(engine);
        kept.push(value);
    }
    if kept.len() < parts.len() {
        decided.push(format!(
            "{}: {} processes of one engine report it; the first rank counts",
            what.name(),
            parts.len()
        ));
    }
    kept
}

/// The labels of the server, and the others.
fn split(labels: &Labels) -> (Labels, Labels) {
    let of_server = |name: &String| SERVER.contains(&name.as_str());
    let pick = |wanted: bool| {
        labels
            .iter()
            .filter(|(name, _)| of_server(name) == wanted)
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect()
    };
    (pick(true), pick(false))
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Value,
    Bucket,
    Sum,
    Count,
}

/// What a sample's name says, if it is of a known engine.
fn meaning(name: &str) -> Option<(Known, Part)> {
    if let Some(known) = known(name) {
        return (known.what.form() != Form::Histogram).then_some((known, Part::Value));
    }
    let suffixes = [("_bucket", Part::Bucket), ("_sum", Part::Sum), ("_count", Part::Count)];
    suffixes.into_iter().find_map(|(suffix, part)| {
        let known = known(name.strip_suffix(suffix)?)?;
        (known.what.form() == Form::Histogram).then_some((known, part))
    })
}

fn wrong(file: &str, sample: &Sample, expected: &str) -> IoError {
    IoError::Value {
        at: Box::new(Place::line(file, sample.line).key(sample.name.clone())),
        found: format!("`{}`", sample.value),
        expected: expected.to_owned(),
    }
}

/// A value that counts or measures something.
fn plain(file: &str, sample: &Sample) -> Result<f64> {
    if sample.value.is_finite() && 0.0 <= sample.value {
        Ok(sample.value)
    } else {
        Err(wrong(file, sample, "a finite number of at least 0"))
    }
}

/// A count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and in range"
)]
fn whole(file: &str, sample: &Sample) -> Result<u64> {
    let x = plain(file, sample)?;
    if x.fract() == 0.0 && x <= 2_f64.powi(53) {
        Ok(x as u64)
    } else {
        Err(wrong(file, sample, "a whole number up to 2^53"))
    }
}

/// The bound of a bucket, taken out of its labels.
fn bound(file: &str, sample: &Sample, labels: &mut Labels) -> Result<f64> {
    let at = || Box::new(Place::line(file, sample.line).key(sample.name.clone()));
    let Some(le) = labels.remove("le") else {
        let found = "a bucket without the label `le`".to_owned();
        return Err(IoError::Value { at: at(), found, expected: "its upper bound".to_owned() });
    };
    le.parse().ok().filter(|x: &f64| !x.is_nan()).ok_or_else(|| IoError::Value {
        at: at(),
        found: format!("le=\"{}\"", shown(&le)),
        expected: "a number or +Inf".to_owned(),
    })
}

/// A histogram once all its lines are there.
fn finished(file: &str, what: What, buckets: &Buckets) -> Result<Histogram> {
    let at = |line| Box::new(Place::line(file, line).key(what.name()));
    let lacks = |what: &str| IoError::Value {
        at: at(buckets.line),
        found: format!("a histogram without {what}"),
        expected: "all of its lines; is the file truncated?".to_owned(),
    };
    let mut bounds = buckets.bounds.clone();
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let infinite = match bounds.last() {
        Some(&(le, n, _)) if le == f64::INFINITY => Some(n),
        _ => None,
    };
    let Some(in_all) = infinite else { return Err(lacks("a bucket of +Inf")) };
    bounds.pop();
    let count = buckets.count.ok_or_else(|| lacks("its `_count`"))?;
    if count != in_all {
        return Err(IoError::Value {
            at: at(buckets.line),
            found: format!("a count of {count}"),
            expected: format!("{in_all} as in the bucket of +Inf"),
        });
    }
    let (le, up_to) = bounds.into_iter().map(|(le, n, _)| (le, n)).unzip();
    Histogram::new(le, up_to, count, buckets.sum).map_err(|source| IoError::Request {
        at: at(buckets.line),
        source,
        note: "",
    })
}
