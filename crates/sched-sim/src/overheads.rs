//! What a server adds to the time of its kernels.

use crate::error::{Result, SimError};
use crate::step_time::{Affine, MeanWork, StepTime, StepWork, StretchTime};
use crate::time::Ticks;

/// Times of a step that are in no kernel: scheduling, tokenizing, copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerOverheads {
    /// Of every step.
    pub step: Ticks,
    /// Of each prompt chunk in a step.
    pub prompt_chunk: Ticks,
    /// Of each request in a step, prompt chunk or decode.
    pub request: Ticks,
}

/// A step time with what the server adds to it.
///
/// ```text
/// t + step + prompt_chunk · prompt chunks + request · requests
/// ```
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, ServerOverheads, StepTime, StepWork, Ticks, WithOverheads};
///
/// let kernels: Affine = "base=10ms".parse()?;
/// let overheads = ServerOverheads {
///     step: "1ms".parse()?,
///     prompt_chunk: "2ms".parse()?,
///     request: "10us".parse()?,
/// };
/// let mut work = StepWork::default();
/// (work.prefills, work.prefill_tokens, work.decodes) = (1, 100, 9);
/// // 10 + 1 + 2 + 10 requests of 0.01 ms.
/// assert_eq!(WithOverheads::new(kernels, overheads)?.step(&work), "13.1ms".parse::<Ticks>()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithOverheads<T> {
    inner: T,
    overheads: ServerOverheads,
}

impl<T> WithOverheads<T> {
    /// Adds overheads to a step time.
    ///
    /// # Errors
    ///
    /// [`SimError::Coefficient`] for an overhead above [`Affine::LARGEST`].
    pub fn new(inner: T, overheads: ServerOverheads) -> Result<Self> {
        for (input, value) in [
            ("overhead of a step", overheads.step),
            ("overhead of a prompt chunk", overheads.prompt_chunk),
            ("overhead of a request", overheads.request),
        ] {
            if Affine::LARGEST < value {
                return Err(SimError::Coefficient { input, max: Affine::LARGEST, value });
            }
        }
        Ok(Self { inner, overheads })
    }

    /// The step time without them.
    #[must_use]
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// What is added.
    #[must_use]
    pub const fn overheads(&self) -> ServerOverheads {
        self.overheads
    }

    fn added(&self, prompt_chunks: u64, requests: u64) -> Ticks {
        let o = &self.overheads;
        let chunks = o.prompt_chunk.0 * u128::from(prompt_chunks);
        Ticks(o.step.0 + chunks + o.request.0 * u128::from(requests))
    }
}

impl<T: StepTime> StepTime for WithOverheads<T> {
    fn step(&self, work: &StepWork) -> Ticks {
        self.inner.step(work).after(self.added(work.prefills, work.requests()))
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        let stretch = self.inner.stretch(work);
        let added = self.added(work.prefills, work.requests());
        StretchTime { first: stretch.first.after(added), ..stretch }
    }

    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        let alone = self.inner.decode_alone(context, mixed);
        StretchTime { first: alone.first.after(self.added(0, 1)), ..alone }
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        let o = &self.overheads;
        self.inner.mean_seconds(mean)
            + o.step.seconds()
            + o.prompt_chunk.seconds() * mean.prefills
            + o.request.seconds() * (mean.prefills + mean.decodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TwoRegime;

    fn form() -> WithOverheads<TwoRegime> {
        let t = |s: &str| s.parse::<Ticks>().unwrap();
        let kernels: TwoRegime = "decode:base=6ms,decode=20us/request,context=40ns/token; \
             mixed:base=7ms,prefill=30us/token,decode=30us/request; floor=9ms"
            .parse()
            .unwrap();
        let overheads =
            ServerOverheads { step: t("1ms"), prompt_chunk: t("300us"), request: t("5us") };
        WithOverheads::new(kernels, overheads).unwrap()
    }

    #[test]
    fn a_stretch_is_its_steps_one_by_one() {
        for (prompt, decodes) in [(0, 7), (512, 3), (16, 0), (16, 40)] {
            let mut w = StepWork::default();
            if 0 < prompt {
                w.add_chunk(prompt, 0);
            }
            (w.decodes, w.decode_context) = (decodes, 100 * decodes);
            let stretch = form().stretch(&w);
            for j in (0..4).take_while(|j| *j < stretch.steps) {
                assert_eq!(stretch.step(j), form().step(&w.after(j)), "{w:?} {j}");
            }
        }
    }

    /// 6 + 1 ms, and 0.02 + 0.005 for the request.
    #[test]
    fn a_decode_alone_pays_for_its_step() {
        let alone = form().decode_alone(0, false).first;
        assert_eq!(alone, "7.025ms".parse().unwrap());
    }

    #[test]
    fn an_absurd_overhead_is_refused_by_name() {
        let overheads =
            ServerOverheads { request: "1001s".parse().unwrap(), ..ServerOverheads::default() };
        let said = WithOverheads::new(form(), overheads).unwrap_err().to_string();
        assert!(said.starts_with("overhead of a request"), "{said}");
    }
}
