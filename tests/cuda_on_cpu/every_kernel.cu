// Every CUDA kernel, instantiated: what nvcc compiles in compile_test.cpp. It is not run.
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/accumulate_shard.cuh"
#include "kernels/cuda/adafactor.cuh"
#include "kernels/cuda/all_gather.cuh"
#include "kernels/cuda/all_reduce.cuh"
#include "kernels/cuda/arange.cuh"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/binary_cross_entropy.cuh"
#include "kernels/cuda/causal_mask.cuh"
#include "kernels/cuda/clip_factor.cuh"
#include "kernels/cuda/concat.cuh"
#include "kernels/cuda/conv2d.cuh"
#include "kernels/cuda/convert_layout.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/fold_batch_norm.cuh"
#include "kernels/cuda/gather_shards.cuh"
#include "kernels/cuda/group_norm.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/index_on_rank.cuh"
#include "kernels/cuda/layer_norm.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/loss_scale.cuh"
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/nccl.cuh"
#include "kernels/cuda/pad.cuh"
#include "kernels/cuda/pad_border.cuh"
#include "kernels/cuda/pool2d.cuh"
#include "kernels/cuda/predictions.cuh"
#include "kernels/cuda/random.cuh"
#include "kernels/cuda/recurrent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reduce_scatter.cuh"
#include "kernels/cuda/resample.cuh"
#include "kernels/cuda/scalar_math.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/size.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/stage_slot.cuh"
#include "kernels/cuda/steps_ahead.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/sync_batch_norm.cuh"
#include "kernels/cuda/update.cuh"
#include "tests/kernels/rules.h"

namespace graven::kernels {

struct add {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    return x + y;
  }
};
struct greater {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static bool apply(T x, T y) {
    return x > y;
  }
};
struct relu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};
template <>
inline constexpr bool is_relu<relu> = true;
struct every_function {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    using namespace math;
    return exp(x) + expm1(x) + math::log(x) + log2(x) + log10(x) + log1p(x) + tanh(x) + sigmoid(x) + softplus(x) +
           erf(x) + erfc(x) + sin(x) + cos(x) + tan(x) + asin(x) + acos(x) + atan(x) + sinh(x) + cosh(x) + asinh(x) +
           acosh(x) + atanh(x) + math::sqrt(x) + rsqrt(x) + reciprocal(x) + math::pow(x, y) + atan2(x, y) + fmod(x, y) +
           copysign(x, y) + math::max(x, y) + math::min(x, y) + sign(x) + math::abs(x) + floor(x) + ceil(x) + trunc(x) +
           round(x) + divide(x, y) + floor_divide(x, y) + remainder(x, y) + T(math::isnan(x)) + T(math::isinf(x)) +
           T(math::isfinite(x));
  }
};

