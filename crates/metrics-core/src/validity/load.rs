//! Findings about the load: was it the load that the run says it was?

use crate::format::{count, percent, rate, significant};
use crate::metric::{Source, text};
use crate::steady::Steady;

use super::evidence::{Growth, Load, Sending, Spread};
use super::{Check, Command, Facts, Finding, Level, Subject, seconds};

/// Requests in flight by Little's law, from the figures that every summary has.
///
/// ```text
/// little = completed / window_s * e2e_mean_s
/// ```
///
/// `None` unless the window is above zero and the value is a number.
///
/// Source: Little 1961.
#[must_use]
pub fn little(completed: u64, window_s: f64, e2e_mean_s: f64) -> Option<f64> {
    let value = completed as f64 / window_s * e2e_mean_s;
    (0.0 < window_s && value.is_finite() && 0.0 <= value).then_some(value)
}

/// W01: a closed loop that did not have its nominal concurrency in flight.
///
/// `in_flight` is the mean over the window, `nominal` the number of clients. `missed` of
/// `finished` requests failed: how long they were in flight is unknown, so the mean is raised as
/// if they had taken as long as the others before it counts as too low.
#[must_use]
pub fn concurrency_not_reached(
    in_flight: f64,
    nominal: u64,
    missed: u64,
    finished: u64,
) -> Option<Finding> {
    if nominal == 0 || !in_flight.is_finite() || in_flight < 0.0 || finished <= missed {
        return None;
    }
    let share = in_flight / nominal as f64;
    let at_most = share * finished as f64 / (finished - missed) as f64;
    let level = match at_most {
        s if s < 0.70 => Level::Error,
        s if s < 0.90 => Level::Warn,
        s if s < 0.97 => Level::Note,
        _ => return None,
    };
    let says = format!(
        "{} in flight on average where the client was told {nominal}: {} of it",
        rate(in_flight),
        percent(share)
    );
    Some(
        W01.finding(level, says)
            .number("in_flight_mean", in_flight)
            .number("concurrency", nominal as f64)
            .number("share", share),
    )
}

/// See [`concurrency_not_reached`].
pub const W01: Check = Check {
    id: "W01",
    name: "concurrency-not-reached",
    title: text("the nominal concurrency was not reached", "未达到名义并发"),
    rule: text(
        "closed loop: completed / window · mean E2E below 97 % of the nominal concurrency is a note, below 90 % a warning, below 70 % an error",
        "闭环：完成数 / 窗口 · 平均 E2E 低于名义并发的 97 % 为提示，低于 90 % 为警告，低于 70 % 为错误",
    ),
    why: text(
        "The figures stand for fewer users than the label says. The note begins at 97 % instead of 95 %, so that a run whose ramp and drain cost 4 % says so; failed requests are counted as if they had taken as long as the others, since their time in flight is unknown.",
        "数字对应的用户数少于标签所写。提示从 97 % 而非 95 % 起，使爬升与收尾损失 4 % 的运行也会说明；失败请求在途时间未知，按与其他请求同样长计算。",
    ),
    levels: &[Level::Note, Level::Warn, Level::Error],
    affects: &[Subject::Throughput, Subject::Concurrency],
    advice: text(
        "send at least ten times as many requests as clients, or read the steady rates",
        "请求数至少取客户端数的十倍，或改看稳态速率",
    ),
    source: Source { work: "InferenceX#1226; sglang#9585", section: "cases K008, K007" },
    raised_by: &[Command::Report],
};

