//! A backbone with all that it needs, for a training loop of your own: weights, gradient, carried state, tape and scratch,
//! allocated once, on the CPU. The parts behind it are [`Backbone`]'s.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    Backbone, BackboneConfig, Parts, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape, build, state_len,
};
use crate::device::{Cpu, View, ViewMut};
use crate::error::{Error, Result};
use crate::params::{ParamLayout, Params};

/// Weights, state and working memory of one backbone for chunks of one shape.
pub struct Body {
    dev: Cpu,
    net: Box<dyn Backbone<Cpu>>,
    params: Params<Cpu>,
    shape: SeqShape,
    state: State<Cpu>,
    tape: Tape<Cpu>,
    scratch: Scratch<Cpu>,
    x: Vec<f32>,
    reset: Vec<u8>,
    y: Vec<f32>,
    g_y: Vec<f32>,
    gradient: Vec<f32>,
    g_x: Vec<f32>,
    /// Does the tape hold a forward?
    recorded: bool,
}

impl Body {
    /// A backbone with weights drawn from `seed`, for chunks of T steps in B rows; the state is zero.
    ///
    /// # Errors
    /// `Config` naming the field; `Usage` for a shape without steps.
    pub fn new(config: &BackboneConfig, shape: SeqShape, seed: u64) -> Result<Self> {
        Self::of(build::<Cpu>(config)?, shape, seed)
    }

    /// As [`Body::new`], of a backbone of your own.
    ///
    /// # Errors
    /// As [`Body::new`].
    pub fn of(mut net: Box<dyn Backbone<Cpu>>, shape: SeqShape, seed: u64) -> Result<Self> {
        if shape.rows() == 0 {
            return Err(Error::Usage(format!("a chunk of T {} and B {} has no steps", shape.time, shape.batch)));
        }
        let dev = Cpu::default();
        let layout = Arc::new(ParamLayout::new(net.parameters())?);
        net.bind(&layout)?;
        Ok(Body {
            params: Params::new(&dev, layout.clone(), &layout.initial(&mut ChaCha8Rng::seed_from_u64(seed)))?,
            state: Parts::zeros(&dev, net.state_layout(), shape.batch)?,
            tape: Parts::zeros(&dev, &net.tape_layout(shape), 1)?,
            scratch: Parts::zeros(&dev, &net.scratch_layout(shape, true), 1)?,
            x: vec![0.0; shape.rows() * net.d_input()],
            reset: vec![0; shape.rows()],
            y: vec![0.0; shape.rows() * net.d_output()],
            g_y: vec![0.0; shape.rows() * net.d_output()],
            gradient: vec![0.0; layout.len()],
            g_x: vec![0.0; shape.rows() * net.d_input()],
            recorded: false,
            dev,
            net,
            shape,
        })
    }

    /// The next chunk, x [T, B, d_input]; the state is carried on from the chunk before. `reset` [T, B]: 1 clears row b
    /// before step t. Returns y [T, B, d_output].
    ///
    /// # Errors
    /// `Shape` naming the argument.
    pub fn forward(&mut self, x: &[f32], reset: Option<&[u8]>) -> Result<&[f32]> {
        self.expect("x", self.x.len(), x.len())?;
        self.expect("reset", self.reset.len(), reset.map_or(self.reset.len(), <[u8]>::len))?;
        self.x.copy_from_slice(x);
        match reset {
            Some(reset) => self.reset.copy_from_slice(reset),
            None => self.reset.fill(0),
        }
        let seq = sequence(self.shape, &self.x, &self.reset);
        let len = self.y.len();
        let y = ViewMut::new(&mut self.y, 0, len);
        let tape = Some(&mut self.tape);
        self.net.forward(&self.dev, &self.params, seq, &mut self.state, &mut self.scratch, y, tape)?;
        self.recorded = true;
        Ok(&self.y)
    }

    /// Gradient of all weights, flat in the order of [`Body::layout`], from g_y [T, B, d_output] of the last forward. No
    /// gradient goes into earlier chunks.
    ///
    /// # Errors
    /// `Shape` naming the argument; `Usage` before a forward.
    pub fn backward(&mut self, g_y: &[f32]) -> Result<&[f32]> {
        self.expect("g_y", self.y.len(), g_y.len())?;
        if !self.recorded {
            return Err(Error::Usage("backward comes after a forward".into()));
        }
        self.gradient.fill(0.0);
        self.g_y.copy_from_slice(g_y);
        let len = self.g_x.len();
        let seq = sequence(self.shape, &self.x, &self.reset);
        let from = SeqGrad { g_y: View::new(&self.g_y, 0, g_y.len()), g_state: None };
        let g_x = Some(ViewMut::new(&mut self.g_x, 0, len));
        let to = SeqGradOut { g_params: &mut self.gradient, g_x, g_state: None };
        self.net.backward(&self.dev, &self.params, seq, &self.tape, &mut self.scratch, from, to)?;
        Ok(&self.gradient)
    }

    /// Gradient of x of the last backward, [T, B, d_input].
    pub fn input_gradient(&self) -> &[f32] {
        &self.g_x
    }

    /// All rows forget.
    ///
    /// # Errors
    /// Device errors.
    pub fn clear_state(&mut self) -> Result<()> {
        self.state = Parts::zeros(&self.dev, self.net.state_layout(), self.shape.batch)?;
        Ok(())
    }

    /// Numbers of one row's state.
    pub fn state_len(&self) -> usize {
        state_len(self.net.state_layout())
    }

