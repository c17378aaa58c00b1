//! Why a run cannot be: bad input, or a policy that breaks an invariant.

use crate::time::Ticks;
use crate::workload::RequestId;

/// The result of a fallible function of this crate.
pub type Result<T, E = SimError> = std::result::Result<T, E>;

/// Why a run cannot start or go on.
///
/// Every message is a clause that completes "cannot simulate: …" and names the input, the bound
/// and the value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// An input is below its smallest value.
    #[error("{input} must be at least {min}, got {value}")]
    TooSmall {
        /// The input's name.
        input: &'static str,
        /// The smallest value with a meaning.
        min: u128,
        /// What the caller passed.
        value: u128,
    },
    /// An input is above its largest value.
    #[error("{input} must be at most {max}, got {value}")]
    TooLarge {
        /// The input's name.
        input: &'static str,
        /// The largest value that is supported.
        max: u128,
        /// What the caller passed.
        value: u128,
    },
    /// A token count of one request is out of range.
    #[error("{input} of request `{id}` must be {min} to {max}, got {value}")]
    RequestTokens {
        /// The count's name.
        input: &'static str,
        /// The request.
        id: RequestId,
        /// The smallest value with a meaning.
        min: u64,
        /// The largest value that is supported.
        max: u64,
        /// What the caller passed.
        value: u64,
    },
    /// The segments of a prompt are not as many tokens as the prompt.
    #[error(
        "the segments of request `{id}` must be its {input_tokens} input_tokens, got {tokens} tokens"
    )]
    ContentTokens {
        /// The request.
        id: RequestId,
        /// Tokens of its prompt.
        input_tokens: u64,
        /// Tokens of the segments.
        tokens: u64,
    },
    /// A segment that stands for tokens of one request alone.
    #[error("segments of request `{id}` must be at most {max}, got {segment}")]
    Segment {
        /// The request.
        id: RequestId,
        /// The largest segment that can be shared.
        max: u64,
        /// What the caller passed.
        segment: u64,
    },
    /// A coefficient of a step time is out of range.
    #[error("{input} must be at most {}, got {}", max.compact(), value.compact())]
    Coefficient {
        /// The coefficient's name.
        input: &'static str,
        /// The largest value that is supported.
        max: Ticks,
        /// What the caller passed.
        value: Ticks,
    },
    /// A number of a generator is out of range.
    #[error("{input} must be {bound}, got {}", number(*value))]
    Parameter {
        /// The parameter's name.
        input: String,
        /// What it has to be.
        bound: &'static str,
        /// What the caller passed.
        value: f64,
    },
    /// A value of a generator breaks a bound that another value of it sets.
    #[error("{input} must be {bound}, got {value}")]
    Bounds {
        /// The parameter's name.
        input: String,
        /// What it has to be, with the other value and units.
        bound: String,
        /// What the caller passed, with its unit.
        value: String,
    },
    /// Requests are not in the order in which they arrive.
    #[error(
        "requests must be sorted by arrival: `{id}` (row {row}) arrives at {arrival}, \
         the one before it at {before}"
    )]
    Unsorted {
        /// The request that comes too late in the list.
        id: RequestId,
        /// Its position, from 1.
        row: usize,
        /// Its arrival.
        arrival: Ticks,
        /// The arrival of the request before it.
        before: Ticks,
    },
    /// A request reaches a server after others that arrive later.
    #[error(
        "requests must reach a server in order of arrival: `{id}` arrives at {arrival}, and the \
         server is at {before} already"
    )]
    OutOfOrder {
        /// The request.
        id: RequestId,
        /// Its arrival.
        arrival: Ticks,
        /// The arrival of the request before it, or the instant that the server advanced to.
        before: Ticks,
    },
    /// Two requests have the same id.
    #[error("request ids must differ: `{id}` is in rows {first} and {second}")]
    DuplicateId {
        /// The id.
        id: RequestId,
        /// The position of its first use, from 1.
        first: usize,
        /// The position of its second use.
        second: usize,
    },
    /// An instant or duration is longer than any run may be.
    #[error("{input} must be at most {}, a hundred years, got {value}", Ticks::LONGEST_RUN)]
    TimeOutOfRange {
        /// What is too long.
        input: &'static str,
        /// Its value.
        value: Ticks,
    },
    /// The clock of a run would pass its range.
    #[error(
        "a run must end within {}, a hundred years: the requests are too long for its step times, or \
         too many",
        Ticks::LONGEST_RUN
    )]
    RunTooLong,
    /// A text does not follow its grammar.
    #[error("{what} `{}`: expected {expected}", metrics_core::error::escaped(text))]
    Grammar {
        /// What was being read, for example `step time`.
        what: &'static str,
        /// The text as it came.
        text: String,
        /// What would be right.
        expected: String,
    },
    /// Requests displace each other for ever and nobody gets a token. vLLM's rules allow it: under
    /// the priority policy, two prompts of the same priority and arrival that do not fit together
    /// preempt each other in turn, if an admission needs room for its first chunk alone.
    #[error(
        "step {step} at {at}: nobody got a token in the last {steps} steps, though {requests} \
         requests are not over: they preempt each other for ever, more KV blocks would end it"
    )]
    NoProgress {
        /// When.
        at: Ticks,
        /// The number of steps so far.
        step: u64,
        /// Steps since anybody got a token.
        steps: u64,
        /// Requests that are not over.
        requests: u64,
    },
    /// A ledger of steps that are not those of the run.
    #[error("the steps given to the ledger are not those in which request {id} got its tokens")]
    Ledger {
        /// The request.
        id: RequestId,
    },
    /// Turns whose arrivals depend on answers, where no server gives any.
    #[error(
        "turns that wait for answers (think_after answer) are known when a server has answered, and not \
         before the run"
    )]
    WaitsForAnswers,
    /// A cancellation of a request that the workload does not have.
    #[error("a cancellation names position {position} of a workload of {len} requests")]
    NoSuchCancellation {
        /// The position.
        position: usize,
        /// Requests of the workload.
        len: usize,
    },
    /// An answer ended that nobody waits for.
    #[error("request `{id}` is not in flight: it was not taken, or its answer ended before")]
    NotInFlight {
        /// The request.
        id: RequestId,
    },
    /// vLLM would not start with this configuration.
    #[error(transparent)]
    Vllm(#[from] crate::vllm_v1::ConfigFault),
    /// A policy asked a step for something that would break an invariant.
    #[error("step {step} at {at}: {refusal}")]
    Refused {
        /// When the step would have started.
        at: Ticks,
        /// The step's number, from 1.
        step: u64,
        /// What was refused.
        refusal: Refusal,
    },
}

