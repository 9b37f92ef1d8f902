// Causal depthwise convolution with SiLU: p_t = b + sum over taps of w_k x_{t-K+1+k}, u = silu(p), per channel; K = d_conv.
// x [T, B, stride], its first d_inner columns; w [d_inner, K], newest tap last; window [B, K - 1, d_inner], the inputs
// before step 0, oldest first: step -1 is its last entry. A reset at t hides everything before t.
//
// A block is TILE steps of one row b and CHANNELS channels, TILE_ROWS threads deep. What its steps see lies in shared
// memory: x of the tile and of the K - 1 steps before it, or, backward, the gradient of p of the tile and of the K - 1
// steps after it.

#define TILE 32
#define CHANNELS 32
#define TILE_ROWS 8
// Most taps of a thread in the backward: d_conv up to TILE_ROWS * TAPS.
#define TAPS 16

// Inputs at step t >= -(K - 1): of x, or of the window.
template <typename T>
__device__ __forceinline__ float input_at(const T* x, const float* window, int b, int i, int t, int batch, int stride,
                                          int d_inner, int d_conv) {
    if (t >= 0) return to_f32(x[((size_t)t * batch + b) * stride + i]);
    return window[((size_t)b * (d_conv - 1) + d_conv - 1 + t) * d_inner + i];
}

// w [d_inner, K] of the block's channels as [K, CHANNELS].
__device__ __forceinline__ void stage_taps(float* taps, const float* w, int i0, int d_inner, int d_conv) {
    for (int k = (int)threadIdx.y; k < d_conv; k += TILE_ROWS) {
        int i = i0 + (int)threadIdx.x;
        taps[k * CHANNELS + threadIdx.x] = i < d_inner ? w[(size_t)i * d_conv + k] : 0.0f;
    }
}

// F3  u, and p where there is a tape. Grid [B, ceil(T / TILE), ceil(d_inner / CHANNELS)].
extern "C" __global__ void __launch_bounds__(CHANNELS* TILE_ROWS)
    conv_fwd(float* u, STORE* pre, const float* x, const float* w, const float* bias, const float* window,
             const unsigned char* reset, int time, int batch, int d_inner, int d_conv, int stride) {
    extern __shared__ float shared[];
    __shared__ int seen[TILE];
    int b = (int)blockIdx.x, t0 = (int)blockIdx.y * TILE, i0 = (int)blockIdx.z * CHANNELS, i = i0 + (int)threadIdx.x;
    int before = d_conv - 1, end = min(time, t0 + TILE);
    float* taps = shared;                    // [K, CHANNELS]
    float* in = shared + d_conv * CHANNELS;  // [K - 1 + TILE, CHANNELS], from step t0 - (K - 1)
    stage_taps(taps, w, i0, d_inner, d_conv);
    for (int k = (int)threadIdx.y; k < before + end - t0; k += TILE_ROWS) {
        bool there = i < d_inner;
        in[k * CHANNELS + threadIdx.x] =
            there ? input_at(x, window, b, i, t0 - before + k, batch, stride, d_inner, d_conv) : 0.0f;
    }
    // taps that a step sees: all, or those since the last reset at or before it
    if (threadIdx.y == 0 && t0 + (int)threadIdx.x < end) {
        int t = t0 + (int)threadIdx.x, n = d_conv;
        for (int back = 0; reset != nullptr && back < d_conv && back <= t; ++back) {
            if (reset[(size_t)(t - back) * batch + b] != 0) {
                n = back + 1;
                break;
            }
        }
        seen[threadIdx.x] = n;
    }
    __syncthreads();
    if (i >= d_inner) return;
    float offset = bias != nullptr ? bias[i] : 0.0f;
    for (int t = t0 + (int)threadIdx.y; t < end; t += TILE_ROWS) {
        float p = offset;
        const float* now = in + (t - t0 + before) * CHANNELS + threadIdx.x;
        for (int back = seen[t - t0] - 1; back >= 0; --back) {  // a bound, not a factor: what is hidden may be NaN
            p = fmaf(taps[(before - back) * CHANNELS + threadIdx.x], now[-back * CHANNELS], p);
        }
        size_t at = ((size_t)t * batch + b) * d_inner + i;
        u[at] = p * sigmoid(p);
        if (pre != nullptr) pre[at] = from_f32<STORE>(p);
    }
}

// The window moved on, and the old one kept for the backward (null: not). A thread is a channel of a row. The entries are
// written from the oldest on and read from later ones, so the move in place is safe.
extern "C" __global__ void conv_window(float* window, float* kept, const float* x, const unsigned char* reset, int time,
                                       int batch, int d_inner, int d_conv, int stride) {
    int at = element();
    if (at >= batch * d_inner) return;
    int b = at / d_inner, i = at % d_inner, k = d_conv - 1, n = k;
    // entries still seen: those since the last reset
    for (int back = 0; reset != nullptr && back < min(time, k); ++back) {
        if (reset[(size_t)(time - 1 - back) * batch + b] != 0) {
            n = back + 1;
            break;
        }
    }
    float* own = window + (size_t)b * k * d_inner + i;
    for (int m = 0; m < k; ++m) {
        int back = k - 1 - m;  // steps before the last one
        if (kept != nullptr) kept[((size_t)b * k + m) * d_inner + i] = own[(size_t)m * d_inner];
        float v = 0.0f;
        if (back < n) {
            v = back < time ? x[((size_t)(time - 1 - back) * batch + b) * stride + i] : own[(size_t)(m + time) * d_inner];
        }
        own[(size_t)m * d_inner] = v;
    }
}

