// AdamW: p -= lr wd p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr (m / bias1) / (sqrt(v / bias2) + eps).
// A whole update is three launches: partial sums of squares (reduce.cu), one block that makes the norm and the factor on
// the gradient, and one pass over the four groups. What changes between updates is read from memory, so that a graph sees it.

// control: learning rates of backbone and heads, 1 - b1^t, 1 - b2^t, 1 / loss scale.
#define LR_BACKBONE 0
#define LR_HEADS 1
#define BIAS1 2
#define BIAS2 3
#define UNSCALE 4

// report: the norm, and 1 where it was not finite.
#define NORM 0
#define SKIPPED 1

struct AdamRule { float beta1, beta2, eps; };

__device__ __forceinline__ void step(const AdamRule& r, float* params, float g, float* m, float* v, int i, float lr,
                                     float decay, float bias1, float bias2) {
    float p = params[i], m_new = fmaf(r.beta1, m[i], (1.0f - r.beta1) * g);
    float v_new = fmaf(r.beta2, v[i], (1.0f - r.beta2) * g * g);
    p -= decay * p;
    m[i] = m_new;
    v[i] = v_new;
    params[i] = p - lr * (m_new / bias1) / (sqrtf(v_new / bias2) + r.eps);
}

// One step on one range; decay = lr wd.
extern "C" __global__ void adamw(float* params, const float* grads, float* m, float* v, int n, float beta1, float beta2,
                                 float eps, float lr, float decay, float bias1, float bias2, float grad_scale) {
    int i = element();
    if (i < n) step(AdamRule{beta1, beta2, eps}, params, grads[i] * grad_scale, m, v, i, lr, decay, bias1, bias2);
}

// One block. factor[0] = what the gradient is multiplied by; clip < 0: no clipping.
extern "C" __global__ void __launch_bounds__(256)
    update_factor(float* factor, float* report, const double* part, int parts, const float* control, float clip) {
    double v = 0.0;
    for (int i = (int)threadIdx.x; i < parts; i += 256) v += part[i];
    v = block_total(v);
    if (threadIdx.x != 0) return;
    double unscale = control[UNSCALE], norm = sqrt(v) * unscale;
    bool finite = norm - norm == 0.0;
    report[NORM] = (float)norm;
    report[SKIPPED] = finite ? 0.0f : 1.0f;
    factor[0] = (float)((clip >= 0.0f && norm > clip ? clip / norm : 1.0) * unscale);
}

// All groups: [0, end0) backbone decayed, [end0, end1) backbone plain, [end1, end2) heads decayed, [end2, end3) heads plain.
extern "C" __global__ void update_params(float* params, const float* grads, float* m, float* v, const float* control,
                                         const float* factor, const float* report, int end0, int end1, int end2, int end3,
                                         float beta1, float beta2, float eps, float weight_decay) {
    int i = element();
    if (i >= end3 || report[SKIPPED] != 0.0f) return;
    float lr = i < end1 ? control[LR_BACKBONE] : control[LR_HEADS];
    bool decayed = i < end0 || (i >= end1 && i < end2);
    step(AdamRule{beta1, beta2, eps}, params, grads[i] * factor[0], m, v, i, lr, decayed ? lr * weight_decay : 0.0f,
         control[BIAS1], control[BIAS2]);
}
