// The gate of a block: out = y silu(z), z the second half of the rows of xz [rows, 2 width].
// Backward: g_y = g silu(z), g_z = g y silu'(z), and out once more, for the next gradient.

extern "C" __global__ void gate(STORE* out, const STORE* y, const STORE* xz, int width, int n) {
    int i = element();
    if (i >= n) return;
    float z = to_f32(xz[(size_t)i + (size_t)(i / width + 1) * width]);
    out[i] = from_f32<STORE>(to_f32(y[i]) * (z * sigmoid(z)));
}

extern "C" __global__ void gate_bwd(STORE* g_y, STORE* g_xz, STORE* out, const STORE* y, const STORE* xz,
                                    const STORE* g_out, int width, int n) {
    int i = element();
    if (i >= n) return;
    size_t z_at = (size_t)i + (size_t)(i / width + 1) * width;
    float z = to_f32(xz[z_at]), v = to_f32(y[i]), g = to_f32(g_out[i]);
    float silu = z * sigmoid(z);
    g_y[i] = from_f32<STORE>(g * silu);
    g_xz[z_at] = from_f32<STORE>(g * v * silu_slope(z));
    out[i] = from_f32<STORE>(v * silu);
}
