//! Why a comparison of policies came out as it did: what the rules promise, and what was measured.

use std::collections::HashMap;

use metrics_core::format;
use metrics_core::slo::Latency;
use sched_sim::ledger::{Account, Accounts, Ledger, Tail};
use sched_sim::{KvStatistics, RunStatistics};
use serde_json::{Map, Value, json};
use serving_io::policy::{PolicyRule, caches_prefixes};

use super::render::{given, percentile};
use super::{Setting, Simulated};
use crate::report::text as report_text;

/// The percentile that is compared, and its place among those of a report.
const P99: (&str, f64, usize) = ("p99", 99.0, 3);

/// Up to so many runs say where their time went: the books of a run cost about half of it again.
const BOOKED: usize = 64;

/// An account with less than this share of the time is not worth a word.
const WORTH_A_WORD: f64 = 0.05;

/// Accounts that are named beside the largest.
const NAMED: usize = 2;

/// Policies that are told apart by fewer parts than this do the same here.
const SAME: f64 = 1e-3;

/// Where the time of a run went.
#[derive(Debug)]
pub struct Spent {
    /// TTFT of the requests from its 99th percentile on.
    ttft_tail: Option<Tail>,
    /// From first to last tokens, of all requests.
    after_first_token: Accounts,
}

impl Spent {
    /// As a ledger has it.
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            ttft_tail: ledger.tail_by_ttft(P99.1),
            after_first_token: ledger.after_first_token(),
        }
    }

    /// In words, of the run that is named.
    fn sentence(&self, of: &str) -> String {
        let mut parts = Vec::new();
        if let Some(tail) = &self.ttft_tail {
            let shares = shares(&tail.accounts);
            parts.push(format!("TTFT of the slowest 1 %{of} is {shares}"));
        }
        if self.after_first_token.total() != 0 {
            let shares = shares(&self.after_first_token);
            parts.push(format!("the time after first tokens is {shares}"));
        }
        parts.join("; ")
    }

    fn json(&self) -> Value {
        let of = |accounts: &Accounts| -> Map<String, Value> {
            Account::ALL
                .into_iter()
                .map(|a| (format!("{}_share", a.id()), json!(accounts.share(a))))
                .collect()
        };
        json!({
            "ttft_p99_tail": self.ttft_tail.as_ref().map(|tail| of(&tail.accounts)),
            "after_first_token": of(&self.after_first_token),
        })
    }
}

/// The largest accounts with their shares.
fn shares(accounts: &Accounts) -> String {
    let mut all: Vec<(f64, Account)> = Account::ALL
        .into_iter()
        .filter_map(|a| Some((accounts.share(a)?, a)))
        .filter(|(share, _)| WORTH_A_WORD <= *share)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.truncate(1 + NAMED);
    let parts: Vec<String> = all
        .iter()
        .map(|(share, a)| format!("{} {}", format::percent(*share), a.meaning().0))
        .collect();
    parts.join(", ")
}

/// Whether runs of these settings have to say where their time went.
pub fn books(settings: &[Setting]) -> bool {
    let policies = settings.first().is_some_and(|f| settings.iter().any(|s| s.policy != f.policy));
    policies && settings.len() <= BOOKED
}

/// One run of a policy.
#[derive(Debug)]
struct Entry<'a> {
    /// Its place among the runs of the answer.
    run: usize,
    /// The policy, with the options in which its runs differ.
    label: String,
    setting: &'a Setting,
    tpot: f64,
    ttft: f64,
    spent: Option<&'a Spent>,
    overloaded: bool,
}

impl Entry<'_> {
    fn of(&self, latency: Latency) -> f64 {
        if latency == Latency::Tpot { self.tpot } else { self.ttft }
    }
}

/// The runs of one policy.
#[derive(Debug)]
struct OfPolicy<'a> {
    rule: &'static PolicyRule,
    entries: Vec<Entry<'a>>,
}

impl OfPolicy<'_> {
    /// The lowest figure of its runs.
    fn best(&self, latency: Latency) -> f64 {
        self.entries.iter().map(|e| e.of(latency)).fold(f64::INFINITY, f64::min)
    }

    /// The lowest and the highest figure of its runs, for a reader.
    fn range(&self, latency: Latency) -> String {
        let most = self.entries.iter().map(|e| e.of(latency)).fold(0.0, f64::max);
        let (low, high) = (report_text::time(self.best(latency)), report_text::time(most));
        if low == high { low } else { format!("{low} to {high}") }
    }
}

