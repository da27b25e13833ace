#include "kernels/config/lamb.h"

#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_lamb(InferContext& c) {
  ops::require_unit_interval(c, {"beta1", "beta2"});
  ops::check_optimizer(c, {"params", "grads", "m", "v"});
}

extern const OpDef kLamb;
const OpDef kLamb{
    .name = "lamb",
    .doc =
        "LAMB (You et al. 2020, algorithm 2): g = grad (negated to maximize), unless decoupled + weight_decay * param; "
        "m += (1 - beta1) * (g - m); "
        "v = beta2 * v + (1 - beta2) * g^2; r = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps), without "
        "bias correction m / (sqrt(v) + "
        "eps), "
        "decoupled + weight_decay * param; param -= lr * |param| / |r| * r, the norms being the tensor's; the ratio is "
        "1 where either is 0.",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "m", .role = InputRole::state, .variadic = true},
               {.name = "v", .role = InputRole::state, .variadic = true},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = {{"beta1", AttributeType::number, 0.9, "decay of the mean of gradients"},
                   {"beta2", AttributeType::number, 0.999, "decay of the mean of squared gradients"},
                   {"eps", AttributeType::number, 1e-8, "added to the root"},
                   {"weight_decay", AttributeType::number, 0.0, "decay when decoupled, or L2 penalty"},
                   {"decoupled", AttributeType::boolean, true, "decay enters the direction, not the gradient"},
                   {"do_bias_correction", AttributeType::boolean, true, "divide the means by 1 - beta^step"},
                   {"maximize", AttributeType::boolean, false, "climb instead"}},
    .infer = infer_lamb,
    .kernel =
        [](const NodeView& node) {
          const Attributes& a = node.attributes();
          KernelCall call{.name = "lamb",
                          .config = {{"beta1", a.number("beta1")},
                                     {"beta2", a.number("beta2")},
                                     {"eps", a.number("eps")},
                                     {"weight_decay", a.number("weight_decay")},
                                     {"decoupled", a.flag("decoupled")},
                                     {"do_bias_correction", a.flag("do_bias_correction")},
                                     {"maximize", a.flag("maximize")}},
                          .reference = !ops::parameters_f32(node)};
          if (!call.reference) {
            const InputRange params = input_range(*node.node.op, node.input_count(), 0);
            std::int64_t pieces = 0;
            for (std::size_t i = 0; i < params.count; ++i)
              pieces += kernels::lamb_pieces(node.input(i).shape.numel().maximum());
            call.workspace_bytes = kernels::lamb_workspace_bytes(pieces, static_cast<std::int64_t>(params.count));
          }
          return call;
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 22); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t step, Attributes attributes) {
            cases.push_back(
                ops::optimizer_case(std::move(note), d, step, {true, true, true, true}, std::move(attributes)));
          };
          add("first step", DType::f32, 1, {});
          add("later, weight decay", DType::f32, 100, {{"weight_decay", 0.1}});
          add("coupled", DType::f32, 3, {{"weight_decay", 0.1}, {"decoupled", false}});
          add("without bias correction, maximize", DType::f32, 3, {{"do_bias_correction", false}, {"maximize", true}});
          add("f64", DType::f64, 7, {{"weight_decay", 0.01}});
          return cases;
        },
};

}  // namespace graven::ir
