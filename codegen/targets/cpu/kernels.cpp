#include "codegen/targets/cpu/kernels.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "codegen/lowering/lowering.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/ops/shared.h"
#include "ir/update_rule.h"
#include "kernels/config/adafactor.h"
#include "kernels/config/batch_norm.h"
#include "kernels/config/clip_factor.h"
#include "kernels/config/conv2d.h"
#include "kernels/config/conv2d_bf16.h"
#include "kernels/config/conv2d_winograd.h"
#include "kernels/config/group_norm.h"
#include "kernels/config/layer_norm.h"
#include "kernels/config/linear.h"
#include "kernels/config/linear_bf16.h"
#include "kernels/config/matmul.h"
#include "kernels/config/matmul_bf16.h"
#include "kernels/config/recurrent.h"
#include "kernels/config/sort.h"
#include "kernels/config/sync_batch_norm.h"
#include "kernels/config/update.h"

namespace graven::codegen {

namespace {

using ir::DType;

// ---- the memory that kernels work in, in bytes, at the symbols' maxima ----------------------------------------------

/// A node and its call, whose config's fields are read by name.
struct Lowered {
  const ir::NodeView& node;
  const ir::KernelCall& call;

  const ir::ConfigField& field(std::string_view name) const {
    const auto found =
        std::find_if(call.config.begin(), call.config.end(), [&](const auto& f) { return f.first == name; });
    GRAVEN_CHECK(found != call.config.end(), call.name + " has no field " + std::string(name));
    return found->second;
  }
  std::int64_t operator[](std::string_view name) const { return std::get<ir::Dim>(field(name)).maximum(); }
  bool flag(std::string_view name) const { return std::get<bool>(field(name)); }
};

/// The pieces in which squares are summed up, of the first `count` inputs.
std::int64_t norm_pieces(const ir::NodeView& node, std::size_t count) {
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < count; ++i) pieces += kernels::norm_pieces(node.input(i).shape.numel().maximum());
  return pieces;
}

namespace scratch {

std::int64_t adafactor(const Lowered& c) {
  constexpr std::int64_t kPiece = kernels::adafactor_shape::kPieceRows;
  const std::vector<ir::Dim>& sizes = c.call.sizes;
  std::int64_t matrices = 0, pieces = 0;
  for (std::size_t i = 0; 3 * i < sizes.size(); ++i) {
    const std::int64_t of_one[] = {sizes[3 * i].maximum(), sizes[3 * i + 1].maximum(), sizes[3 * i + 2].maximum()};
    const bool factored = c.node.input(i).shape.rank() >= 2;
    matrices += of_one[0];
    pieces += (kernels::adafactor_shape(of_one).row_count(factored) + kPiece - 1) / kPiece;
  }
  return std::max<std::int64_t>(kernels::adafactor_workspace_bytes(matrices, pieces), 8);
}

std::int64_t batch_norm(const Lowered& c) {
  return kernels::batch_norm_workspace_bytes({.outer = c["outer"], .channels = c["channels"], .inner = c["inner"]});
}

std::int64_t batch_norm_backward(const Lowered& c) {
  return kernels::batch_norm_backward_workspace_bytes(
      {.outer = c["outer"], .channels = c["channels"], .inner = c["inner"]});
}

/// A row for each rank that goes there, and one that comes from there.
std::int64_t convert_layout(const Lowered& c) {
  if (c["from"] == 0) return 0;
  const std::int64_t bytes = static_cast<std::int64_t>(ir::size_of(c.node.input(0).dtype));
  return 2 * (c["n"] + c["ranks"]) * bytes;
}

std::int64_t clip_factor(const Lowered& c) {
  return kernels::clip_factor_workspace_bytes(norm_pieces(c.node, c.node.input_count()));
}

kernels::conv2d_config conv2d_sizes(const Lowered& c) {
  return {.batch = c["batch"],
          .in_height = c["in_height"],
          .in_width = c["in_width"],
          .in_channels = c["in_channels"],
          .out_height = c["out_height"],
          .out_width = c["out_width"],
          .out_channels = c["out_channels"],
          .kernel_height = c["kernel_height"],
          .kernel_width = c["kernel_width"],
          .stride_height = c["stride_height"],
          .stride_width = c["stride_width"],
          .padding_height = c["padding_height"],
          .padding_width = c["padding_width"],
          .dilation_height = c["dilation_height"],
          .dilation_width = c["dilation_width"],
          .groups = c["groups"],
          .channels_last = c.flag("channels_last")};
}
/// What a function of a convolution's config says.
template <std::int64_t (*bytes)(const kernels::conv2d_config&)>
std::int64_t conv2d(const Lowered& c) {
  return bytes(conv2d_sizes(c));
}

std::int64_t conv2d_winograd(const Lowered& c) {
  return kernels::conv2d_winograd_workspace_bytes({.batch = c["batch"],
                                                   .in_height = c["in_height"],
                                                   .in_width = c["in_width"],
                                                   .in_channels = c["in_channels"],
                                                   .out_height = c["out_height"],
                                                   .out_width = c["out_width"],
                                                   .out_channels = c["out_channels"],
                                                   .padding_height = c["padding_height"],
                                                   .padding_width = c["padding_width"],
                                                   .tile = c["tile"]});
}

std::int64_t group_norm_backward(const Lowered& c) {
  return std::max<std::int64_t>(
      64, kernels::group_norm_backward_workspace_bytes({.batch = c["batch"], .channels = c["channels"]}));
}

/// Of layer_norm and rms_norm.
std::int64_t rows_backward(const Lowered& c) {
  return std::max<std::int64_t>(64,
                                kernels::layer_norm_backward_workspace_bytes({.rows = c["rows"], .size = c["size"]}));
}

template <std::int64_t (*bytes)(const kernels::linear_config&)>
std::int64_t linear(const Lowered& c) {
  return bytes({.m = c["m"], .n = c["n"], .k = c["k"]});
}

template <std::int64_t (*bytes)(const kernels::matmul_config&)>
std::int64_t matmul(const Lowered& c) {
  return bytes({.batch = c["batch"],
                .m = c["m"],
                .n = c["n"],
                .k = c["k"],
                .a_batch_stride = c["a_batch_stride"],
                .b_batch_stride = c["b_batch_stride"],
                .transpose_a = c.flag("transpose_a"),
                .transpose_b = c.flag("transpose_b")});
}

kernels::recurrent_config recurrent_sizes(const Lowered& c) {
  return {.steps = c["steps"],
          .batch = c["batch"],
          .hidden = c["hidden"],
          .state = c["state"],
          .reverse = c.flag("reverse"),
          .relu = c.flag("relu"),
          .padded = c.flag("padded")};
}
template <std::int64_t gates>
std::int64_t recurrent(const Lowered& c) {
  return kernels::recurrent_workspace_bytes(recurrent_sizes(c), gates);
}
template <std::int64_t gates>
std::int64_t recurrent_backward(const Lowered& c) {
  return kernels::recurrent_backward_workspace_bytes(recurrent_sizes(c), gates);
}

std::int64_t sort(const Lowered& c) {
  return kernels::sort_workspace_bytes(
      {.outer = c["outer"], .size = c["size"], .inner = c["inner"], .count = 0, .descending = false});
}

std::int64_t sync_batch_norm(const Lowered& c) {
  return kernels::sync_batch_norm_workspace_bytes(
      {.outer = c["outer"], .channels = c["channels"], .inner = c["inner"]});
}

std::int64_t update_with_norms(const Lowered& c) {
  const ir::UpdateRule rule(*c.node.node.op, c.node.attributes(), false);
  const std::size_t parameters = ir::input_range(c.node.node, ir::InputRole::parameter).count;
  const auto norms = static_cast<std::int64_t>(rule.norms().size());
  std::int64_t sums = norm_pieces(c.node, parameters);
  if (c.node.graph.number(ir::kZeroStage)) sums += static_cast<std::int64_t>(parameters);  // and those of all ranks
  return std::max<std::int64_t>(kernels::update_workspace_bytes(sums, norms), 8);
}

}  // namespace scratch

// ---- what they cover ------------------------------------------------------------------------------------------------

enum class Covers : std::uint8_t {
  f32,            ///< where all floating-point numbers are
  parameter,      ///< where the first input is f32
  not_double,     ///< where the first input is not f64
  images,         ///< of f32, as [n, h, w, c]
  last_channels,  ///< of images as [n, h, w, c]
  packed,         ///< where the weights are packed, which only those of its dtype are
  not_half,       ///< all types but f16 and bf16
  all,
  nothing,
};

struct CpuKernel {
  std::string_view name;
  Covers covers;
  std::int64_t (*workspace_bytes)(const Lowered&) = nullptr;
};

/// Of kernels/cpu. What is not listed takes all types, and no scratch memory.
constexpr CpuKernel kCpuKernels[] = {
    {"adafactor", Covers::parameter, scratch::adafactor},
    {"argmax", Covers::f32},
    {"argmin", Covers::f32},
    {"attention", Covers::nothing},
    {"attention_backward", Covers::nothing},
    {"avg_pool2d", Covers::images},
    {"avg_pool2d_backward", Covers::images},
    {"batch_norm", Covers::f32, scratch::batch_norm},
    {"batch_norm_backward", Covers::f32, scratch::batch_norm_backward},
    {"batch_norm_inference", Covers::f32},
    {"binary_cross_entropy", Covers::f32},
    {"causal_mask", Covers::nothing},
    {"causal_softmax", Covers::f32},
    {"causal_softmax_backward", Covers::f32},
    {"clip_factor", Covers::f32, scratch::clip_factor},
    {"conv2d", Covers::packed},
    {"conv2d_backward_input", Covers::packed},
    {"conv2d_backward_weight", Covers::images, scratch::conv2d<kernels::conv2d_backward_weight_workspace_bytes>},
    {"conv2d_winograd", Covers::packed, scratch::conv2d_winograd},
    {"convert_layout", Covers::all, scratch::convert_layout},
    {"cross_entropy", Covers::f32},
    {"cross_entropy_backward", Covers::f32},
    {"fold_batch_norm", Covers::f32},
    {"gather", Covers::nothing},
    {"gradient_norm", Covers::f32, scratch::clip_factor},
    {"group_norm", Covers::f32},
    {"group_norm_backward", Covers::f32, scratch::group_norm_backward},
    {"gru", Covers::f32, scratch::recurrent<3>},
    {"gru_backward", Covers::f32, scratch::recurrent_backward<3>},
    {"index_add", Covers::not_half},
    {"inverted_residual", Covers::packed},
    {"layer_norm", Covers::f32},
    {"layer_norm_backward", Covers::f32, scratch::rows_backward},
    {"linear", Covers::f32},
    {"linear_backward_input", Covers::f32},
    {"linear_backward_weight", Covers::f32, scratch::linear<kernels::linear_backward_weight_workspace>},
    {"linear_update", Covers::parameter},
    {"log_softmax", Covers::f32},
    {"log_softmax_backward", Covers::f32},
    {"lstm", Covers::f32, scratch::recurrent<4>},
    {"lstm_backward", Covers::f32, scratch::recurrent_backward<4>},
    {"masked_softmax", Covers::f32},
    {"matmul", Covers::f32, scratch::matmul<kernels::matmul_workspace>},
    {"max_pool2d", Covers::images},
    {"max_pool2d_backward", Covers::images},
    {"one_hot", Covers::nothing},
    {"random_normal", Covers::nothing},
    {"random_uniform", Covers::nothing},
    {"reduce_max", Covers::f32},
    {"reduce_mean", Covers::f32},
    {"reduce_min", Covers::f32},
    {"reduce_prod", Covers::f32},
    {"reduce_sum", Covers::f32},
    {"rms_norm", Covers::f32},
    {"rms_norm_backward", Covers::f32, scratch::rows_backward},
    {"rnn", Covers::f32, scratch::recurrent<1>},
    {"rnn_backward", Covers::f32, scratch::recurrent_backward<1>},
    {"scatter", Covers::nothing},
    {"scatter_add", Covers::nothing},
    {"size", Covers::nothing},
    {"softmax", Covers::f32},
    {"softmax_backward", Covers::f32},
    {"sort", Covers::all, scratch::sort},
    {"sync_batch_norm", Covers::all, scratch::sync_batch_norm},
    {"sync_batch_norm_backward", Covers::all, scratch::sync_batch_norm},
    {"update_parameters", Covers::not_double},
    {"update_parameters_with_norms", Covers::not_double, scratch::update_with_norms},
};

/// Of bfloat16 numbers, in kernels/cpu/<file>_bf16.h: with packed weights where they have some, of images as [n, h, w,
/// c].
constexpr CpuKernel kBf16Kernels[] = {
    {"conv2d", Covers::packed, scratch::conv2d<kernels::conv2d_bf16_workspace_bytes>},
    {"conv2d_backward_input", Covers::packed, scratch::conv2d<kernels::conv2d_backward_input_bf16_workspace_bytes>},
    {"conv2d_backward_weight", Covers::last_channels,
     scratch::conv2d<kernels::conv2d_backward_weight_bf16_workspace_bytes>},
    {"linear", Covers::packed, scratch::linear<kernels::linear_bf16_workspace>},
    {"linear_backward_input", Covers::packed, scratch::linear<kernels::linear_backward_input_bf16_workspace>},
    {"linear_backward_weight", Covers::all, scratch::linear<kernels::linear_backward_weight_bf16_workspace>},
    {"matmul", Covers::all, scratch::matmul<kernels::matmul_bf16_workspace>},
    {"pack_conv2d_weight", Covers::all},
    {"pack_conv2d_weight_backward", Covers::all},
    {"pack_linear_weight", Covers::all},
    {"pack_linear_weight_transposed", Covers::all},
};

bool is_f32(const ir::TensorType& type) { return !ir::is_floating(type.dtype) || type.dtype == DType::f32; }

bool all_f32(const ir::NodeView& node) {
  for (std::size_t i = 0; i < node.input_count(); ++i)
    if (node.has_input(i) && !is_f32(node.input(i))) return false;
  for (std::size_t i = 0; i < node.node.outputs.size(); ++i)
    if (!is_f32(node.output(i))) return false;
  return true;
}

bool is_covered(const ir::NodeView& node, Covers covers) {
  switch (covers) {
    case Covers::f32:
      return all_f32(node);
    case Covers::parameter:
      return node.input_count() == 0 || node.input(0).dtype == DType::f32;
    case Covers::not_double:
      return node.input(0).dtype != DType::f64;
    case Covers::images:
      return node.attributes().flag("channels_last") && !ir::ops::has_weight_by_channels(node.attributes()) &&
             all_f32(node);
    case Covers::last_channels:
      return node.attributes().flag("channels_last");
    case Covers::packed:
      return node.attributes().flag_or("packed", false);
    case Covers::not_half:
      return node.output().dtype != DType::f16 && node.output().dtype != DType::bf16;
    case Covers::all:
      return true;
    case Covers::nothing:
      return false;
  }
  return false;
}

std::unordered_map<std::string_view, const CpuKernel*> by_name(std::span<const CpuKernel> kernels) {
  std::unordered_map<std::string_view, const CpuKernel*> found;
  for (const CpuKernel& k : kernels) found.emplace(k.name, &k);
  return found;
}

const CpuKernel* find_cpu_kernel(std::string_view name) {
  static const auto kernels = by_name(kCpuKernels);
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}
const CpuKernel* find_cpu_bf16_kernel(const ir::NodeView& node, std::string_view name) {
  static const auto kernels = by_name(kBf16Kernels);
  if (node.input_count() == 0 || !node.has_input(0) || node.input(0).dtype != ir::DType::bf16) return nullptr;
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}

}  // namespace

