//! How many replicas a load needs.
//!
//! Three methods, each of which stands beside the others, so that they can disagree in sight:
//!
//! 1. **Closed form**: what one replica bears at most by its token rate, its seats, its KV cache and
//!    the limit on TPOT ([`Bounds`]); the load over the least of them. It knows no queue.
//! 2. **Queueing**: seats of a batch as the servers of an M/M/c queue, with the service time of the
//!    steady state and Kingman's factor for bursts; it knows the mean lengths alone.
//! 3. **Simulation**: the fleet itself, request by request ([`search`]).
//!
//! Users who think are a closed loop in all three: their rate follows from the time of a request,
//! X = N / (R + Z), the queue is M/M/c//N, and the simulated users wait for their answers.
//!
//! [`PlanRequest`] and [`PlanAnswer`] are serializable, so that an autoscaler can ask.

pub mod autoscale;
pub mod disagg;
pub mod hours;
pub mod mix;
pub mod point;
pub mod queue;
pub mod search;

use metrics_core::interval::Confidence;
use metrics_core::sizing::nodes_for_rate;
use metrics_core::slo::{Latency, SloSet};
use metrics_core::units::{RequestsPerSecond, RequestsPerSecondPerNode};
use metrics_core::validity::Finding;
use metrics_core::validity::load::bursty;
use metrics_core::validity::model::cost_at_full_duty;
use queueing::approx::gap_scv;
use queueing::closed::{interactive_response, interactive_throughput};
use queueing::little::little_l;
use sched_sim::fleet::RouterKind;
use sched_sim::workload::{ArrivalLaw, ClosedLoop, Delay, Lengths, WorkloadSpec};
use sched_sim::{DecodeFirst, StepTime, Ticks, Workload};
use serde::{Deserialize, Serialize};
use serving_io::engine::EngineOptions;
use serving_io::machine::Machine;
use serving_io::policy::{ServerOptions, takes_batched_tokens, takes_chunk};
use serving_io::scenario::{StepTimeSource, VLLM_V1};

use crate::cost::{CostRequest, PRICE, cost};
use crate::error::{PlanError, Result};
use crate::goals::{Goal, agree_up_to, check_agreement, goals, strictest};
use crate::replica::{NamedPolicy, Scheduler, SharedStepTime, machine, stated_error, step_time};
use autoscale::{Autoscaler, Backtest, backtest};
use disagg::{Link, Pools, pools};
use hours::{ReplicaHours, replica_hours};
use mix::Mix;
use point::{Model, OperatingPoint};
use queue::{
    Demand, MOST_REPLICAS, MOST_USERS, Queues, Senders, keeps, largest_rate, least, queue,
};
use search::{Found, Requests, Search};

/// The version of [`PlanRequest`]'s and [`PlanAnswer`]'s fields.
pub const SCHEMA_VERSION: u64 = 1;

/// What arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LoadSpec {
    /// Requests per second.
    Rate {
        /// How many.
        per_s: f64,
        /// Coefficient of variation of the gaps between them; 1 is Poisson.
        cv: f64,
    },
    /// Users who wait for their answer, think, and ask again: a closed loop.
    Thinking {
        /// How many.
        users: u64,
        /// Mean time from an answer to the next request.
        think_s: f64,
    },
    /// Users who ask at a rate of their own, whatever the answers take: an open loop.
    Users {
        /// How many.
        users: u64,
        /// Requests per second of each.
        per_user_per_s: f64,
    },
    /// The requests of a trace, which is given beside the request.
    Trace,
}

/// What is to be planned. Texts are in the grammar of the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// What arrives.
    pub load: LoadSpec,
    /// How long a request takes end to end, for the requests in flight.
    #[serde(default)]
    pub e2e_s: Option<f64>,
    /// The law of the prompts' tokens, `512` or `lognormal:median=600,sigma=1.1`; not for a trace.
    #[serde(default)]
    pub input_tokens: Option<String>,
    /// The law of the answers' tokens.
    #[serde(default)]
    pub output_tokens: Option<String>,
    /// The objectives, `p99(ttft)<1s, tpot<50ms @ 99%`; none: the load is to be borne at all.
    #[serde(default)]
    pub slo: Option<String>,
    /// The share of the requests that has to meet all limits on single requests.
    #[serde(default)]
    pub attainment: Option<f64>,
    /// A preset, coefficients or a file; none: only the load is told.
    #[serde(default)]
    pub step_time: Option<String>,
    /// How far the step time may be off; what its source states if not given.
    #[serde(default)]
    pub model_error: Option<f64>,
    /// One of [`serving_io::scenario::POLICIES`].
    pub policy: String,
    /// Most requests in the batch of a replica; the policy's own if not given.
    #[serde(default)]
    pub max_num_seqs: Option<u64>,
    /// Most prompt tokens of a request in a step, for policies with a chunk.
    #[serde(default)]
    pub chunk: Option<u64>,
    /// Options under vLLM's names, with their values; of the others than vllm-v1, some know
    /// `num_kv_blocks`, `block_size` and `max_num_batched_tokens`.
    #[serde(default)]
    pub engine: Vec<(String, String)>,
    /// How requests are given to replicas.
    pub router: String,
    /// Whether to simulate.
    pub simulate: bool,
    /// Requests of a simulated run; as many as the load asks for if not given. Not for a trace.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The first seed.
    pub seed: u64,
    /// Most seeds for one number of replicas.
    pub most_seeds: u64,
    /// Confidence of the intervals.
    pub confidence: Confidence,
    /// Whether to plan pools of prefill and decode too.
    #[serde(default)]
    pub disagg: bool,
    /// Bytes of the KV cache of a token, for pools; those of the step time's model if not given.
    #[serde(default)]
    pub kv_bytes_per_token: Option<u64>,
    /// Bytes per second that a prefill replica sends of the KV cache, for pools.
    #[serde(default)]
    pub kv_bandwidth_bytes_per_s: Option<f64>,
    /// Price of a replica for an hour.
    #[serde(default)]
    pub price_per_h: Option<f64>,
    /// How long a replica takes to start, to try an autoscaler on a trace.
    #[serde(default)]
    pub autoscale_delay_s: Option<f64>,
    /// Waiting requests per replica above which that autoscaler starts more; the plan's own signal if
    /// not given.
    #[serde(default)]
    pub autoscale_queue: Option<f64>,
    /// From one look of it to the next; 15 s if not given.
    #[serde(default)]
    pub autoscale_interval_s: Option<f64>,
    /// How long the rate has to be low before a replica goes; 300 s if not given.
    #[serde(default)]
    pub autoscale_settle_s: Option<f64>,
}

