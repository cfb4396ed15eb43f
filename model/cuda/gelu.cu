// GELU (by erf) of a product [rows, WIDTH] → codes, and a scale a row; nothing wide is written.
#include "rows.cuh"

KERNEL gelu_quantise(const void *__restrict__ product, const float *__restrict__ row_scales,
                     const float4 *__restrict__ column_scales, const float4 *__restrict__ bias,
                     unsigned *__restrict__ codes, float *__restrict__ scales, int rows) {
  if (own_row() >= rows) return;
  Held v;
  load_product(v, product, row_scales, column_scales, bias);
  EVERY_NUMBER {
    const float x = v[c].at[i];
    v[c].at[i] = 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  }
  store_codes(v, codes, scales);
}
