// CUDA C++ on a CPU: what the kernels use of the language, and their threads as fibers in lock step.
//
// One block after the other; within it, one fiber after the other runs until it must wait: for its
// warp (exchanges) or for its block. When none can run, whoever is complete goes on. A warp or block
// that can never be complete, because some of it left or waits elsewhere, is a fault of the kernel:
// on a device it would hang or compute with anything.
#pragma once
#include <math.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static  // blocks run in turn
#define __launch_bounds__(threads)

struct int4 { int x, y, z, w; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct Place { unsigned x; };

namespace simulation {

enum Wait { NOTHING, WARP, BLOCK, LEFT };
const unsigned MOST_THREADS = 1024, STACK_BYTES = 1 << 16;

struct Fiber {
  ucontext_t context;
  Wait wait;
  unsigned given;
};

inline Fiber fibers[MOST_THREADS];
inline unsigned taken[MOST_THREADS];  // what fibers gave at their warp's last exchange
inline ucontext_t scheduler;
inline unsigned current;
inline void (*body)(void **);
inline void **arguments;

inline void wait(Wait what) {
  Fiber &own = fibers[current];
  own.wait = what;
  swapcontext(&own.context, &scheduler);
}

inline void fiber() {
  body(arguments);
  fibers[current].wait = LEFT;
  swapcontext(&fibers[current].context, &scheduler);
}

// Lets fibers [begin, end) go on if all of them wait for `what`; whether some were let go.
inline bool released(unsigned begin, unsigned end, Wait what) {
  for (unsigned i = begin; i < end; ++i)
    if (fibers[i].wait != what) return false;
  for (unsigned i = begin; i < end; ++i) {
    fibers[i].wait = NOTHING;
    taken[i] = fibers[i].given;
  }
  return true;
}

}  // namespace simulation

inline Place threadIdx, blockIdx;

namespace simulation {

// 0, or 1 where threads wait for others that never come.
inline int run(unsigned blocks, unsigned threads, void (*kernel)(void **), void **parameters) {
  static char *stacks = new char[(size_t)MOST_THREADS * STACK_BYTES];
  body = kernel;
  arguments = parameters;
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    for (unsigned i = 0; i < threads; ++i) {
      getcontext(&fibers[i].context);
      fibers[i].context.uc_stack.ss_sp = stacks + (size_t)i * STACK_BYTES;
      fibers[i].context.uc_stack.ss_size = STACK_BYTES;
      fibers[i].context.uc_link = nullptr;
      makecontext(&fibers[i].context, fiber, 0);
      fibers[i].wait = NOTHING;
    }
    for (bool goes_on = true; goes_on;) {
      unsigned left = 0;
      for (unsigned i = 0; i < threads; ++i) {
        if (fibers[i].wait == NOTHING) {
          threadIdx.x = current = i;
          swapcontext(&scheduler, &fibers[i].context);
        }
        left += fibers[i].wait == LEFT;
      }
      if (left == threads) break;
      goes_on = released(0, threads, BLOCK);
      for (unsigned i = 0; i < threads; i += 32) goes_on |= released(i, i + 32, WARP);
      if (!goes_on) return 1;
    }
  }
  return 0;
}

template <class... Types, size_t... Index>
void call(void (*kernel)(Types...), void **at, std::index_sequence<Index...>) {
  kernel(*(Types *)at[Index]...);
}

template <class... Types>
void call(void (*kernel)(Types...), void **at) {
  call(kernel, at, std::index_sequence_for<Types...>());
}

}  // namespace simulation

#define SIMULATED(kernel)                                                               \
  extern "C" int simulate_##kernel(unsigned blocks, unsigned threads, void **arguments) { \
    return simulation::run(                                                             \
        blocks, threads, [](void **at) { simulation::call(kernel, at); }, arguments);   \
  }

inline float __uint_as_float(unsigned bits) { float v; memcpy(&v, &bits, 4); return v; }
inline unsigned __float_as_uint(float v) { unsigned bits; memcpy(&bits, &v, 4); return bits; }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }

inline unsigned __shfl_xor_sync(unsigned, unsigned v, int step) {
  simulation::fibers[threadIdx.x].given = v;
  simulation::wait(simulation::WARP);
  return simulation::taken[threadIdx.x ^ step];
}
inline float __shfl_xor_sync(unsigned mask, float v, int step) {
  return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(v), step));
}
inline unsigned __reduce_max_sync(unsigned, unsigned v) {
  simulation::fibers[threadIdx.x].given = v;
  simulation::wait(simulation::WARP);
  for (unsigned i = threadIdx.x / 32 * 32, end = i + 32; i < end; ++i)
    v = simulation::taken[i] > v ? simulation::taken[i] : v;
  return v;
}
inline void __syncthreads() { simulation::wait(simulation::BLOCK); }

// What machine.cuh says in the device's own instructions.
inline float float_of_half(unsigned short bits) { _Float16 v; memcpy(&v, &bits, 2); return v; }
inline unsigned short half_of_float(float v) {
  const _Float16 half = v;
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}
inline int int8_of_float(float v) {
  v = nearbyintf(v);
  return v != v ? 0 : v > 127 ? 127 : v < -128 ? -128 : (int)v;
}
inline unsigned e4m3(float v) {
  const unsigned sign = __float_as_uint(v) >> 31 << 7;
  const float size = fabsf(v);
  if (v != v) return sign | 0x7f;
  if (size >= 448) return sign | 0x7e;
  // Codes count steps from 0: eight for each power of two from 2^-6 on, and as fine below it.
  int power = size < 0x1p-6f ? -6 : ilogbf(size);
  return sign | ((power + 6) * 8 + (unsigned)nearbyintf(ldexpf(size, 3 - power)));
}
inline unsigned short e4m3_pair(float first, float second) {
  return e4m3(first) | e4m3(second) << 8;
}