impl PlanRequest {
    /// A request for this load with everything else as the command line has it.
    #[must_use]
    pub fn new(load: LoadSpec) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            load,
            e2e_s: None,
            input_tokens: None,
            output_tokens: None,
            slo: None,
            attainment: None,
            step_time: None,
            model_error: None,
            policy: VLLM_V1.to_owned(),
            max_num_seqs: None,
            chunk: None,
            engine: Vec::new(),
            router: RouterKind::LeastRequests.name().to_owned(),
            simulate: true,
            requests: None,
            seed: 1,
            most_seeds: 16,
            confidence: Confidence::P95,
            disagg: false,
            kv_bytes_per_token: None,
            kv_bandwidth_bytes_per_s: None,
            price_per_h: None,
            autoscale_delay_s: None,
            autoscale_queue: None,
            autoscale_interval_s: None,
            autoscale_settle_s: None,
        }
    }
}

/// The load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadAnswer {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Where that comes from, in words.
    pub basis: String,
    /// Whether who sends waits for answers.
    pub model: LoadModel,
    /// Coefficient of variation of the gaps between arrivals.
    pub gap_cv: f64,
    /// Requests in flight by Little's law, if the time of a request is known.
    pub in_flight: Option<f64>,
    /// Mean time of a request, waits included, of a closed loop with a step time: by the interactive
    /// law, R = N / X - Z.
    pub response_s: Option<f64>,
}

/// Whether requests wait for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadModel {
    /// They do not: a server that is slow gets as many.
    Open,
    /// They do: a server that is slow gets fewer.
    Closed,
}

/// What one replica bears at most, in requests per second; each bound by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Steps keep up with the tokens that arrive, prompt and answer, within the token budget.
    pub token_rate_per_s: Option<f64>,
    /// The batch has a seat for all who are in flight.
    pub seats_per_s: Option<f64>,
    /// The KV cache holds what all in flight hold on average.
    pub kv_stock_per_s: Option<f64>,
    /// A step takes no longer than the limit on TPOT.
    pub tpot_per_s: Option<f64>,
    /// The least of them.
    pub least_per_s: f64,
    /// Which one that is.
    pub binding: Binding,
}

/// A bound of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Prefill and decode work.
    TokenRate,
    /// Seats of the batch.
    Seats,
    /// Room in the KV cache.
    KvStock,
    /// The limit on TPOT.
    Tpot,
}

/// How a number of replicas was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The load over the least bound.
    ClosedForm,
    /// An M/M/c queue of seats that all replicas share.
    QueueingPooled,
    /// A queue for each replica.
    QueueingSplit,
    /// The fleet itself.
    Simulation,
}

impl Method {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClosedForm => "closed form",
            Self::QueueingPooled => "queueing, one queue",
            Self::QueueingSplit => "queueing, a queue each",
            Self::Simulation => "simulation",
        }
    }
}

/// The replicas by one method.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByMethod {
    /// Which.
    pub method: Method,
    /// How many; none if no number up to 4096 is enough.
    pub replicas: Option<u64>,
}

/// The replicas if something is other than planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// What is other, in words.
    pub case: String,
    /// How it was found.
    pub method: Method,
    /// How many; none if no number is enough.
    pub replicas: Option<u64>,
}

/// A signal for an autoscaler, from the limit on TTFT.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// What is left of the limit for the wait: the limit less the time from admission to the first
    /// token.
    pub allowed_wait_s: f64,
    /// Waiting requests of a replica above which the wait is longer than that: rate of a replica
    /// times allowed wait (Little's law).
    pub queue_per_replica: f64,
}

/// What the replicas cost, the spare left out, in the currency of the price.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanCost {
    /// Of all of them for an hour.
    pub per_h: f64,
    /// For a day.
    pub per_day: f64,
    /// Of a million output tokens, which bear all of it, at the load of the plan; none if the lengths
    /// are not known.
    pub per_million_output: Option<f64>,
    /// Of a million tokens, input and output alike.
    pub per_million_tokens: Option<f64>,
}

/// Whether the answer stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Decided,
    /// It does not, and why.
    Indeterminate {
        /// Each reason in one clause.
        reasons: Vec<String>,
    },
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanAnswer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// `goodput-plan`.
    pub kind: String,
    /// What was asked.
    pub request: PlanRequest,
    /// The load.
    pub load: LoadAnswer,
    /// The lengths, if they are known.
    pub mix: Option<Mix>,
    /// What one replica bears at most, if its step time is known.
    pub bounds: Option<Bounds>,
    /// The replicas by each method.
    pub methods: Vec<ByMethod>,
    /// The replicas: by simulation if there is one, else by queueing with a queue each if there are
    /// limits on TTFT or E2E, else by closed form.
    pub replicas: Option<u64>,
    /// One more, for a replica that fails or is updated.
    pub with_spare: Option<u64>,
    /// A replica at its share of the load.
    pub point: Option<OperatingPoint>,
    /// The load as a share of what the replicas bear by the binding bound, TPOT's left out.
    pub utilization: Option<f64>,
    /// How far the step time may be off.
    pub model_error: f64,
    /// The replicas if every step is shorter and longer by the model error, by the method that the
    /// answer is from.
    pub band: Option<(Option<u64>, Option<u64>)>,
    /// What was simulated.
    pub simulation: Option<Found>,
    /// What changes the answer.
    pub sensitivity: Vec<Sensitivity>,
    /// A signal for an autoscaler, if TTFT is limited.
    pub signal: Option<Signal>,
    /// Replica-hours of a trace.
    pub hours: Option<ReplicaHours>,
    /// An autoscaler with that signal on the trace, if its delay is given.
    pub backtest: Option<Backtest>,
    /// Pools of prefill and decode, if they were asked for.
    pub pools: Option<Pools>,
    /// What the replicas cost, if their price is given.
    pub cost: Option<PlanCost>,
    /// Whether the answer stands.
    pub verdict: Verdict,
    /// What was assumed.
    pub notes: Vec<String>,
}

