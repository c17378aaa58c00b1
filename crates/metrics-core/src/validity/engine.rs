//! Findings that need the engine's metrics or log, or a column that names the replica.

use crate::format::{percent, significant, value};
use crate::metric::{Source, text};

use super::evidence::{Facts, Server, ServerSample};
use super::{Check, Command, Finding, Level, Subject, seconds};

/// A prefix hit rate without the look-ups of requests that were preempted before.
///
/// ```text
/// first_hit_rate = (hit - refill_hit) / (lookup - refill_lookup)
/// ```
///
/// All in tokens. `None` if nothing is left to look up, or if a part is larger than its whole.
#[must_use]
pub fn first_hit_rate(hit: u64, lookup: u64, refill_hit: u64, refill_lookup: u64) -> Option<f64> {
    let hits = hit.checked_sub(refill_hit)?;
    let lookups = lookup.checked_sub(refill_lookup).filter(|&n| 0 < n)?;
    (hits <= lookups).then(|| hits as f64 / lookups as f64)
}

/// W18: preempted requests find their own blocks again, and the hit rate counts that.
#[must_use]
pub fn inflated_hit_rate(s: &Server) -> Option<Finding> {
    let (hit, lookup) = s.hit_tokens.zip(s.lookup_tokens).filter(|(_, n)| 0 < *n)?;
    let preempted = s.preemptions.is_some_and(|n| 0 < n) && s.kv_peak.is_some_and(|k| 0.95 < k);
    let stated = hit as f64 / lookup as f64;
    let known = s.refill_hit_tokens.zip(s.refill_lookup_tokens);
    let first = known.and_then(|(h, l)| first_hit_rate(hit, lookup, h, l));
    if first.map_or(!preempted || hit == 0, |f| stated <= f) {
        return None;
    }
    let says = match first {
        Some(f) => format!(
            "hit rate {} counts the blocks of preempted requests; without them it is {}",
            percent(stated),
            percent(f)
        ),
        None => format!(
            "hit rate {} under {} preemptions with a full KV cache: part of it are a request's own blocks, and the file does not say how many",
            percent(stated),
            s.preemptions.unwrap_or(0)
        ),
    };
    Some(W18.finding(Level::Warn, says).number("hit_rate", stated).maybe("first_hit_rate", first))
}

