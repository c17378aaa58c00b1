//! Requests drawn from a seed, as flags say them.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use metrics_core::grammar;
use metrics_core::units::Quantity;
use sched_sim::Ticks;
use sched_sim::workload::{
    ArrivalLaw, Cancellations, Delay, LengthLaw, Lengths, Sessions, SystemPrompts, ThinkAfter,
    WorkloadSpec,
};
use serde_json::{Map, Value, json};

use super::Setting;
use super::lists::{parsed, single, unique, with};

/// Flags of a generated workload; each replaces what a scenario says.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Generated requests, where not given as in the scenario")]
pub struct GeneratorArguments {
    /// How many requests.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    requests: Vec<String>,
    /// Mean arrivals per second, 5/s or 300/min; of sessions, if there are any.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate: Vec<String>,
    /// poisson, gamma:cv=2, deterministic, on-off:on=10s,off=30s,low=0.1 (bursts; low: the low rate
    /// over the high one) or sine:amplitude=0.5,period=60s. To sim this and the laws below may be
    /// given several times.
    #[arg(long, value_name = "LAW")]
    arrivals: Vec<String>,
    /// Tokens of prompts: 512, uniform:100,200, geometric:mean=200, lognormal:median=600,sigma=1.1,
    /// zipf:exponent=1.2,max=4096 or file:PATH; min= and max= bound what is drawn.
    #[arg(long, value_name = "LAW")]
    input_tokens: Vec<String>,
    /// Tokens of answers, in the same words.
    #[arg(long, value_name = "LAW")]
    output_tokens: Vec<String>,
    /// A trace whose prompts are drawn with their own answers.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input_tokens", "output_tokens"])]
    pairs: Option<PathBuf>,
    /// Prompts that many requests begin with: tokens=1000,count=4,skew=1.
    #[arg(long, value_name = "LAW")]
    system_prompts: Vec<String>,
    /// Turns of a session, each of which begins with all that was said: 3 or geometric:mean=4,max=50.
    #[arg(long, value_name = "LAW", requires = "think")]
    turns: Vec<String>,
    /// How long a client thinks before its next turn, or one of --users before the next request:
    /// 5s, exponential:mean=10s, uniform:1s,5s or lognormal:median=10s,sigma=1.
    #[arg(long, value_name = "LAW")]
    think: Vec<String>,
    /// From when a turn's --think counts: from the arrival of the turn before, so that all arrivals
    /// are known beforehand, or from its answer, as a client does who reads it [default: arrival].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    think_after: Vec<String>,
    /// Clients who go away before their last token: which share of them, and how long after their
    /// arrival, such as 10%,exponential:mean=5s. For a trace too, whose requests may say it
    /// themselves.
    #[arg(long, value_name = "SHARE,LAW")]
    cancel: Vec<String>,
    /// Seed of all random streams; of a trace, of --cancel and of routers that draw.
    #[arg(long, value_name = "NUMBER", value_parser = super::served::seed)]
    pub seed: Option<u64>,
}

/// Names the one value of a flag that is a list in `sim` alone.
pub fn takes_one(option: clap::Arg) -> clap::Arg {
    match option.get_id().as_str() {
        "requests" => option.value_name("N"),
        "rate" => option.value_name("RATE"),
        "think_after" => option.value_name("arrival"),
        _ => option,
    }
}

/// What requests are drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// All of it.
    pub spec: WorkloadSpec,
    /// The files that prompts, answers and turns come from, whose laws do not know their names.
    files: [Option<String>; 3],
}

/// A law of lengths with the words of its flag, if that is a file.
type Law = (LengthLaw, Option<String>);

/// The laws of lengths of a flag.
fn laws(flag: &str, texts: &[String]) -> Result<Vec<Law>> {
    let law = |text: &str| -> serving_io::error::Result<Law> {
        let file = serving_io::lengths::file_of(text).map(|_| text.trim().to_owned());
        Ok((serving_io::lengths::law(text)?, file))
    };
    Ok(unique(parsed(flag, texts, law)?))
}

/// Each of them with each value of a flag, whose bounds are checked in its name.
fn put<T>(
    flag: &str,
    all: Vec<Drawn>,
    values: &[T],
    set: impl Fn(&mut Drawn, &T),
) -> Result<Vec<Drawn>> {
    let all = with(flag, all, values, set)?;
    // The first of them have every value.
    for drawn in all.iter().take(values.len()) {
        drawn.spec.check().map_err(|e| anyhow!("{flag}: {e}"))?;
    }
    Ok(all)
}

