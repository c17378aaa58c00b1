//! Whether a request may enter: the admission rule and the token bucket.

use crate::error::{Result, above, difference, within};
#[cfg(feature = "catalog")]
use crate::metric::{Computed, Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{Requests, RequestsPerSecond, Seconds};

/// The share of the SLO that the P99 may reach before the door closes.
pub const SLO_SHARE: f64 = 0.8;

/// Whether a new request is admitted: only while queue, KV cache and tail latency all have room.
///
/// ```text
/// admit = if queue_depth < queue_limit and kv_utilization < kv_limit and p99 < 0.8 * slo then 1 else 0
/// ```
///
/// `queue_depth` counts the waiting requests, `kv_utilization` is the share of the KV blocks in
/// use, `p99` the 99th percentile of the latency that `slo` limits, over a recent window. Every
/// sign is strict: at a limit the door is closed, so a `queue_limit` of 0 admits nothing. P99
/// reacts late: it holds requests that were admitted long before.
///
/// # Errors
///
/// [`Error::NotFinite`](crate::Error::NotFinite), [`Error::TooSmall`](crate::Error::TooSmall) or
/// [`Error::TooLarge`](crate::Error::TooLarge) unless `kv_utilization` and `kv_limit` are shares
/// from 0 to 1; [`Error::NotAbove`](crate::Error::NotAbove) if `slo` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, admission::admit};
///
/// let slo = Seconds::new(0.5)?;
/// assert!(admit(3, 16, 0.7, 0.9, Seconds::new(0.375)?, slo)?);
/// assert!(!admit(3, 16, 0.7, 0.9, Seconds::new(0.45)?, slo)?); // 0.45 s is not below 0.4 s
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: this project's admission rule, after the metric dictionary, 7.
pub fn admit(
    queue_depth: u64,
    queue_limit: u64,
    kv_utilization: f64,
    kv_limit: f64,
    p99: Seconds,
    slo: Seconds,
) -> Result<bool> {
    let used = within("kv_utilization", kv_utilization, 0.0, 1.0)?;
    let kv_limit = within("kv_limit", kv_limit, 0.0, 1.0)?;
    let slo = above("slo", slo.get(), 0.0)?;
    Ok(queue_depth < queue_limit && used < kv_limit && p99.get() < SLO_SHARE * slo)
}

/// The catalog entry of [`admit`].
#[cfg(feature = "catalog")]
pub const ADMIT: Metric = Metric {
    id: "admit",
    symbol: r"\mathbb{1}_{\mathrm{admit}}",
    name: text("Admission rule", "准入规则"),
    layer: Layer::Scheduling,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "queue_depth",
            "Q",
            Unit::REQUEST,
            (0.0, 8.0),
            text("waiting requests", "排队请求数"),
        ),
        Input::whole(
            "queue_limit",
            r"\theta_Q",
            Unit::REQUEST,
            (0.0, 16.0),
            text("queue limit", "队列上限"),
        ),
        Input::real(
            "kv_utilization",
            r"\rho_{\mathrm{KV}}",
            Unit::ONE,
            (0.0, 1.0),
            text("KV-cache utilization", "KV Cache 利用率"),
        ),
        Input::real(
            "kv_limit",
            r"\theta_{\mathrm{KV}}",
            Unit::ONE,
            (0.0, 1.0),
            text("limit of the KV-cache utilization", "KV Cache 利用率上限"),
        ),
        Input::real(
            "p99",
            r"\mathrm{P99}",
            Unit::SECOND,
            (0.0, 2.0),
            text("99th percentile of the latency", "时延的 P99"),
        ),
        Input::real(
            "slo",
            r"\mathrm{SLO}",
            Unit::SECOND,
            (0.1, 4.0),
            text("SLO of that latency", "该时延的 SLO"),
        ),
    ],
    formula: Formula::Scalar {
        text: "if queue_depth < queue_limit and kv_utilization < kv_limit and p99 < 0.8 * slo then 1 else 0",
        eval: |x| {
            let admitted = admit(
                whole("queue_depth", x[0])?,
                whole("queue_limit", x[1])?,
                x[2],
                x[3],
                Seconds::new(x[4])?,
                Seconds::new(x[5])?,
            )?;
            Ok(Computed { value: f64::from(u8::from(admitted)), unit: Unit::ONE })
        },
        example: (&[3.0, 16.0, 0.7, 0.9, 0.375, 0.5], 1.0),
    },
    path: "metrics_core::admission::admit",
    source: Source { work: "this project, after the metric dictionary", section: "7" },
    note: text(
        "1 means admitted; every sign is strict, so that at a limit the door is closed.",
        "1 表示准入；所有不等号都是严格的，达到上限即拒绝。",
    ),
    exported: &[],
};

