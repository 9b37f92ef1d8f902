// Mathematics, bit casts, integer intrinsics, cached loads. The host's libm stands for the GPU's functions.
#pragma once

#define SIM_F1(N)                                                \
  SIM_INLINE float N##f(float x) { return __builtin_##N##f(x); } \
  SIM_INLINE float N(float x) { return __builtin_##N##f(x); }    \
  SIM_INLINE double N(double x) { return __builtin_##N(x); }
#define SIM_F2(N)                                                            \
  SIM_INLINE float N##f(float x, float y) { return __builtin_##N##f(x, y); } \
  SIM_INLINE float N(float x, float y) { return __builtin_##N##f(x, y); }    \
  SIM_INLINE double N(double x, double y) { return __builtin_##N(x, y); }
SIM_F1(exp)
SIM_F1(exp2)
SIM_F1(expm1)
SIM_F1(log)
SIM_F1(log2)
SIM_F1(log10)
SIM_F1(log1p)
SIM_F1(sin)
SIM_F1(cos)
SIM_F1(tan)
SIM_F1(tanh)
SIM_F1(sinh)
SIM_F1(cosh)
SIM_F1(atan)
SIM_F1(asin)
SIM_F1(acos)
SIM_F1(erf)
SIM_F1(erfc)
SIM_F1(sqrt)
SIM_F1(cbrt)
SIM_F1(floor)
SIM_F1(ceil)
SIM_F1(trunc)
SIM_F1(rint)
SIM_F1(nearbyint)
SIM_F1(round)
SIM_F1(fabs)
SIM_F1(lgamma)
SIM_F1(tgamma)
SIM_F2(pow)
SIM_F2(fmod)
SIM_F2(fmax)
SIM_F2(fmin)
SIM_F2(atan2)
SIM_F2(copysign)
SIM_F2(hypot)
SIM_F2(fdim)
SIM_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SIM_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
SIM_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
SIM_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
SIM_INLINE float rcbrtf(float x) { return 1.0f / __builtin_cbrtf(x); }
SIM_INLINE float exp10f(float x) { return __builtin_powf(10.0f, x); }
SIM_INLINE float sinpif(float x) { return (float)__builtin_sin((double)x * 3.14159265358979323846); }
SIM_INLINE float cospif(float x) { return (float)__builtin_cos((double)x * 3.14159265358979323846); }
SIM_INLINE float scalbnf(float x, int n) { return __builtin_scalbnf(x, n); }
SIM_INLINE float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
SIM_INLINE void sincosf(float x, float *s, float *c) {
  *s = __builtin_sinf(x);
  *c = __builtin_cosf(x);
}
SIM_INLINE void sincos(double x, double *s, double *c) {
  *s = __builtin_sin(x);
  *c = __builtin_cos(x);
}
SIM_INLINE float nanf(const char *) { return __builtin_nanf(""); }
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

// The fast forms, by the same route as the GPU: through base 2.
SIM_INLINE float __expf(float x) { return __builtin_exp2f(x * 1.4426950408889634f); }
SIM_INLINE float __exp10f(float x) { return __builtin_exp2f(x * 3.3219280948873623f); }
SIM_INLINE float __logf(float x) { return __builtin_log2f(x) * 0.6931471805599453f; }
SIM_INLINE float __log2f(float x) { return __builtin_log2f(x); }
SIM_INLINE float __log10f(float x) { return __builtin_log2f(x) * 0.3010299956639812f; }
SIM_INLINE float __powf(float x, float y) { return __builtin_exp2f(y * __builtin_log2f(x)); }
SIM_INLINE float __sinf(float x) { return __builtin_sinf(x); }
SIM_INLINE float __cosf(float x) { return __builtin_cosf(x); }
SIM_INLINE float __tanf(float x) { return __builtin_tanf(x); }
SIM_INLINE void __sincosf(float x, float *s, float *c) {
  *s = __builtin_sinf(x);
  *c = __builtin_cosf(x);
}
SIM_INLINE float __fdividef(float a, float b) { return a / b; }
SIM_INLINE float __frcp_rn(float x) { return 1.0f / x; }
SIM_INLINE float __fdiv_rn(float a, float b) { return a / b; }
SIM_INLINE float __frsqrt_rn(float x) { return 1.0f / __builtin_sqrtf(x); }
SIM_INLINE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
SIM_INLINE float __fmul_rn(float a, float b) {
  volatile float r = a * b;
  return r;
}  // volatile: never contracted
SIM_INLINE float __fadd_rn(float a, float b) {
  volatile float r = a + b;
  return r;
}
SIM_INLINE float __fsub_rn(float a, float b) {
  volatile float r = a - b;
  return r;
}
SIM_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SIM_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

SIM_INLINE int abs(int x) { return x < 0 ? -x : x; }
SIM_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }
SIM_INLINE float abs(float x) { return __builtin_fabsf(x); }
SIM_INLINE double abs(double x) { return __builtin_fabs(x); }
#define SIM_MIN_MAX(T)                                 \
  SIM_INLINE T min(T a, T b) { return a < b ? a : b; } \
  SIM_INLINE T max(T a, T b) { return a > b ? a : b; }
SIM_MIN_MAX(int)
SIM_MIN_MAX(unsigned)
SIM_MIN_MAX(long)
SIM_MIN_MAX(unsigned long)
SIM_MIN_MAX(long long)
SIM_MIN_MAX(unsigned long long)
SIM_INLINE unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
SIM_INLINE unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
SIM_INLINE unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
SIM_INLINE unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
SIM_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
SIM_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
SIM_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
SIM_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }

template <class D, class S>
SIM_INLINE D sim_bits(S s) {
  static_assert(sizeof(D) == sizeof(S), "a bit cast keeps the size");
  D d;
  __builtin_memcpy(&d, &s, sizeof d);
  return d;
}
SIM_INLINE int __float_as_int(float x) { return sim_bits<int>(x); }
SIM_INLINE unsigned __float_as_uint(float x) { return sim_bits<unsigned>(x); }
SIM_INLINE float __int_as_float(int x) { return sim_bits<float>(x); }
SIM_INLINE float __uint_as_float(unsigned x) { return sim_bits<float>(x); }
SIM_INLINE long long __double_as_longlong(double x) { return sim_bits<long long>(x); }
SIM_INLINE double __longlong_as_double(long long x) { return sim_bits<double>(x); }
SIM_INLINE int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
SIM_INLINE int __float2int_rz(float x) { return (int)x; }
SIM_INLINE int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
SIM_INLINE int __float2int_ru(float x) { return (int)__builtin_ceilf(x); }
SIM_INLINE float __int2float_rn(int x) { return (float)x; }
SIM_INLINE float __uint2float_rn(unsigned x) { return (float)x; }

SIM_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIM_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIM_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
SIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIM_INLINE unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= ((x >> i) & 1u) << (31 - i);
  return r;
}
SIM_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
SIM_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

// Instrumented: these are accesses of the kernel.
template <class T>
static inline __attribute__((always_inline)) T __ldg(const T *p) {
  return *p;
}
template <class T>
static inline __attribute__((always_inline)) T __ldcs(const T *p) {
  return *p;
}
template <class T>
static inline __attribute__((always_inline)) T __ldcg(const T *p) {
  return *p;
}
template <class T>
static inline __attribute__((always_inline)) T __ldca(const T *p) {
  return *p;
}
template <class T>
static inline __attribute__((always_inline)) void __stcs(T *p, T v) {
  *p = v;
}
template <class T>
static inline __attribute__((always_inline)) void __stcg(T *p, T v) {
  *p = v;
}
