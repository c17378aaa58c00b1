//! Tables that others published, with what is known to be wrong in them.

use super::Options;
use super::table::{Row, Table};
use crate::error::Result;
use crate::fit::point::{Point, Regime, Source};

/// The points of a published table; none if it is none of those known.
pub(super) fn read(table: &Table, options: &Options) -> Result<Option<Source>> {
    if !options.map.is_empty() {
        return Ok(None);
    }
    let read =
        if table.has(&["prompt_size", "batch_size", "token_size", "prompt_time", "token_time"]) {
            splitwise
        } else if table.has(&["users", "n_bad", "in_mean", "out_mean", "tpot_mean"]) {
            users_sweep
        } else if table.has(&["phase", "set_batch", "in_len", "out_len", "median_tpot_ms"]) {
            batch_sweep
        } else if table.has(&["silicon_data_source", "isl", "osl", "silicon_tpot_ms"]) {
            silicon
        } else {
            return Ok(None);
        };
    read(table, options).map(Some)
}

/// The mean step of a closed loop of `users`, each with this prompt and answer.
///
/// Every user has one prompt for `output` steps, so a step carries users · input / output prompt
/// tokens on average; a request's context grows from its prompt to prompt and answer.
pub(super) fn mean_step(users: f64, input: f64, output: f64, time_s: f64) -> Point {
    let share = users / output;
    Point {
        regime: Regime::Mean,
        prefills: share,
        prefill_tokens: share * input,
        attention: share * input * input / 2.0,
        ..Point::decode(users, users * (input + output / 2.0), time_s)
    }
}

/// Static batches: every row has the time of the prompt step and the mean time of a decode step.
fn splitwise(table: &Table, options: &Options) -> Result<Source> {
    let mut source = Source::new(&table.name, "Splitwise static batches");
    source.assumed.push(
        "context of a decode step: the prompt and half of the answer of each request, where the model ended early half of what e2e has room for"
            .to_owned(),
    );
    for row in table.rows() {
        // The power-capped rows of the published table are 1.3 times the others, not measured.
        if row.text("hardware").ends_with("-pcap") {
            source
                .exclude("power-capped rows are scaled from others, not measured", || row.place());
            continue;
        }
        let (prompt, batch) = (row.positive("prompt_size")?, row.positive("batch_size")?);
        let (asked, first) = (row.positive("token_size")?, row.positive("prompt_time")? / 1e3);
        let step = row.positive("token_time")? / 1e3;
        let group = row.group(&options.by, &["model", "hardware", "tensor_parallel"]);
        let at = |p: Point| p.at(row.place()).of(group.clone());
        let generated = row.number("e2e_time").map_or(asked, |ms| 1.0 + (ms / 1e3 - first) / step);
        if 1.05 * asked < generated {
            source.exclude(
                "e2e is longer than the prompt and all tokens together: the batch did not fit and waited",
                || row.place(),
            );
            continue;
        }
        source.points.push(at(Point::prefill(batch, batch * prompt, first)));
        // The end token came before all that was asked for: the mean is over what was generated.
        let answer = if generated < 0.95 * asked { generated } else { asked };
        source.points.push(at(Point::decode(batch, batch * (prompt + answer / 2.0), step)));
    }
    Ok(source)
}

/// A sweep over closed-loop users; times in milliseconds.
fn users_sweep(table: &Table, options: &Options) -> Result<Source> {
    let mut source = Source::new(&table.name, "LLM-Pilot users sweep");
    source.assumed.push("users without think time: all are in flight, prefill included".to_owned());
    for row in table.rows() {
        if 0.0 < row.number("n_bad")? {
            source
                .exclude("requests failed: those that survived are the short ones", || row.place());
            continue;
        }
        let point = mean_step(
            row.positive("users")?,
            row.positive("in_mean")?,
            row.positive("out_mean")?,
            row.positive("tpot_mean")? / 1e3,
        );
        let group = row.group(&options.by, &["model", "gpus", "gpu"]);
        source.points.push(point.at(row.place()).of(group));
    }
    Ok(source)
}

/// A sweep over the largest batch, all requests queued at once; times in milliseconds.
fn batch_sweep(table: &Table, options: &Options) -> Result<Source> {
    let mut source = Source::new(&table.name, "decode batch sweep");
    source.assumed.push(
        "the batch is full all the time: B is the largest batch, C half of the answer and the prompt for each"
            .to_owned(),
    );
    for row in table.rows() {
        if row.text("phase") != "output" {
            source.exclude("answers of one token have no decode step to time", || row.place());
            continue;
        }
        let (batch, output) = (row.positive("set_batch")?, row.positive("out_len")?);
        // What was really sent is longer than asked for: the tokenizer adds to it.
        let input = match (row.number("total_in"), row.positive("num_prompts")) {
            (Ok(total), Ok(n)) if 0.0 < total => total / n,
            _ => row.number("in_len")?,
        };
        let time = row.positive("median_tpot_ms")? / 1e3;
        let point = Point::decode(batch, batch * (input + output / 2.0), time);
        source.points.push(point.at(row.place()).of(row.group(&options.by, &["model"])));
    }
    Ok(source)
}

/// The columns of a deployment in the silicon sample.
const DEPLOYMENT: [&str; 12] = [
    "backend",
    "backend_version",
    "model_path",
    "system",
    "precision",
    "gemm_quant_mode",
    "moe_quant_mode",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_tp_size",
    "moe_ep_size",
];

/// Closed loops of many deployments; times in milliseconds.
fn silicon(table: &Table, options: &Options) -> Result<Source> {
    let mut source = Source::new(&table.name, "AIConfigurator silicon sample");
    source
        .assumed
        .push("TPOT is taken for a mean, which the file does not say; TTFT is not used".to_owned());
    for row in table.rows() {
        if row.text("mode") != "agg" {
            source.exclude("prefill and decode run on different GPUs", || row.place());
            continue;
        }
        let Some(users) = concurrency(&row) else {
            source.exclude("no silicon_concurrency in silicon_data_source", || row.place());
            continue;
        };
        let point = mean_step(
            users,
            row.positive("isl")?,
            row.positive("osl")?,
            row.positive("silicon_tpot_ms")? / 1e3,
        );
        source.points.push(point.at(row.place()).of(row.group(&options.by, &DEPLOYMENT)));
    }
    Ok(source)
}

/// The concurrency in the text of the source.
fn concurrency(row: &Row<'_>) -> Option<f64> {
    let (_, rest) = row.text("silicon_data_source").split_once("silicon_concurrency=")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|n| 0.0 < *n)
}