/// W02: ramp and drain take so much of the window that its rates are not those of the load.
///
/// `steady` is the stretch between them, `requests_per_s` the rate over the whole window (of a
/// measured window by the shares of stays within it, as `steady` has them),
/// `completed` the number that it rests on, `clients` those of a closed loop and `longest_s` the
/// longest E2E.
#[must_use]
pub fn ramp_and_drain(
    steady: Option<&Steady>,
    requests_per_s: f64,
    completed: u64,
    clients: Option<u64>,
    longest_s: Option<f64>,
) -> Option<Finding> {
    let Some(s) = steady.filter(|s| 10.0 <= s.requests) else {
        let says = match steady {
            Some(s) if s.requests < 1.5 => {
                "one request lies between ramp and drain: too few for a steady rate".to_owned()
            }
            Some(s) => format!(
                "{} requests lie between ramp and drain: too few for a steady rate",
                count(s.requests.round())
            ),
            None => "there is no steady stretch between ramp and drain".to_owned(),
        };
        return Some(
            W02.finding(Level::Warn, says)
                .affecting(&[Subject::Throughput])
                .number("completed", completed as f64)
                .maybe("steady_requests", steady.map(|s| s.requests)),
        );
    };
    let low = 1.0 - requests_per_s / s.requests_per_s;
    let few = clients.is_some_and(|n| completed < 10 * n);
    let long = longest_s.is_some_and(|e| 0.2 * s.span_s < e);
    let short = s.share() < 0.8;
    if !(short || few || long) || low < 0.01 {
        return None;
    }
    let level = if 0.05 < low { Level::Warn } else { Level::Note };
    let says = format!(
        "ramp and drain fill {} of the run: steady rate {} req/s, over the window {} req/s, {} low",
        percent(1.0 - s.share()),
        rate(s.requests_per_s),
        rate(requests_per_s),
        percent(low)
    );
    Some(
        W02.finding(level, says)
            .number("ramp_and_drain_share", 1.0 - s.share())
            .number("steady_requests_per_s", s.requests_per_s)
            .number("requests_per_s", requests_per_s)
            .number("low_by_share", low)
            .maybe("longest_e2e_s", longest_s),
    )
}

/// W02 from a summary: without intervals the effect is only bounded, by what Little's law finds
/// missing of the nominal concurrency.
#[must_use]
pub fn ramp_and_drain_bound(in_flight: f64, completed: u64, clients: u64) -> Option<Finding> {
    let low = 1.0 - in_flight / clients as f64;
    if clients == 0 || 10 * clients <= completed || !low.is_finite() || low < 0.03 {
        return None;
    }
    let level = if 0.05 < low { Level::Warn } else { Level::Note };
    let says = format!(
        "{completed} requests of {clients} clients are fewer than ten each: ramp and drain make the rates up to {} low",
        percent(low)
    );
    Some(
        W02.finding(level, says)
            .number("completed", completed as f64)
            .number("concurrency", clients as f64)
            .number("low_by_at_most_share", low),
    )
}

/// See [`ramp_and_drain`].
pub const W02: Check = Check {
    id: "W02",
    name: "ramp-and-drain",
    title: text("ramp and drain are in the window", "窗口含爬升与收尾"),
    rule: text(
        "fewer than 80 % of the run are steady, or completed < 10 · clients, or the longest E2E > 20 % of the run; and the rate over the window is 1 % (note) or 5 % (warning) below the steady one; a warning too if fewer than 10 requests are steady",
        "稳态不足运行的 80 %，或完成数 < 10 · 客户端数，或最长 E2E > 运行的 20 %；且窗口速率比稳态速率低 1 %（提示）或 5 %（警告）；稳态内不足 10 个请求也为警告",
    ),
    why: text(
        "Steady begins when 90 % of the usual number are in flight (the median over time, in a closed loop at least the nominal concurrency) and ends at the last such instant, in an open loop at the last send. The share of the peak that is commonly taken fails in an open loop, where the peak is a chance maximum. The level follows the effect: where ramp and drain cost nothing, as with answers of one length, nothing is said.",
        "稳态从在途数首次达到常见值的 90 % 开始（常见值取时间中位数，闭环至少取名义并发），到最后一次达到为止，开环则到最后一次发送为止。常用的峰值份额在开环中不成立，因为那里的峰值是偶然的最大值。级别取决于影响大小：若爬升与收尾没有代价（例如回答等长），则不作声。",
    ),
    levels: &[Level::Note, Level::Warn],
    affects: &[Subject::Throughput],
    advice: text("read the steady rates, or run longer", "看稳态速率，或延长运行"),
    source: Source { work: "guidellm#93; sglang PR#30918", section: "" },
    raised_by: &[Command::Report, Command::Sim],
};

