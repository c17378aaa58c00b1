//! Seeded workloads, rates, and what a text says exactly.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use sched_sim::workload::{LengthLaw, Lengths, WorkloadSpec, chat};
use sched_sim::{
    Affine, Coefficients, DecodeFirst, LoadLevel, OfferedLoad, RateScale, RequestId, Ticks,
    Workload, WorkloadRequest,
};

fn columns(w: &Workload) -> (Vec<Ticks>, Vec<u64>, Vec<u64>) {
    let r = w.requests();
    (
        r.iter().map(|r| r.arrival).collect(),
        r.iter().map(|r| r.input_tokens).collect(),
        r.iter().map(|r| r.output_tokens).collect(),
    )
}

/// Each stream is its own: a change in one leaves the others as they were.
#[test]
fn changing_one_stream_leaves_the_others() {
    let base = chat(500, 4.0, 11);
    let (arrivals, inputs, outputs) = columns(&base.generate().unwrap());
    let drawn = |change: &dyn Fn(&mut WorkloadSpec)| {
        let mut other = base.clone();
        change(&mut other);
        columns(&other.generate().unwrap())
    };
    let short: LengthLaw = "lognormal:20,1.1".parse().unwrap();
    let Lengths::Independent { input, output } = base.lengths.clone() else { unreachable!() };

    let (a, i, o) = drawn(&|s| s.rate_per_s = 8.0);
    assert!(a != arrivals && i == inputs && o == outputs);
    let (a, i, o) = drawn(&|s| s.arrivals = "gamma:3".parse().unwrap());
    assert!(a != arrivals && i == inputs && o == outputs);

    let (a, i, o) = drawn(&|s| {
        s.lengths = Lengths::Independent { input: short.clone(), output: output.clone() };
    });
    assert!(a == arrivals && i != inputs && o == outputs);

    let (a, i, o) = drawn(&|s| {
        s.lengths = Lengths::Independent { input: input.clone(), output: short.clone() };
    });
    assert!(a == arrivals && i == inputs && o != outputs);

    // A system prompt comes on top of the same prompts.
    let (a, i, o) = drawn(&|s| s.system_prompts = Some("100,count=3".parse().unwrap()));
    assert!(a == arrivals && o == outputs && i.iter().zip(&inputs).all(|(a, b)| *a == b + 100));

    let (a, i, o) = drawn(&|s| s.seed = 12);
    assert!(a != arrivals && i != inputs && o != outputs);

    let fewer = WorkloadSpec { requests: 100, ..base.clone() };
    assert_eq!(fewer.generate().unwrap(), base.generate().unwrap().slice(0..100));
}

/// Mean gap and median lengths of 20,000 requests are within five standard errors of what the
/// parameters say: 1/√n of the mean for exponential gaps; for the logarithm of a median
/// 1.2533·sigma/√n, the large-sample error of a normal median, plus half a token of rounding.
#[test]
fn generated_workloads_have_the_stated_moments() {
    let n = 20_000;
    let spec = chat(n, 5.0, 3);
    let workload = spec.generate().unwrap();
    let root = (n as f64).sqrt();

    let last = workload.requests().last().unwrap().arrival.seconds();
    assert!((last / n as f64 * 5.0 - 1.0).abs() < 5.0 / root, "{last}");

    let (_, inputs, outputs) = columns(&workload);
    for (mut lengths, (law_median, sigma)) in [(inputs, (600.0, 1.1)), (outputs, (160.0, 0.8))] {
        lengths.sort_unstable();
        let median = lengths[lengths.len() / 2] as f64;
        let error = 5.0 * 1.2533 * sigma / root + 0.5 / law_median;
        assert!((median / law_median).ln().abs() < error, "{median} {law_median}");
        // Half the logarithm's mass is within 0.6745 sigma of the median.
        let near =
            lengths.iter().filter(|&&x| ((x as f64) / law_median).ln().abs() < 0.6745 * sigma);
        let share = near.count() as f64 / n as f64;
        assert!((share - 0.5).abs() < 5.0 * 0.5 / root + 0.01, "{share}");
    }
    let text = "the first requests, so that a change of the generators shows";
    let first: Vec<_> = workload.requests().iter().take(3).collect();
    let first: Vec<String> = first
        .iter()
        .map(|r| format!("{} at {}: {} + {}", r.id, r.arrival, r.input_tokens, r.output_tokens))
        .collect();
    insta::assert_snapshot!(format!("{text}\n{}", first.join("\n")), @"
    the first requests, so that a change of the generators shows
    1 at 0.096850597922 s: 559 + 706
    2 at 0.121872953878 s: 2271 + 201
    3 at 0.603890804572 s: 4508 + 71
    ");
}

/// A load of half the rate is half the load, and at ten times the rate nobody may call it steady.
#[test]
fn load_is_relative_to_what_a_full_batch_can_do() {
    let step_time: Affine =
        "base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token".parse().unwrap();
    let policy = DecodeFirst::new(16, 512).unwrap();
    let workload = chat(3000, 4.0, 5).generate().unwrap();
    let load = OfferedLoad::of(&workload, policy, step_time).unwrap();

    // Both capacities say the same but for the start, when nobody decodes yet: the batch needs
    // about one service time, of about 3000 / 16 in all, to be mixed.
    let (rho, relative) = (load.rho().unwrap(), load.relative().unwrap());
    assert!((relative / rho - 1.0).abs() < 0.05, "{rho} {relative}");

    let half = workload.scale_rate("0.5".parse().unwrap()).unwrap();
    let half = OfferedLoad::of(&half, policy, step_time).unwrap();
    assert!((half.rho().unwrap() / rho - 0.5).abs() < 1e-9);
    let tenfold = workload.scale_rate(RateScale::new(10, 1).unwrap()).unwrap();
    let tenfold = OfferedLoad::of(&tenfold, policy, step_time).unwrap();
    assert_eq!(tenfold.level(), Some(LoadLevel::Overloaded));
    assert!(!LoadLevel::Overloaded.can_be_steady());
    assert_eq!(LoadLevel::of(0.95), LoadLevel::NearSaturation);
}

/// All at once has no rate, and without a queue there is no saturation to measure.
#[test]
fn load_without_a_rate_or_a_queue_is_unknown() {
    let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 5, 5)]).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let load = OfferedLoad::of(&workload, DecodeFirst::default(), step_time).unwrap();
    assert_eq!((load.rho(), load.relative(), load.level()), (None, None, None));
}