impl PlanAnswer {
    /// Finding W34: the cost of a token takes the load to last all hours; none for a trace, whose
    /// hours are what they are.
    #[must_use]
    pub fn cost_finding(&self) -> Option<Finding> {
        self.cost?.per_million_output?;
        let output = self.mix?.output_mean;
        let is_trace = matches!(self.request.load, LoadSpec::Trace);
        let tokens = self.load.rate_per_s * output;
        if is_trace { None } else { cost_at_full_duty(None, tokens, None) }
    }

    /// The same with what its replicas cost.
    fn priced(mut self) -> Result<Self, PlanError> {
        let (Some(price), Some(n)) = (self.request.price_per_h, self.replicas) else {
            return Ok(self);
        };
        let per_h = price * n as f64;
        let rate = self.load.rate_per_s;
        let costs = self.mix.map(|mix| {
            cost(&CostRequest {
                price_per_h: per_h,
                output_tokens_per_s: rate * mix.output_mean,
                input_tokens_per_s: Some(rate * mix.input_mean),
                ..CostRequest::default()
            })
        });
        let costs = costs.transpose()?.map(|answer| answer.full);
        self.cost = Some(PlanCost {
            per_h,
            per_day: 24.0 * per_h,
            per_million_output: costs.map(|c| c.per_million_output),
            per_million_tokens: costs.and_then(|c| c.per_million_tokens),
        });
        Ok(self)
    }

    /// Finding W35: arrivals are burstier than the queueing method takes them without a factor.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let requests = self.mix.map(|m| m.requests).filter(|_| self.hours.is_some())?;
        bursty(self.load.gap_cv, requests - 1, self.mix.map(|m| m.output_scv().sqrt()))
    }
}

/// A capacity lower by a fifth: every step takes 1.25 times as long.
const LESS_CAPACITY: f64 = 1.25;
/// Variation of the gaps under bursts.
const BURST_CV: f64 = 2.0;
/// Windows of [`ReplicaHours`].
const WINDOW_S: f64 = 60.0;
/// From one look of the autoscaler to the next, and how long a lower load has to last: the defaults of
/// Kubernetes' HorizontalPodAutoscaler (sync period 15 s, scale-down stabilization 300 s).
const LOOK_S: f64 = 15.0;
const SETTLE_S: f64 = 300.0;
/// Requests of a run: so many, or so many times those in flight, up to so many.
const RUN: (f64, f64, f64) = (4000.0, 40.0, 100_000.0);
/// Requests of a run that somebody may ask for: more than the first of them, up to the second.
const REQUESTS: (f64, f64) = (99.0, 1e7);
/// Requests that the mean lengths are taken from.
const MIX_REQUESTS: u64 = 20_000;
/// Users of a closed loop that can be simulated.
const MOST_CLOSED: f64 = 1e6;
/// Requests of each user that a simulated run has at least, where there is room for them.
const TURNS: u64 = 4;

/// Requests per second and where they come from.
fn load(request: &PlanRequest, trace: Option<&Workload>) -> Result<LoadAnswer, PlanError> {
    let rates = (0.0, 1e9);
    let positive = |input, value, unit| PlanError::bounds(input, value, (0.0, 1e9), unit);
    let e2e = request.e2e_s.map(|t| positive("e2e", t, " s")).transpose()?;
    let (rate, basis, gap_cv, model) = match request.load {
        LoadSpec::Rate { per_s, cv } => {
            PlanError::bounds("cv", cv, (0.0, 10.0), "")?;
            let basis = "as given".to_owned();
            (PlanError::bounds("rate", per_s, rates, "/s")?, basis, cv, LoadModel::Open)
        }
        LoadSpec::Users { users, per_user_per_s } => {
            let users = positive("users", users as f64, "")?;
            let each = PlanError::bounds("requests per user", per_user_per_s, (0.0, 1e6), "/s")?;
            let basis = format!("{users} users with {}/h each (open loop)", shown(each * 3600.0));
            (users * each, basis, 1.0, LoadModel::Open)
        }
        LoadSpec::Thinking { users, think_s } => {
            let users = positive("users", users as f64, "")?;
            let think = PlanError::bounds("think", think_s, (-f64::MIN_POSITIVE, 1e9), " s")?;
            if request.step_time.is_some() {
                if e2e.is_some() {
                    let problem = "of a closed loop follows from the step time: leave it out";
                    return Err(PlanError::Input { input: "e2e", problem: problem.to_owned() });
                }
                PlanError::bounds("users", users, (0.0, MOST_CLOSED), "")?;
            } else if e2e.is_none() && think == 0.0 {
                let problem = "users who neither think nor wait have no rate: say how long an answer takes too";
                return Err(PlanError::Input { input: "think", problem: problem.to_owned() });
            }
            let rate = match request.step_time {
                // Known once the replicas are.
                Some(_) => 0.0,
                None => interactive_throughput(users, e2e.unwrap_or(0.0), think)?,
            };
            let answer = match e2e {
                Some(e2e) => format!(" and wait {} s for the answer (closed loop)", shown(e2e)),
                None => ", answers at once: at most this rate".to_owned(),
            };
            let basis = format!("{users} users who think {} s{answer}", shown(think));
            (rate, basis, 1.0, LoadModel::Closed)
        }
        LoadSpec::Trace => {
            let missing =
                |problem: &str| PlanError::Input { input: "trace", problem: problem.to_owned() };
            let trace = trace.ok_or_else(|| missing("is not given beside the request"))?;
            let rate = sched_sim::load::arrival_rate(trace)
                .ok_or_else(|| missing("needs two requests or more that arrive apart"))?;
            let arrivals: Vec<f64> = trace.requests().iter().map(|r| r.arrival.seconds()).collect();
            let gaps: Vec<f64> = arrivals.windows(2).map(|w| w[1] - w[0]).collect();
            let basis = format!("{} requests of the trace", trace.len());
            (rate, basis, gap_scv(&gaps)?.sqrt(), LoadModel::Open)
        }
    };
    let in_flight = e2e.map(|e2e| little_l(rate, e2e)).transpose()?;
    Ok(LoadAnswer { rate_per_s: rate, basis, model, gap_cv, in_flight, response_s: None })
}

