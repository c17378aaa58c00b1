//! The figures of a run that stand in a table of several seeds, and in files of all of them.

use metrics_core::format;
use metrics_core::report::Report;
use metrics_core::units::Quantity;

use super::Simulated;
use crate::report::text as report_text;

/// A figure of a run.
pub(super) struct Column {
    /// What it is called in a table; none of a figure that is in files alone.
    pub(super) title: Option<&'static str>,
    /// Its name in files, as a single run has it, with its unit at the end.
    pub(super) key: &'static str,
    kind: Kind,
    of: Of,
}

/// How a figure is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Share,
    Number,
    /// Requests of the whole run that got no answer.
    Lost,
}

/// Where a figure comes from.
enum Of {
    /// A percentile of a latency.
    Percentile(&'static str, f64),
    /// The mean of a latency.
    Mean(&'static str),
    Report(fn(&Report) -> Option<f64>),
    Run(fn(&Simulated) -> Option<f64>),
}

/// The mean and the percentiles of a latency, of which the table has those with a title.
macro_rules! latency {
    ($name:literal: $($title:expr, $key:literal, $p:literal;)*) => {
        [
            Column {
                title: None,
                key: concat!($name, "_mean_s"),
                kind: Kind::Time,
                of: Of::Mean($name),
            },
            $(Column {
                title: $title,
                key: concat!($name, "_", $key, "_s"),
                kind: Kind::Time,
                of: Of::Percentile($name, $p),
            },)*
        ]
    };
}

static TTFT: [Column; 5] = latency!("ttft":
    Some("TTFT p50"), "p50", 0.5; None, "p90", 0.9; None, "p95", 0.95; Some("TTFT p99"), "p99", 0.99;
);
static TPOT: [Column; 5] = latency!("tpot":
    Some("TPOT p50"), "p50", 0.5; None, "p90", 0.9; None, "p95", 0.95; Some("TPOT p99"), "p99", 0.99;
);
static ITL: [Column; 5] = latency!("itl":
    None, "p50", 0.5; None, "p90", 0.9; None, "p95", 0.95; Some("ITL p99"), "p99", 0.99;
);
static E2E: [Column; 5] = latency!("e2e":
    None, "p50", 0.5; None, "p90", 0.9; None, "p95", 0.95; Some("E2E p99"), "p99", 0.99;
);
static QUEUE: [Column; 5] = latency!("queue_time":
    None, "p50", 0.5; None, "p90", 0.9; None, "p95", 0.95; None, "p99", 0.99;
);

const fn of_report(
    title: Option<&'static str>,
    key: &'static str,
    kind: Kind,
    of: fn(&Report) -> Option<f64>,
) -> Column {
    Column { title, key, kind, of: Of::Report(of) }
}

const fn of_run(
    title: Option<&'static str>,
    key: &'static str,
    kind: Kind,
    of: fn(&Simulated) -> Option<f64>,
) -> Column {
    Column { title, key, kind, of: Of::Run(of) }
}

static RATES: [Column; 7] = [
    of_report(Some("req/s"), "request_throughput_per_s", Kind::Number, |r| {
        r.throughput.requests.map(Quantity::number)
    }),
    of_report(Some("tok/s"), "output_tokens_per_s", Kind::Number, |r| {
        r.throughput.output.map(Quantity::number)
    }),
    of_report(None, "total_tokens_per_s", Kind::Number, |r| {
        r.throughput.total.map(Quantity::number)
    }),
    of_report(Some("goodput"), "goodput_per_s", Kind::Number, |r| {
        r.goodput.as_ref()?.rate.map(Quantity::number)
    }),
    of_report(None, "goodput_tokens_per_s", Kind::Number, |r| {
        r.goodput.as_ref()?.tokens.map(Quantity::number)
    }),
    of_report(None, "goodput_ratio", Kind::Share, |r| r.goodput.as_ref()?.ratio),
    of_report(Some("attainment"), "slo_attainment", Kind::Share, |r| {
        r.goodput.as_ref()?.attainment
    }),
];

static OF_RUN: [Column; 12] = [
    // Who gets no answer is in no latency, nor in a share of what is completed.
    of_run(Some("refused"), "rejected_requests", Kind::Lost, |r| {
        Some(r.statistics.rejected as f64)
    }),
    of_run(Some("cancelled"), "cancelled_requests", Kind::Lost, |r| {
        Some(r.statistics.cancelled as f64)
    }),
    of_run(Some("timed out"), "timed_out_requests", Kind::Lost, |r| {
        Some(r.statistics.timed_out as f64)
    }),
    of_run(Some("left at the end"), "unfinished_requests", Kind::Lost, |r| {
        Some((r.statistics.running + r.statistics.queued) as f64)
    }),
    of_run(Some("load"), "relative_to_saturation", Kind::Number, |r| r.load.relative()),
    of_run(None, "batch_utilization_by_time", Kind::Share, |r| r.statistics.utilization_by_time()),
    of_run(None, "busy_share", Kind::Share, |r| r.statistics.busy_share()),
    of_run(None, "in_system_mean", Kind::Number, |r| r.statistics.mean_in_system()),
    of_run(None, "waiting_mean", Kind::Number, |r| r.statistics.mean_waiting()),
    of_run(None, "kv_utilization_by_time", Kind::Share, |r| r.statistics.kv_utilization()),
    of_run(Some("hit rate"), "kv_hit_rate", Kind::Share, |r| r.statistics.kv?.hit_rate()),
    of_run(None, "preemption_rate", Kind::Share, |r| r.statistics.preemption_rate()),
];

/// All figures, in the order of tables and files.
pub(super) fn columns() -> impl Iterator<Item = &'static Column> {
    TTFT.iter().chain(&TPOT).chain(&ITL).chain(&E2E).chain(&QUEUE).chain(&RATES).chain(&OF_RUN)
}

impl Column {
    /// The figure of a run, if it has it.
    pub(super) fn value(&self, run: &Simulated) -> Option<f64> {
        let report = run.report.as_ref();
        let figures = |name: &str| {
            let latency = report?.latency.iter().find(|d| d.name == name)?;
            latency.figures.as_ref()
        };
        match self.of {
            Of::Percentile(name, p) => {
                figures(name)?.percentiles.iter().find(|f| f.p == Some(p)).map(|f| f.value)
            }
            Of::Mean(name) => Some(figures(name)?.mean.value),
            Of::Report(of) => of(report?),
            Of::Run(of) => of(run),
        }
    }

    /// Whether it has a column in a table of these runs, which all have it as `in_all` says.
    pub(super) fn is_shown<'a>(
        &self,
        mut runs: impl Iterator<Item = &'a Simulated>,
        in_all: bool,
    ) -> bool {
        // Losses and hits are worth a column where there are any.
        let some = self.kind == Kind::Lost || self.key == "kv_hit_rate";
        match (self.title, some) {
            (None, _) => false,
            (Some(_), true) => runs.any(|run| self.value(run).is_some_and(|n| 0.0 < n)),
            (Some(_), false) => in_all,
        }
    }

    /// For a reader.
    pub(super) fn shown(&self, x: f64) -> String {
        let sign = if x < 0.0 { "-" } else { "" };
        let x = x.abs();
        match self.kind {
            Kind::Time => format!("{sign}{}", report_text::time(x)),
            Kind::Share => format!("{sign}{}", format::percent(x)),
            Kind::Number | Kind::Lost => format!("{sign}{}", format::rate(x)),
        }
    }
}