/// The policies under settings that are otherwise the same.
#[derive(Debug)]
pub struct Explained<'a> {
    /// What the settings share, where others of the answer differ.
    shared: String,
    policies: Vec<OfPolicy<'a>>,
}

/// What a policy's runs must share to be compared with another's.
fn shared(s: &Setting) -> Vec<(&'static str, String)> {
    let mut all = vec![
        // Other requests are another comparison, in whichever words.
        (WORKLOAD, s.workload.to_string()),
        ("max_num_seqs", s.max_num_seqs.to_string()),
        ("rate_scale", format::value(s.rate_scale.factor())),
        ("replicas", s.replicas.to_string()),
        (
            "disagg",
            s.pools.as_ref().map(|p| format!("{} {}", p.flag(), p.transfer)).unwrap_or_default(),
        ),
        ("router", s.router.to_string()),
        ("users", s.users.map(|n| n.to_string()).unwrap_or_default()),
        ("think", s.users.map(|_| s.think.to_string()).unwrap_or_default()),
        ("slo", s.slo.to_string()),
        ("step_time", format!("{:?}", s.step_time)),
    ];
    all.extend(s.clients().into_iter().map(|(name, time)| (name, time.compact())));
    all.extend(s.left_out().into_iter().map(|(name, cut)| (name, cut.to_string())));
    all.extend(s.server.given().into_iter().filter(|(name, _)| !OWN.contains(name)));
    all
}

/// The place of the requests, which says nothing to a reader.
const WORKLOAD: &str = "workload";

/// Options of a policy, which others do not have.
const OWN: [&str; 2] = ["max_num_batched_tokens", "preemption"];

