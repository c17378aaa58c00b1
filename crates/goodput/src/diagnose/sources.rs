//! From files to observations: who says what.

use anyhow::{Result, anyhow, bail};
use metrics_core::diagnosis::{Latency, Observations, Operand, Upper};
use metrics_core::format;
use metrics_core::histogram::{Histogram, Range, joint_share};
use metrics_core::observe::observe;
use metrics_core::slo::{self, Slo, SloSet};
use metrics_core::summary::percentile;
use metrics_core::throughput::token_throughput;
use metrics_core::units::{Quantity, Requests, Seconds, Tokens, TokensPerSecond};
use metrics_core::utilization::mean_batch_utilization;
use metrics_core::validity::evidence::Spread;
use metrics_core::validity::{Facts, Finding, engine};
use serving_io::evidence::server;
use serving_io::prometheus::{Snapshot, What, hit_rate};
use serving_io::run::{RequestRate, Run, Values};
use serving_io::stated::Of;

use crate::gate::Loaded;
use crate::output::one_line;

/// What files were read as, and what had to be decided.
pub struct Sources {
    pub max_batch: Option<u64>,
    pub interval: Option<Seconds>,
    pub told: Vec<Told>,
    pub notes: Vec<String>,
    /// What client and engine together say of the figures.
    pub findings: Vec<Finding>,
    /// What the histograms of a snapshot bound.
    pub joint: Option<Joint>,
    /// Whether a difference of two snapshots was read.
    pub two_snapshots: bool,
}

/// The share of requests within each limit, and within all of them, as histograms bound it.
pub struct Joint {
    /// Each limit, and between which shares it is met.
    pub each: Vec<(String, Range)>,
    /// All together.
    pub all: Range,
}

/// One source and what it is the source of.
pub struct Told {
    pub name: String,
    pub what: String,
    pub operands: Vec<Operand>,
}

impl Sources {
    /// What the files of one time say together; `prefix` names the time.
    pub fn read(&mut self, runs: Vec<Loaded>, prefix: &str, slo: &SloSet) -> Result<Observations> {
        let (servers, results): (Vec<Loaded>, Vec<Loaded>) =
            runs.into_iter().partition(|l| l.run.server.is_some());
        if let [_, second, ..] = results.as_slice() {
            bail!(
                "{}: a second result; one run is diagnosed, so choose with --run N, or give an earlier run as --baseline",
                second.name
            );
        }
        let mut seen = Observations::default();
        if let Some(result) = results.first() {
            let from = self.result(result, servers.is_empty())?;
            self.tell(&mut seen, &from, format!("{prefix}{}", result.name), kind(&result.run));
        }
        if let Some((name, snapshot)) = Self::server(&servers)? {
            self.two_snapshots |= snapshot.difference;
            let mut from = self.snapshot(&snapshot)?;
            if let Some(result) = results.first() {
                self.compare(result, &snapshot);
            }
            if prefix.is_empty() {
                let mut facts = results.first().map_or_else(Facts::default, |r| r.facts.clone());
                facts.server = server(&snapshot, facts.ttft.p50);
                self.findings = engine::findings(&facts);
                self.joint = self.joint(&snapshot, slo)?;
                let all = self.joint.as_ref().map(|j| j.all).filter(Range::is_exact);
                from.goodput_ratio = from.goodput_ratio.or(all.map(|r| r.low));
            }
            let span = match (snapshot.difference, self.interval) {
                (true, Some(t)) => format!("between two snapshots {} apart", format::duration(t)),
                (true, None) => "between two snapshots".to_owned(),
                (false, _) => "since the server's start".to_owned(),
            };
            let model = snapshot.model.as_deref().map(|m| format!(" with {}", one_line(m)));
            let what = format!("{}{}, {span}", snapshot.engine, model.unwrap_or_default());
            self.tell(&mut seen, &from, format!("{prefix}{name}"), what);
        }
        Ok(seen)
    }

    /// Fills what is unknown, and notes what came from there.
    fn tell(&mut self, seen: &mut Observations, from: &Observations, name: String, what: String) {
        let known = |o: &Observations| -> Vec<Operand> {
            Operand::ALL.iter().copied().filter(|x| o.has(*x)).collect()
        };
        let before = known(seen);
        seen.fill(from);
        let operands = known(seen).into_iter().filter(|x| !before.contains(x)).collect();
        self.told.push(Told { name, what, operands });
    }

