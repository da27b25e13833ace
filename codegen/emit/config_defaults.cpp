#include "codegen/emit/config_defaults.h"

#include <type_traits>
#include <vector>

#include "codegen/emit/scalar_text.h"
#include "kernels/config/adafactor.h"
#include "kernels/config/attention.h"
#include "kernels/config/batch_norm.h"
#include "kernels/config/clip_factor.h"
#include "kernels/config/concat.h"
#include "kernels/config/conv2d.h"
#include "kernels/config/conv2d_winograd.h"
#include "kernels/config/cross_entropy.h"
#include "kernels/config/fold_batch_norm.h"
#include "kernels/config/group_norm.h"
#include "kernels/config/index.h"
#include "kernels/config/inverted_residual.h"
#include "kernels/config/layer_norm.h"
#include "kernels/config/linear.h"
#include "kernels/config/matmul.h"
#include "kernels/config/pad.h"
#include "kernels/config/pool2d.h"
#include "kernels/config/recurrent.h"
#include "kernels/config/reduce.h"
#include "kernels/config/resample.h"
#include "kernels/config/scan.h"
#include "kernels/config/softmax.h"
#include "kernels/config/sort.h"
#include "kernels/config/strided_copy.h"
#include "kernels/config/sync_batch_norm.h"

namespace graven::codegen {

namespace {

using Fields = std::map<std::string, std::string>;

template <class T>
std::string text(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_floating_point_v<T>)
    return number_text(value);
  else
    return std::to_string(value);
}

/// What is taken along one dimension: outer rows, inner columns.
template <class Config>
Fields span_of(const Config& c) {
  return {{"outer", text(c.outer)}, {"inner", text(c.inner)}};
}

/// The sizes of pictures, which the packing of weights needs none of.
template <class Config>
Fields pictures_of(const Config& c) {
  return {{"batch", text(c.batch)},
          {"in_height", text(c.in_height)},
          {"in_width", text(c.in_width)},
          {"out_height", text(c.out_height)},
          {"out_width", text(c.out_width)}};
}

template <class Config>
Fields window_of(const Config& c) {
  return {{"kernel_height", text(c.kernel_height)},     {"kernel_width", text(c.kernel_width)},
          {"stride_height", text(c.stride_height)},     {"stride_width", text(c.stride_width)},
          {"padding_height", text(c.padding_height)},   {"padding_width", text(c.padding_width)},
          {"dilation_height", text(c.dilation_height)}, {"dilation_width", text(c.dilation_width)}};
}

/// How CUDA's library computes a product.
template <class Config>
Fields product_of(const Config& c) {
  return {{"tf32", text(c.tf32)}, {"algorithm", text(c.algorithm)}};
}

Fields joined(Fields fields, const std::vector<Fields>& others) {
  for (const Fields& other : others) fields.insert(other.begin(), other.end());
  return fields;
}

std::map<std::string, Fields> all_defaults() {
  using namespace kernels;
  const adafactor_config adafactor{};
  const attention_config attention{};
  const batch_norm_config batch_norm{};
  const sync_batch_norm_config sync_batch_norm{};
  const clip_factor_config clip_factor{};
  const gradient_norm_config gradient_norm{};
  const conv2d_config conv2d{};
  const conv2d_winograd_config winograd{};
  const cross_entropy_config cross_entropy{};
  const fold_batch_norm_config fold_batch_norm{};
  const group_norm_config group_norm{};
  const index_select_config index_select{};
  const layer_norm_config layer_norm{};
  const linear_config linear{};
  const matmul_config matmul{};
  const pad_config pad{};
  const pool2d_config pool2d{};
  const recurrent_config recurrent{};
  const resample_config resample{};
  const scan_config scan{};
  const causal_softmax_config causal_softmax{};
  const sort_config sort{};
  const strided_copy_config strided_copy{};
  return {
      {"adafactor_config",
       {{"beta2_decay", text(adafactor.beta2_decay)},
        {"eps2", text(adafactor.eps2)},
        {"d", text(adafactor.d)},
        {"weight_decay", text(adafactor.weight_decay)},
        {"maximize", text(adafactor.maximize)}}},
      {"attention_config",
       {{"matrices", text(attention.matrices)},
        {"groups", text(attention.groups)},
        {"scale", text(attention.scale)},
        {"causal", text(attention.causal)},
        {"offset", text(attention.offset)},
        {"masked_to_zero", text(attention.masked_to_zero)},
        {"mask_repeats", text(attention.mask_repeats)},
        {"mask_rows", text(attention.mask_rows)},
        {"p", text(attention.p)},
        {"stream", text(attention.stream)},
        {"ranks", text(attention.ranks)},
        {"run", text(attention.run)}}},
      {"batch_norm_config",
       {{"inner", text(batch_norm.inner)}, {"eps", text(batch_norm.eps)}, {"momentum", text(batch_norm.momentum)}}},
      {"sync_batch_norm_config",
       {{"inner", text(sync_batch_norm.inner)},
        {"eps", text(sync_batch_norm.eps)},
        {"momentum", text(sync_batch_norm.momentum)}}},
      {"causal_softmax_config",
       {{"matrices", text(causal_softmax.matrices)},
        {"offset", text(causal_softmax.offset)},
        {"masked_to_zero", text(causal_softmax.masked_to_zero)}}},
      {"clip_factor_config", {{"norm_type", text(clip_factor.norm_type)}}},
      {"gradient_norm_config", {{"norm_type", text(gradient_norm.norm_type)}}},
      {"concat_config", span_of(concat_config{})},
      {"conv2d_config", joined({{"groups", text(conv2d.groups)},
                                {"channels_last", text(conv2d.channels_last)},
                                {"measured", text(conv2d.measured)}},
                               {product_of(conv2d), pictures_of(conv2d), window_of(conv2d)})},
      {"conv2d_winograd_config", joined({{"padding_height", text(winograd.padding_height)},
                                         {"padding_width", text(winograd.padding_width)},
                                         {"tile", text(winograd.tile)}},
                                        {pictures_of(winograd)})},
      {"cross_entropy_config",
       {{"ignore_index", text(cross_entropy.ignore_index)}, {"label_smoothing", text(cross_entropy.label_smoothing)}}},
      {"fold_batch_norm_config", {{"eps", text(fold_batch_norm.eps)}}},
      {"gather_config", {{"dim", text(gather_config{}.dim)}}},
      {"group_norm_config",
       {{"groups", text(group_norm.groups)}, {"inner", text(group_norm.inner)}, {"eps", text(group_norm.eps)}}},
      {"index_select_config", joined({{"skipped", text(index_select.skipped)}}, {span_of(index_select)})},
      {"inverted_residual_config", window_of(inverted_residual_config{})},
      {"layer_norm_config", {{"eps", text(layer_norm.eps)}}},
      {"linear_config", joined({{"packed", text(linear.packed)}}, {product_of(linear)})},
      {"matmul_config", joined({{"batch", text(matmul.batch)},
                                {"a_batch_stride", text(matmul.a_batch_stride)},
                                {"b_batch_stride", text(matmul.b_batch_stride)},
                                {"transpose_a", text(matmul.transpose_a)},
                                {"transpose_b", text(matmul.transpose_b)}},
                               {product_of(matmul)})},
      {"pad_config", {{"value", text(pad.value)}}},
      {"pool2d_config",
       joined({{"count_include_pad", text(pool2d.count_include_pad)}, {"channels_last", text(pool2d.channels_last)}},
              {window_of(pool2d)})},
      {"recurrent_config",
       {{"reverse", text(recurrent.reverse)}, {"relu", text(recurrent.relu)}, {"padded", text(recurrent.padded)}}},
      {"reduce_config", span_of(reduce_config{})},
      {"resample_config", joined({{"align_corners", text(resample.align_corners)}}, {span_of(resample)})},
      {"scan_config", joined({{"reverse", text(scan.reverse)}}, {span_of(scan)})},
      {"softmax_config", span_of(softmax_config{})},
      {"sort_config", joined({{"descending", text(sort.descending)}}, {span_of(sort)})},
      {"strided_copy_config", {{"offset", text(strided_copy.offset)}}},
  };
}

}  // namespace

const std::map<std::string, std::string>& config_defaults(const std::string& config_type) {
  static const std::map<std::string, Fields> all = all_defaults();
  static const Fields none;
  const auto found = all.find(config_type);
  return found == all.end() ? none : found->second;
}

}  // namespace graven::codegen
