//! A recurrent cell of your own as a backbone: write one step of one row and its gradients on host floats, and
//! [`Stepwise`] unrolls it over sequences with carried state, resets, padding, burn-in and backpropagation through time.
//! On the CPU; a body that is to be fast, or to run on other devices, implements [`Backbone`] itself.

use std::ops::{Index, IndexMut};

use super::{Backbone, Part, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use super::{check_sequence, check_state, enough, unbound};
use crate::device::{Cpu, Kind, Slot, ViewMut, is_set};
use crate::error::{Error, Result};
use crate::params::{ParamLayout, ParamSpec, Params};

/// One step of one row.
pub trait Cell: Send + Sync {
    /// Features that go in (d_input), numbers of the state that is carried (d_state), features that come out (d_output).
    fn sizes(&self) -> (usize, usize, usize);
    /// Parameters in the order of [`Weights`]; names must be unique in the network: begin them with `backbone.`.
    fn parameters(&self) -> Vec<ParamSpec>;
    /// The state moves on, `[d_state]`; `y` `[d_output]` is overwritten.
    fn step(&self, w: Weights<'_>, x: &[f32], state: &mut [f32], y: &mut [f32]);
    /// Gradients of [`Cell::step`] at the state it began with.
    fn step_bwd(&self, w: Weights<'_>, x: &[f32], before: &[f32], g: CellGrad<'_>);
}

/// What goes into and comes out of [`Cell::step_bwd`].
pub struct CellGrad<'a> {
    /// In: gradient of y, `[d_output]`.
    pub y: &'a [f32],
    /// In: gradient of the state after the step; out: of the state before, `[d_state]`. Read it before you write it.
    pub state: &'a mut [f32],
    /// Out: gradient of x, `[d_input]`; zeros on entry.
    pub x: &'a mut [f32],
    /// Out: gradients of the parameters; add to them.
    pub w: WeightGrads<'a>,
}

/// Parameters by their place in [`Cell::parameters`], row-major.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    flat: &'a [f32],
    slots: &'a [Slot],
}

impl Index<usize> for Weights<'_> {
    type Output = [f32];

    fn index(&self, i: usize) -> &[f32] {
        &self.flat[self.slots[i].range()]
    }
}

/// Gradients of the parameters, by the same places.
#[derive(Debug)]
pub struct WeightGrads<'a> {
    flat: &'a mut [f32],
    slots: &'a [Slot],
}

impl Index<usize> for WeightGrads<'_> {
    type Output = [f32];

    fn index(&self, i: usize) -> &[f32] {
        &self.flat[self.slots[i].range()]
    }
}

impl IndexMut<usize> for WeightGrads<'_> {
    fn index_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.flat[self.slots[i].range()]
    }
}

/// A cell, unrolled.
pub struct Stepwise<C> {
    cell: C,
    state: Vec<Part>,
    slots: Option<Vec<Slot>>,
}

impl<C: Cell> Stepwise<C> {
    /// The backbone of a cell.
    ///
    /// # Errors
    /// `Config` where an input, state or output has no numbers.
    pub fn new(cell: C) -> Result<Self> {
        let (d_input, d_state, d_output) = cell.sizes();
        for (name, n) in [("d_input", d_input), ("d_state", d_state), ("d_output", d_output)] {
            if n == 0 {
                return Err(Error::config(name, "is 0, expected at least 1"));
            }
        }
        let state = vec![Part::new("state", d_state, Kind::Full)];
        Ok(Stepwise { cell, state, slots: None })
    }

    /// The cell.
    pub fn cell(&self) -> &C {
        &self.cell
    }

    fn slots(&self) -> Result<&[Slot]> {
        self.slots.as_deref().ok_or_else(unbound)
    }

