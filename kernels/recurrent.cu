// LSTM and GRU cells over a sequence, with the input's share of the gates (gx) already computed.
// LSTM: i, f, o = sigmoid, g = tanh of gx + W_hh h + b_hh; c = f c + i g; h = o tanh c          (rows i, f, g, o)
// GRU: r, z = sigmoid(gx + W_hh h + b_hh); n = tanh(gx_n + r (W_hn h + b_hn)); h = (1 - z) n + z h   (rows r, z, n)
// A block is one row of the batch and walks all steps: rows do not depend on each other, so one launch is the sequence.
// Tape [fields, T, B, H]. LSTM: h, c before the step, i, f, g, o, tanh c. GRU: h before the step, r, z, n, W_hn h + b_hn.

// Writes h after every step to y, and moves h (LSTM: and c). A warp is one unit: its lanes share the sums over W_hh's row.
// Shared: h of this step and of the next, [2, H].
template <bool LSTM>
__device__ __forceinline__ void cell_fwd(STORE* y, float* h, float* c, float* tape, const float* gx, const float* w,
                                         const float* bias, const unsigned char* reset, int time, int batch,
                                         int hidden) {
    constexpr int GATES = LSTM ? 4 : 3;
    extern __shared__ float shared[];
    int b = (int)blockIdx.x, lane = (int)(threadIdx.x & 31), warps = (int)(blockDim.x / 32);
    float *now = shared, *next = shared + hidden;
    h += (size_t)b * hidden;
    if (LSTM) c += (size_t)b * hidden;
    for (int j = (int)threadIdx.x; j < hidden; j += (int)blockDim.x) now[j] = h[j];
    size_t field = (size_t)time * batch * hidden;
    for (int t = 0; t < time; ++t) {
        __syncthreads();
        size_t row = (size_t)t * batch + b;
        bool clear = reset != nullptr && reset[row] != 0;  // a branch: clears NaN and inf too
        for (int j = (int)(threadIdx.x / 32); j < hidden; j += warps) {
            float s[GATES], x[GATES];
#pragma unroll
            for (int g = 0; g < GATES; ++g) s[g] = 0.0f;
            for (int k = lane; k < hidden && !clear; k += 32) {
#pragma unroll
                for (int g = 0; g < GATES; ++g) s[g] = fmaf(w[((size_t)g * hidden + j) * hidden + k], now[k], s[g]);
            }
#pragma unroll
            for (int g = 0; g < GATES; ++g) {
                s[g] = warp_sum(s[g]) + bias[g * hidden + j];
                x[g] = gx[(row * GATES + g) * hidden + j];
            }
            if (lane != 0) continue;
            size_t at = row * hidden + j;
            float before = clear ? 0.0f : now[j], after;
            if (tape != nullptr) tape[at] = before;
            if (LSTM) {
                float c_before = clear ? 0.0f : c[j];
                float in = sigmoid(x[0] + s[0]), forget = sigmoid(x[1] + s[1]), out = sigmoid(x[3] + s[3]);
                float gate = tanhf(x[2] + s[2]), cell = fmaf(forget, c_before, in * gate), tanh_c = tanhf(cell);
                c[j] = cell;
                after = out * tanh_c;
                if (tape != nullptr) {
                    const float fields[6] = {c_before, in, forget, gate, out, tanh_c};
                    for (int f = 0; f < 6; ++f) tape[(f + 1) * field + at] = fields[f];
                }
            } else {
                float r = sigmoid(x[0] + s[0]), z = sigmoid(x[1] + s[1]), n = tanhf(fmaf(r, s[2], x[2]));
                after = fmaf(z, before, (1.0f - z) * n);
                if (tape != nullptr) {
                    const float fields[4] = {r, z, n, s[2]};
                    for (int f = 0; f < 4; ++f) tape[(f + 1) * field + at] = fields[f];
                }
            }
            next[j] = after;
            y[at] = from_f32<STORE>(after);
        }
        float* done = now;
        now = next;
        next = done;
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < hidden; j += (int)blockDim.x) h[j] = now[j];
}

