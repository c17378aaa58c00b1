//! What the readers of results with parallel arrays share: one request out of the arrays, whether
//! it completed, what its gaps are, and whether the file agrees with itself.

use metrics_core::format::{things, value};
use metrics_core::{Outcome, RequestTimeline};

use crate::document::Document;
use crate::error::{IoError, Place, Result, input_of};
use crate::rows::note_gap_kind;
use crate::run::{Run, Values};

/// The common length of the arrays per request, if there are any.
pub(crate) fn parallel(at: &Place, d: &Document) -> Result<Option<usize>> {
    let lengths = [
        ("ttfts", d.ttfts.as_ref().map(Vec::len)),
        ("latencies", d.latencies.as_ref().map(Vec::len)),
        ("output_lens", d.output_lens.as_ref().map(Vec::len)),
        ("input_lens", d.input_lens.as_ref().map(Vec::len)),
        ("itls", d.itls.as_ref().map(Vec::len)),
        ("start_times", d.start_times.as_ref().map(Vec::len)),
        ("queue_times", d.queue_times.as_ref().map(Vec::len)),
        ("errors", d.errors.as_ref().map(Vec::len)),
        ("cached_tokens", d.cached_tokens.as_ref().map(Vec::len)),
    ];
    let mut first: Option<(&'static str, usize)> = None;
    for (key, len) in lengths {
        match (first, len) {
            (None, Some(len)) => first = Some((key, len)),
            (Some((other, expected)), Some(found)) if expected != found => {
                let at = Box::new(at.clone().key(key));
                return Err(IoError::Lengths { at, found, expected, other });
            }
            _ => {}
        }
    }
    // Without TTFT or latency there is nothing to make a timeline of.
    Ok(first.filter(|_| d.ttfts.is_some() || d.latencies.is_some()).map(|(_, n)| n))
}

/// What the arrays say about one request.
pub(crate) struct Row<'a> {
    pub(crate) ttft: Option<f64>,
    pub(crate) latency: Option<f64>,
    pub(crate) output: Option<u64>,
    pub(crate) input: Option<u64>,
    pub(crate) gaps: Option<&'a [f64]>,
    pub(crate) start: Option<f64>,
    pub(crate) error: Option<&'a str>,
}

impl<'a> Row<'a> {
    pub(crate) fn new(d: &'a Document, i: usize) -> Self {
        Self {
            ttft: get(d.ttfts.as_ref(), i).copied(),
            latency: get(d.latencies.as_ref(), i).copied(),
            output: get(d.output_lens.as_ref(), i).copied(),
            input: get(d.input_lens.as_ref(), i).copied(),
            gaps: get(d.itls.as_ref(), i).map(Vec::as_slice),
            start: get(d.start_times.as_ref(), i).copied(),
            error: get(d.errors.as_ref(), i).map(String::as_str),
        }
    }

    /// Whether the tool counted it as answered; its own flag is not in the file, but it writes exactly
    /// 0.0 for what it did not measure.
    pub(crate) fn completed(&self) -> bool {
        let failed = match (self.error, self.latency) {
            (Some(text), _) if !text.is_empty() => true,
            (_, Some(latency)) => latency == 0.0,
            (_, None) => self.ttft == Some(0.0) && self.output.is_none_or(|n| n == 0),
        };
        !failed
    }

    /// The time of the last chunk: the file's own, else rebuilt from the gaps.
    pub(crate) fn end(&self) -> Option<f64> {
        self.latency.or_else(|| self.rebuilt_end())
    }

    pub(crate) fn rebuilt_end(&self) -> Option<f64> {
        let ttft = self.ttft.filter(|&t| t != 0.0)?;
        Some(self.gaps?.iter().fold(ttft, |sum, gap| sum + gap))
    }
}

/// The array that holds the value which breaks the rule.
pub(crate) fn key_of(error: &metrics_core::Error, d: &Document) -> &'static str {
    let end = if d.latencies.is_some() { "latencies" } else { "itls" };
    match input_of(error).unwrap_or("") {
        "arrival" => "start_times",
        "output_tokens" => "output_lens",
        "input_tokens" => "input_lens",
        "a gap between outputs" => "itls",
        "e2e" | "last_token" => end,
        _ if d.ttfts.is_some() => "ttfts",
        _ => end,
    }
}

pub(crate) fn get<T>(list: Option<&Vec<T>>, i: usize) -> Option<&T> {
    list.and_then(|l| l.get(i))
}

/// Whether every completed request has exactly one gap fewer than tokens, and some has a gap.
pub(crate) fn gaps_look_per_token(d: &Document, n: usize) -> bool {
    let mut any = false;
    for row in (0..n).map(|i| Row::new(d, i)).filter(Row::completed) {
        let (Some(gaps), Some(tokens)) = (row.gaps, row.output) else { return false };
        if tokens.saturating_sub(1) != gaps.len() as u64 {
            return false;
        }
        any |= !gaps.is_empty();
    }
    any
}

