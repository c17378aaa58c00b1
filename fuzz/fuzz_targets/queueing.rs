//! Any numbers into every model and every function of the queueing crate: a figure from 0 on, a
//! refusal in one line, never NaN, never a panic.
#![no_main]

use arbitrary::Arbitrary;
use queueing::approx::{
    allen_cunneen, burst_factor, daley_upper_bound, gap_scv, kingman_upper_bound, kingman_vut, klb,
    klb_qna, sakasegawa, wait_factor, whitt_gim, whitt_phi,
};
use queueing::batch::{BatchRule, BatchSize, batch_w_bound};
use queueing::closed::{interactive_response, interactive_throughput, saturation_clients};
use queueing::finite_source::{
    engset_call_congestion, engset_carried_load, engset_time_congestion,
};
use queueing::gim1::Gaps;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::mph1::PhaseType;
use queueing::plan::{
    Target, halfin_whitt, halfin_whitt_beta, max_rate, min_replicas, min_servers,
    mm1_max_rate_for_mean_response, mm1_max_rate_for_mean_wait, mm1_max_rate_for_response_quantile,
    mm1_max_rate_for_wait_quantile, mm1_service_rate_for_mean_response,
    mm1_service_rate_for_mean_wait, mm1_service_rate_for_response_quantile,
    mm1_service_rate_for_wait_quantile, pooled_against_split, quantile_of_sum, quantile_per_part,
    square_root_staffing,
};
use queueing::profile::Profile;
use queueing::shape::Shape;
use queueing::stability::{kv_memory_limit, memory_iterations, token_budget_limit};
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BirthDeath, BulkMmK, Closed, ErlangA, GiM1,
    LpsStateDependent, MPh1, Md1, Mdc, Mg1, Mg1Priority, Mg1Ps, Mm1, MmInf, Mmc, MmcK, MmcN, Queue,
    QueueError, ServiceLaw, ServiceMoments, TokenLaw, WaitDistribution, erlang_b, erlang_b_real,
    erlang_c, erlang_c_real, little, ln_erlang_b, ln_erlang_b_real, ln_erlang_c, offered_load,
    utilization,
};

/// Any bits; or a share, a magnitude or a bound, which bits seldom are.
#[derive(Arbitrary, Debug)]
enum Number {
    Bits(u64),
    Share(u32),
    Magnitude(i16),
    Bound(u8),
}

impl Number {
    fn value(&self) -> f64 {
        const BOUNDS: [f64; 16] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.0 - f64::EPSILON / 2.0,
            1.0 + f64::EPSILON,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1e-50,
            1e50,
            1e25,
        ];
        match *self {
            Self::Bits(bits) => f64::from_bits(bits),
            Self::Share(n) => f64::from(n) / f64::from(u32::MAX),
            Self::Magnitude(n) => 10_f64.powf(f64::from(n) / 512.0),
            Self::Bound(n) => BOUNDS[usize::from(n % 16)],
        }
    }
}

type Numbers = ([Number; 4], u64, u64);

fn held<T>(result: Result<T, QueueError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            let text = e.to_string();
            assert!(!text.is_empty() && !text.contains('\n') && !text.contains("NaN,"), "{text:?}");
            None
        }
    }
}

/// Values from 0 on, which NaN is not.
fn sound(what: &str, values: &[f64]) {
    for value in values {
        assert!(0.0 <= *value, "{what}: {values:?}");
    }
}

fn results(what: &str, values: impl IntoIterator<Item = Result<f64, QueueError>>) {
    for value in values.into_iter().filter_map(held) {
        assert!(0.0 <= value, "{what}: {value}");
    }
}

fn logarithms(values: [Result<f64, QueueError>; 3]) {
    for value in values.into_iter().filter_map(held) {
        assert!(value <= 0.0, "{value}");
    }
}

fn means(what: &str, q: &impl Queue, n: u64) {
    sound(what, &[q.l(), q.lq(), q.w(), q.wq(), q.throughput()]);
    for share in [q.utilization(), q.p0(), q.p_wait()] {
        assert!((0.0..=1.0 + 1e-12).contains(&share), "{what}: {share}");
    }
    results(what, [q.pn(n)]);
}

fn waits(what: &str, q: &impl WaitDistribution, t: f64, p: f64) {
    for share in [q.wq_cdf(t), q.wq_sf(t), q.w_cdf(t), q.w_sf(t)].into_iter().filter_map(held) {
        assert!((0.0..=1.0 + 1e-12).contains(&share), "{what}: {share}");
    }
    results(what, [q.wq_quantile(p), q.w_quantile(p)]);
}

