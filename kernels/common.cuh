// Storage types of the kernels. A kernel loads STORE, computes in f32 and stores STORE; STORE is f32, bf16 or f16.
// The 16-bit types are our own, on raw bits, so that no header of the toolkit is needed at run time.
// Rounding is to nearest, ties to even; f16 overflows to infinity.

typedef float f32;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

__device__ __forceinline__ float to_f32(f32 x) { return x; }

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ __forceinline__ float to_f32(f16 x) {
#ifdef CUDA_SIM
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
#ifdef CUDA_SIM
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

// ---- pointwise functions ----

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// d silu / dx = s (1 + x (1 - s))
__device__ __forceinline__ float silu_slope(float x) {
    float s = sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

// ---- sums in a fixed order ----

// The sum over a warp, in every lane.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

// Columns of a matrix are summed by blocks of COLUMNS x COLUMN_LANES threads: a lane takes every COLUMN_LANES-th row, then
// the lanes are added as a tree. 8 columns of f32 are one sector of memory.
#define COLUMNS 8
#define COLUMN_LANES 64

// Adds v over the lanes of its column; right in the threads with threadIdx.y = 0. All threads of the block must call it.
__device__ __forceinline__ float column_total(float (*part)[COLUMNS], float v) {
    __syncthreads();  // part may hold an earlier sum
    part[threadIdx.y][threadIdx.x] = v;
#pragma unroll
    for (int half = COLUMN_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.y < half) part[threadIdx.y][threadIdx.x] += part[threadIdx.y + half][threadIdx.x];
    }
    return part[threadIdx.y][threadIdx.x];
}

// The sum of a block's values as a tree over 256 threads; right in thread 0. Once in a kernel.
__device__ __forceinline__ double block_total(double v) {
    __shared__ double part[256];
    part[threadIdx.x] = v;
#pragma unroll
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    return part[threadIdx.x];
}

// ---- scans ----
//
// Lanes. A channel's states are spread over `lanes` neighbouring lanes of a warp, K in each: lane s holds the states s,
// s + lanes, s + 2 lanes, ... So B and C are read from shared memory without conflict, y is a sum over lanes, and up to 256
// states run without a loop over memory. A warp holds 32 / lanes channels of one row b; a block is WARPS of them.
//
// Time. A launch walks chunks of `chunk` steps, blockIdx.y the chunk. In the sequential form the only chunk is the whole
// sequence; in the chunked form all chunks run at once, and two launches before find the state that each starts from.
// EVERY steps lie between two states on the tape; a chunk is a multiple of it.

#define WARPS 4
#define EVERY 8
#define LOG2_E 1.44269504088896340736f

struct ScanShape { int time, batch, d_inner, d_state, dt_rank, lanes, chunk; };

// A ScanShape as arguments of a kernel.
#define SIZES int time, int batch, int d_inner, int d_state, int dt_rank, int lanes, int chunk
#define SHAPE ScanShape{time, batch, d_inner, d_state, dt_rank, lanes, chunk}

// Where this thread is.
struct Lane {
    int s, c;          // which states, which channel of the warp
    int channels;      // channels of a warp
    int warp;
};

__device__ __forceinline__ Lane lane_of(int lanes) {
    int lane = (int)(threadIdx.x & 31);
    return Lane{lane % lanes, lane / lanes, 32 / lanes, (int)(threadIdx.x / 32)};
}

// First and last step of this block's chunk.
struct Span { int first, end; };

__device__ __forceinline__ Span span_of(const ScanShape& p, int chunk) {
    return Span{chunk * p.chunk, min(p.time, (chunk + 1) * p.chunk)};
}

// The columns of q after dt_rank of the steps [t0, t0 + EVERY) of row b, as ARRAYS arrays (B, C; or the real and imaginary
// parts of B and of C) that are each padded with zeros, bc [EVERY, ARRAYS, padded], and the steps' resets. All threads of the
// block must call it.
template <int ARRAYS>
__device__ __forceinline__ void stage(float* bc, int* cleared, const ScanShape& p, int padded, int b, int t0, int end,
                                      const float* q, const unsigned char* reset) {
    int each = 2 * p.d_state / ARRAYS, width = p.dt_rank + 2 * p.d_state;
    __syncthreads();
    for (int k = (int)threadIdx.x; k < EVERY * ARRAYS * padded; k += 32 * WARPS) {
        int j = k / (ARRAYS * padded), n = k % padded, array = k / padded % ARRAYS;
        bool there = t0 + j < end && n < each;
        size_t row = (size_t)(t0 + j) * p.batch + b;
        bc[k] = there ? q[row * width + p.dt_rank + array * each + n] : 0.0f;
    }
    if (threadIdx.x < EVERY) {
        int t = t0 + (int)threadIdx.x;
        cleared[threadIdx.x] = reset != nullptr && t < end ? reset[(size_t)t * p.batch + b] : 0;
    }
    __syncthreads();
}

// log2(e) A of this lane's states of channel i, of `each` in all; 0 for those that pad.
template <int K>
__device__ __forceinline__ void load_decay(float (&a2)[K], int each, const ScanShape& p, const Lane& l, int i, bool live,
                                           const float* a_log) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        int n = k * p.lanes + l.s;
        a2[k] = live && n < each ? -expf(a_log[(size_t)i * each + n]) * LOG2_E : 0.0f;
    }
}

