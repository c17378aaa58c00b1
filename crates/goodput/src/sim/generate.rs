//! Requests drawn from a seed, as flags say them.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use metrics_core::grammar;
use sched_sim::workload::{
    ArrivalLaw, Delay, Lengths, Sessions, SystemPrompts, ThinkAfter, WorkloadSpec,
};

use super::Setting;

/// Flags of a generated workload; each replaces what a scenario says.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Generated requests, where not given as in the scenario")]
pub struct GeneratorArguments {
    /// How many requests.
    #[arg(long, value_name = "N")]
    requests: Option<String>,
    /// Mean arrivals per second, 5/s or 300/min; of sessions, if there are any.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// poisson, gamma:cv=2, deterministic, on-off:on=10s,off=30s,low=0.1 (bursts; low: the low rate
    /// over the high one) or sine:amplitude=0.5,period=60s.
    #[arg(long, value_name = "LAW")]
    arrivals: Option<String>,
    /// Tokens of prompts: 512, uniform:100,200, geometric:mean=200, lognormal:median=600,sigma=1.1,
    /// zipf:exponent=1.2,max=4096 or file:PATH; min= and max= bound what is drawn.
    #[arg(long, value_name = "LAW")]
    input_tokens: Option<String>,
    /// Tokens of answers, in the same words.
    #[arg(long, value_name = "LAW")]
    output_tokens: Option<String>,
    /// A trace whose prompts are drawn with their own answers.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input_tokens", "output_tokens"])]
    pairs: Option<PathBuf>,
    /// Prompts that many requests begin with: tokens=1000,count=4,skew=1.
    #[arg(long, value_name = "LIST")]
    system_prompts: Option<String>,
    /// Turns of a session, each of which begins with all that was said: 3 or geometric:mean=4,max=50.
    #[arg(long, value_name = "LAW", requires = "think")]
    turns: Option<String>,
    /// From the arrival of a turn to that of the next, or from an answer to the next request of one
    /// of --users: 5s, exponential:mean=10s, uniform:1s,5s or
    /// lognormal:median=10s,sigma=1.
    #[arg(long, value_name = "LAW")]
    think: Option<String>,
    /// Seed of all random streams.
    #[arg(long, value_name = "NUMBER", value_parser = super::served::seed)]
    pub seed: Option<u64>,
}

