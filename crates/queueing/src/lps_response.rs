//! The response time under limited processor sharing: wait, and service at a speed that the batch
//! sets while it changes.
//!
//! A job that waits counts those ahead of it and those that came after it; in service only the number
//! in the system matters. With exponential work both are a chain, whose jumps a Poisson clock sets.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

use crate::error::{QueueError, Result, not_negative};
use crate::lps::LpsStateDependent;
use crate::tail::Tail;

/// Most waiting places of which the response is computed: half their square is the number of states.
pub const MAX_WAITING: u64 = 1000;

/// Additions after which the response must have settled: some seconds.
const WORK: f64 = 4e9;

/// The distribution of the response time of jobs that are let in.
///
/// The survival function is right to about 1e-13; below 1e-30 it is extrapolated.
///
/// # Examples
///
/// ```
/// use queueing::LpsStateDependent;
///
/// // One slot of rate 1 without a queue: the response is the service.
/// let alone = LpsStateDependent::new(1.0, &[1.0], Some(0))?.response()?;
/// assert!((alone.w_sf(2.0)? - (-2.0_f64).exp()).abs() < 1e-14);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LpsResponse {
    tail: Tail,
}

impl LpsResponse {
    /// Probability that the response takes longer than `t`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `t` is finite and not negative.
    pub fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.tail.late(t).0)
    }

    /// Probability that the response takes at most `t`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `t` is finite and not negative.
    pub fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.tail.late(t).1)
    }

    /// Shortest time within which the response comes with probability `p`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `p` is from 0 to 1; [`QueueError::NotConverged`] if it is not found.
    pub fn w_quantile(&self, p: f64) -> Result<f64> {
        self.tail.quantile(p)
    }

    /// Mean response time, from the distribution itself.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.tail.mean()
    }
}

impl LpsStateDependent {
    /// The distribution of the response time of jobs that are let in.
    ///
    /// The cost grows with the square of the waiting places, and with how many jumps pass in a long
    /// response: about 0.1 s for 48 slots and 128 places. Unlimited room is cut where an arrival finds
    /// more than that many jobs waiting with a probability below 1e-17.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSolution`] for more than 1000 waiting places; [`QueueError::NotConverged`] if
    /// rates differ by so many orders of magnitude that it would take minutes.
    pub fn response(&self) -> Result<LpsResponse> {
        let room = self.room();
        let waiting = match room {
            Some(places) => places,
            // ρ^j below 1e-17.
            None if self.load() == 0.0 => 0,
            None => (-39.2 / self.load().ln()).ceil().min(1e9) as u64,
        };
        if MAX_WAITING < waiting {
            let what = if room.is_some() { "" } else { " (to hold all but 1e-17 of the jobs)" };
            let reason = format!(
                "waiting places{what} must be at most {MAX_WAITING} for the response time, got {waiting}"
            );
            return Err(QueueError::NoSolution { reason });
        }
        let mut chain = Chain::new(self, waiting as usize)?;
        let states = (waiting * waiting / 2 + waiting + self.slots()) as f64;
        let jumps = (WORK / states).min(1e6) as u32;
        let tail = Tail::of_jumps(chain.clock, (chain.mass(), 0.0), 1e-30, jumps, || {
            let gone = chain.jump();
            (chain.mass(), gone)
        })?;
        Ok(LpsResponse { tail })
    }
}

/// Where the job may be, with the probability of each.
struct Chain {
    clock: f64,
    /// λ over the clock.
    arrival: f64,
    /// Rate of a full batch over the clock.
    full: f64,
    /// Share of the jumps from n in service or more: a departure, and the job's own.
    leave: Vec<f64>,
    own: Vec<f64>,
    slots: usize,
    waiting: usize,
    /// By the number in the system, from 1 on: in service.
    served: Vec<f64>,
    /// By those ahead, then those behind: waiting.
    queued: Vec<Vec<f64>>,
}

impl Chain {
    fn new(queue: &LpsStateDependent, waiting: usize) -> Result<Self> {
        let rates = queue.rates();
        let slots = rates.len();
        let clock = queue.lambda() + rates.iter().copied().fold(0.0, f64::max);
        let states = slots + waiting;
        let mut served = vec![0.0; states];
        let mut queued: Vec<Vec<f64>> = (0..waiting).map(|a| vec![0.0; waiting - a]).collect();
        let mut total = 0.0;
        for n in 0..states {
            let p = crate::model::Queue::pn(queue, n as u64)?;
            total += p;
            if n < slots {
                served[n] = p;
            } else {
                queued[n - slots][0] = p;
            }
        }
        // What an accepted arrival finds.
        if 0.0 < total {
            for p in served.iter_mut().chain(queued.iter_mut().flatten()) {
                *p /= total;
            }
        } else {
            // With 10^300 times too many arrivals one that is let in takes the last place.
            match queued.last_mut().and_then(|row| row.first_mut()) {
                Some(last) => *last = 1.0,
                None => served[slots - 1] = 1.0,
            }
        }
        let leave = (1..=states).map(|n| rates[n.min(slots) - 1] / clock).collect();
        let own = (1..=states).map(|n| 1.0 / n.min(slots) as f64).collect();
        Ok(Self {
            clock,
            arrival: queue.lambda() / clock,
            full: rates[slots - 1] / clock,
            leave,
            own,
            slots,
            waiting,
            served,
            queued,
        })
    }

    fn mass(&self) -> f64 {
        self.served.iter().sum::<f64>() + self.queued.iter().flatten().sum::<f64>()
    }

    /// One tick of the clock; what leaves at it.
    fn jump(&mut self) -> f64 {
        let states = self.slots + self.waiting;
        let mut gone = 0.0;
        let mut served = vec![0.0; states];
        for (i, &p) in self.served.iter().enumerate() {
            let (leave, own) = (self.leave[i], self.own[i]);
            // A full system turns the arrival away.
            let arrival = if i + 1 < states { self.arrival } else { 0.0 };
            served[i] += p * (1.0 - leave - arrival).max(0.0);
            if i + 1 < states {
                served[i + 1] += p * arrival;
            }
            gone += p * leave * own;
            if 0 < i {
                served[i - 1] += p * leave * (1.0 - own);
            }
        }
        let stay = (1.0 - self.full - self.arrival).max(0.0);
        for ahead in 0..self.waiting {
            let (row, next) = {
                let (left, right) = self.queued.split_at_mut(ahead + 1);
                (&mut left[ahead], right.first())
            };
            let last = row.len() - 1;
            if ahead == 0 {
                // The head enters service with `behind` others in line.
                for (behind, &p) in row.iter().enumerate() {
                    served[self.slots + behind - 1] += p * self.full;
                }
            }
            // From the far end, so that each cell still finds its neighbour's old mass.
            for behind in (0..=last).rev() {
                let turned = if behind == last { self.arrival } else { 0.0 };
                let mut p = row[behind] * (stay + turned);
                if 0 < behind {
                    p += row[behind - 1] * self.arrival;
                }
                if let Some(&ahead) = next.and_then(|next| next.get(behind)) {
                    p += ahead * self.full;
                }
                row[behind] = p;
            }
        }
        self.served = served;
        gone
    }
}