/// Arrivals at 1 s, 2 s and 5 s at 3/2 of the rate: 1 s, 1 + 2/3 s, 1 + 8/3 s, down to the tick.
#[test]
fn rate_scaling_keeps_the_first_arrival() {
    let rows = [1, 2, 5]
        .map(|s| WorkloadRequest::new(s, Ticks::from_nanoseconds(s * 1_000_000_000), 1, 1));
    let workload = Workload::new(rows.to_vec()).unwrap();
    let scaled = workload.scale_rate("1.5".parse().unwrap()).unwrap();
    let arrivals: Vec<u128> = scaled.requests().iter().map(|r| r.arrival.attoseconds()).collect();
    assert_eq!(
        arrivals,
        [1_000_000_000_000_000_000, 1_666_666_666_666_666_666, 3_666_666_666_666_666_666]
    );
}

/// A number is the same id as its text; other spellings are names.
#[test]
fn ids_are_kept_as_they_were_written() {
    assert_eq!(RequestId::from("7"), RequestId::from(7));
    for name in ["07", "+7", "r7", "", "18446744073709551616"] {
        assert_eq!(RequestId::from(name), RequestId::Name(name.into()));
        assert_eq!(RequestId::from(name).to_string(), name);
    }
}

proptest! {
    /// Decimal seconds are exact: seven fractional digits are whole hundreds of nanoseconds.
    #[test]
    fn decimal_seconds_are_exact(seconds in 0_u64..3_000_000_000, part in 0_u64..10_000_000) {
        let t = Ticks::from_decimal_seconds(&format!("{seconds}.{part:07}")).unwrap();
        let hundreds = u128::from(seconds) * 10_000_000 + u128::from(part);
        prop_assert_eq!(t.attoseconds(), hundreds * 100_000_000_000);
        prop_assert_eq!(t.picoseconds(), hundreds * 100_000);
    }

    /// A duration and a step time read back what they print.
    #[test]
    fn texts_read_back(values in prop::array::uniform5(0_u128..1_000_000_000_000)) {
        let [base, prefill, decode, context, attention] = values.map(Ticks::from_attoseconds);
        let attention = Ticks::from_attoseconds(attention.attoseconds() / 2 * 2);
        prop_assert_eq!(base.compact().parse::<Ticks>().unwrap(), base);
        let c = Coefficients { base, prefill, decode, context, attention };
        let affine = Affine::new(c).unwrap();
        prop_assert_eq!(affine.to_string().parse::<Affine>().unwrap(), affine);
    }

    /// No text makes the readers panic.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}", number in "[-+0-9.eE]{0,30}") {
        for t in [&text, &number, &format!("{number}ms"), &format!("base={number}ms")] {
            let _ = t.parse::<Ticks>();
            let _ = Ticks::from_decimal_seconds(t);
            let _ = t.parse::<Affine>();
            let _ = t.parse::<RateScale>();
        }
    }
}
