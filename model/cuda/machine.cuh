// Conversions that CUDA C++ has only in its toolkit's headers, as the machine's own instructions.
// A compiler for CPUs sees nothing of it: who simulates the kernels brings these functions along.
#pragma once
#ifdef __CUDACC__

__device__ __forceinline__ float float_of_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// To the nearest, ties to even; infinity past 65519.
__device__ __forceinline__ unsigned short half_of_float(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// To the nearest, ties to even, -128 and 127 past the ends; 0 for NaN.
__device__ __forceinline__ int int8_of_float(float value) {
  int code;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(value));
  return code;
}

// Two e4m3 codes, the first in the low byte: to the nearest, ties to even, ±448 past the ends.
// From sm_89 on.
__device__ __forceinline__ unsigned short e4m3_pair(float first, float second) {
  unsigned short codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(codes) : "f"(first), "f"(second));
  return codes;
}

#endif