impl GeneratorArguments {
    /// A flag that was given, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--requests", self.requests.is_some()),
            ("--rate", self.rate.is_some()),
            ("--arrivals", self.arrivals.is_some()),
            ("--input-tokens", self.input_tokens.is_some()),
            ("--output-tokens", self.output_tokens.is_some()),
            ("--pairs", self.pairs.is_some()),
            ("--system-prompts", self.system_prompts.is_some()),
            ("--turns", self.turns.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// A flag of how requests arrive by themselves, if one was given.
    pub fn of_arrivals(&self) -> Option<&'static str> {
        let flags = [
            ("--rate", self.rate.is_some()),
            ("--arrivals", self.arrivals.is_some()),
            ("--turns", self.turns.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The files that are read.
    pub fn files(&self) -> Vec<PathBuf> {
        let laws = [&self.input_tokens, &self.output_tokens, &self.turns];
        let laws = laws.into_iter().filter_map(|law| serving_io::lengths::file_of(law.as_deref()?));
        laws.map(Path::to_path_buf).chain(self.pairs.clone()).collect()
    }

    /// How long a user thinks, if that is said.
    pub fn think(&self) -> Result<Option<Delay>> {
        let think = |text: &str| text.parse::<Delay>().map_err(|e| anyhow!("--think: {e}"));
        self.think.as_deref().map(think).transpose()
    }

    /// Whether think times were given without turns.
    pub fn only_think(&self) -> bool {
        self.think.is_some() && self.turns.is_none()
    }

    /// Puts what was given into the place of what the spec says, and checks the result.
    pub fn apply(&self, spec: &mut WorkloadSpec) -> Result<()> {
        if let Some(text) = &self.requests {
            spec.requests = grammar::count(text).map_err(|e| anyhow!("--requests: {e}"))?;
            if !(1..=u64::from(u32::MAX)).contains(&spec.requests) {
                bail!("--requests: must be 1 to 4294967295, got {}", spec.requests);
            }
        }
        if let Some(text) = &self.rate {
            spec.rate_per_s = grammar::rate(text).map_err(|e| anyhow!("--rate: {e}"))?.get();
        }
        if let Some(text) = &self.arrivals {
            spec.arrivals = text.parse::<ArrivalLaw>().map_err(|e| anyhow!("--arrivals: {e}"))?;
        }
        if let Some(path) = &self.pairs {
            spec.lengths = serving_io::lengths::pairs(path).map_err(|e| anyhow!("--pairs: {e}"))?;
        }
        let law = |flag: &str, text: &str| {
            serving_io::lengths::law(text).map_err(|e| anyhow!("{flag}: {e}"))
        };
        let tokens = [&self.input_tokens, &self.output_tokens];
        if tokens.iter().any(|t| t.is_some()) {
            let Lengths::Independent { input, output } = &mut spec.lengths else {
                bail!(
                    "--input-tokens, --output-tokens: the scenario draws prompts with their own \
                       answers; give both laws in a scenario of their own"
                );
            };
            if let Some(text) = &self.input_tokens {
                *input = law("--input-tokens", text)?;
            }
            if let Some(text) = &self.output_tokens {
                *output = law("--output-tokens", text)?;
            }
        }
        if let Some(text) = &self.system_prompts {
            let system =
                text.parse::<SystemPrompts>().map_err(|e| anyhow!("--system-prompts: {e}"))?;
            spec.system_prompts = Some(system);
        }
        if let (Some(turns), Some(think)) = (&self.turns, &self.think) {
            let turns = law("--turns", turns)?;
            let think = think.parse::<Delay>().map_err(|e| anyhow!("--think: {e}"))?;
            let after = ThinkAfter::Arrival;
            spec.sessions = Some(Sessions { turns, think, after });
        }
        spec.seed = self.seed.unwrap_or(spec.seed);
        Ok(spec.check()?)
    }
}

/// What is drawn, in words: arrivals, lengths, and what else there is.
pub fn described(spec: &WorkloadSpec) -> String {
    said_of(spec, format!("{}/s {}", spec.rate_per_s, spec.arrivals))
}

/// What is drawn for these settings: users have no rate, and ask when they have their answers.
pub(super) fn drawn_for<'a>(
    spec: &WorkloadSpec,
    settings: impl Iterator<Item = &'a Setting>,
) -> String {
    let arrivals = format!("{}/s {}", spec.rate_per_s, spec.arrivals);
    let users: Vec<bool> = settings.map(|s| s.users.is_some()).collect();
    said_of(
        spec,
        match (users.contains(&true), users.contains(&false)) {
            (true, false) => "when users ask, at no rate".to_owned(),
            (true, true) => format!("{arrivals}, or when users ask"),
            (false, _) => arrivals,
        },
    )
}

/// What is drawn, with arrivals in these words.
fn said_of(spec: &WorkloadSpec, arrivals: String) -> String {
    let mut text = arrivals;
    match &spec.lengths {
        Lengths::Independent { input, output } => {
            text.push_str(&format!("; input {input}; output {output}"));
        }
        _ => text.push_str("; prompts with their answers, drawn from a trace"),
    }
    if let Some(system) = &spec.system_prompts {
        text.push_str(&format!("; system prompts {system}"));
    }
    if let Some(s) = &spec.sessions {
        text.push_str(&format!(
            "; sessions of turns {}, think {} after an arrival",
            s.turns, s.think
        ));
    }
    text
}
