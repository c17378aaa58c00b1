//! Probe.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "x")]
use capacity::fit::{Form, Point, fit, sources};
use std::collections::BTreeMap;
#[test]
fn probe() {
    let root = std::path::PathBuf::from(std::env::var_os("GOODPUT_DATA").unwrap()).join("measured");
    for f in [
        "splitwise_sim/perf_model.csv",
        "llm_pilot/summary.csv",
        "gpullm_digital_twin/vllm_llama31_8b_batch_sweep.csv",
        "aiconfigurator/silicon_sample.csv.gz",
        "llmservingsim/profile/RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1",
        "llmservingsim/profile/RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1",
        "llmservingsim/profile/RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2",
        "llmservingsim/bench/RTX4090_Llama-3.1-8B/requests.jsonl",
    ] {
        let s = match sources::read(
            &root.join(f),
            &sources::Options {
                kv_tokens: if f.contains("RTX4090") {
                    Some(41408)
                } else if f.contains("RTXPRO6000") {
                    Some(400000)
                } else {
                    None
                },
                ..Default::default()
            },
        ) {
            Ok(s) => s,
            Err(e) => {
                println!("{f}: {e}");
                continue;
            }
        };
        println!(
            "== {} {} points {} {:?} {:?}",
            s.name,
            s.kind,
            s.points.len(),
            s.excluded,
            s.assumed
        );
        let mut g: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        for p in s.points {
            g.entry(p.group.clone()).or_default().push(p);
        }
        let many = 20 < g.len();
        for form in [Form::TwoRegime, Form::Floored, Form::Affine, Form::Split] {
            let mut all = vec![];
            for (name, pts) in &g {
                if many && pts.len() < 8 {
                    continue;
                }
                match fit(pts, form) {
                    Ok(x) => {
                        for part in x.parts() {
                            all.push((part.regime, part.errors.mean_absolute));
                            if !many {
                                println!(
                                    "{name} {form:?} {:?} {:?} floor {:?} {:.4?} ols {:?} jump {:?} out {} weak {:?}",
                                    part.regime,
                                    part.coefficients
                                        .iter()
                                        .map(|(t, x)| format!("{}={:.4e}", t.symbol(), x * 1e3))
                                        .collect::<Vec<_>>()
                                        .join(" "),
                                    part.floor,
                                    part.errors,
                                    part.ordinary.as_ref().map(|(r, e)| (
                                        r,
                                        e.mean_absolute,
                                        e.worst
                                    )),
                                    part.jump,
                                    part.outliers.0,
                                    part.weaknesses
                                        .iter()
                                        .map(|w| w.text().split(':').next().unwrap().to_owned())
                                        .collect::<Vec<_>>()
                                );
                            }
                        }
                    }
                    Err(e) => println!("{name} {e}"),
                }
            }
            let mut by: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for (r, m) in all {
                by.entry(format!("{r:?}")).or_default().push(m);
            }
            for (r, mut v) in by {
                let n = v.len() as f64;
                v.sort_by(f64::total_cmp);
                println!(
                    "   {form:?} {r}: {} groups mean {:.2} % median {:.2} %",
                    v.len(),
                    v.iter().sum::<f64>() / n * 100.0,
                    v[v.len() / 2] * 100.0
                );
            }
        }
    }
}
