//! What bad input is told, and what a policy may not do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use sched_sim::stepper::Scheduler;
use sched_sim::workload::{
    ArrivalLaw, Cancellations, ClosedLoop, Delay, LengthHistogram, LengthLaw, Lengths, Sessions,
    SystemPrompts, ThinkAfter, WorkloadSpec, chat,
};
use sched_sim::{
    Affine, DecodeFirst, Job, KvTransfer, Policy, RateScale, Replica, Result, Server, Simulation,
    Step, Ticks, Workload, WorkloadRequest,
};

fn at(seconds: &str) -> Ticks {
    Ticks::from_decimal_seconds(seconds).unwrap()
}

fn rows(rows: &[(&str, &str, u64, u64)]) -> Result<()> {
    let request = |&(id, s, i, o): &(&str, &str, u64, u64)| WorkloadRequest::new(id, at(s), i, o);
    Workload::new(rows.iter().map(request).collect()).map(|_| ())
}

/// One clause for each, naming the input, the bound and the value.
#[test]
fn bad_input_is_told_what_would_be_right() {
    let results: Vec<Result<()>> = vec![
        DecodeFirst::new(0, 512).map(|_| ()),
        DecodeFirst::new(64, 0).map(|_| ()),
        DecodeFirst::new(1 << 32, 1).map(|_| ()),
        Scheduler::default().submit("r", 1, 0),
        rows(&[("a", "2", 1, 1), ("b", "1.5", 1, 1)]),
        rows(&[("a", "0", 1, 1), ("b", "0", 1, 1), ("a", "1", 1, 1)]),
        rows(&[("a", "0", 1, 0)]),
        rows(&[("a", "0", 1 << 40, 1)]),
        Ticks::from_decimal_seconds("-1").map(|_| ()),
        Ticks::from_decimal_seconds("1e40").map(|_| ()),
        Ticks::from_decimal_seconds("1e-19").map(|_| ()),
        Ticks::from_seconds(f64::NAN).map(|_| ()),
        "0".parse::<RateScale>().map(|_| ()),
        chat(10, -1.0, 1).generate().map(|_| ()),
        KvTransfer::new(at("2"), Ticks::ZERO).map(|_| ()),
        KvTransfer::new(Ticks::ZERO, at("1001")).map(|_| ()),
        KvTransfer::at_bandwidth(1, 0, Ticks::ZERO).map(|_| ()),
        KvTransfer::at_bandwidth(1 << 33, 1, Ticks::ZERO).map(|_| ()),
        {
            let mut job = Job::new(7, Ticks::ZERO, 10, 3);
            job.made_tokens = 3;
            let step_time: Affine = "base=1ms".parse().unwrap();
            Replica::new(DecodeFirst::default(), step_time).submit(job)
        },
    ];
    let mut text = String::new();
    for result in results {
        writeln!(text, "{}", result.unwrap_err()).unwrap();
    }
    insta::assert_snapshot!(text, @"
    max_num_seqs must be at least 1, got 0
    chunk must be at least 1, got 0
    max_num_seqs must be at most 4294967295, got 4294967296
    output_tokens of request `r` must be 1 to 4294967295, got 0
    requests must be sorted by arrival: `b` (row 2) arrives at 1.5 s, the one before it at 2 s
    request ids must differ: `a` is in rows 1 and 3
    output_tokens of request `a` must be 1 to 4294967295, got 0
    input_tokens of request `a` must be 1 to 4294967295, got 1099511627776
    seconds `-1`: expected a time of at least 0
    seconds `1e40`: expected at most 3153600000 s (a hundred years)
    seconds `1e-19`: expected no digit finer than an attosecond (1e-18 s)
    seconds `NaN`: expected a finite number of at least 0
    rate scale `0`: expected a factor above 0 with at most 9 digits, such as `2`, `0.25` or `1/3`
    rate_per_s must be from 1e-6 to 1e9 requests per second, got -1
    KV transfer time per token must be at most 1s, got 2s
    KV transfer latency must be at most 1000s, got 1001s
    KV bandwidth in bit/s must be at least 1, got 0
    KV bytes per token must be at most 4294967296, got 8589934592
    made_tokens of request `7` must be 0 to 2, got 3
    ");
}

/// The grammar of a step time, each part by itself.
#[test]
fn bad_step_times_are_told_what_would_be_right() {
    let mut text = String::new();
    for step_time in [
        "",
        "8ms",
        "base=8",
        "base=8ms/token",
        "prefill=60us",
        "prefill=-60us/token",
        "prefill=1e9s/token",
        "prefill=5000s/token",
        "speed=1ms",
        "base=1ms,base=2ms",
        "attention=2us/pair",
        "attention=3as/pair",
    ] {
        let error = step_time.parse::<Affine>().unwrap_err();
        writeln!(text, "{error}").unwrap();
    }
    insta::assert_snapshot!(text, @"
    step time ``: expected NAME=TIME, for example `prefill=60us/token`
    step time `8ms`: expected NAME=TIME, for example `prefill=60us/token`
    step time `base=8`: expected a number with one of the units s, ms, us, ns, ps, fs, as: `8ms`
    step time `base=8ms/token`: expected a time per step, for example `base=8ms`
    step time `prefill=60us`: expected a time/token, for example `prefill=60us/token`
    step time `prefill=-60us/token`: expected a time of at least 0
    prefill must be at most 1000s, got 1000000000s
    prefill must be at most 1000s, got 5000s
    step time `speed=1ms`: expected one of base, prefill, decode, context, attention
    step time `base=2ms`: expected `base` once
    attention must be at most 1us, got 2us
    attention coefficient `3as/pair`: expected an even number of attoseconds, since the work holds half pairs
    ");
}

/// Each parameter of a generated workload, one step beyond its bound.
#[test]
fn parameters_out_of_range_are_named() {
    let law = |text: &str| text.parse::<LengthLaw>().unwrap();
    let with = |change: &dyn Fn(&mut WorkloadSpec)| {
        let mut spec = chat(1, 1.0, 1);
        change(&mut spec);
        spec.check().unwrap_err()
    };
    let output = |text: &str| {
        let lengths = Lengths::Independent { input: LengthLaw::Constant(1), output: law(text) };
        with(&|s| s.lengths = lengths.clone())
    };
    let arrivals = |text: &str| with(&|s| s.arrivals = text.parse::<ArrivalLaw>().unwrap());
    let session = |turns: &str, think: &str| {
        let think = think.parse::<Delay>().unwrap();
        let after = ThinkAfter::Arrival;
        with(&|s| s.sessions = Some(Sessions { turns: law(turns), think, after }))
    };
    let system =
        |text: &str| with(&|s| s.system_prompts = Some(text.parse::<SystemPrompts>().unwrap()));
    let closed = |users, think: &str| {
        let lengths = chat(1, 1.0, 1).lengths;
        let think = think.parse().unwrap();
        let spec = chat(1, 1.0, 1);
        ClosedLoop {
            users,
            think,
            requests: 1,
            lengths,
            system_prompts: None,
            sessions: spec.sessions,
            cancellations: spec.cancellations,
            seed: 1,
        }
    };
    let leave = |text: &str| match text.parse::<Cancellations>() {
        Ok(law) => with(&|s| s.cancellations = Some(law)),
        Err(error) => error,
    };
    let mut text = String::new();
    for error in [
        output("lognormal:median=0,sigma=1"),
        output("lognormal:median=1,sigma=inf"),
        output("lognormal:median=1,sigma=1,min=0"),
        output("lognormal:median=1,sigma=1,min=2000,max=1000"),
        output("uniform:200,100"),
        output("geometric:0.5"),
        output("zipf:-1,max=5"),
        output("0"),
        arrivals("gamma:cv=0"),
        arrivals("on-off:on=1ms,off=1ms,low=2"),
        arrivals("on-off:on=100us,off=100us"),
        arrivals("on-off:on=1ms,off=0s"),
        arrivals("sine:amplitude=1.5,period=1s"),
        session("geometric:4", "1s"),
        session("4", "uniform:2s,1s"),
        leave("5s"),
        leave("5,2s"),
        leave("5%,normal"),
        leave("after=5s,share=0.5"),
        leave("share=0.5,after=uniform:2s,1s"),
        system("0"),
        system("tokens=5,count=0"),
        system("5,skew=-1"),
        closed(0, "1s").arrivals().unwrap_err(),
        closed(1, "lognormal:1s,11").arrivals().unwrap_err(),
        LengthHistogram::new([(5, 0)]).unwrap_err(),
        LengthHistogram::new([(0, 3)]).unwrap_err(),
        LengthHistogram::new([(1, 1 << 33)]).unwrap_err(),
    ] {
        writeln!(text, "{error}").unwrap();
    }
    insta::assert_snapshot!(text, @"
    output_tokens.median must be above 0 and below 1e9, got 0
    output_tokens.sigma must be from 0 to 10, got inf
    output_tokens.min must be at least 1, got 0
    output_tokens.max must be at least min, 2000, and at most 4294967295, got 1000
    output_tokens.max must be at least min, 200, and at most 4294967295, got 100
    output_tokens.mean must be at least 1 and below 1e9, got 0.5
    output_tokens.exponent must be from 0 to 20, got -1
    output_tokens must be from 1 to 4294967295, got 0
    arrivals.cv must be from 0.01 to 10, got 0
    arrivals.low must be from 0 to 1, got 2
    arrivals.on + off must be at least a thousandth of the mean gap, in seconds, got 0.0002
    arrivals.off must be from 1us to a hundred years, in seconds, got 0
    arrivals.amplitude must be from 0 to 1, got 1.5
    turns must be at most 1000 turns: give the law a `max`, got 4294967295
    think.max must be at least min, 2s, got 1s
    cancellations `5s`: expected a share of the clients and how long after their arrival they go away, such as `10%,exponential:mean=5s`
    cancellations `5,2s`: expected a share of the clients and how long after their arrival they go away, such as `10%,exponential:mean=5s`; the share is from 0 to 1, or 0% to 100%
    law of times `normal`: expected a time such as `5s`, or one of `exponential:mean=10s`, `uniform:1s,5s`, `lognormal:median=10s,sigma=1`
    cancellations `after=5s,share=0.5`: expected a share of the clients and how long after their arrival they go away, such as `10%,exponential:mean=5s`; the share is from 0 to 1, or 0% to 100%
    cancellations.after.max must be at least min, 2s, got 1s
    system_prompts.tokens must be from 1 to 4294967295, got 0
    system_prompts.count must be from 1 to 1000000, got 0
    system_prompts.skew must be from 0 to 20, got -1
    users must be from 1 to 1000000, got 0
    think.sigma must be from 0 to 10, got 11
    lengths of a histogram must be at least 1, got 0
    length must be from 1 to 4294967295, got 0
    lengths of a histogram must be at most 4294967296, got 8589934592
    ");
}

/// The grammar of the laws, each part by itself.
#[test]
fn bad_laws_are_told_what_would_be_right() {
    let mut text = String::new();
    for law in [
        "",
        "normal:5",
        "uniform:5",
        "uniform:5,6,7",
        "uniform:5,low=6",
        "uniform:min=5,min=6",
        "uniform:5,x",
        "lognormal:median=5,mean=6,sigma=1",
        "lognormal:sigma=1",
        "1.5",
    ] {
        writeln!(text, "{}", law.parse::<LengthLaw>().unwrap_err()).unwrap();
    }
    for law in ["", "weibull", "poisson:3", "gamma", "gamma:cv=x", "sine:0.5,60"] {
        writeln!(text, "{}", law.parse::<ArrivalLaw>().unwrap_err()).unwrap();
    }
    for law in ["", "5", "exponential:mean=-1s"] {
        writeln!(text, "{}", law.parse::<Delay>().unwrap_err()).unwrap();
    }
    writeln!(text, "{}", "count=4".parse::<SystemPrompts>().unwrap_err()).unwrap();
    insta::assert_snapshot!(text, @"
    law of lengths ``: expected a whole number from 1 to 4294967295, or one of `uniform:100,200`, `geometric:mean=200`, `lognormal:median=600,sigma=1.1`, `zipf:exponent=1.2,max=4096`
    law of lengths `normal:5`: expected a whole number from 1 to 4294967295, or one of `uniform:100,200`, `geometric:mean=200`, `lognormal:median=600,sigma=1.1`, `zipf:exponent=1.2,max=4096`
    law of lengths `uniform:5`: expected a whole number up to 2^53 for `max`
    law of lengths `uniform:5,6,7`: expected the values min, max, each once
    law of lengths `uniform:5,low=6`: expected the values min, max, each once
    law of lengths `uniform:min=5,min=6`: expected `min` once
    law of lengths `uniform:5,x`: expected a whole number up to 2^53 for `max`, got `x`
    law of lengths `lognormal:median=5,mean=6,sigma=1`: expected either `median` or `mean`
    law of lengths `lognormal:sigma=1`: expected either `median` or `mean`
    law of lengths `1.5`: expected a whole number from 1 to 4294967295, or one of `uniform:100,200`, `geometric:mean=200`, `lognormal:median=600,sigma=1.1`, `zipf:exponent=1.2,max=4096`
    law of arrivals ``: expected one of `poisson`, `gamma:cv=2`, `deterministic`, `on-off:on=10s,off=30s`, `sine:amplitude=0.5,period=60s`
    law of arrivals `weibull`: expected one of `poisson`, `gamma:cv=2`, `deterministic`, `on-off:on=10s,off=30s`, `sine:amplitude=0.5,period=60s`
    law of arrivals `poisson:3`: expected no values
    law of arrivals `gamma`: expected a number for `cv`
    law of arrivals `gamma:cv=x`: expected a number for `cv`, got `x`
    law of arrivals `sine:0.5,60`: expected a time such as 5s or 200ms for `period`, got `60`
    law of times ``: expected a time such as `5s`, or one of `exponential:mean=10s`, `uniform:1s,5s`, `lognormal:median=10s,sigma=1`
    law of times `5`: expected a time such as `5s`, or one of `exponential:mean=10s`, `uniform:1s,5s`, `lognormal:median=10s,sigma=1`
    duration `-1s`: expected a time of at least 0
    system prompts `count=4`: expected a whole number up to 2^53 for `tokens`
    ");
}

/// A policy made of one function, to try what a step refuses.
#[derive(Clone, Copy)]
struct Try(fn(&mut Step<'_>) -> Result<()>);

impl Policy for Try {
    fn name(&self) -> &'static str {
        "try"
    }

    fn max_num_seqs(&self) -> u64 {
        1
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        (self.0)(step)
    }
}

/// Both engines refuse the same, with time and numbers.
#[test]
fn a_step_refuses_what_would_break_an_invariant() {
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", Ticks::ZERO, 10, 3),
        WorkloadRequest::new("b", Ticks::ZERO, 10, 1),
    ]);
    let workload = workload.unwrap();
    let policies: [fn(&mut Step<'_>) -> Result<()>; 12] = [
        |s| s.admit(5).and_then(|_| s.admit(5)).map(|_| ()),
        |s| s.admit(11).map(|_| ()),
        |s| s.admit(0).map(|_| ()),
        |s| s.decode(0),
        |s| s.decode(9),
        |s| s.prefill_all(0),
        |s| if s.running() == 0 { s.admit(5).map(|_| ()) } else { s.prefill(0, 6) },
        |s| if s.running() == 0 { s.admit(5).map(|_| ()) } else { s.decode(0) },
        |s| if s.running() == 0 { s.admit(10).map(|_| ()) } else { s.prefill(0, 1) },
        |s| {
            if s.running() == 0 {
                return s.admit(10).map(|_| ());
            }
            s.decode_all()?;
            s.decode(0)
        },
        |s| {
            if s.running() == 0 {
                return s.admit(5).map(|_| ());
            }
            s.prefill_all(2)?;
            s.prefill_all(2)
        },
        |s| {
            if s.running() == 0 {
                return s.admit(10).map(|_| ());
            }
            s.decode(0)?;
            s.decode_all()
        },
    ];
    let step_time: Affine = "base=1ms".parse().unwrap();
    let mut text = String::new();
    for policy in policies {
        let run = || Simulation::new(&workload, Try(policy), step_time);
        let error = run().run().unwrap_err();
        assert_eq!(run().run_reference().unwrap_err(), error);
        writeln!(text, "{error}").unwrap();
    }
    insta::assert_snapshot!(text, @"
    step 1 at 0 s: cannot admit: 1 of at most 1 requests are running
    step 1 at 0 s: a prefill of request `a` must take 1 to 10 tokens, got 11
    step 1 at 0 s: a prefill of request `a` must take 1 to 10 tokens, got 0
    step 1 at 0 s: request `a` is not in decode at the start of this step
    step 1 at 0 s: position 9 is none of the 2 requests that are inside
    step 1 at 0 s: a prefill chunk must be at least 1 token, got 0
    step 2 at 0.001 s: a prefill of request `a` must take 1 to 5 tokens, got 6
    step 2 at 0.001 s: request `a` is not in decode at the start of this step
    step 2 at 0.001 s: request `a` is not in prefill at the start of this step
    step 2 at 0.001 s: request `a` already has work in this step
    step 2 at 0.001 s: a request in prefill already has work in this step
    step 2 at 0.001 s: a request in decode already has work in this step
    ");
}

/// Serving nobody is an end that says so, not a loop and not a result.
#[test]
fn a_policy_that_serves_nobody_stalls_the_run() {
    let workload = Workload::new(vec![WorkloadRequest::new("a", at("1"), 10, 3)]).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let run = || Simulation::new(&workload, Try(|_| Ok(())), step_time);
    let result = run().run().unwrap();
    assert_eq!(result, run().run_reference().unwrap());
    assert_eq!(result.end(), sched_sim::RunEnd::Stalled);
    assert!(result.end().is_truncated());
    assert_eq!((result.statistics().injected, result.statistics().queued), (1, 1));
}

/// 2³¹ steps of 1000 s would take 68,000 years.
#[test]
fn a_run_beyond_the_clock_is_refused() {
    let workload = Workload::new(vec![WorkloadRequest::new("a", at("0"), 1, 1 << 31)]).unwrap();
    let step_time: Affine = "base=1000s".parse().unwrap();
    let run = Simulation::new(&workload, DecodeFirst::default(), step_time);
    assert_eq!(run.run().unwrap_err(), sched_sim::SimError::RunTooLong);
}

/// A line end within a text, as TOML can write one, does not break the message.
#[test]
fn a_message_of_a_broken_text_is_one_line() {
    let said = "prefAll=1ms\n\tx".parse::<sched_sim::Affine>().unwrap_err().to_string();
    assert_eq!(
        said,
        r"step time `prefAll=1ms\n\tx`: expected one of base, prefill, decode, context, attention"
    );
}