// Gradients of gx, of W_hh h + b_hh (g_gh, [T, B, G H]) and of the first state. g_h, g_c [B, H]: in, those of the state
// after the last step; out, before the first. A thread keeps to its units, so that only g_gh passes between threads.
template <bool LSTM>
__device__ __forceinline__ void cell_bwd(float* g_gx, float* g_gh, float* g_h, float* g_c, const float* tape,
                                         const float* g_y, const float* w, const unsigned char* reset, int time,
                                         int batch, int hidden) {
    constexpr int GATES = LSTM ? 4 : 3;
    int b = (int)blockIdx.x;
    size_t field = (size_t)time * batch * hidden;
    g_h += (size_t)b * hidden;
    g_c += (size_t)b * hidden;
    for (int t = time - 1; t >= 0; --t) {
        size_t row = (size_t)t * batch + b;
        float *x = g_gx + row * GATES * hidden, *r_h = g_gh + row * GATES * hidden;
        for (int j = (int)threadIdx.x; j < hidden; j += (int)blockDim.x) {
            size_t at = row * hidden + j;
            const float* f = tape + at;
            float g = g_h[j] + g_y[at];
            if (LSTM) {
                float c = f[field], in = f[2 * field], forget = f[3 * field], gate = f[4 * field];
                float out = f[5 * field], tanh_c = f[6 * field];
                float g_cell = fmaf(g * out, 1.0f - tanh_c * tanh_c, g_c[j]);
                const float grads[4] = {g_cell * gate * in * (1.0f - in), g_cell * c * forget * (1.0f - forget),
                                        g_cell * in * (1.0f - gate * gate), g * tanh_c * out * (1.0f - out)};
                for (int k = 0; k < GATES; ++k) x[k * hidden + j] = r_h[k * hidden + j] = grads[k];
                g_c[j] = g_cell * forget;
                g_h[j] = 0.0f;
            } else {
                float h = f[0], r = f[field], z = f[2 * field], n = f[3 * field], h_n = f[4 * field];
                float g_n = g * (1.0f - z) * (1.0f - n * n);
                float g_r = g_n * h_n * r * (1.0f - r), g_z = g * (h - n) * z * (1.0f - z);
                x[j] = r_h[j] = g_r;
                x[hidden + j] = r_h[hidden + j] = g_z;
                x[2 * hidden + j] = g_n;
                r_h[2 * hidden + j] = g_n * r;
                g_h[j] = g * z;
            }
        }
        __syncthreads();
        bool clear = reset != nullptr && reset[row] != 0;
        for (int j = (int)threadIdx.x; j < hidden; j += (int)blockDim.x) {
            float sum = g_h[j];
            for (int k = 0; k < GATES * hidden && !clear; ++k) sum = fmaf(r_h[k], w[(size_t)k * hidden + j], sum);
            g_h[j] = clear ? 0.0f : sum;
            if (LSTM && clear) g_c[j] = 0.0f;
        }
    }
}

extern "C" __global__ void __launch_bounds__(512)
    lstm_fwd(STORE* y, float* h, float* c, float* tape, const float* gx, const float* w, const float* bias,
             const unsigned char* reset, int time, int batch, int hidden) {
    cell_fwd<true>(y, h, c, tape, gx, w, bias, reset, time, batch, hidden);
}

// c is null.
extern "C" __global__ void __launch_bounds__(512)
    gru_fwd(STORE* y, float* h, float* c, float* tape, const float* gx, const float* w, const float* bias,
            const unsigned char* reset, int time, int batch, int hidden) {
    cell_fwd<false>(y, h, c, tape, gx, w, bias, reset, time, batch, hidden);
}

extern "C" __global__ void __launch_bounds__(512)
    lstm_bwd(float* g_gx, float* g_gh, float* g_h, float* g_c, const float* tape, const float* g_y, const float* w,
             const unsigned char* reset, int time, int batch, int hidden) {
    cell_bwd<true>(g_gx, g_gh, g_h, g_c, tape, g_y, w, reset, time, batch, hidden);
}

extern "C" __global__ void __launch_bounds__(512)
    gru_bwd(float* g_gx, float* g_gh, float* g_h, float* g_c, const float* tape, const float* g_y, const float* w,
            const unsigned char* reset, int time, int batch, int hidden) {
    cell_bwd<false>(g_gx, g_gh, g_h, g_c, tape, g_y, w, reset, time, batch, hidden);
}
