//! One setting of the server, and when two of them are the same.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use capacity::replica::machine;
use capacity::watch::Watched;
use metrics_core::grammar;
use metrics_core::measured::{Cut, Cuts};
use metrics_core::slo::SloSet;
use sched_sim::fleet::RouterKind;
use sched_sim::load::arrival_rate;
use sched_sim::vllm_v1::VllmConfig;
use sched_sim::workload::{Cancellations, Delay};
use sched_sim::{DecodeFirst, OfferedLoad, Order, Policy, RateScale, StepTime, Ticks, Workload};
use serving_io::engine::EngineOptions;
use serving_io::policy::{ServerOptions, VLLM_V1, named};
use serving_io::scenario::StepTimeSource;
use serving_io::servers::Servers as FleetServers;

use super::generate::Drawn;
use super::pools::Pools;
use super::render::step_time_name;

/// One setting of the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    /// The scenario's name for it, as long as it is what the name stands for.
    pub(super) name: Option<String>,
    /// The variants of a given scenario that it comes from: several where flags leave no difference.
    pub(super) variants: Vec<String>,
    /// What is to be said of how it came about.
    pub(super) remarks: Vec<String>,
    /// The place of its requests among those of all settings, and what they are drawn from, if they
    /// are drawn.
    pub(super) workload: usize,
    pub(super) drawn: Option<Arc<Drawn>>,
    /// How the clients of its requests go away, if they do.
    pub(super) cancel: Option<Cancellations>,
    pub(super) policy: String,
    pub(super) max_num_seqs: u64,
    pub(super) chunk: u64,
    pub(super) rate_scale: RateScale,
    pub(super) step_time: StepTimeSource,
    pub(super) slo: SloSet,
    /// Options of vllm-v1.
    pub(super) engine: EngineOptions,
    /// Options of the server under another policy; of vllm-v1, whom a gateway refuses.
    pub(super) server: ServerOptions,
    /// Servers behind a router.
    pub(super) replicas: u64,
    /// A pool for prompts and one for answers, in place of replicas.
    pub(super) pools: Option<Pools>,
    pub(super) router: RouterKind,
    /// Users who wait for their answers, in place of a rate, and how long they think.
    pub(super) users: Option<u64>,
    pub(super) think: Delay,
    /// How long clients wait.
    pub(super) timeout: Option<Ticks>,
    /// When the run is cut.
    pub(super) until: Option<Ticks>,
    /// What is not measured of it.
    pub(super) cuts: Cuts,
}

impl Setting {
    /// The defaults, for requests that come without a scenario.
    pub(super) fn of_a_trace() -> Result<Self> {
        Ok(Self {
            name: None,
            variants: Vec::new(),
            remarks: Vec::new(),
            workload: 0,
            drawn: None,
            cancel: None,
            policy: DecodeFirst::default().name().to_owned(),
            max_num_seqs: DecodeFirst::default().max_num_seqs(),
            chunk: DecodeFirst::default().chunk(),
            rate_scale: RateScale::new(1, 1)?,
            step_time: default_step_time()?,
            slo: SloSet::none(),
            engine: EngineOptions::default(),
            server: ServerOptions::default(),
            replicas: 1,
            pools: None,
            router: RouterKind::LeastRequests,
            users: None,
            think: Delay::Constant(Ticks::ZERO),
            timeout: None,
            until: None,
            cuts: Cuts::default(),
        })
    }

    pub(super) fn is_vllm(&self) -> bool {
        self.policy == VLLM_V1
    }

    /// Whether its clients or its router draw from the seed, whatever its requests do.
    pub(super) fn draws(&self) -> bool {
        self.cancel.is_some() || self.routes() && self.router.draws()
    }

    /// Whether its router has several servers to choose from, in one pool at least.
    pub(super) fn routes(&self) -> bool {
        1 < self.pools.map_or(self.replicas, |pools| pools.prefill.max(pools.decode))
    }

    /// Whether clients wait for answers, so that a faster server is sent others, and more.
    pub(super) fn waits(&self) -> bool {
        let turns = || self.drawn.as_ref().is_some_and(|drawn| drawn.spec.waits_for_answers());
        self.users.is_some() || turns()
    }

    /// The policy, if it is not vLLM's.
    pub(super) fn named_policy(&self) -> Result<Box<dyn Policy>> {
        named(&self.policy, self.max_num_seqs, self.chunk, &self.server)
            .ok_or_else(|| anyhow!("--policy: unknown policy `{}`", self.policy))?
            .map_err(anyhow::Error::from)
    }

    /// Name and value of what the clients do and when the run is cut, where it is said.
    pub(super) fn clients(&self) -> Vec<(&'static str, Ticks)> {
        let all = [("timeout", self.timeout), ("until", self.until)];
        all.into_iter().filter_map(|(name, time)| Some((name, time?))).collect()
    }