    /// The figures of a result or of timelines; what the engine says of its queue and its batch
    /// outranks what can be assumed of them, if it is there.
    fn result(&mut self, loaded: &Loaded, alone: bool) -> Result<Observations> {
        let Some(report) = &loaded.report else { return self.stated(loaded) };
        let observed = observe(report, &loaded.run.timelines, self.max_batch)
            .map_err(|e| anyhow!("{}: {e}", loaded.name))?;
        let mut seen = observed.seen;
        if observed.queue_assumed && alone {
            self.notes.push(format!(
                "{}: does not say when requests were scheduled, so what is in flight beyond --max-num-seqs is taken as the queue; it is longer if the KV cache holds requests back",
                loaded.name
            ));
        } else if observed.queue_assumed {
            seen.queue_depth.current = None;
            seen.queue_trend = None;
            seen.batch_utilization = None;
        }
        if seen.send_delay.is_none() {
            seen.send_delay = client_delay(&loaded.run, seen.ttft.p50);
        }
        Ok(seen)
    }

    /// The figures that a tool states of a run whose requests are not in the file.
    fn stated(&mut self, loaded: &Loaded) -> Result<Observations> {
        let f = &loaded.facts;
        let known = [f.ttft, f.tpot, f.e2e].iter().any(|s| s.p50.or(s.p99).is_some());
        if !known {
            bail!(
                "{}: has no detail per request and states no P50 or P99, so nothing can be observed; run the client so that it writes every request",
                loaded.name
            );
        }
        self.notes.push(format!(
            "{}: has no detail per request, so the figures are those that its tool states; what needs requests over time stays undecided",
            loaded.name
        ));
        let mut seen = Observations {
            ttft: of_spread(&f.ttft),
            tpot: of_spread(&f.tpot),
            e2e: of_spread(&f.e2e),
            ..Observations::default()
        };
        let stated = serving_io::stated::figures(&loaded.run);
        let rate = stated.iter().find(|s| s.of == Of::OutputTokens).map(|s| s.value);
        let window = f.window_s.filter(|_| !f.truncated);
        let own = f.output.total.zip(window).map(|(n, w)| n as f64 / w);
        seen.token_throughput.current = rate.or(own).and_then(|x| TokensPerSecond::new(x).ok());
        seen.prompt_tokens.current = f.input_mean().and_then(|n| Tokens::new(n).ok());
        if let (Some(i), Some(o)) = (f.input_tokens, f.output.total.filter(|o| 0 < *o)) {
            seen.prefill_decode_ratio.current = Some(i as f64 / o as f64);
        }
        Ok(seen)
    }

    /// What the histograms tell of the limits on single requests.
    fn joint(&mut self, snapshot: &Snapshot, slo: &SloSet) -> Result<Option<Joint>> {
        let mut each = Vec::new();
        let mut counts = Vec::new();
        for limit in slo.limits() {
            let what = match limit.latency {
                slo::Latency::Ttft => Some(What::Ttft),
                slo::Latency::Tpot => Some(What::Tpot),
                slo::Latency::E2e => Some(What::E2e),
                _ => None,
            };
            let histogram = what.and_then(|w| snapshot.histograms.get(&w));
            let Some(h) = histogram.filter(|h| 0 < h.count()) else {
                self.notes.push(format!(
                    "the snapshot has no {}, so goodput under {limit} has no bounds",
                    limit.latency.name()
                ));
                return Ok(None);
            };
            counts.push(h.count());
            if let Some(range) = h.share_up_to(limit.limit.get())? {
                each.push((limit.to_string(), range));
            }
        }
        let shares: Vec<Range> = each.iter().map(|(_, r)| *r).collect();
        let Some(all) = joint_share(&shares)? else { return Ok(None) };
        if counts.windows(2).any(|w| matches!(w, [a, b] if a != b)) {
            self.notes.push(format!(
                "the histograms hold {} requests: those that are under way are in some and not in others",
                counts.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ));
        }
        Ok(Some(Joint { each, all }))
    }

