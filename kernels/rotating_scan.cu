// Rotating scan: the selective scan over pairs (hr, hi) that also turn by a constant angle at every step.
// (hr, hi)_t = exp(D_t A) Rot(theta) (hr, hi)_{t-1} + D_t u_t (Br_t, Bi_t) ; y_t = sum Cr_t hr_t + Ci_t hi_t + D u_t,
// A = -exp(A_log) [d_inner, pairs], theta [pairs, d_inner], pairs = d_state / 2. hr of pair m is row m of
// h [B, d_state, d_inner], hi row pairs + m; columns of B and C likewise.
//
// Lanes and chunks: see common.cuh, with pairs in place of states. A chunk without a reset turns what came before by chunk
// times theta; the launches are those of selective_scan.cu.

// The arrays of `bc`: Br, Bi, Cr, Ci.
#define ARRAYS 4

// Pairs of a lane: log2(e) A, cosine and sine of theta.
template <int PAIRS>
__device__ __forceinline__ void load_turn(float (&cosine)[PAIRS], float (&sine)[PAIRS], int pairs, const ScanShape& p,
                                          const Lane& l, int i, bool live, const float* theta) {
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) {
        int m = k * p.lanes + l.s;
        sincosf(live && m < pairs ? theta[(size_t)m * p.d_inner + i] : 0.0f, &sine[k], &cosine[k]);
    }
}

// One step of a pair: decay, turn, add.
__device__ __forceinline__ void step(float& hr, float& hi, bool clear, float decay, float cosine, float sine, float add_r,
                                     float add_i) {
    float re = clear ? 0.0f : fmaf(cosine, hr, -sine * hi);  // a branch: clears NaN and inf too
    float im = clear ? 0.0f : fmaf(sine, hr, cosine * hi);
    hr = fmaf(decay, re, add_r);
    hi = fmaf(decay, im, add_i);
}

// ---- forward -----------------------------------------------------------------------------------------------------------

// F6  y, states on the tape (null: none), and h after the last step. h_in [chunks, B, d_state, d_inner].
template <int PAIRS>
__device__ __forceinline__ void scan_fwd(ScanShape p, float* y, float* h_out, float* tape, const float* h_in, const float* u,
                                         const float* delta, const float* q, const float* a_log, const float* theta,
                                         const float* d_skip, const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    int pairs = p.d_state / 2, padded = PAIRS * p.lanes;
    bool live = i < p.d_inner;
    Span span = span_of(p, chunk);
    size_t half = (size_t)pairs * p.d_inner, h_at = ((size_t)chunk * p.batch + b) * 2 * half;
    float a2[PAIRS], cosine[PAIRS], sine[PAIRS], hr[PAIRS], hi[PAIRS], x[EVERY], d[EVERY];
    load_decay(a2, pairs, p, l, i, live, a_log);
    load_turn(cosine, sine, pairs, p, l, i, live, theta);
    load_states(hr, pairs, p, l, i, live, h_in, h_at);
    load_states(hi, pairs, p, l, i, live, h_in, h_at + half);
    float skip = live ? d_skip[i] : 0.0f;
    for (int t0 = span.first; t0 < span.end; t0 += EVERY) {
        stage<ARRAYS>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        if (tape != nullptr) {
            size_t at = ((size_t)(t0 / EVERY) * p.batch + b) * 2 * half;
            store_states(hr, pairs, p, l, i, live, tape, at);
            store_states(hi, pairs, p, l, i, live, tape, at + half);
        }
        load_steps(x, p, b, i, live, t0, span.end, u);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = 0; j < EVERY; ++j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * ARRAYS * padded + l.s;
                float drive = d[j] * x[j], sum = 0.0f;
#pragma unroll
                for (int k = 0; k < PAIRS; ++k) {
                    const float* of = in + k * p.lanes;
                    step(hr[k], hi[k], cleared[j] != 0, exp2f(d[j] * a2[k]), cosine[k], sine[k], drive * of[0],
                         drive * of[padded]);
                    sum = fmaf(of[2 * padded], hr[k], fmaf(of[3 * padded], hi[k], sum));
                }
                sum = lanes_sum(sum, p.lanes);
                if (live && l.s == 0) {
                    y[((size_t)(t0 + j) * p.batch + b) * p.d_inner + i] = fmaf(skip, x[j], sum);
                }
            }
        }
    }
    if (span.end == p.time) {
        store_states(hr, pairs, p, l, i, live, h_out, (size_t)b * 2 * half);
        store_states(hi, pairs, p, l, i, live, h_out, (size_t)b * 2 * half + half);
    }
}

