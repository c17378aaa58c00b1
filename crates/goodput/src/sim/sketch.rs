//! Runs of any length: requests are drawn, run and counted one after the other, and none is kept.

use anyhow::{Result, bail};
use capacity::replica::step_time;
use capacity::watch::Watched;
use indicatif::{ProgressBar, ProgressStyle};
use metrics_core::report::{Report, Settings};
use metrics_core::steady::mser5;
use metrics_core::tally::Tally;
use metrics_core::validity::NEED_REQUESTS;
use metrics_core::{Outcome, format};
use sched_sim::server::{Ending, Job, Rejection, run_stream};
use sched_sim::workload::WorkloadSpec;
use sched_sim::{GapRun, Observer, Ticks, Workload};
use serving_io::evidence::sketched;
use serving_io::run::Run;
use serving_io::scenario::VLLM_V1;

use super::believed::{CHECKS, conservation, raised};
use super::pools::Moved;
use super::remarks::ignored_prefixes;
use super::served::Maker;
use super::{Arguments, Overload, Setting, Simulated, Source, loads, nobody, refused, window_of};

/// The load is measured on so many of the first requests, which have to be kept for it.
const LOAD_SAMPLE: usize = 10_000;

/// Requests between two moves of the bar.
const TICK: u64 = 1024;

/// Why nothing can be left out.
const MEASURED: &str = "goes by the order of all arrivals";

/// Refuses what needs the requests kept.
pub fn check(arguments: &Arguments) -> Result<()> {
    if !arguments.sketch {
        return Ok(());
    }
    let refusals = [
        (arguments.trace.is_some(), "--trace", "holds its requests anyway"),
        (!arguments.users.is_empty(), "--users", "keeps who is over, for the next request"),
        (arguments.seeds.is_some(), "--seeds", "is for several runs that fit into memory"),
        (arguments.requests_out.is_some(), "--requests-out", "writes every request"),
        (
            arguments.explain_tail.is_some(),
            "--explain-tail",
            "needs the slowest requests themselves",
        ),
        (arguments.trace_out.is_some(), "--trace-out", "needs the steps of the run"),
        (arguments.series.is_some(), "--series", "needs the steps of the run"),
        (!arguments.warm_up.is_empty(), "--warm-up", MEASURED),
        (!arguments.cool_down.is_empty(), "--cool-down", MEASURED),
    ];
    match refusals.into_iter().find(|(given, ..)| *given) {
        Some((_, option, why)) => bail!("--sketch: keeps no request, and {option} {why}"),
        None => Ok(()),
    }
}

