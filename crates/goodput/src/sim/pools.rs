//! A prefill pool and a decode pool: as flags say them, and as an answer shows them.

use anyhow::{Context, Result, anyhow, bail};
use capacity::replica::machine;
use metrics_core::units::Bytes;
use metrics_core::{format, grammar};
use sched_sim::{KvTransfer, OfferedLoad, RunResult, RunStatistics, Ticks, Transfer};
use serde_json::{Value, json};
use serving_io::policy;

use super::lists::parsed;
use super::{Arguments, Setting, Simulated, served};
use crate::report::text as report_text;

/// Servers of each pool, and how long KV moves between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pools {
    /// Servers for prompts.
    pub prefill: u64,
    /// Servers for answers.
    pub decode: u64,
    /// From one to the other.
    pub transfer: KvTransfer,
}

/// Names of the pools, in the order in which a request meets them.
const NAMES: [&str; 2] = ["prefill", "decode"];

/// The counts of `prefill=2,decode=3`.
fn counts(text: &str) -> Result<(u64, u64)> {
    let mut counts = [None; 2];
    for part in text.split(',') {
        let (name, n) = part.split_once('=').unwrap_or((part, ""));
        let Some(i) = NAMES.iter().position(|known| *known == name.trim()) else {
            bail!("--disagg: expected prefill=N,decode=M, got `{text}`");
        };
        let n = served::replicas(&format!("--disagg {}", NAMES[i]), n)?;
        if counts[i].replace(n).is_some() {
            bail!("--disagg: {} is given twice in `{text}`", NAMES[i]);
        }
    }
    let [Some(prefill), Some(decode)] = counts else {
        bail!("--disagg: expected prefill=N,decode=M, got `{text}`");
    };
    Ok((prefill, decode))
}

/// Bits per second of `400Gbit/s` or `50GB/s`; none for what is no bandwidth.
fn bandwidth(text: &str) -> Option<Result<u64>> {
    let amount = text.strip_suffix("/s")?;
    let bits = match amount.strip_suffix("bit") {
        Some(number) => grammar::size(&format!("{number}B")).map(Bytes::get),
        None => grammar::size(amount).map(|size| 8.0 * size.get()),
    };
    let bits = bits.map_err(|_| {
        anyhow!("--kv-transfer: expected a bandwidth such as 400Gbit/s or 50GB/s, got `{text}`")
    });
    Some(bits.and_then(|bits| {
        if !(1.0 <= bits && bits <= 1e18) {
            bail!("--kv-transfer: must be from 1 bit/s to 1e18 bit/s, got `{text}`");
        }
        // From 1 to 1e18, so that it is in range.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bits = bits.round() as u64;
        Ok(bits)
    }))
}

/// KV bytes of one token on all GPUs of a replica together: given, or the model's.
fn bytes_per_token(arguments: &Arguments, setting: &Setting) -> Result<u64> {
    if let Some(bytes) = arguments.kv_bytes_per_token {
        return Ok(bytes);
    }
    let Some(machine) = machine(&setting.step_time) else {
        bail!(
            "--kv-transfer: a bandwidth needs the KV bytes of a token: add --kv-bytes-per-token, or \
             give a time such as 3us/token"
        );
    };
    let kv = setting.engine.kv_of(&machine).map_err(|e| anyhow!("--kv-transfer: {e}"))?;
    let each = kv.bytes_per_token().get();
    if kv.bytes(1)?.get() > each {
        bail!(
            "--kv-transfer: the layers of {} with a sliding window do not take the same for every \
             token: add --kv-bytes-per-token, or give a time such as 3us/token",
            machine.model.name
        );
    }
    // Far below 2^53, and what is not whole is rounded up.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = each.ceil() as u64;
    Ok(bytes)
}

/// How long KV moves under a setting.
fn transfer(
    arguments: &Arguments,
    setting: &Setting,
    text: &str,
    latency: Ticks,
) -> Result<KvTransfer> {
    if let Some(bits) = bandwidth(text) {
        let bytes = bytes_per_token(arguments, setting)?;
        return KvTransfer::at_bandwidth(bytes, bits?, latency).context("--kv-transfer");
    }
    if !text.ends_with("/token") {
        bail!(
            "--kv-transfer: expected a bandwidth such as 400Gbit/s or a time such as 3us/token, \
             got `{text}`"
        );
    }
    KvTransfer::new(policy::swap_time(text).map_err(|e| anyhow!("--kv-transfer: {e}"))?, latency)
        .context("--kv-transfer")
}

/// The pools that the flags name for a setting; empty without any.
pub fn of(arguments: &Arguments, setting: &Setting) -> Result<Vec<Pools>> {
    let given = &arguments.kv_transfer_latency;
    let mut latencies = parsed("--kv-transfer-latency", given, |t| t.trim().parse::<Ticks>())?;
    if latencies.is_empty() {
        latencies.push(Ticks::ZERO);
    }
    let mut transfers = Vec::new();
    for speed in &arguments.kv_transfer {
        for latency in &latencies {
            transfers.push(transfer(arguments, setting, speed.trim(), *latency)?);
        }
    }
    let mut all = Vec::new();
    for text in &arguments.disagg {
        let (prefill, decode) = counts(text)?;
        all.extend(transfers.iter().map(|&transfer| Pools { prefill, decode, transfer }));
    }
    Ok(all)
}

