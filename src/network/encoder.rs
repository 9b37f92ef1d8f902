//! Encoders turn a step's features into the backbone's input. The bundled one is linear → LayerNorm → ReLU;
//! without one the features go straight into the backbone. A user's own (an image CNN, say) implements [`Encoder`].

use crate::backbone::Part;
use crate::device::{Kind, Slot, View, ViewMut};
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::linear::{LinearGrad, LinearIn, LinearShape};
use crate::ops::norm::NormShape;
use crate::params::{Group, Init, ParamLayout, ParamSpec, Params};

/// Features [rows, d_input] → codes [rows, d_output], without memory.
pub trait Encoder<D: Backend>: Send + Sync {
    /// Width of the codes.
    fn d_output(&self) -> usize;
    /// Parameters, named under `encoder.`.
    fn parameters(&self) -> Vec<ParamSpec>;
    /// Finds its parameters.
    ///
    /// # Errors
    /// `Config` naming one that is missing.
    fn bind(&mut self, layout: &ParamLayout) -> Result<()>;
    /// What forward keeps for backward, for `rows` rows.
    fn tape_layout(&self, rows: usize) -> Vec<Part>;
    /// Codes of `rows` rows.
    ///
    /// # Errors
    /// Device errors.
    fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        tape: &mut [D::Tensor],
        y: ViewMut<'_, D::Tensor>,
    ) -> Result<()>;
    /// Parameter gradients (added) from g_y [rows, d_output], which is overwritten as scratch.
    ///
    /// # Errors
    /// Device errors.
    #[allow(clippy::too_many_arguments)] // forward's arguments and the gradients
    fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        tape: &mut [D::Tensor],
        y: View<'_, D::Tensor>,
        g_y: ViewMut<'_, D::Tensor>,
        g_params: &mut D::Tensor,
    ) -> Result<()>;
}

/// ReLU(LayerNorm(W x + b)).
#[derive(Debug, Clone)]
pub struct MlpEncoder {
    d_input: usize,
    hidden: usize,
    weight: Slot,
    bias: Slot,
    scale: Slot,
    offset: Slot,
}

impl MlpEncoder {
    /// `hidden` codes from `d_input` features.
    pub fn new(d_input: usize, hidden: usize) -> Self {
        let none = Slot::default();
        MlpEncoder { d_input, hidden, weight: none, bias: none, scale: none, offset: none }
    }

    fn linear(&self, rows: usize) -> LinearShape {
        LinearShape { rows, d_in: self.d_input, d_out: self.hidden }
    }

    fn norm(&self, rows: usize) -> NormShape {
        NormShape { rows, width: self.hidden, eps: 1e-5 }
    }
}

impl<D: Backend> Encoder<D> for MlpEncoder {
    fn d_output(&self) -> usize {
        self.hidden
    }

    fn parameters(&self) -> Vec<ParamSpec> {
        let bound = 1.0 / (self.d_input as f32).sqrt();
        let (h, d) = (self.hidden, self.d_input);
        vec![
            ParamSpec::new("encoder.linear.weight", &[h, d], Group::BackboneDecayed, Init::Uniform(bound)),
            ParamSpec::new("encoder.linear.bias", &[h], Group::BackbonePlain, Init::Uniform(bound)),
            ParamSpec::new("encoder.norm.weight", &[h], Group::BackbonePlain, Init::Ones),
            ParamSpec::new("encoder.norm.bias", &[h], Group::BackbonePlain, Init::Zeros),
        ]
    }

    fn bind(&mut self, layout: &ParamLayout) -> Result<()> {
        self.weight = layout.slot("encoder.linear.weight")?;
        self.bias = layout.slot("encoder.linear.bias")?;
        self.scale = layout.slot("encoder.norm.weight")?;
        self.offset = layout.slot("encoder.norm.bias")?;
        Ok(())
    }

    fn tape_layout(&self, rows: usize) -> Vec<Part> {
        vec![
            Part::new("encoder.linear", rows * self.hidden, Kind::Full),
            Part::new("encoder.g_linear", rows * self.hidden, Kind::Full),
        ]
    }

    fn forward(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        tape: &mut [D::Tensor],
        mut y: ViewMut<'_, D::Tensor>,
    ) -> Result<()> {
        let n = rows * self.hidden;
        let input = LinearIn { x, w: params.view(self.weight), b: Some(params.view(self.bias)) };
        dev.linear(self.linear(rows), input, ViewMut::new(&mut tape[0], 0, n), false)?;
        let (scale, offset) = (params.view(self.scale), params.view(self.offset));
        dev.layer_norm(self.norm(rows), View::new(&tape[0], 0, n), scale, offset, y.again())?;
        dev.relu(y)
    }

    fn backward(
        &self,
        dev: &D,
        params: &Params<D>,
        rows: usize,
        x: View<'_, D::Tensor>,
        tape: &mut [D::Tensor],
        y: View<'_, D::Tensor>,
        mut g_y: ViewMut<'_, D::Tensor>,
        g_params: &mut D::Tensor,
    ) -> Result<()> {
        let n = rows * self.hidden;
        dev.relu_bwd(y, g_y.again())?;
        let (linear, g_linear) = tape.split_at_mut(1);
        let scale = params.view(self.scale);
        let to = ViewMut::new(&mut g_linear[0], 0, n);
        let linear = View::new(&linear[0], 0, n);
        dev.layer_norm_bwd(self.norm(rows), linear, scale, g_y.read(), to, g_params, self.scale, self.offset)?;
        let input = LinearIn { x, w: params.view(self.weight), b: Some(params.view(self.bias)) };
        let g_y = View::new(&g_linear[0], 0, n);
        let grad = LinearGrad { g_y, g_x: None, g_params, w: self.weight, b: Some(self.bias) };
        dev.linear_bwd(self.linear(rows), input, grad)
    }
}
