//! A simulated run as [our timelines](crate::timeline), every instant in whole picoseconds.
//!
//! A [`RequestTimeline`](metrics_core::RequestTimeline) keeps durations as floats; what is written
//! here comes from the run's own records, so that the file has every digit that a run puts out,
//! however long it took.

use std::io::{self, Write};

use metrics_core::Outcome;
use metrics_core::timeline::TimelineFields;
use sched_sim::{RunResult, Ticks, Workload};

use crate::timeline::{Header, Writer};

/// The fields of each request that arrived, in order of arrival, instants from the start of the
/// run; what is not finished is cut off.
///
/// `workload` is the one that was run.
pub fn fields<'a>(
    workload: &'a Workload,
    result: &'a RunResult<'_>,
) -> impl Iterator<Item = TimelineFields> + 'a {
    let injected = usize::try_from(result.statistics().injected).unwrap_or(usize::MAX);
    let mut cut_off = result.unfinished().iter().peekable();
    let rows = workload.requests().iter().zip(result.records()).enumerate().take(injected);
    rows.map(move |(position, (r, record))| {
        let completed = record.last_token().is_some();
        let decoded = match cut_off.next_if(|u| u.position == position) {
            Some(u) => u.decoded,
            None if completed => r.output_tokens,
            None => 0,
        };
        TimelineFields {
            id: r.id.to_string(),
            arrival: Some(r.arrival.instant()),
            scheduled: record.scheduled().map(Ticks::instant),
            first_token: record.first_token().map(Ticks::instant),
            last_token: record.last_token().map(Ticks::instant),
            input_tokens: Some(r.input_tokens),
            output_tokens: Some(decoded),
            outcome: if completed { Outcome::Completed } else { Outcome::CutOff },
            ..TimelineFields::default()
        }
    })
}

/// Writes the run with a header, and gives the writer back.
///
/// # Errors
///
/// What the system says.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
/// use serving_io::simulation::write;
/// use serving_io::timeline::Header;
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let step: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let result = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step).run()?;
/// let duration = Some(result.statistics().end.instant());
///
/// let file = write(Vec::new(), &workload, &result, &Header { duration, ..Header::default() })?;
/// let line = String::from_utf8(file)?;
/// assert!(line.contains(r#""duration_ps":"5000000000""#));
/// assert!(line.contains(r#""first_token_ps":"3000000000","last_token_ps":"5000000000""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(
    out: W,
    workload: &Workload,
    result: &RunResult<'_>,
    header: &Header,
) -> io::Result<W> {
    let mut writer = Writer::new(out, Some(header))?;
    for fields in fields(workload, result) {
        writer.fields(&fields)?;
    }
    writer.finish()
}