fn shown(x: f64) -> String {
    metrics_core::format::value(x)
}

/// What a replica is made of.
struct Parts {
    source: StepTimeSource,
    step_time: SharedStepTime,
    scheduler: Scheduler,
    notes: Vec<String>,
}

fn parts(request: &PlanRequest, text: &str) -> Result<Parts, PlanError> {
    let source: StepTimeSource = text.parse().map_err(|e| PlanError::input("step time", &e))?;
    let mut engine = EngineOptions::default();
    for (name, value) in &request.engine {
        engine.set(name, value)?;
    }
    let (scheduler, notes) =
        scheduler(&request.policy, request.max_num_seqs, request.chunk, engine, &source)?;
    Ok(Parts { step_time: step_time(&source)?, source, scheduler, notes })
}

/// A scheduler by its name, and what was assumed for it.
///
/// # Errors
///
/// [`PlanError`] for a name or an option that is not known, or that does not go with the policy.
pub fn scheduler(
    policy: &str,
    max_num_seqs: Option<u64>,
    chunk: Option<u64>,
    engine: EngineOptions,
    source: &StepTimeSource,
) -> Result<(Scheduler, Vec<String>), PlanError> {
    scheduler_on(policy, max_num_seqs, chunk, engine, None, machine(source).as_ref())
}

/// The same with an order of the queue, for policies other than vllm-v1, and on a machine that is known
/// already: looking one up reads the tables of all.
pub(crate) fn scheduler_on(
    policy: &str,
    max_num_seqs: Option<u64>,
    chunk: Option<u64>,
    mut engine: EngineOptions,
    order: Option<&str>,
    machine: Option<&Machine>,
) -> Result<(Scheduler, Vec<String>), PlanError> {
    let refuse = |text: String| Err(PlanError::Contradiction(text));
    if let Some(n) = max_num_seqs {
        PlanError::bounds("max_num_seqs", n as f64, (0.0, 1e9), "")?;
    }
    if policy == VLLM_V1 {
        if let Some(chunk) = chunk {
            return refuse(format!(
                "chunk {chunk}: is not for {VLLM_V1}, which has long_prefill_token_threshold"
            ));
        }
        if let Some(order) = order {
            return refuse(format!(
                "order {order}: is not for {VLLM_V1}, which has scheduling_policy"
            ));
        }
        if let Some(n) = max_num_seqs {
            engine.set("max_num_seqs", &n.to_string())?;
        }
        let resolved = engine.resolve(machine)?;
        let mut notes: Vec<String> = engine.left_out().to_vec();
        notes.extend(resolved.notes);
        return Ok((Scheduler::VllmV1(Box::new(resolved.config)), notes));
    }
    if let (Some(chunk), false) = (chunk, takes_chunk(policy)) {
        return refuse(format!("chunk {chunk}: policy {policy} has none"));
    }
    let mut options = ServerOptions::default();
    options.order = order.map(str::parse).transpose().map_err(|e| PlanError::input("order", &e))?;
    for (name, value) in engine.given() {
        let count = || {
            metrics_core::grammar::count(value)
                .map_err(|e| PlanError::Contradiction(format!("{name}: {e}")))
        };
        match *name {
            "max_num_batched_tokens" if takes_batched_tokens(policy) => {
                options.max_num_batched_tokens = Some(count()?);
            }
            "num_kv_blocks" => options.kv_blocks = Some(count()?),
            "block_size" => options.block_size = Some(count()?),
            name => return refuse(format!("{name}: is not for policy {policy}")),
        }
    }
    if options.block_size.is_some() && options.kv_blocks.is_none() {
        return refuse("block_size: has no effect without num_kv_blocks".to_owned());
    }
    let own = DecodeFirst::default();
    let seats = max_num_seqs.unwrap_or_else(|| sched_sim::Policy::max_num_seqs(&own));
    let chunk = chunk.unwrap_or_else(|| own.chunk());
    let mut notes = Vec::new();
    if policy == "static" {
        notes.push(
            "closed form and queueing take batching to be continuous, which static is not"
                .to_owned(),
        );
    }
    Ok((Scheduler::Named(NamedPolicy::new(policy, seats, chunk, options)?), notes))
}

/// What one replica bears at most.
fn bounds(model: &Model<'_>, tpot: Option<f64>) -> Bounds {
    let scheduler = model.scheduler;
    let budget = scheduler.token_budget().map_or(f64::INFINITY, |b| b as f64);
    let seats = scheduler.max_num_seqs() as f64;
    let finite = |rate: f64| rate.is_finite().then_some(rate);
    let token = finite(model.largest_rate(|p| p.step_tokens <= budget));
    let seat = finite(model.largest_rate(|p| p.in_flight <= seats));
    let kv = scheduler.kv_tokens().map(|kv| model.largest_rate(|p| p.kv_tokens <= kv as f64));
    let kv = kv.and_then(finite);
    let tpot = tpot.map(|limit| model.largest_rate(|p| p.tpot_s <= limit)).and_then(finite);
    let all = [
        (token, Binding::TokenRate),
        (seat, Binding::Seats),
        (kv, Binding::KvStock),
        (tpot, Binding::Tpot),
    ];
    let least = all.into_iter().filter_map(|(rate, which)| Some((rate?, which)));
    let (least_per_s, binding) =
        least.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::MAX, Binding::TokenRate));
    Bounds {
        token_rate_per_s: token,
        seats_per_s: seat,
        kv_stock_per_s: kv,
        tpot_per_s: tpot,
        least_per_s,
        binding,
    }
}

impl Bounds {
    /// What a replica bears whatever is asked of its latencies.
    fn capacity_per_s(&self) -> f64 {
        let hard = [self.token_rate_per_s, self.seats_per_s, self.kv_stock_per_s];
        hard.into_iter().flatten().fold(f64::INFINITY, f64::min)
    }
}

