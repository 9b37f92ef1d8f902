// Pointwise functions of the heads: ReLU and its gradient, and the product with a 0/1 row mask.

extern "C" __global__ void relu(STORE* x, int n) {
    int i = element();
    if (i < n && to_f32(x[i]) < 0.0f) x[i] = from_f32<STORE>(0.0f);  // not max: that would turn NaN into 0 and hide it
}

extern "C" __global__ void relu_bwd(float* g, const STORE* y, int n) {
    int i = element();
    if (i < n && to_f32(y[i]) == 0.0f) g[i] = 0.0f;
}

extern "C" __global__ void keep_rows(STORE* y, const float* x, const unsigned char* keep, int width, int n) {
    int i = element();
    if (i >= n) return;
    y[i] = from_f32<STORE>(keep[i / width] != 0 ? x[i] : 0.0f);  // a branch: NaN is cleared
}
