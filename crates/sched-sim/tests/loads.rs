//! Laws of arrivals, lengths and think times against theory; sessions, closed loops, streams.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use sched_sim::workload::{
    Arrivals, Cancellations, ClosedLoop, LengthHistogram, LengthLaw, LengthPairs, Lengths,
    Sessions, ThinkAfter, WorkloadSpec, chat,
};
use sched_sim::{RequestId, SimError, Ticks, Workload, WorkloadRequest};

const N: u64 = 100_000;

fn spec(arrivals: &str, input: LengthLaw) -> WorkloadSpec {
    WorkloadSpec {
        arrivals: arrivals.parse().unwrap(),
        lengths: Lengths::Independent { input, output: LengthLaw::Constant(1) },
        ..chat(N, 4.0, 42)
    }
}

/// Gaps between arrivals in seconds, the first of them from the start.
fn gaps(arrivals: &str) -> Vec<f64> {
    let workload = spec(arrivals, LengthLaw::Constant(1)).generate().unwrap();
    let mut before = Ticks::ZERO;
    let gap = |r: &WorkloadRequest| {
        let gap = r.arrival.since(before).unwrap().seconds();
        before = r.arrival;
        gap
    };
    workload.requests().iter().map(gap).collect()
}

fn mean_and_cv(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt() / mean)
}

/// The largest distance between the empirical distribution and a continuous one.
fn distance(mut values: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let at = values.iter().enumerate().map(|(i, &x)| {
        let p = cdf(x);
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    });
    at.fold(0.0, f64::max)
}

/// Kolmogorov: beyond 1.95/√n once in a thousand samples of the right law.
fn close(distance: f64) {
    let bound = 1.95 / (N as f64).sqrt();
    assert!(distance < bound, "{distance} {bound}");
}

/// Mean gaps are within five standard errors, cv/√n, of 1/4 s; a gap's cv is within five of its
/// own, which for gamma gaps is about √((1 + 2 cv²)/2n) of it (delta method, shape 1/cv²).
#[test]
fn renewal_arrivals_have_their_rate_and_their_variation() {
    let root = (N as f64).sqrt();
    for (law, cv) in [("poisson", 1.0), ("gamma:0.5", 0.5), ("gamma:1", 1.0), ("gamma:cv=3", 3.0)] {
        let (mean, found) = mean_and_cv(&gaps(law));
        assert!((4.0 * mean - 1.0).abs() < 5.0 * cv / root, "{law} {mean}");
        let error = 5.0 * ((1.0 + 2.0 * cv * cv) / 2.0).sqrt() / root;
        assert!((found / cv - 1.0).abs() < error, "{law} {found} {error}");
    }
    let exponential = |x: f64| 1.0 - (-4.0 * x).exp();
    close(distance(gaps("poisson"), exponential));
    close(distance(gaps("gamma:1"), exponential));
    // Erlang with 4 stages of rate 16: 1 - e^-x (1 + x + x²/2 + x³/6).
    let erlang = |x: f64| {
        let x = 16.0 * x;
        1.0 - (-x).exp() * (1.0 + x + x * x / 2.0 + x * x * x / 6.0)
    };
    close(distance(gaps("gamma:0.5"), erlang));
    // Arrival k at k/4 s, to the rounding of a float or two: nothing adds up.
    let even = spec("deterministic", LengthLaw::Constant(1)).generate().unwrap();
    let at = |(i, r): (usize, &WorkloadRequest)| {
        (r.arrival.seconds() / ((i + 1) as f64 / 4.0) - 1.0).abs() < 1e-15
    };
    assert!(even.requests().iter().enumerate().all(at));
}