// What a chunk adds to h from zero, local [chunks, B, d_state, d_inner], and the sum of its step sizes,
// total [chunks, B, d_inner]; -1 where a reset cuts off what came before.
template <int PAIRS>
__device__ __forceinline__ void scan_chunk(ScanShape p, float* local, float* total, const float* u, const float* delta,
                                           const float* q, const float* a_log, const float* theta,
                                           const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    int pairs = p.d_state / 2, padded = PAIRS * p.lanes;
    bool live = i < p.d_inner, cut = false;
    Span span = span_of(p, chunk);
    float a2[PAIRS], cosine[PAIRS], sine[PAIRS], hr[PAIRS], hi[PAIRS], x[EVERY], d[EVERY], sum = 0.0f;
    load_decay(a2, pairs, p, l, i, live, a_log);
    load_turn(cosine, sine, pairs, p, l, i, live, theta);
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) hr[k] = hi[k] = 0.0f;
    for (int t0 = span.first; t0 < span.end; t0 += EVERY) {
        stage<ARRAYS>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        load_steps(x, p, b, i, live, t0, span.end, u);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = 0; j < EVERY; ++j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * ARRAYS * padded + l.s;
                float drive = d[j] * x[j];
                cut = cut || cleared[j] != 0;
                sum += d[j];
#pragma unroll
                for (int k = 0; k < PAIRS; ++k) {
                    const float* of = in + k * p.lanes;
                    step(hr[k], hi[k], cleared[j] != 0, exp2f(d[j] * a2[k]), cosine[k], sine[k], drive * of[0],
                         drive * of[padded]);
                }
            }
        }
    }
    size_t row = (size_t)chunk * p.batch + b, half = (size_t)pairs * p.d_inner;
    store_states(hr, pairs, p, l, i, live, local, row * 2 * half);
    store_states(hi, pairs, p, l, i, live, local, row * 2 * half + half);
    if (live && l.s == 0) total[row * p.d_inner + i] = cut ? -1.0f : sum;
}

// One pair of one channel. Forward (first = 0, by = 1): in `local`, what each chunk adds becomes the state it starts from, the
// first one's being h. Backward (by = -1): from the last chunk on, what each adds becomes the gradient after it, the last
// one's being h (null: 0), turned the other way. What the last one in this order adds is not read.
__device__ __forceinline__ void carry(ScanShape p, float* local, const float* total, const float* h, const float* a_log,
                                      const float* theta, int by) {
    int at = element(), pairs = p.d_state / 2, half = pairs * p.d_inner;
    if (at >= p.batch * half) return;
    int i = at % p.d_inner, m = at / p.d_inner % pairs, b = at / half;
    int chunks = (p.time + p.chunk - 1) / p.chunk;
    float a2 = -expf(a_log[(size_t)i * pairs + m]) * LOG2_E, angle = theta[(size_t)m * p.d_inner + i];
    size_t own = (size_t)b * 2 * half + (size_t)m * p.d_inner + i;
    float re = h != nullptr ? h[own] : 0.0f, im = h != nullptr ? h[own + half] : 0.0f;
    for (int n = 0; n < chunks; ++n) {
        int c = by > 0 ? n : chunks - 1 - n;
        float *here = local + (size_t)c * p.batch * 2 * half + own, now_re = re, now_im = im;
        if (n + 1 < chunks) {
            float sum = total[((size_t)c * p.batch + b) * p.d_inner + i], cosine, sine;
            int steps = min(p.time, (c + 1) * p.chunk) - c * p.chunk;
            sincosf((float)(by * steps) * angle, &sine, &cosine);
            step(re, im, sum < 0.0f, sum < 0.0f ? 0.0f : exp2f(sum * a2), cosine, sine, here[0], here[half]);
        }
        here[0] = now_re;
        here[half] = now_im;
    }
}

// ---- backward ----------------------------------------------------------------------------------------------------------

