//! Findings about predictions: simulations, fits, plans, alerts and costs.

use crate::format::{percent, significant, things};
use crate::metric::{Source, text};

use super::evidence::{Conservation, Facts};
use super::{Check, Command, Finding, Level, Subject};

/// W28: a simulation that lost requests, or was stopped before they were answered.
///
/// An error if the books do not balance. Requests that still run or wait at the end make a truncated
/// run, whose throughput is not printed. A warning too if more than 1 % timed out or were cancelled:
/// throughput and goodput count who timed out for what it is, but latencies are those of who did not
/// give up; a cancelled request is neither good nor a miss, so that the attainment leaves it out too.
#[must_use]
pub fn simulation_truncated(c: &Conservation) -> Option<Finding> {
    let numbers = |f: Finding| {
        f.number("injected", c.injected as f64)
            .number("completed", c.completed as f64)
            .number("running", c.running as f64)
            .number("queued", c.queued as f64)
            .number("dropped", c.dropped as f64)
            .number("timed_out", c.timed_out as f64)
            .number("cancelled", c.cancelled as f64)
    };
    if !c.balances() {
        let says = format!(
            "{} requests went in, {} are accounted for",
            c.injected,
            c.accounted().map_or("too many".to_owned(), |n| n.to_string())
        );
        return Some(numbers(W28.finding(Level::Error, says)));
    }
    let left = c.running + c.queued;
    if 0 < left {
        let says = format!("{left} of {} requests were still running or waiting", c.injected);
        return Some(numbers(W28.finding(Level::Warn, says)));
    }
    let share = |n: u64| n as f64 / c.injected as f64;
    let gave_up = c.timed_out.saturating_add(c.cancelled);
    (0 < c.injected && 0.01 < share(gave_up)).then(|| {
        let (late, gone) = (percent(share(c.timed_out)), percent(share(c.cancelled)));
        let says = match (c.timed_out, c.cancelled) {
            (_, 0) => format!("{late} of the requests timed out, and latencies are of the others"),
            (0, _) => format!(
                "{gone} of the requests were cancelled by their clients, and latencies and attainment are of the others"
            ),
            _ => format!(
                "{late} of the requests timed out and {gone} were cancelled by their clients: latencies are of the others, and the attainment leaves out who was cancelled"
            ),
        };
        let missing = 0.01 < share(c.cancelled);
        let affected = [Subject::Ttft, Subject::Tpot, Subject::E2e, Subject::Goodput];
        let affected = if missing { &affected[..] } else { &affected[..3] };
        numbers(W28.finding(Level::Warn, says).affecting(affected))
    })
}

/// W28 of a run that says itself that it was stopped, with `left` requests unanswered.
#[must_use]
pub fn stopped_early(left: u64) -> Finding {
    let says =
        format!("the run was stopped with {} left: it has no rates", things(left, "request"));
    W28.finding(Level::Warn, says).number("left", left as f64)
}

/// See [`simulation_truncated`].
pub const W28: Check = Check {
    id: "W28",
    name: "simulation-truncated",
    title: text("requests were left at the end, or given up", "结束时有剩余请求，或有请求被放弃"),
    rule: text(
        "injected ≠ completed + running + queued + dropped + timed out + cancelled is an error; requests left at the end are a warning, and no throughput is printed; more than 1 % timed out or cancelled is a warning for latencies, cancelled for attainment too. Of a measured window its own requests count",
        "注入 ≠ 完成 + 运行 + 排队 + 丢弃 + 超时 + 取消为错误；结束时有剩余请求为警告，且不打印吞吐；超时或取消超过 1 % 时对时延为警告，取消还涉及达标率。有测量窗口时只看窗口内的请求",
    ),
    why: text(
        "The requests that ended by then are the short ones; rates over them have been 25 to 45 times off. Those that do not time out are the short ones too, but who gave up is no throughput and a miss of every objective, so that rates and shares are right. Who is cancelled is no miss, so that the attainment is that of the others.",
        "到那时已结束的都是短请求；据此计算的速率曾偏差 25 到 45 倍。未超时的同样是短请求，但放弃者不计入吞吐，并计为未达标，因此速率与占比是对的。被取消的请求不计为未达标，因此达标率只属于其余请求。",
    ),
    levels: &[Level::Warn, Level::Error],
    affects: &[
        Subject::Throughput,
        Subject::Ttft,
        Subject::Tpot,
        Subject::E2e,
        Subject::Goodput,
        Subject::Model,
    ],
    advice: text(
        "let the simulation run until all requests have ended, or measure a window that ends before; where clients give up, look at a run in which they stay as well",
        "让模拟运行到所有请求结束，或测量在此之前结束的窗口；有客户端放弃时，再看一次他们不放弃的运行",
    ),
    source: Source { work: "inference-sim#1127", section: "" },
    raised_by: &[Command::Report, Command::Sim],
};