/// Counts in windows of a Markov-modulated Poisson process of two states. Over windows that are
/// long beside on + off = 4 s their index of dispersion tends to
/// 1 + 2 (h - l)² s_on s_off / ((s_on + s_off)² (h s_off + l s_on)), with rates h and l and rates s
/// of leaving (Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook",
/// 1993). The count of a window of 200 s has that index but for 1 %; 125 such windows tell it with
/// an error of √(2/125) of it.
#[test]
fn bursts_have_their_rate_and_their_dispersion() {
    for (law, low) in [("on-off:on=1s,off=3s", 0.0_f64), ("on-off:1s,3s,low=0.2", 0.2)] {
        let (s_on, s_off): (f64, f64) = (1.0, 1.0 / 3.0);
        let high = 4.0 / (0.25 + low * 0.75);
        let l = low * high;
        let dispersion = 1.0
            + 2.0 * (high - l).powi(2) * s_on * s_off
                / ((s_on + s_off).powi(2) * (high * s_off + l * s_on));
        let workload = spec(law, LengthLaw::Constant(1)).generate().unwrap();
        let length = 200.0;
        let mut counts = vec![0.0; 120];
        for r in workload.requests() {
            let window = r.arrival.seconds() / length;
            if let Some(n) = counts.get_mut(window as usize) {
                *n += 1.0;
            }
        }
        let (mean, cv) = mean_and_cv(&counts);
        let error = 5.0 * (dispersion / (800.0 * counts.len() as f64)).sqrt();
        assert!((mean / 800.0 - 1.0).abs() < error, "{law} {mean} {error}");
        let found = cv * cv * mean;
        let error = 5.0 * (2.0 / counts.len() as f64).sqrt() + 0.02;
        assert!((found / dispersion - 1.0).abs() < error, "{law} {found} {dispersion}");
    }
}

/// By the integral of the rate, arrivals are a Poisson process of rate 1: after the time change
/// Λ(t) = 4 (t + a P/2π (1 - cos(2π t/P))) the gaps are exponential with mean 1.
#[test]
fn a_sine_is_a_poisson_process_in_its_own_time() {
    let (amplitude, period) = (0.8, 50.0);
    let workload =
        spec("sine:amplitude=0.8,period=50s", LengthLaw::Constant(1)).generate().unwrap();
    let turn = std::f64::consts::TAU / period;
    let own = |t: f64| 4.0 * (t + amplitude / turn * (1.0 - (turn * t).cos()));
    let mut before = 0.0;
    let gaps: Vec<f64> = workload
        .requests()
        .iter()
        .map(|r| {
            let now = own(r.arrival.seconds());
            let gap = now - before;
            before = now;
            gap
        })
        .collect();
    let (mean, _) = mean_and_cv(&gaps);
    assert!((mean - 1.0).abs() < 5.0 / (N as f64).sqrt(), "{mean}");
    close(distance(gaps, |x| 1.0 - (-x).exp()));
}

fn drawn(law: &LengthLaw) -> Vec<u64> {
    let workload = spec("poisson", law.clone()).generate().unwrap();
    workload.requests().iter().map(|r| r.input_tokens).collect()
}

/// Pearson's chi-square of the counts against probabilities, with the 1e-4 quantile of
/// Wilson-Hilferty for its degrees of freedom.
fn fits(lengths: &[u64], p: &[(u64, f64)]) {
    let mut counts: HashMap<u64, f64> = HashMap::new();
    for &n in lengths {
        *counts.entry(n).or_default() += 1.0;
    }
    let mut found = 0.0;
    let mut chi2 = 0.0;
    for &(length, p) in p {
        let want = p * lengths.len() as f64;
        assert!(5.0 <= want, "too rare to tell: {length}");
        let got = counts.get(&length).copied().unwrap_or(0.0);
        found += got;
        chi2 += (got - want).powi(2) / want;
    }
    assert_eq!(found, lengths.len() as f64, "lengths that the law does not have");
    let df = p.len() as f64 - 1.0;
    let bound = df * (1.0 - 2.0 / (9.0 * df) + 3.72 * (2.0 / (9.0 * df)).sqrt()).powi(3);
    assert!(chi2 < bound, "{chi2} {bound}");
}