impl Pools {
    /// As the flag has it.
    pub fn flag(&self) -> String {
        format!("prefill={},decode={}", self.prefill, self.decode)
    }

    /// The servers of each pool, out of those of both.
    pub fn split<'a>(&self, each: &'a [RunStatistics]) -> [&'a [RunStatistics]; 2] {
        let first = usize::try_from(self.prefill).unwrap_or(usize::MAX).min(each.len());
        let (prefill, decode) = each.split_at(first);
        [prefill, decode]
    }

    /// That the links of the smaller pool would have to carry more than they can in a run of this
    /// length: nothing slows transfers for each other here.
    pub fn overfull_links(&self, moved: Option<&Moved>, run: Ticks) -> Option<String> {
        let moved = moved?;
        let fixed = moved.requests as f64 * self.transfer.latency().seconds();
        let smaller = usize::from(self.decode < self.prefill);
        let (n, name) = ([self.prefill, self.decode][smaller], NAMES[smaller]);
        let share = (moved.sum_s - fixed) / (run.seconds() * n as f64);
        (1.0 < share && share.is_finite()).then(|| {
            format!(
                "KV moves for {} of the time of {}: transfers do not slow each other down here, and no \
                 link carries so much",
                format::percent(share),
                format::things(n, &format!("{name} replica"))
            )
        })
    }

    /// What a server of each pool has to bear.
    pub fn per_server(&self, mut loads: [OfferedLoad; 2]) -> [OfferedLoad; 2] {
        for (load, n) in loads.iter_mut().zip([self.prefill, self.decode]) {
            load.arrival_rate = load.arrival_rate.map(|rate| rate / n as f64);
        }
        loads
    }
}

/// The load of the pool that is nearer to saturation.
pub fn fuller(loads: &[OfferedLoad; 2]) -> OfferedLoad {
    let share = |load: &OfferedLoad| load.relative().or(load.rho()).unwrap_or(0.0);
    let [prefill, decode] = *loads;
    if share(&prefill) < share(&decode) { decode } else { prefill }
}

/// Transfers of a run that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    requests: u64,
    sum_s: f64,
    max: Ticks,
}

impl Moved {
    /// Those of a run; none if there were none.
    pub fn of(result: &RunResult<'_>) -> Option<Self> {
        let mut moved = Self::default();
        result.details().iter().for_each(|d| moved.count(d.transfer));
        moved.any()
    }

    /// Counts the transfer of a request, if it had one that arrived.
    pub fn count(&mut self, transfer: Option<Transfer>) {
        if let Some(time) = transfer.and_then(|t| t.to?.since(t.from)) {
            self.requests += 1;
            self.sum_s += time.seconds();
            self.max = self.max.max(time);
        }
    }

    /// These, unless there are none.
    pub fn any(self) -> Option<Self> {
        (0 < self.requests).then_some(self)
    }

    fn mean_s(&self) -> f64 {
        self.sum_s / self.requests as f64
    }
}

/// The pools with their servers, for a reader: label and line.
pub fn lines(pools: &Pools, run: &Simulated) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, each) in NAMES.into_iter().zip(pools.split(&run.each)) {
        let its = served::replica_lines(run.setting.router, each);
        let label = |i| if i == 0 { format!("{name} pool") } else { String::new() };
        lines.extend(its.into_iter().enumerate().map(|(i, line)| (label(i), line)));
    }
    let moved = run.moved.map_or("nothing moved".to_owned(), |moved| {
        format!(
            "{}: mean {}, at most {}",
            format::things(moved.requests, "request"),
            report_text::time(moved.mean_s()),
            report_text::time(moved.max.seconds())
        )
    });
    lines.push(("KV transfer".to_owned(), format!("{}; {moved}", pools.transfer)));
    lines
}

/// The pools as data.
pub fn json(pools: &Pools, run: &Simulated, load: impl Fn(&OfferedLoad) -> Value) -> Value {
    let mut rows =
        NAMES.into_iter().zip(pools.split(&run.each)).enumerate().map(|(i, (_, each))| {
            let mut pool = served::replicas_json(run.setting.router, each);
            pool["load"] = json!(run.pool_loads.as_ref().map(|loads| load(&loads[i])));
            pool
        });
    json!({
        "prefill": rows.next(),
        "decode": rows.next(),
        "kv_transfer_per_token_s": pools.transfer.per_token().seconds(),
        "kv_transfer_latency_s": pools.transfer.latency().seconds(),
        "kv_transfers": run.moved.map_or(0, |moved| moved.requests),
        "kv_transfer_mean_s": run.moved.map(|moved| moved.mean_s()),
        "kv_transfer_max_s": run.moved.map(|moved| moved.max.seconds()),
    })
}
