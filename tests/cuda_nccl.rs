//! Two GPUs that learn one network: the weights of one GPU with the whole batch, and the same bits on both.
#![cfg(feature = "nccl")]

#[path = "support/cuda.rs"]
mod device;
mod support;

use mamba_rl::device::cuda::{Cuda, CudaConfig};
use mamba_rl::device::{Device, Precision};
use mamba_rl::learner::{Learner, Parallel, R2d2, R2d2Config, TargetUpdate};
use mamba_rl::replay::{ActionRows, SequenceBatch};

use support::rig::{Rig, Setup, window};

#[test]
fn two_gpus_learn_as_one() {
    cuda_sim::set("CHECK", "0");
    cuda_sim::set("DEVICES", "2");
    let mut setup = Setup::task("popgym-RepeatPreviousEasy-v0");
    setup.replay = window(4, 8, 4);
    setup.learner = R2d2Config {
        lr_backbone: 1e-3,
        lr_heads: 1e-3,
        grad_clip: Some(1.0),
        target: TargetUpdate::Soft(0.02),
        ..setup.learner
    };
    let config = setup.learner.clone();
    let mut rig = Rig::new(&setup);
    rig.steps(80);
    let mut batch = SequenceBatch::new();
    rig.replay.sample(5, &mut rig.rng, &mut batch).unwrap();
    let learner = |dev: Cuda| {
        let d = &rig.description;
        R2d2::new(dev, d.build::<Cuda>().unwrap(), d.input(), config.clone(), &rig.values).unwrap()
    };
    let settings = |ordinal| CudaConfig { ordinal, ..device::config(Precision::F32) };
    let group = Cuda::open_group(vec![settings(0), settings(1)]).unwrap();
    assert_eq!([group[0].place(), group[1].place()], [(0, 2), (1, 2)]);
    let mut together = Parallel::new(group.into_iter().map(learner).collect()).unwrap();
    let mut alone = learner(Cuda::open(settings(0)).unwrap());
    for _ in 0..6 {
        let (a, b) = (together.update(&batch).unwrap(), alone.update(&batch).unwrap());
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs();
        assert!(near(a.loss, b.loss) && near(a.q_mean, b.q_mean) && near(a.grad_norm, b.grad_norm), "{a:?} {b:?}");
        assert_eq!((a.learnt, together.priorities().len()), (b.learnt, 5));
        let close = together.priorities().iter().zip(alone.priorities()).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs());
        assert!(close, "{:?} {:?}", together.priorities(), alone.priorities());
    }
    let states: Vec<_> = together.ranks().iter().map(|l| l.save().unwrap()).collect();
    assert!(states[0] == states[1], "the two GPUs differ");
    let single = alone.save().unwrap();
    assert_ne!(single.params, rig.values);
    for (a, b) in states[0].params.iter().zip(&single.params) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1e-2), "{a} {b}");
    }
    // a batch with fewer rows than GPUs
    let mut one = SequenceBatch::new();
    rig.replay.sample(1, &mut rig.rng, &mut one).unwrap();
    assert!(together.update(&one).unwrap_err().to_string().contains("learner.batch"));
    // one GPU fails: nobody waits for it, its reason is told, and the group stays closed
    let broken = || {
        let mut batch = batch.clone();
        let ActionRows::Discrete(actions) = &mut batch.action else { panic!("discrete") };
        actions.iter_mut().rev().step_by(batch.batch).for_each(|a| *a = 99);
        batch
    };
    let e = together.update(&broken()).unwrap_err().to_string();
    assert!(e.contains("99") && e.contains("Discrete(4)"), "{e}");
    let e = together.update(&batch).unwrap_err().to_string();
    assert!(e.contains("another device of the group failed"), "{e}");
    assert!(alone.update(&batch).is_ok());
}
