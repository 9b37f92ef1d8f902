// Deliberately wrong: each kernel must be reported, with its reason and, where one is marked, the line `here: NAME`.

extern "C" __global__ void write_past_the_end(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = 1.0f;  // here: write_past_the_end
}

extern "C" __global__ void read_past_the_end(float* y, const float* x, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = x[i + 1];  // here: read_past_the_end
}

extern "C" __global__ void host_pointer(float* y, unsigned long long p) {
  y[0] = *(const float*)p;  // here: host_pointer
}

extern "C" __global__ void null_pointer(float* y, const float* x) {
  y[0] = x[0];  // here: null_pointer
}

extern "C" __global__ void straddling(float* y) {
  *(double*)(y + 254) = 1.0;  // here: straddling
}

extern "C" __global__ void misaligned(float* y, const float* x) {
  float4 v = *(const float4*)(x + 1);  // here: misaligned
  y[0] = v.x + v.w;
}

extern "C" __global__ void missing_syncthreads(float* y) {
  __shared__ float s[256];
  s[threadIdx.x] = (float)threadIdx.x;
  y[threadIdx.x] = s[255 - threadIdx.x];  // here: missing_syncthreads
}

// A tile that is refilled while other threads still read it: thread 0 writes what all of warp 1 has read.
extern "C" __global__ void missing_second_syncthreads(float* y) {
  __shared__ float s[1];
  if (threadIdx.x == 0) s[0] = 1.0f;
  __syncthreads();
  float v = s[0];
  if (threadIdx.x == 40) s[0] = v + 1.0f;  // here: missing_second_syncthreads
  y[threadIdx.x] = v;
}

extern "C" __global__ void missing_syncwarp(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = (float)threadIdx.x;
  y[threadIdx.x] = s[threadIdx.x ^ 1];  // here: missing_syncwarp
}

extern "C" __global__ void global_race_in_a_block(float* y) {
  if (threadIdx.x < 2) y[0] += 1.0f;  // here: global_race_in_a_block
}

extern "C" __global__ void global_race_between_blocks(float* y) {
  y[0] += 1.0f;  // here: global_race_between_blocks
}

// Readers of several warps, then a writer: one remembered reader would be the writer's own warp.
extern "C" __global__ void write_after_many_reads(float* y) {
  float v = y[0];
  if (threadIdx.x == 255) y[0] = v + 1.0f;  // here: write_after_many_reads
  y[threadIdx.x | 256] = v;
}

extern "C" __global__ void byte_race(unsigned char* y) {
  y[threadIdx.x / 2] = 1;  // here: byte_race
}

extern "C" __global__ void atomic_and_plain(unsigned* y) {
  if (threadIdx.x == 0) y[0] = 5;
  else atomicAdd(y, 1u);  // here: atomic_and_plain
}

extern "C" __global__ void divergent_barrier(float* y) {
  if (threadIdx.x < 16) {
    __syncthreads();  // here: divergent_barrier
    y[threadIdx.x] = 1.0f;
  } else {
    y[threadIdx.x] = 2.0f;
    __syncthreads();
  }
}

extern "C" __global__ void barrier_after_return(float* y) {
  if (threadIdx.x < 8) return;
  __syncthreads();  // here: barrier_after_return
  y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void barrier_against_collective(float* y) {
  if (threadIdx.x == 0) __syncthreads();
  else __syncwarp();  // here: barrier_against_collective
  y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void mask_names_absent_lanes(float* y) {
  float v = (float)threadIdx.x;
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);  // here: mask_names_absent_lanes
  y[threadIdx.x] = v;
}

extern "C" __global__ void caller_not_in_mask(float* y) {
  y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);  // here: caller_not_in_mask
}

extern "C" __global__ void reads_outside_the_mask(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 20);  // here: reads_outside_the_mask
}

extern "C" __global__ void lanes_disagree(float* y) {
  if (threadIdx.x & 1) y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  else y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 2);  // here: lanes_disagree
}

extern "C" __global__ void unwritten_shared(float* y) {
  __shared__ float s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // here: unwritten_shared
}

extern "C" __global__ void never_written_shared(float* y) {
  __shared__ float s[64];
  y[threadIdx.x] = s[threadIdx.x];  // here: never_written_shared
}

extern "C" __global__ void beyond_dynamic_shared(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = 1.0f;  // here: beyond_dynamic_shared
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void array_index(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = 1.0f;  // here: array_index
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x & 31];
}

extern "C" __global__ void index_overflow(float* y, int n) {
  y[0] = (float)(n * n * n * n);  // here: index_overflow
}

extern "C" __global__ void shift_too_far(float* y, int n) {
  y[0] = (float)(1 << n);  // here: shift_too_far
}

extern "C" __global__ void failed_assert(float* y, int n) {
  assert(n < 0);  // here: failed_assert
}

extern "C" __global__ void stack_overflow(float* y, int n) {
  volatile float big[65536];
  for (int i = 0; i < 65536; ++i) big[i] = (float)i;
  y[0] = big[n];
}

extern "C" __global__ void endless_with_memory(volatile float* y) {
  while (y[0] >= 0.0f) y[0] = 1.0f;
}

extern "C" __global__ void endless_on_the_stack(float* y, int n) {
  volatile unsigned v = n;
  while (v != 7u) v = v * 2u;
  y[0] = (float)v;
}

// What freed, another device's or foreign memory does depends on the arguments.
extern "C" __global__ void reads(float* y, unsigned long long p) {
  y[0] = *(const float*)p;  // here: reads
}

extern "C" __global__ void __launch_bounds__(128) bounded(float* y) { y[threadIdx.x] = 1.0f; }

// The controls: right, though close to some of the above.
extern "C" __global__ void right_syncwarp(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = (float)threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}

// Lanes that met more often in a narrower mask are not ahead of the others after the next full one.
extern "C" __global__ void right_narrow_syncwarp(float* y) {
  __shared__ float s[32];
  for (int i = 0; i < 3; ++i)
    if (threadIdx.x < 8) __syncwarp(0x000000ffu);
  s[threadIdx.x] = (float)threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

extern "C" __global__ void right_reader_writes(float* y) {
  __shared__ float s[2];
  if (threadIdx.x < 2) s[threadIdx.x] = 1.0f;
  __syncthreads();
  float v = s[0];
  __syncthreads();
  if (threadIdx.x == 40) s[0] = v + 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[0];
}

extern "C" __global__ void right_bytes(unsigned char* y) { y[threadIdx.x] = (unsigned char)threadIdx.x; }

extern "C" __global__ void right_atomics(unsigned* y) {
  atomicAdd(y, 1u);
  atomicMax(y + 1, threadIdx.x);
}