/// Fill of a token bucket after some time: permits come at a steady rate up to the bucket's size.
///
/// ```text
/// token_bucket = min(tokens + rate * dt, burst)
/// ```
///
/// `tokens` is the fill at the beginning, `dt` the time since, `rate` how fast permits come and
/// `burst` how many the bucket holds. A permit admits one request: the bucket's tokens are not the
/// model's.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if `tokens > burst`,
/// [`Error::TooLarge`](crate::Error::TooLarge) if `rate * dt` leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, admission::token_bucket, units::{Requests, RequestsPerSecond}};
///
/// let (n, r) = (Requests::new, RequestsPerSecond::new);
/// assert_eq!(token_bucket(n(2.0)?, Seconds::new(0.5)?, r(4.0)?, n(10.0)?)?, n(4.0)?);
/// assert_eq!(token_bucket(n(2.0)?, Seconds::new(60.0)?, r(4.0)?, n(10.0)?)?, n(10.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: this project's rate limit; RFC 2697, section 3, on token buckets.
pub fn token_bucket(
    tokens: Requests,
    dt: Seconds,
    rate: RequestsPerSecond,
    burst: Requests,
) -> Result<Requests> {
    difference(("burst", burst.get()), ("tokens", tokens.get()))?;
    let filled = Requests::named("tokens + rate * dt", tokens.get() + rate.get() * dt.get())?;
    Ok(if burst < filled { burst } else { filled })
}

/// The catalog entry of [`token_bucket`].
#[cfg(feature = "catalog")]
pub const TOKEN_BUCKET: Metric = Metric {
    id: "token_bucket",
    symbol: r"k(t)",
    name: text("Token bucket", "令牌桶"),
    layer: Layer::Scheduling,
    unit: Unit::REQUEST,
    inputs: &[
        Input::real(
            "tokens",
            r"k(t - \Delta t)",
            Unit::REQUEST,
            (0.0, 50.0),
            text("permits at the beginning", "初始令牌数"),
        ),
        Input::real("dt", r"\Delta t", Unit::SECOND, (0.0, 10.0), text("time since", "经过的时间")),
        Input::real(
            "rate",
            "r",
            Unit::REQUEST.per(Unit::SECOND),
            (0.0, 20.0),
            text("rate at which permits come", "令牌补充速率"),
        ),
        Input::real(
            "burst",
            "b",
            Unit::REQUEST,
            (0.0, 100.0),
            text("permits that the bucket holds", "桶容量"),
        ),
    ],
    formula: Formula::Scalar {
        text: "min(tokens + rate * dt, burst)",
        eval: |x| {
            computed(token_bucket(
                Requests::new(x[0])?,
                Seconds::new(x[1])?,
                RequestsPerSecond::new(x[2])?,
                Requests::new(x[3])?,
            ))
        },
        example: (&[2.0, 0.5, 4.0, 10.0], 4.0),
    },
    path: "metrics_core::admission::token_bucket",
    source: Source { work: "this project; RFC 2697", section: "3" },
    note: text(
        "Its tokens are permits for requests, not tokens of the model.",
        "桶中的令牌是请求的许可，不是模型的 token。",
    ),
    exported: &[],
};

/// A token bucket with its fill, on the caller's clock.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, admission::TokenBucket, units::{Requests, RequestsPerSecond}};
///
/// let one = Requests::new(1.0)?;
/// let mut bucket = TokenBucket::full(RequestsPerSecond::new(2.0)?, one, Seconds::ZERO);
/// assert!(bucket.try_take(Seconds::ZERO, one)?);
/// assert!(!bucket.try_take(Seconds::new(0.25)?, one)?); // half a permit has come
/// assert!(bucket.try_take(Seconds::new(0.5)?, one)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    rate: RequestsPerSecond,
    burst: Requests,
    tokens: Requests,
    at: Seconds,
}

