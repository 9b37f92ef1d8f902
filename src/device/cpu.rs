//! The CPU: a buffer is a `Vec` of f32 or f64. Every op has a plain generic body (the reference, exact in f64); for f32
//! the ops choose vectorised twins of the instruction set held here.

use std::fmt::Debug;
use std::marker::PhantomData;

use super::{Device, Kind, View, ViewMut};
use crate::device::simd::{Isa, Simd};
use crate::error::{Error, Result};

/// A float type of the CPU device: f32, which runs, or f64, which checks.
pub trait Real:
    num_traits::Float + num_traits::NumAssign + std::iter::Sum + Debug + Default + Send + Sync + 'static
{
    /// Is this f32, so that the fast twins apply?
    const SINGLE: bool;
    /// From f64, rounded.
    fn of(x: f64) -> Self;
    /// To f64, exact.
    fn wide(self) -> f64;
    /// The same numbers where this is f32: the door to the fast twins.
    fn as_f32(x: &[Self]) -> Option<&[f32]>;
    /// As [`Real::as_f32`], to write.
    fn as_f32_mut(x: &mut [Self]) -> Option<&mut [f32]>;
}

impl Real for f32 {
    const SINGLE: bool = true;
    fn of(x: f64) -> Self {
        x as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn as_f32(x: &[Self]) -> Option<&[f32]> {
        Some(x)
    }
    fn as_f32_mut(x: &mut [Self]) -> Option<&mut [f32]> {
        Some(x)
    }
}

impl Real for f64 {
    const SINGLE: bool = false;
    fn of(x: f64) -> Self {
        x
    }
    fn wide(self) -> f64 {
        self
    }
    fn as_f32(_: &[Self]) -> Option<&[f32]> {
        None
    }
    fn as_f32_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// The CPU as a device; `Cpu` is f32, `Cpu<f64>` the same model in double precision for checks.
#[derive(Debug)]
pub struct Cpu<F = f32> {
    isa: Isa,
    float: PhantomData<F>,
}

impl<F> Clone for Cpu<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Cpu<F> {}

impl<F> Default for Cpu<F> {
    fn default() -> Self {
        Cpu { isa: Isa::detect(), float: PhantomData }
    }
}

impl Cpu<f32> {
    /// The CPU with its widest instruction set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPU with a pinned code path, so that different machines give the same bits.
    ///
    /// # Errors
    /// `Device` when this CPU lacks the instructions.
    pub fn with_simd(simd: Simd) -> Result<Self> {
        match Isa::choose(simd) {
            Some(isa) => Ok(Cpu { isa, float: PhantomData }),
            None => Err(Error::Device {
                device: "cpu".into(),
                problem: format!("has no {simd}; set `train.simd` to `auto` or `portable`"),
            }),
        }
    }
}

impl<F> Cpu<F> {
    /// The instruction set that the fast twins use.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

impl<F: Real> Device for Cpu<F> {
    type Tensor = Vec<F>;
    type Mask = Vec<u8>;
    type Recording = ();

    fn name(&self) -> String {
        "cpu".into()
    }

    fn zeros(&self, len: usize, _: Kind) -> Result<Vec<F>> {
        Ok(vec![F::zero(); len])
    }

    fn zero_mask(&self, len: usize) -> Result<Vec<u8>> {
        Ok(vec![0; len])
    }

    fn len(&self, tensor: &Vec<F>) -> usize {
        tensor.len()
    }

    fn upload(&self, from: &[f32], to: ViewMut<'_, Vec<F>>) -> Result<()> {
        let to = to.get("upload", "to", from.len())?;
        to.iter_mut().zip(from).for_each(|(t, &f)| *t = F::of(f64::from(f)));
        Ok(())
    }

    fn download(&self, from: View<'_, Vec<F>>, to: &mut [f32]) -> Result<()> {
        let from = from.get("download", "from", to.len())?;
        to.iter_mut().zip(from).for_each(|(t, &f)| *t = f.wide() as f32);
        Ok(())
    }

    fn upload_mask(&self, from: &[u8], to: &mut Vec<u8>) -> Result<()> {
        ViewMut::new(to, 0, from.len()).get("upload_mask", "to", from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn copy(&self, from: View<'_, Vec<F>>, to: ViewMut<'_, Vec<F>>) -> Result<()> {
        let from = from.get("copy", "from", from.len)?;
        to.get("copy", "to", from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn fill(&self, to: ViewMut<'_, Vec<F>>, value: f32) -> Result<()> {
        let len = to.len;
        to.get("fill", "to", len)?.fill(F::of(f64::from(value)));
        Ok(())
    }
}

fn wrong(op: &'static str, arg: &'static str, want: usize, got: usize) -> Error {
    Error::Shape { op, arg, shape: format!("[{want}]"), want, got }
}

impl<'a, F> View<'a, Vec<F>> {
    /// The range as a slice of `want` elements.
    pub(crate) fn get(self, op: &'static str, arg: &'static str, want: usize) -> Result<&'a [F]> {
        if self.len != want {
            return Err(wrong(op, arg, want, self.len));
        }
        let end = self.at + self.len;
        self.buf.get(self.at..end).ok_or_else(|| wrong(op, arg, end, self.buf.len()))
    }
}

impl<'a, F> ViewMut<'a, Vec<F>> {
    /// The range as a slice of `want` elements.
    pub(crate) fn get(self, op: &'static str, arg: &'static str, want: usize) -> Result<&'a mut [F]> {
        if self.len != want {
            return Err(wrong(op, arg, want, self.len));
        }
        let (end, got) = (self.at + self.len, self.buf.len());
        self.buf.get_mut(self.at..end).ok_or_else(|| wrong(op, arg, end, got))
    }
}

impl<'a, F> View<'a, Vec<F>> {
    /// The range as a slice, after its length was checked.
    pub(crate) fn host(self) -> &'a [F] {
        &self.buf[self.at..self.at + self.len]
    }
}

impl<'a, F> ViewMut<'a, Vec<F>> {
    /// The range as a slice, after its length was checked.
    pub(crate) fn host(self) -> &'a mut [F] {
        &mut self.buf[self.at..self.at + self.len]
    }
}

impl<'a, F: Real> View<'a, Vec<F>> {
    /// The numbers for a fast twin; empty where they are not f32 ([`Real::SINGLE`]).
    pub(crate) fn f32s(self) -> &'a [f32] {
        F::as_f32(self.host()).unwrap_or_default()
    }
}

impl<'a, F: Real> ViewMut<'a, Vec<F>> {
    /// As [`View::f32s`], to write.
    pub(crate) fn f32s(self) -> &'a mut [f32] {
        F::as_f32_mut(self.host()).unwrap_or_default()
    }
}

/// A reset or validity mask as bytes.
pub(crate) fn host_mask<'a>(op: &'static str, mask: Option<View<'a, Vec<u8>>>) -> Result<Option<&'a [u8]>> {
    mask.map(|m| m.get(op, "mask", m.len)).transpose()
}

/// Is step t of row b a reset? `mask` is [T, B].
pub(crate) fn is_set(mask: Option<&[u8]>, row: usize) -> bool {
    mask.is_some_and(|m| m[row] != 0)
}
