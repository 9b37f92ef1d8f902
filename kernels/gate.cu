// The gate of a block: out = y silu(z), z the second half of the rows of xz [rows, 2 width].
// Backward: g_y = g silu(z), g_z = g y silu'(z), and out once more, for the next gradient. What the backward reads of the
// forward, and out for a product, may be small; the forward and all gradients are full.

extern "C" __global__ void gate(float* out, const float* y, const float* xz, int width, int n) {
    int i = element();
    if (i >= n) return;
    float z = xz[(size_t)i + (size_t)(i / width + 1) * width];
    out[i] = y[i] * (z * sigmoid(z));
}

extern "C" __global__ void gate_bwd(float* g_y, float* g_xz, STORE* out, const STORE* y, const STORE* xz,
                                    const float* g_out, int width, int n) {
    int i = element();
    if (i >= n) return;
    size_t z_at = (size_t)i + (size_t)(i / width + 1) * width;
    float z = to_f32(xz[z_at]), v = to_f32(y[i]), g = g_out[i];
    float silu = z * sigmoid(z);
    g_y[i] = g * silu;
    g_xz[z_at] = g * v * silu_slope(z);
    out[i] = from_f32<STORE>(v * silu);
}
