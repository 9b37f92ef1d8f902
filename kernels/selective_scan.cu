// Selective scan. h_t = exp(D_t A) h_{t-1} + D_t B_t u_t ; y_t = C_t h_t + D u_t, A = -exp(A_log), D_t the step size.
// u, y [T, B, d_inner]; q [T, B, dt_rank + 2 d_state] holds B and C; h [B, d_state, d_inner].
// Lanes and chunks: see common.cuh. scan_chunk finds what each chunk adds to h and how it decays what came before, scan_carry
// joins them in order, and scan_fwd runs each chunk from its own first state. The backward likewise.

// ---- forward -----------------------------------------------------------------------------------------------------------

// F6  y, states on the tape (null: none), and h after the last step. h_in [chunks, B, d_state, d_inner].
template <int STATES>
__device__ __forceinline__ void scan_fwd(ScanShape p, float* y, float* h_out, float* tape, const float* h_in, const float* u,
                                         const float* delta, const float* q, const float* a_log, const float* d_skip,
                                         const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    bool live = i < p.d_inner;
    Span span = span_of(p, chunk);
    size_t states = (size_t)p.d_state * p.d_inner;
    int padded = STATES * p.lanes;
    float a2[STATES], h[STATES], x[EVERY], d[EVERY];
    load_decay(a2, p.d_state, p, l, i, live, a_log);
    load_states(h, p.d_state, p, l, i, live, h_in, ((size_t)chunk * p.batch + b) * states);
    float skip = live ? d_skip[i] : 0.0f;
    for (int t0 = span.first; t0 < span.end; t0 += EVERY) {
        stage<2>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        if (tape != nullptr) store_states(h, p.d_state, p, l, i, live, tape, ((size_t)(t0 / EVERY) * p.batch + b) * states);
        load_steps(x, p, b, i, live, t0, span.end, u);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = 0; j < EVERY; ++j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * 2 * padded + l.s;
                float drive = d[j] * x[j], sum = 0.0f;
                bool clear = cleared[j] != 0;
#pragma unroll
                for (int k = 0; k < STATES; ++k) {
                    float before = clear ? 0.0f : h[k];  // a branch: clears NaN and inf too
                    h[k] = fmaf(exp2f(d[j] * a2[k]), before, drive * in[k * p.lanes]);
                    sum = fmaf(in[padded + k * p.lanes], h[k], sum);
                }
                sum = lanes_sum(sum, p.lanes);
                if (live && l.s == 0) {
                    y[((size_t)(t0 + j) * p.batch + b) * p.d_inner + i] = fmaf(skip, x[j], sum);
                }
            }
        }
    }
    if (span.end == p.time) store_states(h, p.d_state, p, l, i, live, h_out, (size_t)b * states);
}

// What a chunk adds to h from zero, local [chunks, B, d_state, d_inner], and the sum of its step sizes,
// total [chunks, B, d_inner]; -1 where a reset cuts off what came before.
template <int STATES>
__device__ __forceinline__ void scan_chunk(ScanShape p, float* local, float* total, const float* u, const float* delta,
                                           const float* q, const float* a_log, const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    bool live = i < p.d_inner;
    Span span = span_of(p, chunk);
    int padded = STATES * p.lanes;
    float a2[STATES], h[STATES], x[EVERY], d[EVERY], sum = 0.0f;
    bool cut = false;
    load_decay(a2, p.d_state, p, l, i, live, a_log);
#pragma unroll
    for (int k = 0; k < STATES; ++k) h[k] = 0.0f;
    for (int t0 = span.first; t0 < span.end; t0 += EVERY) {
        stage<2>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        load_steps(x, p, b, i, live, t0, span.end, u);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = 0; j < EVERY; ++j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * 2 * padded + l.s;
                float drive = d[j] * x[j];
                bool clear = cleared[j] != 0;
                cut = cut || clear;
                sum += d[j];
#pragma unroll
                for (int k = 0; k < STATES; ++k) {
                    float before = clear ? 0.0f : h[k];
                    h[k] = fmaf(exp2f(d[j] * a2[k]), before, drive * in[k * p.lanes]);
                }
            }
        }
    }
    size_t row = (size_t)chunk * p.batch + b;
    store_states(h, p.d_state, p, l, i, live, local, row * p.d_state * p.d_inner);
    if (live && l.s == 0) total[row * p.d_inner + i] = cut ? -1.0f : sum;
}

