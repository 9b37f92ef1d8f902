// Storage types of the kernels. A kernel loads STORE, computes in f32 and stores STORE; STORE is f32, bf16 or f16.
// The 16-bit types are our own, on raw bits, so that no header of the toolkit is needed at run time.
// Rounding is to nearest, ties to even; f16 overflows to infinity.

typedef float f32;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

__device__ __forceinline__ float to_f32(f32 x) { return x; }

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ __forceinline__ float to_f32(f16 x) {
#ifdef FAKECUDA
    unsigned sign = (unsigned)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
    if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | ((rest & 0x3ff) << 13));     // infinity, NaN
    if (rest >= 0x400) return __uint_as_float(sign | ((rest + (112u << 10)) << 13));            // normal
    return __uint_as_float(sign | __float_as_uint((float)rest * 5.9604644775390625e-8f));       // subnormal: units of 2^-24
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

template <typename T> __device__ __forceinline__ T from_f32(float x);

template <> __device__ __forceinline__ f32 from_f32<f32>(float x) { return x; }

template <> __device__ __forceinline__ bf16 from_f32<bf16>(float x) {
    unsigned u = __float_as_uint(x);
    bf16 y;
    y.bits = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
    return y;
}

template <> __device__ __forceinline__ f16 from_f32<f16>(float x) {
    f16 y;
#ifdef FAKECUDA
    unsigned u = __float_as_uint(x), sign = (u >> 16) & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) {
        y.bits = 0x7fff;                                            // NaN
    } else if (u >= 0x477ff000) {
        y.bits = (unsigned short)(sign | 0x7c00);                   // 65520 and more
    } else if (u >= 0x38800000) {
        u -= 112u << 23;                                            // normal: drop 13 bits
        y.bits = (unsigned short)(sign | ((u + 0xfff + ((u >> 13) & 1)) >> 13));
    } else {
        // subnormal: the addition rounds at the place of 2^-24
        float big = __uint_as_float(u) + 0.5f;
        y.bits = (unsigned short)(sign | (__float_as_uint(big) - 0x3f000000));
    }
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
    return y;
}

// Index of this thread over all blocks of a one-dimensional grid.
__device__ __forceinline__ int element() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }
