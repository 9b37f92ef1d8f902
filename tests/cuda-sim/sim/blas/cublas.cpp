// The cuBLAS calls of this project: GEMM in f32, f64, f16 and bf16 with f32 accumulation, GEMV, sum of absolute values.
// Column-major and plain; each is queued on its stream like any other work, so captures hold it too.
#include "storage.h"
#include <cstdio>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { POINTER_HOST = 0, POINTER_DEVICE = 1 };
// Compute types: f32 exact, f32 with operands rounded for tensor cores, f64.
enum {
  COMPUTE_32F = 68,
  COMPUTE_32F_PEDANTIC = 69,
  COMPUTE_64F = 70,
  COMPUTE_32F_FAST_16F = 74,
  COMPUTE_32F_FAST_16BF = 75,
  COMPUTE_32F_FAST_TF32 = 77
};
const int MATH_TF32 = 3;

extern "C" int cuda_sim_submit(void *stream, int (*run)(void *), void *arg, void (*drop)(void *));
extern "C" int cuda_sim_run(void *stream, int (*run)(void *), void *arg);
extern "C" int cuda_sim_in_range(const void *p, size_t bytes);
extern "C" int cuda_sim_current_device();
extern "C" void cuda_sim_say(const char *line);
extern "C" void cuda_sim_count_gemm();

struct Handle {
  void *stream = nullptr;
  int pointer_mode = POINTER_HOST, math_mode = 0, device = -1;
};

struct Matrix {
  const void *data;
  int type;
  int64_t ld, stride;
  bool transposed;
};
struct Job {
  int m, n, k, batch;
  Matrix a, b, c;
  bool alpha_on_device;
  double alpha, beta;              // host mode: read at the call
  const void *alpha_at, *beta_at;  // device mode: read when the queue gets there
  int scalar_type, round_to;       // round_to: F32 none, else what operands are rounded to; -1 tf32
};

static double load(const void *p, int64_t i, int type) {
  switch (type) {
    case F64: return ((const double *)p)[i];
    case F32: return ((const float *)p)[i];
    case F16: return from_f16(((const uint16_t *)p)[i]);
    default: return from_bf16(((const uint16_t *)p)[i]);
  }
}
static void store(void *p, int64_t i, int type, double v) {
  switch (type) {
    case F64: ((double *)p)[i] = v; break;
    case F32: ((float *)p)[i] = (float)v; break;
    case F16: ((uint16_t *)p)[i] = to_f16((float)v); break;
    default: ((uint16_t *)p)[i] = to_bf16((float)v);
  }
}
static double rounded(double v, int to) {
  switch (to) {
    case -1: return to_tf32((float)v);
    case F16: return from_f16(to_f16((float)v));
    case BF16: return from_bf16(to_bf16((float)v));
    default: return v;
  }
}
// op(M) as a column-major rows x cols array of T.
template <class T>
static void gather(const Matrix &m, int batch, int rows, int cols, int round_to, std::vector<T> &out) {
  const char *base = (const char *)m.data + batch * m.stride * (int64_t)size_of(m.type);
  out.resize((size_t)rows * (size_t)cols);
  for (int c = 0; c < cols; ++c)
    for (int r = 0; r < rows; ++r)
      out[(size_t)c * (size_t)rows + (size_t)r] =
          (T)rounded(load(base, m.transposed ? r * m.ld + c : c * m.ld + r, m.type), round_to);
}
template <class T>
static void product(const Job &j, int batch) {
  std::vector<T> a, b, sum((size_t)j.m);
  gather(j.a, batch, j.m, j.k, j.round_to, a);
  gather(j.b, batch, j.k, j.n, j.round_to, b);
  char *c = (char *)j.c.data + batch * j.c.stride * (int64_t)size_of(j.c.type);
  double alpha = j.alpha_on_device ? load(j.alpha_at, 0, j.scalar_type) : j.alpha,
         beta = j.alpha_on_device ? load(j.beta_at, 0, j.scalar_type) : j.beta;
  for (int col = 0; col < j.n; ++col) {
    for (auto &s : sum) s = 0;
    for (int p = 0; p < j.k; ++p) {
      T w = b[(size_t)col * (size_t)j.k + (size_t)p];
      const T *column = &a[(size_t)p * (size_t)j.m];
      for (int r = 0; r < j.m; ++r) sum[(size_t)r] += w * column[r];
    }
    for (int r = 0; r < j.m; ++r) {
      int64_t at = col * j.c.ld + r;
      double v = alpha * (double)sum[(size_t)r];
      if (beta != 0) v += beta * load(c, at, j.c.type);  // beta 0 never reads C: it may hold NaN
      store(c, at, j.c.type, v);
    }
  }
}
static int run_product(void *arg) {
  const Job &j = *(const Job *)arg;
  for (int i = 0; i < j.batch; ++i) {
    if (j.c.type == F64)
      product<double>(j, i);
    else
      product<float>(j, i);
  }
  cuda_sim_count_gemm();
  return 0;
}