fn profile(profile: Profile, n: u64, t: f64, p: f64) {
    for (quantity, value) in profile.figures() {
        assert!(0.0 <= value, "{quantity:?} {value}");
        assert!(profile.get(quantity).is_some());
    }
    results("profile", profile.pn(n));
    for part in [profile.wait(), profile.response()].into_iter().flatten() {
        results("profile", [part.cdf(t), part.sf(t), part.quantile(p)]);
    }
}

/// Means, states and distributions of a model, by its own methods and by its profile.
macro_rules! spread {
    ($model:expr, $n:expr, $t:expr, $p:expr) => {
        if let Some(q) = held($model) {
            means(stringify!($model), &q, $n);
            waits(stringify!($model), &q, $t, $p);
            sound(stringify!($model), &[q.wq_given_wait()]);
            profile(q.into(), $n, $t, $p);
        }
    };
}

fn markovian(x: f64, y: f64, z: f64, t: f64, c: u64, n: u64) {
    // A cost that grows with the servers, or sources, is no fault: few of them.
    let (few, some) = (c % 64, n % 256);
    spread!(Mm1::new(x, y), n, t, z);
    spread!(Mmc::new(x, y, c), n, t, z);
    spread!(Mmc::new(x, y, few), n, t, z);
    spread!(MmcK::new(x, y, few, few.saturating_add(some)), n, t, z);
    // Distributions cost the root of the jobs that are served within t: not 10^9 places here.
    spread!(MmcK::new(x, y, c % 10_000, n % 100_000), n, t, z);
    if let Some(q) = held(MmcK::new(x, y, c, n)) {
        means("M/M/c/K", &q, n);
        sound("M/M/c/K", &[q.wq_given_wait(), q.var_wq(), q.var_w(), q.var_n(), q.var_nq()]);
    }
    spread!(MmcN::new(x, y, few, some), some, t, z);
    spread!(ErlangA::new(x, y, few, z), some, t, z);
    spread!(ErlangA::new(x, y, c, t), some, z, z);
    if let Some(q) = held(MmcK::new(x, y, few, few.saturating_add(some))) {
        sound("M/M/c/K", &[q.p_block(), q.rho()]);
        results("M/M/c/K", [q.pn_arrival(n)]);
    }
    if let Some(q) = held(ErlangA::new(x, y, few, z)) {
        sound("Erlang A", &[q.p_abandon(), q.var_n(), q.var_nq()]);
        results("Erlang A", [q.offered_wait_sf(t), q.offered_wait_quantile(t), q.served_within(t)]);
    }
    if let Some(q) = held(MmInf::new(x, y)) {
        means("M/M/inf", &q, n);
        waits("M/M/inf", &q, t, z);
        sound("M/M/inf", &[q.offered_load(), q.var_n(), q.var_w()]);
        results("M/M/inf", [q.n_cdf(n), q.n_sf(n)]);
        held(q.n_quantile(z));
        profile(q.into(), n, t, z);
    }
    if let Some(chain) = held(BirthDeath::new(&[x, y, z], &[y, z, t])) {
        sound("chain", &[chain.mean(), chain.variance(), chain.pn(n), chain.expect(f64::abs)]);
        sound("chain", chain.states());
    }
}

fn erlang(x: f64, y: f64, c: u64, n: u64) {
    let few = n % 512;
    results("B, C", [erlang_b(c, x), erlang_c(c, x), erlang_b_real(y, x), erlang_c_real(y, x)]);
    logarithms([ln_erlang_b(c, x), ln_erlang_c(c, x), ln_erlang_b_real(y, x)]);
    results("load", [offered_load(x, y), utilization(x, y, c)]);
    results("engset", [
        engset_time_congestion(few, c, x),
        engset_call_congestion(few, c, x),
        engset_carried_load(few, c, x),
    ]);
    results("little", [little::l(x, y), little::lambda(x, y), little::w(x, y)]);
}

