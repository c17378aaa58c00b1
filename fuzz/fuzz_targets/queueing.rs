//! Any numbers into the queueing models: a figure from 0 on, a refusal in one line, never NaN, never a
//! panic.
//!
//! The manifest of this folder needs `queueing = { path = "../crates/queueing" }` for it.
#![no_main]

use queueing::plan::{Target, max_rate, min_replicas, min_servers, pooled_against_split};
use queueing::profile::Profile;
use queueing::{
    ErlangA, LpsStateDependent, Mdc, Mg1, Mg1Ps, Mm1, MmInf, Mmc, MmcK, MmcN, QueueError,
};

/// Bits of each input, so that the fuzzer reaches NaN, infinities and subnormal numbers.
type Numbers = ([f64; 4], u64, u64);

fn held<T>(result: Result<T, QueueError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            let text = e.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            None
        }
    }
}

fn profile(profile: Option<Profile>, n: u64, t: f64, p: f64) {
    let Some(profile) = profile else { return };
    for (quantity, value) in profile.figures() {
        assert!(0.0 <= value, "{quantity:?} {value}");
    }
    let mut values = vec![profile.pn(n).and_then(held)];
    for part in [profile.wait(), profile.response()].into_iter().flatten() {
        values.extend([held(part.cdf(t)), held(part.sf(t)), held(part.quantile(p))]);
    }
    for value in values.into_iter().flatten() {
        assert!(0.0 <= value, "{value}");
    }
}

libfuzzer_sys::fuzz_target!(|numbers: Numbers| {
    let ([x, y, z, t], c, n) = numbers;
    // A cost that grows with the servers, or sources, is no fault: few of them.
    let (few, some) = (c % 64, n % 256);
    profile(held(Mm1::new(x, y)).map(Profile::from), n, t, z);
    profile(held(Mmc::new(x, y, c)).map(Profile::from), n, t, z);
    profile(held(MmInf::new(x, y)).map(Profile::from), n, t, z);
    profile(held(MmcK::new(x, y, few, few.saturating_add(some))).map(Profile::from), n, t, z);
    profile(held(MmcN::new(x, y, few, some)).map(Profile::from), n, t, z);
    profile(held(ErlangA::new(x, y, few, z)).map(Profile::from), n, t, z);
    profile(held(Mdc::new(x, y, few)).map(Profile::from), some, t, z);
    profile(held(Mg1::from_cv(x, y, z)).map(Profile::from), n, t, z);
    profile(held(Mg1Ps::new(x, y)).map(Profile::from), n, t, z);
    profile(held(LpsStateDependent::new(x, &[y, z], Some(some))).map(Profile::from), n, t, z);
    for target in [
        Target::PWait(z),
        Target::MeanWait(t),
        Target::WaitQuantile { p: z, t },
        Target::ResponseQuantile { p: z, t },
        Target::Blocking(z),
    ] {
        held(min_servers(x, y, &target));
        held(max_rate(y, c, &target)).inspect(|rate| assert!(0.0 <= *rate, "{rate}"));
        held(min_replicas(x, y, few, &target));
        held(pooled_against_split(x, y, few, &target));
    }
});