/// The requests to be simulated, and a workload to take the lengths from.
fn requests<'a>(
    request: &PlanRequest,
    trace: Option<&'a Workload>,
    load: &LoadAnswer,
) -> Result<Option<(Requests<'a>, Workload)>, PlanError> {
    let lengths = [&request.input_tokens, &request.output_tokens];
    if let (LoadSpec::Trace, Some(trace)) = (&request.load, trace) {
        if lengths.iter().any(|l| l.is_some()) || request.requests.is_some() {
            return Err(PlanError::Contradiction(
                "the requests of a trace have lengths of their own: leave out laws of tokens and the number of requests".to_owned(),
            ));
        }
        return Ok(Some((Requests::Trace(trace), trace.clone())));
    }
    let (input, output) = match (&request.input_tokens, &request.output_tokens) {
        (None, None) => return Ok(None),
        (Some(input), Some(output)) => (input, output),
        (given, _) => {
            let input = if given.is_some() { "output tokens" } else { "input tokens" };
            let problem = "prompts and answers need a law each, such as 512".to_owned();
            return Err(PlanError::Input { input, problem });
        }
    };
    let arrivals = if load.gap_cv == 1.0 {
        ArrivalLaw::Poisson
    } else {
        ArrivalLaw::Gamma { cv: load.gap_cv }
    };
    let law = |input: &'static str, text: &str| {
        serving_io::lengths::law(text).map_err(|e| PlanError::input(input, &e))
    };
    let spec = WorkloadSpec {
        requests: MIX_REQUESTS,
        // That of users is not known yet, and their lengths do not depend on it.
        rate_per_s: if load.rate_per_s == 0.0 { 1.0 } else { load.rate_per_s },
        arrivals,
        lengths: Lengths::Independent {
            input: law("input tokens", input)?,
            output: law("output tokens", output)?,
        },
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed: request.seed,
    };
    let sample = spec.generate()?;
    let LoadSpec::Thinking { users, think_s } = request.load else {
        return Ok(Some((Requests::Drawn(Box::new(spec)), sample)));
    };
    let closed = Box::new(ClosedLoop {
        users,
        think: Delay::Constant(Ticks::ZERO),
        requests: MIX_REQUESTS,
        lengths: spec.lengths,
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed: request.seed,
    });
    Ok(Some((Requests::Users { closed, think_s }, sample)))
}

/// Refuses what does not fit into a replica at all.
pub(crate) fn check_fit(scheduler: &Scheduler, mix: &Mix) -> Result<(), PlanError> {
    if let Scheduler::VllmV1(config) = scheduler
        && config.max_model_len < mix.longest
    {
        return Err(PlanError::Contradiction(format!(
            "the longest request has {} tokens, prompt and answer, and max_model_len is {}",
            mix.longest, config.max_model_len
        )));
    }
    if let Some(kv) = scheduler.kv_tokens().filter(|kv| *kv < mix.longest) {
        return Err(PlanError::Contradiction(format!(
            "the longest request has {} tokens, and the KV cache of a replica holds {kv}",
            mix.longest
        )));
    }
    Ok(())
}

/// Refuses options of a part that was not asked for.
fn check_parts(request: &PlanRequest) -> Result<(), PlanError> {
    let without = |input, part: &str| {
        let problem = format!("has no effect without {part}");
        Err(PlanError::Input { input, problem })
    };
    if let Some(bandwidth) = request.kv_bandwidth_bytes_per_s {
        if !request.disagg {
            return without("kv bandwidth", "pools: add disagg");
        }
        PlanError::bounds("kv bandwidth", bandwidth, (0.0, 1e15), " B/s")?;
    }
    if request.kv_bytes_per_token.is_some() && !request.disagg {
        return without("kv bytes per token", "pools: add disagg");
    }
    for (input, value) in [
        ("autoscale queue", request.autoscale_queue),
        ("autoscale interval", request.autoscale_interval_s),
        ("autoscale settle", request.autoscale_settle_s),
    ] {
        if value.is_some() && request.autoscale_delay_s.is_none() {
            return without(input, "autoscale delay");
        }
    }
    Ok(())
}

/// Plans.
///
/// `trace` is the workload of [`LoadSpec::Trace`], and none else.
///
/// # Errors
///
/// [`PlanError`] for inputs that cannot be, that contradict each other, or that no number of replicas
/// can keep.
///
/// # Examples
///
/// ```
/// use capacity::plan::{LoadSpec, PlanRequest, plan};
///
/// // 5,000 people are not 5,000 requests: each asks ten times an hour and waits 5 s.
/// let load = LoadSpec::Users { users: 5000, per_user_per_s: 10.0 / 3600.0 };
/// let answer = plan(&PlanRequest { e2e_s: Some(5.0), ..PlanRequest::new(load) }, None)?;
/// assert!((answer.load.rate_per_s - 13.9).abs() < 0.02);
/// assert!((answer.load.in_flight.unwrap() - 69.4).abs() < 0.1);
/// # Ok::<(), capacity::PlanError>(())
/// ```
pub fn plan(request: &PlanRequest, trace: Option<&Workload>) -> Result<PlanAnswer, PlanError> {
    if request.schema_version != SCHEMA_VERSION {
        return Err(PlanError::Contradiction(format!(
            "schema_version must be {SCHEMA_VERSION}, got {}",
            request.schema_version
        )));
    }
    PlanError::bounds("seeds", request.most_seeds as f64, (1.0, 1e4), "")?;
    request.price_per_h.map(|p| PlanError::bounds("price", p, PRICE, "/h")).transpose()?;
    check_parts(request)?;
    let slo = request.slo.as_deref().map_or(Ok(SloSet::none()), str::parse);
    let slo = slo.map_err(|e| PlanError::input("slo", &e))?;
    let goals = goals(&slo, request.attainment)?;
    // Who goes away would not wait as long for a server that is as many times slower.
    let stay = trace.map(|trace| trace.clone().staying());
    let (trace, leaving) = stay.as_ref().map_or((None, 0), |(trace, n)| (Some(trace), *n));
    let load = load(request, trace)?;
    let requests = requests(request, trace, &load)?;
    let answer = PlanAnswer {
        schema_version: SCHEMA_VERSION,
        kind: "goodput-plan".to_owned(),
        request: request.clone(),
        load,
        mix: None,
        bounds: None,
        methods: Vec::new(),
        replicas: None,
        with_spare: None,
        point: None,
        utilization: None,
        model_error: 0.0,
        band: None,
        simulation: None,
        sensitivity: Vec::new(),
        signal: None,
        hours: None,
        backtest: None,
        pools: None,
        cost: None,
        verdict: Verdict::Decided,
        notes: (0 < leaving)
            .then(|| {
                let whose = metrics_core::format::things(leaving as u64, "request");
                format!("{whose} of clients who went away: planned as if they stayed")
            })
            .into_iter()
            .collect(),
    };
    let Some(text) = &request.step_time else {
        check_agreement(&goals, None)?;
        return without_step_time(answer, &goals, requests.as_ref().map(|r| &r.1))?.priced();
    };
    let Some((requests, sample)) = requests else {
        let problem = "a plan needs the tokens of prompts and answers".to_owned();
        return Err(PlanError::Input { input: "input tokens", problem });
    };
    let parts = parts(request, text)?;
    Planner { parts, goals, sample, requests, answer }.plan()?.priced()
}