/// A number in few characters, however large or small it is.
fn number(x: f64) -> String {
    let plain = x == 0.0 || !x.is_finite() || (1e-9..1e16).contains(&x.abs());
    if plain { x.to_string() } else { format!("{x:e}") }
}

/// What a step refuses to a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// One more admission than the batch has room for.
    #[error("cannot admit: {running} of at most {max} requests are running")]
    BatchFull {
        /// Requests in the batch.
        running: u64,
        /// The batch limit.
        max: u64,
    },
    /// An admission with nothing in the queue.
    #[error("cannot admit: no request is waiting")]
    NothingWaiting,
    /// A second helping in one step.
    #[error("request `{id}` already has work in this step")]
    ServedTwice {
        /// The request.
        id: RequestId,
    },
    /// A second helping for a whole group in one step.
    #[error("a request in {stage} already has work in this step")]
    GroupServedTwice {
        /// The stage of the group.
        stage: &'static str,
    },
    /// Work for a request in the wrong stage.
    #[error("request `{id}` is not in {stage} at the start of this step")]
    WrongStage {
        /// The request.
        id: RequestId,
        /// The stage that the operation needs.
        stage: &'static str,
    },
    /// A prefill of no tokens, or of more than the prompt has left.
    #[error("a prefill of request `{id}` must take 1 to {left} tokens, got {tokens}")]
    PrefillTokens {
        /// The request.
        id: RequestId,
        /// Prompt tokens that are left.
        left: u64,
        /// What the policy asked for.
        tokens: u64,
    },
    /// A chunk of no tokens for a whole group.
    #[error("a prefill chunk must be at least 1 token, got 0")]
    EmptyChunk,
    /// A position at which there is no request.
    #[error("position {position} is none of the {inside} requests that are inside")]
    NoSuchRequest {
        /// What the policy asked for.
        position: usize,
        /// Requests that have arrived and are not over.
        inside: usize,
    },
    /// An admission or a decode for which the KV cache has no room.
    #[error("{what} needs {needed} KV blocks, and {free} are free")]
    NoBlocks {
        /// What was asked for.
        what: &'static str,
        /// Blocks that it needs.
        needed: u64,
        /// Blocks that it may have.
        free: u64,
    },
}