/// W29: the error of the step time reaches across saturation.
///
/// `rho` is the predicted utilization, `error` the relative error of the model.
#[must_use]
pub fn crosses_saturation(rho: f64, error: f64) -> Option<Finding> {
    let (low, high) = (rho * (1.0 - error), rho * (1.0 + error));
    if !(low < 1.0 && 1.0 <= high) {
        return None;
    }
    let says = format!(
        "rho is {}, and with an error of {} between {} and {}: whether the queue is stable cannot be told",
        significant(rho, 3),
        percent(error),
        significant(low, 3),
        significant(high, 3)
    );
    Some(W29.finding(Level::Error, says).number("rho_low", low).number("rho_high", high))
}

/// See [`crosses_saturation`].
pub const W29: Check = Check {
    id: "W29",
    name: "error-crosses-saturation",
    title: text("the model's error crosses saturation", "模型误差跨越饱和点"),
    rule: text(
        "rho · (1 ± error of the model) lies on both sides of 1: the answer is indeterminate",
        "rho ·（1 ± 模型误差）跨越 1：答案为不确定",
    ),
    why: text(
        "Near saturation a few per cent of step time decide between 64 ms and 120 s.",
        "接近饱和时，步时的百分之几就决定是 64 ms 还是 120 s。",
    ),
    levels: &[Level::Error],
    affects: &[Subject::Model, Subject::Capacity],
    advice: text("measure at this load, or plan below it", "在该负载下实测，或按更低负载规划"),
    source: Source { work: "inference-sim PR#480", section: "" },
    raised_by: &[Command::Fit],
};

/// W30: errors of TTFT and TPOT that cancel in E2E.
///
/// Signed relative errors of a prediction: 0.3 is 30 % too high.
#[must_use]
pub fn errors_cancel(e2e: f64, ttft: f64, tpot: f64) -> Option<Finding> {
    let opposite = ttft * tpot < 0.0;
    if !(opposite && e2e.abs() < 0.2 && 0.3 < ttft.abs() && 0.3 < tpot.abs()) {
        return None;
    }
    let says = format!(
        "E2E is {} off, but TTFT {} and TPOT {}: they cancel at this length only",
        percent(e2e),
        percent(ttft),
        percent(tpot)
    );
    Some(
        W30.finding(Level::Warn, says)
            .number("e2e_error", e2e)
            .number("ttft_error", ttft)
            .number("tpot_error", tpot),
    )
}