fn general(x: f64, y: f64, z: f64, t: f64, c: u64, n: u64) {
    let (few, some) = (c % 64, n % 256);
    spread!(Md1::new(x, y), some, t, z);
    spread!(Mdc::new(x, y, few), some, t, z);
    for gaps in [
        Gaps::Exp,
        Gaps::Det,
        Gaps::Erlang { k: c },
        Gaps::Gamma { scv: t },
        Gaps::Hyperexp { scv: t },
    ] {
        sound("gaps", &[gaps.scv()].map(|scv| if t.is_nan() || t < 0.0 { 0.0 } else { scv }));
        spread!(GiM1::new(x, gaps, y), n, t, z);
        if let Some(q) = held(GiM1::new(x, gaps, y)) {
            sound("GI/M/1", &[q.pn_arrival(n)]);
        }
    }
    for law in [
        PhaseType::erlang(y, few % 8),
        PhaseType::hyperexponential(&[(z, y), (1.0 - z, t)]),
        PhaseType::new(&[1.0, 0.0], &[&[0.0, y], &[z, 0.0]], &[t, y]),
    ]
    .into_iter()
    .filter_map(held)
    {
        sound("phases", &[law.mean()]);
        spread!(MPh1::new(x, law), some, t, z);
    }
    let tokens = [
        TokenLaw::Geometric { q: z },
        TokenLaw::Uniform { most: n },
        TokenLaw::Lognormal { mu: x, sigma: z, most: n % 500 },
    ];
    for m in tokens.iter().filter_map(|law| held(law.clipped(c))) {
        sound("tokens", &[m.mean, m.second, m.third, m.clipped]);
    }
    let shapes = [
        Shape::Exp,
        Shape::Det,
        Shape::Erlang(c),
        Shape::Gamma(z),
        Shape::Lognormal(z),
        Shape::Uniform(z),
        Shape::Hyperexp(z),
        Shape::Pareto(z),
    ];
    let laws = shapes.iter().filter_map(|shape| held(shape.service(y)));
    let laws = laws.chain([
        ServiceLaw::Gamma { shape: y, scale: z },
        ServiceLaw::Uniform { low: y, high: z },
        ServiceLaw::LognormalOfLog { mu: y, sigma: z },
        ServiceLaw::Hyperexp { p: z, rate1: y, rate2: t },
        ServiceLaw::Geometric { q: z, unit: y },
        ServiceLaw::ClippedTokens { base: y, per_token: t, tokens: tokens[0], n_max: c },
    ]);
    for law in laws {
        held(law.moments());
        if let Some(q) = held(Mg1::of_law(x, &law)) {
            means("M/G/1", &q, n);
            sound("M/G/1", &[q.wq_given_wait()]);
            for v in [q.var_wq(), q.var_w(), q.var_n(), q.var_nq()].into_iter().flatten() {
                assert!(0.0 <= v, "{law:?} {v}");
            }
        }
    }
    for shape in shapes {
        held(shape.gaps());
        held(shape.phases(y));
    }
    let moments = ServiceMoments { mean: y, scv: z, third: Some(t) };
    for q in [Mg1::from_cv(x, y, z), Mg1::new(x, moments)].into_iter().filter_map(held) {
        means("M/G/1", &q, n);
        profile(q.into(), n, t, z);
    }
    if let Some(q) = held(Mg1Ps::new(x, y)) {
        means("PS", &q, n);
        sound("PS", &[q.slowdown(), q.var_w_exp(), q.var_n()]);
        results("PS", [q.w_given_size(t), q.var_w_given_size_exp(t), q.n_sf(t)]);
        profile(q.into(), n, t, z);
    }
    let class = |lambda, mean, scv| PriorityClass {
        lambda,
        service: ServiceMoments { mean, scv, third: None },
    };
    if let Some(q) = held(Mg1Priority::new(&[class(x, y, z), class(z, t, x)])) {
        for discipline in [Discipline::NonPreemptive, Discipline::PreemptiveResume] {
            for m in (0..3).filter_map(|k| held(q.class(discipline, k))) {
                sound("class", &[m.rho, m.wq, m.w, m.lq, m.l]);
            }
            held(q.means(discipline));
        }
    }
}

fn shared(x: f64, y: f64, z: f64, t: f64, c: u64, n: u64) {
    let (few, some) = (c % 32, n % 64);
    for q in [
        LpsStateDependent::new(x, &[y, z], Some(some)),
        LpsStateDependent::new(x, &[y, z, t], None),
        LpsStateDependent::mm1(x, y, few),
    ]
    .into_iter()
    .filter_map(held)
    {
        means("LPS", &q, n);
        sound("LPS", &[q.p_block(), q.service(), q.in_service(), q.wq_given_wait(), q.var_n()]);
        results("LPS", [q.wq_sf(t), q.wq_quantile(z)]);
        profile(q.into(), n, t, z);
    }
    // A response takes as many jumps as rates are apart: rates alike.
    let alike = held(LpsStateDependent::new(x.min(1e6), &[1.0, 1.5], Some(some % 8)));
    if let Some(r) = alike.and_then(|q| held(q.response())) {
        results("response", [r.w_sf(t), r.w_cdf(t), r.w_quantile(z), Ok(r.mean())]);
    }
    for law in [
        ServingLaw::V1 { alpha: x, beta: y, gamma: z, delta: t },
        ServingLaw::V2 { alpha: x, beta: y, gamma: z },
        ServingLaw::Chunked { alpha: x, beta: y, gamma: z },
    ] {
        let Some(server) = held(Autoscaler::new(law, t, x.abs() + 1.0, few, some)) else { continue };
        if let Some(s) = held(server.at(z)) {
            sound("server", &[s.throughput, s.response, s.wait, s.in_service, s.service]);
            sound("server", &[s.prefill, s.itl, s.ttft, s.p_block]);
            results("server", [s.ttft_quantile(z)]);
        }
        results("server", [server.service(z), server.max_rate()]);
        if few < 4 {
            results("server", [
                server.max_rate_for_ttft(x),
                server.max_rate_for_itl(y),
                server.max_rate_for_ttft_quantile(z, x),
                server.max_rate_for_means(x, y),
            ]);
            held(server.smallest_batch(x, y, z));
            held(server.with_max_batch(some));
        }
    }
}

