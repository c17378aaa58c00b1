//! Findings about the books of a run: how many completed, and whether its parts agree.

use crate::format::{count, percent, rate};
use crate::metric::{Source, text};

use super::evidence::Facts;
use super::{Check, Command, Finding, Level, Subject, seconds};

/// W37: requests failed, so that the figures are those of the survivors.
///
/// `missed` of `completed + missed` failed, were rejected or timed out; `outside` were cancelled or
/// cut off by the end of the run.
#[must_use]
pub fn failures(completed: u64, missed: u64, outside: u64) -> Option<Finding> {
    let finished = completed.saturating_add(missed);
    if completed == 0 {
        let sent = finished.saturating_add(outside);
        let says = match (missed, outside) {
            (0, 0) => "no request completed".to_owned(),
            _ => format!(
                "none of {sent} requests completed: {missed} failed, {outside} were cancelled or cut off"
            ),
        };
        return Some(
            W37.finding(Level::Error, says)
                .number("completed", 0.0)
                .number("failed", missed as f64)
                .number("cancelled", outside as f64),
        );
    }
    let share = missed as f64 / finished as f64;
    let level = match share {
        s if 0.5 <= s => Level::Error,
        s if 0.05 < s => Level::Warn,
        s if 0.01 < s => Level::Note,
        _ => return None,
    };
    let says = format!(
        "{missed} of {finished} requests failed, {}: latencies and rates are those of the others",
        percent(share)
    );
    Some(
        W37.finding(level, says)
            .number("completed", completed as f64)
            .number("failed", missed as f64)
            .number("failed_share", share),
    )
}

/// See [`failures`].
pub const W37: Check = Check {
    id: "W37",
    name: "failures",
    title: text("requests failed", "有请求失败"),
    rule: text(
        "failed / (completed + failed) > 1 % is a note, > 5 % a warning, from 50 % or with nothing completed an error; rejected and timed out count as failed. A simulation, whose books show who is refused or gives up, raises it with nothing completed alone",
        "失败 /（完成 + 失败）> 1 % 为提示，> 5 % 为警告，达到 50 % 或没有任何请求完成为错误；被拒绝与超时计为失败；模拟仅在没有任何请求完成时报告，其拒绝与超时本就在账上",
    ),
    why: text(
        "Who fails has no latency and takes no decode steps, so the survivors look fast. Goodput and attainment count failures as misses and stand.",
        "失败的请求没有时延，也不占用解码步，于是幸存者显得很快。Goodput 与达标率把失败计为未达标，仍然成立。",
    ),
    levels: &[Level::Note, Level::Warn, Level::Error],
    affects: &[Subject::Throughput, Subject::Ttft, Subject::Tpot, Subject::Itl, Subject::E2e],
    advice: text(
        "find out why they failed, and read attainment, which counts them",
        "查明失败原因，并看计入失败的达标率",
    ),
    source: Source { work: "AIPerf research doc; guidellm SLO guide", section: "" },
    raised_by: &[Command::Report, Command::Sim],
};

/// W38: the parts of a run contradict one another.
///
/// A window shorter than the requests in it, more in flight on average than at the peak, or counts
/// that the file states otherwise.
#[must_use]
pub fn contradicting_counts(facts: &Facts) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut numbers = Vec::new();
    let mut level = Level::Warn;
    if let (Some(window), Some(span)) = (facts.window_s, facts.span_s)
        && window < 0.9 * span
    {
        level = Level::Error;
        parts.push(format!(
            "the window of {} is shorter than the {} from the first request to the last answer: rates over it are too high",
            seconds(window),
            seconds(span)
        ));
        numbers.extend([("window_s", window), ("span_s", span)]);
    }
    if let (Some(mean), Some(peak)) = (facts.stays_in_flight, facts.peak_in_flight)
        && 0 < peak
        && 1.05 * (peak as f64) < mean
    {
        level = Level::Error;
        parts.push(format!(
            "{} in flight on average by Little's law, but never more than {}",
            rate(mean),
            count(peak as f64)
        ));
        numbers.extend([("in_flight_mean", mean), ("in_flight_peak", peak as f64)]);
    }
    if let Some(text) = &facts.counts_disagree {
        parts.push(text.clone());
    }
    if parts.is_empty() {
        return None;
    }
    let finding = W38.finding(level, parts.join("; "));
    Some(numbers.into_iter().fold(finding, |f, (name, x)| f.number(name, x)))
}

/// See [`contradicting_counts`].
pub const W38: Check = Check {
    id: "W38",
    name: "counts-disagree",
    title: text("the parts of the file contradict one another", "文件各部分互相矛盾"),
    rule: text(
        "window < 90 % of the time from the first send to the last answer, or mean in flight > 1.05 · peak over the same requests: an error; counts of the file that its requests contradict, or a mean TTFT more than a tenth from theirs: a warning",
        "窗口 < 从首次发送到最后回答的时间的 90 %，或同一批请求的平均在途数 > 1.05 · 峰值：错误；文件计数与其请求不符，或平均 TTFT 相差一成以上：警告",
    ),
    why: text(
        "All requests lie within the window of a run, and a mean is not above its maximum. It happens where two runs are mixed in one folder, or a file was cut.",
        "一次运行的所有请求都在其窗口内，均值也不会超过最大值。两次运行混在一个目录，或文件被截断时会出现。",
    ),
    levels: &[Level::Warn, Level::Error],
    affects: &[Subject::Throughput, Subject::Goodput, Subject::Concurrency],
    advice: text(
        "check that summary and requests are of the same run, and that the file is whole",
        "确认汇总与请求属于同一次运行，且文件完整",
    ),
    source: Source { work: "Little 1961", section: "" },
    raised_by: &[Command::Report],
};

/// W39: the tool that made the run does not accept it; `why` is its reason.
#[must_use]
pub fn called_invalid(why: &str) -> Finding {
    W39.finding(Level::Warn, why.to_owned())
}

/// See [`called_invalid`].
pub const W39: Check = Check {
    id: "W39",
    name: "called-invalid",
    title: text("the tool calls the run invalid", "工具判定运行无效"),
    rule: text(
        "the file says that its tool did not accept the run, as MLPerf's `Result is : INVALID` does: a warning",
        "文件说明其工具不接受该次运行，例如 MLPerf 的 `Result is : INVALID`：警告",
    ),
    why: text(
        "Too few queries, too short a run or a missed latency bound: the rate is then not one that the server keeps within its bounds. The latencies are what they are.",
        "查询太少、运行太短或违反时延上限：此时的速率不是服务器在约束内能维持的速率。时延本身仍然成立。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Throughput, Subject::Goodput],
    advice: text(
        "lower the load or run longer until the tool accepts the run",
        "降低负载或延长运行，直到工具接受为止",
    ),
    source: Source { work: "MLPerf loadgen", section: "results.cc" },
    raised_by: &[Command::Report],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    // Who is refused or gives up in a simulation is in its books, and asked for.
    let asked = |completed: u64| facts.conservation.is_some() && 0 < completed;
    if let Some(completed) = facts.completed.filter(|&completed| !asked(completed)) {
        found.extend(failures(completed, facts.missed.unwrap_or(0), facts.outside));
    }
    found.extend(contradicting_counts(facts));
    found.extend(facts.called_invalid.as_deref().map(called_invalid));
    found
}