// This lane's states of channel i in a buffer [.., each, d_inner] whose row begins at `at`; 0 for those that pad.
template <int K>
__device__ __forceinline__ void load_states(float (&h)[K], int each, const ScanShape& p, const Lane& l, int i, bool live,
                                            const float* from, size_t at) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        int n = k * p.lanes + l.s;
        h[k] = live && n < each ? from[at + (size_t)n * p.d_inner + i] : 0.0f;
    }
}

template <int K>
__device__ __forceinline__ void store_states(const float (&h)[K], int each, const ScanShape& p, const Lane& l, int i,
                                             bool live, float* to, size_t at) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        int n = k * p.lanes + l.s;
        if (live && n < each) to[at + (size_t)n * p.d_inner + i] = h[k];
    }
}

// Up to EVERY numbers of channel i from step t0 on, 0 after the end.
template <typename T>
__device__ __forceinline__ void load_steps(float (&x)[EVERY], const ScanShape& p, int b, int i, bool live, int t0, int end,
                                           const T* from) {
#pragma unroll
    for (int j = 0; j < EVERY; ++j) {
        bool there = live && t0 + j < end;
        x[j] = there ? to_f32(from[((size_t)(t0 + j) * p.batch + b) * p.d_inner + i]) : 0.0f;
    }
}

// The sum over the lanes of a channel, in each of them.
__device__ __forceinline__ float lanes_sum(float v, int lanes) {
    for (int m = 1; m < lanes; m <<= 1) v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

// Adds v over the channels of the warp. Each stage halves the values that a lane still holds: lanes that differ in one
// bit exchange halves. Returns which value v[0] then is; the lane holds max(1, N / channels) of them, right in the lanes
// whose channel is below N.
template <int N> __device__ __forceinline__ int scatter_sum(float (&v)[N], int lanes) {
    int mine = 0, mask = lanes, lane = (int)(threadIdx.x & 31);
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
        if (mask < 32) {
            bool up = (lane & mask) != 0;
#pragma unroll
            for (int j = 0; j < half; ++j) {
                float give = up ? v[j] : v[j + half], keep = up ? v[j + half] : v[j];
                v[j] = keep + __shfl_xor_sync(0xffffffffu, give, mask);
            }
            mine += up ? half : 0;
            mask <<= 1;
        }
    }
    for (; mask < 32; mask <<= 1) v[0] += __shfl_xor_sync(0xffffffffu, v[0], mask);
    return mine;
}
