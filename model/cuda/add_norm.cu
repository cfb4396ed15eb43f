// LayerNorm(product + residual) · gain + shift of [rows, WIDTH] → 16-bit rows, and their codes.
// Codes are of the rows before they are rounded to 16 bits.
#include "rows.cuh"

__device__ __forceinline__ void add_norm_row(Held &v, const uint2 *residual, const float4 *gain,
                                             const float4 *shift, float eps) {
  float sum = 0.0f, squares = 0.0f;
  EVERY_CHUNK {
    const Four add = unpacked(residual[four(c)]);
    for (int i = 0; i < 4; ++i) sum += v[c].at[i] += add.at[i];
  }
  const float mean = row_sum<0>(sum) * (1.0f / WIDTH);
  EVERY_NUMBER {
    v[c].at[i] -= mean;
    squares += v[c].at[i] * v[c].at[i];
  }
  const float inverse = rsqrtf(row_sum<1>(squares) * (1.0f / WIDTH) + eps);
  EVERY_CHUNK {
    const Four times = four_of(gain[column(c)]), plus = four_of(shift[column(c)]);
    for (int i = 0; i < 4; ++i) v[c].at[i] = v[c].at[i] * inverse * times.at[i] + plus.at[i];
  }
}

KERNEL add_norm_quantise(const void *__restrict__ product, const float *__restrict__ row_scales,
                         const float4 *__restrict__ column_scales,
                         const float4 *__restrict__ bias, const uint2 *__restrict__ residual,
                         const float4 *__restrict__ gain, const float4 *__restrict__ shift,
                         float eps, uint2 *__restrict__ out, unsigned *__restrict__ codes,
                         float *__restrict__ scales, int rows) {
  if (own_row() >= rows) return;
  Held v;
  load_product(v, product, row_scales, column_scales, bias);
  add_norm_row(v, residual, gain, shift, eps);
  store_wide(v, out);
  store_codes(v, codes, scales);
}

KERNEL add_norm(const void *__restrict__ product, const float *__restrict__ row_scales,
                const float4 *__restrict__ column_scales, const float4 *__restrict__ bias,
                const uint2 *__restrict__ residual, const float4 *__restrict__ gain,
                const float4 *__restrict__ shift, float eps, uint2 *__restrict__ out, int rows) {
  if (own_row() >= rows) return;
  Held v;
  load_product(v, product, row_scales, column_scales, bias);
  add_norm_row(v, residual, gain, shift, eps);
  store_wide(v, out);
}