/// Probabilities of each length, by the definition of the law.
#[test]
fn lengths_have_the_law_that_they_are_given() {
    let law = |text: &str| text.parse::<LengthLaw>().unwrap();
    assert_eq!(drawn(&law("512")), vec![512; N as usize]);

    let p: Vec<(u64, f64)> = (100..=200).map(|n| (n, 1.0 / 101.0)).collect();
    fits(&drawn(&law("uniform:100,200")), &p);

    // P(k) = (1 - q)^(k - 1) q with q = 1/20; what is beyond 60 is 60.
    let mut p: Vec<(u64, f64)> = (1..60).map(|k| (k, 0.95_f64.powi(k as i32 - 1) * 0.05)).collect();
    p.push((60, 0.95_f64.powi(59)));
    fits(&drawn(&law("geometric:mean=20,max=60")), &p);

    // Ranks 1 to 50 are lengths 11 to 60.
    let weight = |r: u64| (r as f64).powf(-1.3);
    let total: f64 = (1..=50).map(weight).sum();
    let p: Vec<(u64, f64)> = (1..=50).map(|r| (r + 10, weight(r) / total)).collect();
    fits(&drawn(&law("zipf:1.3,min=11,max=60")), &p);

    let histogram = LengthHistogram::new([(7, 1), (3, 5), (7, 2), (1000, 2), (9, 0)]).unwrap();
    assert_eq!((histogram.total(), histogram.largest()), (10, 1000));
    assert_eq!(histogram.mean(), (5.0 * 3.0 + 3.0 * 7.0 + 2000.0) / 10.0);
    fits(&drawn(&LengthLaw::Empirical(histogram)), &[(3, 0.5), (7, 0.3), (1000, 0.2)]);

    // Half a token of rounding moves the distribution by less than 0.5 · 0.4/median here.
    let lengths = drawn(&law("lognormal:median=10000,sigma=1"));
    let error = |x: f64| normal_cdf((x.max(0.5) / 10_000.0).ln());
    let d = distance(lengths.iter().map(|&n| n as f64).collect(), error);
    close(d - 0.001);
    let clipped = drawn(&law("lognormal:median=100,sigma=2,min=50,max=400"));
    let share = |n: u64| clipped.iter().filter(|&&x| x == n).count() as f64 / N as f64;
    // ln 0.5 / 2 = -0.3466 and ln 4 / 2 = 0.6931, but for half a token.
    let (low, high) = (normal_cdf((50.5_f64 / 100.0).ln() / 2.0), {
        1.0 - normal_cdf((399.5_f64 / 100.0).ln() / 2.0)
    });
    for (found, want) in [(share(50), low), (share(400), high)] {
        assert!((found - want).abs() < 5.0 * (want / N as f64).sqrt(), "{found} {want}");
    }
    assert!(clipped.iter().all(|n| (50..=400).contains(n)));
    // A mean is the mean of the law: median · exp(1/2).
    assert_eq!(law("lognormal:mean=100,sigma=0"), law("lognormal:median=100,sigma=0"));
    let LengthLaw::LogNormal { median, .. } = law("lognormal:mean=100,sigma=1") else { panic!() };
    assert!((median * 0.5_f64.exp() - 100.0).abs() < 1e-10);
}

/// The normal distribution function, by Simpson's rule from 0: good to 1e-9 within ±6.
fn normal_cdf(z: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let z = z.clamp(-6.0, 6.0);
    let steps = 400;
    let h = z / f64::from(steps);
    let inner = (1..steps)
        .map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum::<f64>();
    0.5 + h / 3.0 * (density(0.0) + inner + density(z))
}