/// A bar over the requests of all settings, on a terminal.
pub fn progress(settings: &[Setting]) -> ProgressBar {
    let requests = settings.iter().map(|s| s.drawn.as_ref().map_or(0, |drawn| drawn.spec.requests));
    let bar = ProgressBar::new(requests.fold(0, u64::saturating_add));
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} requests {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Refuses requests and settings for which some requests would have to be kept.
fn needs_no_request(spec: &WorkloadSpec, setting: &Setting) -> Result<()> {
    if setting.users.is_some() {
        bail!("--sketch: keeps no request, and users wait for answers");
    }
    if spec.waits_for_answers() {
        bail!("--sketch: keeps no request, and turns wait for answers");
    }
    if !setting.cuts.are_none() {
        bail!("--sketch: keeps no request, and {} {MEASURED}", setting.cuts.in_words());
    }
    Ok(())
}

/// Runs one setting on requests that are drawn as they arrive.
pub fn simulate(
    arguments: &Arguments,
    source: &Source,
    setting: Setting,
    bar: &ProgressBar,
) -> Result<Simulated> {
    let Some(spec) = source.of(&setting)?.spec() else {
        bail!("--sketch: the requests are not drawn from a seed");
    };
    needs_no_request(spec, &setting)?;
    let cost = Watched::new(step_time(&setting.step_time)?);
    let (config, mut remarks) = setting.vllm_config()?;
    if config.as_ref().is_some_and(|c| c.enable_prefix_caching) {
        bail!(
            "--sketch: the prefix cache of {VLLM_V1} knows every prompt again, also after its eviction, \
             so memory would grow with the requests: add --enable-prefix-caching=false"
        );
    }
    let head = head(spec, &setting)?;
    let maker = Maker {
        arguments,
        setting: &setting,
        config: config.as_ref(),
        cost: &cost,
        seed: spec.seed,
    };
    let (load, pool_loads) = loads(&maker, &head, None)?;
    let mut server = maker.server()?;

    let mut drawn = Drawn::new(setting.timeout, config.as_ref().map(|c| c.max_model_len));
    let mut counted = Counted {
        tally: Tally::new(&setting.slo)?,
        refused: None,
        moved: Moved::default(),
        error: None,
    };
    let mut itl = Itl { tally: Tally::new(&setting.slo)?, error: None };
    let end = {
        let jobs = drawn.jobs(spec, &setting, bar)?;
        run_stream(&mut *server, jobs, &mut itl, |over| {
            if let (None, Ending::Rejected(why)) = (&counted.refused, over.ending) {
                // Its number counts from 0, and its id in a workload from 1.
                counted.refused = Some((over.progress.id + 1, why));
            }
            counted.push(&over.progress, over.ending.outcome());
        })?
    };
    for progress in server.inside() {
        counted.push(&progress, Outcome::CutOff);
    }
    counted.take(itl, drawn.error.take())?;
    let statistics = server.statistics();

    if let Some((id, why)) = counted.refused {
        remarks.push(refused(&id.to_string(), why, statistics.rejected - 1, config.is_some()));
    }
    if let Some(max) = drawn.max_model_len.filter(|_| 0 < drawn.too_long) {
        let answers = format::things(drawn.too_long, "answer");
        remarks.push(format!("{answers} would pass max_model_len ({max} tokens) and end there"));
    }
    if head.len() < usize::try_from(spec.requests).unwrap_or(usize::MAX) {
        remarks.push(format!("the load is that of the first {} requests", head.len()));
    }
    let moved = counted.moved.any();
    let links = setting.pools.and_then(|p| p.overfull_links(moved.as_ref(), statistics.duration()));
    remarks.extend(links);
    remarks.extend(ignored_prefixes(&setting, &head).into_iter().chain([not_looked_for()]));

    let truncated = end.is_truncated();
    let settings = Settings {
        window: window_of(&statistics)?,
        truncated,
        slo: &setting.slo,
        method: arguments.objectives.method(),
        confidence: arguments.objectives.confidence()?,
    };
    let any = 0 < counted.tally.requests();
    let report = any.then(|| Report::of_tally(&counted.tally, &settings)).transpose()?;
    let run = Run { truncated, ..Run::default() };
    let overload = Overload::of(&load, &statistics, setting.users);
    let (findings, verdict) = match &report {
        Some(report) => {
            let mut facts = sketched(&run, report, &setting.slo);
            facts.conservation = Some(conservation(&statistics));
            raised(&facts, overload)
        }
        None => return Err(nobody(&setting, head.requests().first())),
    };
    Ok(Simulated {
        requests: usize::try_from(spec.requests).unwrap_or(usize::MAX),
        load,
        overload,
        each: server.each(),
        pool_loads,
        moved,
        tail: None,
        spent: None,
        config,
        remarks,
        // It needs TTFT in order of arrival.
        warm_up: mser5(&[]),
        findings,
        verdict,
        beyond: setting.beyond(&cost),
        end,
        report,
        statistics,
        setting,
    })
}

/// The first requests.
fn head(spec: &WorkloadSpec, setting: &Setting) -> Result<Workload> {
    let first = spec.stream()?.take(LOAD_SAMPLE).collect::<sched_sim::Result<Vec<_>>>()?;
    Ok(Workload::new(first)?.scale_rate(setting.rate_scale)?)
}

/// Which checks a run without its requests cannot make.
fn not_looked_for() -> String {
    // The fastest that the machine allows is compared request by request, too; an overload is known
    // by the load.
    let listed = |id: &str| id != "W04" && NEED_REQUESTS.iter().any(|check| check.id == id);
    let needs = |id: &&str| *id == "W25" || listed(id);
    let ids: Vec<&str> = CHECKS.into_iter().filter(needs).collect();
    format!("not looked for, as no request is kept: warm-up, {}", ids.join(", "))
}

/// Requests on their way into a run.
struct Drawn {
    patience: Option<Ticks>,
    max_model_len: Option<u64>,
    /// Answers that vLLM would cut.
    too_long: u64,
    error: Option<anyhow::Error>,
}

impl Drawn {
    const fn new(patience: Option<Ticks>, max_model_len: Option<u64>) -> Self {
        Self { patience, max_model_len, too_long: 0, error: None }
    }

    /// The requests one after the other; ends early with an `error`.
    fn jobs<'a>(
        &'a mut self,
        spec: &WorkloadSpec,
        setting: &'a Setting,
        bar: &'a ProgressBar,
    ) -> Result<impl Iterator<Item = Job> + 'a> {
        let mut first = None;
        let requests = spec.stream()?.enumerate();
        Ok(requests.map_while(move |(position, request)| {
            let scaled = request.and_then(|mut r| {
                let first = *first.get_or_insert(r.arrival);
                r.arrival = setting.rate_scale.arrival(first, r.arrival)?;
                Ok(r)
            });
            let request = match scaled {
                Ok(request) => request,
                Err(error) => {
                    self.error = Some(error.into());
                    return None;
                }
            };
            if (position as u64 + 1).is_multiple_of(TICK) {
                bar.inc(TICK);
            }
            let asked = request.input_tokens + request.output_tokens;
            let cut = |max: u64| request.input_tokens < max && max < asked;
            self.too_long += u64::from(self.max_model_len.is_some_and(cut));
            let mut job = Job::of(position, &request);
            job.give_up_after(self.patience);
            Some(job)
        }))
    }
}

/// What became of requests.
struct Counted {
    tally: Tally,
    /// The first that was refused, and why.
    refused: Option<(u64, Rejection)>,
    /// What moved between two pools.
    moved: Moved,
    error: Option<anyhow::Error>,
}

/// The gaps between tokens.
struct Itl {
    tally: Tally,
    error: Option<metrics_core::Error>,
}

impl Observer for Itl {
    fn is_watching(&self) -> bool {
        false
    }

    fn gaps(&mut self, runs: &[GapRun]) {
        for run in runs {
            for j in 0..run.steps {
                let gap = run.gap(j).to_seconds();
                let pushed = gap.and_then(|gap| self.tally.push_gaps(gap, run.requests));
                self.error = self.error.take().or(pushed.err());
            }
        }
    }
}

impl Counted {
    /// Adds the gaps between tokens, if nothing went wrong anywhere.
    fn take(&mut self, itl: Itl, drawing: Option<anyhow::Error>) -> Result<()> {
        let error = drawing.or(self.error.take());
        if let Some(error) = error.or(itl.error.map(anyhow::Error::from)) {
            return Err(error);
        }
        Ok(self.tally.merge(&itl.tally)?)
    }

    fn push(&mut self, progress: &sched_sim::server::Progress, outcome: Outcome) {
        self.moved.count(progress.transfer.as_deref().copied());
        let pushed = progress.timeline(outcome).and_then(|t| self.tally.push(&t));
        if let (None, Err(error)) = (&self.error, pushed) {
            self.error = Some(error.into());
        }
    }
}
