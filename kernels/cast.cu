// Between storage types, and constants: what moves numbers without computing.

// y = x, stored small.
extern "C" __global__ void narrow(STORE* y, const float* x, int n) {
    int i = element();
    if (i < n) y[i] = from_f32<STORE>(x[i]);
}

// y = x, in full.
extern "C" __global__ void widen(float* y, const STORE* x, int n) {
    int i = element();
    if (i < n) y[i] = to_f32(x[i]);
}

// Every element = value.
extern "C" __global__ void fill(STORE* y, float value, int n) {
    int i = element();
    if (i < n) y[i] = from_f32<STORE>(value);
}
