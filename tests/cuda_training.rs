//! Learning on CUDA beside learning on the CPU: the same batches, updates and losses; graphs change nothing; a run goes on
//! on the other device; f16 skips and counts what overflows; memory stays where it is.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod device;
mod support;

use mamba_rl::device::cuda::{Cuda, CudaConfig};
use mamba_rl::device::{Cpu, Device, Precision};
use mamba_rl::learner::{ActingWeights, Learner, LearnerState, R2d2, R2d2Config, TargetUpdate, Update};
use mamba_rl::ops::Backend;
use mamba_rl::replay::SequenceBatch;

use support::rig::{Rig, Setup, window};

/// A prefilled replay: batches of the same few shapes, and the learner that they are for.
struct Fixed {
    rig: Rig,
    config: R2d2Config,
    batches: Vec<SequenceBatch>,
}

impl Fixed {
    /// Eight batches, as good as learnt by heart after a thousand updates.
    fn new() -> Self {
        Self::of(120, 8)
    }

    /// The same with advantages that read the steps' input as well.
    fn with_shortcut() -> Self {
        Self::from(120, 8, |setup| setup.network.shortcut = true)
    }

    /// A small Mamba on RepeatPrevious; windows with burn-in, drawn alike from so many steps of the copies.
    fn of(steps: usize, n_batches: usize) -> Self {
        Self::from(steps, n_batches, |_| ())
    }

    fn from(steps: usize, n_batches: usize, change: impl Fn(&mut Setup)) -> Self {
        let mut setup = Setup::task("popgym-RepeatPreviousEasy-v0");
        change(&mut setup);
        setup.replay = window(4, 8, 4);
        setup.learner = R2d2Config {
            lr_backbone: 1e-3,
            lr_heads: 1e-3,
            weight_decay: 1e-2,
            grad_clip: Some(1.0),
            warmup: 10,
            reward_scale: 10.0,
            target: TargetUpdate::Soft(0.02),
            acting: ActingWeights::Online,
            shards: 1,
            ..setup.learner
        };
        let config = setup.learner.clone();
        let mut rig = Rig::new(&setup);
        rig.steps(steps);
        let mut batches = Vec::new();
        for _ in 0..n_batches {
            let mut batch = SequenceBatch::new();
            rig.replay.sample(4, &mut rig.rng, &mut batch).unwrap();
            batches.push(batch);
        }
        Fixed { rig, config, batches }
    }

    fn learner<D: Backend>(&self, dev: D) -> R2d2<D> {
        let d = &self.rig.description;
        R2d2::new(dev, d.build::<D>().unwrap(), d.input(), self.config.clone(), &self.rig.values).unwrap()
    }

    /// Updates `from..to`, batch by batch in turn.
    fn updates(&self, learner: &mut dyn Learner, from: usize, to: usize) -> Vec<Update> {
        (from..to).map(|i| learner.update(&self.batches[i % self.batches.len()]).unwrap()).collect()
    }
}

/// Unchecked: hundreds of updates; what the checks find is found by `cuda_ops` and `cuda_golden`.
fn cuda(precision: Precision, graphs: bool) -> Cuda {
    cuda_sim::set("CHECK", "0");
    Cuda::open(CudaConfig { graphs, ..device::config(precision) }).unwrap()
}

fn bits(state: &LearnerState) -> Vec<u32> {
    [&state.params, &state.target, &state.m, &state.v].into_iter().flatten().map(|x| x.to_bits()).collect()
}

/// Largest |a − b| / |b| of the losses.
fn distance(a: &[Update], b: &[Update]) -> f64 {
    a.iter().zip(b).fold(0.0, |m, (a, b)| f64::max(m, (a.loss - b.loss).abs() / b.loss.abs()))
}

#[test]
fn losses_are_the_cpu_s_and_graphs_change_no_bit() {
    let fixed = Fixed::new();
    let mut cpu = fixed.learner(Cpu::new());
    let on_cpu = fixed.updates(&mut cpu, 0, 200);
    assert!(on_cpu[192..].iter().map(|u| u.loss).sum::<f64>() < 0.5 * on_cpu[..8].iter().map(|u| u.loss).sum::<f64>());

    let dev = cuda(Precision::F32, true);
    let mut learner = fixed.learner(dev.clone());
    let mut updates = fixed.updates(&mut learner, 0, 60);
    let state = bits(&learner.save().unwrap());
    updates.extend(fixed.updates(&mut learner, 60, 200));
    let far = distance(&updates, &on_cpu);
    assert!(far <= 1e-3, "losses differ by {far:e}");
    assert!(dev.launches().graphs > 300, "{:?}", dev.launches());
    for graphs in [true, false] {
        let dev = cuda(Precision::F32, graphs);
        let mut again = fixed.learner(dev.clone());
        assert!(fixed.updates(&mut again, 0, 60) == updates[..60], "graphs {graphs}: other losses");
        assert!(bits(&again.save().unwrap()) == state, "graphs {graphs}: other weights");
        assert_eq!(dev.launches().graphs > 80, graphs);
    }
}

