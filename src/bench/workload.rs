//! What is timed: a backbone unrolled over a batch of shards, a learner's step, and single steps of many rows.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use mamba_rl_envs::Space;

use super::{SHARDS, Shape};
use crate::backbone::{
    Backbone, Mamba, MambaConfig, Parts, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape, state_len,
};
use crate::config::InputSection;
use crate::device::{Cpu, Device, Kind, View, ViewMut};
use crate::error::Result;
use crate::learner::{ActingWeights, Learner, R2d2, R2d2Config, TargetUpdate};
use crate::network::{DuelingHead, InputLayout, QNetwork, cut};
use crate::ops::Backend;
use crate::ops::reduce::Reduce;
use crate::params::{ParamLayout, Params};
use crate::replay::{ActionRows, Handle, ObsRows, SequenceBatch};
use crate::value::td_error::Loss;

/// Actions of the head in a learner's step.
const ACTIONS: usize = 4;

pub(super) fn backbone(s: Shape) -> Result<Mamba> {
    let (d_input, d_model, n_layers, rotate) = (s.d_input, s.d_model, s.n_layers, s.rotate);
    Mamba::new(MambaConfig { d_input, d_model, n_layers, rotate, ..MambaConfig::default() })
}

pub(super) fn numbers(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.random_range(-1.0..1.0)).collect()
}

struct Shard {
    shape: SeqShape,
    x: Vec<f32>,
    reset: Vec<u8>,
    state: State<Cpu>,
    scratch: Scratch<Cpu>,
    tape: Option<Tape<Cpu>>,
    y: Vec<f32>,
    g_y: Vec<f32>,
    grads: Vec<f32>,
    done: Result<()>,
}

/// A backbone over a batch of sequences: the state is carried in and on, every step's output comes out.
pub struct Unroll {
    dev: Cpu,
    net: Mamba,
    params: Params<Cpu>,
    shards: Vec<Shard>,
}

impl Unroll {
    /// With a tape (`train`) or without.
    ///
    /// # Errors
    /// `Config`, device errors.
    pub fn new(s: Shape, train: bool) -> Result<Self> {
        let (dev, mut net, mut rng) = (Cpu::new(), backbone(s)?, ChaCha8Rng::seed_from_u64(7));
        let body: &dyn Backbone<Cpu> = &net;
        let layout = std::sync::Arc::new(ParamLayout::new(body.parameters())?);
        let params = Params::new(&dev, layout.clone(), &layout.initial(&mut rng))?;
        Backbone::<Cpu>::bind(&mut net, &layout)?;
        let body: &dyn Backbone<Cpu> = &net;
        let mut shards = Vec::new();
        for rows in cut(s.batch, SHARDS) {
            let shape = SeqShape { time: s.time, batch: rows.len() };
            let tape = if train { Some(Parts::zeros(&dev, &body.tape_layout(shape), 1)?) } else { None };
            shards.push(Shard {
                shape,
                x: numbers(&mut rng, shape.rows() * s.d_input),
                reset: vec![0; shape.rows()],
                state: Parts::zeros(&dev, body.state_layout(), shape.batch)?,
                scratch: Parts::zeros(&dev, &body.scratch_layout(shape, train), 1)?,
                tape,
                y: dev.zeros(shape.rows() * s.d_model, Kind::Full)?,
                g_y: numbers(&mut rng, shape.rows() * s.d_model),
                grads: dev.zeros(layout.len(), Kind::Full)?,
                done: Ok(()),
            });
        }
        Ok(Unroll { dev, net, params, shards })
    }

    fn each(&mut self, f: impl Fn(&Cpu, &Mamba, &Params<Cpu>, &mut Shard) -> Result<()> + Sync) -> Result<()> {
        let (dev, net, params) = (&self.dev, &self.net, &self.params);
        self.shards.par_iter_mut().for_each(|s| s.done = f(dev, net, params, s));
        self.shards.iter_mut().try_for_each(|s| std::mem::replace(&mut s.done, Ok(())))
    }

    /// Forward of all shards; keeps a tape where there is one.
    ///
    /// # Errors
    /// Device errors.
    pub fn forward(&mut self) -> Result<()> {
        self.each(forward)
    }

    /// Forward and backward of all shards and the sum of their gradients.
    ///
    /// # Errors
    /// Device errors; `Usage` where there is no tape.
    pub fn forward_backward(&mut self) -> Result<()> {
        self.each(|dev, net, params, s| {
            forward(dev, net, params, s)?;
            backward(dev, net, params, s)
        })?;
        if let Some((sum, rest)) = self.shards.split_first_mut() {
            let n = sum.grads.len();
            for s in rest {
                self.dev.add_assign(View::new(&s.grads, 0, n), ViewMut::new(&mut sum.grads, 0, n))?;
            }
        }
        Ok(())
    }

    /// Bytes of (tape, scratch) of all shards.
    pub fn bytes(&self) -> (usize, usize) {
        let sum = |p: &Parts<Cpu>| 4 * p.bufs.iter().map(Vec::len).sum::<usize>();
        self.shards.iter().fold((0, 0), |(t, s), x| (t + x.tape.as_ref().map_or(0, sum), s + sum(&x.scratch)))
    }

    /// Numbers in the network, and bytes of the state of one sequence.
    pub fn parameters(&self) -> (usize, usize) {
        (self.params.layout.len(), 4 * state_len(Backbone::<Cpu>::state_layout(&self.net)))
    }
}