// B6  All gradients but for the sums over channels and rows, which scan_bwd_finish makes. With e_t the gradient of (hr, hi)_t:
// e_t = g_y (Cr, Ci) + exp(D_{t+1} A) Rot(-theta) e_{t+1}. With z the state before, decayed and turned: dz/dD = A z,
// dz/dA = D z, and dz/dtheta is z turned by a quarter. A warp is one of `parts` that share the channels of row b, round by
// round. g_h_in [chunks, B, d_state, d_inner]: e after each chunk; null: 0. part_bc [parts, T, B, 2 d_state];
// part_a [chunks, B, d_state + 1, d_inner]: A_log, theta, D. g_h may be null.
template <int PAIRS>
__device__ __forceinline__ void scan_bwd(ScanShape p, int parts, float* g_u, float* g_delta, float* part_bc, float* part_a,
                                         float* g_h, const float* g_h_in, const float* tape, const float* g_y,
                                         const STORE* u, const float* delta, const float* q, const float* a_log,
                                         const float* theta, const float* d_skip, const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, blocks = (parts + WARPS - 1) / WARPS;
    int b = (int)blockIdx.x / blocks, part = (int)blockIdx.x % blocks * WARPS + l.warp;
    int groups = (p.d_inner + l.channels - 1) / l.channels, rounds = (groups + parts - 1) / parts;
    int pairs = p.d_state / 2, padded = PAIRS * p.lanes;
    Span span = span_of(p, chunk);
    int last = span.first + (span.end - span.first - 1) / EVERY * EVERY;
    size_t half = (size_t)pairs * p.d_inner, chunk_row = (size_t)chunk * p.batch + b;
    size_t part_row = (size_t)part * p.time * p.batch, a_row = chunk_row * (p.d_state + 1) * p.d_inner;
    float a2[PAIRS], cosine[PAIRS], sine[PAIRS], er[PAIRS], ei[PAIRS], g_a[PAIRS], g_theta[PAIRS];
    float hr[EVERY + 1][PAIRS], hi[EVERY + 1][PAIRS], x[EVERY], d[EVERY], g[EVERY];
    for (int round = 0; round < rounds; ++round) {
        int i = (round * parts + part) * l.channels + l.c;
        bool live = part < parts && i < p.d_inner, given = live && g_h_in != nullptr;
        load_decay(a2, pairs, p, l, i, live, a_log);
        load_turn(cosine, sine, pairs, p, l, i, live, theta);
        load_states(er, pairs, p, l, i, given, g_h_in, chunk_row * 2 * half);
        load_states(ei, pairs, p, l, i, given, g_h_in, chunk_row * 2 * half + half);
        float skip = live ? d_skip[i] : 0.0f, g_skip = 0.0f;
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) g_a[k] = g_theta[k] = 0.0f;
        for (int t0 = last; t0 >= span.first; t0 -= EVERY) {
            stage<ARRAYS>(bc, cleared, p, padded, b, t0, span.end, q, reset);
            load_steps(x, p, b, i, live, t0, span.end, u);
            load_steps(d, p, b, i, live, t0, span.end, delta);
            load_steps(g, p, b, i, live, t0, span.end, g_y);
            size_t at = ((size_t)(t0 / EVERY) * p.batch + b) * 2 * half;
            load_states(hr[0], pairs, p, l, i, live, tape, at);
            load_states(hi[0], pairs, p, l, i, live, tape, at + half);
#pragma unroll
            for (int j = 0; j < EVERY; ++j) {  // [j + 1]: after step j; past the end it is not read
                const float* in = bc + j * ARRAYS * padded + l.s;
                float drive = d[j] * x[j];
#pragma unroll
                for (int k = 0; k < PAIRS; ++k) {
                    hr[j + 1][k] = hr[j][k];
                    hi[j + 1][k] = hi[j][k];
                    step(hr[j + 1][k], hi[j + 1][k], cleared[j] != 0, exp2f(d[j] * a2[k]), cosine[k], sine[k],
                         drive * in[k * p.lanes], drive * in[padded + k * p.lanes]);
                }
            }
#pragma unroll
            for (int j = EVERY - 1; j >= 0; --j) {
                if (t0 + j < span.end) {
                    bool clear = cleared[j] != 0;
                    float g_bc[ARRAYS * PAIRS], by_drive = 0.0f, by_decay = 0.0f;
#pragma unroll
                    for (int k = 0; k < PAIRS; ++k) {
                        const float* of = bc + j * ARRAYS * padded + l.s + k * p.lanes;
                        float re = fmaf(g[j], of[2 * padded], er[k]), im = fmaf(g[j], of[3 * padded], ei[k]);
                        float decay = exp2f(d[j] * a2[k]);
                        float zr = clear ? 0.0f : decay * fmaf(cosine[k], hr[j][k], -sine[k] * hi[j][k]);
                        float zi = clear ? 0.0f : decay * fmaf(sine[k], hr[j][k], cosine[k] * hi[j][k]);
                        g_bc[k] = re * d[j] * x[j];
                        g_bc[PAIRS + k] = im * d[j] * x[j];
                        g_bc[2 * PAIRS + k] = g[j] * hr[j + 1][k];
                        g_bc[3 * PAIRS + k] = g[j] * hi[j + 1][k];
                        by_drive = fmaf(re, of[0], fmaf(im, of[padded], by_drive));
                        float through = fmaf(re, zr, im * zi);
                        by_decay = fmaf(through, a2[k], by_decay);
                        g_a[k] = fmaf(through, d[j], g_a[k]);
                        g_theta[k] += fmaf(im, zr, -re * zi);
                        er[k] = clear ? 0.0f : decay * fmaf(cosine[k], re, sine[k] * im);
                        ei[k] = clear ? 0.0f : decay * fmaf(cosine[k], im, -sine[k] * re);
                    }
                    by_drive = lanes_sum(by_drive, p.lanes);
                    by_decay = lanes_sum(by_decay, p.lanes);
                    size_t row = (size_t)(t0 + j) * p.batch + b;
                    if (live && l.s == 0) {
                        g_u[row * p.d_inner + i] = fmaf(skip, g[j], d[j] * by_drive);
                        g_delta[row * p.d_inner + i] = fmaf(x[j], by_drive, by_decay * (1.0f / LOG2_E));
                        g_skip = fmaf(g[j], x[j], g_skip);
                    }
                    int mine = scatter_sum(g_bc, p.lanes);
#pragma unroll
                    for (int v = 0; v < ARRAYS * PAIRS; ++v) {
                        bool held = v * l.channels < ARRAYS * PAIRS || v == 0;
                        int k = (mine + v) % PAIRS, array = (mine + v) / PAIRS, m = k * p.lanes + l.s;
                        if (held && l.c < ARRAYS * PAIRS && part < parts && m < pairs) {
                            size_t to = (part_row + row) * 2 * p.d_state + array * pairs + m;
                            part_bc[to] = round > 0 ? part_bc[to] + g_bc[v] : g_bc[v];
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) g_a[k] *= a2[k] * (1.0f / LOG2_E);  // dA / dA_log = A
        store_states(g_a, pairs, p, l, i, live, part_a, a_row);
        store_states(g_theta, pairs, p, l, i, live, part_a, a_row + half);
        if (live && l.s == 0) part_a[a_row + 2 * half + i] = g_skip;
        if (span.first == 0) {
            store_states(er, pairs, p, l, i, live && g_h != nullptr, g_h, (size_t)b * 2 * half);
            store_states(ei, pairs, p, l, i, live && g_h != nullptr, g_h, (size_t)b * 2 * half + half);
        }
    }
}

// What a chunk adds to e before its first step from zero after its last, and the sum of its step sizes, as scan_chunk.
template <int PAIRS>
__device__ __forceinline__ void scan_bwd_chunk(ScanShape p, float* local, float* total, const float* g_y, const float* delta,
                                               const float* q, const float* a_log, const float* theta,
                                               const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    int pairs = p.d_state / 2, padded = PAIRS * p.lanes;
    bool live = i < p.d_inner, cut = false;
    Span span = span_of(p, chunk);
    float a2[PAIRS], cosine[PAIRS], sine[PAIRS], er[PAIRS], ei[PAIRS], g[EVERY], d[EVERY], sum = 0.0f;
    load_decay(a2, pairs, p, l, i, live, a_log);
    load_turn(cosine, sine, pairs, p, l, i, live, theta);
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) er[k] = ei[k] = 0.0f;
    for (int t0 = span.first + (span.end - span.first - 1) / EVERY * EVERY; t0 >= span.first; t0 -= EVERY) {
        stage<ARRAYS>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        load_steps(g, p, b, i, live, t0, span.end, g_y);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = EVERY - 1; j >= 0; --j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * ARRAYS * padded + 2 * padded + l.s;
                bool clear = cleared[j] != 0;
                cut = cut || clear;
                sum += d[j];
#pragma unroll
                for (int k = 0; k < PAIRS; ++k) {
                    float re = fmaf(g[j], in[k * p.lanes], er[k]), im = fmaf(g[j], in[padded + k * p.lanes], ei[k]);
                    float decay = exp2f(d[j] * a2[k]);
                    er[k] = clear ? 0.0f : decay * fmaf(cosine[k], re, sine[k] * im);
                    ei[k] = clear ? 0.0f : decay * fmaf(cosine[k], im, -sine[k] * re);
                }
            }
        }
    }
    size_t row = (size_t)chunk * p.batch + b, half = (size_t)pairs * p.d_inner;
    store_states(er, pairs, p, l, i, live, local, row * 2 * half);
    store_states(ei, pairs, p, l, i, live, local, row * 2 * half + half);
    if (live && l.s == 0) total[row * p.d_inner + i] = cut ? -1.0f : sum;
}

