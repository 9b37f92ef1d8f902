//! AdamW on CUDA. An update is three launches and reads from device memory what changes, so that a graph can repeat it.

use super::{AdamW, AdamWStep, Control, UpdateBuffers, UpdateRule, bias, check_update};
use crate::device::cuda::{Cuda, Grid, Kernel, Source, Store, Tensor, full, int, slot};
use crate::device::{Slot, View};
use crate::error::{Error, Result};
use crate::ops::Check;
use crate::ops::reduce::{SUM_THREADS, parts};

const SOURCE: Source = Source { file: "adamw", text: include_str!("../../../kernels/adamw.cu") };
const STEP: Kernel = SOURCE.kernel("adamw");
const FACTOR: Kernel = SOURCE.kernel("update_factor");
const PARAMS: Kernel = SOURCE.kernel("update_params");

/// The ends of the groups, which must lie one after the other from 0 on; an empty one anywhere.
fn ends(groups: &[Slot; 4]) -> Result<[usize; 4]> {
    let mut end = 0;
    let mut ends = [0; 4];
    for (slot, to) in groups.iter().zip(&mut ends) {
        if slot.len > 0 && slot.at != end {
            let shape = "[four groups, one after the other]".to_owned();
            return Err(Error::Shape { op: "adamw update", arg: "groups", shape, want: end, got: slot.at });
        }
        end += slot.len;
        *to = end;
    }
    Ok(ends)
}

impl AdamW for Cuda {
    /// Reads the numbers of `control` from its buffer alone.
    fn update(
        &self,
        rule: UpdateRule,
        _: Control,
        groups: [Slot; 4],
        buffers: UpdateBuffers<'_, Tensor>,
    ) -> Result<()> {
        check_update(self, &groups, &buffers)?;
        let ends = ends(&groups)?;
        let n = ends[3];
        let at = |buf: &Tensor| slot(buf, Slot::default());
        let (params, grads, m, v) = (at(buffers.params), at(buffers.grads), at(buffers.m), at(buffers.v));
        let (control, report) = (at(buffers.control), at(buffers.report));
        let parts = parts(n);
        let work = self.work(2 * parts + 1)?; // two floats for each f64, then the factor
        let (sums, factor) = (work.part(0, 2 * parts), work.part(2 * parts, 1));
        let first = (factor, report, sums, int(parts), control, rule.grad_clip.unwrap_or(-1.0));
        let [e0, e1, e2, e3] = ends.map(int);
        let (b1, b2, eps, decay) = (rule.beta1, rule.beta2, rule.eps, rule.weight_decay);
        let second = (params, grads, m, v, control, factor, report, e0, e1, e2, e3, b1, b2, eps, decay);
        // SAFETY: lengths were checked above; the orders of arguments are those of kernels/adamw.cu.
        unsafe {
            self.square_parts(grads, n, sums)?;
            self.launch(FACTOR, Store::F32, Grid::new([1; 3], SUM_THREADS), first)?;
            self.launch(PARAMS, Store::F32, Grid::elements(n), second)
        }
    }

    fn adamw(
        &self,
        step: AdamWStep,
        range: Slot,
        params: &mut Tensor,
        grads: &Tensor,
        m: &mut Tensor,
        v: &mut Tensor,
    ) -> Result<()> {
        let c = Check::new(self, "adamw");
        for (name, buf) in [("params", &*params), ("grads", grads), ("m", &*m), ("v", &*v)] {
            c.slot(name, range, buf, &[("range", range.len)])?;
        }
        let at = |buf: &Tensor| full(&View::new(buf, range.at, range.len));
        let (p, g, m, v) = (at(params), at(grads), at(m), at(v));
        let (bias1, bias2) = (bias(step.beta1, step.t) as f32, bias(step.beta2, step.t) as f32);
        let (b1, b2, decay) = (step.beta1, step.beta2, step.lr * step.weight_decay);
        let args = (p, g, m, v, int(range.len), b1, b2, step.eps, step.lr, decay, bias1, bias2, step.grad_scale);
        // SAFETY: the range was checked above; the order of arguments is that of kernels/adamw.cu.
        unsafe { self.launch(STEP, Store::F32, Grid::elements(range.len), args) }
    }
}