static void say(const char *format, long a, long b, long c, long d, long e, long f) {
  char line[256];
  snprintf(line, sizeof line, format, a, b, c, d, e, f);
  cuda_sim_say(line);
}
static bool holds(const char *name, const Matrix &m, int rows, int cols, int batch) {
  if (!rows || !cols) return true;
  size_t bytes = (size_t)((batch - 1) * m.stride + (cols - 1) * m.ld + rows) * size_of(m.type);
  if (cuda_sim_in_range(m.data, bytes)) return true;
  char line[160];
  snprintf(line, sizeof line, "gemm: operand %s needs %zu bytes at %p, outside its allocation", name, bytes, m.data);
  cuda_sim_say(line);
  return false;
}
static bool usable(const Handle *h) { return h && h->device == cuda_sim_current_device(); }
static int multiply(Handle *h, Job j, int compute) {
  if (!usable(h)) return NOT_INITIALIZED;
  bool a_rows_first = !j.a.transposed, b_rows_first = !j.b.transposed;
  int a_rows = a_rows_first ? j.m : j.k, a_cols = a_rows_first ? j.k : j.m, b_rows = b_rows_first ? j.k : j.n,
      b_cols = b_rows_first ? j.n : j.k;
  auto short_of = [](int64_t ld, int rows) { return ld < (rows > 1 ? rows : 1); };
  if (j.m < 0 || j.n < 0 || j.k < 0 || j.batch < 0 || short_of(j.a.ld, a_rows) || short_of(j.b.ld, b_rows) ||
      short_of(j.c.ld, j.m)) {
    say("gemm: bad shape m %ld n %ld k %ld, leading dimensions %ld %ld %ld", j.m, j.n, j.k, (long)j.a.ld, (long)j.b.ld,
        (long)j.c.ld);
    return INVALID_VALUE;
  }
  if (!j.m || !j.n || !j.batch) return OK;
  if (!holds("A", j.a, a_rows, a_cols, j.batch) || !holds("B", j.b, b_rows, b_cols, j.batch) ||
      !holds("C", j.c, j.m, j.n, j.batch))
    return EXECUTION_FAILED;
  bool f32 = j.a.type == F32;
  j.round_to = !f32                                                                                        ? F32
               : compute == COMPUTE_32F_FAST_16F                                                           ? F16
               : compute == COMPUTE_32F_FAST_16BF                                                          ? BF16
               : compute == COMPUTE_32F_FAST_TF32 || (compute == COMPUTE_32F && h->math_mode == MATH_TF32) ? -1
                                                                                                           : F32;
  j.alpha_on_device = h->pointer_mode == POINTER_DEVICE;
  if (j.alpha_on_device) {
    if (!cuda_sim_in_range(j.alpha_at, size_of(j.scalar_type)) || !cuda_sim_in_range(j.beta_at, size_of(j.scalar_type)))
      return EXECUTION_FAILED;
  } else {
    j.alpha = load(j.alpha_at, 0, j.scalar_type);
    j.beta = load(j.beta_at, 0, j.scalar_type);
  }
  return cuda_sim_submit(h->stream, run_product, new Job(j), [](void *p) { delete (Job *)p; }) ? EXECUTION_FAILED : OK;
}
static Matrix matrix(const void *data, int type, int64_t ld, int64_t stride, int op) {
  return Matrix{data, type, ld, stride, op != 0};
}
static Job job(int m, int n, int k, int batch, Matrix a, Matrix b, Matrix c, const void *alpha, const void *beta,
               int scalar) {
  return Job{m, n, k, batch, a, b, c, false, 0, 0, alpha, beta, scalar, F32};
}
static Handle *of(void *h) { return (Handle *)h; }