impl GeneratorArguments {
    /// Name and number of values of each flag but the seed, in the order of the flags.
    fn counts(&self) -> [(&'static str, usize); 11] {
        [
            ("--requests", self.requests.len()),
            ("--rate", self.rate.len()),
            ("--arrivals", self.arrivals.len()),
            ("--input-tokens", self.input_tokens.len()),
            ("--output-tokens", self.output_tokens.len()),
            ("--pairs", usize::from(self.pairs.is_some())),
            ("--system-prompts", self.system_prompts.len()),
            ("--turns", self.turns.len()),
            ("--think", self.think.len()),
            ("--think-after", self.think_after.len()),
            ("--cancel", self.cancel.len()),
        ]
    }

    /// A flag that was given, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let cancel = || (!self.cancel.is_empty()).then_some("--cancel");
        let seed = || self.seed.map(|_| "--seed");
        self.of_drawn().or_else(cancel).or_else(seed)
    }

    /// A flag that says nothing of requests that are there, if one was given.
    pub fn of_drawn(&self) -> Option<&'static str> {
        let flags = self.counts().into_iter();
        let mut flags = flags.filter(|(name, _)| !["--think", "--cancel"].contains(name));
        flags.find(|(_, n)| 0 < *n).map(|(name, _)| name)
    }

    /// How clients go away.
    pub fn cancellations(&self) -> Result<Vec<Cancellations>> {
        let laws = unique(parsed("--cancel", &self.cancel, str::parse::<Cancellations>)?);
        laws.iter()
            .try_for_each(|law| law.check("cancel").map_err(|e| anyhow!("--cancel: {e}")))?;
        Ok(laws)
    }

    /// Whether it was said from when think times count.
    pub fn has_think_after(&self) -> bool {
        !self.think_after.is_empty()
    }

    /// Whether turns were given.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// A flag of how requests arrive by themselves, if one was given.
    pub fn of_arrivals(&self) -> Option<&'static str> {
        let alone = ["--rate", "--arrivals"];
        let flags = self.counts().into_iter().filter(|(name, _)| alone.contains(name));
        flags.into_iter().find(|(_, n)| 0 < *n).map(|(name, _)| name)
    }

    /// The files that are read.
    pub fn files(&self) -> Vec<PathBuf> {
        let laws = self.input_tokens.iter().chain(&self.output_tokens).chain(&self.turns);
        let files = laws.filter_map(|law| serving_io::lengths::file_of(law));
        files.map(Path::to_path_buf).chain(self.pairs.clone()).collect()
    }

    /// How long a user thinks, as far as that is said.
    pub fn thinks(&self) -> Result<Vec<Delay>> {
        Ok(unique(parsed("--think", &self.think, str::parse::<Delay>)?))
    }

    /// Whether think times were given without turns.
    pub fn only_think(&self) -> bool {
        !self.think.is_empty() && self.turns.is_empty()
    }

    /// Puts what was given into the place of what the spec says, and checks the result; for a
    /// command that takes one value of each.
    pub fn apply(&self, spec: &mut WorkloadSpec) -> Result<()> {
        single(&self.counts())?;
        for drawn in self.specs(spec)? {
            *spec = drawn.spec;
        }
        Ok(())
    }

    /// Every combination of what was given in the place of what the spec says, checked; no two are
    /// the same.
    pub fn specs(&self, own: &WorkloadSpec) -> Result<Vec<Drawn>> {
        let requests = unique(parsed("--requests", &self.requests, |t| grammar::count(t.trim()))?);
        if let Some(n) = requests.iter().find(|n| !(1..=u64::from(u32::MAX)).contains(*n)) {
            bail!("--requests: must be 1 to 4294967295, got {n}");
        }
        let rates = parsed("--rate", &self.rate, |t| grammar::rate(t.trim()))?;
        let rates = unique(rates.into_iter().map(Quantity::number).collect::<Vec<f64>>());
        let arrivals = unique(parsed("--arrivals", &self.arrivals, str::parse::<ArrivalLaw>)?);
        let mut own = Drawn { spec: own.clone(), files: Default::default() };
        if let Some(path) = &self.pairs {
            let pairs = serving_io::lengths::pairs(path).map_err(|e| anyhow!("--pairs: {e}"))?;
            own.spec.lengths = pairs;
        }
        let given = [&self.input_tokens, &self.output_tokens].iter().any(|t| !t.is_empty());
        if given && !matches!(own.spec.lengths, Lengths::Independent { .. }) {
            bail!(
                "--input-tokens, --output-tokens: the scenario draws prompts with their own \
                 answers; give both laws in a scenario of their own"
            );
        }
        let inputs = laws("--input-tokens", &self.input_tokens)?;
        let outputs = laws("--output-tokens", &self.output_tokens)?;
        let read = str::parse::<SystemPrompts>;
        let system = unique(parsed("--system-prompts", &self.system_prompts, read)?);
        let turns = laws("--turns", &self.turns)?;
        own.spec.seed = self.seed.unwrap_or(own.spec.seed);
        let afters = unique(parsed("--think-after", &self.think_after, str::parse::<ThinkAfter>)?);
        if !afters.is_empty() && turns.is_empty() && own.spec.sessions.is_none() {
            bail!("--think-after: is for sessions, add --turns and --think");
        }
        let cancellations = self.cancellations()?;

        // What changes most from row to row comes last: a curve over the rate.
        let mut all = put("--system-prompts", vec![own], &system, |drawn, system| {
            drawn.spec.system_prompts = Some(*system);
        })?;
        if !turns.is_empty() {
            let thinks = self.thinks()?;
            all = put("--turns", all, &turns, |drawn, (turns, file)| {
                let think = Delay::Constant(Ticks::ZERO);
                let after = drawn.spec.sessions.as_ref().map(|s| s.after).unwrap_or_default();
                drawn.spec.sessions = Some(Sessions { turns: turns.clone(), think, after });
                drawn.files[2].clone_from(file);
            })?;
            all = put("--think", all, &thinks, |drawn, think| {
                if let Some(sessions) = &mut drawn.spec.sessions {
                    sessions.think = *think;
                }
            })?;
        }
        all = put("--think-after", all, &afters, |drawn, after| {
            if let Some(sessions) = &mut drawn.spec.sessions {
                sessions.after = *after;
            }
        })?;
        for (i, flag, laws) in [(0, "--input-tokens", &inputs), (1, "--output-tokens", &outputs)] {
            all = put(flag, all, laws, |drawn, (law, file)| {
                if let Lengths::Independent { input, output } = &mut drawn.spec.lengths {
                    *if i == 0 { input } else { output } = law.clone();
                    drawn.files[i].clone_from(file);
                }
            })?;
        }
        all = put("--cancel", all, &cancellations, |drawn, law| {
            drawn.spec.cancellations = Some(*law);
        })?;
        all = put("--requests", all, &requests, |drawn, n| drawn.spec.requests = *n)?;
        all = put("--arrivals", all, &arrivals, |drawn, law| drawn.spec.arrivals = *law)?;
        all = put("--rate", all, &rates, |drawn, rate| drawn.spec.rate_per_s = *rate)?;
        for drawn in &all {
            drawn.spec.check()?;
        }
        Ok(all)
    }
}

