// What a matrix product leaves of a linear map: the bias, and its gradient by two-stage sums in a fixed order.

// y += b in every row; y [rows, width].
extern "C" __global__ void add_bias(STORE* y, const float* b, int rows, int width) {
    int i = element();
    if (i < rows * width) y[i] = from_f32<STORE>(to_f32(y[i]) + b[i % width]);
}

// partial[piece, c] = sum of x[r, c] over the rows r of the piece; x [rows, width]. Block (32, 8): 32 columns, 8 rows at a time.
extern "C" __global__ void column_pieces(float* partial, const STORE* x, int rows, int width, int rows_per_piece) {
    __shared__ float sums[8][33];
    int c = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * rows_per_piece;
    int last = min(rows, first + rows_per_piece);
    float sum = 0.0f;
    if (c < width) {
        for (int r = first + (int)threadIdx.y; r < last; r += 8) sum += to_f32(x[(size_t)r * width + c]);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < width) {
        float all = 0.0f;
        for (int i = 0; i < 8; ++i) all += sums[i][threadIdx.x];
        partial[(size_t)blockIdx.y * width + c] = all;
    }
}

// g[c] += sum of partial[p, c] over the pieces p.
extern "C" __global__ void add_pieces(float* g, const float* partial, int pieces, int width) {
    int c = element();
    if (c >= width) return;
    float sum = 0.0f;
    for (int p = 0; p < pieces; ++p) sum += partial[(size_t)p * width + c];
    g[c] += sum;
}
