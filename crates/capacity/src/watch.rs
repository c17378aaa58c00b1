//! A step time that remembers what it was asked for, so that a simulation can say that it left
//! the range in which the step time is known to hold.

use std::cell::Cell;

use sched_sim::{MeanWork, StepTime, StepWork, StretchTime, Ticks};
use serving_io::fitted::FittedRegime;

/// The largest work of the steps of one regime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    steps: u64,
    prefill_tokens: u64,
    decodes: u64,
    context: u64,
}

impl Seen {
    fn with(self, work: &StepWork) -> Self {
        Self {
            steps: self.steps + 1,
            prefill_tokens: self.prefill_tokens.max(work.prefill_tokens),
            decodes: self.decodes.max(work.decodes),
            context: self.context.max(work.decode_context),
        }
    }
}

/// A step time that remembers its largest works.
///
/// While a batch only ages, the context of a stretch is seen at its beginning and by the next
/// event; the few tokens after the last event of a run are not seen.
#[derive(Debug)]
pub struct Watched<T> {
    inner: T,
    seen: [Cell<Seen>; 2],
}

impl<T: StepTime> Watched<T> {
    /// Watches a step time.
    #[must_use]
    pub fn new(inner: T) -> Self {
        Self { inner, seen: Default::default() }
    }

    /// The step time itself, which does not remember.
    #[must_use]
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    fn note(&self, work: &StepWork) {
        let cell = &self.seen[usize::from(work.prefills != 0)];
        cell.set(cell.get().with(work));
    }

    /// What was asked for beyond the ranges of a fit, one sentence a regime; none where all was
    /// within, or where no range is known.
    #[must_use]
    pub fn beyond(&self, ranges: &[FittedRegime]) -> Vec<String> {
        let mut said = Vec::new();
        for (prefill, cell) in [(false, &self.seen[0]), (true, &self.seen[1])] {
            let seen = cell.get();
            let own: Vec<&FittedRegime> = ranges.iter().filter(|r| r.covers(prefill)).collect();
            if own.is_empty() || seen.steps == 0 {
                continue;
            }
            let most = |of: fn(&FittedRegime) -> f64| own.iter().map(|r| of(r)).fold(0.0, f64::max);
            let mut parts = Vec::new();
            for (what, value, most) in [
                ("prompt tokens", seen.prefill_tokens, most(|r| r.prefill_tokens[1])),
                ("decodes", seen.decodes, most(|r| r.decodes[1])),
                ("context tokens", seen.context, most(|r| r.context[1])),
            ] {
                if most < value as f64 {
                    parts.push(format!("{value} {what}, measured up to {most:.0}"));
                }
            }
            if !parts.is_empty() {
                let regime = if prefill { "steps with prefill" } else { "pure decode steps" };
                said.push(format!("{regime} of up to {}", parts.join("; of up to ")));
            }
        }
        said
    }
}

impl<T: StepTime> StepTime for Watched<T> {
    fn step(&self, work: &StepWork) -> Ticks {
        self.note(work);
        self.inner.step(work)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        self.note(work);
        self.inner.stretch(work)
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        self.inner.mean_seconds(mean)
    }
}
