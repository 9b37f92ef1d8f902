// Passes over flat buffers and sums over columns, each in a fixed order.

extern "C" __global__ void add_assign(float* y, const float* x, int n) {
    int i = element();
    if (i < n) y[i] += x[i];
}

// y += tau (x - y)
extern "C" __global__ void blend(float* y, const float* x, float tau, int n) {
    int i = element();
    if (i < n) y[i] = fmaf(tau, x[i] - y[i], y[i]);
}

// sum[c] += the sum over rows of x[r, c]; x [rows, width]. Blocks of COLUMNS x COLUMN_LANES threads.
extern "C" __global__ void __launch_bounds__(COLUMNS* COLUMN_LANES)
    add_columns(float* sum, const STORE* x, int rows, int width) {
    __shared__ float part[COLUMN_LANES][COLUMNS];
    int column = (int)(blockIdx.x * COLUMNS + threadIdx.x);
    float v = 0.0f;
    if (column < width) {
        for (int row = (int)threadIdx.y; row < rows; row += COLUMN_LANES) v += to_f32(x[(size_t)row * width + column]);
    }
    v = column_total(part, v);
    if (threadIdx.y == 0 && column < width) sum[column] += v;
}

// First stage: part[block] = the sum of squares of every element that the block sees.
extern "C" __global__ void __launch_bounds__(256) sum_squares(double* part, const float* x, int n) {
    double v = 0.0;
    for (size_t i = blockIdx.x * 256 + threadIdx.x; i < (size_t)n; i += gridDim.x * 256) {
        v = fma((double)x[i], (double)x[i], v);
    }
    v = block_total(v);
    if (threadIdx.x == 0) part[blockIdx.x] = v;
}

// Second stage, one block: total[0] = the sum of the parts.
extern "C" __global__ void __launch_bounds__(256) sum_parts(double* total, const double* part, int parts) {
    double v = 0.0;
    for (int i = (int)threadIdx.x; i < parts; i += 256) v += part[i];
    v = block_total(v);
    if (threadIdx.x == 0) total[0] = v;
}
