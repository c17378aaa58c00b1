//! What Erlang B and C cost, with the textbook recursion at 10^6 servers beside them.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use queueing::{erlang_b, erlang_c};

/// `B(k) = a B(k − 1) / (k + a B(k − 1))`, as textbooks have it.
fn by_recursion(c: u64, a: f64) -> f64 {
    let mut b = 1.0;
    for k in 1..=c {
        b = a * b / (k as f64 + a * b);
    }
    b
}

fn erlang(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("erlang");
    // The load that makes about one job in two wait, and one far below.
    for (c, a) in [
        (10_u64, 8.0),
        (40, 36.0),
        (41, 36.0),
        (100, 95.0),
        (100, 60.0),
        (100, 300.0),
        (10_000, 9_950.0),
        (1_000_000, 999_500.0),
        (1_000_000, 998_000.0),
        (1_000_000_000, 999_984_000.0),
    ] {
        group.bench_function(format!("b/{c}/{a}"), |bencher| {
            bencher.iter(|| erlang_b(black_box(c), black_box(a)));
        });
        if a < c as f64 {
            group.bench_function(format!("c/{c}/{a}"), |bencher| {
                bencher.iter(|| erlang_c(black_box(c), black_box(a)));
            });
        }
    }
    group.sample_size(10);
    group.bench_function("recursion/1000000/999500", |bencher| {
        bencher.iter(|| by_recursion(black_box(1_000_000), black_box(999_500.0)));
    });
    group.finish();
}

criterion_group!(benches, erlang);
criterion_main!(benches);
