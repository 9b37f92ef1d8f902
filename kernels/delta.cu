// The step size after its matrix product: D = softplus(s + b), softplus(s) = max(s, 0) + ln(1 + e^-|s|), exact at both
// ends. Its slope is 1 - e^-D, so the backward needs D alone.

extern "C" __global__ void softplus(float* delta, const float* b, int width, int n) {
    int i = element();
    if (i >= n) return;
    float s = delta[i] + b[i % width];
    delta[i] = fmaxf(s, 0.0f) + log1pf(expf(-fabsf(s)));
}

extern "C" __global__ void softplus_bwd(float* g, const float* delta, int n) {
    int i = element();
    if (i < n) g[i] *= -expm1f(-delta[i]);
}
