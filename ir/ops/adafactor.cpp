#include <algorithm>

#include "ir/ops/optimizer_shared.h"
#include "ir/optimizer_kind.h"
#include "kernels/config/adafactor.h"

namespace graven::ir {

namespace {

/// What the kernel works on: the last two dimensions are a matrix. Of a parameter without elements there is none.
std::vector<Dim> sizes_of(const Shape& shape) {
  if (shape.numel().maximum() == 0) return std::vector<Dim>(3, Dim(0));
  if (shape.rank() < 2) return {1, 1, shape.numel()};
  return {ops::product(shape, 0, shape.rank() - 2), shape.back(1), shape.back()};
}

KernelCall kernel(const NodeView& node) {
  const Attributes& a = node.attributes();
  const InputRange params = input_range(node.node, InputRole::parameter);
  const DType dtype = params.count > 0 ? node.input(0).dtype : DType::f32;
  const double eps1 = a.number("eps1");
  KernelCall call{.name = "adafactor",
                  .config = {{"beta2_decay", a.number("beta2_decay")},
                             {"eps1", eps1 < 0 ? epsilon_of(dtype) : eps1},
                             {"eps2", a.number("eps2")},
                             {"d", a.number("d")},
                             {"weight_decay", a.number("weight_decay")},
                             {"maximize", a.flag("maximize")}},
                  .reference = dtype != DType::f32};
  std::int64_t matrices = 0, pieces = 0;
  for (std::size_t i = 0; i < params.count; ++i) {
    const Shape& shape = node.input(i).shape;
    const std::vector<Dim> sizes = sizes_of(shape);
    call.sizes.insert(call.sizes.end(), sizes.begin(), sizes.end());
    const std::int64_t numbers[] = {sizes[0].maximum(), sizes[1].maximum(), sizes[2].maximum()};
    constexpr std::int64_t kPiece = kernels::adafactor_shape::kPieceRows;
    matrices += numbers[0];
    pieces += (kernels::adafactor_shape(numbers).row_count(shape.rank() >= 2) + kPiece - 1) / kPiece;
  }
  if (!call.reference)
    call.workspace_bytes = std::max<std::int64_t>(kernels::adafactor_workspace_bytes(matrices, pieces), 8);
  return call;
}

/// Of an element: two squares into sums, the estimate, its root, u and its square, the step.
Cost cost(const NodeView& node) { return ops::update_cost(node, 14); }

std::string_view refusal(const std::function<double(std::string_view)>& option) {
  const double eps1 = option("eps1");
  return eps1 >= 0 || eps1 == kEpsilonOfType ? "" : "eps[0] must not be negative";
}

}  // namespace

const OpDef kAdafactor = ops::optimizer({
    .name = "adafactor",
    .doc =
        "Adafactor (Shazeer and Stern 2018), torch.optim.Adafactor: w = step^beta2_decay; of a parameter of two "
        "dimensions or more, for each matrix of its last two, row_var += w * (mean of grad^2 over the row - row_var), "
        "col_var likewise, v = row_var * col_var / max(mean of row_var, eps1); of another variance += w * (grad^2 - "
        "variance), v = variance; u = grad / sqrt(max(v, eps1^2)); param *= 1 - lr * weight_decay; param -= min(lr, 1 "
        "/ sqrt(step)) * max(eps2, rms(param)) / max(1, rms(u) / d) * u (+= to maximize), rms(param) before the decay.",
    .states = {{.name = "row_vars", .key = "row_var", .shape = StateShape::rows},
               {.name = "col_vars", .key = "col_var", .shape = StateShape::columns},
               {.name = "variances", .key = "variance", .shape = StateShape::unfactored}},
    .attributes = {{"beta2_decay", AttributeType::number, -0.8, "the power of the step that the means move by",
                    NumberRange{.most = 0}},
                   {"eps1", AttributeType::number, kEpsilonOfType,
                    "least root of v, and least mean of row_var; -1: the dtype's epsilon", std::nullopt, "eps[0]"},
                   ops::number("eps2", 1e-3, "least rms(param)", ops::kNotNegative, "eps[1]"),
                   ops::number("d", 1, "rms(u) from which on steps are shortened", {.least = 1}),
                   ops::weight_decay("decay of the parameter"),
                   ops::maximize()},
    .refusal = refusal,
    .kernel = kernel,
    .cost = cost,
    .cases = {{"first step"},
              {"later, weight decay", {{"weight_decay", 0.1}}, 100},
              {"short steps, maximize", {{"d", 3.0}, {"beta2_decay", -0.5}, {"maximize", true}}, 3},
              {"large eps", {{"eps1", 0.5}, {"eps2", 0.8}}, 5},
              {"f64", {{"weight_decay", 0.01}}, 7, DType::f64}},
});

}  // namespace graven::ir
