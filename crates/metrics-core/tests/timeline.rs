//! What a timeline accepts, and how it refuses the rest.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline};

fn fields() -> TimelineFields {
    TimelineFields {
        id: "r".to_owned(),
        arrival: Some(Instant::Seconds(3.0)),
        first_token: Some(Instant::Seconds(3.5)),
        last_token: Some(Instant::Seconds(4.0)),
        output_tokens: Some(3),
        ..TimelineFields::default()
    }
}

fn refusal(change: impl FnOnce(&mut TimelineFields)) -> String {
    let mut f = fields();
    change(&mut f);
    RequestTimeline::new(f).unwrap_err().to_string()
}

#[test]
fn an_answer_of_one_token_has_no_gap() {
    let m = RequestTimeline::completed("r", 0.0, 0.5, 0.5, 1).unwrap().metrics().unwrap();
    assert_eq!((m.tpot.get(), m.e2e_latency.get(), m.has_gaps()), (0.0, 0.5, false));
}

#[test]
fn every_refusal_names_the_field_and_the_value() {
    let s = Instant::Seconds;
    let said = [
        refusal(|f| f.arrival = Some(s(-1.0))),
        refusal(|f| f.arrival = Some(s(f64::NAN))),
        refusal(|f| f.first_token = Some(s(2.5))),
        refusal(|f| f.last_token = Some(s(3.25))),
        refusal(|f| f.output_tokens = Some(1)),
        refusal(|f| f.output_tokens = Some(0)),
        refusal(|f| f.output_tokens = Some(u64::MAX)),
        refusal(|f| f.scheduled = Some(s(3.75))),
        refusal(|f| f.sent = Some(s(2.0))),
        refusal(|f| f.arrival = None),
        refusal(|f| f.ttft = Some(0.25)),
        refusal(|f| f.tokens = Some(vec![s(3.5), s(4.0)])),
        refusal(|f| f.tokens = Some(vec![s(3.5), s(3.25), s(4.0)])),
        refusal(|f| f.gaps = Some((GapKind::Token, vec![0.5]))),
        refusal(|f| f.gaps = Some((GapKind::Chunk, vec![-0.5]))),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    arrival must be at least 0, got -1
    arrival must be a finite number, got NaN
    first_token must be at least arrival = 3, got 2.5
    last_token after arrival must be at least first_token after arrival = 0.5, got 0.25
    one output token means last_token = first_token, got 1 and 0.5 after arrival
    output_tokens must be at least 1, got 0
    output_tokens must be at most 9007199254740992, got 1.8446744073709552e19
    first_token after arrival must be at least scheduled after arrival = 0.75, got 0.5
    sent must be at least arrival = 3, got 2
    arrival is missing: an instant has a meaning only from the request's arrival
    ttft = 0.25 contradicts first_token, which gives 0.5: leave one out
    output_tokens = 3 but 2 token instants
    a token instant must be at least the one before it = 3.5, got 3.25
    3 output tokens have 2 gaps, got 1
    a gap between outputs must be at least 0, got -0.5
    ");
}

#[test]
fn picoseconds_are_subtracted_exactly_where_seconds_cannot() {
    let epoch_ps = 1_700_000_000_u128 * 1_000_000_000_000;
    let f = TimelineFields {
        arrival: Some(Instant::Picoseconds(epoch_ps)),
        first_token: Some(Instant::Picoseconds(epoch_ps + 1)),
        last_token: Some(Instant::Picoseconds(epoch_ps + 3)),
        ..fields()
    };
    let t = RequestTimeline::new(f).unwrap();
    assert_eq!(t.ttft().unwrap().get(), 1e-12);
    // 3 ps − 1 ps in f64 misses 2 ps by one unit in the last place.
    assert!((t.metrics().unwrap().tpot.get() - 1e-12).abs() < 1e-27);
}

#[test]
fn a_duration_that_a_tool_measured_is_kept_bit_for_bit() {
    let ttft = 0.046_529_565_999_890_11;
    let f = TimelineFields {
        arrival: Some(Instant::Seconds(1_102.510_243_824)),
        first_token: None,
        last_token: None,
        ttft: Some(ttft),
        e2e: Some(0.846_707_288_999_823_5),
        ..fields()
    };
    assert_eq!(RequestTimeline::new(f).unwrap().ttft().unwrap().get().to_bits(), ttft.to_bits());
}

#[test]
fn a_failed_request_may_have_no_token_and_unknown_stays_unknown() {
    let f = TimelineFields { id: "f".to_owned(), outcome: Outcome::Failed, ..Default::default() };
    let t = RequestTimeline::new(f).unwrap();
    assert_eq!((t.ttft(), t.tpot(), t.e2e_latency(), t.metrics()), (None, None, None, None));
}