/// Pairs are drawn whole: each prompt has the answer that it had.
#[test]
fn pairs_stay_together() {
    let rows = (1..=50).map(|i| WorkloadRequest::new(i, Ticks::ZERO, i * 100, 5000 - i)).collect();
    let pairs = LengthPairs::of(&Workload::new(rows).unwrap()).unwrap();
    let spec = WorkloadSpec { lengths: Lengths::Pairs(pairs), ..chat(N, 4.0, 1) };
    let workload = spec.generate().unwrap();
    let together = |r: &WorkloadRequest| 5000 - r.output_tokens == r.input_tokens / 100;
    assert!(workload.requests().iter().all(together));
    let p: Vec<(u64, f64)> = (1..=50).map(|i| (i * 100, 0.02)).collect();
    let inputs: Vec<u64> = workload.requests().iter().map(|r| r.input_tokens).collect();
    fits(&inputs, &p);
    assert!(LengthPairs::of(&Workload::default()).is_err());
}

/// Which of 4 system prompts: 1, 1/2, 1/3, 1/4 over 25/12. The rest of a prompt is its own.
#[test]
fn system_prompts_are_shared_and_messages_are_not() {
    let spec = WorkloadSpec {
        system_prompts: Some("tokens=64,count=4,skew=1".parse().unwrap()),
        ..spec("poisson", LengthLaw::Constant(10))
    };
    let workload = spec.generate().unwrap();
    let mut first = Vec::new();
    let mut own = std::collections::HashSet::new();
    for r in workload.requests() {
        let content = r.content.as_ref().unwrap();
        let [(system, 64), (message, 10)] = content.prompt[..] else { panic!("{content:?}") };
        first.push(system);
        assert!(own.insert(message) && 4 < message);
    }
    let p: Vec<(u64, f64)> = (1..=4).map(|r| (r, 12.0 / 25.0 / r as f64)).collect();
    fits(&first, &p);
}

fn talk(requests: u64, rate_per_s: f64) -> WorkloadSpec {
    WorkloadSpec {
        system_prompts: Some("tokens=50,count=2".parse().unwrap()),
        sessions: Some(Sessions {
            turns: "geometric:mean=3,max=20".parse().unwrap(),
            think: "exponential:10s".parse().unwrap(),
            after: ThinkAfter::Arrival,
        }),
        ..chat(requests, rate_per_s, 9)
    }
}

/// Turn by turn, a prompt is what was said before and a new message; a session has the same tokens
/// and think times whatever the rate, and its turns are a think time apart.
#[test]
fn sessions_share_a_growing_prefix() {
    let workload = talk(5000, 2.0).generate().unwrap();
    let mut last: HashMap<u64, &WorkloadRequest> = HashMap::new();
    let mut thoughts = Vec::new();
    for r in workload.requests() {
        let id = r.id.to_string();
        let (session, turn) = id.split_once('.').unwrap();
        let (session, turn): (u64, u64) = (session.parse().unwrap(), turn.parse().unwrap());
        let prompt = &r.content.as_ref().unwrap().prompt;
        assert_eq!(prompt.len() as u64, 2 * turn);
        if let Some(before) = last.insert(session, r) {
            let old = before.content.as_ref().unwrap();
            let shared = old.prompt.len();
            assert_eq!(prompt[..shared], old.prompt[..]);
            assert_eq!(prompt[shared], (old.answer.unwrap(), before.output_tokens));
            thoughts.push(r.arrival.since(before.arrival).unwrap().seconds());
        } else {
            assert_eq!(turn, 1);
        }
    }
    let (mean, _) = mean_and_cv(&thoughts);
    // Thoughts that would end after the last request are missing: a bias of some 10 s · 20 of 5000.
    assert!((mean / 10.0 - 1.0).abs() < 5.0 / (thoughts.len() as f64).sqrt() + 0.01, "{mean}");

    let slow = talk(5000, 1.0).generate().unwrap();
    let fast: HashMap<&RequestId, &WorkloadRequest> =
        workload.requests().iter().map(|r| (&r.id, r)).collect();
    let mut both = 0;
    for r in slow.requests() {
        if let Some(same) = fast.get(&r.id) {
            both += 1;
            assert_eq!((r.input_tokens, r.output_tokens), (same.input_tokens, same.output_tokens));
            assert_eq!(r.content, same.content);
        }
    }
    assert!(4000 < both, "{both}");
    assert_eq!(talk(100, 2.0).generate().unwrap(), workload.slice(0..100));
}