EXPORT int cublasCreate_v2(void **out) {
  int device = cuda_sim_current_device();
  if (device < 0) return NOT_INITIALIZED;
  auto *h = new Handle;
  h->device = device;
  *out = h;
  return OK;
}
EXPORT int cublasDestroy_v2(void *h) {
  if (!h) return NOT_INITIALIZED;
  delete of(h);
  return OK;
}
EXPORT int cublasSetStream_v2(void *h, void *s) {
  if (!h) return NOT_INITIALIZED;
  of(h)->stream = s;
  return OK;
}
EXPORT int cublasGetStream_v2(void *h, void **s) {
  if (!h) return NOT_INITIALIZED;
  *s = of(h)->stream;
  return OK;
}
EXPORT int cublasSetWorkspace_v2(void *h, void *p, size_t bytes) {
  if (!h) return NOT_INITIALIZED;
  return !bytes || (!((uintptr_t)p % 256) && cuda_sim_in_range(p, bytes)) ? OK : INVALID_VALUE;
}
EXPORT int cublasGetVersion_v2(void *, int *version) {
  *version = 120800;
  return OK;
}
EXPORT int cublasSetMathMode(void *h, int mode) {
  if (!h) return NOT_INITIALIZED;
  of(h)->math_mode = mode;
  return OK;
}
EXPORT int cublasGetMathMode(void *h, int *mode) {
  if (!h) return NOT_INITIALIZED;
  *mode = of(h)->math_mode;
  return OK;
}
EXPORT int cublasSetAtomicsMode(void *h, int) { return h ? OK : NOT_INITIALIZED; }
EXPORT int cublasSetPointerMode_v2(void *h, int mode) {
  if (!h) return NOT_INITIALIZED;
  of(h)->pointer_mode = mode;
  return OK;
}
EXPORT int cublasGetPointerMode_v2(void *h, int *mode) {
  if (!h) return NOT_INITIALIZED;
  *mode = of(h)->pointer_mode;
  return OK;
}
EXPORT const char *cublasGetStatusName(int s) {
  switch (s) {
    case OK: return "CUBLAS_STATUS_SUCCESS";
    case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS unknown";
  }
}
EXPORT const char *cublasGetStatusString(int s) { return cublasGetStatusName(s); }

