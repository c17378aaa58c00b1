//! One run written as each tool writes it is one run when it is read; and a value that is damaged is
//! an error that names its place, never another number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;

use metrics_core::{Outcome, Seconds};
use proptest::prelude::*;
use serde_json::{Value, json};
use serving_io::{Format, IoError, Options, ReadFile, read};

/// All times are whole multiples of it, so that every sum, difference and unit is exact.
const TICK_S: f64 = 1.0 / 64.0;
const TICK_MS: f64 = 15.625;
const TICK_NS: u64 = 15_625_000;
/// When the run began, by the clock of those files that have one.
const BEGIN_S: u64 = 1_700_000_000;

/// One request, times in ticks.
#[derive(Clone, Debug)]
struct Request {
    start: u32,
    ttft: u32,
    gaps: Vec<u32>,
    input: u64,
    failed: bool,
}

impl Request {
    fn output(&self) -> u64 {
        self.gaps.len() as u64 + 1
    }

    /// When its tokens come, in ticks after it was sent.
    fn tokens(&self) -> Vec<u32> {
        let mut at = self.ttft;
        std::iter::once(at)
            .chain(self.gaps.iter().map(|gap| {
                at += gap;
                at
            }))
            .collect()
    }

    fn e2e(&self) -> u32 {
        self.ttft + self.gaps.iter().sum::<u32>()
    }
}

