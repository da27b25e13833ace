#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_sgd(InferContext& c) {
  const bool momentum = c.attributes.number("momentum") != 0;
  ops::check_optimizer(c, {"params", "grads", momentum ? "momentum_buffers" : ""});
  c.require(
      !c.attributes.flag("nesterov") || (c.attributes.number("momentum") > 0 && c.attributes.number("dampening") == 0),
      "Nesterov momentum requires a momentum and zero dampening");
}

extern const OpDef kSgd;
const OpDef kSgd{
    .name = "sgd",
    .doc =
        "Stochastic gradient descent, torch.optim.SGD: g = grad (negated to maximize) + weight_decay * param; with "
        "momentum buf = g in step 1, then "
        "momentum * buf + (1 - dampening) * g, and g = g + momentum * buf (Nesterov) or buf; param -= lr * g.",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "momentum_buffers", .role = InputRole::state, .optional = true, .variadic = true},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = ops::sgd_attributes(),
    .infer = infer_sgd,
    .kernel =
        [](const NodeView& node) {
          return KernelCall{
              .name = "sgd", .config = ops::sgd_options(node.attributes()), .reference = !ops::parameters_f32(node)};
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 4); },
    .amp = AmpClass::black,
    .change_is_proportional = true,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t step, Attributes attributes) {
            const bool momentum = attributes.find("momentum") != nullptr;
            cases.push_back(
                ops::optimizer_case(std::move(note), d, step, {true, true, momentum}, std::move(attributes)));
          };
          add("plain", DType::f32, 1, {});
          add("weight decay, maximize", DType::f32, 3, {{"weight_decay", 0.1}, {"maximize", true}});
          add("momentum, first step", DType::f32, 1, {{"momentum", 0.9}, {"dampening", 0.5}});
          add("momentum, later", DType::f32, 2, {{"momentum", 0.9}, {"dampening", 0.5}});
          add("nesterov", DType::f32, 5, {{"momentum", 0.9}, {"nesterov", true}});
          add("f64", DType::f64, 2, {{"momentum", 0.9}});
          return cases;
        },
};

}  // namespace graven::ir
