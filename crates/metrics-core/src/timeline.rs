//! What happened to one request: the type in which simulated and measured requests meet.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::plain;
use crate::latency::RequestMetrics;
use crate::units::{Seconds, SecondsPerToken};

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered in full.
    #[default]
    Completed,
    /// The server or the connection failed; a miss of every SLO.
    Failed,
    /// Refused at admission; a miss.
    Rejected,
    /// The client gave up waiting; a miss.
    TimedOut,
    /// The user cancelled; neither good nor a miss.
    Cancelled,
    /// Still in flight when the run ended; neither good nor a miss.
    CutOff,
}

impl Outcome {
    /// All outcomes, in the order in which reports list them.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Failed,
        Self::Rejected,
        Self::TimedOut,
        Self::Cancelled,
        Self::CutOff,
    ];

    /// The outcome's name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::CutOff => "cut_off",
        }
    }

    /// Whether it counts as a miss of the SLO without an answer.
    #[must_use]
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected | Self::TimedOut)
    }
}

/// An instant as a file gives it.
///
/// The difference of two picosecond stamps is exact; it is rounded once, to the nearest `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instant {
    /// Seconds from any fixed origin.
    Seconds(f64),
    /// Whole picoseconds from any fixed origin, as the simulator writes them.
    Picoseconds(u128),
}

/// Picoseconds in a second.
const PICOSECONDS: f64 = 1e12;

/// Picoseconds in seconds, rounded once each in conversion and division.
fn in_seconds(picoseconds: u128) -> f64 {
    // Both conversions round to the nearest, and the one from 64 bits is an instruction.
    u64::try_from(picoseconds).map_or_else(|_| wide(picoseconds), |short| short as f64)
        / PICOSECONDS
}

/// Apart, or it would be computed beside the other and not chosen.
#[cold]
#[inline(never)]
fn wide(picoseconds: u128) -> f64 {
    picoseconds as f64
}

impl Instant {
    /// The instant in seconds from its origin.
    #[must_use]
    pub fn seconds(self) -> f64 {
        match self {
            Self::Seconds(s) => s,
            Self::Picoseconds(ps) => in_seconds(ps),
        }
    }

    /// The time from `earlier` to `self`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`], [`Error::TooSmall`] for an instant before its origin, or
    /// [`Error::Order`] if `earlier` is later; each names the fields.
    #[inline]
    pub fn since(
        self,
        name: &'static str,
        earlier: Self,
        earlier_name: &'static str,
    ) -> Result<Seconds> {
        match (self, earlier) {
            (Self::Picoseconds(b), Self::Picoseconds(a)) if a <= b => {
                Seconds::named(name, in_seconds(b - a))
            }
            _ => self.since_in_seconds(name, earlier, earlier_name),
        }
    }

    /// The same, unless both are picoseconds and in order.
    fn since_in_seconds(
        self,
        name: &'static str,
        earlier: Self,
        earlier_name: &'static str,
    ) -> Result<Seconds> {
        if let (Self::Picoseconds(_), Self::Picoseconds(_)) = (self, earlier) {
            // In seconds, two large stamps in the wrong order can round to the same number.
            return Err(Error::Order {
                later: name,
                later_value: self.seconds(),
                earlier: earlier_name,
                earlier_value: earlier.seconds(),
            });
        }
        let later = Seconds::named(name, self.seconds())?;
        let earlier = Seconds::named(earlier_name, earlier.seconds())?;
        let gap = crate::error::difference((name, later.get()), (earlier_name, earlier.get()))?;
        Seconds::named(name, gap)
    }
}

/// Gaps between the outputs of one request, and between what they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Gaps {
    /// Token by token: inter-token latencies (ITL).
    Token(Vec<Seconds>),
    /// Between the chunks of a stream, each of which may hold several tokens or a part of one.
    Chunk(Vec<Seconds>),
}

impl Gaps {
    /// The gaps in order.
    #[must_use]
    pub fn values(&self) -> &[Seconds] {
        match self {
            Self::Token(v) | Self::Chunk(v) => v,
        }
    }
}

