//! Vectors of f32 for the fast twins of the CPU ops: AVX-512, AVX2 with FMA, and portable arrays of eight.
//! A twin is one `Kernel` generic over `Lanes`; `Isa::run` compiles it for the instruction set of the device.
//! e^x = 2^n (1 + r + r² g(r)), n = round(x / ln 2), r = x − n ln 2, |r| ≤ ln 2 / 2; g is the Chebyshev interpolant of
//! degree 4 (relative error 1e-8 before rounding). ln(1 + e) = 2w k(w²), w = e/(2 + e), k likewise of degree 4.
//! x = kπ + r, |r| ≤ π/2: cos x = (−1)^k (1 + r² c(r²)), sin x = (−1)^k (r + r³ s(r²)), c of degree 4, s of degree 3.

use std::fmt;

/// The setting `train.simd`: which code path the CPU ops take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Simd {
    /// The widest that the CPU has.
    #[default]
    Auto,
    /// AVX-512F.
    Avx512,
    /// AVX2 with FMA.
    Avx2,
    /// No special instructions.
    Portable,
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Simd::Auto => "auto",
            Simd::Avx512 => "avx512",
            Simd::Avx2 => "avx2",
            Simd::Portable => "portable",
        })
    }
}

/// An instruction set that this CPU has: made by detection only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// The widest one.
    pub fn detect() -> Self {
        [Simd::Avx512, Simd::Avx2].into_iter().find_map(Isa::choose).unwrap_or(Isa(Set::Portable))
    }

    /// The one asked for, or none where the CPU lacks it.
    pub fn choose(simd: Simd) -> Option<Self> {
        match simd {
            Simd::Auto => Some(Self::detect()),
            Simd::Portable => Some(Isa(Set::Portable)),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => is_x86_feature_detected!("avx512f").then_some(Isa(Set::Avx512)),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Isa(Set::Avx2))
            }
            #[cfg(not(target_arch = "x86_64"))]
            Simd::Avx512 | Simd::Avx2 => None,
        }
    }

    /// The pin that gives this path again.
    pub fn simd(self) -> Simd {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => Simd::Avx512,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => Simd::Avx2,
            Set::Portable => Simd::Portable,
        }
    }

    /// Runs a kernel compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self.0 {
            // SAFETY: an `Isa` of this kind is made only after detection.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { x86::run_avx512(x86::Avx512::token(), kernel) },
            // SAFETY: an `Isa` of this kind is made only after detection.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { x86::run_avx2(x86::Avx2::token(), kernel) },
            Set::Portable => kernel.run(Portable),
        }
    }
}

/// A fast twin. `run` and everything it calls is `#[inline(always)]`, so that it is compiled inside the function that
/// switches the instructions on.
pub(crate) trait Kernel {
    type Out;
    fn run<L: Lanes>(self, l: L) -> Self::Out;
}

/// Floats to add to a scratch that is to be [`aligned`].
pub(crate) const SLACK: usize = 16;

/// The scratch from its first cache line on: vectors that straddle two lines cost twice.
pub(crate) fn aligned(scratch: &mut [f32]) -> &mut [f32] {
    let skip = scratch.as_ptr().align_offset(4 * SLACK).min(SLACK);
    &mut scratch[skip..]
}

const E: [f32; 5] = [0.5, 0.166_665_77, 0.041_666_555, 0.008_363_179, 0.001_392_618_4];
/// (2^f − 1) / f on |f| ≤ 1/2, the Chebyshev interpolant of degree 4: 2^f to 2e-7, and exactly 1 at 0.
const TWO: [f32; 5] = [std::f32::consts::LN_2, 0.240_223_5, 0.055_503_81, 0.009_666_368, 0.001_338_130_2];
const LN_1P: [f32; 5] = [1.0, 0.333_331_6, 0.200_122_98, 0.139_825_79, 0.140_788_89];
const COS: [f32; 5] = [-0.5, 0.041_666_66, -0.001_388_865_2, 2.477_458e-5, -2.629_751_6e-7];
const SIN: [f32; 4] = [-0.166_666_66, 0.008_333_242, -1.982_274e-4, 2.634_756_4e-6];
/// π in three parts, the first two so short that their products with a k below 2¹³ are exact.
const PI_PARTS: [f32; 3] = [3.140_625, 9.675_026e-4, 1.509_958e-7];
const LN2_HI: f32 = 0.693_145_75;
const LN2_LO: f32 = 1.428_606_8e-6;

