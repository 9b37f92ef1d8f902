// RMSNorm: y = w x k, k = 1 / sqrt(mean x^2 + eps). LayerNorm: y = w (x - mean) k + b, k = 1 / sqrt(var + eps).
// With x^ the normalised row: g_x = k (w g - [mean(w g)] - x^ mean(w g x^)), the bracket for LayerNorm alone;
// g_w = sum over rows of g x^, g_b = sum over rows of g. A warp is a row; the columns are then summed from the rows'
// statistics.

#define ROWS_PER_BLOCK 8

__device__ __forceinline__ int warp_row() { return (int)(blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / 32); }

// Mean (0 for RMSNorm) and k of a row.
struct Statistics { float mean, k; };

template <bool LAYER> __device__ __forceinline__ Statistics statistics(const float* x, int width, float eps) {
    int lane = (int)(threadIdx.x & 31);
    float mean = 0.0f;
    if (LAYER) {
        float sum = 0.0f;
        for (int i = lane; i < width; i += 32) sum += x[i];
        mean = warp_sum(sum) / (float)width;
    }
    float squares = 0.0f;
    for (int i = lane; i < width; i += 32) squares = fmaf(x[i] - mean, x[i] - mean, squares);
    return Statistics{mean, 1.0f / sqrtf(warp_sum(squares) / (float)width + eps)};
}

// b is null for RMSNorm.
template <bool LAYER>
__device__ __forceinline__ void norm(STORE* y, const float* x, const float* w, const float* b, int width, float eps,
                                     int rows) {
    int row = warp_row();
    if (row >= rows) return;  // the whole warp
    x += (size_t)row * width;
    y += (size_t)row * width;
    Statistics s = statistics<LAYER>(x, width, eps);
    for (int i = (int)(threadIdx.x & 31); i < width; i += 32) {
        float v = w[i] * ((x[i] - s.mean) * s.k);
        y[i] = from_f32<STORE>(LAYER ? v + b[i] : v);
    }
}

// Writes g_x, or adds to it, and keeps the statistics of the rows, kept [2, rows].
template <bool LAYER>
__device__ __forceinline__ void norm_bwd(float* g_x, float* kept, const float* x, const float* w, const float* g,
                                         int width, float eps, int add, int rows) {
    int row = warp_row();
    if (row >= rows) return;
    x += (size_t)row * width;
    g += (size_t)row * width;
    g_x += (size_t)row * width;
    Statistics s = statistics<LAYER>(x, width, eps);
    int lane = (int)(threadIdx.x & 31);
    float first = 0.0f, second = 0.0f;  // mean(w g), mean(w g x^)
    for (int i = lane; i < width; i += 32) {
        float v = w[i] * g[i];
        first += v;
        second = fmaf(v, (x[i] - s.mean) * s.k, second);
    }
    first = LAYER ? warp_sum(first) / (float)width : 0.0f;
    second = warp_sum(second) / (float)width;
    for (int i = lane; i < width; i += 32) {
        float hat = (x[i] - s.mean) * s.k;
        float v = (w[i] * g[i] - first - hat * second) * s.k;
        g_x[i] = add ? g_x[i] + v : v;
    }
    if (lane == 0) {
        kept[row] = s.mean;
        kept[rows + row] = s.k;
    }
}

extern "C" __global__ void __launch_bounds__(32 * ROWS_PER_BLOCK)
    rms_norm(STORE* y, const float* x, const float* w, int width, float eps, int rows) {
    norm<false>(y, x, w, nullptr, width, eps, rows);
}

extern "C" __global__ void __launch_bounds__(32 * ROWS_PER_BLOCK)
    layer_norm(STORE* y, const float* x, const float* w, const float* b, int width, float eps, int rows) {
    norm<true>(y, x, w, b, width, eps, rows);
}

extern "C" __global__ void __launch_bounds__(32 * ROWS_PER_BLOCK)
    rms_norm_bwd(float* g_x, float* kept, const float* x, const float* w, const float* g, int width, float eps, int add,
                 int rows) {
    norm_bwd<false>(g_x, kept, x, w, g, width, eps, add, rows);
}

extern "C" __global__ void __launch_bounds__(32 * ROWS_PER_BLOCK)
    layer_norm_bwd(float* g_x, float* kept, const float* x, const float* w, const float* g, int width, float eps,
                   int rows) {
    norm_bwd<true>(g_x, kept, x, w, g, width, eps, 0, rows);
}

// g_w, g_b += their sums over rows; g_b is null for RMSNorm. Blocks of COLUMNS x COLUMN_LANES threads.
extern "C" __global__ void __launch_bounds__(COLUMNS* COLUMN_LANES)
    norm_bwd_params(float* g_w, float* g_b, const float* x, const float* g, const float* kept, int rows, int width) {
    __shared__ float part[COLUMN_LANES][COLUMNS];
    int column = (int)(blockIdx.x * COLUMNS + threadIdx.x);
    float scale = 0.0f, offset = 0.0f;
    if (column < width) {
        for (int row = (int)threadIdx.y; row < rows; row += COLUMN_LANES) {
            size_t at = (size_t)row * width + column;
            scale = fmaf(g[at], (x[at] - kept[row]) * kept[rows + row], scale);
            offset += g[at];
        }
    }
    scale = column_total(part, scale);
    if (threadIdx.y == 0 && column < width) g_w[column] += scale;
    if (g_b != nullptr) {
        offset = column_total(part, offset);
        if (threadIdx.y == 0 && column < width) g_b[column] += offset;
    }
}