    /// Name and value of what is not measured.
    pub(super) fn left_out(&self) -> Vec<(&'static str, Cut)> {
        let all = [("warm_up", self.cuts.warm_up), ("cool_down", self.cuts.cool_down)];
        all.into_iter().filter_map(|(name, cut)| Some((name, cut?))).collect()
    }

    /// That several variants came to this one setting, and what else there is to know of it.
    pub(super) fn said(&self) -> Vec<String> {
        let [others @ .., last] = self.variants.as_slice() else { return self.remarks.clone() };
        let mut said = Vec::new();
        if !others.is_empty() {
            said.push(format!(
                "variants {} and {last} do not differ here under {}: each setting runs once",
                others.join(", "),
                self.policy
            ));
        }
        said.extend(self.remarks.iter().cloned());
        said
    }

    /// Drops its name where flags changed what the name stands for: that in which the variant differs
    /// from the scenario's others, and all of it where there are none.
    pub(super) fn keep_name(&mut self, variants: &[Self]) {
        let Some(own) = variants.iter().find(|v| v.name == self.name) else { return };
        let changed = differences(self, own);
        let others = || variants.iter().filter(|v| v.name != own.name);
        let stands_for =
            |i: usize| others().next().is_none() || others().any(|v| differences(v, own)[i]);
        if (0..changed.len()).any(|i| changed[i] && stands_for(i)) {
            self.name = None;
        }
    }

    /// The limit that vLLM's options have, if they have one.
    pub(super) fn limit_of_options(&self) -> Option<u64> {
        let (_, text) = self.engine.given().iter().find(|(name, _)| *name == "max_num_seqs")?;
        grammar::count(text).ok().filter(|_| self.is_vllm())
    }

    /// Shows the limit that vLLM's options have.
    pub(super) fn show_limit(mut self) -> Self {
        self.max_num_seqs = self.limit_of_options().unwrap_or(self.max_num_seqs);
        self
    }

    /// Says what of a scenario's variant is not for the policy here; `own_limit`: whether no flag
    /// gives a batch limit.
    pub(super) fn note_left_behind(&mut self, variant: &Self, own_limit: bool) {
        let other_kind = variant.is_vllm() != self.is_vllm();
        let chunk = (self.chunk == 0 && 0 < variant.chunk).then(|| variant.chunk.to_string());
        let engine = variant.engine.given().iter().filter(|_| other_kind).cloned();
        let given = engine.chain(variant.server.given()).chain(chunk.map(|n| ("chunk", n)));
        let own = self.server.given();
        let followed = |name: &str| name == "max_num_seqs" || own.iter().any(|o| o.0 == name);
        let left: Vec<String> = given
            .filter(|(name, _)| !followed(name))
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !left.is_empty() {
            let is = if left.len() == 1 { "is" } else { "are" };
            self.remarks.push(format!(
                "{} of the scenario {is} for {}, not for {}: left out",
                left.join(", "),
                variant.policy,
                self.policy
            ));
        }
        let limit = variant.limit_of_options().unwrap_or(variant.max_num_seqs);
        if own_limit && 0 < limit && other_kind {
            let (whose, other) = (&variant.policy, &self.policy);
            self.remarks.push(format!(
                "max_num_seqs {limit} of the scenario is for {whose}, not for {other}: \
                 --max-num-seqs is for both"
            ));
        }
    }

    /// What vLLM's scheduler is told, if it is the policy, and what is left out or assumed.
    pub(super) fn vllm_config(&self) -> Result<(Option<VllmConfig>, Vec<String>)> {
        let mut remarks = self.said();
        if !self.is_vllm() {
            return Ok((None, remarks));
        }
        let machine = machine(&self.step_time);
        let resolved = self.engine.resolve(machine.as_ref()).map_err(|e| anyhow!("{e}"))?;
        remarks.extend_from_slice(self.engine.left_out());
        remarks.extend(resolved.notes);
        Ok((Some(resolved.config), remarks))
    }

    /// The load that a workload is for one server.
    pub(super) fn load(
        &self,
        config: Option<&VllmConfig>,
        workload: &Workload,
        cost: &impl StepTime,
    ) -> Result<OfferedLoad> {
        let mut load = if let Some(config) = config {
            OfferedLoad::of_vllm_v1(workload, config, cost)?
        } else {
            // What a server can do at most, whoever it refuses.
            let open = self.server.settings()?.open();
            OfferedLoad::of_server(workload, self.named_policy()?, open, cost)?
        };
        load.arrival_rate = self.arrival_rate(workload);
        Ok(load)
    }

    /// What arrives at one server, of which each gets its share.
    pub(super) fn arrival_rate(&self, workload: &Workload) -> Option<f64> {
        arrival_rate(workload).map(|rate| rate / self.replicas as f64)
    }

    /// Whether those who wait are served by priority.
    pub(super) fn by_priority(&self) -> bool {
        let of_vllm = ("scheduling_policy", "priority".to_owned());
        self.server.order == Some(Order::Priority)
            || self.is_vllm() && self.engine.given().contains(&of_vllm)
    }

