//! `goodput kv`: what fits, from names, files and numbers, in every form and both languages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

use serde_json::Value;

fn call(arguments: &str) -> goodput::Answer {
    let words = arguments.split_whitespace().map(str::to_owned);
    goodput::run(["goodput".to_owned(), "kv".to_owned()].into_iter().chain(words))
}

fn run(arguments: &str) -> String {
    let answer = call(arguments);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{arguments}");
    answer.out
}

fn refused(arguments: &str) -> String {
    let answer = call(arguments);
    assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{arguments}");
    answer.err
}

/// A figure of the JSON answer.
fn figure(arguments: &str, key: &str) -> f64 {
    let json: Value = serde_json::from_str(&run(&format!("{arguments} --format json"))).unwrap();
    assert_eq!(json["schema_version"], 1);
    json["figures"][key].as_f64().unwrap_or_else(|| panic!("{arguments}: no {key}: {json}"))
}

/// 16 GiB over 28 layers of 4 heads of 128 in bf16: 57,344 B a token, 18,724 blocks of 16. MLA of rank
/// 512 with 64 positions over 61 layers: 61 · 576 · 2 B.
#[test]
fn the_published_pools_come_out_exactly() {
    let numbers = "--layers 28 --kv-heads 4 --head-dim 128 --memory-for-kv 16GiB";
    assert_eq!(figure(numbers, "kv_bytes_per_token"), 57_344.0);
    assert_eq!(figure(numbers, "kv_blocks"), 18_724.0);
    assert_eq!(figure(numbers, "kv_tokens"), 299_584.0);
    let mla = "--layers 61 --kv-lora-rank 512 --rope-dim 64";
    assert_eq!(figure(mla, "kv_bytes_per_token"), 70_272.0);
    assert_eq!(figure("--model deepseek-v3", "kv_bytes_per_token"), 70_272.0);
    // Qwen2.5-7B is the model of the first.
    assert_eq!(figure("--model qwen2.5-7b --memory-for-kv 16GiB", "kv_tokens"), 299_584.0);
}

/// The public cases about KV, through the command line.
#[test]
fn every_worked_case_of_kv_holds_within_its_tolerance() {
    let text = include_str!("../../metrics-core/tests/data/worked-cases.jsonl");
    let mut checked = 0;
    for line in text.lines() {
        let c: Value = serde_json::from_str(line).unwrap();
        let x = |key: &str| c["inputs"][key].to_string();
        let got = match c["id"].as_str().unwrap() {
            "K013" | "K014" => figure(
                &format!(
                    "--layers {} --kv-heads {} --head-dim {} --memory-for-kv {}GiB --block-size {}",
                    x("layers"),
                    x("kv_heads"),
                    x("head_dim"),
                    x("pool_GiB"),
                    x("block")
                ),
                "kv_blocks",
            ),
            "K016" | "K017" => figure(
                &format!(
                    "--num-kv-blocks {} --block-size {} --context {}",
                    x("blocks"),
                    x("block"),
                    x("max_model_len")
                ),
                "requests_at_context",
            ),
            // One byte an element, in 16 of 64 layers.
            "K019" => {
                let call = format!(
                    "--layers {} --kv-heads {} --head-dim {} --dtype fp8 --mean-tokens {}",
                    x("full_attn_layers"),
                    x("kv_heads"),
                    x("head_dim"),
                    x("tokens")
                );
                figure(&call, "mean_request_bytes") / 1_073_741_824.0
            }
            // The page's model is the 8B one, with all of the memory and round weights.
            "K020" => figure(
                "--model llama-3.1-8b --gpu-memory 80GB --gpu-memory-utilization 1 --weights 16GB \
                 --context 10000",
                "requests_at_context",
            ),
            "K022" => figure(
                &format!(
                    "--num-kv-blocks 18724 --input-tokens {} --output-tokens {} --concurrency {}",
                    x("isl"),
                    x("osl"),
                    x("conc")
                ),
                "demand",
            ),
            _ => continue,
        };
        let want = c["observed"].as_f64().unwrap();
        let tolerance = c["tolerance"].as_f64().unwrap();
        assert!((got / want - 1.0).abs() <= tolerance, "{}: {got} against {want}", c["id"]);
        checked += 1;
    }
    assert_eq!(checked, 7);
}

/// By hand: 0.92 · 81,559 MiB − 2 · 8,030,261,248 B = 62,616,… B; over 16 · 131,072 B 29,858 blocks;
/// 8,192 blocks for 131,072 tokens, 125 for 2,000.
#[test]
fn a_model_on_a_gpu_in_words() {
    insta::assert_snapshot!(
        "kv_model",
        run("--model llama-3.1-8b --gpu h100 --mean-tokens 2000")
            + &run("--model llama-3.1-8b --gpu h100 --mean-tokens 2000 --lang zh")
    );
}

/// gpt-oss-120b: groups of 18 layers of 2,048 B: 576 KiB a block of 16. Full attention takes
/// ⌈32,000 / 16⌉ = 2,000 blocks, the window ⌈(127 + 8,192) / 16⌉ + 1 = 521.
#[test]
fn windows_take_blocks_of_their_own() {
    let call = "--model gpt-oss-120b --memory-for-kv 10GiB --context 32k";
    let blocks = (10.0 * 1_073_741_824.0_f64 / (16.0 * 18.0 * 2048.0)).floor();
    assert_eq!(figure(call, "kv_blocks"), blocks);
    assert_eq!(figure(call, "requests_at_context"), blocks / 2521.0);
    let small = format!("{call} --max-num-batched-tokens 2048");
    assert_eq!(figure(&small, "requests_at_context"), blocks / (2000.0 + 137.0));
    assert!(run(call).contains("hybrid KV cache manager"));
}

