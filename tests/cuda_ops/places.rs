//! Buffers for one op on any device: each range lies between margins of NaN, so that a wrong offset or a tail that reads
//! too far spoils the result, and one that writes too far is seen.

use std::sync::OnceLock;

use mamba_rl::device::cuda::{Cuda, CudaConfig};
use mamba_rl::device::{Cpu, Device, Kind, Precision, Slot, View, ViewMut};

use super::oracle::Named;

/// The precisions and how far their results may be from f64: outputs and gradients, relative to the largest number.
pub const F32: [f64; 2] = [1e-5, 1e-4];
pub const BF16: [f64; 2] = [1e-2, 2e-2];
pub const F16: [f64; 2] = [1.5e-3, 3e-3];
pub const PRECISIONS: [(Precision, [f64; 2]); 3] =
    [(Precision::F32, F32), (Precision::Bf16, BF16), (Precision::F16, F16)];

/// Numbers before and after a range.
const MARGIN: usize = 3;

/// A device of its own, so that its counters are the test's.
pub fn open(precision: Precision) -> Cuda {
    cuda_sim::install();
    let config = CudaConfig { precision, cache: None, ..CudaConfig::default() };
    Cuda::open(config).unwrap_or_else(|e| panic!("{e}"))
}

/// The device that tests share.
pub fn cuda(precision: Precision) -> Cuda {
    static DEVICES: [OnceLock<Cuda>; 3] = [const { OnceLock::new() }; 3];
    DEVICES[precision as usize].get_or_init(|| open(precision)).clone()
}

/// As the device stores it.
pub fn stored(x: &[f64], precision: Precision) -> Vec<f64> {
    let one = |x: f64| match precision {
        Precision::F32 => f64::from(x as f32),
        Precision::Bf16 => half::bf16::from_f32(x as f32).to_f64(),
        Precision::F16 => half::f16::from_f32(x as f32).to_f64(),
    };
    x.iter().map(|&x| one(x)).collect()
}

/// A range of a buffer.
pub struct Place<D: Device> {
    pub buf: D::Tensor,
    pub len: usize,
}

/// Makes and reads places of a device.
pub struct Bench<D: Device>(pub D);

impl<D: Device> Bench<D> {
    pub fn put(&self, x: &[f64], kind: Kind) -> Place<D> {
        let margin = [f32::NAN; MARGIN];
        let all: Vec<f32> = margin.into_iter().chain(x.iter().map(|&x| x as f32)).chain(margin).collect();
        let mut buf = self.0.zeros(all.len(), kind).unwrap();
        self.0.upload(&all, ViewMut::new(&mut buf, 0, all.len())).unwrap();
        Place { buf, len: x.len() }
    }

    pub fn full(&self, x: &[f64]) -> Place<D> {
        self.put(x, Kind::Full)
    }

    pub fn small(&self, x: &[f64]) -> Place<D> {
        self.put(x, Kind::Small)
    }

    /// Numbers that an op must overwrite.
    pub fn unset(&self, len: usize, kind: Kind) -> Place<D> {
        self.put(&vec![f64::NAN; len], kind)
    }

    #[track_caller]
    pub fn get(&self, p: &Place<D>) -> Vec<f64> {
        let mut out = vec![0.0f32; self.0.len(&p.buf)];
        let n = out.len();
        self.0.download(View::new(&p.buf, 0, n), &mut out).unwrap();
        let margins = out[..MARGIN].iter().chain(&out[MARGIN + p.len..]);
        assert!(margins.into_iter().all(|x| x.is_nan()), "something was written beside the range");
        out[MARGIN..MARGIN + p.len].iter().map(|&x| f64::from(x)).collect()
    }

    /// A mask behind bytes that are set.
    pub fn mask(&self, m: &[u8]) -> D::Mask {
        let all: Vec<u8> = [1; MARGIN].iter().chain(m).copied().collect();
        let mut mask = self.0.zero_mask(all.len()).unwrap();
        self.0.upload_mask(&all, &mut mask).unwrap();
        mask
    }
}

/// The range of a mask made by [`Bench::mask`].
pub fn bits<M>(mask: &M, len: usize) -> View<'_, M> {
    View::new(mask, MARGIN, len)
}

impl<D: Device> Place<D> {
    pub fn view(&self) -> View<'_, D::Tensor> {
        View::new(&self.buf, MARGIN, self.len)
    }

    pub fn out(&mut self) -> ViewMut<'_, D::Tensor> {
        ViewMut::new(&mut self.buf, MARGIN, self.len)
    }

    /// A part of the range as a slot of the whole buffer.
    pub fn slot(&self, at: usize, len: usize) -> Slot {
        assert!(at + len <= self.len);
        Slot { at: MARGIN + at, len }
    }
}

/// The reference.
pub fn reference() -> Bench<Cpu<f64>> {
    Bench(Cpu::default())
}

/// Compares results by name: gradients (`g_`) with the second tolerance, all others with the first.
#[track_caller]
pub fn same(what: &str, got: &Named, want: &Named, tolerance: [f64; 2]) {
    assert_eq!(got.len(), want.len());
    for ((name, got), (_, want)) in got.iter().zip(want) {
        let tolerance = tolerance[usize::from(name.starts_with("g_"))];
        super::net::close(&format!("{name}, {what}"), got, want, tolerance);
    }
}