    /// x [T, B, d_input] with zeros for padding, and the state before each step.
    fn tape_parts(&self, s: SeqShape) -> [(&'static str, usize); 2] {
        let (d, n, _) = self.cell.sizes();
        [("x", s.rows() * d), ("before", s.rows() * n)]
    }

    /// Gradients of the state [B, d_state] and of one x, and one x.
    fn scratch_parts(&self, s: SeqShape) -> [(&'static str, usize); 3] {
        let (d, n, _) = self.cell.sizes();
        [("g_state", s.batch * n), ("g_x", d), ("x", d)]
    }

    fn check(&self, dev: &Cpu, s: SeqShape, scratch: &Scratch<Cpu>, tape: Option<&Tape<Cpu>>) -> Result<()> {
        enough(dev, "scratch", self.scratch_parts(s), scratch)?;
        tape.map_or(Ok(()), |tape| enough(dev, "tape", self.tape_parts(s), tape))
    }
}

/// Is row `at` of a sequence real?
fn real(seq: &Sequence<'_, Cpu>, at: usize) -> bool {
    seq.valid.is_none_or(|v| v.buf[v.at + at] != 0)
}

impl<C: Cell> Backbone<Cpu> for Stepwise<C> {
    fn d_input(&self) -> usize {
        self.cell.sizes().0
    }

    fn d_output(&self) -> usize {
        self.cell.sizes().2
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        self.cell.parameters()
    }

    fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        self.slots = Some(self.cell.parameters().iter().map(|p| layout.slot(&p.name)).collect::<Result<_>>()?);
        Ok(())
    }

    fn state_layout(&self) -> &[Part] {
        &self.state
    }

    fn tape_layout(&self, s: SeqShape) -> Vec<Part> {
        self.tape_parts(s).into_iter().map(|(name, len)| Part::new(name, len, Kind::Full)).collect()
    }

    fn scratch_layout(&self, s: SeqShape, _: bool) -> Vec<Part> {
        self.scratch_parts(s).into_iter().map(|(name, len)| Part::new(name, len, Kind::Full)).collect()
    }

    fn forward(
        &self,
        dev: &Cpu,
        params: &Params<Cpu>,
        seq: Sequence<'_, Cpu>,
        state: &mut State<Cpu>,
        scratch: &mut Scratch<Cpu>,
        y: ViewMut<'_, Vec<f32>>,
        mut tape: Option<&mut Tape<Cpu>>,
    ) -> Result<()> {
        let (d, n, out) = self.cell.sizes();
        check_sequence(dev, &seq, d, &y.read(), out)?;
        check_state(dev, &self.state, state, seq.shape.batch)?;
        self.check(dev, seq.shape, scratch, tape.as_deref())?;
        let w = Weights { flat: &params.flat, slots: self.slots()? };
        let reset = seq.reset.map(|m| &m.buf[m.at..m.at + m.len]);
        for at in 0..seq.shape.rows() {
            let row = at % seq.shape.batch;
            let state = &mut state.bufs[0][row * n..(row + 1) * n];
            if is_set(reset, at) {
                state.fill(0.0); // clears NaN and inf too
            }
            let x = &mut scratch.bufs[2][..d];
            if real(&seq, at) {
                x.copy_from_slice(&seq.x.buf[seq.x.at + at * d..][..d]);
            } else {
                x.fill(0.0);
            }
            if let Some(tape) = tape.as_mut() {
                tape.bufs[0][at * d..(at + 1) * d].copy_from_slice(x);
                tape.bufs[1][at * n..(at + 1) * n].copy_from_slice(state);
            }
            self.cell.step(w, x, state, &mut y.buf[y.at + at * out..][..out]);
        }
        Ok(())
    }

    fn backward(
        &self,
        dev: &Cpu,
        params: &Params<Cpu>,
        seq: Sequence<'_, Cpu>,
        tape: &Tape<Cpu>,
        scratch: &mut Scratch<Cpu>,
        from: SeqGrad<'_, Cpu>,
        mut to: SeqGradOut<'_, Cpu>,
    ) -> Result<()> {
        let (d, n, out) = self.cell.sizes();
        check_sequence(dev, &seq, d, &from.g_y, out)?;
        self.check(dev, seq.shape, scratch, Some(tape))?;
        let slots = self.slots()?;
        let w = Weights { flat: &params.flat, slots };
        let reset = seq.reset.map(|m| &m.buf[m.at..m.at + m.len]);
        let [g_state, g_x, _] = &mut scratch.bufs[..] else { return Err(unbound()) };
        let (all, g_x) = (seq.shape.batch * n, &mut g_x[..d]);
        match from.g_state {
            Some(g) => g_state[..all].copy_from_slice(&g.bufs[0][..all]),
            None => g_state[..all].fill(0.0),
        }
        for at in (0..seq.shape.rows()).rev() {
            let row = at % seq.shape.batch;
            let g_state = &mut g_state[row * n..(row + 1) * n];
            g_x.fill(0.0);
            let grad = CellGrad {
                y: &from.g_y.buf[from.g_y.at + at * out..][..out],
                state: g_state,
                x: g_x,
                w: WeightGrads { flat: to.g_params, slots },
            };
            self.cell.step_bwd(w, &tape.bufs[0][at * d..][..d], &tape.bufs[1][at * n..][..n], grad);
            if is_set(reset, at) {
                g_state.fill(0.0); // no gradient crosses a reset
            }
            if let Some(to) = to.g_x.as_mut() {
                let to = &mut to.buf[to.at + at * d..][..d];
                if real(&seq, at) { to.copy_from_slice(g_x) } else { to.fill(0.0) }
            }
        }
        if let Some(to) = to.g_state {
            to.bufs[0][..all].copy_from_slice(&g_state[..all]);
        }
        Ok(())
    }
}