bool takes_half_on_cpu(const ir::NodeView& node) {
  const ir::KernelCall call = kernel_call(node);
  if (find_cpu_bf16_kernel(node, call.name) != nullptr) return true;
  const CpuKernel* const kernel = find_cpu_kernel(call.name);
  if (kernel == nullptr) return true;
  switch (kernel->covers) {
    case Covers::f32:
    case Covers::images:
    case Covers::last_channels:
    case Covers::packed:
    case Covers::not_half:
      return false;
    case Covers::parameter:  // what an update changes stays where it is
    case Covers::not_double:
    case Covers::all:
    case Covers::nothing:
      return true;
  }
  return true;
}

ir::KernelCall lower_for_cpu(const ir::NodeView& node) {
  ir::KernelCall call = kernel_call(node);
  if (const CpuKernel* bf16 = find_cpu_bf16_kernel(node, call.name);
      bf16 != nullptr && is_covered(node, bf16->covers)) {
    const std::string file = call.file.empty() ? call.name : call.file;
    call.file = file + "_bf16";
    call.config_type = file + "_config";
    if (bf16->workspace_bytes != nullptr) call.workspace_bytes = bf16->workspace_bytes({node, call});
    return call;
  }
  const CpuKernel* const found = find_cpu_kernel(call.name);
  if (found == nullptr) return call;
  const CpuKernel& kernel = *found;
  call.reference = !is_covered(node, kernel.covers);
  // The plain loops of cross entropy read the logits again.
  if (call.reference && node.node.is(ir::kCrossEntropy)) call.over.clear();
  if (!call.reference && kernel.workspace_bytes != nullptr) call.workspace_bytes = kernel.workspace_bytes({node, call});
  return call;
}

}  // namespace graven::codegen

namespace graven::ir {

KernelCall lower(const NodeView& node) { return codegen::lower_for_cpu(node); }
bool takes_half(const NodeView& node) { return codegen::takes_half_on_cpu(node); }

}  // namespace graven::ir
