// int32 sums [rows, WIDTH] · row's scale · column's scale + bias → 16-bit rows.
#include "rows.cuh"

KERNEL dequantise_bias(const void *__restrict__ sums, const float *__restrict__ row_scales,
                       const float4 *__restrict__ column_scales, const float4 *__restrict__ bias,
                       uint2 *__restrict__ out, int rows) {
  if (own_row() >= rows) return;
  Held v;
  load_product(v, sums, row_scales, column_scales, bias);
  store_wide(v, out);
}