#[test]
fn a_run_goes_on_on_the_other_device() {
    [Fixed::new(), Fixed::with_shortcut()].iter().for_each(goes_on);
}

fn goes_on(fixed: &Fixed) {
    let mut whole = fixed.learner(Cpu::new());
    let want = fixed.updates(&mut whole, 0, 60);
    let mut first = fixed.learner(Cpu::new());
    let mut got = fixed.updates(&mut first, 0, 20);
    let mut second = fixed.learner(cuda(Precision::F32, true));
    second.restore(&first.save().unwrap()).unwrap();
    assert_eq!(bits(&second.save().unwrap()), bits(&first.save().unwrap()));
    got.extend(fixed.updates(&mut second, 20, 40));
    let mut third = fixed.learner(Cpu::new());
    third.restore(&second.save().unwrap()).unwrap();
    got.extend(fixed.updates(&mut third, 40, 60));
    assert_eq!(third.updates(), 60);
    let far = distance(&got, &want);
    assert!(far <= 1e-3, "losses differ by {far:e}");
}

#[test]
fn bn_3_sixteen_bits_learn_as_well() {
    learn_in_sixteen_bits(&Fixed::new(), 100);
    learn_in_sixteen_bits(&Fixed::with_shortcut(), 40);
}

#[test]
#[ignore = "two thousand updates in each precision take minutes on the test device"]
fn bn_3_two_thousand_updates_in_sixteen_bits() {
    learn_in_sixteen_bits(&Fixed::of(3_000, 200), 2_000);
}

/// The last losses, of every batch once, are within a tenth of those in f32.
fn learn_in_sixteen_bits(fixed: &Fixed, n: usize) {
    let on_cpu = fixed.updates(&mut fixed.learner(Cpu::new()), 0, n);
    let mean = |u: &[Update]| u.iter().map(|u| u.loss).sum::<f64>() / u.len() as f64;
    for precision in [Precision::Bf16, Precision::F16] {
        let mut learner = fixed.learner(cuda(precision, true));
        let updates = fixed.updates(&mut learner, 0, n);
        assert!(updates.iter().all(|u| u.loss.is_finite() && !u.skipped), "{precision}");
        let last = n - fixed.batches.len();
        let (got, want) = (mean(&updates[last..]), mean(&on_cpu[last..]));
        println!("{precision}: {got} after {n} updates, f32 {want}, at first {}", updates[0].loss);
        assert!((got - want).abs() <= 0.1 * want, "{precision}: {got} and {want}");
        assert_eq!(learner.save().unwrap().loss_scale.is_some(), precision == Precision::F16);
    }
}

#[test]
fn bn_4_f16_skips_what_overflows_and_goes_on() {
    let fixed = Fixed::new();
    let mut learner = fixed.learner(cuda(Precision::F16, true));
    fixed.updates(&mut learner, 0, 4);
    let before = learner.save().unwrap();
    let mut bad = fixed.batches[0].clone();
    bad.reward.iter_mut().for_each(|r| *r = 3e37);
    let update = learner.update(&bad).unwrap();
    let after = learner.save().unwrap();
    assert!(update.skipped && !update.grad_norm.is_finite());
    assert_eq!((learner.skipped(), after.updates), (1, before.updates));
    assert_eq!(bits(&after), bits(&before));
    let (scale, halved) = (before.loss_scale.unwrap().scale, after.loss_scale.unwrap().scale);
    assert_eq!(halved, scale / 2.0);
    let next = learner.update(&fixed.batches[1]).unwrap();
    assert!(!next.skipped && next.loss.is_finite());
    assert_ne!(bits(&learner.save().unwrap()), bits(&after));
}

#[test]
fn cu_5_memory_stays_where_it_is() {
    memory_after(80);
}

#[test]
#[ignore = "ten thousand updates take minutes on the test device"]
fn cu_5_memory_after_ten_thousand_updates() {
    memory_after(10_000);
}

fn memory_after(n: usize) {
    let fixed = Fixed::new();
    let dev = cuda(Precision::F32, true);
    let mut learner = fixed.learner(dev.clone());
    fixed.updates(&mut learner, 0, 20);
    let before = dev.bytes();
    fixed.updates(&mut learner, 20, n);
    assert_eq!(dev.bytes(), before);
    let opened = cuda(Precision::F32, true);
    let empty = opened.bytes();
    drop(fixed.learner(opened.clone()));
    assert_eq!(opened.bytes(), empty);
    assert_eq!(opened.name(), "cuda:0");
}

/// After recording, a step is two graphs, the target's blend, and what moves numbers.
#[test]
fn a_recorded_step_is_two_launches() {
    let fixed = Fixed::new();
    let dev = cuda(Precision::F32, true);
    let mut learner = fixed.learner(dev.clone());
    let same = |learner: &mut R2d2<Cuda>, n: usize| {
        (0..n).for_each(|_| assert!(learner.update(&fixed.batches[0]).unwrap().loss.is_finite()))
    };
    same(&mut learner, 2);
    let before = dev.launches();
    same(&mut learner, 5);
    let used = dev.launches().since(before);
    assert_eq!((used.graphs, used.work()), (10, 5), "{used:?}");
}