/// Vectors of `N` floats.
pub(crate) trait Lanes: Copy {
    type V: Copy;
    /// Floats in a vector, at most 16.
    const N: usize;
    fn splat(self, x: f32) -> Self::V;
    /// x[at .. at + N].
    fn load(self, x: &[f32], at: usize) -> Self::V;
    /// Into x[at .. at + N].
    fn store(self, v: Self::V, x: &mut [f32], at: usize);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b + c.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c − a b.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; b where one is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; b where one is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Nearest integer, |a| < 2²².
    fn round(self, a: Self::V) -> Self::V;
    /// p 2ⁿ for whole n in [−151, 129].
    fn scale(self, p: Self::V, n: Self::V) -> Self::V;
    /// |a| with the sign of b.
    fn copysign(self, a: Self::V, b: Self::V) -> Self::V;
    /// Sum of the lanes in a fixed order.
    fn sum(self, a: Self::V) -> f32;

    /// x[at .. at + n], zeros beyond.
    #[inline(always)]
    fn load_part(self, x: &[f32], at: usize, n: usize) -> Self::V {
        if n >= Self::N {
            return self.load(x, at);
        }
        let mut part = [0.0; 16];
        part[..n].copy_from_slice(&x[at..at + n]);
        self.load(&part, 0)
    }

    /// The first n lanes into x[at .. at + n].
    #[inline(always)]
    fn store_part(self, v: Self::V, x: &mut [f32], at: usize, n: usize) {
        if n >= Self::N {
            return self.store(v, x, at);
        }
        let mut part = [0.0; 16];
        self.store(v, &mut part, 0);
        x[at..at + n].copy_from_slice(&part[..n]);
    }

    /// (2ⁿ, r + r² g(r)) with e^x = 2ⁿ (1 + the second); the first as n.
    #[inline(always)]
    fn exp_parts(self, x: Self::V) -> (Self::V, Self::V) {
        let n = self.round(self.mul(x, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fnma(n, self.splat(LN2_HI), x);
        let r = self.fnma(n, self.splat(LN2_LO), r);
        let mut g = self.splat(E[4]);
        for c in [E[3], E[2], E[1], E[0]] {
            g = self.fma(g, r, self.splat(c));
        }
        (n, self.fma(self.mul(r, r), g, r))
    }

    /// e^x for x ≤ 0; NaN stays NaN.
    #[inline(always)]
    fn exp_neg(self, x: Self::V) -> Self::V {
        let (n, p) = self.exp_parts(self.max(self.splat(-104.0), x));
        self.scale(self.add(p, self.splat(1.0)), n)
    }

    /// e^x; NaN stays NaN.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        self.exp_neg(self.min(self.splat(89.0), x))
    }

    /// 2^x for x ≤ 0, relative error 3e-7; NaN stays NaN. Half the products of [`Lanes::exp_neg`]: the scan lives on it.
    #[inline(always)]
    fn exp2_neg(self, x: Self::V) -> Self::V {
        let x = self.max(self.splat(-150.0), x);
        let n = self.round(x);
        let f = self.sub(x, n);
        let mut g = self.splat(TWO[4]);
        for c in [TWO[3], TWO[2], TWO[1], TWO[0], 1.0] {
            g = self.fma(g, f, self.splat(c));
        }
        self.scale(g, n)
    }

    /// (cos x, sin x) for |x| up to 2¹³ π, absolute error 1.5e-7; NaN stays NaN.
    #[inline(always)]
    fn cos_sin(self, x: Self::V) -> (Self::V, Self::V) {
        let k = self.round(self.mul(x, self.splat(std::f32::consts::FRAC_1_PI)));
        let mut r = x;
        for part in PI_PARTS {
            r = self.fnma(k, self.splat(part), r);
        }
        // (−1)^k: odd is −1, 0 or 1
        let odd = self.fnma(self.round(self.mul(k, self.splat(0.5))), self.splat(2.0), k);
        let sign = self.fnma(self.add(odd, odd), odd, self.splat(1.0));
        let r2 = self.mul(r, r);
        let (mut c, mut s) = (self.splat(COS[4]), self.splat(SIN[3]));
        for k in [COS[3], COS[2], COS[1], COS[0], 1.0] {
            c = self.fma(c, r2, self.splat(k));
        }
        for k in [SIN[2], SIN[1], SIN[0]] {
            s = self.fma(s, r2, self.splat(k));
        }
        (self.mul(sign, c), self.mul(sign, self.fma(self.mul(r, r2), s, r)))
    }

    /// 1 − e^x for x ≤ 0, without cancellation near 0.
    #[inline(always)]
    fn one_minus_exp(self, x: Self::V) -> Self::V {
        let (n, p) = self.exp_parts(self.max(self.splat(-104.0), x));
        let two_n = self.scale(self.splat(1.0), n);
        self.sub(self.sub(self.splat(1.0), two_n), self.mul(two_n, p))
    }

    /// 1 / (1 + e^−x).
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        let one = self.splat(1.0);
        self.div(one, self.add(one, self.exp(self.sub(self.splat(0.0), x))))
    }