    /// One snapshot, or the difference of two.
    fn server(servers: &[Loaded]) -> Result<Option<(String, Snapshot)>> {
        let of = |l: &Loaded| l.run.server.as_deref().cloned().map(|s| (l.name.clone(), s));
        match servers {
            [] => Ok(None),
            [one] => Ok(of(one)),
            [before, after] => {
                let (Some((a_name, a)), Some((b_name, b))) = (of(before), of(after)) else {
                    return Ok(None);
                };
                let file = |name: &str| name.split(", run ").next().map(str::to_owned);
                if file(&a_name) == file(&b_name) {
                    bail!("{b_name}: the file has several servers; choose one with --run N");
                }
                let between = b.since(&a).map_err(|e| anyhow!("{a_name} and {b_name}: {e}"))?;
                Ok(Some((format!("{a_name} to {b_name}"), between)))
            }
            [_, _, third, ..] => bail!(
                "{}: a third snapshot or server; give the first and the last snapshot of one server, with --run N where a file has several",
                third.name
            ),
        }
    }

    /// The figures of a snapshot.
    fn snapshot(&mut self, s: &Snapshot) -> Result<Observations> {
        let mut seen = Observations::default();
        if let Some(h) = s.histograms.get(&What::Ttft) {
            seen.ttft = latency(h)?;
        }
        if let Some(h) = s.histograms.get(&What::Tpot) {
            seen.tpot = latency(h)?;
        }
        if let Some(h) = s.histograms.get(&What::E2e) {
            seen.e2e = latency(h)?;
        }
        let mean = |what| s.histograms.get(&what).and_then(Histogram::mean);
        let wait = mean(What::QueueTime);
        seen.queue_wait.current = wait.and_then(|w| Seconds::new(w).ok());
        if let (Some(wait), Some(ttft)) = (wait, mean(What::Ttft).filter(|t| 0.0 < *t)) {
            seen.queue_share = Some((wait / ttft).min(1.0));
        }
        seen.prompt_tokens.current = mean(What::PromptLength).and_then(|n| Tokens::new(n).ok());
        // After the run every level is 0, which says nothing about the run.
        let idle = s.gauges.get(&What::Running).is_some_and(|l| l.sum() == 0.0);
        let level = |what| s.gauges.get(&what).filter(|_| !idle);
        if idle {
            self.notes.push("nothing runs at the moment of the snapshot, so its levels (queue, batch, KV cache) are left out: scrape while the load runs".to_owned());
        } else if !s.gauges.is_empty() {
            self.notes.push("queue, batch and KV utilization are of the moment of the snapshot: scrape again, or at the peak of the load, before a row that they rule out is dismissed".to_owned());
        }
        seen.queue_depth.current = level(What::Waiting).and_then(|l| Requests::new(l.sum()).ok());
        if let (Some(running), Some(b)) = (level(What::Running), self.max_batch) {
            // Every engine behind the server has a batch of its own.
            let b = (b * running.0.len() as u64) as f64;
            let running = running.sum();
            if running <= b {
                let both = (Requests::new(running)?, Requests::new(b)?);
                seen.batch_utilization = mean_batch_utilization(both.0, both.1).ok();
            } else {
                self.notes.push(format!(
                    "{} requests run, more than --max-num-seqs allows: the batch utilization is left out",
                    format::count(running)
                ));
            }
        }
        seen.kv_utilization = level(What::KvUtilization).map(serving_io::prometheus::Levels::max);
        if let (Some(i), Some(o)) =
            (s.counter(What::PromptTokens), s.counter(What::OutputTokens).filter(|o| 0.0 < *o))
        {
            seen.prefill_decode_ratio.current = Some(i / o);
        }
        let preempted = s.counter(What::Preemptions);
        if let (Some(n), Some(done)) = (preempted, s.completed().filter(|d| 0.0 < *d)) {
            seen.preemptions = Some(n / done);
        }
        if let Some((hits, queries)) = s.prefix_cache() {
            if 0.0 < hits && preempted.is_some_and(|n| 0.0 < n) {
                self.notes.push(format!(
                    "the hit rate is left out: {} preemptions let requests hit their own blocks, which is no reuse",
                    format::count(preempted.unwrap_or_default())
                ));
            } else {
                seen.kv_hit_rate.current = hit_rate(hits, queries);
            }
        }
        if let (true, Some(t), Some(n)) =
            (s.difference, self.interval, s.counter(What::OutputTokens))
        {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let n = n as u64;
            seen.token_throughput.current = token_throughput(n, t).ok();
        }
        Ok(seen)
    }

