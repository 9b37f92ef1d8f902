//! The vectors of x86-64. A token exists only where the instructions do, so its methods may use them.

use std::arch::x86_64::*;

use super::{Kernel, Lanes};

/// AVX-512F: sixteen floats.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// AVX2 with FMA: eight floats.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx512 {
    /// # Safety
    /// The CPU has AVX-512F.
    pub(super) unsafe fn token() -> Self {
        Avx512(())
    }
}

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2 and FMA.
    pub(super) unsafe fn token() -> Self {
        Avx2(())
    }
}

#[target_feature(enable = "avx512f")]
pub(super) fn run_avx512<K: Kernel>(l: Avx512, kernel: K) -> K::Out {
    kernel.run(l)
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn run_avx2<K: Kernel>(l: Avx2, kernel: K) -> K::Out {
    kernel.run(l)
}

macro_rules! method {
    ($name:ident ( $($a:ident),+ ) = $e:expr) => {
        #[inline(always)]
        fn $name(self, $($a: Self::V),+) -> Self::V {
            // SAFETY: the token proves that the CPU has the instructions.
            unsafe { $e }
        }
    };
}

impl Lanes for Avx512 {
    type V = __m512;
    const N: usize = 16;
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32], at: usize) -> __m512 {
        let x = &x[at..at + 16];
        // SAFETY: the token proves the instructions, the slice its sixteen floats.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512, x: &mut [f32], at: usize) {
        let x = &mut x[at..at + 16];
        // SAFETY: the token proves the instructions, the slice its sixteen floats.
        unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v) }
    }
    method!(add(a, b) = _mm512_add_ps(a, b));
    method!(sub(a, b) = _mm512_sub_ps(a, b));
    method!(mul(a, b) = _mm512_mul_ps(a, b));
    method!(div(a, b) = _mm512_div_ps(a, b));
    method!(fma(a, b, c) = _mm512_fmadd_ps(a, b, c));
    method!(fnma(a, b, c) = _mm512_fnmadd_ps(a, b, c));
    method!(max(a, b) = _mm512_max_ps(a, b));
    method!(min(a, b) = _mm512_min_ps(a, b));
    method!(sqrt(a) = _mm512_sqrt_ps(a));
    method!(round(a) = _mm512_roundscale_ps::<0>(a));
    method!(scale(p, n) = _mm512_scalef_ps(p, n));
    method!(
        copysign(a, b) = {
            let (sign, a, b) = (_mm512_set1_epi32(i32::MIN), _mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(_mm512_or_si512(_mm512_andnot_si512(sign, a), _mm512_and_si512(sign, b)))
        }
    );
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { _mm512_reduce_add_ps(a) }
    }
}

impl Lanes for Avx2 {
    type V = __m256;
    const N: usize = 8;
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32], at: usize) -> __m256 {
        let x = &x[at..at + 8];
        // SAFETY: the token proves the instructions, the slice its eight floats.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m256, x: &mut [f32], at: usize) {
        let x = &mut x[at..at + 8];
        // SAFETY: the token proves the instructions, the slice its eight floats.
        unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
    }
    method!(add(a, b) = _mm256_add_ps(a, b));
    method!(sub(a, b) = _mm256_sub_ps(a, b));
    method!(mul(a, b) = _mm256_mul_ps(a, b));
    method!(div(a, b) = _mm256_div_ps(a, b));
    method!(fma(a, b, c) = _mm256_fmadd_ps(a, b, c));
    method!(fnma(a, b, c) = _mm256_fnmadd_ps(a, b, c));
    method!(max(a, b) = _mm256_max_ps(a, b));
    method!(min(a, b) = _mm256_min_ps(a, b));
    method!(sqrt(a) = _mm256_sqrt_ps(a));
    method!(round(a) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a));
    method!(
        copysign(a, b) = {
            let sign = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b))
        }
    );
    // two steps, since 2ⁿ itself may be outside the normal range
    method!(
        scale(p, n) = {
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias));
            let high = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias));
            _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high))
        }
    );
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