impl Drawn {
    /// What a spec says.
    #[cfg(test)]
    pub(super) fn of(spec: WorkloadSpec) -> Self {
        Self { spec, files: Default::default() }
    }

    /// Prompts and answers in the words of the flags; empty where they are drawn together.
    fn lengths(&self) -> [String; 2] {
        let Lengths::Independent { input, output } = &self.spec.lengths else {
            return Default::default();
        };
        [self.law(0, input), self.law(1, output)]
    }

    fn law(&self, i: usize, law: &LengthLaw) -> String {
        self.files[i].clone().unwrap_or_else(|| law.to_string())
    }

    /// Name and value of all of it, in the words of the flags and in the order of rows; empty what
    /// there is not.
    pub(super) fn cells(&self) -> [(&'static str, String); 9] {
        let spec = &self.spec;
        let sessions = spec.sessions.as_ref();
        let [input, output] = self.lengths();
        [
            ("system_prompts", spec.system_prompts.map(|s| s.to_string()).unwrap_or_default()),
            ("turns", sessions.map(|s| self.law(2, &s.turns)).unwrap_or_default()),
            ("think", sessions.map(|s| s.think.to_string()).unwrap_or_default()),
            ("think_after", sessions.map(|s| s.after.to_string()).unwrap_or_default()),
            ("input_tokens", input),
            ("output_tokens", output),
            ("requests", spec.requests.to_string()),
            ("arrivals", spec.arrivals.to_string()),
            ("rate", format!("{}/s", spec.rate_per_s)),
        ]
    }

    /// The same as data, for `users` without a rate.
    pub(super) fn json(&self, users: bool) -> Value {
        let mut map = Map::new();
        for (name, text) in self.cells() {
            let (key, value) = match name {
                "requests" => (name, json!(self.spec.requests)),
                "rate" => ("rate_per_s", json!(self.spec.rate_per_s)),
                _ => (name, json!((!text.is_empty()).then_some(text))),
            };
            let is_none = users && !is_of_users(name);
            map.insert(key.to_owned(), if is_none { Value::Null } else { value });
        }
        Value::Object(map)
    }
}

/// Whether a part of what is drawn says anything of users, who have no rate, and wait for answers.
pub(super) fn is_of_users(name: &str) -> bool {
    !["rate", "arrivals", "think_after"].contains(&name)
}

/// What is drawn, in words: arrivals, lengths, and what else there is.
pub fn described(spec: &WorkloadSpec) -> String {
    let after = spec.sessions.as_ref().map(|s| s.after).unwrap_or_default();
    let arrivals = format!("{}/s {}", spec.rate_per_s, spec.arrivals);
    let mut said = said_of(spec, arrivals, Some(after), |_| true);
    if let Some(law) = spec.cancellations {
        said.push_str(&format!("; clients who go away {law}"));
    }
    said
}

/// What is drawn for these settings, as far as they share it; users have no rate, and ask when they
/// have their answers.
pub(super) fn drawn_for(settings: &[&Setting]) -> Option<String> {
    let first = settings.first()?.drawn.as_deref()?;
    let cells = first.cells();
    let mut shared = [true; 9];
    for drawn in settings.iter().filter_map(|s| s.drawn.as_deref()) {
        if !std::ptr::eq(drawn, first) {
            let others = drawn.cells();
            (0..shared.len()).for_each(|i| shared[i] &= cells[i] == others[i]);
        }
    }
    let is_shared = |name: &str| (0..shared.len()).all(|i| shared[i] || cells[i].0 != name);
    let spec = &first.spec;
    let arrivals = match (is_shared("rate"), is_shared("arrivals")) {
        (true, true) => format!("{}/s {}", spec.rate_per_s, spec.arrivals),
        (false, true) => format!("{} arrivals", spec.arrivals),
        (true, false) => format!("{}/s", spec.rate_per_s),
        (false, false) => String::new(),
    };
    let users: Vec<bool> = settings.iter().map(|s| s.users.is_some()).collect();
    let arrivals = match (users.contains(&true), users.contains(&false)) {
        (true, false) => "when users ask, at no rate".to_owned(),
        (true, true) => format!("{arrivals}, or when users ask"),
        (false, _) => arrivals,
    };
    // Users wait for their answers in any case.
    let after = match (users.contains(&true), users.contains(&false)) {
        (true, false) => Some(ThinkAfter::Answer),
        (false, _) if is_shared("think_after") => spec.sessions.as_ref().map(|s| s.after),
        _ => None,
    };
    let said = said_of(spec, arrivals, after, is_shared);
    (!said.is_empty()).then_some(said)
}

/// What is drawn, as far as it is `shared`, with arrivals in these words, and from when think times
/// count.
fn said_of(
    spec: &WorkloadSpec,
    arrivals: String,
    after: Option<ThinkAfter>,
    shared: impl Fn(&str) -> bool,
) -> String {
    let mut parts = vec![arrivals];
    match &spec.lengths {
        Lengths::Independent { input, output } => {
            parts.extend(shared("input_tokens").then(|| format!("input {input}")));
            parts.extend(shared("output_tokens").then(|| format!("output {output}")));
        }
        _ => parts.push("prompts with their answers, drawn from a trace".to_owned()),
    }
    if let Some(system) = spec.system_prompts.as_ref().filter(|_| shared("system_prompts")) {
        parts.push(format!("system prompts {system}"));
    }
    if let Some(s) = &spec.sessions {
        let mut said = "sessions".to_owned();
        if shared("turns") {
            said.push_str(&format!(" of turns {}", s.turns));
        }
        if shared("think") {
            said.push_str(&format!(", think {}", s.think));
        }
        if let Some(after) = after {
            let lead = if shared("think") { " " } else { ", think times " };
            said.push_str(&format!("{lead}after an {after}"));
        }
        parts.push(said);
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}