/// Requests in order of sending, the first of them answered with two tokens or more.
fn run() -> impl Strategy<Value = Vec<Request>> {
    let request = (1..50_u32, 1..200_u32, prop::collection::vec(1..20_u32, 0..6), 1..999_u64, 0..5);
    prop::collection::vec(request, 1..12).prop_map(|requests| {
        let mut start = 0;
        let all =
            requests.into_iter().enumerate().map(|(i, (wait, ttft, mut gaps, input, kind))| {
                start += wait;
                if i == 0 {
                    gaps.push(3);
                }
                Request { start, ttft, gaps, input, failed: 0 < i && kind == 0 }
            });
        all.collect()
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tool {
    Vllm,
    Sglang,
    Aiperf,
    Guidellm,
    InferencePerf,
}

const TOOLS: [Tool; 5] =
    [Tool::Vllm, Tool::Sglang, Tool::Aiperf, Tool::Guidellm, Tool::InferencePerf];

fn seconds(ticks: u32) -> f64 {
    f64::from(ticks) * TICK_S
}

fn list<T: Into<Value>>(requests: &[Request], of: impl Fn(&Request) -> T) -> Value {
    requests.iter().map(of).map(Into::into).collect()
}

impl Tool {
    fn format(self) -> Format {
        match self {
            Self::Vllm => Format::Vllm,
            Self::Sglang => Format::Sglang,
            Self::Aiperf => Format::Aiperf,
            Self::Guidellm => Format::Guidellm,
            Self::InferencePerf => Format::InferencePerf,
        }
    }

    /// The documents of the tool's file, a line each.
    fn documents(self, requests: &[Request]) -> Vec<Value> {
        match self {
            Self::Vllm | Self::Sglang => vec![self.arrays(requests)],
            Self::Aiperf => (0..).zip(requests).map(aiperf).collect(),
            Self::Guidellm => {
                let of = |failed| {
                    let some = (0..).zip(requests).filter(|(_, r)| r.failed == failed);
                    some.map(guidellm).collect::<Vec<Value>>()
                };
                vec![json!({
                    "metadata": { "guidellm_version": "0.8.1" },
                    "benchmarks": [{
                        "config": { "strategy": { "type_": "poisson", "rate": 2.0 } },
                        "duration": 100.0,
                        "requests": { "successful": of(false), "errored": of(true), "incomplete": [] },
                    }],
                })]
            }
            Self::InferencePerf => vec![requests.iter().map(inference_perf).collect()],
        }
    }

    /// The file with parallel arrays, in which what failed has zeros.
    fn arrays(self, requests: &[Request]) -> Value {
        let answered = || requests.iter().filter(|r| !r.failed);
        let tokens: u64 = answered().map(Request::output).sum();
        let mut d = json!({
            "duration": 100.0,
            "completed": answered().count(),
            "total_input_tokens": answered().map(|r| r.input).sum::<u64>(),
            "total_output_tokens": tokens,
            "input_lens": list(requests, |r| r.input),
            "output_lens": list(requests, |r| if r.failed { 0 } else { r.output() }),
            "ttfts": list(requests, |r| if r.failed { 0.0 } else { seconds(r.ttft) }),
            "itls": list(requests, |r| {
                let gaps = r.gaps.iter().filter(|_| !r.failed);
                gaps.map(|&g| seconds(g)).collect::<Vec<f64>>()
            }),
            "errors": list(requests, |r| if r.failed { "500" } else { "" }),
        });
        if self == Self::Vllm {
            d["model_id"] = json!("m");
            d["num_prompts"] = json!(requests.len());
            d["failed"] = json!(requests.len() - answered().count());
            d["start_times"] = list(requests, |r| 1000.0 + seconds(r.start));
        } else {
            d["total_output_tokens_retokenized"] = json!(tokens);
        }
        d
    }

    fn has_arrivals(self) -> bool {
        self != Self::Sglang
    }

    fn has_gaps(self) -> bool {
        self != Self::Guidellm
    }
}

fn aiperf((i, r): (u64, &Request)) -> Value {
    let stamp = |ticks: u32| BEGIN_S * 1_000_000_000 + u64::from(ticks) * TICK_NS;
    let ms = |ticks: u32| json!({ "value": f64::from(ticks) * TICK_MS, "unit": "ms" });
    let count = |n: u64| json!({ "value": n, "unit": "tokens" });
    let mut record = json!({
        "metadata": {
            "session_num": i,
            "x_request_id": format!("r{i}"),
            "request_start_ns": stamp(r.start),
            "request_end_ns": stamp(r.start + r.e2e()),
            "benchmark_phase": "profiling",
            "was_cancelled": false,
        },
        "metrics": { "input_sequence_length": count(r.input) },
        "error": null,
    });
    if r.failed {
        record["error"] = json!({ "code": 500, "type": "ServerError", "message": "m" });
        return record;
    }
    let gaps: Vec<f64> = r.gaps.iter().map(|&g| f64::from(g) * TICK_MS).collect();
    record["metrics"]["time_to_first_token"] = ms(r.ttft);
    record["metrics"]["request_latency"] = ms(r.e2e());
    record["metrics"]["inter_chunk_latency"] = json!({ "value": gaps, "unit": "ms" });
    record["metrics"]["output_sequence_length"] = count(r.output());
    record
}

fn guidellm((i, r): (u64, &Request)) -> Value {
    let stamp = |ticks: u32| BEGIN_S as f64 + seconds(ticks);
    let token = |ticks: u32| if r.failed { Value::Null } else { json!(stamp(r.start + ticks)) };
    json!({
        "request_id": format!("r{i}"),
        "info": { "timings": {
            "request_start": stamp(r.start),
            "first_token_iteration": token(r.ttft),
            "last_token_iteration": token(r.e2e()),
            "request_end": stamp(r.start + r.e2e()),
        }},
        "prompt_tokens": r.input,
        "output_tokens": if r.failed { Value::Null } else { json!(r.output()) },
    })
}

fn inference_perf(r: &Request) -> Value {
    let stamp = |ticks: u32| 10.0 + seconds(r.start + ticks);
    let stamps: Vec<f64> = r.tokens().into_iter().filter(|_| !r.failed).map(stamp).collect();
    let error = json!({ "error_type": "HTTP Error 500", "error_msg": "m" });
    json!({
        "start_time": stamp(0),
        "end_time": stamp(r.e2e()),
        "request": "r",
        "response": "s",
        "info": {
            "input_tokens": r.input,
            "response_metrics": {
                "output_tokens": if r.failed { 0 } else { r.output() },
                "output_token_times": stamps,
            },
        },
        "error": if r.failed { error } else { Value::Null },
    })
}

fn text(documents: &[Value]) -> String {
    documents.iter().map(|d| format!("{d}\n")).collect()
}

fn of(text: &str) -> Result<ReadFile, IoError> {
    read("file", Cursor::new(text.to_owned()), &Options::default())
}

proptest! {
    /// Arrival, TTFT, E2E, gaps, tokens and outcome are those of the run, whoever wrote it.
    #[test]
    fn one_run_is_the_same_in_every_format(requests in run()) {
        for tool in TOOLS {
            let file = of(&text(&tool.documents(&requests))).unwrap();
            prop_assert_eq!(file.format, tool.format());
            let timelines = &file.runs[0].timelines;
            prop_assert_eq!(timelines.len(), requests.len(), "{:?}", tool);
            let begin = timelines[0].arrival_s();
            for (t, r) in timelines.iter().zip(&requests) {
                let wanted = if r.failed { Outcome::Failed } else { Outcome::Completed };
                prop_assert_eq!(t.outcome(), wanted, "{:?}", tool);
                let known = |x| (!r.failed).then_some(x);
                let get = |s: Option<Seconds>| s.map(Seconds::get);
                prop_assert_eq!(get(t.ttft()), known(seconds(r.ttft)), "{:?}", tool);
                prop_assert_eq!(get(t.e2e_latency()), known(seconds(r.e2e())), "{:?}", tool);
                let output = (!r.failed).then(|| r.output());
                prop_assert_eq!(t.output_tokens(), output, "{:?}", tool);
                prop_assert_eq!(t.input_tokens(), Some(r.input), "{:?}", tool);
                let since = t.arrival_s().zip(begin).map(|(at, begin)| at - begin);
                let sent = seconds(r.start - requests[0].start);
                prop_assert_eq!(since, tool.has_arrivals().then_some(sent), "{:?}", tool);
                if tool.has_gaps() && !r.failed {
                    let gaps = t.gaps().map(|g| g.values().to_vec()).unwrap_or_default();
                    let gaps: Vec<f64> = gaps.into_iter().map(Seconds::get).collect();
                    let wanted: Vec<f64> = r.gaps.iter().map(|&g| seconds(g)).collect();
                    prop_assert_eq!(gaps, wanted, "{:?}", tool);
                }
            }
        }
    }

    /// A value that is damaged, or a file that is cut anywhere, is an error in one line that names
    /// the file.
    #[test]
    fn a_damaged_value_is_an_error(
        requests in run(),
        damage in prop::sample::select(&DAMAGES[..]),
        cut in 0.0..1.0_f64,
    ) {
        for tool in TOOLS {
            let whole = tool.documents(&requests);
            let mut documents = whole.clone();
            let place = damage.place(tool);
            let Some(value) = documents[0].pointer_mut(place) else { panic!("{tool:?} {place}") };
            let before = value.clone();
            *value = damage.of(&before);
            let damaged = text(&documents).replace(NAN, "NaN");
            let said = match of(&damaged) {
                Err(e) => e.to_string(),
                Ok(_) => panic!("{tool:?}: {damage:?} at {place} was read: {damaged}"),
            };
            prop_assert!(said.starts_with("file") && !said.contains('\n'), "{tool:?}: {said}");
            // It says which key it was, or the column where a value is no JSON at all.
            let placed = said.contains(damage.key(tool)) || said.contains("column ");
            prop_assert!(placed, "{tool:?}: {damage:?} at {place}: {said}");

            // Within the last document, so that lines before it may not be whole.
            let text = text(&whole);
            let begin = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
            let end = text.trim_end().len();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
            let at = begin + 1 + ((end - begin - 1) as f64 * cut) as usize;
            let said = of(&text[..at.min(end - 1)]);
            prop_assert!(said.is_err(), "{tool:?} cut at {at}: {said:?}");
        }
    }
}

/// What JSON cannot hold; it is replaced by `NaN`, as Python writes it.
const NAN: &str = "\"not a number\"";

/// What happens to the first time to first token, or to the tokens of the first answer.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Nan,
    Text,
    Negative,
    FractionOfAToken,
    NegativeTokens,
}

const DAMAGES: [Damage; 5] =
    [Damage::Nan, Damage::Text, Damage::Negative, Damage::FractionOfAToken, Damage::NegativeTokens];

impl Damage {
    fn is_of_tokens(self) -> bool {
        matches!(self, Self::FractionOfAToken | Self::NegativeTokens)
    }

    /// Where the value stands in the first document.
    fn place(self, tool: Tool) -> &'static str {
        match (tool, self.is_of_tokens()) {
            (Tool::Vllm | Tool::Sglang, false) => "/ttfts/0",
            (Tool::Vllm | Tool::Sglang, true) => "/output_lens/0",
            (Tool::Aiperf, false) => "/metrics/time_to_first_token/value",
            (Tool::Aiperf, true) => "/metrics/output_sequence_length/value",
            (Tool::Guidellm, false) => {
                "/benchmarks/0/requests/successful/0/info/timings/first_token_iteration"
            }
            (Tool::Guidellm, true) => "/benchmarks/0/requests/successful/0/output_tokens",
            (Tool::InferencePerf, false) => "/0/info/response_metrics/output_token_times/0",
            (Tool::InferencePerf, true) => "/0/info/response_metrics/output_tokens",
        }
    }

    /// What the message has to name.
    fn key(self, tool: Tool) -> &'static str {
        match (tool, self.is_of_tokens()) {
            (Tool::Vllm | Tool::Sglang, false) => "ttfts",
            (Tool::Vllm | Tool::Sglang, true) => "output_lens",
            (Tool::Aiperf, false) => "time_to_first_token",
            (Tool::Aiperf, true) => "output_sequence_length",
            (Tool::Guidellm, false) => "first_token_iteration",
            (Tool::Guidellm | Tool::InferencePerf, true) => "output_tokens",
            (Tool::InferencePerf, false) => "output_token_times",
        }
    }

    fn of(self, value: &Value) -> Value {
        match self {
            Self::Nan => json!("not a number"),
            Self::Text => json!("fast"),
            // Before the request was sent, for an instant as for a duration.
            Self::Negative => json!(-value.as_f64().unwrap()),
            Self::FractionOfAToken => json!(2.5),
            Self::NegativeTokens => json!(-2),
        }
    }
}