/// The load alone.
fn without_step_time(
    mut answer: PlanAnswer,
    goals: &[Goal],
    sample: Option<&Workload>,
) -> Result<PlanAnswer, PlanError> {
    if !goals.is_empty() {
        let problem = "is needed to see how many replicas keep the SLOs".to_owned();
        return Err(PlanError::Input { input: "step time", problem });
    }
    answer.mix = sample.map(|w| Mix::of(w, u64::MAX)).transpose()?;
    if let (Some(seats), Some(l)) = (answer.request.max_num_seqs, answer.load.in_flight) {
        let seats = PlanError::bounds("max_num_seqs", seats as f64, (0.0, 1e9), "")?;
        let n = nodes_for_rate(RequestsPerSecond::new(l)?, RequestsPerSecondPerNode::new(seats)?)?;
        // Far below 2^53, as checked.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let n = (n.get() as u64).max(1);
        answer.replicas = Some(n);
        answer.with_spare = Some(n + 1);
        answer.methods.push(ByMethod { method: Method::ClosedForm, replicas: Some(n) });
        answer.notes.push(
            "requests in flight over the batch of a replica, all seats full: no reserve, no wait, and no check that a full batch keeps the time of a request".to_owned(),
        );
    }
    Ok(answer)
}

/// A plan in the making.
struct Planner<'a> {
    parts: Parts,
    goals: Vec<Goal>,
    /// Requests that the lengths are taken from.
    sample: Workload,
    requests: Requests<'a>,
    answer: PlanAnswer,
}