/// A server that takes 3 s for every answer: the next turn comes 3 s and a think time after its
/// arrival. What is drawn is the same as without a server.
#[test]
fn sessions_wait_for_their_answers() {
    let spec = talk(2000, 2.0);
    let mut waits = spec.clone();
    waits.sessions.as_mut().unwrap().after = ThinkAfter::Answer;
    assert_eq!(waits.stream().unwrap_err(), SimError::WaitsForAnswers);
    let mut arrivals = waits.feedback().unwrap();
    let three: Ticks = "3s".parse().unwrap();
    let mut answers: Vec<(Ticks, RequestId)> = Vec::new();
    let mut requests = Vec::new();
    let mut now = Ticks::ZERO;
    loop {
        let ends = answers.first().map(|(at, _)| *at);
        match arrivals.next_at() {
            Some(at) if ends.is_none_or(|end| at <= end) => {
                let r = arrivals.next().unwrap().unwrap();
                assert!(r.arrival == at && now <= at, "{}", r.id);
                now = at;
                answers.push((at.after(three), r.id.clone()));
                requests.push(r);
            }
            _ => {
                let Some((at, id)) = (!answers.is_empty()).then(|| answers.remove(0)) else {
                    break;
                };
                now = at;
                arrivals.completed(&id, at).unwrap();
                assert!(arrivals.completed(&id, at).is_err());
            }
        }
    }
    assert_eq!(requests.len(), 2000);
    let open: HashMap<RequestId, WorkloadRequest> = {
        let workload = spec.generate().unwrap();
        workload.requests().iter().map(|r| (r.id.clone(), r.clone())).collect()
    };
    let mut compared = 0;
    for r in &requests {
        let id = r.id.to_string();
        let (session, turn) = id.split_once('.').unwrap();
        if let Some(o) = open.get(&r.id) {
            let turns: u128 = turn.parse::<u128>().unwrap() - 1;
            let waited = three.attoseconds() * turns;
            assert_eq!(r.arrival.attoseconds(), o.arrival.attoseconds() + waited, "{session}");
            assert_eq!(r.content, o.content);
            compared += 1;
        }
    }
    assert!(1500 < compared, "{compared}");
}

/// Users who hold conversations, at a server that answers at once: every conversation of a user grows
/// turn by turn from a system prompt of its own, the next one begins when its turns are over, and
/// the tokens of all of them differ. The pauses inside are those of the sessions, here 1 s, and those
/// between are those of the users, 5 s.
#[test]
fn users_hold_one_conversation_after_another() {
    let spec = ClosedLoop {
        users: 3,
        think: "5s".parse().unwrap(),
        requests: 300,
        lengths: chat(1, 1.0, 1).lengths,
        system_prompts: Some("tokens=50,count=2".parse().unwrap()),
        sessions: Some(Sessions {
            turns: "uniform:1,4".parse().unwrap(),
            think: "1s".parse().unwrap(),
            after: ThinkAfter::Arrival,
        }),
        cancellations: None,
        seed: 3,
    };
    let mut arrivals = spec.arrivals().unwrap();
    let mut last: HashMap<String, WorkloadRequest> = HashMap::new();
    let (mut answers, mut firsts, mut lengths) = (std::collections::HashSet::new(), 0, Vec::new());
    let mut turns: HashMap<String, u64> = HashMap::new();
    while let Some(r) = arrivals.next().unwrap() {
        arrivals.completed(&r.id, r.arrival).unwrap();
        let id = r.id.to_string();
        let user = id.split_once('.').unwrap().0.to_owned();
        let content = r.content.as_ref().unwrap();
        assert!(answers.insert(content.answer.unwrap()), "an answer of its own");
        let gap = |before: &WorkloadRequest| r.arrival.since(before.arrival).unwrap().seconds();
        let before = last.insert(user.clone(), r.clone());
        if let [(1..=2, 50), _] = content.prompt[..] {
            firsts += 1;
            lengths.extend(turns.insert(user, 1));
            assert!(before.is_none_or(|before| gap(&before) == 5.0));
        } else {
            *turns.get_mut(&user).unwrap() += 1;
            let before = before.unwrap();
            let old = before.content.as_ref().unwrap();
            let grown = content.prompt.strip_prefix(old.prompt.as_slice()).unwrap();
            assert_eq!(grown[0], (old.answer.unwrap(), before.output_tokens));
            assert_eq!((grown.len(), gap(&before)), (2, 1.0));
        }
    }
    assert!(100 < firsts && firsts < 150, "{firsts} conversations of 2.5 turns");
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths, [1, 2, 3, 4]);
}