impl TokenBucket {
    /// A full bucket at the instant `at`.
    #[must_use]
    pub const fn full(rate: RequestsPerSecond, burst: Requests, at: Seconds) -> Self {
        Self { rate, burst, tokens: burst, at }
    }

    /// The permits in it at the last refill.
    #[must_use]
    pub const fn tokens(&self) -> Requests {
        self.tokens
    }

    /// Adds what has come since the last refill, by [`token_bucket`].
    ///
    /// # Errors
    ///
    /// [`Error::Order`](crate::Error::Order) if `now` is before the last refill; the bucket stays
    /// as it was.
    pub fn refill(&mut self, now: Seconds) -> Result<()> {
        let dt = difference(("now", now.get()), ("the last refill", self.at.get()))?;
        self.tokens = token_bucket(self.tokens, Seconds::new(dt)?, self.rate, self.burst)?;
        self.at = now;
        Ok(())
    }

    /// Refills, then takes `cost` permits if they are there; `false` leaves them in the bucket.
    ///
    /// # Errors
    ///
    /// As [`Self::refill`], and [`Error::Order`](crate::Error::Order) if `cost` is more than the
    /// bucket ever holds: waiting would never help.
    pub fn try_take(&mut self, now: Seconds, cost: Requests) -> Result<bool> {
        difference(("burst", self.burst.get()), ("cost", cost.get()))?;
        self.refill(now)?;
        let there = cost <= self.tokens;
        if there {
            self.tokens = self.tokens.minus(cost)?;
        }
        Ok(there)
    }
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&ADMIT, &TOKEN_BUCKET];

#[cfg(test)]
mod tests {
    use super::*;

    fn n(x: f64) -> Requests {
        Requests::new(x).unwrap()
    }

    fn s(x: f64) -> Seconds {
        Seconds::new(x).unwrap()
    }

    /// Each limit alone closes the door at the limit itself and opens it a little below.
    #[test]
    fn each_limit_closes_the_door_at_the_limit() {
        let open = |q, kv, p99| admit(q, 4, kv, 0.75, s(p99), s(1.0)).unwrap();
        assert!(open(3, 0.74, 0.79));
        assert!(!open(4, 0.74, 0.79));
        assert!(!open(3, 0.75, 0.79));
        assert!(!open(3, 0.74, 0.8));
        assert!(!admit(0, 0, 0.0, 0.75, s(0.0), s(1.0)).unwrap());
    }

    #[test]
    fn shares_and_slo_out_of_range_are_named() {
        let say = |kv, limit, slo| admit(0, 1, kv, limit, s(0.1), s(slo)).unwrap_err().to_string();
        assert_eq!(say(1.5, 0.9, 1.0), "kv_utilization must be at most 1, got 1.5");
        assert_eq!(say(f64::NAN, 0.9, 1.0), "kv_utilization must be a finite number, got NaN");
        assert_eq!(say(0.5, -0.1, 1.0), "kv_limit must be at least 0, got -0.1");
        assert_eq!(say(0.5, 0.9, 0.0), "slo must be above 0, got 0");
    }

    /// Over any long time no more passes than one burst and what the rate brings.
    #[test]
    fn a_bucket_never_lets_more_through_than_burst_and_rate() {
        let rate = RequestsPerSecond::new(2.0).unwrap();
        let mut bucket = TokenBucket::full(rate, n(5.0), s(0.0));
        let mut passed = 0;
        for tick in 0..=1_000 {
            let now = s(f64::from(tick) * 0.0625);
            while bucket.try_take(now, n(1.0)).unwrap() {
                passed += 1;
            }
        }
        // 62.5 s at 2/s are 125 permits, and 5 were there.
        assert_eq!(passed, 130);
    }

    #[test]
    fn a_clock_that_runs_back_is_refused_and_changes_nothing() {
        let rate = RequestsPerSecond::new(1.0).unwrap();
        let mut bucket = TokenBucket::full(rate, n(1.0), s(10.0));
        let before = bucket;
        assert_eq!(
            bucket.try_take(s(9.0), n(1.0)).unwrap_err().to_string(),
            "now must be at least the last refill = 10, got 9"
        );
        assert_eq!(bucket, before);
        assert!(bucket.try_take(s(10.0), n(2.0)).is_err());
        assert!(token_bucket(n(2.0), s(1.0), rate, n(1.0)).is_err());
    }
}
