// The toolkit's header in miniature: storage type and conversions. Kernels that convert by themselves need none.
#pragma once

SIM_INLINE float sim_half_to_float(unsigned short h) {
  unsigned sign = (unsigned)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 31u) return sim_bits<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent) return sim_bits<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  float small = (float)fraction * (1.0f / 16777216.0f);  // subnormal: fraction * 2^-24, exact
  return sign ? -small : small;
}
SIM_INLINE unsigned short sim_float_to_half(float f) {
  unsigned u = sim_bits<unsigned>(f), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 0x7fff;
  if (u >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // rounds to infinity
  if (u < 0x33000001u) return (unsigned short)sign;               // rounds to zero
  unsigned shift = 13, fraction = u - 0x38000000u;
  if (u < 0x38800000u) {  // subnormal result
    shift = 126u - (u >> 23);
    fraction = (u & 0x7fffffu) | 0x800000u;
  }
  unsigned q = fraction >> shift, rest = fraction & ((1u << shift) - 1u), half = 1u << (shift - 1);
  return (unsigned short)(sign | (q + (rest > half || (rest == half && (q & 1u)))));  // to nearest, ties to even
}
struct __attribute__((aligned(2))) __half {
  unsigned short x;
  __half() = default;
  SIM_PLAIN __half(float f) : x(sim_float_to_half(f)) {}
  SIM_PLAIN operator float() const { return sim_half_to_float(x); }
};
typedef __half half;
struct __attribute__((aligned(4))) __half2 {
  __half x, y;
};
typedef __half2 half2;
SIM_INLINE float __half2float(__half h) { return sim_half_to_float(h.x); }
SIM_INLINE __half __float2half(float f) { return __half(f); }
SIM_INLINE __half __float2half_rn(float f) { return __half(f); }
SIM_INLINE unsigned short __half_as_ushort(__half h) { return h.x; }
SIM_INLINE __half __ushort_as_half(unsigned short u) {
  __half h;
  h.x = u;
  return h;
}
