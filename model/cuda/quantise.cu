// 16-bit rows [rows, WIDTH] → codes, and a scale a row.
#include "rows.cuh"

KERNEL quantise(const uint2 *__restrict__ x, unsigned *__restrict__ codes,
                float *__restrict__ scales, int rows) {
  if (own_row() >= rows) return;
  Held v;
  EVERY_CHUNK v[c] = unpacked(x[four(c)]);
  store_codes(v, codes, scales);
}