/// Says whether gaps are between tokens or between chunks.
pub(crate) fn note_gaps(d: &Document, n: usize, per_token: bool, run: &mut Run) {
    if d.itls.is_none() || d.output_lens.is_none() {
        return;
    }
    let completed = (0..n).map(|i| Row::new(d, i)).filter(Row::completed);
    let answers =
        completed.map(|row| (row.gaps.map_or(0, <[f64]>::len) as u64, row.output.unwrap_or(0)));
    note_gap_kind(run, per_token, answers);
}

/// Says for how many one-token answers the last of several chunks is taken.
pub(crate) fn note_several_chunks(several_chunks: usize, run: &mut Run) {
    if 0 < several_chunks {
        let text = format!(
            "{} in several chunks: TTFT is taken as the last chunk, the tool's own value is in \
             the column ttft_as_written_s",
            things(several_chunks as u64, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
}

/// Says of how many completed requests the file writes 0 output tokens.
pub(crate) fn note_no_tokens(no_tokens: usize, run: &mut Run) {
    if 0 < no_tokens {
        let text = format!(
            "{} with 0 output tokens: count unknown",
            things(no_tokens as u64, "completed request")
        );
        run.note("no-tokens", &["tpot", "token_throughput"], text);
    }
}

/// Says how many failed requests were cut after their first chunk.
pub(crate) fn note_cut(cut: usize, run: &mut Run) {
    if 0 < cut {
        let text = format!(
            "{} cut after the first chunk: TTFT is kept, E2E and output tokens are unknown (the \
             file writes 0)",
            things(cut as u64, "failed request")
        );
        run.note("cut-in-mid-stream", &["e2e_latency", "token_throughput"], text);
    }
}

/// How far a stated mean may lie from that of the requests, as a share of the larger: tools differ
/// by less in what they leave out and round.
const MEAN_TOLERANCE: f64 = 0.1;

/// Compares the file's counts and its mean TTFT with its requests; `tokens` is what their output
/// tokens add up to, `input_tokens` their prompts where the file counts both alike.
pub(crate) fn check_counts(run: &mut Run, tokens: Option<u64>, input_tokens: Option<u64>) {
    if !run.has_requests() {
        return;
    }
    let of = |outcome| run.timelines.iter().filter(|t| t.outcome() == outcome).count() as u64;
    let (completed, failed) = (of(Outcome::Completed), of(Outcome::Failed));
    let mut differ = Vec::new();
    for (name, stated, found) in
        [("completed", run.counts.completed, completed), ("failed", run.counts.failed, failed)]
    {
        if let Some(stated) = stated
            && stated != found
        {
            differ.push(format!("`{name}` says {stated}, the requests {found}"));
        }
    }
    for (name, stated, found) in [
        ("total_input_tokens", run.counts.total_input_tokens, input_tokens),
        ("total_output_tokens", run.counts.total_output_tokens, tokens),
    ] {
        if let (Some(stated), Some(found)) = (stated, found)
            && stated != found
        {
            differ.push(format!("`{name}` says {stated}, the requests {found}"));
        }
    }
    // A data set may have fewer prompts than asked for, and never more.
    let sent = run.timelines.len() as u64;
    if let Some(asked) = run.declared.num_prompts.filter(|&asked| asked < sent) {
        differ.push(format!("`num_prompts` says {asked}, and {sent} were sent"));
    }
    if let (Some(stated), Some(found)) = (run.stated.get(MEAN_TTFT), mean_ttft_ms(run))
        && MEAN_TOLERANCE * stated.max(found) < (stated - found).abs()
    {
        let (stated, found) = (value(stated), value(found));
        differ.push(format!("`{MEAN_TTFT}` says {stated}, the requests {found}"));
    }
    if !differ.is_empty() {
        run.note("counts-disagree", &["request_throughput", "goodput"], differ.join("; "));
    }
}

/// The key of the mean TTFT, in ms.
const MEAN_TTFT: &str = "mean_ttft_ms";

/// Mean TTFT of the completed requests in ms, as the tool wrote them, if each is known.
fn mean_ttft_ms(run: &Run) -> Option<f64> {
    let written = run.column("ttft_as_written_s").map(|c| &c.values);
    let (mut sum, mut n) = (0.0, 0_u64);
    for (i, t) in run.timelines.iter().enumerate() {
        if t.outcome() != Outcome::Completed {
            continue;
        }
        sum += match written {
            Some(Values::Number(values)) => values.get(i).copied().flatten()?,
            _ => t.ttft()?.get(),
        };
        n += 1;
    }
    (0 < n).then(|| 1e3 * sum / n as f64)
}

/// The input tokens of all completed requests, if each count is known.
pub(crate) fn asked_tokens(run: &Run) -> Option<u64> {
    sum_completed(run, RequestTimeline::input_tokens)
}

/// The output tokens of all completed requests, if each count is known.
pub(crate) fn answered_tokens(run: &Run) -> Option<u64> {
    sum_completed(run, RequestTimeline::output_tokens)
}

fn sum_completed(run: &Run, of: impl Fn(&RequestTimeline) -> Option<u64>) -> Option<u64> {
    run.timelines
        .iter()
        .filter(|t| t.outcome() == Outcome::Completed)
        .try_fold(0_u64, |sum, t| sum.checked_add(of(t)?))
}
