// Element types of cuBLAS and their conversions.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

// Values of cudaDataType.
enum Type { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
inline size_t size_of(int t) { return t == F64 ? 8 : t == F32 ? 4 : 2; }

inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline float from_bf16(uint16_t b) { return float_of((uint32_t)b << 16); }
inline uint16_t to_bf16(float f) {
  uint32_t u = bits_of(f);
  if (std::isnan(f)) return 0x7fff;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  float v = exponent == 31 ? (fraction ? NAN : INFINITY)
            : exponent     ? std::ldexp((float)(fraction + 1024), exponent - 25)
                           : std::ldexp((float)fraction, -24);
  return h & 0x8000 ? -v : v;
}
inline uint16_t to_f16(float f) {
  uint16_t sign = (uint16_t)(bits_of(f) >> 16 & 0x8000);
  float a = std::fabs(f);
  if (std::isnan(f)) return 0x7fff;
  if (a >= 65520.0f) return sign | 0x7c00;
  int e = a < 6.103515625e-5f ? -14 : std::ilogb(a);     // exponent of the unit in the last place: e - 10
  float scaled = std::nearbyint(std::ldexp(a, 10 - e));  // exact but for this rounding: to nearest, ties to even
  int q = (int)scaled + (e + 14) * 1024;                 // the hidden bit carries into the exponent
  return (uint16_t)(sign | q);
}
// What a tensor core keeps of an f32 operand: ten bits of fraction.
inline float to_tf32(float f) { return std::isfinite(f) ? float_of((bits_of(f) + 0x1000u) & ~0x1fffu) : f; }