/// W03: the client could not send what it was told to, so that waits are missing or the load is
/// not the one on the label.
///
/// Three tests: requests sent late by more than a gap and a tenth of TTFT; fewer sent than told,
/// beyond chance; more waiting implied by the achieved rate than any TTFT shows; and a concurrency
/// limit that held an open loop back.
///
/// `requests_per_s` counts all that were sent over the window: completed, failed and cancelled.
#[must_use]
pub fn client_limited(
    load: &Load,
    sending: &Sending,
    requests_per_s: Option<f64>,
    ttft: &Spread,
) -> Option<Finding> {
    let offered = load.offered_per_s().filter(|r| 0.0 < *r && r.is_finite())?;
    let mut found: Vec<(Level, String, &[Subject], &'static str, f64)> = Vec::new();
    let all: &[Subject] = &[Subject::Ttft, Subject::E2e, Subject::Goodput];
    if let (Some(delay), Some(p50)) = (sending.delay_p99_s, ttft.p50)
        && (1.0 / offered).max(0.1 * p50) < delay
    {
        let which = if sending.delay_in_ttft { "it is in TTFT" } else { "it is in no latency" };
        let says = format!("p99 of the time sent late is {}, and {which}", seconds(delay));
        found.push((Level::Warn, says, all, "send_delay_p99_s", delay));
    }
    if let Some(achieved) = sending.per_s.filter(|_| 20 <= sending.n) {
        let short = 1.0 - achieved / offered;
        // The rate of n gaps strays by 1 / sqrt(shape · n) of itself.
        let shape = load.burstiness.filter(|b| 0.0 < *b).unwrap_or(1.0);
        let chance = 3.0 / (shape * sending.n as f64).sqrt();
        if 0.05 < short && chance < short {
            let says = format!(
                "{} req/s were sent where {} were asked for: {} short",
                rate(achieved),
                rate(offered),
                percent(short)
            );
            let level = if 0.3 < short { Level::Error } else { Level::Warn };
            let affects: &[Subject] =
                &[Subject::Throughput, Subject::Ttft, Subject::E2e, Subject::Goodput];
            found.push((level, says, affects, "send_shortfall_share", short));
        }
    } else if let (Some(x), Some(longest)) = (requests_per_s, ttft.max.or(ttft.p99))
        && let Some(span) = sent_for(load, offered)
        && 0.0 < x
    {
        let wait = (offered - x) * span / x;
        if 2.0 * longest < wait && x < 0.95 * offered {
            let says = format!(
                "{} req/s of {} offered were sent and ended over {}: that is a wait of {}, but no TTFT is above {}; the client held requests back",
                rate(x),
                rate(offered),
                seconds(span),
                seconds(wait),
                seconds(longest)
            );
            let level = if x < 0.7 * offered { Level::Error } else { Level::Warn };
            found.push((level, says, all, "implied_wait_s", wait));
        }
    }
    if let (Some(share), Some(cap)) = (sending.at_cap_share, load.concurrency)
        && 0.05 < share
    {
        let says = format!(
            "the limit of {cap} in flight held sending back for {} of the run: no open loop",
            percent(share)
        );
        found.push((Level::Warn, says, all, "at_cap_share", share));
    }
    let level = found.iter().map(|f| f.0).max()?;
    let says: Vec<&str> = found.iter().map(|f| f.1.as_str()).collect();
    let affects: Vec<Subject> = found.iter().flat_map(|f| f.2.iter().copied()).collect();
    let finding =
        W03.finding(level, says.join("; ")).affecting(&affects).number("offered_per_s", offered);
    Some(found.iter().fold(finding, |f, (_, _, _, name, value)| f.number(name, *value)))
}

/// For how long an open loop was to send, in seconds.
fn sent_for(load: &Load, offered: f64) -> Option<f64> {
    load.duration_s.or_else(|| load.number.map(|n| n as f64 / offered))
}

/// See [`client_limited`].
pub const W03: Check = Check {
    id: "W03",
    name: "client-limited",
    title: text(
        "the client limited the load (coordinated omission)",
        "负载受客户端限制（协同遗漏）",
    ),
    rule: text(
        "open loop: p99 of the time sent late > max(1 / rate, 10 % of the median TTFT); or sent at least 5 % and three standard errors too slowly; or, without send times, the implied wait (offered − achieved) · time / achieved > 2 · longest TTFT; or at the concurrency limit for more than 5 % of the run. An error from 30 % short",
        "开环：迟发时间的 p99 > max(1 / 速率, TTFT 中位数的 10 %)；或发送速率偏低至少 5 % 且超过三倍标准误；或无发送时刻时隐含等待（提供 − 达到）· 时间 / 达到 > 2 · 最长 TTFT；或触及并发上限超过运行的 5 %。偏低 30 % 起为错误",
    ),
    why: text(
        "Requests that were not sent in time have no latency, so the slow moments are the ones left out. Without a longest TTFT in the file its p99 is taken.",
        "未按时发出的请求没有时延，于是恰好漏掉了慢的时刻。文件没有最长 TTFT 时取其 p99。",
    ),
    levels: &[Level::Warn, Level::Error],
    affects: &[Subject::Throughput, Subject::Ttft, Subject::E2e, Subject::Goodput],
    advice: text(
        "use more client processes, drop the concurrency limit, and count latency from the instant a request was due",
        "增加客户端进程，去掉并发上限，并从请求应发出的时刻计时延",
    ),
    source: Source {
        work: "llm-d-autoscaling PR#1025; vllm#54101; vllm#21104",
        section: "cases K059, K041, metric fault 8",
    },
    raised_by: &[Command::Report],
};

/// W04: the run has no steady state, so that every latency measures how long it ran.
///
/// An open loop that is overloaded: TTFT and the number in flight both grow as long as requests
/// come. A burst, where all requests come at once, is the extreme of it.
#[must_use]
pub fn no_steady_state(facts: &Facts) -> Option<Finding> {
    let growing =
        |g: &Option<Growth>| g.as_ref().filter(|g| g.grows && 0.5 * g.median < g.rise).copied();
    if facts.load.clients().is_some() {
        return None;
    }
    if let (Some(ttft), Some(flight)) =
        (growing(&facts.ttft_growth), growing(&facts.in_flight_growth))
    {
        let says = format!(
            "TTFT grows by {} and requests in flight by {} each second while requests come: latency depends on run length",
            seconds(ttft.per_s),
            significant(flight.per_s, 3)
        );
        return Some(
            W04.finding(Level::Warn, says)
                .number("ttft_growth_s_per_s", ttft.per_s)
                .number("in_flight_growth_per_s", flight.per_s)
                .number("ttft_growth_p_value", ttft.p_value)
                .number("in_flight_growth_p_value", flight.p_value),
        );
    }
    let completed = facts.completed?;
    let finished = completed + facts.missed.unwrap_or(0);
    if let (Some(offered), Some(x), Some(ttft), Some(window)) =
        (facts.load.offered_per_s(), facts.requests_per_s, facts.ttft.mean, facts.window_s)
        && facts.ttft_growth.is_none()
        && 0 < completed
    {
        let x = x * finished as f64 / completed as f64;
        let arrives = finished as f64 / offered;
        let drain = window - arrives;
        // Of a drain that is mostly decoding, TTFT is a small part; of a backlog it is the half.
        if x < 0.97 * offered && 0.0 < drain && 0.3 * drain < ttft {
            let grows = 2.0 * ttft / window;
            let says = format!(
                "{} req/s of {} offered were finished, and the mean TTFT of {} is a backlog: latency depends on run length, by about {} for each second",
                rate(x),
                rate(offered),
                seconds(ttft),
                seconds(grows)
            );
            return Some(
                W04.finding(Level::Warn, says)
                    .number("offered_per_s", offered)
                    .number("finished_per_s", x)
                    .number("drain_s", drain)
                    .number("ttft_growth_s_per_s", grows),
            );
        }
    }
    // All at once: nobody came while others were served.
    let sent = facts.sending;
    if let (Some(span), Some(p50)) = (sent.span_s, facts.ttft.p50)
        && facts.load.offered_per_s().is_none()
        && 20 <= sent.n
        && span < 0.1 * p50
    {
        let says = format!(
            "{} requests were sent within {}: TTFT is a place in that queue and depends on their number",
            sent.n,
            seconds(span)
        );
        return Some(
            W04.finding(Level::Warn, says)
                .number("sent", sent.n as f64)
                .number("sent_within_s", span),
        );
    }
    None
}

/// W04 of a simulation, which knows its load: more arrives than can be completed.
///
/// `load` is the arrival rate over the rate that is completed while a queue is never empty. It is
/// for a queue that nothing bounds: who is refused or gives up keeps it short.
#[must_use]
pub fn overloaded(load: f64) -> Option<Finding> {
    if !(1.0 <= load && load.is_finite()) {
        return None;
    }
    let says = format!(
        "requests arrive at {} of the rate that can be completed: the queue grows as long as they come, and latency depends on run length",
        percent(load)
    );
    Some(W04.finding(Level::Warn, says).number("load", load))
}

/// See [`no_steady_state`].
pub const W04: Check = Check {
    id: "W04",
    name: "no-steady-state",
    title: text("no steady state: latency depends on run length", "没有稳态：时延取决于运行时长"),
    rule: text(
        "no closed loop, and TTFT and requests in flight both keep growing over the arrivals (Theil-Sen slope above 0, Mann-Kendall p < 0.01 corrected for autocorrelation, a rise above half the median); or, from a summary, finished / offered < 0.97 and mean TTFT > 30 % of the time by which the run outlasts its arrivals; or all were sent within 10 % of the median TTFT; in a simulation, arrivals at 100 % or more of what is completed while a queue is never empty, with a queue that neither refusals nor time-outs bound",
        "非闭环，且 TTFT 与在途数在到达期间都持续增长（Theil-Sen 斜率为正，Mann-Kendall 经自相关校正的 p < 0.01，增幅超过中位数的一半）；或仅有汇总时，完成 / 提供 < 0.97 且平均 TTFT > 运行超出到达时段的时间的 30 %；或全部请求在 TTFT 中位数的 10 % 之内发出；模拟中则为到达速率不低于队列从不为空时的完成速率，且队列不受拒绝或超时限制",
    ),
    why: text(
        "Above saturation the wait grows by (rate − capacity) / capacity for every second of the run. The share completed / offered alone is not asked: in a short run the drain keeps it below 0.97 without overload. The first time in flight of a run is left out of the trend, and the trend is taken over at most 200 medians of neighbours.",
        "超过饱和后，等待每秒增长（速率 − 容量）/ 容量。不单看完成 / 提供：短运行即使未过载，收尾也会使其低于 0.97。趋势不含开头一段，且至多取 200 个相邻中位数。",
    ),
    levels: &[Level::Warn],
    affects: &[
        Subject::Ttft,
        Subject::E2e,
        Subject::Goodput,
        Subject::P90,
        Subject::P95,
        Subject::P99,
    ],
    advice: text(
        "lower the rate below the throughput reached, or report the capacity and no latency",
        "把速率降到已达吞吐以下，或只报告容量而不报时延",
    ),
    source: Source {
        work: "vllm-omni#6365; dynamo#10528; guidellm#242",
        section: "cases K043, K044",
    },
    raised_by: &[Command::Report, Command::Sim],
};

/// W05: clients of a closed loop run in step, so that TTFT is the place in a wave.
///
/// With detail per request: output lengths of one size, and TTFT repeats after as many requests as
/// there are clients. `at_lag_n` is that correlation, over `n` requests.
#[must_use]
pub fn lock_step(clients: u64, output_cv: f64, at_lag_n: f64, n: u64) -> Option<Finding> {
    let chance = 3.0 / (n as f64).sqrt();
    if clients < 2 || n < 3 * clients || 0.01 <= output_cv || at_lag_n <= 0.5f64.max(chance) {
        return None;
    }
    let says = format!(
        "answers of one length, and TTFT repeats every {clients} requests (correlation {}): TTFT is the place in a wave",
        significant(at_lag_n, 2)
    );
    Some(
        W05.finding(Level::Warn, says)
            .number("output_length_cv", output_cv)
            .number("ttft_correlation_at_lag", at_lag_n)
            .number("concurrency", clients as f64),
    )
}

/// W05 from a summary: in a wave every request spends the prefill time of the whole wave, either
/// before its first token or stalled after it, so that the longest TTFT equals the mean of both.
#[must_use]
pub fn lock_step_of_summary(
    clients: u64,
    output_cv: f64,
    output_mean: f64,
    ttft: &Spread,
    itl: &Spread,
) -> Option<Finding> {
    let (mean, longest) = ttft.mean.zip(ttft.p99)?;
    let (gap_mean, gap_p50) = itl.mean.zip(itl.p50)?;
    let stalled = (gap_mean - gap_p50) * (output_mean - 1.0);
    let wave = mean + stalled;
    let ratio = longest / wave;
    if clients < 2 || 0.01 <= output_cv || stalled <= 0.1 * mean || !(0.8 <= ratio && ratio <= 1.25)
    {
        return None;
    }
    let says = format!(
        "answers of one length from {clients} clients in step: mean TTFT {} and {} stalled after it make {}, the longest TTFT is {}; TTFT is the place in a wave of prefills",
        seconds(mean),
        seconds(stalled),
        seconds(wave),
        seconds(longest)
    );
    Some(
        W05.finding(Level::Warn, says)
            .number("output_length_cv", output_cv)
            .number("ttft_mean_s", mean)
            .number("stalled_mean_s", stalled)
            .number("ttft_p99_s", longest)
            .number("concurrency", clients as f64),
    )
}

/// See [`lock_step`].
pub const W05: Check = Check {
    id: "W05",
    name: "lock-step",
    title: text("clients run in step", "客户端同步成波"),
    rule: text(
        "closed loop, variation of the output length < 0.01, and correlation of TTFT at a lag of as many requests as clients > 0.5 and beyond chance; from a summary: p99 of TTFT is 0.8 to 1.25 times mean TTFT + (mean − median ITL) · (tokens − 1), of which the second part is above a tenth of the first",
        "闭环，输出长度变异系数 < 0.01，且 TTFT 在滞后客户端数处的相关 > 0.5 并超出偶然；仅有汇总时：TTFT 的 p99 为平均 TTFT +（ITL 均值 − 中位数）·（token 数 − 1）的 0.8 到 1.25 倍，且后一部分超过前一部分的十分之一",
    ),
    why: text(
        "Answers of one length end together, so their clients send together and wait for one another's prefill. In a wave each request spends the prefill time of the whole wave either before its first token or stalled after it; spread clients stall as long, but hardly wait. The summary's test is ours.",
        "等长的回答同时结束，客户端便同时发送并互相等待 prefill。在一波中，每个请求把整波的 prefill 时间花在首 token 之前或之后的停顿上；错开的客户端停顿同样久，但几乎不等待。汇总上的判据是我们自己的。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft],
    advice: text(
        "vary the output lengths, or send at a rate instead of from a fixed number of clients",
        "让输出长度有变化，或按速率发送而不是固定客户端数",
    ),
    source: Source { work: "evalscope PR#1641; sglang#9585", section: "" },
    raised_by: &[Command::Report],
};

/// By what factor a wait of Poisson arrivals is too low for bursty ones (Kingman).
///
/// ```text
/// burst_factor = (ca^2 + cs^2) / (1 + cs^2)
/// ```
///
/// `ca` is the coefficient of variation of the gaps between arrivals, `cs` that of the service
/// time.
///
/// Source: Kingman 1961, heavy-traffic approximation.
#[must_use]
pub fn burst_factor(ca: f64, cs: f64) -> f64 {
    (ca * ca + cs * cs) / (1.0 + cs * cs)
}

/// W35: arrivals are burstier than Poisson, so that M/M/c waits are too low.
///
/// `gap_cv` over `n` gaps; `service_cv` is the variation of the service time, 1 if unknown.
#[must_use]
pub fn bursty(gap_cv: f64, n: u64, service_cv: Option<f64>) -> Option<Finding> {
    let chance = 1.0 + 3.0 / (n as f64).sqrt();
    if n < 20 || gap_cv <= 1.2f64.max(chance) || !gap_cv.is_finite() {
        return None;
    }
    let factor = burst_factor(gap_cv, service_cv.unwrap_or(1.0));
    let says = format!(
        "the gaps between arrivals vary by {} of their mean: waits are about {} times those of an M/M/c queue",
        percent(gap_cv),
        significant(factor, 3)
    );
    Some(W35.finding(Level::Note, says).number("gap_cv", gap_cv).number("wait_factor", factor))
}

/// See [`bursty`].
pub const W35: Check = Check {
    id: "W35",
    name: "bursty-traffic",
    title: text("arrivals are bursty", "到达呈突发"),
    rule: text(
        "open loop, variation of the gaps between arrivals > 1.2 and beyond chance (1 + 3 / √n): M/M/c waits are low by about (ca² + cs²) / (1 + cs²)",
        "开环，到达间隔的变异系数 > 1.2 且超出偶然（1 + 3 / √n）：M/M/c 的等待约低 (ca² + cs²) / (1 + cs²) 倍",
    ),
    why: text(
        "Queueing formulas for Poisson arrivals are wrong for bursts; the run itself is not.",
        "泊松到达的排队公式对突发不成立；运行本身没有问题。",
    ),
    levels: &[Level::Note],
    affects: &[Subject::Capacity],
    advice: text(
        "size with the factor, or replay the trace in the simulator",
        "按该系数放大，或在模拟器里回放轨迹",
    ),
    source: Source { work: "inference-sim PR#818", section: "case K040" },
    raised_by: &[Command::Report, Command::Sim, Command::Plan],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let clients = facts.load.clients();
    let completed = facts.completed.unwrap_or(0);
    let missed = facts.missed.unwrap_or(0);
    let mut found = Vec::new();
    if let (Some(in_flight), Some(n), false) = (facts.in_flight, clients, facts.truncated) {
        found.extend(concurrency_not_reached(in_flight, n, missed, completed + missed));
    }
    if !facts.truncated && 0 < completed {
        let no_steady = no_steady_state(facts);
        match (facts.has_requests, facts.requests_per_s) {
            // Without an arrival there is no interval, and nothing to say.
            (true, Some(_)) if no_steady.is_some() => {}
            (true, Some(rate)) if 0 < facts.sending.n => {
                let longest = facts.e2e.max;
                // Over a window the two have to be counted alike: its completions are others than
                // the shares of stays that lie within it.
                let rate = facts.stays_per_s.unwrap_or(rate);
                found.extend(ramp_and_drain(
                    facts.steady.as_ref(),
                    rate,
                    completed,
                    clients,
                    longest,
                ));
            }
            _ => {
                if let (Some(in_flight), Some(n)) = (facts.in_flight, clients) {
                    found.extend(ramp_and_drain_bound(in_flight, completed, n));
                }
            }
        }
        // Who failed or was cancelled was sent as well; where it is unknown who failed, so is the
        // rate of sending, unless as many completed as were to be sent.
        let all_known = facts.missed.is_some() || facts.load.number == Some(completed);
        let sent = (completed + missed + facts.outside) as f64 / completed as f64;
        found.extend(client_limited(
            &facts.load,
            &facts.sending,
            facts.requests_per_s.filter(|_| all_known).map(|x| x * sent),
            &facts.ttft,
        ));
        found.extend(no_steady);
    }
    if let (Some(n), Some(cv)) = (clients, facts.output.cv) {
        match (facts.ttft_at_lag_n, facts.output.mean) {
            (Some(at_lag), _) => found.extend(lock_step(n, cv, at_lag, completed)),
            (None, Some(mean)) if !facts.has_requests => {
                found.extend(lock_step_of_summary(n, cv, mean, &facts.ttft, &facts.itl));
            }
            _ => {}
        }
    }
    if let (Some(cv), None) = (facts.sending.gap_cv, clients)
        && facts.load.rate != Some(super::evidence::Rate::Unlimited)
    {
        found.extend(bursty(cv, facts.sending.n.saturating_sub(1), None));
    }
    found
}
