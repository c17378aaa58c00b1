//! The smallest batch limit that loses hardly any throughput: the autoscaler's `/optimize`.

use crate::error::{QueueError, Result, positive, target};
use crate::lps::{Autoscaler, ServerState};

/// A batch limit, and what the server reaches with it under the limits on the means.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchChoice {
    /// The batch limit.
    pub max_batch: u64,
    /// The largest arrival rate at which mean TTFT and mean time between tokens keep their limits.
    pub rate: f64,
    /// The server at that rate.
    pub state: ServerState,
    /// Throughput with the largest batch limit that was allowed.
    pub peak: f64,
}

impl Autoscaler {
    /// The largest rate at which mean TTFT is at most `ttft` and the mean time between tokens at most
    /// `itl`.
    ///
    /// # Errors
    ///
    /// As [`max_rate_for_ttft`](Self::max_rate_for_ttft).
    pub fn max_rate_for_means(&self, ttft: f64, itl: f64) -> Result<f64> {
        Ok(self.max_rate_for_ttft(ttft)?.min(self.max_rate_for_itl(itl)?))
    }

    /// The smallest batch limit whose throughput under both limits is at least `share` of that with
    /// this server's own `max_batch`, which bounds the search.
    ///
    /// The autoscaler takes a share of 0.99. The search takes the throughput to rise with the batch
    /// until it is reached, as it does where waiting is what a small batch costs; the result reaches
    /// it, and a batch of one less does not.
    ///
    /// # Errors
    ///
    /// As [`max_rate_for_ttft`](Self::max_rate_for_ttft) for the server itself; [`QueueError`] unless
    /// `share` is above 0 and below 1.
    ///
    /// # Examples
    ///
    /// The autoscaler's published example, in milliseconds, of at most 256. It prints 49, since its
    /// search ends after six halvings between 31 and 256; 48 reach the share too.
    ///
    /// ```
    /// use queueing::lps::{Autoscaler, ServingLaw};
    ///
    /// let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    /// let choice = Autoscaler::new(law, 128.0, 512.0, 256, 128)?.smallest_batch(60.0, 20.0, 0.99)?;
    /// assert_eq!(choice.max_batch, 48);
    /// assert!((choice.state.throughput / choice.peak - 0.99).abs() < 0.003);
    /// # Ok::<(), queueing::QueueError>(())
    /// ```
    ///
    /// Source: llm-inferno/queue-analysis, `/optimize` in README.md and `pkg/analyzer/concurrency.go`.
    pub fn smallest_batch(&self, ttft: f64, itl: f64, share: f64) -> Result<BatchChoice> {
        let (ttft, itl) = (positive("ttft", ttft)?, positive("itl", itl)?);
        let share = target("share", share)?;
        let most = self.max_batch();
        let at = |max_batch: u64| -> Result<(f64, ServerState)> {
            let server = self.with_max_batch(max_batch)?;
            let rate = server.max_rate_for_means(ttft, itl)?;
            Ok((rate, server.at(rate)?))
        };
        let (mut rate, mut state) = at(most)?;
        let peak = state.throughput;
        let goal = share * peak;
        // `None`: below the goal, or the limits cannot be met with so small a batch.
        let reaches = |max_batch: u64| match at(max_batch) {
            Ok((rate, state)) => Ok((goal <= state.throughput).then_some((rate, state))),
            Err(QueueError::NoSolution { .. }) => Ok(None),
            Err(e) => Err(e),
        };
        let (mut low, mut high) = (0, most);
        while 1 < high - low {
            let middle = low + (high - low) / 2;
            if let Some(found) = reaches(middle)? {
                (high, (rate, state)) = (middle, found);
            } else {
                low = middle;
            }
        }
        Ok(BatchChoice { max_batch: high, rate, state, peak })
    }
}