    /// tanh x = sign(x) (1 − e) / (1 + e), e = e^−2|x|, without cancellation near 0.
    #[inline(always)]
    fn tanh(self, x: Self::V) -> Self::V {
        let (zero, one) = (self.splat(0.0), self.splat(1.0));
        let minus = self.min(x, self.sub(zero, x));
        let (n, p) = self.exp_parts(self.max(self.splat(-104.0), self.add(minus, minus)));
        let two_n = self.scale(one, n);
        let difference = self.sub(self.sub(one, two_n), self.mul(two_n, p));
        let sum = self.add(one, self.fma(two_n, p, two_n));
        self.copysign(self.div(difference, sum), x)
    }

    /// ln(1 + e^x) = max(x, 0) + ln(1 + e^−|x|).
    #[inline(always)]
    fn softplus(self, x: Self::V) -> Self::V {
        let zero = self.splat(0.0);
        let minus = self.sub(zero, x);
        let e = self.exp_neg(self.min(x, minus));
        let w = self.div(e, self.add(e, self.splat(2.0)));
        let w2 = self.mul(w, w);
        let mut k = self.splat(LN_1P[4]);
        for c in [LN_1P[3], LN_1P[2], LN_1P[1], LN_1P[0]] {
            k = self.fma(k, w2, self.splat(c));
        }
        self.fma(self.add(w, w), k, self.max(zero, x))
    }
}

/// Arrays of eight, left to the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

macro_rules! each {
    ($($a:ident),+ => $e:expr) => {{
        let mut out = [0.0; 8];
        for i in 0..8 {
            $(let $a = $a[i];)+
            out[i] = $e;
        }
        out
    }};
}

impl Lanes for Portable {
    type V = [f32; 8];
    const N: usize = 8;
    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    fn load(self, x: &[f32], at: usize) -> [f32; 8] {
        let mut out = [0.0; 8];
        out.copy_from_slice(&x[at..at + 8]);
        out
    }
    #[inline(always)]
    fn store(self, v: [f32; 8], x: &mut [f32], at: usize) {
        x[at..at + 8].copy_from_slice(&v);
    }
    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a + b)
    }
    #[inline(always)]
    fn sub(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a - b)
    }
    #[inline(always)]
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a * b)
    }
    #[inline(always)]
    fn div(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a / b)
    }
    #[inline(always)]
    fn fma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        each!(a, b, c => a * b + c) // not mul_add: without the instruction that is a slow call
    }
    #[inline(always)]
    fn fnma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        each!(a, b, c => c - a * b)
    }
    #[inline(always)]
    fn max(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => if a < b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: [f32; 8]) -> [f32; 8] {
        each!(a => a.sqrt())
    }
    #[inline(always)]
    fn round(self, a: [f32; 8]) -> [f32; 8] {
        const SHIFT: f32 = 12_582_912.0; // 1.5 · 2²³: the sum has no fraction bits left
        each!(a => (a + SHIFT) - SHIFT)
    }
    #[inline(always)]
    fn scale(self, p: [f32; 8], n: [f32; 8]) -> [f32; 8] {
        // two steps, since 2ⁿ itself may be outside the normal range
        each!(p, n => {
            let n = n as i32;
            let half = n >> 1;
            let power = |k: i32| f32::from_bits(((k + 127) as u32) << 23);
            p * power(half) * power(n - half)
        })
    }
    #[inline(always)]
    fn copysign(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a.copysign(b))
    }
    #[inline(always)]
    fn sum(self, a: [f32; 8]) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86;