/// See [`errors_cancel`].
pub const W30: Check = Check {
    id: "W30",
    name: "errors-cancel",
    title: text("errors cancel in E2E", "误差在 E2E 中相消"),
    rule: text(
        "error of E2E < 20 % while TTFT and TPOT are more than 30 % off in opposite directions",
        "E2E 误差 < 20 %，而 TTFT 与 TPOT 误差方向相反且均 > 30 %",
    ),
    why: text(
        "Such a model agrees at one output length and at no other.",
        "这样的模型只在一种输出长度上吻合。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Model],
    advice: text("fit prefill and decode apart", "分别拟合 prefill 与 decode"),
    source: Source { work: "LLMServingSim PR#59", section: "" },
    raised_by: &[Command::Fit],
};

/// Metric names that tell how long a GPU was not idle, not how much it could still take.
pub const GPU_UTILIZATION_METRICS: &[&str] =
    &["DCGM_FI_DEV_GPU_UTIL", "nvidia_gpu_duty_cycle", "nvidia_smi_utilization_gpu_ratio"];

/// W33: a rule or query that takes GPU utilization for load.
#[must_use]
pub fn gpu_utilization_as_load(query: &str) -> Option<Finding> {
    let name = GPU_UTILIZATION_METRICS.iter().find(|name| query.contains(*name))?;
    let says =
        format!("{name} is the share of time with any kernel running: one request makes it 100 %");
    Some(W33.finding(Level::Error, says))
}

/// See [`gpu_utilization_as_load`].
pub const W33: Check = Check {
    id: "W33",
    name: "gpu-utilization-as-load",
    title: text("GPU utilization is taken for load", "把 GPU 利用率当作负载"),
    rule: text(
        "a rule or query uses DCGM's or nvidia-smi's GPU utilization: refused",
        "规则或查询使用 DCGM 或 nvidia-smi 的 GPU 利用率：拒绝",
    ),
    why: text(
        "It counts time with any kernel on the GPU, so a decoding engine shows 100 % at a batch of one.",
        "它统计 GPU 上有任意核函数运行的时间，解码引擎批次为一也显示 100 %。",
    ),
    levels: &[Level::Error],
    affects: &[Subject::Alerts],
    advice: text(
        "use waiting requests, KV utilization and batch utilization",
        "使用等待请求数、KV 利用率与批次利用率",
    ),
    source: Source { work: "dcgm-exporter#301; vllm#6737", section: "" },
    raised_by: &[],
};

/// W34: a cost per token at a rate that no service keeps up.
///
/// `utilization` is the share of the rate that the load uses, if stated; `tokens_per_s` the rate
/// that was divided by, `batch_one_per_s` twice the bandwidth over the bytes of the weights, below
/// which a rate is that of a single request.
#[must_use]
pub fn cost_at_full_duty(
    utilization: Option<f64>,
    tokens_per_s: f64,
    batch_one_per_s: Option<f64>,
) -> Option<Finding> {
    let mut parts = Vec::new();
    if utilization.is_none() {
        parts.push("no utilization is stated, so every hour is taken as full".to_owned());
    }
    let single = batch_one_per_s.filter(|bound| tokens_per_s < *bound);
    if let Some(bound) = single {
        parts.push(format!(
            "{} tok/s is the rate of a single request (below {} tok/s), not of a batch",
            significant(tokens_per_s, 3),
            significant(bound, 3)
        ));
    }
    if parts.is_empty() {
        return None;
    }
    Some(
        W34.finding(Level::Warn, parts.join("; "))
            .number("tokens_per_s", tokens_per_s)
            .maybe("batch_one_tokens_per_s", single)
            .maybe("utilization", utilization),
    )
}

/// See [`cost_at_full_duty`].
pub const W34: Check = Check {
    id: "W34",
    name: "cost-at-full-duty",
    title: text("cost at full duty", "按满负荷计成本"),
    rule: text(
        "a cost without utilization, batch and SLO; or a rate below 2 · bandwidth / weights, which is that of one request",
        "成本未给出利用率、批次与 SLO；或速率低于 2 · 带宽 / 权重，即单个请求的速率",
    ),
    why: text(
        "An hour is paid whether it is used or not, and a batch shares one reading of the weights.",
        "一小时无论用不用都要付费，而一个批次共享一次权重读取。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Cost],
    advice: text("state the cost at the real load, with its SLO", "按真实负载与其 SLO 给出成本"),
    source: Source { work: "peakinfer.com", section: "case K064" },
    raised_by: &[Command::Cost, Command::Plan],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    match &facts.conservation {
        Some(c) => simulation_truncated(c).into_iter().collect(),
        None if facts.truncated => vec![stopped_early(facts.outside)],
        None => Vec::new(),
    }
}