/// The fields of a timeline before they are checked; absent means unknown.
///
/// Either instants (`arrival`, `sent`, `scheduled`, `first_token`, `last_token`, `tokens`) or
/// durations from arrival (`ttft`, `e2e`, `gaps`), as the file has them: a duration that a tool
/// measured is kept bit for bit instead of being rebuilt from two large instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimelineFields {
    /// The request's name, unique in its run.
    pub id: String,
    /// When the request was due: the scheduled send time if known, else the send time.
    pub arrival: Option<Instant>,
    /// When the client sent it.
    pub sent: Option<Instant>,
    /// When the server took it into a batch for the first time.
    pub scheduled: Option<Instant>,
    /// When the first output that carries a token came.
    pub first_token: Option<Instant>,
    /// When the last output that carries a token came.
    pub last_token: Option<Instant>,
    /// When each token came.
    pub tokens: Option<Vec<Instant>>,
    /// Time from arrival to the first token, where the file has the duration itself.
    pub ttft: Option<f64>,
    /// Time from arrival to the last token, where the file has the duration itself.
    pub e2e: Option<f64>,
    /// Gaps between outputs in seconds, and whether they are `true` per token or per chunk.
    pub gaps: Option<(GapKind, Vec<f64>)>,
    /// Tokens of the prompt.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer.
    pub output_tokens: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}

/// What one gap of a file separates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// Two tokens.
    Token,
    /// Two chunks of a stream.
    Chunk,
}

/// One request, checked once when made, so that every formula over it is total.
///
/// What holds: arrival ≤ sent ≤ first token, arrival ≤ scheduled ≤ first token ≤ last token, each
/// where known; every time is finite and not negative; one output token means first = last; a
/// completed request has at least one output token where its count is known; gaps per token are
/// one fewer than the tokens.
///
/// Times are kept as durations from arrival, so that a long-running clock costs no digits.
///
/// # Examples
///
/// ```
/// use metrics_core::{Instant, RequestTimeline};
///
/// let t = RequestTimeline::completed("r1", 0.0, 0.4, 1.0, 4)?;
/// let m = t.metrics().expect("all four times are known");
/// assert!((m.ttft.get() - 0.4).abs() < 1e-12);
/// assert!((m.tpot.get() - 0.2).abs() < 1e-12); // 0.6 s over 3 gaps
/// assert!((m.e2e_latency.get() - 1.0).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTimeline {
    id: String,
    arrival: Option<Instant>,
    sent_after: Option<Seconds>,
    scheduled_after: Option<Seconds>,
    ttft: Option<Seconds>,
    e2e: Option<Seconds>,
    gaps: Option<Gaps>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    outcome: Outcome,
}

/// Largest token count of one request: `f64` holds every whole number up to it.
pub const LARGEST_TOKENS: u64 = 1 << 53;

impl RequestTimeline {
    /// A completed request from its three instants in seconds and its number of output tokens.
    ///
    /// # Errors
    ///
    /// As [`RequestTimeline::new`].
    pub fn completed(
        id: impl Into<String>,
        arrival: f64,
        first_token: f64,
        last_token: f64,
        output_tokens: u64,
    ) -> Result<Self> {
        Self::new(TimelineFields {
            id: id.into(),
            arrival: Some(Instant::Seconds(arrival)),
            first_token: Some(Instant::Seconds(first_token)),
            last_token: Some(Instant::Seconds(last_token)),
            output_tokens: Some(output_tokens),
            ..TimelineFields::default()
        })
    }

