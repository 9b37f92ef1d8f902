// Vector types with CUDA's alignments, dim3.
#pragma once

#define SIM_VEC2(T, N, A)                              \
  struct __attribute__((aligned(A))) N##2 { T x, y; }; \
  SIM_INLINE N##2 make_##N##2(T x, T y) { return {x, y}; }
#define SIM_VEC3(T, N)        \
  struct N##3 { T x, y, z; }; \
  SIM_INLINE N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }
#define SIM_VEC4(T, N, A)                                    \
  struct __attribute__((aligned(A))) N##4 { T x, y, z, w; }; \
  SIM_INLINE N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIM_VEC2(char, char, 2)
SIM_VEC4(char, char, 4)
SIM_VEC2(unsigned char, uchar, 2)
SIM_VEC4(unsigned char, uchar, 4)
SIM_VEC2(short, short, 4)
SIM_VEC4(short, short, 8)
SIM_VEC2(unsigned short, ushort, 4)
SIM_VEC4(unsigned short, ushort, 8)
SIM_VEC2(int, int, 8)
SIM_VEC3(int, int)
SIM_VEC4(int, int, 16)
SIM_VEC2(unsigned, uint, 8)
SIM_VEC4(unsigned, uint, 16)
SIM_VEC2(long long, longlong, 16)
SIM_VEC2(unsigned long long, ulonglong, 16)
SIM_VEC2(float, float, 8)
SIM_VEC3(float, float)
SIM_VEC4(float, float, 16)
SIM_VEC2(double, double, 16)
SIM_VEC3(double, double)

typedef sim_dim uint3;
SIM_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
struct dim3 : sim_dim {
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : sim_dim{a, b, c} {}
};