fn batches(x: f64, y: f64, z: f64, t: f64, c: u64, n: u64) {
    if let Some(q) = held(BatchLinear::new(x, y, z)) {
        sound("linear", &[q.w(), q.wq(), q.l(), q.mean_batch(), q.utilization(), q.phi0()]);
        sound("linear", &[q.phi1(), q.w_bound()]);
        profile(q.into(), n, t, z);
    }
    if let Some(q) = held(BatchCapped::new(x, y, z, c % 20)) {
        sound("capped", &[q.w(), q.wq(), q.l(), q.mean_batch(), q.utilization()]);
        profile(q.into(), n, t, z);
    }
    for rule in [BatchRule::Joinable, BatchRule::Full, BatchRule::Closed] {
        if let Some(q) = held(BulkMmK::new(x, y, c % 64, rule)) {
            sound("bulk", &[q.r(), q.p0(), q.l(), q.lq(), q.w(), q.wq()]);
            profile(q.into(), n, t, z);
        }
    }
    for size in [BatchSize::Constant(c), BatchSize::Geometric(z)] {
        if let Some(q) = held(BatchArrivals::new(x, size, y)) {
            sound("arrivals", &[q.l(), q.lq(), q.w(), q.wq(), q.p0(), q.utilization(), q.lambda()]);
            profile(q.into(), n, t, z);
        }
    }
    if let Some(q) = held(Closed::new(c % 1000, x, y)) {
        sound("closed", &[q.w(), q.wq(), q.throughput(), q.l(), q.thinking(), q.utilization()]);
        profile(q.into(), n, t, z);
    }
    results("closed", [
        interactive_response(x, y, z),
        interactive_throughput(x, y, z),
        saturation_clients(x, y),
        batch_w_bound(x, y, z),
    ]);
}

fn approximations(x: f64, y: f64, z: f64, t: f64, c: u64, n: u64) {
    for formula in [kingman_vut, kingman_upper_bound, daley_upper_bound, klb_qna, klb] {
        results("one server", [formula(x, y, z, t)]);
    }
    for formula in [allen_cunneen, sakasegawa, whitt_gim] {
        results("servers", [formula(c, x, y, z, t)]);
    }
    results("factors", [
        whitt_phi(c, x, y, z),
        wait_factor(x, y),
        gap_scv(&[x, y, z]),
        burst_factor(&[x, y, z], t),
    ]);
    results("stability", [
        token_budget_limit(c, x, n, n),
        memory_iterations(c, n, c),
        kv_memory_limit(c, x, y),
    ]);
}

fn plans(x: f64, y: f64, z: f64, t: f64, c: u64) {
    for target in [
        Target::PWait(z),
        Target::MeanWait(t),
        Target::WaitQuantile { p: z, t },
        Target::ResponseQuantile { p: z, t },
        Target::Blocking(z),
    ] {
        if let Some(servers) = held(min_servers(x, y, &target)) {
            assert!(0 < servers);
        }
        results("max_rate", [max_rate(y, c, &target)]);
        held(min_replicas(x, y, c % 64, &target));
        held(pooled_against_split(x, y, c % 64, &target));
    }
    held(square_root_staffing(x, z));
    held(halfin_whitt_beta(z));
    results("plans", [
        halfin_whitt(x),
        mm1_service_rate_for_mean_response(x, y),
        mm1_service_rate_for_mean_wait(x, y),
        mm1_service_rate_for_response_quantile(x, z, y),
        mm1_service_rate_for_wait_quantile(x, z, y),
        mm1_max_rate_for_mean_response(x, y),
        mm1_max_rate_for_mean_wait(x, y),
        mm1_max_rate_for_response_quantile(x, z, y),
        mm1_max_rate_for_wait_quantile(x, z, y),
        quantile_per_part(z, c),
        quantile_of_sum(&[x, y, z]),
    ]);
}

libfuzzer_sys::fuzz_target!(|numbers: Numbers| {
    let ([x, y, z, t], c, n) = numbers;
    let [x, y, z, t] = [x, y, z, t].map(|number| number.value());
    erlang(x, y, c, n);
    markovian(x, y, z, t, c, n);
    general(x, y, z, t, c, n);
    shared(x, y, z, t, c, n);
    batches(x, y, z, t, c, n);
    approximations(x, y, z, t, c, n);
    plans(x, y, z, t, c);
});