/// Milliseconds where the file has seconds, or the other way: seen where the parts of a request or
/// the unit beside the value contradict it.
#[test]
fn a_value_in_another_unit_is_an_error_where_the_file_shows_it() {
    let request = Request { start: 0, ttft: 8, gaps: vec![4, 4], input: 10, failed: false };
    for (tool, place, value) in [
        (Tool::Aiperf, "/metrics/time_to_first_token/value", json!(8.0 * TICK_MS * 1e3)),
        (Tool::Aiperf, "/metrics/time_to_first_token/unit", json!("sec")),
        (Tool::Aiperf, "/metrics/time_to_first_token/unit", json!("furlongs")),
        (Tool::Aiperf, "/metrics/output_sequence_length/unit", json!("ms")),
        (
            Tool::Guidellm,
            "/benchmarks/0/requests/successful/0/info/timings/first_token_iteration",
            json!(BEGIN_S as f64 * 1e3 + 125.0),
        ),
        (
            Tool::InferencePerf,
            "/0/info/response_metrics/output_token_times/1",
            json!((10.0 + 12.0 * TICK_S) * 1e3),
        ),
    ] {
        let mut documents = tool.documents(std::slice::from_ref(&request));
        *documents[0].pointer_mut(place).unwrap() = value;
        assert!(of(&text(&documents)).is_err(), "{tool:?} {place}");
    }
    // An array that is one short: which request it belongs to cannot be told.
    for tool in [Tool::Vllm, Tool::Sglang] {
        for key in ["ttfts", "itls", "input_lens", "output_lens", "errors"] {
            let mut documents = tool.documents(&[request.clone(), request.clone()]);
            documents[0][key].as_array_mut().unwrap().pop();
            let said = of(&text(&documents)).unwrap_err().to_string();
            assert!(said.contains("itls") || said.contains(key), "{tool:?} {key}: {said}");
        }
    }
}
