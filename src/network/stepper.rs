//! A batch of rows driven one step at a time with carried state: acting, evaluation and sessions.
//! Rows are cut into shards like a training batch, so bits do not depend on the number of threads.

use rayon::prelude::*;

use super::policy::{Policy, StepMemory};
use crate::backbone::{Parts, SeqShape, Sequence, State};
use crate::device::{Kind, View, ViewMut};
use crate::error::{Error, Result};
use crate::ops::Backend;
use crate::params::Params;

struct Shard<D: Backend> {
    first: usize,
    rows: usize,
    x: D::Tensor,
    reset: D::Mask,
    state: State<D>,
    spare: State<D>,
    memory: StepMemory<D>,
    raw: Vec<f32>,
    out: Vec<f32>,
    done: Result<()>,
}

/// N rows with their recurrent state.
pub struct Stepper<D: Backend> {
    shards: Vec<Shard<D>>,
    rows: usize,
    d_input: usize,
    d_output: usize,
}

/// Cuts `rows` into at most `shards` runs of equal size, larger ones first.
pub(crate) fn cut(rows: usize, shards: usize) -> Vec<std::ops::Range<usize>> {
    let shards = shards.clamp(1, rows.max(1));
    let (each, more) = (rows / shards, rows % shards);
    let mut first = 0;
    let mut cuts = Vec::with_capacity(shards);
    for i in 0..shards {
        let n = each + usize::from(i < more);
        cuts.push(first..first + n);
        first += n;
    }
    cuts
}

impl<D: Backend> Stepper<D> {
    /// `rows` rows at the zero state, in at most `shards` pieces. All of the state moves on, as a learner needs it.
    ///
    /// # Errors
    /// Device errors.
    pub fn new(dev: &D, net: &dyn Policy<D>, rows: usize, shards: usize) -> Result<Self> {
        Self::make(dev, net, rows, shards, true)
    }

    /// As [`Stepper::new`], for playing alone: what only a learner would need stands still.
    ///
    /// # Errors
    /// Device errors.
    pub fn for_play(dev: &D, net: &dyn Policy<D>, rows: usize, shards: usize) -> Result<Self> {
        Self::make(dev, net, rows, shards, false)
    }

    fn make(dev: &D, net: &dyn Policy<D>, rows: usize, shards: usize, storing: bool) -> Result<Self> {
        let mut made = Vec::new();
        for r in cut(rows, shards) {
            let n = r.len();
            made.push(Shard {
                first: r.start,
                rows: n,
                x: dev.zeros((n * net.d_input()).max(1), Kind::Full)?,
                reset: dev.zero_mask(n)?,
                state: Parts::zeros(dev, net.state_layout(), n)?,
                spare: Parts::zeros(dev, net.state_layout(), n)?,
                memory: net.step_memory(dev, n, storing)?,
                raw: vec![0.0; n * net.d_raw()],
                out: vec![0.0; n * net.d_output()],
                done: Ok(()),
            });
        }
        Ok(Stepper { shards: made, rows, d_input: net.d_input(), d_output: net.d_output() })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// One step: features `x` [N, d_input], `reset` `[N]` (1: the row's state is cleared first). Then [`Stepper::q`] holds
    /// what the policy gives and the state has moved on.
    ///
    /// # Errors
    /// `Shape` when a length differs; device errors.
    pub fn step(&mut self, dev: &D, net: &dyn Policy<D>, params: &Params<D>, x: &[f32], reset: &[u8]) -> Result<()> {
        self.run(dev, net, params, x, reset, false)
    }

    /// As [`Stepper::step`], leaving the state as it was: the value of a final observation.
    ///
    /// # Errors
    /// As `step`.
    pub fn peek(&mut self, dev: &D, net: &dyn Policy<D>, params: &Params<D>, x: &[f32], reset: &[u8]) -> Result<()> {
        self.run(dev, net, params, x, reset, true)
    }

    fn run(
        &mut self,
        dev: &D,
        net: &dyn Policy<D>,
        params: &Params<D>,
        x: &[f32],
        reset: &[u8],
        keep: bool,
    ) -> Result<()> {
        let d = self.d_input;
        check("x", self.rows * d, x.len())?;
        check("reset", self.rows, reset.len())?;
        let one = |s: &mut Shard<D>| s.run(dev, net, params, &x[s.first * d..], &reset[s.first..], keep);
        if let [only] = &mut self.shards[..] {
            return one(only);
        }
        self.shards.par_iter_mut().for_each(|s| s.done = one(s));
        // first error in shard order, so that the message does not depend on timing
        self.shards.iter_mut().try_for_each(|s| std::mem::replace(&mut s.done, Ok(())))
    }

    /// What the policy gives for row i, `[d_output]`: Q-values `[actions]`, or mean and log σ [2, components].
    pub fn q(&self, i: usize) -> &[f32] {
        let s = &self.shards[self.shards.partition_point(|s| s.first + s.rows <= i)];
        &s.out[(i - s.first) * self.d_output..(i - s.first + 1) * self.d_output]
    }

    /// Recurrent state of row i, `[state_len]`.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_state(&self, dev: &D, net: &dyn Policy<D>, i: usize, out: &mut [f32]) -> Result<()> {
        let s = &self.shards[self.shards.partition_point(|s| s.first + s.rows <= i)];
        s.state.read_row(dev, net.state_layout(), i - s.first, out)
    }

    /// Replaces the recurrent state of row i, `[state_len]`.
    ///
    /// # Errors
    /// Device errors.
    pub fn write_state(&mut self, dev: &D, net: &dyn Policy<D>, i: usize, from: &[f32]) -> Result<()> {
        let at = self.shards.partition_point(|s| s.first + s.rows <= i);
        let s = &mut self.shards[at];
        s.state.write_row(dev, net.state_layout(), i - s.first, from)
    }
}

impl<D: Backend> Shard<D> {
    fn run(
        &mut self,
        dev: &D,
        net: &dyn Policy<D>,
        params: &Params<D>,
        x: &[f32],
        reset: &[u8],
        keep: bool,
    ) -> Result<()> {
        let n = self.rows * net.d_input();
        dev.upload(&x[..n], ViewMut::new(&mut self.x, 0, n))?;
        dev.upload_mask(&reset[..self.rows], &mut self.reset)?;
        if keep {
            self.spare.copy_from(dev, net.state_layout(), self.rows, &self.state)?;
        }
        let seq = Sequence {
            shape: SeqShape { time: 1, batch: self.rows },
            x: View::new(&self.x, 0, n),
            reset: Some(View::new(&self.reset, 0, self.rows)),
            valid: None,
        };
        net.step(dev, params, seq, &mut self.state, &mut self.memory)?;
        if keep {
            std::mem::swap(&mut self.state, &mut self.spare);
        }
        dev.download(View::new(self.memory.out(), 0, self.raw.len()), &mut self.raw)?;
        let raw = self.raw.chunks_exact(net.d_raw().max(1));
        raw.zip(self.out.chunks_exact_mut(net.d_output().max(1))).for_each(|(raw, out)| net.read(raw, out));
        Ok(())
    }
}

fn check(arg: &'static str, want: usize, got: usize) -> Result<()> {
    if want == got {
        return Ok(());
    }
    Err(Error::Shape { op: "stepper", arg, shape: "[N, ..]".into(), want, got })
}
