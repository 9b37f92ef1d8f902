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

// Each x of the rows [rows, width] as hi + lo of the small type, three columns of y [rows, 3 width]: (hi, lo, hi), or
// (hi, hi, lo) for the other factor. Then a product of both along 3 width is hi hi + lo hi + hi lo.
extern "C" __global__ void split(STORE* y, const float* x, int width, int n, int other) {
    int i = element();
    if (i >= n) return;
    STORE hi = from_f32<STORE>(x[i]), lo = from_f32<STORE>(x[i] - to_f32(hi));
    size_t at = (size_t)i + (size_t)(i / width) * 2 * width;
    y[at] = hi;
    y[at + width] = other ? hi : lo;
    y[at + 2 * (size_t)width] = other ? lo : hi;
}
