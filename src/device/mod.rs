//! Where numbers live. A [`Device`] owns flat buffers and moves them to and from the host; what is computed with them
//! is the business of `ops`. Buffers have no shape: a shape travels beside them, and a [`View`] names a range of one.

mod cpu;
pub mod simd;

pub use cpu::{Cpu, Real};
pub(crate) use cpu::{host_mask, is_set};
pub use simd::{Isa, Simd};

use crate::error::Result;

/// How a buffer is stored. On the CPU both are the device's one float type; on CUDA `Small` follows `Precision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Full precision always: weights, residual, delta, h, sums, losses.
    Full,
    /// Operands of matrix products and saved activations: small types allowed.
    Small,
}

/// A place where flat buffers live and ops run. Cheap to clone.
pub trait Device: Clone + Send + Sync + 'static {
    /// A flat buffer of numbers.
    type Tensor: Send + Sync + 'static;
    /// A flat buffer of bytes: reset and validity masks.
    type Mask: Send + Sync + 'static;

    /// Name for logs, such as `cpu`.
    fn name(&self) -> String;
    /// A buffer of `len` zeros.
    fn zeros(&self, len: usize, kind: Kind) -> Result<Self::Tensor>;
    /// A mask of `len` zero bytes.
    fn zero_mask(&self, len: usize) -> Result<Self::Mask>;
    /// Elements in a buffer.
    fn len(&self, tensor: &Self::Tensor) -> usize;
    /// Host to device, into the range `to` (`to.len == from.len()`).
    fn upload(&self, from: &[f32], to: ViewMut<'_, Self::Tensor>) -> Result<()>;
    /// Device to host (`from.len == to.len()`).
    fn download(&self, from: View<'_, Self::Tensor>, to: &mut [f32]) -> Result<()>;
    /// Host bytes into the first `from.len()` bytes of a mask.
    fn upload_mask(&self, from: &[u8], to: &mut Self::Mask) -> Result<()>;
    /// Device to device, equal lengths.
    fn copy(&self, from: View<'_, Self::Tensor>, to: ViewMut<'_, Self::Tensor>) -> Result<()>;
    /// Sets every element of a range.
    fn fill(&self, to: ViewMut<'_, Self::Tensor>, value: f32) -> Result<()>;
}

/// A range of a buffer, read.
#[derive(Debug)]
pub struct View<'a, T> {
    /// The buffer.
    pub buf: &'a T,
    /// First element.
    pub at: usize,
    /// Elements.
    pub len: usize,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// `len` elements from `at`.
    pub fn new(buf: &'a T, at: usize, len: usize) -> Self {
        View { buf, at, len }
    }

    /// The part `[at, at + len)` of this range.
    pub fn part(self, at: usize, len: usize) -> Self {
        debug_assert!(at + len <= self.len);
        View { buf: self.buf, at: self.at + at, len }
    }
}

/// A range of a buffer, written.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    /// The buffer.
    pub buf: &'a mut T,
    /// First element.
    pub at: usize,
    /// Elements.
    pub len: usize,
}

impl<'a, T> ViewMut<'a, T> {
    /// `len` elements from `at`.
    pub fn new(buf: &'a mut T, at: usize, len: usize) -> Self {
        ViewMut { buf, at, len }
    }

    /// The same range, read.
    pub fn read(&self) -> View<'_, T> {
        View { buf: self.buf, at: self.at, len: self.len }
    }

    /// The same range for a shorter time.
    pub fn again(&mut self) -> ViewMut<'_, T> {
        ViewMut { buf: self.buf, at: self.at, len: self.len }
    }
}

/// A named range inside a flat parameter or gradient buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// First element.
    pub at: usize,
    /// Elements.
    pub len: usize,
}

impl Slot {
    /// The range as indices.
    pub fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + self.len
    }

    /// This range of `buf`, read.
    pub fn of<T>(self, buf: &T) -> View<'_, T> {
        View { buf, at: self.at, len: self.len }
    }
}
