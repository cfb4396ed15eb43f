// A row of WIDTH numbers in the registers of WARPS warps, ROWS rows a block.
//
// A thread holds CHUNKS fours; neighbouring threads hold neighbouring fours, so that a warp's loads
// and stores are whole lines. Where a row is one warp, threads never wait for one another, and warps
// past the last row may leave; where it is several, a block is one row.
#pragma once
#include "numbers.cuh"

#define THREADS (32 * WARPS)
#define CHUNKS (WIDTH / (4 * THREADS))
#if WIDTH % (4 * THREADS) != 0
#error "WIDTH must be a multiple of four numbers for each thread"
#endif
#if WARPS > 1 && ROWS > 1
#error "a block holds several rows only where each is one warp"
#endif

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS *ROWS)
#define EVERY_CHUNK _Pragma("unroll") for (int c = 0; c < CHUNKS; ++c)
#define EVERY_NUMBER EVERY_CHUNK _Pragma("unroll") for (int i = 0; i < 4; ++i)

typedef Four Held[CHUNKS];

__device__ __forceinline__ int own_row() { return blockIdx.x * ROWS + threadIdx.x / THREADS; }
__device__ __forceinline__ int own_place() { return threadIdx.x % THREADS; }
// Of chunk c, in fours: in a row, and in a matrix.
__device__ __forceinline__ int column(int c) { return c * THREADS + own_place(); }
__device__ __forceinline__ long long four(int c) {
  return (long long)own_row() * (WIDTH / 4) + column(c);
}

__device__ __forceinline__ Four four_of(float4 v) { return {v.x, v.y, v.z, v.w}; }

// The row of a product: int32 sums times both scales plus the bias (SUMS), or 16 bits, complete.
__device__ __forceinline__ void load_product(Held &v, const void *product, const float *row_scales,
                                             const float4 *column_scales, const float4 *bias) {
#if SUMS
  const float scale = row_scales[own_row()];
  EVERY_CHUNK {
    const int4 sums = ((const int4 *)product)[four(c)];
    const Four scales = four_of(column_scales[column(c)]), add = four_of(bias[column(c)]);
    v[c] = {(float)sums.x, (float)sums.y, (float)sums.z, (float)sums.w};
    for (int i = 0; i < 4; ++i) v[c].at[i] = v[c].at[i] * scale * scales.at[i] + add.at[i];
  }
#else
  EVERY_CHUNK v[c] = unpacked(((const uint2 *)product)[four(c)]);
#endif
}

__device__ __forceinline__ void store_wide(const Held &v, uint2 *out) {
  EVERY_CHUNK out[four(c)] = packed(v[c]);
}

// The sum over a row; USE numbers the calls of a kernel, so that each has memory of its own and
// nobody need wait until it has been read.
template <int USE>
__device__ __forceinline__ float row_sum(float v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
#if WARPS > 1
  __shared__ float parts[WARPS];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) v += parts[warp];
#endif
  return v;
}

__device__ __forceinline__ unsigned row_max(unsigned v) {
#if __CUDA_ARCH__ >= 800
  v = __reduce_max_sync(0xffffffffu, v);
#else
#pragma unroll
  for (int step = 16; step; step /= 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, v, step);
    v = other > v ? other : v;
  }
#endif
#if WARPS > 1
  __shared__ unsigned parts[WARPS];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) v = parts[warp] > v ? parts[warp] : v;
#endif
  return v;
}

// A row in codes, and its scale: what code 1 stands for.
//
// Magnitudes are compared as integers, as which floats without a sign are in order, NaN above
// infinity above the rest: fmaxf would drop a NaN, and conversions turn it into a number. A row that
// holds either has the scale NaN, which goes through every later product into the logits.
__device__ __forceinline__ void store_codes(const Held &v, unsigned *codes, float *scales) {
  const unsigned infinity = 0x7f800000u;
  unsigned largest = 0;
  EVERY_NUMBER {
    const unsigned magnitude = __float_as_uint(v[c].at[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  largest = row_max(largest);
  const float reach = __uint_as_float(largest);
  const float steps = LARGEST / (reach > 1e-35f ? reach : 1e-35f);  // finite for a row of zeros
  EVERY_CHUNK {
    Four scaled = v[c];
    for (int i = 0; i < 4; ++i) scaled.at[i] *= steps;
    codes[four(c)] = codes_of(scaled);
  }
  if (own_place() == 0)
    scales[own_row()] = largest < infinity ? reach / LARGEST : __uint_as_float(0x7fffffffu);
}
