// The toolkit's header in miniature: storage type and conversions. Kernels that convert by themselves need none.
#pragma once

SIM_INLINE float sim_bf16_to_float(unsigned short b) { return sim_bits<float>((unsigned)b << 16); }
SIM_INLINE unsigned short sim_float_to_bf16(float f) {
  unsigned u = sim_bits<unsigned>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);  // to nearest, ties to even
}
struct __attribute__((aligned(2))) __nv_bfloat16 {
  unsigned short x;
  __nv_bfloat16() = default;
  SIM_PLAIN __nv_bfloat16(float f) : x(sim_float_to_bf16(f)) {}
  SIM_PLAIN operator float() const { return sim_bf16_to_float(x); }
};
struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
SIM_INLINE float __bfloat162float(__nv_bfloat16 b) { return sim_bf16_to_float(b.x); }
SIM_INLINE __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
SIM_INLINE __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
SIM_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.x; }
SIM_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) {
  __nv_bfloat16 b;
  b.x = u;
  return b;
}