    /// Copies the state of row b out, `[state_len()]`: to go on from it later, or in a body of another shape.
    ///
    /// # Errors
    /// `Usage` for a row that is not there, `Shape` for another length.
    pub fn save_state(&self, b: usize, out: &mut [f32]) -> Result<()> {
        self.expect_row(b)?;
        self.state.read_row(&self.dev, self.net.state_layout(), b, out)
    }

    /// Puts back what [`Body::save_state`] gave.
    ///
    /// # Errors
    /// As [`Body::save_state`].
    pub fn restore_state(&mut self, b: usize, from: &[f32]) -> Result<()> {
        self.expect_row(b)?;
        self.state.write_row(&self.dev, self.net.state_layout(), b, from)
    }

    fn expect_row(&self, b: usize) -> Result<()> {
        if b < self.shape.batch {
            return Ok(());
        }
        Err(Error::Usage(format!("row {b} is not there: the body has {} rows", self.shape.batch)))
    }

    /// All weights, flat.
    pub fn weights(&self) -> &[f32] {
        &self.params.flat
    }

    /// All weights, for an optimiser of your own.
    pub fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.params.flat
    }

    /// Names, shapes and places of the weights.
    pub fn layout(&self) -> &ParamLayout {
        &self.params.layout
    }

    /// Features per step that come out.
    pub fn d_output(&self) -> usize {
        self.net.d_output()
    }

    fn expect(&self, arg: &'static str, want: usize, got: usize) -> Result<()> {
        if want == got {
            return Ok(());
        }
        let shape = format!("[T {}, B {}, ..]", self.shape.time, self.shape.batch);
        Err(Error::Shape { op: "body", arg, shape, want, got })
    }
}

fn sequence<'a>(shape: SeqShape, x: &'a Vec<f32>, reset: &'a Vec<u8>) -> Sequence<'a, Cpu> {
    let reset = Some(View::new(reset, 0, reset.len()));
    Sequence { shape, x: View::new(x, 0, x.len()), reset, valid: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backbone::MambaConfig;

    #[test]
    fn two_chunks_are_one_sequence_and_gradients_are_slopes() {
        let config = BackboneConfig::Mamba(MambaConfig { d_input: 2, d_model: 8, ..MambaConfig::default() });
        let new = |time| Body::new(&config, SeqShape { time, batch: 2 }, 3).unwrap();
        let x: Vec<f32> = (0..6 * 2 * 2).map(|i| (i as f32 * 0.7).sin()).collect();
        let mut whole = new(6);
        let y = whole.forward(&x, None).unwrap().to_vec();
        let mut half = new(3);
        let (first, second) = x.split_at(x.len() / 2);
        let mut joined = half.forward(first, None).unwrap().to_vec();
        joined.extend_from_slice(half.forward(second, None).unwrap());
        assert_eq!(y, joined, "the state is carried from chunk to chunk, bit for bit");

        whole.clear_state().unwrap();
        whole.forward(&x, None).unwrap();
        let gradient = whole.backward(&vec![1.0; y.len()]).unwrap().to_vec();
        let mut loss = |at: usize, by: f32| {
            whole.clear_state().unwrap();
            whole.weights_mut()[at] += by;
            let sum: f64 = whole.forward(&x, None).unwrap().iter().map(|y| f64::from(*y)).sum();
            whole.weights_mut()[at] -= by;
            sum
        };
        for at in (0..gradient.len()).step_by(97) {
            let slope = (loss(at, 1e-2) - loss(at, -1e-2)) / 2e-2;
            assert!((slope - f64::from(gradient[at])).abs() < 2e-2 * (1.0 + slope.abs()), "weight {at}: {slope}");
        }
        assert!(matches!(new(3).backward(&[0.0; 48]), Err(Error::Usage(_))));
        assert!(matches!(new(3).forward(&x, None).map(|_| ()), Err(Error::Shape { arg: "x", .. })));
    }

    #[test]
    fn a_body_of_one_step_goes_on_from_the_state_of_another() {
        let config = BackboneConfig::Mamba(MambaConfig { d_input: 2, d_model: 8, ..MambaConfig::default() });
        let x: Vec<f32> = (0..4 * 2 * 2).map(|i| (i as f32 * 0.7).sin()).collect();
        let mut learner = Body::new(&config, SeqShape { time: 3, batch: 2 }, 3).unwrap();
        learner.forward(&x[..12], None).unwrap();
        let mut state = vec![0.0; learner.state_len()];
        learner.save_state(1, &mut state).unwrap();
        let mut actor = Body::new(&config, SeqShape { time: 1, batch: 1 }, 4).unwrap();
        actor.weights_mut().copy_from_slice(learner.weights());
        actor.restore_state(0, &state).unwrap();
        let step = actor.forward(&x[14..], None).unwrap().to_vec();
        let mut whole = Body::new(&config, SeqShape { time: 4, batch: 2 }, 3).unwrap();
        let y = whole.forward(&x, None).unwrap();
        let last = &y[y.len() - step.len()..];
        assert!(step.iter().zip(last).all(|(a, b)| (a - b).abs() < 1e-6), "step 3 of row 1: {step:?} and {last:?}");

        assert!(matches!(actor.restore_state(1, &state), Err(Error::Usage(_))));
        assert!(matches!(actor.restore_state(0, &state[1..]), Err(Error::Shape { arg: "row", .. })));
        assert!(matches!(learner.save_state(0, &mut [0.0]), Err(Error::Shape { arg: "row", .. })));
    }
}
