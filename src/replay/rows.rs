//! Observations and actions as flat rows in their own number type.

use super::error::{ReplayError, Result};

/// Number type of observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObsKind {
    /// Bytes, such as pixels.
    U8,
    /// Indices, such as cards.
    I32,
    /// Real numbers.
    F32,
}

impl ObsKind {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        if self == ObsKind::U8 { 1 } else { 4 }
    }
}

/// Borrowed observation numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ObsSlice<'a> {
    /// Bytes.
    U8(&'a [u8]),
    /// Indices.
    I32(&'a [i32]),
    /// Real numbers.
    F32(&'a [f32]),
}

/// Owned observation numbers; rows of equal length follow each other.
#[derive(Debug, Clone, PartialEq)]
pub enum ObsRows {
    /// Bytes.
    U8(Vec<u8>),
    /// Indices.
    I32(Vec<i32>),
    /// Real numbers.
    F32(Vec<f32>),
}

/// Runs one expression for whichever variant `$rows` has.
macro_rules! each {
    ($type:ident, $rows:expr, $v:ident => $body:expr) => {
        match $rows {
            $type::U8($v) => $body,
            $type::I32($v) => $body,
            $type::F32($v) => $body,
        }
    };
}

impl ObsSlice<'_> {
    /// Number type.
    pub fn kind(&self) -> ObsKind {
        match self {
            ObsSlice::U8(_) => ObsKind::U8,
            ObsSlice::I32(_) => ObsKind::I32,
            ObsSlice::F32(_) => ObsKind::F32,
        }
    }

    /// Count of numbers.
    pub fn len(&self) -> usize {
        each!(ObsSlice, self, v => v.len())
    }

    /// No numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn check(&self, argument: &'static str, kind: ObsKind, len: usize) -> Result<()> {
        if self.kind() == kind && self.len() == len {
            return Ok(());
        }
        let (expected, found) = (format!("{len} x {kind:?}"), format!("{} x {:?}", self.len(), self.kind()));
        Err(ReplayError::Shape { argument, expected, found })
    }
}

impl ObsRows {
    /// `len` zeros. The system hands out zeroed memory lazily, so unused rows cost no resident memory.
    pub fn zeros(kind: ObsKind, len: usize) -> Self {
        match kind {
            ObsKind::U8 => ObsRows::U8(vec![0; len]),
            ObsKind::I32 => ObsRows::I32(vec![0; len]),
            ObsKind::F32 => ObsRows::F32(vec![0.0; len]),
        }
    }

    /// Number type.
    pub fn kind(&self) -> ObsKind {
        self.as_slice().kind()
    }

    /// All rows.
    pub fn as_slice(&self) -> ObsSlice<'_> {
        match self {
            ObsRows::U8(v) => ObsSlice::U8(v),
            ObsRows::I32(v) => ObsSlice::I32(v),
            ObsRows::F32(v) => ObsSlice::F32(v),
        }
    }

    /// Row `i` of rows of `len` numbers; empty if it does not exist.
    pub fn row(&self, i: usize, len: usize) -> ObsSlice<'_> {
        let range = i * len..(i + 1) * len;
        match self {
            ObsRows::U8(v) => ObsSlice::U8(v.get(range).unwrap_or(&[])),
            ObsRows::I32(v) => ObsSlice::I32(v.get(range).unwrap_or(&[])),
            ObsRows::F32(v) => ObsSlice::F32(v.get(range).unwrap_or(&[])),
        }
    }

    /// Sets row `i`; `row` has this type and length, as [`ObsSlice::check`] saw to.
    pub(super) fn set_row(&mut self, i: usize, row: ObsSlice<'_>) {
        match (self, row) {
            (ObsRows::U8(v), ObsSlice::U8(r)) => v[i * r.len()..][..r.len()].copy_from_slice(r),
            (ObsRows::I32(v), ObsSlice::I32(r)) => v[i * r.len()..][..r.len()].copy_from_slice(r),
            (ObsRows::F32(v), ObsSlice::F32(r)) => v[i * r.len()..][..r.len()].copy_from_slice(r),
            _ => unreachable!("observation kinds were checked on entry"),
        }
    }

    pub(super) fn clear_resize(&mut self, len: usize) {
        each!(ObsRows, self, v => { v.clear(); v.resize(len, Default::default()); });
    }
}

/// Kind and length of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// `parts` indices.
    Discrete {
        /// Number of components.
        parts: usize,
    },
    /// `len` real numbers.
    Continuous {
        /// Number of components.
        len: usize,
    },
}

impl ActionKind {
    /// Numbers per action.
    pub fn len(self) -> usize {
        match self {
            ActionKind::Discrete { parts } => parts,
            ActionKind::Continuous { len } => len,
        }
    }

    /// No numbers; such a specification is refused.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// One action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActionSlice<'a> {
    /// An index per component.
    Discrete(&'a [i32]),
    /// A real number per component.
    Continuous(&'a [f32]),
}

impl ActionSlice<'_> {
    pub(super) fn check(&self, kind: ActionKind) -> Result<()> {
        let found = match self {
            ActionSlice::Discrete(a) => ActionKind::Discrete { parts: a.len() },
            ActionSlice::Continuous(a) => ActionKind::Continuous { len: a.len() },
        };
        if found == kind {
            return Ok(());
        }
        let (expected, found) = (format!("{kind:?}"), format!("{found:?}"));
        Err(ReplayError::Shape { argument: "action", expected, found })
    }
}

/// Owned actions; rows of equal length follow each other.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionRows {
    /// Indices.
    Discrete(Vec<i32>),
    /// Real numbers.
    Continuous(Vec<f32>),
}

impl ActionRows {
    /// `rows` actions of zeros.
    pub fn zeros(kind: ActionKind, rows: usize) -> Self {
        match kind {
            ActionKind::Discrete { parts } => ActionRows::Discrete(vec![0; rows * parts]),
            ActionKind::Continuous { len } => ActionRows::Continuous(vec![0.0; rows * len]),
        }
    }

    /// Row `i` of rows of `len` numbers; empty if it does not exist.
    pub fn row(&self, i: usize, len: usize) -> ActionSlice<'_> {
        let range = i * len..(i + 1) * len;
        match self {
            ActionRows::Discrete(v) => ActionSlice::Discrete(v.get(range).unwrap_or(&[])),
            ActionRows::Continuous(v) => ActionSlice::Continuous(v.get(range).unwrap_or(&[])),
        }
    }

    /// Indices of discrete actions; empty for continuous ones.
    pub fn discrete(&self) -> &[i32] {
        if let ActionRows::Discrete(v) = self { v } else { &[] }
    }

    /// Numbers of continuous actions; empty for discrete ones.
    pub fn continuous(&self) -> &[f32] {
        if let ActionRows::Continuous(v) = self { v } else { &[] }
    }

    pub(super) fn set_row(&mut self, i: usize, row: ActionSlice<'_>) {
        match (self, row) {
            (ActionRows::Discrete(v), ActionSlice::Discrete(r)) => v[i * r.len()..][..r.len()].copy_from_slice(r),
            (ActionRows::Continuous(v), ActionSlice::Continuous(r)) => v[i * r.len()..][..r.len()].copy_from_slice(r),
            _ => unreachable!("action kinds were checked on entry"),
        }
    }

    pub(super) fn clear_resize(&mut self, len: usize) {
        match self {
            ActionRows::Discrete(v) => {
                v.clear();
                v.resize(len, 0);
            }
            ActionRows::Continuous(v) => {
                v.clear();
                v.resize(len, 0.0);
            }
        }
    }
}
