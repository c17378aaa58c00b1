//! What it costs to find the least number of servers.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use queueing::plan::{Target, min_servers};

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("min_servers");
    for a in [10.0, 1_000.0, 1_000_000.0] {
        for (name, target) in [
            ("p_wait", Target::PWait(0.1)),
            ("p99_wait", Target::WaitQuantile { p: 0.99, t: 0.1 }),
            ("mean_wait", Target::MeanWait(0.001)),
            ("blocking", Target::Blocking(0.001)),
        ] {
            group.bench_function(format!("{name}/{a}"), |bencher| {
                bencher.iter(|| min_servers(black_box(a), 1.0, &target));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, plan);
criterion_main!(benches);