/// Who goes away and when come from streams of their own: nothing else changes, a larger share has
/// the same clients go away and some more, and with another law the same ones do. The share is that
/// of the law, within four standard deviations of a binomial.
#[test]
fn cancellations_leave_everything_else_as_it_is() {
    let drawn = |law: Option<&str>| {
        let cancellations = law.map(|law| law.parse::<Cancellations>().unwrap());
        WorkloadSpec { cancellations, ..chat(10_000, 4.0, 42) }.generate().unwrap()
    };
    let after = |w: &Workload| -> Vec<Option<Ticks>> {
        w.requests().iter().map(WorkloadRequest::cancel_after).collect()
    };
    let nobody = drawn(None);
    let few = drawn(Some("10%,exponential:mean=5s"));
    let many = drawn(Some("share=0.3,after=exponential:mean=5s"));
    let other = drawn(Some("0.1,2s"));
    let stays = |w: &Workload| -> Vec<WorkloadRequest> {
        let mut all = w.requests().to_vec();
        for r in &mut all {
            r.set_cancel_after(None);
        }
        all
    };
    for w in [&few, &many, &other] {
        assert_eq!(stays(w), nobody.requests());
    }
    let (few, many, other) = (after(&few), after(&many), after(&other));
    assert!(few.iter().zip(&many).all(|(few, many)| few.is_none() || few == many));
    assert!(few.iter().zip(&other).all(|(few, other)| few.is_some() == other.is_some()));
    let times: Vec<f64> = few.iter().flatten().map(|t| t.seconds()).collect();
    assert!((times.len() as f64 - 1000.0).abs() < 4.0 * 900.0_f64.sqrt(), "{}", times.len());
    let (mean, cv) = mean_and_cv(&times);
    assert!((mean / 5.0 - 1.0).abs() < 4.0 / (times.len() as f64).sqrt() && (cv - 1.0).abs() < 0.2);

    // On a list that is there the same are drawn, and who has a time of its own keeps it.
    let law = "10%,exponential:mean=5s".parse().unwrap();
    assert_eq!(after(&nobody.clone().cancelled(law, 42).unwrap()), few);
    let mut own = nobody.requests().to_vec();
    for r in &mut own {
        r.set_cancel_after(Some(Ticks::SECOND));
    }
    let own = Workload::new(own).unwrap().cancelled(law, 42).unwrap();
    assert!(after(&own).iter().all(|after| *after == Some(Ticks::SECOND)));
}