template <class T>
void every_kernel(CudaContext& context, T* y, const T* x, bool* b, std::int64_t* labels, std::uint8_t* index,
                  const double* rate) {
  const std::int64_t* const_labels = labels;
  const std::uint8_t* const_index = index;
  elementwise<add>(context, elementwise_config{.n = 16}, y, x, x);
  elementwise<every_function>(context, elementwise_config{.n = 16}, y, x, x);
  elementwise<greater>(context, elementwise_config{.n = 16}, b, x, const_labels);
  broadcast<greater>(context, broadcast_config{}, b, x, const_labels);
  fill(context, fill_config{.n = 16, .value = 0}, y);
  strided_copy(context, strided_copy_config{}, y, x);
  strided_add(context, strided_copy_config{}, y, x);
  clip_factor(context, clip_factor_config{.max_norm = 1}, y, 1, &x, labels);
  gradient_norm(context, gradient_norm_config{}, y, 1, &x, labels);
  accumulate(context, accumulate_config{.n = 16}, y, x, const_labels, const_labels, nullptr);
  accumulate_shard(context, accumulate_shard_config{.n = 16}, y, x, const_labels, const_labels, nullptr);
  all_reduce(context, all_reduce_config{.n = 16}, y, const_labels, const_labels);
  reduce_scatter(context, reduce_scatter_config{.n = 16}, y, const_labels, const_labels);
  all_gather(context, all_gather_config{.least = 8}, 1, &y, labels);
  gather_shards(context, gather_shards_config{.n = 16}, y, x);
  convert_layout(context, convert_layout_config{.n = 16, .ranks = 2, .from = -1, .to = 0}, y, x);
  convert_layout(context, convert_layout_config{.n = 16, .ranks = 2, .from = -1, .to = 0}, labels, const_labels);
  index_on_rank(context, index_on_rank_config{.n = 16, .size = 8, .ranks = 2}, labels, b, const_labels);
  argmax_of_team(context, reduce_config{}, labels, x);
  finite_step(context, finite_step_config{}, labels, 1, &x, labels, const_labels, labels);
  concat(context, concat_config{}, y, 1, &x, labels);
  pad(context, pad_config{}, y, x);
  pad_border(context, pad_border_config{}, y, x);
  pad_border_backward(context, pad_border_config{}, y, x);
  resample(context, resample_config{}, y, x);
  resample_backward(context, resample_config{}, y, x);
  arange(context, arange_config{}, y);
  size(context, size_config{}, y);
  gather(context, gather_config{}, y, x, const_labels);
  scatter(context, gather_config{}, y, x, const_labels, x);
  scatter_add(context, gather_config{}, y, x, const_labels, x);
  index_select(context, index_select_config{}, y, x, const_labels);
  index_add(context, index_select_config{}, y, x, const_labels, x);
  index_add(context, index_select_config{}, labels, const_labels, const_labels, nullptr);
  one_hot(context, one_hot_config{}, labels, const_labels);
  random_uniform(context, random_config{}, y, const_labels, const_labels);
  random_normal(context, random_config{}, y, const_labels, const_labels);
  dropout(context, dropout_config{}, y, x, const_labels, const_labels);
  causal_mask(context, causal_mask_config{}, y);
  cumsum(context, scan_config{}, y, x);
  cumsum(context, scan_config{}, labels, const_labels);
  cumprod(context, scan_config{}, y, x);
  cumprod_backward(context, scan_config{}, y, x, x);
  sort(context, sort_config{}, y, labels, x);
  sort(context, sort_config{}, y, nullptr, x);
  sort_backward(context, sort_config{}, y, x, const_labels);
  reduce_sum(context, reduce_config{}, y, x);
  reduce_mean(context, reduce_config{}, y, x);
  reduce_max(context, reduce_config{}, labels, const_labels);
  reduce_min(context, reduce_config{}, y, x);
  reduce_prod(context, reduce_config{}, y, x);
  argmax(context, reduce_config{}, labels, x);
  argmin(context, reduce_config{}, labels, x);
  softmax(context, softmax_config{}, y, x);
  masked_softmax(context, softmax_config{}, y, x);
  causal_softmax(context, causal_softmax_config{}, y, x);
  causal_softmax_backward(context, causal_softmax_config{}, y, x, x);
  log_softmax(context, softmax_config{}, y, x);
  softmax_backward(context, softmax_config{}, y, x, x);
  log_softmax_backward(context, softmax_config{}, y, x, x);
  binary_cross_entropy(context, binary_cross_entropy_config{}, y, x, x);
  cross_entropy(context, cross_entropy_config{}, y, y, x, const_labels);
  cross_entropy(context, cross_entropy_config{}, y, nullptr, x, const_labels);
  cross_entropy(context, cross_entropy_config{}, y, nullptr, x, const_labels, x);
  cross_entropy_backward(context, cross_entropy_config{}, y, x, x, const_labels);
  batch_norm(context, batch_norm_config{}, y, y, y, y, y, x, x, x, x, x);
  batch_norm(context, batch_norm_config{}, y, nullptr, nullptr, nullptr, nullptr, x, nullptr, nullptr, nullptr,
             nullptr);
  batch_norm_inference(context, batch_norm_config{}, y, x, x, nullptr, x, x);
  batch_norm_backward(context, batch_norm_config{}, y, y, nullptr, x, x, x, x, x);
  sync_batch_norm(context, sync_batch_norm_config{}, y, y, y, y, y, x, x, x, x, x);
  sync_batch_norm_backward(context, sync_batch_norm_config{}, y, y, nullptr, x, x, x, x, x);
  rnn(context, recurrent_config{}, y, y, x, x, x, x, const_labels);
  rnn_backward(context, recurrent_config{}, y, y, y, x, x, x, x, x, const_labels);
  lstm(context, recurrent_config{}, y, y, y, y, y, x, x, x, x, x, x, const_labels);
  lstm(context, recurrent_config{}, y, nullptr, nullptr, nullptr, nullptr, x, x, nullptr, nullptr, nullptr, nullptr,
       nullptr);
  lstm_backward(context, recurrent_config{}, y, y, y, y, y, x, x, x, x, x, x, x, x, x, x, const_labels);
  gru(context, recurrent_config{}, y, y, y, x, x, x, x, const_labels);
  gru_backward(context, recurrent_config{}, y, y, y, y, x, x, x, x, x, x, const_labels);
  layer_norm(context, layer_norm_config{}, y, y, y, x, x, x);
  layer_norm(context, layer_norm_config{}, y, nullptr, nullptr, x, nullptr, nullptr);
  layer_norm_backward(context, layer_norm_config{}, y, y, y, x, x, x, x, x);
  rms_norm(context, layer_norm_config{}, y, y, x, x);
  rms_norm_backward(context, layer_norm_config{}, y, y, x, x, x, x);
  group_norm(context, group_norm_config{}, y, y, y, x, x, x);
  group_norm_backward(context, group_norm_config{}, y, y, y, x, x, x, x, x);
  max_pool2d(context, pool2d_config{}, y, index, x);
  max_pool2d_backward(context, pool2d_config{}, y, x, const_index);
  avg_pool2d(context, pool2d_config{}, y, x);
  avg_pool2d_backward(context, pool2d_config{}, y, x);
  fold_batch_norm(context, fold_batch_norm_config{}, y, y, x, x, x, x, x, x);
  fold_batch_norm(context, fold_batch_norm_config{}, y, nullptr, x, nullptr, nullptr, nullptr, x, x);
  update_parameters<test::momentum_rule>(context, test::momentum_config{}, 1, &y, &x, labels, rate, labels, &y);
  update_parameters_with_norms<over_ranks<test::norms_rule>>(context, test::momentum_config{}, 1, &y, &x, labels, rate,
                                                             labels, &y, &y);
  update_parameters_with_norms<test::norms_rule>(context, test::momentum_config{}, 1, &y, &x, labels, rate, labels, &y,
                                                 &y);
  update_parameters<test::momentum_rule>(context, test::momentum_config{}, 1, &y, &x, labels, rate, labels, x, &y);
  update_parameters_with_norms<test::norms_rule>(context, test::momentum_config{}, 1, &y, &x, labels, rate, labels, x,
                                                 &y, &y);
  adafactor(context, adafactor_config{.eps1 = 1e-7}, 1, &y, &x, &y, &y, &y, labels, rate, labels);
  linear(context, linear_config{}, y, x, x, x);
  linear<relu>(context, linear_config{}, y, x, x, nullptr, nullptr);
  linear<add>(context, linear_config{}, y, x, x, x, x);
  linear_backward_input<add>(context, linear_config{}, y, x, x, x);
  linear_backward_weight(context, linear_config{}, y, y, x, x);
  linear_backward_weight(context, linear_config{}, y, nullptr, x, x);
  matmul<relu>(context, matmul_config{}, y, x, x);
}
template void every_kernel<float>(CudaContext&, float*, const float*, bool*, std::int64_t*, std::uint8_t*,
                                  const double*);