// B3  g_x, g_window (null: not), and the block's share of g_w and g_b. Sources are the steps -(K - 1) .. T - 1, those before
// 0 in the window: a source at s reaches the steps s .. s + K - 1 up to the next reset. Blocks walk the items
// (tile of sources, row b) in strides of gridDim.y; blockIdx.y is the share in part [shares, K + 1, d_inner], g_b in its last row.
extern "C" __global__ void __launch_bounds__(CHANNELS* TILE_ROWS)
    conv_bwd(float* g_x, float* g_window, float* part, const STORE* x, const STORE* pre, const float* w,
             const float* window, const float* g_u, const float* g_window_out, const unsigned char* reset, int time,
             int batch, int d_inner, int d_conv, int stride) {
    extern __shared__ float shared[];
    __shared__ int reached[TILE];
    int i0 = (int)blockIdx.x * CHANNELS, i = i0 + (int)threadIdx.x, before = d_conv - 1;
    int tiles = (time + before + TILE - 1) / TILE;
    float* taps = shared;                         // [K, CHANNELS]
    float* in = taps + d_conv * CHANNELS;         // [TILE, CHANNELS], inputs of the sources
    float* g_p = in + TILE * CHANNELS;            // [TILE + K - 1, CHANNELS], from the tile's first step
    float g_w[TAPS], g_b = 0.0f;
#pragma unroll
    for (int m = 0; m < TAPS; ++m) g_w[m] = 0.0f;
    stage_taps(taps, w, i0, d_inner, d_conv);
    for (int item = (int)blockIdx.y; item < tiles * batch; item += (int)gridDim.y) {
        int b = item / tiles, first = item % tiles * TILE - before;
        __syncthreads();  // the last item is done
        for (int k = (int)threadIdx.y; k < TILE + before; k += TILE_ROWS) {
            int t = first + k;
            float v = 0.0f;
            if (t >= 0 && t < time && i < d_inner) {
                size_t at = ((size_t)t * batch + b) * d_inner + i;
                v = g_u[at] * silu_slope(to_f32(pre[at]));
                if (k < TILE) g_b += v;
            }
            g_p[k * CHANNELS + threadIdx.x] = v;
            if (k < TILE) {
                bool there = t < time && i < d_inner;
                in[k * CHANNELS + threadIdx.x] =
                    there ? input_at(x, window, b, i, t, batch, stride, d_inner, d_conv) : 0.0f;
            }
        }
        if (threadIdx.y == 0) {
            int s = first + (int)threadIdx.x, n = s < time ? min(d_conv, time - s) : 0;
            for (int t = max(s + 1, 0); reset != nullptr && t < s + n; ++t) {
                if (reset[(size_t)t * batch + b] != 0) n = t - s;
            }
            reached[threadIdx.x] = n;
        }
        __syncthreads();
        for (int k = (int)threadIdx.y; k < TILE; k += TILE_ROWS) {
            int s = first + k;
            if (s >= time || i >= d_inner) continue;
            float sum = 0.0f;
            for (int j = 0; j < reached[k]; ++j) {
                sum = fmaf(taps[(before - j) * CHANNELS + threadIdx.x], g_p[(k + j) * CHANNELS + threadIdx.x], sum);
            }
            // a source that no reset hides from the last step lies in the window after it
            int back = time - 1 - s;
            if (g_window_out != nullptr && back < before && reached[k] == back + 1) {
                sum += g_window_out[((size_t)b * before + before - 1 - back) * d_inner + i];
            }
            if (s >= 0) {
                g_x[((size_t)s * batch + b) * stride + i] = sum;
            } else if (g_window != nullptr) {
                g_window[((size_t)b * before + before + s) * d_inner + i] = sum;
            }
        }
#pragma unroll
        for (int m = 0; m < TAPS; ++m) {
            int tap = (int)threadIdx.y + m * TILE_ROWS, j = before - tap;  // steps from the source to the output
            if (m * TILE_ROWS < d_conv && tap < d_conv) {
                for (int k = 0; k < TILE; ++k) {
                    if (first + k + j >= 0 && j < reached[k]) {  // a branch: a hidden source may be NaN
                        g_w[m] = fmaf(in[k * CHANNELS + threadIdx.x], g_p[(k + j) * CHANNELS + threadIdx.x], g_w[m]);
                    }
                }
            }
        }
    }
    if (i < d_inner) {
        float* own = part + (size_t)blockIdx.y * (d_conv + 1) * d_inner + i;
#pragma unroll
        for (int m = 0; m < TAPS; ++m) {
            int tap = (int)threadIdx.y + m * TILE_ROWS;
            if (tap < d_conv) own[(size_t)tap * d_inner] = g_w[m];
        }
    }
    // g_b: over the threads of a channel
    __syncthreads();
    g_p[threadIdx.y * CHANNELS + threadIdx.x] = g_b;
    __syncthreads();
    if (threadIdx.y == 0 && i < d_inner) {
        float sum = 0.0f;
        for (int k = 0; k < TILE_ROWS; ++k) sum += g_p[k * CHANNELS + threadIdx.x];
        part[((size_t)blockIdx.y * (d_conv + 1) + d_conv) * d_inner + i] = sum;
    }
}

// g_w, g_b += the sums of the shares in order; g_b may be null. A thread is one number of them.
extern "C" __global__ void conv_bwd_finish(float* g_w, float* g_b, const float* part, int shares, int d_inner, int d_conv) {
    int at = element(), n = (d_conv + 1) * d_inner;
    if (at >= n) return;
    int i = at % d_inner, tap = at / d_inner;
    float sum = 0.0f;
    for (int k = 0; k < shares; ++k) sum += part[(size_t)k * n + at];
    if (tap < d_conv) {
        g_w[(size_t)i * d_conv + tap] += sum;
    } else if (g_b != nullptr) {
        g_b[i] += sum;
    }
}