fn sequence<'a>(shape: SeqShape, x: &'a Vec<f32>, reset: &'a Vec<u8>) -> Sequence<'a, Cpu> {
    let reset = Some(View::new(reset, 0, reset.len()));
    Sequence { shape, x: View::new(x, 0, x.len()), reset, valid: None }
}

fn forward(dev: &Cpu, net: &Mamba, params: &Params<Cpu>, s: &mut Shard) -> Result<()> {
    let n = s.y.len();
    let y = ViewMut::new(&mut s.y, 0, n);
    net.forward(dev, params, sequence(s.shape, &s.x, &s.reset), &mut s.state, &mut s.scratch, y, s.tape.as_mut())
}

fn backward(dev: &Cpu, net: &Mamba, params: &Params<Cpu>, s: &mut Shard) -> Result<()> {
    let Some(tape) = &s.tape else {
        return Err(crate::Error::Usage("backward needs an `Unroll` that was made for training".into()));
    };
    s.grads.fill(0.0);
    let from = SeqGrad { g_y: View::new(&s.g_y, 0, s.g_y.len()), g_state: None };
    let to = SeqGradOut { g_params: &mut s.grads, g_x: None, g_state: None };
    net.backward(dev, params, sequence(s.shape, &s.x, &s.reset), tape, &mut s.scratch, from, to)
}

/// Rows that advance one step at a time: acting without the head.
pub struct Stepping(Unroll);

impl Stepping {
    /// `rows` rows, in as many shards as an actor has.
    ///
    /// # Errors
    /// As [`Unroll::new`].
    pub fn new(s: Shape, rows: usize) -> Result<Self> {
        Ok(Stepping(Unroll::new(Shape { batch: rows, time: 1, ..s }, false)?))
    }

    /// One step of all rows.
    ///
    /// # Errors
    /// Device errors.
    pub fn step(&mut self) -> Result<()> {
        match &mut self.0.shards[..] {
            [only] => forward(&self.0.dev, &self.0.net, &self.0.params, only),
            _ => self.0.forward(),
        }
    }
}

/// A learner with a dueling head on a batch that stays the same: burn-in T/3, learnt 2T/3, one slot to bootstrap from.
pub struct Learning<D: Backend = Cpu> {
    learner: R2d2<D>,
    batch: SequenceBatch,
}

impl Learning {
    /// On the CPU.
    ///
    /// # Errors
    /// `Config`, device errors.
    pub fn new(s: Shape) -> Result<Self> {
        Learning::on(Cpu::new(), s)
    }
}

impl<D: Backend> Learning<D> {
    /// The learner's defaults: double Q, AdamW, clip, soft target.
    ///
    /// # Errors
    /// `Config`, device errors.
    pub fn on(dev: D, s: Shape) -> Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let head = DuelingHead::new(s.d_model, 128, ACTIONS);
        let net = QNetwork::new(s.d_input, None, Box::new(backbone(s)?), head)?;
        let off = InputSection { previous_action: false, previous_reward: false, is_first: false };
        let one = vec![1.0; s.d_input];
        let low: Vec<f32> = one.iter().map(|x: &f32| -x).collect();
        let input = InputLayout::new(&Space::box_f32(&low, &one), &Space::Discrete(ACTIONS), &off);
        let values = net.initial(&mut rng);
        let state = state_len(net.state_layout());
        let learner = R2d2::new(dev, net, input, config(), &values)?;
        let (burn_in, slots) = (s.time / 3, s.time + 1);
        let n = slots * s.batch;
        let real = |from: usize, at: usize| u8::from((from..s.time).contains(&(at / s.batch)));
        let batch = SequenceBatch {
            slots,
            batch: s.batch,
            burn_in,
            obs: ObsRows::F32(numbers(&mut rng, n * s.d_input)),
            action: ActionRows::Discrete((0..n).map(|_| rng.random_range(0..ACTIONS as i32)).collect()),
            reward: numbers(&mut rng, n),
            terminated: vec![false; n],
            truncated: vec![false; n],
            valid: (0..n).map(|at| real(0, at)).collect(),
            valid_obs: vec![1; n],
            learn: (0..n).map(|at| real(burn_in, at)).collect(),
            reset: vec![0; n],
            prev_action: ActionRows::Discrete(vec![0; n]),
            prev_reward: vec![0.0; n],
            has_prev: vec![1; n],
            state: vec![0.0; s.batch * state],
            weight: vec![1.0; s.batch],
            handle: vec![Handle::default(); s.batch],
            episode: vec![0; n],
            step_in_episode: (0..n).map(|at| (at / s.batch) as i32).collect(),
            ..SequenceBatch::default()
        };
        Ok(Learning { learner, batch })
    }

    /// The network.
    pub fn network(&self) -> &QNetwork<D> {
        self.learner.network()
    }

    /// One update.
    ///
    /// # Errors
    /// Device errors.
    pub fn step(&mut self) -> Result<()> {
        self.learner.update(&self.batch).map(|_| ())
    }
}

fn config() -> R2d2Config {
    R2d2Config {
        gamma: 0.99,
        n_step: 5,
        rescaling: Some(1e-3),
        double_q: true,
        truncation_is_terminal: false,
        loss: Loss::Squared,
        eta: 0.9,
        reward_scale: 1.0,
        lr_backbone: 1e-4,
        lr_heads: 1e-4,
        weight_decay: 0.0,
        betas: (0.9, 0.999),
        adam_eps: 1e-5,
        grad_clip: Some(1.0),
        warmup: 0,
        target: TargetUpdate::Soft(0.005),
        acting: ActingWeights::Online,
        shards: SHARDS,
    }
}
