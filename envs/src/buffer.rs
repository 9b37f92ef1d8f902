//! Flat typed buffers: observations in one of three element types, actions in one of two. Row-major, `[N, flat_len]`.

use serde::{Deserialize, Serialize};

use crate::space::{Dtype, Space};

/// Element of a flat observation row: `u8`, `i32` or `f32`.
pub trait ObsElem: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// Its tag.
    const DTYPE: Dtype;
    /// As a float.
    fn to_f32(self) -> f32;
    /// As an index, if it is a whole number and not negative.
    fn to_index(self) -> Option<usize>;
    /// The slice, if the buffer has this element type.
    fn from_mut(row: ObsMut<'_>) -> Option<&mut [Self]>;
    /// Wraps a slice.
    fn wrap(row: &[Self]) -> ObsRef<'_>;
    /// Wraps a vector.
    fn wrap_vec(rows: Vec<Self>) -> ObsBuffer;
}

/// Element of a flat action: `i32` (discrete) or `f32` (continuous).
pub trait ActElem: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The slice, if the action is of this kind.
    fn from_ref(action: ActionRef<'_>) -> Option<&[Self]>;
    /// Wraps a slice.
    fn wrap(action: &[Self]) -> ActionRef<'_>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
}

macro_rules! obs_elem {
    ($t:ty, $variant:ident, $index:expr) => {
        impl ObsElem for $t {
            const DTYPE: Dtype = Dtype::$variant;
            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn to_index(self) -> Option<usize> {
                ($index)(self)
            }
            #[inline]
            fn from_mut(row: ObsMut<'_>) -> Option<&mut [Self]> {
                if let ObsMut::$variant(r) = row { Some(r) } else { None }
            }
            #[inline]
            fn wrap(row: &[Self]) -> ObsRef<'_> {
                ObsRef::$variant(row)
            }
            fn wrap_vec(rows: Vec<Self>) -> ObsBuffer {
                ObsBuffer::$variant(rows)
            }
        }
    };
}
obs_elem!(u8, U8, |v: u8| Some(usize::from(v)));
obs_elem!(i32, I32, |v: i32| usize::try_from(v).ok());
obs_elem!(f32, F32, |v: f32| (v >= 0.0 && v.fract() == 0.0 && v < 16_777_216.0).then_some(v as usize));

impl ActElem for i32 {
    #[inline]
    fn from_ref(action: ActionRef<'_>) -> Option<&[Self]> {
        if let ActionRef::Discrete(a) = action { Some(a) } else { None }
    }
    #[inline]
    fn wrap(action: &[Self]) -> ActionRef<'_> {
        ActionRef::Discrete(action)
    }
}

impl ActElem for f32 {
    #[inline]
    fn from_ref(action: ActionRef<'_>) -> Option<&[Self]> {
        if let ActionRef::Continuous(a) = action { Some(a) } else { None }
    }
    #[inline]
    fn wrap(action: &[Self]) -> ActionRef<'_> {
        ActionRef::Continuous(action)
    }
}

/// Owned observations, flat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObsBuffer {
    /// Bytes.
    U8(Vec<u8>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// 32-bit floats.
    F32(Vec<f32>),
}