/// See [`inflated_hit_rate`].
pub const W18: Check = Check {
    id: "W18",
    name: "hit-rate-inflated",
    title: text("preemption inflates the hit rate", "抢占虚增命中率"),
    rule: text(
        "preemptions > 0 and KV utilization > 95 % with hits; the look-ups of requests that were preempted before are subtracted where they are known",
        "抢占 > 0 且 KV 利用率 > 95 % 而有命中；已知时扣除被抢占请求的再次查找",
    ),
    why: text(
        "A preempted request looks up its own blocks when it is prefilled again: 30 % has been 0.2 %.",
        "被抢占的请求重新 prefill 时查到的是自己的块：曾有 30 % 实为 0.2 %。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::HitRate],
    advice: text(
        "count look-ups of first prefills only, and stop the preemptions first",
        "只计首次 prefill 的查找，并先消除抢占",
    ),
    source: Source { work: "vllm PR#25787; vllm#25780", section: "metric fault 10" },
    raised_by: &[Command::Diagnose],
};

/// Preemptions per second from log lines: running falls and waiting rises by as much.
///
/// ```text
/// rate = (running[0] - running[last]) / (at[last] - at[0])
/// ```
///
/// `None` unless running falls and waiting rises by the same count over the samples, which are at
/// least 3 in order of time.
#[must_use]
pub fn preemptions_from_log(samples: &[ServerSample]) -> Option<f64> {
    let (first, last) = samples.first().zip(samples.last())?;
    let fell = first.running.checked_sub(last.running)?;
    let rose = last.waiting.checked_sub(first.waiting)?;
    let time = last.at_s - first.at_s;
    let falls = samples.windows(2).all(|w| matches!(w, [a, b] if b.running <= a.running));
    (3 <= samples.len() && 0 < fell && fell == rose && falls && 0.0 < time)
        .then(|| fell as f64 / time)
}

/// W19: preemptions eat the work.
#[must_use]
pub fn preemption_storm(s: &Server) -> Option<Finding> {
    let mut parts = Vec::new();
    let share = s
        .preemptions
        .zip(s.completions)
        .filter(|(_, done)| 0 < *done)
        .map(|(p, done)| p as f64 / done as f64)
        .filter(|x| 0.01 < *x);
    if let Some(share) = share {
        parts.push(format!("{} preemptions for each completed request", significant(share, 3)));
    }
    let full = s.samples.iter().all(|x| x.kv.is_none_or(|kv| 0.95 < kv));
    let log = preemptions_from_log(&s.samples).filter(|_| full);
    if let Some(rate) = log {
        parts.push(format!(
            "running falls and waiting rises by as much over {} samples: {} preemptions a second",
            s.samples.len(),
            significant(rate, 3)
        ));
    }
    let again = s
        .recomputed_tokens
        .zip(s.prompt_tokens)
        .filter(|(_, all)| 0 < *all)
        .map(|(r, all)| r as f64 / all as f64)
        .filter(|x| 0.1 < *x);
    if let Some(share) = again {
        parts.push(format!("{} of the prompt tokens were recomputed", percent(share)));
    }
    if parts.is_empty() {
        return None;
    }
    Some(
        W19.finding(Level::Warn, parts.join("; "))
            .maybe("preemptions_per_completion", share)
            .maybe("preemptions_per_s", log)
            .maybe("recomputed_share", again),
    )
}

/// See [`preemption_storm`].
pub const W19: Check = Check {
    id: "W19",
    name: "preemption-storm",
    title: text("a preemption storm", "抢占风暴"),
    rule: text(
        "preemptions > 1 % of completions; or over at least 3 log lines running falls and waiting rises by the same count, with KV utilization > 95 % where it is known; or recomputed > 10 % of the prompt tokens",
        "抢占 > 完成数的 1 %；或至少 3 行日志中 running 减少与 waiting 增加相等，且已知的 KV 利用率 > 95 %；或重算 > prompt token 的 10 %",
    ),
    why: text(
        "Each preemption throws work away and does it again, so load beyond the KV cache lowers throughput.",
        "每次抢占都丢弃已做的工作再做一遍，因此超出 KV 缓存的负载反而降低吞吐。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Throughput, Subject::Tpot, Subject::Itl, Subject::E2e],
    advice: text(
        "lower max_num_seqs to what the KV cache holds, or give it more memory",
        "把 max_num_seqs 降到 KV 缓存可容纳的数量，或增加其显存",
    ),
    source: Source { work: "vllm#6737; vllm PR#44594; TensorRT-LLM#16827", section: "case K070" },
    raised_by: &[Command::Diagnose],
};

/// W20: the concurrency that an engine prints at its start is for the longest requests only.
///
/// `pool_tokens` is the KV cache, `max_model_len` the longest request, `mean_tokens` what a request
/// occupies on average.
#[must_use]
pub fn printed_concurrency(
    pool_tokens: u64,
    max_model_len: u64,
    mean_tokens: f64,
) -> Option<Finding> {
    if max_model_len == 0 || !(0.0 < mean_tokens && mean_tokens.is_finite()) {
        return None;
    }
    let printed = pool_tokens as f64 / max_model_len as f64;
    let real = pool_tokens as f64 / mean_tokens;
    if (real / printed - 1.0).abs() < 0.1 {
        return None;
    }
    let says = format!(
        "the printed maximum concurrency {} is for requests of {max_model_len} tokens; at {} tokens on average {} fit",
        significant(printed, 3),
        value(mean_tokens.round()),
        significant(real, 3)
    );
    Some(
        W20.finding(Level::Note, says)
            .number("printed_concurrency", printed)
            .number("requests_that_fit", real),
    )
}

/// See [`printed_concurrency`].
pub const W20: Check = Check {
    id: "W20",
    name: "start-up-concurrency",
    title: text(
        "the printed concurrency is for the longest requests",
        "启动时打印的并发按最长请求计",
    ),
    rule: text(
        "pool / max_model_len differs by a tenth from pool / mean tokens that a request occupies",
        "缓存池 / max_model_len 与 缓存池 / 请求平均占用 token 数相差一成以上",
    ),
    why: text(
        "The line `Maximum concurrency` assumes that every request is as long as the model allows.",
        "`Maximum concurrency` 一行假定每个请求都与模型允许的一样长。",
    ),
    levels: &[Level::Note],
    affects: &[Subject::Capacity],
    advice: text("divide the pool by the mean occupancy", "用缓存池除以平均占用"),
    source: Source { work: "vllm#8031; doubleword.ai", section: "case K020" },
    raised_by: &[Command::Kv],
};

/// W21: the batch limit and what wants to be in the batch do not fit.
///
/// `in_flight` is the mean number in the system, `fits` how many requests the KV cache holds.
#[must_use]
pub fn batch_cap(max_num_seqs: u64, in_flight: f64, fits: Option<f64>) -> Option<Finding> {
    if let Some(fits) = fits.filter(|f| *f < max_num_seqs as f64) {
        let says = format!(
            "max_num_seqs {max_num_seqs} is above the {} requests that the KV cache holds: it never binds, preemption will",
            significant(fits, 3)
        );
        return Some(W21.finding(Level::Warn, says).number("requests_that_fit", fits));
    }
    if in_flight < max_num_seqs as f64 {
        return None;
    }
    let says = format!(
        "{} in the system against max_num_seqs {max_num_seqs}: the queue is of the limit's making",
        significant(in_flight, 3)
    );
    Some(W21.finding(Level::Warn, says).number("in_flight_mean", in_flight))
}

/// See [`batch_cap`].
pub const W21: Check = Check {
    id: "W21",
    name: "batch-cap",
    title: text("the batch limit does not fit the concurrency", "批次上限与并发不匹配"),
    rule: text(
        "max_num_seqs ≤ mean in flight: the queue is self-made; max_num_seqs > requests that the KV cache holds: the limit never binds",
        "max_num_seqs ≤ 平均在途数：排队是自找的；max_num_seqs > KV 缓存可容纳的请求数：上限从不起作用",
    ),
    why: text("TTFT then measures a setting, not the machine.", "此时 TTFT 量的是设置而不是机器。"),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::Capacity],
    advice: text(
        "set max_num_seqs between the concurrency and what the KV cache holds",
        "把 max_num_seqs 设在并发与 KV 缓存容量之间",
    ),
    source: Source { work: "TGI#1221; vllm#17598; vllm PR#44594", section: "" },
    raised_by: &[],
};

/// W22: requests wait although the KV cache is half empty.
///
/// `grows` tells whether the number waiting keeps growing.
#[must_use]
pub fn kv_blind(grows: bool, kv_utilization: f64) -> Option<Finding> {
    if !grows || !(0.0..0.5).contains(&kv_utilization) {
        return None;
    }
    let says = format!(
        "waiting grows at a KV utilization of {}: prefill or compute is the limit, and alerts on KV stay silent",
        percent(kv_utilization)
    );
    Some(W22.finding(Level::Warn, says).number("kv_utilization", kv_utilization))
}

/// See [`kv_blind`].
pub const W22: Check = Check {
    id: "W22",
    name: "kv-blind-saturation",
    title: text("saturated with an empty KV cache", "KV 缓存空闲却已饱和"),
    rule: text(
        "waiting keeps growing while KV utilization < 50 %",
        "KV 利用率 < 50 % 而等待数持续增长",
    ),
    why: text(
        "Long prompts saturate the prefill long before they fill the cache.",
        "长 prompt 远在填满缓存之前就使 prefill 饱和。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Alerts],
    advice: text("alert and scale on waiting requests", "按等待请求数告警与扩容"),
    source: Source { work: "llm-d-autoscaling#662; llm-d-autoscaling#1500", section: "case K035" },
    raised_by: &[],
};

/// W23: demand is measured where it has already been served.
///
/// `waiting` requests stood in the queue while the demand was taken from completions; `demand`
/// that reaches its `target` cannot ask for more.
#[must_use]
pub fn demand_at_output(
    from_completions: bool,
    waiting: f64,
    demand: f64,
    cap: Option<f64>,
) -> Option<Finding> {
    let says = if from_completions && 0.0 < waiting {
        format!(
            "demand is taken from {} completions a second while {} wait: it cannot exceed capacity",
            significant(demand, 3),
            value(waiting)
        )
    } else {
        let cap = cap.filter(|c| *c <= demand)?;
        format!(
            "demand {} is at its own limit {}: it cannot ask for more",
            significant(demand, 3),
            significant(cap, 3)
        )
    };
    Some(W23.finding(Level::Warn, says).number("demand", demand).number("waiting", waiting))
}

/// See [`demand_at_output`].
pub const W23: Check = Check {
    id: "W23",
    name: "demand-at-output",
    title: text("demand is measured at the output", "需求在出口处测量"),
    rule: text(
        "the arrival metric is completions while requests wait, or the metric is capped at its own target",
        "有请求等待时以完成数作为到达指标，或指标被自身目标封顶",
    ),
    why: text(
        "Under overload completions equal capacity, so the autoscaler sees a perfect fit.",
        "过载时完成数等于容量，自动扩缩器便以为刚好够用。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Alerts, Subject::Capacity],
    advice: text("measure arrivals before the queue", "在队列之前测量到达"),
    source: Source { work: "dynamo PR#8861; dynamo#10528; ray#24793", section: "" },
    raised_by: &[],
};

/// W27: client and server do not measure the same TTFT.
#[must_use]
pub fn client_against_server(client_p50_s: f64, server_p50_s: f64) -> Option<Finding> {
    let apart = client_p50_s - server_p50_s;
    if server_p50_s <= 0.0
        || !apart.is_finite()
        || apart.abs() <= 0.05
        || apart.abs() <= 0.2 * server_p50_s
    {
        return None;
    }
    let where_is = if 0.0 < apart {
        "the rest is in the client, the network or before the engine"
    } else {
        "the client starts its clock late, or answers from elsewhere"
    };
    let says = format!(
        "median TTFT is {} at the client and {} at the server: {where_is}",
        seconds(client_p50_s),
        seconds(server_p50_s)
    );
    Some(
        W27.finding(Level::Warn, says)
            .number("client_ttft_p50_s", client_p50_s)
            .number("server_ttft_p50_s", server_p50_s),
    )
}

/// See [`client_against_server`].
pub const W27: Check = Check {
    id: "W27",
    name: "client-disagrees-with-server",
    title: text("client and server disagree", "客户端与服务端不一致"),
    rule: text(
        "|client − server median TTFT| > 20 % of the server's and > 50 ms",
        "|客户端 − 服务端 TTFT 中位数| > 服务端的 20 % 且 > 50 ms",
    ),
    why: text(
        "A busy client or a proxy adds what no change of the server takes away.",
        "繁忙的客户端或代理所增加的时间，改服务器也去不掉。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::E2e],
    advice: text(
        "measure on the server's machine, with more client processes",
        "在服务器本机上、用更多客户端进程测量",
    ),
    source: Source { work: "vllm#39963; aiperf#1424", section: "" },
    raised_by: &[Command::Diagnose],
};

/// W32: one replica has far more than its share.
///
/// `requests` holds how many requests each replica had, `in_system` the mean number that it had at a
/// time, in the same order, or nothing where that is not known; `hit_rate` is the prefix hit rate if
/// known.
///
/// A router that breaks ties by order fills the first of several idle replicas, and one that balances
/// work gives another number to each: the replica with the most requests is hot only if it has at
/// least one at a time on average, and that more than its share too.
#[must_use]
pub fn hot_replica(requests: &[u64], in_system: &[f64], hit_rate: Option<f64>) -> Option<Finding> {
    let total: u64 = requests.iter().sum();
    let (fullest, &most) = requests.iter().enumerate().max_by_key(|(_, n)| **n)?;
    if requests.len() < 2 || total == 0 {
        return None;
    }
    let mean = total as f64 / requests.len() as f64;
    let ratio = most as f64 / mean;
    // By chance alone the fullest of k replicas is a few deviations above the mean.
    let chance = 1.0 + 3.0 / mean.sqrt();
    if ratio <= 1.3f64.max(chance) {
        return None;
    }
    let at_a_time = in_system.get(fullest).copied();
    let usual = crate::summary::sum(in_system.iter().copied()) / in_system.len() as f64;
    if at_a_time.is_some_and(|own| own < 1.0 || own <= 1.3 * usual) {
        return None;
    }
    let hits = hit_rate.map_or(String::new(), |h| format!(", at a hit rate of {}", percent(h)));
    let there = at_a_time.map_or(String::new(), |own| {
        format!(
            ", and {} at a time where the mean is {}",
            significant(own, 3),
            significant(usual, 3)
        )
    });
    let says = format!(
        "the fullest of {} replicas has {most} of {total} requests, {} times the mean{there}{hits}",
        requests.len(),
        significant(ratio, 3)
    );
    Some(
        W32.finding(Level::Warn, says)
            .number("max_over_mean", ratio)
            .maybe("in_system", at_a_time)
            .maybe("in_system_mean", at_a_time.map(|_| usual))
            .maybe("hit_rate", hit_rate),
    )
}

/// See [`hot_replica`].
pub const W32: Check = Check {
    id: "W32",
    name: "hot-replica",
    title: text("a hot replica", "副本过热"),
    rule: text(
        "most over mean requests of the replicas > 1.3 and beyond chance (1 + 3 / √mean); where it is known (sim), that replica also has at least one request at a time on average and more than 1.3 times the mean of the replicas: hit rate and imbalance are shown together",
        "副本最多请求数 / 平均请求数 > 1.3 且超出偶然（1 + 3 / √均值）；若已知（sim），该副本平均同时至少有一个请求，且超过各副本均值的 1.3 倍：命中率与不均衡一并显示",
    ),
    why: text(
        "Routing by prefix raises the hit rate and sends the popular prefixes to one replica, whose queue undoes the gain. Where every replica is idle most of the time an uneven share harms nobody: ties go to the first one.",
        "按前缀路由提高命中率，却把热门前缀送往同一副本，其队列抵消了收益。各副本大多空闲时，份额不均对谁都无害：平局归第一个副本。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::E2e, Subject::Throughput],
    advice: text("bound the imbalance that the router accepts", "限制路由器允许的不均衡"),
    source: Source { work: "sglang#21199; aibrix#842", section: "case K049" },
    raised_by: &[Command::Report, Command::Sim, Command::Diagnose],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(inflated_hit_rate(&facts.server));
    found.extend(preemption_storm(&facts.server));
    if let (Some(client), Some(server)) = (facts.ttft.p50, facts.server.ttft_p50_s) {
        found.extend(client_against_server(client, server));
    }
    let p = &facts.prompts;
    let cached = p.cached.filter(|_| 0.0 < p.tokens).map(|c| c / p.tokens);
    found.extend(hot_replica(&facts.replicas, &facts.replicas_in_system, cached));
    found
}
