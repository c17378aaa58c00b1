//! `goodput queue`: every model, every form, both languages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

fn call(arguments: &str) -> goodput::Answer {
    let words = arguments.split_whitespace().map(str::to_owned);
    goodput::run(["goodput".to_owned(), "queue".to_owned()].into_iter().chain(words))
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

/// One call of each model.
const CALLS: &[&str] = &[
    "little --rate 20/s --time 500ms",
    "mm1 --rate 4/s --service 100ms --within 250ms --states 2 --curve 0.5,0.9",
    "mmc --rate 8/s --service 200ms --servers 3 --curve",
    "mmck --rate 20/s --service 200ms --servers 3 --places 10 --curve 0.5,1.5",
    "mminf --rate 20/s --service 1s",
    "finite-source --sources 16 --think 1s --service 200ms --servers 2",
    "engset --sources 16 --think 1s --service 200ms --servers 4",
    "erlang-a --rate 20/s --service 200ms --servers 4 --patience 2s --within 100ms --curve 0.5,2",
    "erlang --load 10 --servers 13.04",
    "gim1 --rate 4/s --service 100ms --gaps hyperexp:2 --curve",
    "mg1 --rate 4/s --service 100ms --cv 1.5 --curve",
    "mg1 --rate 4/s --service 100ms --law pareto:2.5",
    "tokens --rate 0.2/s --base 200ms --per-token 20ms --output-tokens lognormal:100:1 --max-tokens 256",
    "md1 --rate 4/s --service 100ms --curve",
    "mdc --rate 8/s --service 200ms --servers 3 --curve",
    "mph1 --rate 4/s --service 100ms --law hyperexp:3 --curve 0.1,0.9",
    "priority --class 2/s,100ms --class 5/s,100ms,lognormal:2 --order preemptive-resume",
    "ps --rate 4/s --service 100ms --curve",
    "lps --rate 4/s --rates 2/s,3.5/s,4.5/s,5/s --queue 20 --response --curve 0.5,1.2",
    "autoscaler --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 8 --max-queue 8 --response --curve 0.5",
    "autoscaler --law v1 --delta 1us --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 8",
    "batch --rate 100/s --per-request 2ms --fixed 10ms --cap 16 --curve 0.5",
    "batch --rate 100/s --per-request 2ms --fixed 10ms",
    "bulk --rate 20/s --service 100ms --batch 4 --rule closed",
    "batch-arrivals --rate 1/s --size geometric:4 --service 100ms",
    "closed --clients 16 --think 1s --demand 100ms",
    "birth-death --births 2/s,2/s,2/s --deaths 1/s,2/s,2/s",
    "ggc --rate 4/s --service 200ms --gap-cv 2 --cv 0.5",
    "stability --iteration 20ms --token-budget 512 --kv-tokens 400k --input-tokens 256 --output-tokens 128 --rate 60/s",
    "burst --gap-cv 2",
    "plan --target p_wait<10% --rate 40/s --service 1s --parts 4",
    "plan --target blocking<1% --servers 15 --service 1s",
    "required --rate 4/s --mean 250ms",
    "demand --rate 0.5/s --input-tokens 512 --output-tokens 128 --prefill 0.5ms --decode 10ms",
];

/// Every form of every model: JSON is JSON without NaN, CSV has one width, Chinese has Chinese, and
/// figures do not depend on the language.
#[test]
fn every_model_answers_in_every_form_and_language() {
    for call in CALLS {
        let text = run(call);
        assert!(text.lines().count() < 60 && !text.contains("NaN"), "{call}: {text}");
        let json: serde_json::Value =
            serde_json::from_str(&run(&format!("{call} --format json"))).unwrap();
        assert_eq!(json["schema_version"], 1);
        let figures = json["figures"].as_object().unwrap();
        // An infinite figure is null.
        let sound = |v: &serde_json::Value| v.is_null() || v.as_f64().is_some_and(|v| 0.0 <= v);
        assert!(figures.values().all(sound), "{call}: {json}");
        let csv = run(&format!("{call} --format csv"));
        let widths: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{call}: {csv}");
        assert!(run(&format!("{call} --format md")).contains("| ---"), "{call}");
        let zh: serde_json::Value =
            serde_json::from_str(&run(&format!("{call} --format json --lang zh"))).unwrap();
        assert_eq!(zh["figures"], json["figures"], "{call}");
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        assert!(is_chinese(zh["reading"].as_str().unwrap()), "{call}");
        assert!(!is_chinese(&text), "{call}: {text}");
    }
}

/// By hand: λ = 8, μ = 5, c = 3: a = 1.6 and C = 0.2738 (tests of the crate redo it); c μ − λ = 7, so
/// that P99 of the wait is ln(27.38) / 7 = 472.8 ms. At a load of 0.5, a = 1.5.
#[test]
fn a_curve_is_a_table_and_a_csv_file() {
    insta::assert_snapshot!(
        "queue_curve",
        run("mmc --rate 8/s --service 200ms --servers 3 --curve 0.5,0.8,0.95")
            + &run("mmc --rate 8/s --service 200ms --servers 3 --curve 0.5,0.8,0.95 --format csv")
    );
}

/// The autoscaler's published example: 2.949464/s, a mean TTFT of 60 ms, and the tail beside it.
#[test]
fn the_autoscalers_mean_stands_beside_its_tail() {
    insta::assert_snapshot!(
        "queue_autoscaler",
        run(
            "autoscaler --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 48 --max-queue 128 --ttft 60ms --response"
        )
    );
}

/// 40 erlangs with at most a tenth waiting: 50 servers, C(50, 40) = 8.70 %, C(49, 40) = 11.72 %; four
/// queues of 10 erlangs need 16 each. In Chinese as well.
#[test]
fn a_plan_shows_the_value_that_decides() {
    let plan = "plan --target p_wait<10% --rate 40/s --service 1s --parts 4";
    insta::assert_snapshot!("queue_plan", run(plan) + &run(&format!("{plan} --lang zh")));
}

#[test]
fn what_a_model_cannot_answer_is_refused_in_one_line() {
    let mut text = String::new();
    for call in [
        "mmc --rate 20/s --service 200ms --servers 3",
        "mm1 --rate 4/s --service 100ms --curve 0.5,1.2",
        "mg1 --rate 4/s --service 100ms --cv 1 --within 1s",
        "mg1 --rate 4/s --service 100ms --law normal:1",
        "mph1 --rate 4/s --service 100ms --law det",
        "gim1 --rate 4/s --service 100ms --gaps pareto:3",
        "plan --target p99(e2e)<1s --rate 4/s --service 100ms",
        "plan --target p99(response)<10ms --rate 4/s --service 100ms",
        "plan --target p_wait<120% --rate 4/s --service 100ms",
        "erlang --load 16 --servers x",
        "mm1 --rate 4/s --service 100ms --percentiles 50,abc",
        "mm1 --rate 4/s --service 100ms --states 1M",
        "finite-source --sources 4 --think 0s --service 1s",
        "autoscaler --law v1 --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 8",
        "autoscaler --ttft 1ms --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 8",
        "autoscaler --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 512 --max-batch 0",
        "autoscaler --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens nan --output-tokens 0 --max-batch 8",
        "autoscaler --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 --output-tokens 0 --max-batch 8",
        "plan --target p_wait<0% --rate 4/s --service 100ms",
        "plan --target p_wait<10% --rate 4/s --service 100ms --slots 0",
        "plan --target p_wait<10% --rate 4/s --service 100ms --parts 0",
        "plan --target p_wait<10% --servers 0 --service 100ms",
        "plan --target p_wait<10% --rate 4/s --service-rate 0",
        "priority --class 2/s",
        "birth-death --births 1/s,2/s --deaths 1/s",
        "batch --rate 1000/s --per-request 2ms --fixed 10ms",
    ] {
        text.push_str(&refused(call));
    }
    insta::assert_snapshot!("queue_refusals", text);
}

/// M/M/6 at 8/s with 500 ms each: the model's own curve says what 8.8/s do to the mean wait.
#[test]
fn a_tenth_more_load_is_what_the_model_says() {
    let wait = |rate: f64| queueing::Mmc::new(rate, 2.0, 6).unwrap();
    let (a, b) = (queueing::Queue::wq(&wait(8.0)), queueing::Queue::wq(&wait(8.8)));
    let by = format!("(+{:.1} %)", (b / a - 1.0) * 100.0);
    assert!(1.5 < b / a, "{by}"); // at two thirds of the capacity, a tenth more is not little
    let text = run("mmc --rate 8/s --service 500ms --servers 6");
    assert!(text.contains(&by) && !text.contains("There is room"), "{text}");
    let text = run("mdc --rate 11.5/s --service 500ms --servers 6");
    assert!(text.contains("more than it can take"), "{text}");
}
