//! A linear layer that knows its parameters: `NAME.weight` [out, in] and `NAME.bias` `[out]`.

use crate::device::{Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::params::{Group, Init, ParamLayout, ParamSpec, Params};

/// y = x Wᵀ + b, or without b.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    name: String,
    d_in: usize,
    d_out: usize,
    has_bias: bool,
    w: Slot,
    b: Option<Slot>,
}

impl Layer {
    /// Not bound yet.
    pub fn new(name: impl Into<String>, d_in: usize, d_out: usize, has_bias: bool) -> Self {
        Layer { name: name.into(), d_in, d_out, has_bias, w: Slot::default(), b: None }
    }

    /// Its parameters, in the groups of the heads; PyTorch's default uniform start times `scale`.
    pub fn parameters(&self, scale: f32) -> Vec<ParamSpec> {
        let init = || Init::Uniform(scale / (self.d_in as f32).sqrt());
        let name = |part: &str| format!("{}.{part}", self.name);
        let mut specs = vec![ParamSpec::new(name("weight"), &[self.d_out, self.d_in], Group::HeadsDecayed, init())];
        if self.has_bias {
            specs.push(ParamSpec::new(name("bias"), &[self.d_out], Group::HeadsPlain, init()));
        }
        specs
    }

    /// Finds its parameters.
    pub fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        self.w = layout.slot(&format!("{}.weight", self.name))?;
        if self.has_bias {
            self.b = Some(layout.slot(&format!("{}.bias", self.name))?);
        }
        Ok(())
    }

    /// Columns of y.
    pub fn d_out(&self) -> usize {
        self.d_out
    }

    fn shape(&self, rows: usize) -> LinearShape {
        LinearShape { rows, d_in: self.d_in, d_out: self.d_out }
    }

    /// y [rows, d_out] from x [rows, d_in]; added to y where `add`.
    pub fn forward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        y: ViewMut<'_, D::Tensor>,
        add: bool,
    ) -> Result<()> {
        let input = LinearIn { x, w: params.view(self.w), b: self.b.map(|b| params.view(b)) };
        dev.linear(self.shape(rows), input, y, add)
    }

    /// Parameter gradients (added) from g_y [rows, d_out].
    pub fn backward<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        g_y: View<'_, D::Tensor>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let input = LinearIn { x, w: params.view(self.w), b: self.b.map(|b| params.view(b)) };
        dev.linear_bwd(self.shape(rows), input, LinearGrad { g_y, g_x: None, g_params, w: self.w, b: self.b })
    }

    /// g_x [rows, d_in] from g_y [rows, d_out]; added to g_x where `add`.
    pub fn backward_x<D: Backend>(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        g_y: View<'_, D::Tensor>,
        g_x: ViewMut<'_, D::Tensor>,
        add: bool,
    ) -> Result<()> {
        dev.linear_bwd_x(self.shape(rows), params.view(self.w), g_y, g_x, add)
    }
}