    /// Whether client and server saw the same requests.
    fn compare(&mut self, result: &Loaded, snapshot: &Snapshot) {
        let distribution = result
            .report
            .as_ref()
            .and_then(|r| r.latency.iter().find(|d| d.name == "ttft"))
            .and_then(|d| d.figures.as_ref());
        let (Some(client), Some(server)) = (distribution, snapshot.histograms.get(&What::Ttft))
        else {
            return;
        };
        if server.count() != client.n {
            self.notes.push(format!(
                "the server observed {} and the client {}: the snapshot covers something else than the run (warm-up, other clients, or what is still running)",
                format::things(server.count(), "request"),
                client.n
            ));
        }
    }
}

/// P50 and P99 of what a tool states.
fn of_spread<Q: Quantity + TryFrom<f64>>(s: &Spread) -> Latency<Q> {
    let of = |x: Option<f64>| x.and_then(|x| Q::try_from(x).ok());
    Latency {
        p50: of(s.p50),
        p99: of(s.p99),
        baseline_p50: None,
        baseline_p99: None,
        slo: None,
        to: metrics_core::diagnosis::Ends::exact(),
    }
}

/// The bucket of P50 and of P99.
fn latency<Q: Quantity + TryFrom<f64>>(h: &Histogram) -> Result<Latency<Q>> {
    let of = |q: f64| -> Result<(Option<Q>, Upper<Q>)> {
        let Some(range) = h.quantile(q)? else { return Ok((None, Upper::Exact)) };
        let high = range.high.and_then(|x| Q::try_from(x).ok());
        Ok((Q::try_from(range.low).ok(), high.map_or(Upper::Open, Upper::At)))
    };
    let ((p50, p50_to), (p99, p99_to)) = (of(0.5)?, of(0.99)?);
    let mut to = metrics_core::diagnosis::Ends::exact();
    (to.p50, to.p99) = (p50_to, p99_to);
    Ok(Latency { p50, p99, baseline_p50: None, baseline_p99: None, slo: None, to })
}

/// P99 of the wait in the client over the median TTFT, where the load was to come by a rate.
fn client_delay(run: &Run, ttft: Option<Seconds>) -> Option<f64> {
    if !matches!(run.declared.request_rate, Some(RequestRate::PerSecond(_))) {
        return None;
    }
    let Values::Number(values) = &run.column("client_delay_s")?.values else { return None };
    let delays: Vec<f64> = values.iter().copied().flatten().collect();
    let ttft = ttft?.get();
    percentile(&delays, 0.99).ok().filter(|_| 0.0 < ttft).map(|d| d / ttft)
}

/// What a file is, in a few words.
fn kind(run: &Run) -> String {
    let n = match run.timelines.len() {
        0 => "figures only".to_owned(),
        n => format::things(n as u64, "request"),
    };
    if run.tool.name.is_empty() { n } else { format!("{}, {n}", one_line(&run.tool.name)) }
}

/// The objective of each latency as the limit of its P99: a percentile target of P99 first, else
/// the limit for single requests.
pub fn objectives(seen: &mut Observations, slo: &SloSet) {
    let limit = |latency: slo::Latency| {
        let of_p99 = slo.items().iter().find_map(|item| match item {
            Slo::Percentile { limit, p, .. } if limit.latency == latency && *p == 0.99 => {
                Some(limit.limit.get())
            }
            _ => None,
        });
        of_p99.or_else(|| slo.limits().find(|l| l.latency == latency).map(|l| l.limit.get()))
    };
    seen.ttft.slo = limit(slo::Latency::Ttft).and_then(|x| Seconds::new(x).ok());
    seen.tpot.slo = limit(slo::Latency::Tpot).and_then(|x| x.try_into().ok());
    seen.e2e.slo = limit(slo::Latency::E2e).and_then(|x| Seconds::new(x).ok());
}
