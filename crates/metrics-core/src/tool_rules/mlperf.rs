//! MLPerf's load generator: `loadgen/results.cc`, summary of a server run with token latencies.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, Value, every};

const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 97.0, 99.0, 99.9];

pub(super) fn figures(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let n = s.completed_n();
    let [our_requests, our_output, _] = s.our_rates();
    let wall = s.wall();
    let (output, _) = s.tokens();
    let per_second = |x: Value| Ok(x? / wall.clone()?);
    s.push(
        ("completed_samples_per_second", "Completed samples per second"),
        per_second(Ok(n)),
        our_requests,
        Topic::TimeBase,
    );
    s.push(
        ("completed_tokens_per_second", "Completed tokens per second"),
        per_second(output),
        our_output,
        Topic::TimeBase,
    );
    // The queries are scheduled ahead, so its latencies count from arrival and not from sending.
    let ttft = every(&completed, "ttft", |r| Some(r.t.ttft()?.get()));
    let e2e = every(&completed, "e2e latency", |r| Some(r.t.e2e_latency()?.get()));
    let blocks = [
        ("latency", "latency (ns)", Beside::E2e, e2e, Topic::E2e, None),
        ("first_token_latency", "first token latency (ns)", Beside::Ttft, ttft, Topic::Ttft, None),
        (
            "time_to_output_token",
            "time to output token (ns)",
            Beside::Tpot,
            tpots(&completed),
            Topic::OneToken,
            Some("mlperf-divides-by-minus-one"),
        ),
    ];
    for (key, label, beside, values, topic, fault) in blocks {
        let one = |stat: &str, s| (format!("{stat}_{key}_ns"), format!("{stat} {label}"), s);
        let rows = vec![one("min", Stat::Min), one("max", Stat::Max), one("mean", Stat::Mean)];
        s.block(Block { beside, values: values.clone(), scale: 1e9, topic, rows, fault });
        let sorted = values.and_then(|mut v| {
            v.sort_unstable_by(f64::total_cmp);
            if v.is_empty() { Err("no completed request has it".to_owned()) } else { Ok(v) }
        });
        for p in PERCENTILES {
            let value = sorted.clone().map(|v| at(&v, p / 100.0) * 1e9);
            let ours = s.ours_of(beside, Stat::P(p)).map(|x| x * 1e9);
            let key = format!("p{p}_{key}_ns");
            s.push((&key, &format!("{p:.2} percentile {label}")), value, ours, Topic::Percentile);
        }
    }
}

/// `sorted[floor(n * p)]`, the last for p = 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a product of a length and a share"
)]
fn at(sorted: &[f64], p: f64) -> f64 {
    let i = (sorted.len() as f64 * p).floor() as usize;
    sorted.get(i).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// (latency − TTFT) / (n − 1); an answer with one token divides by zero.
fn tpots(requests: &[Seen<'_>]) -> Value<Vec<f64>> {
    let values = every(requests, "ttft, e2e latency and output tokens", |r| {
        Some((r.t.e2e_latency()?.get() - r.t.ttft()?.get(), r.output()?))
    })?;
    values
        .into_iter()
        .map(|(decode, n)| {
            let tpot = decode / (n - 1.0);
            if tpot.is_finite() {
                Ok(tpot)
            } else {
                Err("an answer has one token, and the tool divides by n - 1 = 0".to_owned())
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::at;

    /// 100 samples at p99: floor(99) is the last but none, where the nearest rank is the 99th.
    #[test]
    fn the_index_is_not_the_nearest_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(at(&sorted, 0.99), 100.0);
        assert_eq!(at(&sorted, 0.5), 51.0);
        assert_eq!(at(&sorted, 1.0), 100.0);
    }
}
