//! A request log of any length, to measure how large logs are read.
//!
//! Made up, but shaped like the log of a busy server: Poisson arrivals, lognormal lengths, latencies
//! that follow a slow wave of load, one request in 400 without an answer. Same seed, same bytes.

use std::io::{self, Write};

use clap::ValueEnum;
use rand_distr::{Distribution, Exp, LogNormal, StandardNormal, StandardUniform};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table with a header.
    #[default]
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// Requests per second.
const RATE: f64 = 200.0;

/// Writes a log of so many requests.
///
/// # Errors
///
/// What the system says.
pub fn write(out: &mut impl Write, requests: u64, seed: u64, form: Form) -> io::Result<()> {
    let wrong = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let gap = Exp::new(RATE).map_err(|e| wrong(&e))?;
    let prompt = LogNormal::new(6.4, 0.9).map_err(|e| wrong(&e))?;
    let answer = LogNormal::new(5.0, 1.0).map_err(|e| wrong(&e))?;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    if form == Form::Csv {
        writeln!(out, "id,arrival_s,ttft_ms,e2e_ms,input_tokens,output_tokens,outcome")?;
    }
    let (mut arrival, mut load) = (0.0_f64, 0.0_f64);
    for _ in 0..requests {
        let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
        // An autoregression with a deviation of 1, which neighbours share.
        load = 0.995 * load + 0.1 * normal();
        let ttft_ms = 80.0 * (0.5 * load + 0.3 * normal()).exp();
        let tpot_ms = 20.0 * (0.15 * load + 0.1 * normal()).exp();
        arrival += gap.sample(&mut random);
        let input: f64 = prompt.sample(&mut random);
        let output: f64 = answer.sample(&mut random);
        let (input, output) = (input.ceil(), output.ceil());
        let chance: f64 = StandardUniform.sample(&mut random);
        let id: u64 = StandardUniform.sample(&mut random);
        let e2e_ms = ttft_ms + (output - 1.0) * tpot_ms;
        let outcome = match chance {
            x if x < 0.002 => "failed",
            x if x < 0.0025 => "timed_out",
            _ => "completed",
        };
        let answered = outcome == "completed";
        match (form, answered) {
            (Form::Csv, true) => writeln!(
                out,
                "{id:016x},{arrival:.6},{ttft_ms:.3},{e2e_ms:.3},{input},{output},{outcome}"
            )?,
            (Form::Csv, false) => writeln!(out, "{id:016x},{arrival:.6},,,{input},,{outcome}")?,
            (Form::Jsonl, true) => writeln!(
                out,
                "{{\"id\":\"{id:016x}\",\"arrival_s\":{arrival:.6},\"ttft_ms\":{ttft_ms:.3},\
                 \"e2e_ms\":{e2e_ms:.3},\"input_tokens\":{input},\"output_tokens\":{output},\
                 \"outcome\":\"{outcome}\"}}"
            )?,
            (Form::Jsonl, false) => writeln!(
                out,
                "{{\"id\":\"{id:016x}\",\"arrival_s\":{arrival:.6},\"input_tokens\":{input},\
                 \"outcome\":\"{outcome}\"}}"
            )?,
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(requests: u64, seed: u64, form: Form) -> String {
        let mut out = Vec::new();
        write(&mut out, requests, seed, form).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Both forms are read, and hold the same requests whatever their number.
    #[test]
    fn a_log_is_the_same_in_both_forms_and_for_the_same_seed() {
        let read = |text: String| {
            let options = serving_io::Options::default();
            serving_io::read("log", io::Cursor::new(text), &options).unwrap().runs.remove(0)
        };
        let csv = read(text(500, 7, Form::Csv));
        assert_eq!(csv.timelines, read(text(500, 7, Form::Jsonl)).timelines);
        assert_eq!(csv.timelines[..100], read(text(100, 7, Form::Csv)).timelines[..]);
        assert_ne!(text(100, 7, Form::Csv), text(100, 8, Form::Csv));
    }
}