    /// Its servers, as files name them.
    pub(super) fn servers(&self) -> FleetServers {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match &self.pools {
            Some(p) => FleetServers::pools(count(p.prefill), count(p.decode), self.router),
            None => FleetServers::fleet(count(self.replicas), self.router),
        }
    }

    /// Steps outside of the range in which the step time is known.
    pub(super) fn beyond<T: StepTime>(&self, cost: &Watched<T>) -> Vec<String> {
        match &self.step_time {
            StepTimeSource::Fitted(file) => cost.beyond(&file.regimes),
            _ => Vec::new(),
        }
    }
}

/// The settings, with a name where they are still what it stands for in these variants.
pub(super) fn with_names(mut settings: Vec<Setting>, variants: Vec<Setting>) -> Vec<Setting> {
    let variants: Vec<Setting> = variants.into_iter().map(Setting::show_limit).collect();
    for setting in &mut settings {
        setting.keep_name(&variants);
    }
    settings
}

/// Settings of which no two run alike.
#[derive(Default)]
pub(super) struct Settings {
    all: Vec<Setting>,
    places: Places,
}

impl Settings {
    /// Adds a setting, unless one runs alike: a list replaces what variants differ in, so that they
    /// fall together.
    pub(super) fn add(&mut self, setting: Setting) {
        let Some(twin) = self.places.find(&setting, |place| &self.all[place]) else {
            self.places.note(&setting, self.all.len());
            self.all.push(setting);
            return;
        };
        let twin = &mut self.all[twin];
        let joined = [(&mut twin.variants, setting.variants), (&mut twin.remarks, setting.remarks)];
        for (own, others) in joined {
            for other in others {
                if !own.contains(&other) {
                    own.push(other);
                }
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Setting> {
        self.all
    }
}

/// Where settings are in a list, by what of them is told apart at once.
#[derive(Default)]
pub(super) struct Places(HashMap<u64, Vec<usize>>);

impl Places {
    /// The place of a setting that runs alike, if there is one.
    pub(super) fn find<'s>(
        &self,
        setting: &Setting,
        at: impl Fn(usize) -> &'s Setting,
    ) -> Option<usize> {
        let places = self.0.get(&fingerprint(setting))?;
        places.iter().copied().find(|&place| same(at(place), setting))
    }

    /// Notes the place of a setting.
    pub(super) fn note(&mut self, setting: &Setting, place: usize) {
        self.0.entry(fingerprint(setting)).or_default().push(place);
    }
}

/// A number that is the same for settings that run alike, and seldom for others.
fn fingerprint(s: &Setting) -> u64 {
    let mut hash = DefaultHasher::new();
    let mut engine: Vec<_> = s.engine.given().iter().collect();
    engine.sort();
    (s.workload, &s.policy, s.max_num_seqs, s.chunk, s.replicas, s.users).hash(&mut hash);
    (engine, s.server.given(), step_time_name(&s.step_time)).hash(&mut hash);
    let clients: Vec<(&str, u128)> =
        s.clients().into_iter().map(|(name, time)| (name, time.attoseconds())).collect();
    let cuts: Vec<(&str, String)> =
        s.left_out().into_iter().map(|(name, cut)| (name, cut.to_string())).collect();
    (clients, cuts, s.slo.to_string(), s.router.to_string()).hash(&mut hash);
    let pools = s.pools.map(|p| (p.prefill, p.decode, p.transfer.to_string()));
    (pools, s.think.to_string(), s.rate_scale.factor().to_bits()).hash(&mut hash);
    hash.finish()
}

/// Whether two settings run alike, whatever they are called.
fn same(a: &Setting, b: &Setting) -> bool {
    a.workload == b.workload && differences(a, b).iter().all(|differ| !differ)
}

/// In which of their parts two settings of the same requests differ.
fn differences(a: &Setting, b: &Setting) -> [bool; 16] {
    /// In whichever order they were given.
    fn options(engine: &EngineOptions) -> (Vec<&(&'static str, String)>, &[String]) {
        let mut given: Vec<_> = engine.given().iter().collect();
        given.sort();
        (given, engine.left_out())
    }
    [
        a.policy != b.policy,
        a.max_num_seqs != b.max_num_seqs,
        a.chunk != b.chunk,
        options(&a.engine) != options(&b.engine),
        a.server != b.server,
        a.replicas != b.replicas,
        a.pools != b.pools,
        a.router != b.router,
        a.users != b.users,
        a.think != b.think,
        a.rate_scale != b.rate_scale,
        a.step_time != b.step_time,
        a.slo != b.slo,
        a.timeout != b.timeout,
        a.until != b.until,
        a.cuts != b.cuts,
    ]
}

fn default_step_time() -> Result<StepTimeSource> {
    serving_io::preset::DEFAULT.parse().map_err(|e| anyhow!("{e}"))
}