/// The value that a key has for an option.
fn of<'k>(key: &'k [(&'static str, String)], name: &str) -> Option<&'k str> {
    key.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
}

/// Whether the KV cache of a run let nobody wait and lost nothing, so that no limit would do the same.
fn kv_is_ample(s: &RunStatistics) -> bool {
    let of = |kv: &KvStatistics| {
        let c = &kv.counters;
        kv.preemptions == 0 && c.failed_allocations == 0 && c.refilled_blocks == 0
    };
    s.refused.never_fits == 0 && s.kv.as_ref().is_none_or(of)
}

/// Whether a run of vllm-v1, which has options of its own kind, differs from runs that share `key` in
/// nothing but its policy; `caching`: whether they keep prefixes, if that can be said of any of them.
fn stands_beside(run: &Simulated, key: &[(&'static str, String)], caching: Option<bool>) -> bool {
    let Some(config) = &run.config else { return false };
    let s = &run.setting;
    // Of the server's own options, those that vLLM says in other words.
    let in_its_words = ["kv_blocks", "block_size", "order", "enable_prefix_caching"];
    let same = |name: &str| !in_its_words.contains(&name) && name != "max_num_seqs";
    let own: Vec<_> = shared(s).into_iter().filter(|(name, _)| same(name)).collect();
    let theirs = key.iter().filter(|(name, _)| same(name));
    let pool = config.num_blocks.to_string();
    let usable = config.num_blocks.saturating_sub(1).to_string();
    let blocks = match of(key, "kv_blocks") {
        // One of vLLM's blocks is the null block.
        Some(blocks) => {
            let size = of(key, "block_size").unwrap_or("16");
            (blocks == pool || blocks == usable) && size == config.block_size.to_string()
        }
        None => kv_is_ample(&run.statistics),
    };
    let order = if s.by_priority() { "priority" } else { "fcfs" };
    own.iter().eq(theirs)
        && of(key, "max_num_seqs") == Some(config.max_num_seqs.to_string().as_str())
        && of(key, "order").unwrap_or("fcfs") == order
        && blocks
        && caching.is_none_or(|caching| caching == config.enable_prefix_caching)
}

/// Whether the runs of other policies that share a key keep prefixes; none if no policy among them
/// does that.
fn caching(runs: &[Simulated], same: &[usize]) -> Option<bool> {
    let mut others = same.iter().filter_map(|&i| runs.get(i)).map(|r| &r.setting);
    let caches = others.find(|s| caches_prefixes(&s.policy) && s.server.kv_blocks.is_some())?;
    Some(caches.server.enable_prefix_caching.unwrap_or(true))
}

/// Groups in the text: more would fill the screen, and JSON has them all.
pub const SHOWN: usize = 2;

/// Runs that share a key, by their places.
struct Group {
    key: Vec<(&'static str, String)>,
    runs: Vec<usize>,
}

/// The runs of other policies than vllm-v1, by what they share.
fn by_key(runs: &[Simulated]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<Vec<(&'static str, String)>, usize> = HashMap::new();
    let compared = |r: &Simulated| !r.setting.is_vllm() && !r.setting.waits();
    for (run, simulated) in runs.iter().enumerate().filter(|(_, r)| compared(r)) {
        let key = shared(&simulated.setting);
        let place = *places.entry(key).or_insert_with_key(|key| {
            groups.push(Group { key: key.clone(), runs: Vec::new() });
            groups.len() - 1
        });
        groups[place].runs.push(run);
    }
    groups
}

/// Every group of runs that differ in their policy and its own options alone; none of one policy.
pub fn explained(runs: &[Simulated]) -> Vec<Explained<'_>> {
    if !several_policies(runs) {
        return Vec::new();
    }
    let groups = by_key(runs);
    let is_of_vllm = |s: &Setting| s.is_vllm() && !s.waits();
    let of_vllm: Vec<usize> = (0..runs.len()).filter(|&i| is_of_vllm(&runs[i].setting)).collect();
    let entries_of = |group: &Group| {
        let caching = caching(runs, &group.runs);
        let beside = of_vllm.iter().filter(|&&i| stands_beside(&runs[i], &group.key, caching));
        let mut places: Vec<usize> = group.runs.iter().chain(beside).copied().collect();
        places.sort_unstable();
        let mut policies: Vec<OfPolicy<'_>> = Vec::new();
        for run in places {
            let simulated = &runs[run];
            // A run that was cut lacks its slowest requests.
            if simulated.is_truncated() {
                continue;
            }
            let figure = |name| percentile(simulated.report.as_ref(), name, P99.2);
            let (Some(tpot), Some(ttft)) = (figure("tpot"), figure("ttft")) else { continue };
            let setting = &simulated.setting;
            let Some(rule) = PolicyRule::of(&setting.policy) else { continue };
            let spent = simulated.spent.as_ref();
            let label = String::new();
            let overloaded = simulated.is_overloaded();
            let entry = Entry { run, label, setting, tpot, ttft, spent, overloaded };
            match policies.iter_mut().find(|p| p.rule.name == rule.name) {
                Some(policy) => policy.entries.push(entry),
                None => policies.push(OfPolicy { rule, entries: vec![entry] }),
            }
        }
        policies.iter_mut().for_each(label);
        policies
    };
    let in_all = in_all(&groups);
    let drawn = drawn_words(runs, &groups);
    let explained = |group: &Group| {
        let policies = entries_of(group);
        let own = group.key.iter().filter(|part| !in_all.contains(part));
        let own = own.filter(|(name, _)| ![WORKLOAD, "step_time", "slo"].contains(name));
        let own = own.map(|(name, value)| format!("{name} {value}"));
        let words: Vec<String> = drawn(group).into_iter().chain(own).collect();
        Explained { shared: words.join(", "), policies }
    };
    groups.iter().map(explained).filter(|g| 1 < g.policies.len()).collect()
}

/// The parts of a key that all groups have.
fn in_all(groups: &[Group]) -> Vec<&(&'static str, String)> {
    let first =
        groups.iter().flat_map(|g| g.key.iter()).take(groups.first().map_or(0, |g| g.key.len()));
    first.filter(|part| groups.iter().all(|g| g.key.contains(part))).collect()
}

/// What the requests of a group are drawn from, in words, as far as it differs between groups.
fn drawn_words<'r>(runs: &'r [Simulated], groups: &[Group]) -> impl Fn(&Group) -> Vec<String> + 'r {
    let cells = |group: &Group| {
        let first = group.runs.first().and_then(|&i| runs.get(i))?;
        first.setting.drawn.as_ref().map(|drawn| drawn.cells())
    };
    let all: Vec<_> = groups.iter().filter_map(cells).collect();
    let differs: Vec<bool> = (0..all.first().map_or(0, |c| c.len()))
        .map(|i| all.iter().any(|c| c[i] != all[0][i]))
        .collect();
    move |group| {
        let own = group.runs.first().and_then(|&i| runs.get(i));
        let own = own.and_then(|r| r.setting.drawn.as_ref()).map(|drawn| drawn.cells());
        let own = own.into_iter().flatten().zip(&differs).filter(|(_, differ)| **differ);
        own.map(|((name, value), _)| format!("{name} {value}")).collect()
    }
}

/// Whether the policy of runs differs.
fn several_policies(runs: &[Simulated]) -> bool {
    runs.iter().any(|r| r.setting.policy != runs[0].setting.policy)
}

/// Whether several policies were run for clients who wait, whose requests are not the same.
pub fn wait(runs: &[Simulated]) -> bool {
    let waiting: Vec<&Setting> = runs.iter().map(|r| &r.setting).filter(|s| s.waits()).collect();
    waiting.iter().any(|s| s.policy != waiting[0].policy)
}

/// Runs of several policies that are in none of the groups, as they differ from all others in more
/// than the policy; by their places.
pub fn alone(runs: &[Simulated], groups: &[Explained<'_>]) -> Vec<usize> {
    let mut is_in = vec![false; runs.len()];
    for entry in groups.iter().flat_map(|g| &g.policies).flat_map(|p| &p.entries) {
        is_in[entry.run] = true;
    }
    // A run that was cut, or has none of the figures, is in no group for that.
    let could = |r: &Simulated| {
        let figure = |name| percentile(r.report.as_ref(), name, P99.2).is_some();
        !r.setting.waits() && !r.is_truncated() && figure("tpot") && figure("ttft")
    };
    let several = several_policies(runs);
    let left = |(i, r): (usize, &Simulated)| (several && could(r) && !is_in[i]).then_some(i);
    runs.iter().enumerate().filter_map(left).collect()
}

/// Names the runs of a policy by the options in which they differ.
fn label(policy: &mut OfPolicy<'_>) {
    let options = |s: &Setting| {
        let chunk = (s.chunk > 0).then(|| ("chunk", s.chunk.to_string()));
        chunk.into_iter().chain(given(s)).collect::<Vec<_>>()
    };
    let all: Vec<Vec<(&str, String)>> = policy.entries.iter().map(|e| options(e.setting)).collect();
    for (entry, own) in policy.entries.iter_mut().zip(&all) {
        let mut label = policy.rule.name.to_owned();
        for part in own.iter().filter(|part| all.iter().any(|o| !o.contains(part))) {
            label.push_str(&format!(" {} {}", part.0, part.1));
        }
        entry.label = label;
    }
}

/// How often one of two policies has the lower figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    lower: usize,
    higher: usize,
    of: usize,
}

impl Score {
    /// Whether all comparisons say that the first has the lower figure.
    const fn all_lower(self) -> bool {
        self.lower == self.of
    }

    const fn all_higher(self) -> bool {
        self.higher == self.of
    }
}

/// A policy that protects TPOT beside one that protects TTFT.
#[derive(Debug)]
struct Pair<'p, 'a> {
    streams: &'p OfPolicy<'a>,
    prompts: &'p OfPolicy<'a>,
    tpot: Score,
    ttft: Score,
}

impl<'p, 'a> Pair<'p, 'a> {
    /// Compares every run of one with every run of the other; with those of its chunk, if both
    /// policies have one.
    fn of(streams: &'p OfPolicy<'a>, prompts: &'p OfPolicy<'a>) -> Self {
        let comparable = |a: &Entry<'_>, b: &Entry<'_>| {
            let (a, b) = (a.setting.chunk, b.setting.chunk);
            a == 0 || b == 0 || a == b
        };
        let score = |latency| {
            let mut score = Score { lower: 0, higher: 0, of: 0 };
            for a in &streams.entries {
                for b in prompts.entries.iter().filter(|b| comparable(a, b)) {
                    let (x, y) = (a.of(latency), b.of(latency));
                    let differ = SAME * x.max(y) < (x - y).abs();
                    score.of += 1;
                    score.lower += usize::from(differ && x < y);
                    score.higher += usize::from(differ && y < x);
                }
            }
            score
        };
        Self { streams, prompts, tpot: score(Latency::Tpot), ttft: score(Latency::Ttft) }
    }

    /// Whether every run of both is overloaded.
    fn is_overloaded(&self) -> bool {
        self.streams.entries.iter().chain(&self.prompts.entries).all(|e| e.overloaded)
    }

    /// Whether all figures say what the two rules promise.
    const fn as_expected(&self) -> bool {
        self.tpot.all_lower() && self.ttft.all_higher()
    }

    fn sentence(&self) -> String {
        let (a, b) = (self.streams, self.prompts);
        let name = a.rule.name;
        let p = P99.0;
        let beside = |latency| format!("{} against {}", a.range(latency), b.range(latency));
        let (tpot, ttft) = (beside(Latency::Tpot), beside(Latency::Ttft));
        if self.as_expected() {
            return format!(
                "as their rules say: {name} keeps TPOT {p} lower, {tpot}, and pays with TTFT {p}, {ttft}"
            );
        }
        // A queue that no rule has made is then most of TTFT.
        let full = if self.is_overloaded() { ", but every run is overloaded" } else { "" };
        let said = |score: Score, wanted: usize, all: bool, word: &str| match (wanted, all) {
            (_, true) => format!("is {word}, as expected"),
            (0, _) if score.lower == 0 && score.higher == 0 => "is the same".to_owned(),
            (0, _) => format!("is not {word}"),
            (n, _) => format!("is {word} in only {n} of {}", score.of),
        };
        format!(
            "NOT as their rules say{full}: TPOT {p} of {name} {}, {tpot}; its TTFT {p} {}, {ttft}",
            said(self.tpot, self.tpot.lower, self.tpot.all_lower(), "lower"),
            said(self.ttft, self.ttft.higher, self.ttft.all_higher(), "higher"),
        )
    }
}

impl<'a> Explained<'a> {
    /// What stands above it.
    pub fn title(&self) -> String {
        let of = if self.shared.is_empty() { String::new() } else { format!("; {}", self.shared) };
        format!("What the policies' rules explain (from one run each{of})")
    }

    /// Every policy that protects TPOT beside every one that protects TTFT.
    fn pairs(&self) -> Vec<Pair<'_, 'a>> {
        let of = |latency| self.policies.iter().filter(move |p| p.rule.protects == Some(latency));
        let pairs = |streams| of(Latency::Ttft).map(move |prompts| Pair::of(streams, prompts));
        of(Latency::Tpot).flat_map(pairs).collect()
    }

    /// The runs with the lowest and the highest figure.
    fn extremes(&self, latency: Latency) -> Option<(&Entry<'a>, &Entry<'a>)> {
        let all = || self.policies.iter().flat_map(|p| &p.entries);
        let order = |a: &&Entry<'_>, b: &&Entry<'_>| a.of(latency).total_cmp(&b.of(latency));
        Some((all().min_by(order)?, all().max_by(order)?))
    }

    /// The place of a policy by the lowest figure of its runs, from 1.
    fn place(&self, policy: &OfPolicy<'_>, latency: Latency) -> usize {
        let best = policy.best(latency);
        let is_below = |x: f64| x < best * (1.0 - SAME);
        1 + self.policies.iter().filter(|p| is_below(p.best(latency))).count()
    }

    /// Name and sentence: best and worst, each policy, and pairs whose rules are opposite.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for latency in [Latency::Tpot, Latency::Ttft] {
            let Some((best, worst)) = self.extremes(latency) else { continue };
            let of = |e: &Entry<'_>| format!("{} {}", e.label, report_text::time(e.of(latency)));
            lines.push((
                format!("{} {}", latency.name().to_uppercase(), P99.0),
                format!("lowest {}, highest {}", of(best), of(worst)),
            ));
        }
        for policy in &self.policies {
            lines.push((policy.rule.name.to_owned(), self.about(policy)));
            if let Some(entry) = policy.entries.first()
                && let Some(spent) = entry.spent
            {
                let of = entry.label.strip_prefix(policy.rule.name).unwrap_or_default().trim();
                let of = if of.is_empty() { String::new() } else { format!(" under {of}") };
                lines.push((String::new(), spent.sentence(&of)));
            }
            if let Some(says) = by_chunk(policy) {
                lines.push((String::new(), says));
            }
        }
        for (i, pair) in self.pairs().iter().enumerate() {
            let names = format!("{} and {}", pair.streams.rule.name, pair.prompts.rule.name);
            let label = if i == 0 { "compared" } else { "" };
            lines.push((label.to_owned(), format!("{names}: {}", pair.sentence())));
        }
        lines
    }

    /// Whom a rule favours, and where its figures stand.
    fn about(&self, policy: &OfPolicy<'_>) -> String {
        let n = self.policies.len();
        let stands = |latency: Latency| {
            let name = latency.name().to_uppercase();
            let place = self.place(policy, latency);
            format!("{name} {} {} ({place} of {n})", P99.0, policy.range(latency))
        };
        format!(
            "favours {}, can starve {}: {}, {}",
            policy.rule.favours.en,
            policy.rule.can_starve.en,
            stands(Latency::Tpot),
            stands(Latency::Ttft)
        )
    }

    /// The same as data.
    pub fn json(&self) -> Value {
        let policies: Vec<Value> = self
            .policies
            .iter()
            .map(|p| {
                let runs: Vec<Value> = p
                    .entries
                    .iter()
                    .map(|e| {
                        json!({
                            "run": e.run,
                            "tpot_p99_s": e.tpot,
                            "ttft_p99_s": e.ttft,
                            "time": e.spent.map(Spent::json),
                        })
                    })
                    .collect();
                json!({
                    "policy": p.rule.name,
                    "favours": p.rule.favours.en,
                    "can_starve": p.rule.can_starve.en,
                    "protects": p.rule.protects.map(Latency::name),
                    "tpot_p99_place": self.place(p, Latency::Tpot),
                    "ttft_p99_place": self.place(p, Latency::Ttft),
                    "runs": runs,
                })
            })
            .collect();
        let score = |s: Score| json!({ "lower": s.lower, "higher": s.higher, "of": s.of });
        let pairs: Vec<Value> = self
            .pairs()
            .iter()
            .map(|pair| {
                json!({
                    "protects_tpot": pair.streams.rule.name,
                    "protects_ttft": pair.prompts.rule.name,
                    "tpot_p99": score(pair.tpot),
                    "ttft_p99": score(pair.ttft),
                    "as_the_rules_say": pair.as_expected(),
                    "all_runs_overloaded": pair.is_overloaded(),
                    "text": pair.sentence(),
                })
            })
            .collect();
        json!({ "settings": self.shared, "policies": policies, "pairs": pairs })
    }
}

/// What a larger chunk did under a policy, if it had several.
fn by_chunk(policy: &OfPolicy<'_>) -> Option<String> {
    let by = |e: &&Entry<'_>| e.setting.chunk;
    let small = policy.entries.iter().min_by_key(by)?;
    let large = policy.entries.iter().max_by_key(by)?;
    // Other options that differ would be part of the difference.
    let alike = |e: &Entry<'_>| given(e.setting) == given(small.setting);
    if small.setting.chunk == large.setting.chunk || !policy.entries.iter().all(alike) {
        return None;
    }
    let moved = |latency: Latency| {
        let (from, to) = (small.of(latency), large.of(latency));
        let how = if (from - to).abs() <= SAME * from.max(to) {
            "stays at"
        } else if to < from {
            "falls from"
        } else {
            "rises from"
        };
        let times = if how == "stays at" {
            report_text::time(from)
        } else {
            format!("{} to {}", report_text::time(from), report_text::time(to))
        };
        format!("{} {} {how} {times}", latency.name().to_uppercase(), P99.0)
    };
    Some(format!(
        "chunk {} to {}: {}, {}",
        small.setting.chunk,
        large.setting.chunk,
        moved(Latency::Tpot),
        moved(Latency::Ttft)
    ))
}
