//! Steps per second of every task, typed and batched, 1 and 64 copies: what `throughput` describes, timed by criterion.
//!
//! cargo bench -p mamba-rl-envs -- RepeatPrevious

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mamba_rl_envs::throughput::{Visitor, random_plays, visit_all};
use mamba_rl_envs::{ActElem, Batch, Env, EnvSpec, Result};

struct Benches<'a>(&'a mut Criterion);

impl Visitor for Benches<'_> {
    fn visit<E: Env>(&mut self, spec: &EnvSpec, new: &dyn Fn() -> E) -> Result<()> {
        let mut group = self.0.benchmark_group(&spec.name);
        group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500)).sample_size(20);
        for copies in [1, 64] {
            let mut batch = Batch::new(copies, |_| new())?;
            batch.reset(1);
            let plays = random_plays(&spec.action_space, copies);
            let mut at = 0;
            group.throughput(Throughput::Elements(copies as u64));
            group.bench_function(BenchmarkId::from_parameter(copies), |b| {
                b.iter(|| {
                    at = (at + 1) % plays.len();
                    batch.step(E::Act::from_ref(plays[at].view()).unwrap_or_default())
                });
            });
        }
        group.finish();
        Ok(())
    }
}

fn steps(c: &mut Criterion) {
    visit_all(&mut Benches(c)).expect("every batch has copies");
}

criterion_group! {
    name = benches;
    // its plots need fonts that the curves' build of `plotters` does not look for
    config = Criterion::default().without_plots();
    targets = steps
}
criterion_main!(benches);
