//! What the server itself logged, laid over what a reader makes of the client's file.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use metrics_core::{Outcome, RequestTimeline, Seconds};
use serving_io::Run;
use serving_io::run::Values;

/// A file of the shared data, if it is on this machine.
pub fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(path);
    if !path.exists() {
        let _ = writeln!(std::io::stderr(), "skipped: no {} (set GOODPUT_DATA)", path.display());
        return None;
    }
    Some(path)
}

/// One request as the server saw it.
pub struct Served {
    /// `ok`, `http500` or `cut`.
    pub status: String,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub ttft: Option<f64>,
    pub e2e: Option<f64>,
}

/// The server's log.
pub fn served(path: &Path) -> Vec<Served> {
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.map(|v| {
        let since = |key: &str| Some(v[key].as_f64()? - v["arrival"].as_f64()?);
        Served {
            status: v["status"].as_str().unwrap().to_owned(),
            prompt_tokens: v["prompt_tokens"].as_u64().unwrap_or(0),
            output_tokens: v["output_tokens"].as_u64().unwrap_or(0),
            ttft: since("first_token"),
            e2e: since("last_token"),
        }
    })
    .collect()
}

/// The timelines of all runs.
pub fn all(runs: &[Run]) -> impl Iterator<Item = &RequestTimeline> {
    runs.iter().flat_map(|r| &r.timelines)
}

/// How many requests ended so.
pub fn ended(runs: &[Run], outcome: Outcome) -> usize {
    all(runs).filter(|t| t.outcome() == outcome).count()
}

/// How far the client's latencies are above the server's: the least and the mean difference, in
/// seconds.
#[derive(Debug)]
pub struct Noise {
    pub least: f64,
    pub mean: f64,
}

/// Compares two samples in order of size.
///
/// A client that sees each request later than the server sees order statistics that are later too,
/// whichever request is which.
fn above(client: &[f64], server: &[f64]) -> Noise {
    assert_eq!(client.len(), server.len());
    let sorted = |x: &[f64]| {
        let mut x = x.to_vec();
        x.sort_by(f64::total_cmp);
        x
    };
    let gaps: Vec<f64> = sorted(client).iter().zip(sorted(server)).map(|(c, s)| c - s).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    Noise { least: gaps.iter().copied().fold(f64::INFINITY, f64::min), mean }
}

/// Checks counts and token counts against the server's log, and says how far TTFT and E2E are
/// above the server's.
pub fn equals_the_server(runs: &[Run], log: &[Served]) -> [Noise; 2] {
    let status = |s: &str| log.iter().filter(|r| r.status == s).count();
    assert_eq!(ended(runs, Outcome::Completed), status("ok"));
    assert_eq!(ended(runs, Outcome::Failed), status("http500") + status("cut"));
    assert_eq!(all(runs).count(), log.len());
    let completed: Vec<&RequestTimeline> =
        all(runs).filter(|t| t.outcome() == Outcome::Completed).collect();
    let ok: Vec<&Served> = log.iter().filter(|r| r.status == "ok").collect();
    let mut client: Vec<(u64, u64)> =
        completed.iter().map(|t| (t.input_tokens().unwrap(), t.output_tokens().unwrap())).collect();
    let mut server: Vec<(u64, u64)> =
        ok.iter().map(|r| (r.prompt_tokens, r.output_tokens)).collect();
    client.sort_unstable();
    server.sort_unstable();
    assert_eq!(client, server, "tokens of prompts and answers");
    let seconds = |s: Option<Seconds>| s.unwrap().get();
    let ttft: Vec<f64> = completed.iter().map(|t| seconds(t.ttft())).collect();
    let e2e: Vec<f64> = completed.iter().map(|t| seconds(t.e2e_latency())).collect();
    let of = |get: fn(&Served) -> Option<f64>| -> Vec<f64> {
        ok.iter().map(|r| get(r).unwrap()).collect()
    };
    [above(&ttft, &of(|r| r.ttft)), above(&e2e, &of(|r| r.e2e))]
}

/// The ids of a run's notes.
pub fn ids(run: &Run) -> Vec<&str> {
    run.notes.iter().map(|n| n.id).collect()
}

/// The known numbers of a column.
pub fn numbers(run: &Run, name: &str) -> Vec<f64> {
    match &run.column(name).unwrap_or_else(|| panic!("no column {name}")).values {
        Values::Number(list) => list.iter().flatten().copied().collect(),
        Values::Text(_) => panic!("column {name} holds text"),
    }
}

pub fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Every file that differs from `text` by one key gone, one value of another type, or a cut gives
/// runs or an error of one line.
pub fn survives_damage(name: &str, text: &str) {
    let read = |content: String| {
        let bytes = std::io::Cursor::new(content.into_bytes());
        match serving_io::read(name, bytes, &serving_io::Options::default()) {
            Ok(file) => assert!(!file.runs.is_empty()),
            Err(e) => {
                let said = e.to_string();
                assert!(said.starts_with(name) && !said.contains('\n'), "{said}");
                assert!(said.chars().count() < 900, "{said}");
            }
        }
    };
    // Cuts at 300 places spread over the text.
    let steps: Vec<usize> = (0..300).map(|i| i * text.len() / 300).collect();
    for cut in steps.into_iter().filter(|&at| text.is_char_boundary(at)) {
        read(text[..cut].to_owned());
    }
    let Ok(whole) = serde_json::from_str::<serde_json::Value>(text) else { return };
    let mut places = Vec::new();
    walk(&whole, &mut Vec::new(), &mut places);
    // At most 400 places, spread over the document.
    let step = places.len().div_ceil(400).max(1);
    for place in places.iter().step_by(step) {
        for other in [
            None,
            Some(serde_json::Value::Null),
            Some("x".into()),
            Some(serde_json::json!(-1.5)),
            Some(serde_json::json!([[{}]])),
        ] {
            let mut damaged = whole.clone();
            set(&mut damaged, place, other);
            read(damaged.to_string());
        }
    }
}

/// The paths of all values.
fn walk(value: &serde_json::Value, path: &mut Vec<String>, places: &mut Vec<Vec<String>>) {
    let children: Vec<(String, &serde_json::Value)> = match value {
        serde_json::Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        serde_json::Value::Array(list) => {
            list.iter().take(3).enumerate().map(|(i, v)| (i.to_string(), v)).collect()
        }
        _ => return,
    };
    for (key, child) in children {
        path.push(key);
        places.push(path.clone());
        walk(child, path, places);
        path.pop();
    }
}

fn set(value: &mut serde_json::Value, path: &[String], other: Option<serde_json::Value>) {
    let Some((key, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        match (value, other) {
            (serde_json::Value::Object(map), None) => {
                map.remove(key);
            }
            (serde_json::Value::Object(map), Some(other)) => {
                map.insert(key.clone(), other);
            }
            (serde_json::Value::Array(list), None) => {
                list.remove(key.parse().unwrap());
            }
            (serde_json::Value::Array(list), Some(other)) => {
                list[key.parse::<usize>().unwrap()] = other;
            }
            _ => {}
        }
        return;
    }
    let child = match value {
        serde_json::Value::Object(map) => map.get_mut(key),
        serde_json::Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()),
        _ => None,
    };
    if let Some(child) = child {
        set(child, rest, other);
    }
}