// The last sums, in order. The first T B 2 d_state threads: a number of g_q over the parts. The others: one of g_A_log,
// g_theta (may be null) or g_D over chunks and rows, added to the parameter gradient.
extern "C" __global__ void rotating_bwd_finish(SIZES, int parts, float* g_q, float* g_a_log, float* g_theta, float* g_d,
                                               const float* part_bc, const float* part_a) {
    ScanShape p = SHAPE;
    int at = element(), two = 2 * p.d_state, rows = p.time * p.batch, all = (p.d_state + 1) * p.d_inner;
    if (at < rows * two) {
        float sum = 0.0f;
        for (int k = 0; k < parts; ++k) sum += part_bc[(size_t)k * rows * two + at];
        g_q[(size_t)(at / two) * (p.dt_rank + two) + p.dt_rank + at % two] = sum;
        return;
    }
    at -= rows * two;
    if (at >= all) return;
    int chunks = (p.time + p.chunk - 1) / p.chunk, pairs = p.d_state / 2, i = at % p.d_inner, n = at / p.d_inner;
    float sum = 0.0f;
    for (int k = 0; k < chunks * p.batch; ++k) sum += part_a[(size_t)k * all + at];
    if (n < pairs) {
        g_a_log[(size_t)i * pairs + n] += sum;
    } else if (n < p.d_state) {
        if (g_theta != nullptr) g_theta[(size_t)(n - pairs) * p.d_inner + i] += sum;
    } else {
        g_d[i] += sum;
    }
}