    /// Checks the fields of one request.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`], [`Error::TooSmall`] or [`Error::TooLarge`] for a time or count out of
    /// range, [`Error::Order`] for instants out of order, [`Error::Missing`] for an instant whose
    /// origin is unknown, [`Error::Contradiction`] for fields that cannot both be true. Each names
    /// the fields as [`TimelineFields`] does, with the values.
    pub fn new(fields: TimelineFields) -> Result<Self> {
        let f = fields;
        if let Some(a) = f.arrival {
            Seconds::named("arrival", a.seconds())?;
        }
        let after = |at: Option<Instant>, name| -> Result<Option<Seconds>> {
            match (at, f.arrival) {
                (None, _) => Ok(None),
                (Some(at), Some(arrival)) => at.since(name, arrival, "arrival").map(Some),
                (Some(_), None) => Err(Error::Missing {
                    input: "arrival",
                    needed_for: "an instant has a meaning only from the request's arrival",
                }),
            }
        };
        let sent_after = after(f.sent, "sent")?;
        let scheduled_after = after(f.scheduled, "scheduled")?;
        let first_after = after(f.first_token, "first_token")?;
        let last_after = after(f.last_token, "last_token")?;
        let ttft = one_of(first_after, f.ttft, "ttft", "first_token")?;
        let e2e = one_of(last_after, f.e2e, "e2e", "last_token")?;
        let ordered = |later: (&'static str, Option<Seconds>),
                       earlier: (&'static str, Option<Seconds>)| {
            match (later.1, earlier.1) {
                (Some(l), Some(e)) => {
                    crate::error::difference((later.0, l.get()), (earlier.0, e.get())).map(|_| ())
                }
                _ => Ok(()),
            }
        };
        ordered(("first_token after arrival", ttft), ("sent after arrival", sent_after))?;
        ordered(("first_token after arrival", ttft), ("scheduled after arrival", scheduled_after))?;
        ordered(("last_token after arrival", e2e), ("first_token after arrival", ttft))?;
        ordered(("last_token after arrival", e2e), ("scheduled after arrival", scheduled_after))?;
        for (name, n) in [("input_tokens", f.input_tokens), ("output_tokens", f.output_tokens)] {
            if let Some(n) = n
                && LARGEST_TOKENS < n
            {
                return Err(Error::TooLarge {
                    input: name,
                    max: LARGEST_TOKENS as f64,
                    value: n as f64,
                });
            }
        }
        let gaps = checked_gaps(&f, ttft)?;
        if f.outcome == Outcome::Completed && f.output_tokens == Some(0) {
            return Err(Error::TooSmall { input: "output_tokens", min: 1.0, value: 0.0 });
        }
        if let (Some(first), Some(last), Some(1)) = (ttft, e2e, f.output_tokens)
            && first != last
        {
            return Err(Error::Contradiction {
                what: format!(
                    "one output token means last_token = first_token, got {} and {} after arrival",
                    plain(last.get()),
                    plain(first.get())
                ),
            });
        }
        Ok(Self {
            id: f.id,
            arrival: f.arrival,
            sent_after,
            scheduled_after,
            ttft,
            e2e,
            gaps,
            input_tokens: f.input_tokens,
            output_tokens: f.output_tokens,
            outcome: f.outcome,
        })
    }

    /// The request's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When the request was due, if known.
    #[must_use]
    pub fn arrival(&self) -> Option<Instant> {
        self.arrival
    }

    /// When it was due, in seconds from the run's origin, if known.
    #[must_use]
    pub fn arrival_s(&self) -> Option<f64> {
        self.arrival.map(Instant::seconds)
    }

    /// How long after it was due the client sent it, if known.
    #[must_use]
    pub fn send_delay(&self) -> Option<Seconds> {
        self.sent_after
    }

    /// Time from arrival until the server first took it into a batch, if known.
    #[must_use]
    pub fn queue_time(&self) -> Option<Seconds> {
        self.scheduled_after
    }

    /// Time to first token, if a token came.
    #[must_use]
    pub fn ttft(&self) -> Option<Seconds> {
        self.ttft
    }

    /// End-to-end latency: arrival to last token, if known.
    #[must_use]
    pub fn e2e_latency(&self) -> Option<Seconds> {
        self.e2e
    }

    /// Time per output token, if both ends and the count are known; 0 for a one-token answer.
    #[must_use]
    pub fn tpot(&self) -> Option<SecondsPerToken> {
        self.metrics().map(|m| m.tpot)
    }

    /// Gaps between outputs, if known.
    #[must_use]
    pub fn gaps(&self) -> Option<&Gaps> {
        self.gaps.as_ref()
    }

    /// Tokens of the prompt, if known.
    #[must_use]
    pub fn input_tokens(&self) -> Option<u64> {
        self.input_tokens
    }

    /// Tokens of the answer, if known.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u64> {
        self.output_tokens
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// TTFT, TPOT and E2E together, if all are known.
    #[must_use]
    pub fn metrics(&self) -> Option<RequestMetrics> {
        let output_tokens = self.output_tokens.filter(|&n| 1 <= n)?;
        RequestMetrics::from_latencies(self.ttft?, self.e2e?, output_tokens).ok()
    }
}

/// The time that a file gives as an instant or as a duration; both must agree.
#[inline]
fn one_of(
    from_instants: Option<Seconds>,
    given: Option<f64>,
    name: &'static str,
    instant: &'static str,
) -> Result<Option<Seconds>> {
    match given {
        Some(given) => agreed(from_instants, given, name, instant).map(Some),
        None => Ok(from_instants),
    }
}

/// A duration that a file gives, unless instants say another.
fn agreed(
    from_instants: Option<Seconds>,
    given: f64,
    name: &'static str,
    instant: &'static str,
) -> Result<Seconds> {
    let given = Seconds::named(name, given)?;
    match from_instants {
        Some(other) if other != given => Err(Error::Contradiction {
            what: format!(
                "{name} = {} contradicts {instant}, which gives {}: leave one out",
                plain(given.get()),
                plain(other.get())
            ),
        }),
        _ => Ok(given),
    }
}

/// The gaps of a request, from its token instants or as the file has them.
fn checked_gaps(f: &TimelineFields, ttft: Option<Seconds>) -> Result<Option<Gaps>> {
    if let Some(tokens) = &f.tokens {
        if f.gaps.is_some() {
            return Err(Error::Contradiction {
                what: "both token instants and gaps are given: leave one out".to_owned(),
            });
        }
        if let Some(n) = f.output_tokens
            && n != tokens.len() as u64
        {
            return Err(Error::Contradiction {
                what: format!("output_tokens = {n} but {} token instants", tokens.len()),
            });
        }
        for (at, name, token) in [
            (f.first_token, "first_token", tokens.first()),
            (f.last_token, "last_token", tokens.last()),
        ] {
            if let (Some(at), Some(token)) = (at, token)
                && at.seconds().total_cmp(&token.seconds()).is_ne()
            {
                return Err(Error::Contradiction {
                    what: format!(
                        "{name} = {} but the token instants say {}",
                        plain(at.seconds()),
                        plain(token.seconds())
                    ),
                });
            }
        }
        let gaps: Result<Vec<Seconds>> = tokens
            .windows(2)
            .map(|w| match w {
                [a, b] => b.since("a token instant", *a, "the one before it"),
                _ => Ok(Seconds::ZERO),
            })
            .collect();
        return Ok(Some(Gaps::Token(gaps?)));
    }
    let Some((kind, values)) = &f.gaps else { return Ok(None) };
    let values: Result<Vec<Seconds>> =
        values.iter().map(|&g| Seconds::named("a gap between outputs", g)).collect();
    let values = values?;
    if ttft.is_none() && !values.is_empty() {
        return Err(Error::Missing {
            input: "first_token",
            needed_for: "gaps between outputs follow a first output",
        });
    }
    Ok(Some(match kind {
        GapKind::Token => {
            if let Some(n) = f.output_tokens
                && n.saturating_sub(1) != values.len() as u64
            {
                return Err(Error::Contradiction {
                    what: format!(
                        "{n} output tokens have {} gaps, got {}",
                        n.saturating_sub(1),
                        values.len()
                    ),
                });
            }
            Gaps::Token(values)
        }
        GapKind::Chunk => Gaps::Chunk(values),
    }))
}
