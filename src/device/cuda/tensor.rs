//! Buffers as ops see them, and the arguments that kernels get from them.

use super::memory::Buffer;
use crate::device::{Precision, Slot, View, ViewMut};

/// How the numbers of a buffer are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Store {
    /// 4 bytes.
    F32,
    /// 2 bytes, range of f32.
    Bf16,
    /// 2 bytes, IEEE half.
    F16,
}

impl Store {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if self == Store::F32 { 4 } else { 2 }
    }

    /// Its name in the kernels.
    pub fn name(self) -> &'static str {
        match self {
            Store::F32 => "f32",
            Store::Bf16 => "bf16",
            Store::F16 => "f16",
        }
    }
}

impl From<Precision> for Store {
    fn from(p: Precision) -> Self {
        match p {
            Precision::F32 => Store::F32,
            Precision::Bf16 => Store::Bf16,
            Precision::F16 => Store::F16,
        }
    }
}

/// A flat buffer of numbers on the device.
pub struct Tensor {
    pub(super) buffer: Buffer,
    pub(super) store: Store,
    pub(super) len: usize,
}

impl Tensor {
    /// How its numbers are stored.
    pub fn store(&self) -> Store {
        self.store
    }

    /// Address of element `at`.
    pub(super) fn address(&self, at: usize) -> u64 {
        self.buffer.ptr + (at * self.store.bytes()) as u64
    }
}

/// A flat buffer of bytes on the device.
pub struct Mask {
    pub(super) buffer: Buffer,
    pub(super) len: usize,
}

/// What a kernel expects behind a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// `float`.
    Full,
    /// The launch's storage type.
    Small,
    /// Bytes.
    Bytes,
}

/// A pointer argument: made by [`full`], [`small`], [`mask`] and [`slot`].
#[derive(Debug, Clone, Copy)]
pub struct Pointer {
    pub(super) address: u64,
    pub(super) store: Store,
    pub(super) expect: Expect,
}

/// A range of a tensor, or none.
pub trait Range {
    /// The tensor and the range's first element.
    fn range(&self) -> Option<(&Tensor, usize)>;
}

impl Range for View<'_, Tensor> {
    fn range(&self) -> Option<(&Tensor, usize)> {
        Some((self.buf, self.at))
    }
}
impl Range for ViewMut<'_, Tensor> {
    fn range(&self) -> Option<(&Tensor, usize)> {
        Some((self.buf, self.at))
    }
}
impl<R: Range> Range for Option<R> {
    fn range(&self) -> Option<(&Tensor, usize)> {
        self.as_ref().and_then(R::range)
    }
}
impl<R: Range> Range for &R {
    fn range(&self) -> Option<(&Tensor, usize)> {
        (*self).range()
    }
}

fn pointer(range: Option<(&Tensor, usize)>, expect: Expect) -> Pointer {
    match range {
        Some((tensor, at)) => Pointer { address: tensor.address(at), store: tensor.store, expect },
        None => Pointer { address: 0, store: Store::F32, expect },
    }
}

/// `float*` to a range; null where there is none.
pub fn full(range: &impl Range) -> Pointer {
    pointer(range.range(), Expect::Full)
}

/// `STORE*` to a range; null where there is none.
pub fn small(range: &impl Range) -> Pointer {
    pointer(range.range(), Expect::Small)
}

/// `float*` to a slot of a flat buffer.
pub fn slot(flat: &Tensor, slot: Slot) -> Pointer {
    pointer(Some((flat, slot.at)), Expect::Full)
}

/// `const unsigned char*` to a range of a mask; null where there is none.
pub fn mask(range: &Option<View<'_, Mask>>) -> Pointer {
    let address = range.as_ref().map_or(0, |v| v.buf.buffer.ptr + v.at as u64);
    Pointer { address, store: Store::F32, expect: Expect::Bytes }
}