template void every_kernel<double>(CudaContext&, double*, const double*, bool*, std::int64_t*, std::uint8_t*,
                                   const double*);

template <class T>
void every_convolution(CudaContext& context, T* y, const T* x, float* dw) {
  conv2d<relu>(context, conv2d_config{}, y, x, x, x);
  conv2d<add>(context, conv2d_config{}, y, x, x, x, x);
  conv2d_backward_input(context, conv2d_config{}, y, x, x);
  conv2d_backward_weight(context, conv2d_config{}, dw, dw, x, x);
}
template void every_convolution<float>(CudaContext&, float*, const float*, float*);

template <class T>
void every_attention(CudaContext& context, T* y, const T* x, float* wide, const std::int64_t* number) {
  const float* const_wide = wide;
  attention(context, attention_config{.queries = 1, .keys = 1, .size = 1}, y, wide, x, x, x, nullptr, number, number);
  attention_backward(context, attention_config{.queries = 1, .keys = 1, .size = 1}, y, y, y, x, x, x, x, x, x,
                     const_wide, number, number);
}
template void every_attention<float>(CudaContext&, float*, const float*, float*, const std::int64_t*);

template <class T>
void every_half_kernel(CudaContext& context, T* y, const T* x, float* wide, const std::int64_t* index) {
  every_convolution(context, y, x, wide);
  every_attention(context, y, x, wide, index);
  elementwise<relu>(context, elementwise_config{}, y, x);
  elementwise<add>(context, elementwise_config{}, wide, x, x);
  elementwise<add>(context, elementwise_config{}, y, static_cast<const float*>(wide), x);
  broadcast<add>(context, broadcast_config{}, y, x, x);
  fill(context, fill_config{}, y);
  strided_copy(context, strided_copy_config{}, y, x);
  strided_add(context, strided_copy_config{}, y, x);
  concat(context, concat_config{}, y, 1, &x, index);
  pad(context, pad_config{}, y, x);
  gather(context, gather_config{}, y, x, index);
  convert_layout(context, convert_layout_config{.n = 16, .ranks = 2, .from = -1, .to = 0}, y, x);
  index_select(context, index_select_config{}, y, x, index);
  dropout(context, dropout_config{}, y, x, index, index);
  reduce_sum(context, reduce_config{}, y, x);
  reduce_mean(context, reduce_config{}, y, x);
  reduce_max(context, reduce_config{}, y, x);
  reduce_min(context, reduce_config{}, y, x);
  reduce_prod(context, reduce_config{}, y, x);
  linear<relu>(context, linear_config{}, y, x, x, x, nullptr);
  linear<add>(context, linear_config{}, y, x, x, x, x);
  linear_backward_input<add>(context, linear_config{}, y, x, x, x);
  linear_backward_weight(context, linear_config{}, wide, wide, x, x);
  matmul<relu>(context, matmul_config{}, y, x, x);
}
template void every_half_kernel<f16>(CudaContext&, f16*, const f16*, float*, const std::int64_t*);
template void every_half_kernel<bf16>(CudaContext&, bf16*, const bf16*, float*, const std::int64_t*);

}  // namespace graven::kernels
