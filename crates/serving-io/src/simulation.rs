//! A simulated run as [our timelines](crate::timeline), every instant in whole picoseconds.
//!
//! A [`RequestTimeline`](metrics_core::RequestTimeline) keeps durations as floats; what is written
//! here comes from the run's own records, so that the file has every digit that a run puts out,
//! however long it took.

use std::io::{self, Write};

use sched_sim::RunResult;

use crate::timeline::{Header, Writer};

/// The tool of a header, by which a run is known as one that was simulated.
pub const TOOL: &str = "goodput sim";

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
/// let file = write(Vec::new(), &result, &Header { duration, ..Header::default() })?;
/// let line = String::from_utf8(file)?;
/// assert!(line.contains(r#""duration_ps":"5000000000""#));
/// assert!(line.contains(r#""first_token_ps":"3000000000","last_token_ps":"5000000000""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(out: W, result: &RunResult<'_>, header: &Header) -> io::Result<W> {
    let mut writer = Writer::new(out, Some(header))?;
    for fields in result.timeline_fields() {
        writer.fields(&fields)?;
    }
    writer.finish()
}
