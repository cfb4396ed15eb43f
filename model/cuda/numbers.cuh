// Four neighbouring numbers at a time: what memory holds of them, and the floats to compute with.
// BF16 chooses the 16-bit type (0: fp16), FP8 the 8-bit one (0: int8, 1: e4m3).
#pragma once
#include "machine.cuh"

// The largest code.
#if FP8
#define LARGEST 448.0f
#else
#define LARGEST 127.0f
#endif

struct Four {
  float at[4];
};

__device__ __forceinline__ float widened(unsigned bits) {
#if BF16
  return __uint_as_float(bits << 16);
#else
  return float_of_half((unsigned short)bits);
#endif
}

__device__ __forceinline__ unsigned narrowed(float value) {
#if BF16
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;  // NaN stays NaN
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;                  // ties to even
#else
  return half_of_float(value);
#endif
}

__device__ __forceinline__ Four unpacked(uint2 pair) {
  return {widened(pair.x & 0xffffu), widened(pair.x >> 16),
          widened(pair.y & 0xffffu), widened(pair.y >> 16)};
}

__device__ __forceinline__ uint2 packed(const Four &v) {
  return {narrowed(v.at[0]) | narrowed(v.at[1]) << 16,
          narrowed(v.at[2]) | narrowed(v.at[3]) << 16};
}

// Four values that are in steps already, to four codes.
__device__ __forceinline__ unsigned codes_of(const Four &v) {
#if FP8
  return e4m3_pair(v.at[0], v.at[1]) | (unsigned)e4m3_pair(v.at[2], v.at[3]) << 16;
#else
  unsigned codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int code = int8_of_float(v.at[i]);
    code = code < -127 ? -127 : code;
    codes |= ((unsigned)code & 0xffu) << 8 * i;
  }
  return codes;
#endif
}