/// A quarter of the heads on each of four GPUs, one head on each of eight and of sixteen; MLA whole.
#[test]
fn each_gpu_keeps_its_part() {
    let per_gpu = |tp: u32| {
        figure(
            &format!("--layers 80 --kv-heads 8 --head-dim 128 --tp {tp} --memory-for-kv 1GiB"),
            "kv_bytes_per_token_per_gpu",
        )
    };
    let head = 2.0 * 80.0 * 128.0 * 2.0;
    assert_eq!([4, 8, 16].map(per_gpu), [2.0 * head, head, head]);
    assert_eq!(figure("--model deepseek-v3 --tp 8", "kv_bytes_per_token_per_gpu"), 70_272.0);
    let fp8 = "--model llama-3.1-70b --gpu h100 --tp 4 --context 8192";
    let (auto, fp8) =
        (figure(fp8, "kv_tokens"), figure(&format!("{fp8} --dtype fp8"), "kv_tokens"));
    assert!((fp8 / auto - 2.0).abs() < 1e-4);
}

/// JSON is JSON, CSV has one width, Chinese is Chinese with the same figures, and W20 is in the JSON.
#[test]
fn every_form_and_language_has_the_same_figures() {
    for call in [
        "--model llama-3.1-8b --gpu h100 --mean-tokens 2000 --concurrency 500",
        "--num-kv-blocks 1381 --context 2048",
        "--layers 61 --kv-lora-rank 512",
    ] {
        let json = |more: &str| -> Value {
            serde_json::from_str(&run(&format!("{call} --format json{more}"))).unwrap()
        };
        let (en, zh) = (json(""), json(" --lang zh"));
        assert_eq!(en["figures"], zh["figures"], "{call}");
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        assert!(is_chinese(zh["reading"].as_str().unwrap()), "{call}");
        assert!(!is_chinese(&run(call)), "{call}");
        let csv = run(&format!("{call} --format csv"));
        assert!(csv.lines().all(|line| line.split(',').count() == 2), "{csv}");
        assert!(run(&format!("{call} --format md")).contains("| ---"), "{call}");
        let raised = en["findings"].as_array().is_some_and(|f| f[0]["id"] == "W20");
        assert_eq!(raised, call.contains("--mean-tokens"), "{en}");
    }
}

/// Two of eight layers of Bamba's kind attend: 2 · 2 · 4 · 64 · 2 B. An architecture that no one
/// knows is counted as attention in all eight, and says so in both languages.
#[test]
fn a_config_says_which_layers_attend_or_that_all_are_taken_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let call = |kind: &str, more: &str| {
        let text = format!(
            r#"{{"model_type": "{kind}", "hidden_size": 1024, "num_hidden_layers": 8,
                "num_attention_heads": 16, "num_key_value_heads": 4{more}}}"#
        );
        std::fs::write(&path, text).unwrap();
        format!("--config {}", path.display())
    };
    let bamba = call("bamba", r#", "attn_layer_indices": [2, 5], "mamba_d_state": 256"#);
    assert_eq!(figure(&bamba, "kv_bytes_per_token"), 2048.0);
    assert!(!run(&bamba).contains("Assumed"), "{}", run(&bamba));
    let other = call("brand_new", "");
    assert_eq!(figure(&other, "kv_bytes_per_token"), 8192.0);
    let note = "Assumed: the architecture `brand_new` is not known: all layers";
    assert!(run(&other).contains(note), "{}", run(&other));
    assert!(run(&format!("{other} --lang zh")).contains("假设：the architecture"));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let mut text = String::new();
    for call in [
        "",
        "--model llama-3.1-9b",
        "--model llama-3.1-8b --gpu h1000",
        "--model llama-3.1-8b --context 200k",
        "--model llama-3.1-8b --mean-tokens 200k",
        "--model llama-3.1-8b --memory-for-kv 1GiB --context 32k",
        "--model llama-3.1-8b --memory-for-kv 16",
        "--model llama-3.1-8b --memory-for-kv 0GB",
        "--model llama-3.1-8b --gpu h100 --gpu-memory-utilization 90",
        "--model llama-3.1-70b --gpu h100",
        "--model llama-3.1-8b --gpu h100 --tp 3",
        "--model llama-3.1-8b --gpu h100 --tp 0",
        "--model llama-3.1-8b --tp 100000",
        "--model llama-3.1-8b --weights 16GB",
        "--model llama-3.1-8b --dtype fp9",
        "--model llama-3.1-8b --max-num-batched-tokens 2048",
        "--model llama-3.1-8b --concurrency 5",
        "--layers 28",
        "--layers 0 --kv-heads 4 --head-dim 128",
        "--layers 28 --kv-heads 4 --head-dim 1e30",
        "--layers 28 --kv-heads 4 --head-dim 128 --gpu h100",
        "--num-kv-blocks 0 --context 2048",
        "--num-kv-blocks 0",
        "--num-kv-blocks 100 --tp 2",
        "--layers 32 --kv-heads 8 --head-dim 128 --rope-dim 64",
        "--layers 61 --kv-lora-rank 512 --head-dim 128",
        "--layers 32 --kv-heads 8 --head-dim 128 --block-size 32",
        "--num-kv-blocks 100 --input-tokens 900 --output-tokens 500 --context 1000",
        "--model llama-3.1-8b --memory-for-kv -1GB",
        "--model llama-3.1-8b --gpu h100 --reserved-memory -1GB",
        "--num-kv-blocks 100 --block-size 0",
        "--num-kv-blocks 100 --mean-tokens 0",
        "--memory-for-kv 16GiB",
        "--config none.json",
    ] {
        text.push_str(&format!("{call}\n  {}", refused(call)));
    }
    insta::assert_snapshot!("kv_refusals", text);
}
