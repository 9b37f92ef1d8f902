//! Where numbers live. A [`Device`] owns flat buffers and moves them to and from the host; what is computed with them
//! is the business of `ops`. Buffers have no shape: a shape travels beside them, and a [`View`] names a range of one.

mod choice;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod simd;

pub use choice::{Choice, gpus};
pub use cpu::{Cpu, Real};
pub(crate) use cpu::{host_mask, is_set};
pub use simd::{Isa, Simd};

use crate::error::Result;

/// What tells one recording from another: sizes of the work.
pub type Key = [usize; 4];

/// How a buffer is stored. On the CPU both are the device's one float type; on CUDA `Small` follows `Precision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Full precision always: weights, residual, delta, h, sums, losses.
    Full,
    /// Operands of matrix products and saved activations: small types allowed.
    Small,
}

/// The setting `train.precision`: how operands of matrix products and saved activations are stored.
/// Sums, weights, states and losses are f32 whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// 32 bits: 8 of exponent, 24 of fraction.
    #[default]
    F32,
    /// 16 bits with the range of f32: 8 of exponent, 8 of fraction.
    Bf16,
    /// 16 bits, 5 of exponent, 11 of fraction: the loss is scaled so that small gradients survive.
    F16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        })
    }
}

impl std::str::FromStr for Precision {
    type Err = crate::error::Error;

    fn from_str(s: &str) -> Result<Self> {
        let found = [Precision::F32, Precision::Bf16, Precision::F16].into_iter().find(|p| p.to_string() == s);
        found.ok_or_else(|| crate::error::Error::config("train.precision", format!("is `{s}`; use f32, bf16 or f16")))
    }
}

/// How the error of a device begins whose group waits for another one in vain.
pub(crate) const ABSENT: &str = "another device of the group failed";

/// A place where flat buffers live and ops run. Cheap to clone.
pub trait Device: Clone + Send + Sync + 'static {
    /// A flat buffer of numbers.
    type Tensor: Send + Sync + 'static;
    /// A flat buffer of bytes: reset and validity masks.
    type Mask: Send + Sync + 'static;
    /// Work that the device has recorded and can repeat: graphs on CUDA, nothing on the CPU.
    type Recording: Default + Send + Sync + 'static;

    /// Name for logs, such as `cpu`.
    fn name(&self) -> String;
    /// How [`Kind::Small`] is stored.
    fn precision(&self) -> Precision {
        Precision::F32
    }
    /// Pieces that a batch is cut into, where `wanted` are asked for.
    fn shards(&self, wanted: usize) -> usize {
        wanted
    }
    /// This device's place among those that learn one network together, and how many they are.
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }
    /// Adds up a range over those devices; each asks for it at the same point of its work and gets the same bits.
    ///
    /// # Errors
    /// Device errors.
    fn all_reduce(&self, of: ViewMut<'_, Self::Tensor>) -> Result<()> {
        let _ = of;
        Ok(())
    }
    /// Tells those devices that this one failed: none of them waits for it from now on, all_reduce is an error there.
    fn leave_group(&self) {}
    /// Does `work`, or repeats it. Work of the same `key` runs the same ops on the same buffers with the same sizes and
    /// scalars; it neither allocates nor moves numbers from or to the host. Then a device may record it once and repeat the
    /// recording without asking for it again.
    ///
    /// # Errors
    /// Those of `work`; a recording that breaks.
    fn repeat(&self, recording: &mut Self::Recording, key: Key, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let _ = (recording, key);
        work()
    }
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