impl Planner<'_> {
    fn plan(mut self) -> Result<PlanAnswer, PlanError> {
        let mix = Mix::of(&self.sample, self.parts.scheduler.chunk())?;
        check_agreement(&self.goals, Some(mix.output_mean))?;
        check_fit(&self.parts.scheduler, &mix)?;
        // What the engine would not start with is refused before anything is computed from it.
        self.parts.scheduler.server(&*self.parts.step_time)?;
        let error = self.answer.request.model_error.or(stated_error(&self.parts.source));
        let error = error.unwrap_or(0.0);
        self.answer.model_error =
            PlanError::bounds("model error", error, (-f64::MIN_POSITIVE, 0.9), "")?;
        self.answer.notes.append(&mut self.parts.notes);
        self.answer.mix = Some(mix);
        self.closed_forms(mix)?;
        if self.is_simulated() {
            self.simulate()?;
        }
        self.conclude(mix)?;
        self.autoscale()?;
        Ok(self.answer)
    }

    /// What is known of the KV cache on its way between pools.
    fn link(&self) -> Result<Option<Link>, PlanError> {
        let request = &self.answer.request;
        let bandwidth = request.kv_bandwidth_bytes_per_s;
        let bytes = match (request.kv_bytes_per_token, machine(&self.parts.source)) {
            (Some(bytes), _) => {
                Some(PlanError::bounds("kv bytes per token", bytes as f64, (0.0, 1e9), "")?)
            }
            (None, Some(machine)) => Some(machine.model.kv(None)?.bytes_per_token().get()),
            (None, None) => None,
        };
        match (bytes, bandwidth) {
            (None, Some(_)) => {
                let problem =
                    "the step time names no model: give the KV bytes of a token too".to_owned();
                Err(PlanError::Input { input: "kv bandwidth", problem })
            }
            (bytes, bandwidth) => {
                Ok(bytes.map(|bytes_per_token| Link { bytes_per_token, bandwidth }))
            }
        }
    }

    fn is_simulated(&self) -> bool {
        self.answer.request.simulate && !self.goals.is_empty()
    }

    fn model(&self, mix: Mix) -> Model<'_> {
        let step_time: &dyn StepTime = &*self.parts.step_time;
        Model { mix, scheduler: &self.parts.scheduler, step_time }
    }

    /// Who sends, where every step is longer by a factor: on a clock that is slower by it.
    fn senders(&self, slower: f64) -> Senders {
        match self.answer.request.load {
            LoadSpec::Thinking { users, think_s } => {
                Senders::Closed { users: users as f64, think_s: think_s / slower }
            }
            _ => Senders::Open(self.answer.load.rate_per_s * slower),
        }
    }

    /// The goals on that clock.
    fn goals(&self, slower: f64) -> Result<Vec<Goal>, PlanError> {
        self.goals.iter().map(|g| g.times(1.0 / slower)).collect()
    }

    /// Whether a goal limits what waits are part of.
    fn limits_waits(&self) -> bool {
        let waits = |g: &Goal| [Latency::Ttft, Latency::E2e].iter().any(|l| g.limit(*l).is_some());
        self.goals.iter().any(waits)
    }

    fn demand<'b>(&self, slower: f64, goals: &'b [Goal]) -> Demand<'b> {
        Demand {
            senders: self.senders(slower),
            gap_cv: self.answer.load.gap_cv,
            kv_tokens: self.parts.scheduler.kv_tokens(),
            goals,
        }
    }

    /// The bounds of a replica and the replicas by closed form and queueing, on that clock.
    fn by_theory(&self, mix: Mix, slower: f64) -> Result<(Bounds, Vec<ByMethod>), PlanError> {
        let goals = self.goals(slower)?;
        let (model, demand) = (self.model(mix), self.demand(slower, &goals));
        let bounds = bounds(&model, strictest(&goals, Latency::Tpot).map(|(limit, _)| limit));
        if bounds.least_per_s <= 0.0 {
            return Ok((bounds, Vec::new()));
        }
        let borne =
            |n| demand.senders.each(&model, n).is_some_and(|each| each <= bounds.least_per_s);
        let mut methods = vec![ByMethod { method: Method::ClosedForm, replicas: least(borne) }];
        let few = |senders| !matches!(senders, Senders::Closed { users, .. } if MOST_USERS < users);
        if self.limits_waits() && few(demand.senders) {
            for (method, queues) in
                [(Method::QueueingPooled, Queues::Pooled), (Method::QueueingSplit, Queues::Split)]
            {
                let replicas = least(|n| keeps(&model, &demand, n, queues));
                methods.push(ByMethod { method, replicas });
            }
        }
        Ok((bounds, methods))
    }

    /// What theory says, without a simulation.
    fn closed_forms(&mut self, mix: Mix) -> Result<(), PlanError> {
        let tpot = strictest(&self.goals, Latency::Tpot).map(|(limit, _)| limit);
        let (bounds, methods) = self.by_theory(mix, 1.0)?;
        let model = self.model(mix);
        if bounds.least_per_s <= 0.0 {
            let alone = model.at(0.0).map_or(f64::INFINITY, |p| p.tpot_s);
            return Err(PlanError::Contradiction(match (bounds.binding, tpot) {
                (Binding::Tpot, Some(limit)) => format!(
                    "a request alone takes {} s per token, above the limit of {} s: no number of replicas keeps it",
                    shown(alone),
                    shown(limit)
                ),
                _ => "one request is more than a replica bears".to_owned(),
            }));
        }
        let demand = self.demand(1.0, &self.goals);
        // The most that users ever send is what they send to replicas that are all but idle.
        let rate = match demand.senders {
            Senders::Open(rate) => rate,
            Senders::Closed { users, think_s } => {
                let service = model.at(0.0).map_or(0.0, |p| p.service_s);
                interactive_throughput(users, service, think_s)?
            }
        };
        let mut sensitivity = Vec::new();
        let waits = self.limits_waits();
        if waits && matches!(demand.senders, Senders::Open(_)) {
            let bursts = Demand { gap_cv: BURST_CV.max(demand.gap_cv), ..demand };
            sensitivity.push(Sensitivity {
                case: format!("gaps with a CV of {}", shown(bursts.gap_cv)),
                method: Method::QueueingSplit,
                replicas: least(|n| keeps(&model, &bursts, n, Queues::Split)),
            });
        }
        let pools = if self.answer.request.disagg {
            pools(&model, &self.sample, rate, &self.goals, self.link()?)
        } else {
            None
        };
        let mut hours = None;
        if let Requests::Trace(trace) = self.requests {
            let each = if waits {
                largest_rate(&model, &Demand { gap_cv: 1.0, ..demand })
            } else {
                bounds.least_per_s
            };
            hours = replica_hours(trace, WINDOW_S, each)?;
        }
        let answer = |methods: &[ByMethod]| methods.iter().rev().find_map(|m| m.replicas);
        let error = self.answer.model_error;
        let mut band = None;
        if 0.0 < error && !self.is_simulated() {
            let at = |slower| self.by_theory(mix, slower).map(|(_, methods)| answer(&methods));
            band = Some((at(1.0 / (1.0 + error))?, at(1.0 + error)?));
        }
        self.answer.bounds = Some(bounds);
        self.answer.methods = methods;
        self.answer.sensitivity = sensitivity;
        self.answer.pools = pools;
        self.answer.hours = hours;
        self.answer.band = band;
        Ok(())
    }

    /// What the fleet itself does.
    fn simulate(&mut self) -> Result<(), PlanError> {
        let request = &self.answer.request;
        let router: RouterKind =
            request.router.parse().map_err(|e| PlanError::input("router", &e))?;
        let guess = self.answer.methods.iter().rev().find_map(|m| m.replicas).unwrap_or(1);
        let mut requests = self.requests.clone();
        let (least, times, most) = RUN;
        // Between the two constants.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let own = |n: f64| n.clamp(least, most) as u64;
        let own = match &requests {
            Requests::Users { closed, .. } => own((TURNS * closed.users) as f64),
            _ => own(times * self.in_flight(guess)),
        };
        let asked = match &mut requests {
            Requests::Drawn(spec) => Some(&mut spec.requests),
            Requests::Users { closed, .. } => Some(&mut closed.requests),
            Requests::Trace(_) => None,
        };
        if let Some(requests) = asked {
            *requests = request.requests.unwrap_or(own);
            PlanError::bounds("requests", *requests as f64, REQUESTS, "")?;
        }
        let error = self.answer.model_error;
        let search = |slower: f64, requests: &Requests<'_>, guess: u64| {
            self.search(router, slower, requests).run(guess)
        };
        let found = search(1.0, &requests, guess)?;
        let n = found.replicas;
        // A case that nothing keeps is an answer too, not an error of the plan.
        let other =
            |slower, requests: &Requests<'_>| search(slower, requests, n).ok().map(|f| f.replicas);
        let band = (0.0 < error)
            .then(|| (other(1.0 / (1.0 + error), &requests), other(1.0 + error, &requests)));
        let mut sensitivity = vec![Sensitivity {
            case: "capacity 20 % lower".to_owned(),
            method: Method::Simulation,
            replicas: other(LESS_CAPACITY, &requests),
        }];
        if let Requests::Drawn(spec) = &requests
            && self.answer.load.gap_cv < BURST_CV
        {
            let arrivals = ArrivalLaw::Gamma { cv: BURST_CV };
            let bursts = Requests::Drawn(Box::new(WorkloadSpec { arrivals, ..(**spec).clone() }));
            sensitivity.push(Sensitivity {
                case: format!("gaps with a CV of {BURST_CV}"),
                method: Method::Simulation,
                replicas: other(1.0, &bursts),
            });
        }
        let mut hours = None;
        if let (Requests::Trace(trace), Some(bounds)) = (&requests, self.answer.bounds) {
            // What one replica bears of this trace, bursts included.
            let rate = self.answer.load.rate_per_s;
            let most = (bounds.capacity_per_s() / rate).clamp(0.01, 50.0);
            hours = replica_hours(
                trace,
                WINDOW_S,
                rate * self.search(router, 1.0, &requests).largest_factor(1, most)?,
            )?;
        }
        let method = Method::Simulation;
        self.answer.hours = hours.or(self.answer.hours);
        self.answer.methods.push(ByMethod { method, replicas: Some(n) });
        self.answer.sensitivity.append(&mut sensitivity);
        self.answer.band = band;
        self.answer.simulation = Some(found);
        Ok(())
    }

    /// The autoscaler with the signal of the plan on the trace.
    fn autoscale(&mut self) -> Result<(), PlanError> {
        let Some(delay_s) = self.answer.request.autoscale_delay_s else { return Ok(()) };
        let (Requests::Trace(trace), Some(signal), Some(hours)) =
            (&self.requests, self.answer.signal, self.answer.hours)
        else {
            let problem = "an autoscaler needs a trace and a limit on TTFT".to_owned();
            return Err(PlanError::Input { input: "autoscale delay", problem });
        };
        let rule = Autoscaler {
            interval_s: self.answer.request.autoscale_interval_s.unwrap_or(LOOK_S),
            delay_s,
            queue_per_replica: self
                .answer
                .request
                .autoscale_queue
                .unwrap_or(signal.queue_per_replica),
            rate_per_replica: hours.rate_per_replica,
            settle_s: self.answer.request.autoscale_settle_s.unwrap_or(SETTLE_S),
            least: hours.mean_replicas.max(1),
            most: MOST_REPLICAS,
        };
        let parts = &self.parts;
        let tried = backtest(trace, &parts.scheduler, &parts.step_time, &self.goals, &rule)?;
        self.answer.backtest = Some(tried);
        Ok(())
    }

    /// A search for the replicas if every step is longer by a factor.
    fn search<'b>(
        &'b self,
        router: RouterKind,
        slower: f64,
        requests: &Requests<'b>,
    ) -> Search<'b> {
        let request = &self.answer.request;
        Search {
            scheduler: &self.parts.scheduler,
            step_time: &self.parts.step_time,
            router,
            goals: self.goals.clone(),
            requests: requests.clone(),
            seed: request.seed,
            most_seeds: request.most_seeds,
            confidence: request.confidence,
            slower,
            faster: 1.0,
        }
    }

    /// The rate of each of so many replicas.
    fn each(&self, replicas: u64) -> f64 {
        let (Some(mix), Some(bounds)) = (self.answer.mix, self.answer.bounds) else { return 0.0 };
        let (model, demand) = (self.model(mix), self.demand(1.0, &self.goals));
        match demand.senders {
            Senders::Open(rate) => rate / replicas as f64,
            Senders::Closed { users, .. } if users <= MOST_USERS => {
                let known = queue(&model, &demand, replicas, Queues::Pooled);
                known.map_or(0.0, |(at, _)| at.rate_per_s)
            }
            // Whom there is no seat for waits, and sends nothing meanwhile.
            Senders::Closed { .. } => {
                let each = demand.senders.each(&model, replicas);
                each.unwrap_or(f64::INFINITY).min(bounds.capacity_per_s())
            }
        }
    }

    /// Requests in flight over all replicas, waits left out.
    fn in_flight(&self, replicas: u64) -> f64 {
        let at = self.answer.mix.and_then(|mix| self.model(mix).at(self.each(replicas)));
        at.map_or(0.0, |p| p.in_flight * replicas as f64)
    }

    /// The number, and whether it stands.
    fn conclude(&mut self, mix: Mix) -> Result<(), PlanError> {
        let replicas = self.answer.methods.iter().rev().find_map(|m| m.replicas);
        let mut reasons = Vec::new();
        let Some(n) = replicas else {
            return Err(PlanError::Contradiction(format!(
                "no number of replicas up to {MOST_REPLICAS} keeps the SLOs, by any method"
            )));
        };
        let each = self.each(n);
        let point = self.model(mix).at(each);
        if let LoadSpec::Thinking { users, think_s } = self.answer.request.load {
            let rate = n as f64 * each;
            let response = interactive_response(users as f64, rate, think_s)?;
            let load = &mut self.answer.load;
            load.rate_per_s = rate;
            load.response_s = Some(response);
            load.in_flight = Some(little_l(rate, response)?);
            load.basis = format!(
                "{users} users who think {} s and wait {} s for the answer (closed loop)",
                shown(think_s),
                metrics_core::format::significant(response, 3)
            );
        }
        if let Some(found) = &self.answer.simulation
            && !found.decided
        {
            reasons.push(format!(
                "{} replicas are neither shown to keep the SLOs nor to miss them: more seeds or longer runs would tell",
                n - 1
            ));
        }
        if let Some(bounds) = self.answer.bounds {
            let load = each / bounds.capacity_per_s();
            let error = self.answer.model_error;
            // A closed loop has no saturation: it waits.
            let is_open = self.answer.load.model == LoadModel::Open;
            if is_open && load < 1.0 && 1.0 <= load * (1.0 + error) {
                reasons.push(format!(
                    "the load is {} of what {} can bear, and the step time may be off by {}: that straddles saturation",
                    metrics_core::format::percent(load),
                    metrics_core::format::things(n, "replica"),
                    metrics_core::format::percent(error)
                ));
            }
            self.answer.utilization = Some(load).filter(|l| l.is_finite());
        }
        if let Some((shorter, longer)) = self.answer.band.filter(|(a, b)| a != b) {
            let number = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
            reasons.push(format!(
                "the step time may be off by {}: replicas {} if steps are so much shorter, {} if they are longer",
                metrics_core::format::percent(self.answer.model_error),
                number(shorter),
                number(longer)
            ));
        }
        let ttft = strictest(&self.goals, Latency::Ttft).map(|(limit, _)| limit);
        self.answer.signal =
            ttft.zip(point).filter(|(limit, p)| p.prefill_s < *limit).map(|(limit, p)| Signal {
                allowed_wait_s: limit - p.prefill_s,
                queue_per_replica: p.rate_per_s * (limit - p.prefill_s),
            });
        if let Some(agree) = agree_up_to(&self.goals).filter(|n| *n < mix.longest) {
            self.answer.notes.push(format!(
                "the limits on TTFT and TPOT stay within that on E2E up to answers of {agree} tokens: above, E2E decides"
            ));
        }
        self.answer.point = point;
        self.answer.replicas = Some(n);
        self.answer.with_spare = Some(n + 1);
        if !reasons.is_empty() {
            self.answer.verdict = Verdict::Indeterminate { reasons };
        }
        Ok(())
    }
}