// One state of one channel: in `local`, what each chunk adds becomes the state it starts from. The first chunk starts
// from h; what the last one adds is not read.
extern "C" __global__ void scan_carry(SIZES, float* local, const float* total, const float* h, const float* a_log) {
    ScanShape p = SHAPE;
    int at = element(), states = p.d_state * p.d_inner;
    if (at >= p.batch * states) return;
    int i = at % p.d_inner, n = at / p.d_inner % p.d_state, b = at / states;
    float a2 = -expf(a_log[(size_t)i * p.d_state + n]) * LOG2_E, now = h[at];
    int chunks = (p.time + p.chunk - 1) / p.chunk;
    for (int c = 0; c < chunks; ++c) {
        size_t here = (size_t)c * p.batch * states + at;
        float start = now;
        if (c + 1 < chunks) {
            float sum = total[((size_t)c * p.batch + b) * p.d_inner + i], added = local[here];
            now = sum < 0.0f ? added : fmaf(exp2f(sum * a2), now, added);
        }
        local[here] = start;
    }
}

// ---- backward ----------------------------------------------------------------------------------------------------------

// B6  All gradients but for the sums over channels and rows, which scan_bwd_finish makes. With e_t the gradient of h_t:
// e_t = g_y C + exp(D_{t+1} A) e_{t+1}. A warp is one of `parts` that share the channels of row b, round by round.
// g_h_in [chunks, B, d_state, d_inner]: e after each chunk; null: 0. part_bc [parts, T, B, 2 d_state];
// part_a [chunks, B, d_state + 1, d_inner], D in the last row. g_h may be null.
template <int STATES>
__device__ __forceinline__ void scan_bwd(ScanShape p, int parts, float* g_u, float* g_delta, float* part_bc, float* part_a,
                                         float* g_h, const float* g_h_in, const float* tape, const float* g_y,
                                         const STORE* u, const float* delta, const float* q, const float* a_log,
                                         const float* d_skip, const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, blocks = (parts + WARPS - 1) / WARPS;
    int b = (int)blockIdx.x / blocks, part = (int)blockIdx.x % blocks * WARPS + l.warp;
    int groups = (p.d_inner + l.channels - 1) / l.channels, rounds = (groups + parts - 1) / parts;
    Span span = span_of(p, chunk);
    int last = span.first + (span.end - span.first - 1) / EVERY * EVERY;
    size_t states = (size_t)p.d_state * p.d_inner, chunk_row = (size_t)chunk * p.batch + b;
    size_t part_row = (size_t)part * p.time * p.batch;
    int padded = STATES * p.lanes;
    float a2[STATES], e[STATES], g_a[STATES], h[EVERY + 1][STATES], x[EVERY], d[EVERY], g[EVERY];
    for (int round = 0; round < rounds; ++round) {
        int i = (round * parts + part) * l.channels + l.c;
        bool live = part < parts && i < p.d_inner;
        load_decay(a2, p.d_state, p, l, i, live, a_log);
        load_states(e, p.d_state, p, l, i, live && g_h_in != nullptr, g_h_in, chunk_row * states);
        float skip = live ? d_skip[i] : 0.0f, g_skip = 0.0f;
#pragma unroll
        for (int k = 0; k < STATES; ++k) g_a[k] = 0.0f;
        for (int t0 = last; t0 >= span.first; t0 -= EVERY) {
            stage<2>(bc, cleared, p, padded, b, t0, span.end, q, reset);
            load_steps(x, p, b, i, live, t0, span.end, u);
            load_steps(d, p, b, i, live, t0, span.end, delta);
            load_steps(g, p, b, i, live, t0, span.end, g_y);
            load_states(h[0], p.d_state, p, l, i, live, tape, ((size_t)(t0 / EVERY) * p.batch + b) * states);
#pragma unroll
            for (int j = 0; j < EVERY; ++j) {  // h[j + 1]: after step j; past the end it is not read
                float drive = d[j] * x[j];
#pragma unroll
                for (int k = 0; k < STATES; ++k) {
                    float before = cleared[j] != 0 ? 0.0f : h[j][k];
                    h[j + 1][k] = fmaf(exp2f(d[j] * a2[k]), before, drive * bc[j * 2 * padded + k * p.lanes + l.s]);
                }
            }
#pragma unroll
            for (int j = EVERY - 1; j >= 0; --j) {
                if (t0 + j < span.end) {
                    const float* in = bc + j * 2 * padded + l.s;
                    bool clear = cleared[j] != 0;
                    float g_bc[2 * STATES], by_drive = 0.0f, by_decay = 0.0f;
#pragma unroll
                    for (int k = 0; k < STATES; ++k) {
                        float b_n = in[k * p.lanes], c_n = in[padded + k * p.lanes];
                        float now = fmaf(g[j], c_n, e[k]), a_bar = exp2f(d[j] * a2[k]);
                        float decayed = clear ? 0.0f : now * a_bar;
                        float through = clear ? 0.0f : decayed * h[j][k];  // the gradient of the exponent D A
                        g_bc[k] = now * d[j] * x[j];
                        g_bc[STATES + k] = g[j] * h[j + 1][k];
                        by_drive = fmaf(now, b_n, by_drive);
                        by_decay = fmaf(through, a2[k], by_decay);
                        g_a[k] = fmaf(through, d[j], g_a[k]);
                        e[k] = decayed;
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
                    for (int v = 0; v < 2 * STATES; ++v) {
                        bool held = v * l.channels < 2 * STATES || v == 0;
                        int k = (mine + v) % STATES, second = (mine + v) / STATES, n = k * p.lanes + l.s;
                        if (held && l.c < 2 * STATES && part < parts && n < p.d_state) {
                            size_t at = (part_row + row) * 2 * p.d_state + second * p.d_state + n;
                            part_bc[at] = round > 0 ? part_bc[at] + g_bc[v] : g_bc[v];
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int k = 0; k < STATES; ++k) g_a[k] *= a2[k] * (1.0f / LOG2_E);  // dA / dA_log = A
        size_t a_row = chunk_row * (p.d_state + 1) * p.d_inner;
        store_states(g_a, p.d_state, p, l, i, live, part_a, a_row);
        if (live && l.s == 0) part_a[a_row + states + i] = g_skip;
        if (span.first == 0) store_states(e, p.d_state, p, l, i, live && g_h != nullptr, g_h, (size_t)b * states);
    }
}

// What a chunk adds to e before its first step from zero after its last, and the sum of its step sizes, as scan_chunk.
template <int STATES>
__device__ __forceinline__ void scan_bwd_chunk(ScanShape p, float* local, float* total, const float* g_y, const float* delta,
                                               const float* q, const float* a_log, const unsigned char* reset) {
    extern __shared__ float bc[];
    __shared__ int cleared[EVERY];
    Lane l = lane_of(p.lanes);
    int chunk = (int)blockIdx.y, tiles = (p.d_inner + WARPS * l.channels - 1) / (WARPS * l.channels);
    int b = (int)blockIdx.x / tiles, i = ((int)blockIdx.x % tiles * WARPS + l.warp) * l.channels + l.c;
    bool live = i < p.d_inner, cut = false;
    Span span = span_of(p, chunk);
    int padded = STATES * p.lanes;
    float a2[STATES], e[STATES], g[EVERY], d[EVERY], sum = 0.0f;
    load_decay(a2, p.d_state, p, l, i, live, a_log);
#pragma unroll
    for (int k = 0; k < STATES; ++k) e[k] = 0.0f;
    for (int t0 = span.first + (span.end - span.first - 1) / EVERY * EVERY; t0 >= span.first; t0 -= EVERY) {
        stage<2>(bc, cleared, p, padded, b, t0, span.end, q, reset);
        load_steps(g, p, b, i, live, t0, span.end, g_y);
        load_steps(d, p, b, i, live, t0, span.end, delta);
#pragma unroll
        for (int j = EVERY - 1; j >= 0; --j) {
            if (t0 + j < span.end) {
                const float* in = bc + j * 2 * padded + padded + l.s;
                bool clear = cleared[j] != 0;
                cut = cut || clear;
                sum += d[j];
#pragma unroll
                for (int k = 0; k < STATES; ++k) {
                    e[k] = clear ? 0.0f : fmaf(g[j], in[k * p.lanes], e[k]) * exp2f(d[j] * a2[k]);
                }
            }
        }
    }
    size_t row = (size_t)chunk * p.batch + b;
    store_states(e, p.d_state, p, l, i, live, local, row * p.d_state * p.d_inner);
    if (live && l.s == 0) total[row * p.d_inner + i] = cut ? -1.0f : sum;
}

// As scan_carry, from the last chunk to the first: in `local`, what each chunk adds becomes e after it. g_h_out: e after
// the last step; null: 0. What the first chunk adds is not read.
extern "C" __global__ void scan_bwd_carry(SIZES, float* local, const float* total, const float* g_h_out,
                                          const float* a_log) {
    ScanShape p = SHAPE;
    int at = element(), states = p.d_state * p.d_inner;
    if (at >= p.batch * states) return;
    int i = at % p.d_inner, n = at / p.d_inner % p.d_state, b = at / states;
    float a2 = -expf(a_log[(size_t)i * p.d_state + n]) * LOG2_E, now = g_h_out != nullptr ? g_h_out[at] : 0.0f;
    for (int c = (p.time + p.chunk - 1) / p.chunk - 1; c >= 0; --c) {
        size_t here = (size_t)c * p.batch * states + at;
        float after = now;
        if (c > 0) {
            float sum = total[((size_t)c * p.batch + b) * p.d_inner + i], added = local[here];
            now = sum < 0.0f ? added : fmaf(exp2f(sum * a2), now, added);
        }
        local[here] = after;
    }
}

// The last sums, in order. The first T B 2 d_state threads: a number of g_q over the parts. The others: one of g_A_log
// or g_D over chunks and rows, added to the parameter gradient.
extern "C" __global__ void scan_bwd_finish(SIZES, int parts, float* g_q, float* g_a_log, float* g_d,
                                           const float* part_bc, const float* part_a) {
    ScanShape p = SHAPE;
    int at = element(), two = 2 * p.d_state, rows = p.time * p.batch, states = p.d_state * p.d_inner;
    if (at < rows * two) {
        float sum = 0.0f;
        for (int k = 0; k < parts; ++k) sum += part_bc[(size_t)k * rows * two + at];
        g_q[(size_t)(at / two) * (p.dt_rank + two) + p.dt_rank + at % two] = sum;
        return;
    }
    at -= rows * two;
    if (at >= states + p.d_inner) return;
    int chunks = (p.time + p.chunk - 1) / p.chunk, i = at % p.d_inner, n = at / p.d_inner;
    float sum = 0.0f;
    for (int k = 0; k < chunks * p.batch; ++k) sum += part_a[(size_t)k * (states + p.d_inner) + at];
    if (n < p.d_state) {
        g_a_log[(size_t)i * p.d_state + n] += sum;
    } else {
        g_d[i] += sum;
    }
}

// ---- instances: 4 states a lane for d_state up to 16, 8 for more ----------------------------------------------------------
// Two blocks of a multiprocessor are asked for, not more: ptxas would spill to make room for a third.

#define SCAN(N)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        scan_fwd_##N(SIZES, float* y, float* h_out, float* tape, const float* h_in, const float* u,               \
                     const float* delta, const float* q, const float* a_log, const float* d_skip,                       \
                     const unsigned char* reset) {                                                                      \
        scan_fwd<N>(SHAPE, y, h_out, tape, h_in, u, delta, q, a_log, d_skip, reset);                                        \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        scan_chunk_##N(SIZES, float* local, float* total, const float* u, const float* delta, const float* q,     \
                       const float* a_log, const unsigned char* reset) {                                                \
        scan_chunk<N>(SHAPE, local, total, u, delta, q, a_log, reset);                                                      \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        scan_bwd_##N(SIZES, int parts, float* g_u, float* g_delta, float* part_bc, float* part_a, float* g_h,     \
                     const float* g_h_in, const float* tape, const float* g_y, const STORE* u, const float* delta,      \
                     const float* q, const float* a_log, const float* d_skip, const unsigned char* reset) {             \
        scan_bwd<N>(SHAPE, parts, g_u, g_delta, part_bc, part_a, g_h, g_h_in, tape, g_y, u, delta, q, a_log, d_skip,        \
                    reset);                                                                                             \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                         \
        scan_bwd_chunk_##N(SIZES, float* local, float* total, const float* g_y, const float* delta,               \
                           const float* q, const float* a_log, const unsigned char* reset) {                            \
        scan_bwd_chunk<N>(SHAPE, local, total, g_y, delta, q, a_log, reset);                                                \
    }
SCAN(4)
SCAN(8)