/// Two servers, one of them with answers out of order: user for user the same requests, each a
/// think time after the answer before.
#[test]
fn a_closed_loop_depends_on_the_user_and_not_on_the_order() {
    let lengths = chat(1, 1.0, 1).lengths;
    let spec = ClosedLoop {
        users: 5,
        think: "uniform:1s,2s".parse().unwrap(),
        requests: 200,
        lengths,
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed: 3,
    };
    let run = |service: &dyn Fn(u64) -> u64| {
        let mut arrivals = spec.arrivals().unwrap();
        let mut answers: Vec<(Ticks, RequestId)> = Vec::new();
        let mut requests: BTreeMap<String, (u64, u64, Ticks)> = BTreeMap::new();
        let mut ended: HashMap<String, Ticks> = HashMap::new();
        loop {
            answers.sort();
            let ends = answers.first().map(|(at, _)| *at);
            match arrivals.next_at() {
                Some(at) if ends.is_none_or(|end| at <= end) => {
                    let r = arrivals.next().unwrap().unwrap();
                    let seconds = Ticks::SECOND.attoseconds() * u128::from(service(r.input_tokens));
                    let end = r.arrival.after(Ticks::from_attoseconds(seconds));
                    answers.push((end, r.id.clone()));
                    let id = r.id.to_string();
                    let (user, k) = id.split_once('.').unwrap();
                    let k: u64 = k.parse().unwrap();
                    let before = format!("{user}.{}", k - 1);
                    let since = ended.get(&before).copied().unwrap_or_default();
                    let thought = r.arrival.since(since).unwrap();
                    assert!((1.0..=2.0).contains(&thought.seconds()));
                    requests.insert(id, (r.input_tokens, r.output_tokens, thought));
                }
                _ => {
                    if answers.is_empty() {
                        break requests;
                    }
                    let (at, id) = answers.remove(0);
                    arrivals.completed(&id, at).unwrap();
                    ended.insert(id.to_string(), at);
                }
            }
        }
    };
    let (even, odd) = (run(&|_| 2), run(&|tokens| tokens % 7));
    assert_eq!((even.len(), odd.len()), (200, 200));
    let mut both = 0;
    for (id, request) in &even {
        both += usize::from(odd.get(id).inspect(|o| assert_eq!(*o, request)).is_some());
    }
    assert!(100 < both, "{both}");
}

/// A workload that waits for nothing is its own list.
#[test]
fn an_open_loop_is_the_workload() {
    let workload = chat(50, 1.0, 1).generate().unwrap();
    let mut open = workload.open_loop();
    let mut taken = Vec::new();
    while let Some(at) = open.next_at() {
        let r = open.next().unwrap().unwrap();
        assert_eq!(r.arrival, at);
        open.completed(&r.id, at).unwrap();
        taken.push(r);
    }
    assert_eq!(taken, workload.requests());
    assert_eq!(open.next().unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is drawn one by one is what is drawn at once, whatever the spec; and the laws read back
    /// what they print.
    #[test]
    fn a_stream_is_the_workload(
        law in prop::sample::select(vec![
            "poisson", "gamma:cv=2", "deterministic", "on-off:on=2s,off=5s,low=0.25",
            "sine:amplitude=1,period=7s",
        ]),
        input in prop::sample::select(vec![
            "constant:5", "uniform:min=1,max=9", "geometric:mean=30,max=100",
            "lognormal:median=50,sigma=1.5,min=2,max=900", "zipf:exponent=1.1,min=3,max=77",
        ]),
        sessions in any::<bool>(),
        system in any::<bool>(),
        seed in any::<u64>(),
        requests in 0_u64..200,
    ) {
        let mut spec = spec(law, input.parse().unwrap());
        prop_assert_eq!(spec.arrivals.to_string(), law);
        prop_assert_eq!(input.parse::<LengthLaw>().unwrap().to_string(), input);
        spec.seed = seed;
        spec.requests = requests;
        spec.system_prompts = system.then(|| "tokens=9,count=3,skew=0.5".parse().unwrap());
        let think = "lognormal:median=3s,sigma=1".parse().unwrap();
        let turns = "uniform:1,4".parse().unwrap();
        let after = ThinkAfter::Arrival;
        spec.sessions = sessions.then_some(Sessions { turns, think, after });
        let workload = spec.generate().unwrap();
        let stream: Vec<WorkloadRequest> = spec.stream().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(workload.requests(), &stream[..]);
        prop_assert_eq!(workload.len() as u64, requests);
    }
}