/// Borrowed observations, flat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ObsRef<'a> {
    /// Bytes.
    U8(&'a [u8]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// 32-bit floats.
    F32(&'a [f32]),
}

/// Observations to write to, flat.
#[derive(Debug, PartialEq)]
pub enum ObsMut<'a> {
    /// Bytes.
    U8(&'a mut [u8]),
    /// 32-bit integers.
    I32(&'a mut [i32]),
    /// 32-bit floats.
    F32(&'a mut [f32]),
}

impl ObsBuffer {
    /// `len` zeros of the type.
    pub fn zeros(dtype: Dtype, len: usize) -> Self {
        match dtype {
            Dtype::U8 => ObsBuffer::U8(vec![0; len]),
            Dtype::I32 => ObsBuffer::I32(vec![0; len]),
            Dtype::F32 => ObsBuffer::F32(vec![0.0; len]),
        }
    }

    /// `rows` zero rows of the space, `[rows, flat_len]`.
    pub fn for_space(space: &Space, rows: usize) -> Self {
        Self::zeros(space.dtype(), rows * space.flat_len())
    }

    /// Everything, borrowed.
    #[inline]
    pub fn view(&self) -> ObsRef<'_> {
        match self {
            ObsBuffer::U8(v) => ObsRef::U8(v),
            ObsBuffer::I32(v) => ObsRef::I32(v),
            ObsBuffer::F32(v) => ObsRef::F32(v),
        }
    }

    /// Everything, to write to.
    #[inline]
    pub fn view_mut(&mut self) -> ObsMut<'_> {
        match self {
            ObsBuffer::U8(v) => ObsMut::U8(v),
            ObsBuffer::I32(v) => ObsMut::I32(v),
            ObsBuffer::F32(v) => ObsMut::F32(v),
        }
    }

    /// Row i of rows of `flat_len` elements. Panics if there is no such row, as slicing does.
    #[inline]
    pub fn row(&self, i: usize, flat_len: usize) -> ObsRef<'_> {
        self.view().slice(i * flat_len, flat_len)
    }

    /// Row i to write to. Panics if there is no such row, as slicing does.
    #[inline]
    pub fn row_mut(&mut self, i: usize, flat_len: usize) -> ObsMut<'_> {
        let at = i * flat_len..(i + 1) * flat_len;
        match self {
            ObsBuffer::U8(v) => ObsMut::U8(&mut v[at]),
            ObsBuffer::I32(v) => ObsMut::I32(&mut v[at]),
            ObsBuffer::F32(v) => ObsMut::F32(&mut v[at]),
        }
    }

    /// Element type.
    #[inline]
    pub fn dtype(&self) -> Dtype {
        self.view().dtype()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> ObsRef<'a> {
    /// Element type.
    #[inline]
    pub fn dtype(&self) -> Dtype {
        match self {
            ObsRef::U8(_) => Dtype::U8,
            ObsRef::I32(_) => Dtype::I32,
            ObsRef::F32(_) => Dtype::F32,
        }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            ObsRef::U8(v) => v.len(),
            ObsRef::I32(v) => v.len(),
            ObsRef::F32(v) => v.len(),
        }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` elements from `start`. Panics outside, as slicing does.
    #[inline]
    pub fn slice(self, start: usize, len: usize) -> ObsRef<'a> {
        match self {
            ObsRef::U8(v) => ObsRef::U8(&v[start..start + len]),
            ObsRef::I32(v) => ObsRef::I32(&v[start..start + len]),
            ObsRef::F32(v) => ObsRef::F32(&v[start..start + len]),
        }
    }

    /// Element i as a float, 0 outside. `i32` beyond 2^24 is rounded.
    pub fn get(&self, i: usize) -> f32 {
        match self {
            ObsRef::U8(v) => v.get(i).map_or(0.0, |x| f32::from(*x)),
            ObsRef::I32(v) => v.get(i).map_or(0.0, |x| *x as f32),
            ObsRef::F32(v) => v.get(i).copied().unwrap_or(0.0),
        }
    }

    /// An owned copy.
    pub fn to_buffer(self) -> ObsBuffer {
        match self {
            ObsRef::U8(v) => ObsBuffer::U8(v.to_vec()),
            ObsRef::I32(v) => ObsBuffer::I32(v.to_vec()),
            ObsRef::F32(v) => ObsBuffer::F32(v.to_vec()),
        }
    }

    /// Continues a 64-bit hash: FNV-1a over the elements (floats by their bits; bytes eight at a time), with a rotation
    /// so that high bits reach low ones.
    #[inline]
    pub fn hash(&self, mut h: u64) -> u64 {
        let mut eat = |word: u64| h = (h ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        match self {
            ObsRef::U8(v) => {
                let words = v.chunks_exact(8);
                let rest = words.remainder();
                words.for_each(|w| eat(w.iter().fold(0, |word, x| word << 8 | u64::from(*x))));
                rest.iter().for_each(|x| eat(u64::from(*x)));
            }
            ObsRef::I32(v) => v.iter().for_each(|x| eat(u64::from(*x as u32))),
            ObsRef::F32(v) => v.iter().for_each(|x| eat(u64::from(x.to_bits()))),
        }
        h
    }
}

/// Rows of one length, to write to.
pub(crate) struct RowsMut<'a> {
    rest: ObsMut<'a>,
    flat_len: usize,
}

impl<'a> Iterator for RowsMut<'a> {
    type Item = ObsMut<'a>;

    #[inline]
    fn next(&mut self) -> Option<ObsMut<'a>> {
        let n = self.flat_len;
        match &mut self.rest {
            ObsMut::U8(v) => v.split_off_mut(..n).map(ObsMut::U8),
            ObsMut::I32(v) => v.split_off_mut(..n).map(ObsMut::I32),
            ObsMut::F32(v) => v.split_off_mut(..n).map(ObsMut::F32),
        }
    }
}

impl<'a> ObsMut<'a> {
    /// As many whole rows of `flat_len` elements as there are; without end where `flat_len` is 0.
    pub(crate) fn rows(self, flat_len: usize) -> RowsMut<'a> {
        RowsMut { rest: self, flat_len }
    }
}

impl ObsMut<'_> {
    /// Element type.
    #[inline]
    pub fn dtype(&self) -> Dtype {
        self.view().dtype()
    }

    /// Read access.
    #[inline]
    pub fn view(&self) -> ObsRef<'_> {
        match self {
            ObsMut::U8(v) => ObsRef::U8(v),
            ObsMut::I32(v) => ObsRef::I32(v),
            ObsMut::F32(v) => ObsRef::F32(v),
        }
    }

    /// A shorter borrow of the same elements.
    #[inline]
    pub fn reborrow(&mut self) -> ObsMut<'_> {
        match self {
            ObsMut::U8(v) => ObsMut::U8(v),
            ObsMut::I32(v) => ObsMut::I32(v),
            ObsMut::F32(v) => ObsMut::F32(v),
        }
    }

    /// `len` elements from `start`. Panics outside, as slicing does.
    #[inline]
    pub fn slice(&mut self, start: usize, len: usize) -> ObsMut<'_> {
        match self {
            ObsMut::U8(v) => ObsMut::U8(&mut v[start..start + len]),
            ObsMut::I32(v) => ObsMut::I32(&mut v[start..start + len]),
            ObsMut::F32(v) => ObsMut::F32(&mut v[start..start + len]),
        }
    }

    /// Copies; false where type or length differ.
    #[inline]
    pub fn copy_from(&mut self, from: ObsRef<'_>) -> bool {
        match (self, from) {
            (ObsMut::U8(to), ObsRef::U8(from)) if to.len() == from.len() => to.copy_from_slice(from),
            (ObsMut::I32(to), ObsRef::I32(from)) if to.len() == from.len() => to.copy_from_slice(from),
            (ObsMut::F32(to), ObsRef::F32(from)) if to.len() == from.len() => to.copy_from_slice(from),
            _ => return false,
        }
        true
    }

    /// Writes element i from a float (rounded to the element type); nothing outside.
    pub fn set(&mut self, i: usize, value: f32) {
        match self {
            ObsMut::U8(v) => v.get_mut(i).into_iter().for_each(|x| *x = value as u8),
            ObsMut::I32(v) => v.get_mut(i).into_iter().for_each(|x| *x = value as i32),
            ObsMut::F32(v) => v.get_mut(i).into_iter().for_each(|x| *x = value),
        }
    }
}

/// Owned actions, flat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionBuffer {
    /// `Discrete` and `MultiDiscrete`.
    Discrete(Vec<i32>),
    /// `Box`.
    Continuous(Vec<f32>),
}

/// Borrowed actions, flat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActionRef<'a> {
    /// `Discrete` and `MultiDiscrete`.
    Discrete(&'a [i32]),
    /// `Box`.
    Continuous(&'a [f32]),
}

impl ActionBuffer {
    /// `rows` null actions (zeros) of the space, flat.
    pub fn for_space(space: &Space, rows: usize) -> Self {
        let n = rows * space.flat_len();
        if space.is_discrete() { ActionBuffer::Discrete(vec![0; n]) } else { ActionBuffer::Continuous(vec![0.0; n]) }
    }

    /// Everything, borrowed.
    #[inline]
    pub fn view(&self) -> ActionRef<'_> {
        match self {
            ActionBuffer::Discrete(v) => ActionRef::Discrete(v),
            ActionBuffer::Continuous(v) => ActionRef::Continuous(v),
        }
    }

    /// Empties it, keeping the memory.
    pub fn clear(&mut self) {
        match self {
            ActionBuffer::Discrete(v) => v.clear(),
            ActionBuffer::Continuous(v) => v.clear(),
        }
    }

    /// Makes room for `n` more elements.
    pub fn reserve(&mut self, n: usize) {
        match self {
            ActionBuffer::Discrete(v) => v.reserve(n),
            ActionBuffer::Continuous(v) => v.reserve(n),
        }
    }

    /// Appends; false where the kinds differ.
    #[inline]
    pub fn extend(&mut self, more: ActionRef<'_>) -> bool {
        match (self, more) {
            (ActionBuffer::Discrete(v), ActionRef::Discrete([one])) => v.push(*one),
            (ActionBuffer::Discrete(v), ActionRef::Discrete(m)) => v.extend_from_slice(m),
            (ActionBuffer::Continuous(v), ActionRef::Continuous(m)) => v.extend_from_slice(m),
            _ => return false,
        }
        true
    }
}

impl<'a> ActionRef<'a> {
    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            ActionRef::Discrete(v) => v.len(),
            ActionRef::Continuous(v) => v.len(),
        }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` elements from `start`. Panics outside, as slicing does.
    #[inline]
    pub fn slice(self, start: usize, len: usize) -> ActionRef<'a> {
        match self {
            ActionRef::Discrete(v) => ActionRef::Discrete(&v[start..start + len]),
            ActionRef::Continuous(v) => ActionRef::Continuous(&v[start..start + len]),
        }
    }

    /// An owned copy.
    pub fn to_buffer(self) -> ActionBuffer {
        match self {
            ActionRef::Discrete(v) => ActionBuffer::Discrete(v.to_vec()),
            ActionRef::Continuous(v) => ActionBuffer::Continuous(v.to_vec()),
        }
    }
}

impl std::fmt::Display for ActionRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ActionRef::Discrete([a]) => write!(f, "{a}"),
            ActionRef::Discrete(v) => write!(f, "{v:?}"),
            ActionRef::Continuous(v) => write!(f, "{v:?}"),
        }
    }
}
