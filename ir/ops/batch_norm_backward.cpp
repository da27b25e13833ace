#include "ir/ops/batch_norm_shared.h"

namespace graven::ir {

static void infer_batch_norm_backward(InferContext& c) {
  const std::int64_t channels = ops::check_batch_norm_input(c, 1);
  c.require(c.input(0) == c.input(1), "dy and x must be of one type, got " + c.input(0).to_string() + " and " + c.input(1).to_string());
  constexpr std::string_view kNames[] = {"", "", "weight", "mean", "rstd"};
  for (std::size_t i = 2; i < 5; ++i) ops::check_channel_vector(c, i, kNames[i], 1, channels);
  const DType dtype = c.input(1).dtype;
  c.output(dtype, c.input(1).shape);
  for (int i = 0; i < 2; ++i) c.output(dtype, {channels});
}

static KernelCall kernel_batch_norm_backward(const NodeView& node) {
  KernelCall call = ops::batch_norm_call(node, "batch_norm_backward", node.input(1).shape);
  if (!call.reference) call.workspace_bytes = kernels::batch_norm_backward_workspace_bytes(ops::batch_norm_sizes(call));
  return call;
}

extern const OpDef kBatchNormBackward;
const OpDef kBatchNormBackward{
    .name = "batch_norm_backward",
    .doc =
        "dx, dweight, dbias of batch_norm_training: with h = (x - mean) * rstd, dbias = sum dy, dweight = sum dy * h, "
        "dx = weight * rstd * (dy - (dbias + h * dweight) / count).",
    .inputs = {{"dy"}, {"x"}, {.name = "weight", .optional = true}, {"mean"}, {"rstd"}},
    .attributes = ops::batch_norm_attributes(),
    .infer = infer_batch_norm_backward,
    .kernel = kernel_batch_norm_backward,
    .cost = [](const NodeView& node) { return Cost{.flops = 9 * static_cast<double>(node.output().shape.numel().maximum())}; },
    .amp = AmpClass::black,
};

}  // namespace graven::ir