EXPORT int cublasSgemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a,
                                     int lda, long long sa, const float *b, int ldb, long long sb, const float *beta,
                                     float *c, int ldc, long long sc, int batch) {
  return multiply(of(h),
                  job(m, n, k, batch, matrix(a, F32, lda, sa, ta), matrix(b, F32, ldb, sb, tb),
                      matrix(c, F32, ldc, sc, 0), alpha, beta, F32),
                  COMPUTE_32F);
}
EXPORT int cublasSgemm_v2(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                          const float *b, int ldb, const float *beta, float *c, int ldc) {
  return cublasSgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
EXPORT int cublasDgemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const double *alpha, const double *a,
                                     int lda, long long sa, const double *b, int ldb, long long sb, const double *beta,
                                     double *c, int ldc, long long sc, int batch) {
  return multiply(of(h),
                  job(m, n, k, batch, matrix(a, F64, lda, sa, ta), matrix(b, F64, ldb, sb, tb),
                      matrix(c, F64, ldc, sc, 0), alpha, beta, F64),
                  COMPUTE_64F);
}
EXPORT int cublasDgemm_v2(void *h, int ta, int tb, int m, int n, int k, const double *alpha, const double *a, int lda,
                          const double *b, int ldb, const double *beta, double *c, int ldc) {
  return cublasDgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
// The combinations that cuBLAS has, of those with these types. f32 compute takes f32 scalars.
static bool known(int a, int b, int c, int compute) {
  bool f32_compute = compute == COMPUTE_32F || compute == COMPUTE_32F_PEDANTIC,
       fast = compute == COMPUTE_32F_FAST_16F || compute == COMPUTE_32F_FAST_16BF || compute == COMPUTE_32F_FAST_TF32;
  if (a != b) return false;
  if (a == F32) return c == F32 && (f32_compute || fast);
  return (a == F16 || a == BF16) && f32_compute && (c == a || c == F32);
}
EXPORT int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                                      int at, int lda, long long sa, const void *b, int bt, int ldb, long long sb,
                                      const void *beta, void *c, int ct, int ldc, long long sc, int batch, int compute,
                                      int) {
  if (!known(at, bt, ct, compute)) {
    say("gemm: types %ld x %ld -> %ld with compute type %ld are not a combination of cuBLAS that is provided%.0ld%.0ld",
        at, bt, ct, compute, 0, 0);
    return NOT_SUPPORTED;
  }
  return multiply(of(h),
                  job(m, n, k, batch, matrix(a, at, lda, sa, ta), matrix(b, bt, ldb, sb, tb), matrix(c, ct, ldc, sc, 0),
                      alpha, beta, F32),
                  compute);
}
EXPORT int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda,
                        const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute,
                        int algorithm) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1,
                                    compute, algorithm);
}

// ---- GEMV and sums with any increment: a vector is a matrix of one row whose leading dimension is the increment

static int gemv(Handle *h, int type, int ta, int m, int n, const void *alpha, const void *a, int lda, const void *x,
                int incx, const void *beta, void *y, int incy) {
  if (incx < 1 || incy < 1) return INVALID_VALUE;
  int out = ta ? n : m, in = ta ? m : n;
  // y' = x' op(A)': one row in, one row out
  return multiply(h,
                  job(1, out, in, 1, matrix(x, type, incx, 0, 0), matrix(a, type, lda, 0, !ta),
                      matrix(y, type, incy, 0, 0), alpha, beta, type),
                  type == F64 ? COMPUTE_64F : COMPUTE_32F_PEDANTIC);
}
EXPORT int cublasSgemv_v2(void *h, int ta, int m, int n, const float *alpha, const float *a, int lda, const float *x,
                          int incx, const float *beta, float *y, int incy) {
  return gemv(of(h), F32, ta, m, n, alpha, a, lda, x, incx, beta, y, incy);
}
EXPORT int cublasDgemv_v2(void *h, int ta, int m, int n, const double *alpha, const double *a, int lda, const double *x,
                          int incx, const double *beta, double *y, int incy) {
  return gemv(of(h), F64, ta, m, n, alpha, a, lda, x, incx, beta, y, incy);
}
struct Sum {
  const float *x;
  int64_t n, inc;
  float *out;
};
static int run_sum(void *arg) {
  const Sum &s = *(const Sum *)arg;
  float sum = 0;
  for (int64_t i = 0; i < s.n; ++i) sum += std::fabs(s.x[i * s.inc]);
  *s.out = sum;
  return 0;
}
EXPORT int cublasSasum_v2(void *h, int n, const float *x, int incx, float *out) {
  if (!usable(of(h))) return NOT_INITIALIZED;
  if (n < 0 || incx < 1) return INVALID_VALUE;
  if (n && !cuda_sim_in_range(x, ((size_t)(n - 1) * (size_t)incx + 1) * 4)) return EXECUTION_FAILED;
  Sum s{x, n, incx, out};
  if (of(h)->pointer_mode == POINTER_HOST) return cuda_sim_run(of(h)->stream, run_sum, &s) ? EXECUTION_FAILED : OK;
  if (!cuda_sim_in_range(out, 4)) return EXECUTION_FAILED;
  return cuda_sim_submit(of(h)->stream, run_sum, new Sum(s), [](void *p) { delete (Sum *)p; }) ? EXECUTION_FAILED : OK;
}
