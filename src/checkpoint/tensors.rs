//! safetensors files against a parameter layout: 8 bytes of header length, a JSON header of names, types, shapes and
//! offsets, then the numbers, little-endian. The header is bounded by the file's true size before it is read, and all
//! names, types and shapes are checked before a number is.
//! Source: huggingface.co/docs/safetensors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, TensorInfo, View};

use crate::error::{Error, Result};
use crate::params::ParamLayout;

/// The limit of the format itself, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// Ends of the names of tensors that every Mamba body has, and that only one with a rotating state has.
const DECAYS: &str = ".mixer.A_log";
const ANGLES: &str = ".mixer.theta";

struct F32View<'a> {
    shape: &'a [usize],
    values: &'a [f32],
}

impl View for F32View<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.data_len()];
        for (to, x) in bytes.chunks_exact_mut(4).zip(self.values) {
            to.copy_from_slice(&x.to_le_bytes());
        }
        Cow::Owned(bytes)
    }
    fn data_len(&self) -> usize {
        4 * self.values.len()
    }
}

/// A file that holds `sets`, each `[layout.len()]`, every tensor named prefix + layout name.
pub(super) fn encode(path: &Path, layout: &ParamLayout, sets: &[(&str, &[f32])]) -> Result<Vec<u8>> {
    let tensors = sets.iter().flat_map(|(prefix, flat)| {
        layout.entries().iter().map(move |e| {
            let view = F32View { shape: &e.spec.shape, values: &flat[e.slot.range()] };
            (format!("{prefix}{}", e.spec.name), view)
        })
    });
    // `transformers` reads only files that say so.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize(tensors, Some(metadata)).map_err(|e| Error::checkpoint(path, e.to_string()))
}

/// An open file with a checked header; numbers are read on demand.
pub(super) struct TensorFile<R> {
    path: PathBuf,
    source: R,
    header: Metadata,
    data_at: u64,
}

impl<R: Read + Seek> TensorFile<R> {
    /// Reads the header of a file of `len` bytes.
    pub fn open(path: &Path, mut source: R, len: u64) -> Result<Self> {
        let io = |e| Error::io("reading", path, e);
        let bad = |problem: String| Error::checkpoint(path, problem);
        if len < 8 {
            return Err(bad(format!("has {len} bytes, expected at least 8: not a safetensors file")));
        }
        let mut n = [0; 8];
        source.read_exact(&mut n).map_err(io)?;
        let n = u64::from_le_bytes(n);
        if n > LONGEST_HEADER {
            return Err(bad(format!("announces a header of {n} bytes, expected at most {LONGEST_HEADER}")));
        }
        if n > len - 8 {
            return Err(bad(format!("has {len} bytes, expected at least {} for its header", n + 8)));
        }
        let mut text = vec![0; n as usize];
        source.read_exact(&mut text).map_err(io)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|e| bad(format!("header: {e}")))?;
        let expected = 8 + n + header.data_len() as u64;
        if len != expected {
            return Err(bad(format!("has {len} bytes, expected {expected}")));
        }
        Ok(TensorFile { path: path.into(), source, header, data_at: 8 + n })
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort();
        names
    }

    /// Checks that a tensor is there with this shape and one of these types.
    pub fn check(&self, name: &str, shape: &[usize], types: &[Dtype]) -> Result<&TensorInfo> {
        let bad = |problem: String| Error::checkpoint(&self.path, format!("tensor `{name}` {problem}"));
        let info = self.header.info(name).ok_or_else(|| bad(format!("is missing, expected shape {shape:?}")))?;
        if !types.contains(&info.dtype) {
            return Err(bad(format!("has type {:?}, expected {}", info.dtype, one_of(types))));
        }
        if info.shape != shape {
            return Err(bad(format!("has shape {:?}, expected {shape:?}", info.shape)));
        }
        Ok(info)
    }

    /// Reads a checked tensor as f32, row-major.
    pub fn read(&mut self, name: &str, shape: &[usize], types: &[Dtype]) -> Result<Vec<f32>> {
        let info = self.check(name, shape, types)?;
        let ((from, to), dtype) = (info.data_offsets, info.dtype);
        let mut bytes = vec![0; to - from];
        let at = SeekFrom::Start(self.data_at + from as u64);
        self.source
            .seek(at)
            .and_then(|_| self.source.read_exact(&mut bytes))
            .map_err(|e| Error::io("reading", &self.path, e))?;
        Ok(match dtype {
            Dtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            Dtype::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        })
    }

    /// A Mamba body whose state rotates has angles, and other shapes for it: one line names both kinds.
    fn check_rotation(&self, layout: &ParamLayout) -> Result<()> {
        let names = self.names();
        let ours = |end: &str| layout.entries().iter().any(|e| e.spec.name.ends_with(end));
        let theirs = |end: &str| names.iter().any(|n| n.ends_with(end));
        if !(ours(DECAYS) && theirs(DECAYS)) || ours(ANGLES) == theirs(ANGLES) {
            return Ok(());
        }
        let named = |rotates: bool| if rotates { "a rotating state" } else { "the state of Mamba-1" };
        let problem = format!(
            "holds {} ({} `*{ANGLES}`), but this network has {} (`backbone.rotate`)",
            named(theirs(ANGLES)),
            if theirs(ANGLES) { "with tensors" } else { "no tensor" },
            named(ours(ANGLES))
        );
        Err(Error::checkpoint(&self.path, problem))
    }

    /// Reads one flat buffer `[layout.len()]` per prefix. The file must hold exactly these tensors, all F32.
    pub fn read_layout(&mut self, layout: &ParamLayout, prefixes: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.check_rotation(layout)?;
        let mut names = Vec::with_capacity(prefixes.len() * layout.entries().len());
        for prefix in prefixes {
            for e in layout.entries() {
                let name = format!("{prefix}{}", e.spec.name);
                self.check(&name, &e.spec.shape, &[Dtype::F32])?;
                names.push(name);
            }
        }
        if self.header.offset_keys().len() != names.len() {
            let known: std::collections::HashSet<&String> = names.iter().collect();
            let extra = self.names().into_iter().find(|n| !known.contains(n)).unwrap_or_default();
            let shape = self.header.info(&extra).map(|i| i.shape.clone()).unwrap_or_default();
            let problem =
                format!("tensor `{extra}` {shape:?} is not in this network ({} tensors expected)", names.len());
            return Err(Error::checkpoint(&self.path, problem));
        }
        let mut names = names.iter();
        let mut sets = Vec::with_capacity(prefixes.len());
        for _ in prefixes {
            let mut flat = vec![0.0; layout.len()];
            for (e, name) in layout.entries().iter().zip(names.by_ref()) {
                flat[e.slot.range()].copy_from_slice(&self.read(name, &e.spec.shape, &[Dtype::F32])?);
            }
            sets.push(flat);
        }
        Ok(sets)
    }
}

fn one_of(types: &[Dtype]) -> String {
    types.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" or ")
}
