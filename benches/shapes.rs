//! Criterion benches of the passes that `mamba-rl bench` measures, on one thread and on all:
//! `cargo bench --bench shapes -- S1`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use mamba_rl::bench::{Learning, SHAPES, Shape, Stepping, Unroll};

fn pools() -> Vec<rayon::ThreadPool> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = if all > 1 { vec![1, all] } else { vec![1] };
    counts.into_iter().map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("a pool")).collect()
}

fn shape(c: &mut Criterion, s: Shape) {
    let mut group = c.benchmark_group(s.name);
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for pool in pools() {
        let n = pool.current_num_threads();
        let mut target = Unroll::new(s, false).expect("a network");
        let mut train = Unroll::new(s, true).expect("a network");
        let mut learning = Learning::new(s).expect("a learner");
        let (mut one, mut many) = (Stepping::new(s, 1).expect("a network"), Stepping::new(s, 64).expect("a network"));
        // the group stays on this thread; each pass is handed to the pool
        let mut bench = |name: &str, pass: &mut (dyn FnMut() + Send)| {
            group.bench_function(format!("{name}/{n}"), |b| b.iter(|| pool.install(&mut *pass)));
        };
        bench("forward", &mut || target.forward().expect("runs"));
        bench("forward_backward", &mut || train.forward_backward().expect("runs"));
        bench("learner_step", &mut || learning.step().expect("runs"));
        bench("act_1", &mut || one.step().expect("runs"));
        bench("act_64", &mut || many.step().expect("runs"));
    }
    group.finish();
}

fn all(c: &mut Criterion) {
    for s in SHAPES {
        shape(c, s);
    }
}

criterion_group! {
    name = benches;
    // its plots need fonts that the curves' build of `plotters` does not look for
    config = Criterion::default().without_plots();
    targets = all
}
criterion_main!(benches);
