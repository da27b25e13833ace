#include "ir/ops/optimizer_shared.h"
#include "ir/optimizer_kind.h"

namespace graven::ir {

namespace {

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
    .cost = cost,
    .cases = {{"first step"},
              {"later, weight decay", {{"weight_decay", 0.1}}, 100},
              {"short steps, maximize", {{"d", 3.0}, {"beta2_decay", -0.5}, {"maximize", true}}, 3},
              {"large eps", {{"eps1", 0.5}, {"eps2", 0.8}}, 5},
              {"f64", {{"weight_decay", 0.01}}, 7, DType::f64}},
});

}  // namespace graven::ir