extern "C" __global__ void rotating_carry(SIZES, float* local, const float* total, const float* h, const float* a_log,
                                          const float* theta) {
    carry(SHAPE, local, total, h, a_log, theta, 1);
}

extern "C" __global__ void rotating_bwd_carry(SIZES, float* local, const float* total, const float* g_h_out,
                                              const float* a_log, const float* theta) {
    carry(SHAPE, local, total, g_h_out, a_log, theta, -1);
}

// ---- instances: 2 pairs a lane for d_state up to 16, 4 for more ------------------------------------------------------------
// Two blocks of a multiprocessor are asked for, not more: ptxas would spill to make room for a third.

#define SCAN(N)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        rotating_fwd_##N(SIZES, float* y, float* h_out, float* tape, const float* h_in, const float* u,                 \
                         const float* delta, const float* q, const float* a_log, const float* theta,                    \
                         const float* d_skip, const unsigned char* reset) {                                             \
        scan_fwd<N>(SHAPE, y, h_out, tape, h_in, u, delta, q, a_log, theta, d_skip, reset);                             \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        rotating_chunk_##N(SIZES, float* local, float* total, const float* u, const float* delta, const float* q,       \
                           const float* a_log, const float* theta, const unsigned char* reset) {                        \
        scan_chunk<N>(SHAPE, local, total, u, delta, q, a_log, theta, reset);                                           \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        rotating_bwd_##N(SIZES, int parts, float* g_u, float* g_delta, float* part_bc, float* part_a, float* g_h,       \
                         const float* g_h_in, const float* tape, const float* g_y, const STORE* u, const float* delta,  \
                         const float* q, const float* a_log, const float* theta, const float* d_skip,                   \
                         const unsigned char* reset) {                                                                  \
        scan_bwd<N>(SHAPE, parts, g_u, g_delta, part_bc, part_a, g_h, g_h_in, tape, g_y, u, delta, q, a_log, theta,     \
                    d_skip, reset);                                                                                     \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        rotating_bwd_chunk_##N(SIZES, float* local, float* total, const float* g_y, const float* delta, const float* q, \
                               const float* a_log, const float* theta, const unsigned char* reset) {                    \
        scan_bwd_chunk<N>(SHAPE, local, total, g_y, delta, q, a_log, theta, reset);                                     \
    }
SCAN(2)
SCAN(4)
