#include "codegen/targets/cuda/kernels.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "codegen/lowering/lowering.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "kernels/config/attention.h"

namespace graven::codegen {

namespace {

struct CudaKernel {
  std::string_view name;
  bool product = false;  ///< a library's matrix product or convolution: its result may not lie over an input
  bool images = false;   ///< NHWC, of floating types
  bool half = false;     ///< in half types, too
  bool wide = true;      ///< in double, too
};

/// What kernels/cuda has.
constexpr CudaKernel kCudaKernels[] = {
    {.name = "elementwise", .half = true},
    {.name = "broadcast", .half = true},
    {.name = "fill", .half = true},
    {.name = "strided_copy", .half = true},
    {.name = "strided_add", .half = true},
    {.name = "concat", .half = true},
    {.name = "pad", .half = true},
    {"pad_border"},
    {"pad_border_backward"},
    {"resample"},
    {"resample_backward"},
    {"arange"},
    {"size"},
    {.name = "gather", .half = true},
    {"scatter"},
    {"scatter_add"},
    {.name = "index_select", .half = true},
    {"index_add"},
    {"one_hot"},
    {"random_uniform"},
    {"random_normal"},
    {.name = "dropout", .half = true},
    {"causal_mask"},
    {"cumsum"},
    {"cumprod"},
    {"cumprod_backward"},
    {"sort"},
    {"sort_backward"},
    {.name = "reduce_sum", .half = true},
    {.name = "reduce_mean", .half = true},
    {.name = "reduce_max", .half = true},
    {.name = "reduce_min", .half = true},
    {.name = "reduce_prod", .half = true},
    {"argmax"},
    {"argmin"},
    {"softmax"},
    {"masked_softmax"},
    {"causal_softmax"},
    {"causal_softmax_backward"},
    {"log_softmax"},
    {"softmax_backward"},
    {"log_softmax_backward"},
    {"binary_cross_entropy"},
    {"cross_entropy"},
    {"cross_entropy_backward"},
    {"batch_norm"},
    {"batch_norm_inference"},
    {"batch_norm_backward"},
    {"sync_batch_norm"},
    {"sync_batch_norm_backward"},
    {"fold_batch_norm"},
    {"layer_norm"},
    {"layer_norm_backward"},
    {"rms_norm"},
    {"rms_norm_backward"},
    {"group_norm"},
    {"group_norm_backward"},
    {"rnn"},
    {"rnn_backward"},
    {"lstm"},
    {"lstm_backward"},
    {"gru"},
    {"gru_backward"},
    {"max_pool2d"},
    {"max_pool2d_backward"},
    {"avg_pool2d"},
    {"avg_pool2d_backward"},
    {.name = "linear", .product = true, .half = true},
    {.name = "linear_backward_input", .product = true, .half = true},
    {.name = "linear_backward_weight", .product = true, .half = true},
    {.name = "matmul", .product = true, .half = true},
    {.name = "attention", .half = true, .wide = false},
    {.name = "attention_backward", .half = true, .wide = false},
    {.name = "conv2d", .product = true, .images = true, .half = true},
    {.name = "conv2d_backward_input", .product = true, .images = true, .half = true},
    {.name = "conv2d_backward_weight", .product = true, .images = true, .half = true},
    {"clip_factor"},
    {"gradient_norm"},
    {"accumulate"},
    {"accumulate_shard"},
    {"all_reduce"},
    {"reduce_scatter"},
    {"all_gather"},
    {"gather_shards"},
    {.name = "convert_layout", .half = true},
    {"index_on_rank"},
    {"finite_step"},
    {"update_loss_scale"},
    {.name = "update_parameters", .half = true},
    {.name = "update_parameters_with_norms", .half = true},
    {"adafactor"},
};

const CudaKernel* find_cuda_kernel(std::string_view name) {
  const auto* found = std::find_if(std::begin(kCudaKernels), std::end(kCudaKernels),
                                   [&](const CudaKernel& k) { return k.name == name; });
  return found == std::end(kCudaKernels) ? nullptr : found;
}

/// The first value whose type the kernel does not take, or kNone.
ir::ValueId uncovered(const ir::NodeView& node, const CudaKernel& kernel) {
  for (const auto* list : {&node.node.inputs, &node.node.outputs})
    for (const ir::ValueId v : *list) {
      if (v == ir::kNone || node.graph.value(v).kind == ir::ValueKind::hyper) continue;
      const ir::DType dtype = node.graph.type(v).dtype;
      if (ir::is_half(dtype) ? !kernel.half : kernel.images && !ir::is_floating(dtype)) return v;
      if (dtype == ir::DType::f64 && !kernel.wide) return v;
    }
  return ir::kNone;
}

[[noreturn]] void refuse(const ir::NodeView& node, const std::string& message) {
  UserError error(message);
  for (const ir::Origin& origin : node.node.origins)
    if (!origin.module.empty()) {
      error.in(origin.module, std::string(node.node.op->name));
      break;
    }
  throw error.at(node.node.origins);
}

ir::ConfigField* find_field(ir::KernelCall& call, std::string_view name) {
  const auto found =
      std::find_if(call.config.begin(), call.config.end(), [&](const auto& f) { return f.first == name; });
  return found == call.config.end() ? nullptr : &found->second;
}

/// Of a call that the library of products computes, by whichever algorithm: its dtype and sizes; empty: of any other.
std::string product_key(const ir::NodeView& node, ir::KernelCall& call) {
  if (find_field(call, "algorithm") == nullptr) return {};
  if (const ir::ConfigField* groups = find_field(call, "groups");
      groups != nullptr && *groups != ir::ConfigField(ir::Dim(1)) && *groups == *find_field(call, "in_channels") &&
      *groups == *find_field(call, "out_channels") && node.input(0).dtype == ir::DType::f32)
    return {};  // depthwise: no product
  if (ir::ConfigField* measured = find_field(call, "measured"); measured != nullptr && std::get<bool>(*measured))
    return {};
  std::string key = call.name + " " + std::string(ir::name(node.input(0).dtype));
  for (const auto& [name, value] : call.config) {
    if (name == "algorithm" || name == "measured") continue;
    if (const auto* size = std::get_if<ir::Dim>(&value)) key += " " + name + "=" + size->to_string();
    if (const auto* flag = std::get_if<bool>(&value); flag != nullptr && *flag) key += " " + name;
  }
  return key;
}

/// Of those that the library recommends (kernels/cuda/cublas_lt.cuh, kMeasured).
constexpr std::int64_t kAlgorithms = 8;
std::string name_of_algorithm(std::int64_t place) { return "algorithm " + std::to_string(place); }

}  // namespace

bool takes_half_on_cuda(const ir::NodeView& node) {
  const CudaKernel* const kernel = find_cuda_kernel(kernel_call(node).name);
  return kernel == nullptr || kernel->half;
}

ir::KernelCall lower_for_cuda(const ir::NodeView& node) {
  ir::KernelCall call = kernel_call(node);
  if (call.name.empty()) return call;
  const CudaKernel* const kernel = find_cuda_kernel(call.name);
  if (kernel == nullptr || node.node.is(ir::kFusedReduction))
    refuse(node, std::string(node.node.op->name) + " has no CUDA kernel (" + call.name + "): emit for the CPU");
  if (const ir::ValueId v = uncovered(node, *kernel); v != ir::kNone)
    refuse(node, "the CUDA kernel " + call.name + " does not take " + node.graph.type(v).to_string() + " (" +
                     node.graph.value(v).name + "): convert with to(f32)");
  if (kernel->images && !node.attributes().flag("channels_last"))
    refuse(node, "the CUDA kernel " + call.name + " takes NHWC images: the pass choose_layout must run");
  if (const ir::ConfigField* size = find_field(call, "size");
      call.file == "attention" && std::get<ir::Dim>(*size).maximum() > kernels::kMostAttentionSize)
    refuse(node, "the CUDA kernel " + call.name + " takes queries of up to " +
                     std::to_string(kernels::kMostAttentionSize) + " numbers, got " +
                     std::get<ir::Dim>(*size).to_string());
  if (kernel->product) call.in_place.clear();
  if (ir::ConfigField* field = find_field(call, "measured")) *field = node.graph.flag(ir::kMeasuredConvolutions);
  if (ir::ConfigField* field = find_field(call, "tf32"))
    *field = node.graph.flag(ir::kAllowTf32) && node.input(0).dtype == ir::DType::f32;
  if (const std::string key = product_key(node, call); ir::has_tuned(node.graph) && !key.empty()) {
    const std::string chosen = ir::tuned(node.graph, key);
    for (std::int64_t place = 0; place < kAlgorithms; ++place)
      if (chosen == name_of_algorithm(place)) *find_field(call, "algorithm") = ir::Dim(place);
  }
  return call;
}

std::vector<ir::Choice> cuda_choices(const ir::Graph& graph) {
  std::vector<ir::Choice> choices;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::NodeView node{graph, graph.nodes[n]};
    ir::KernelCall call = lower_for_cuda(node);
    const std::string key = product_key(node, call);
    if (key.empty()) continue;
    const std::int64_t place = std::get<ir::Dim>(*find_field(call, "algorithm")).value();
    ir::Choice choice{key, {}, name_of_algorithm(place), {static_cast<ir::NodeId>(n)}};
    for (std::int64_t p = 0; p < kAlgorithms; ++p) choice.candidates.push_back(name_of_algorithm(p));
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace graven::codegen
