#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_adam(InferContext& c) {
  ops::require_unit_interval(c, {"beta1", "beta2"});
  ops::check_optimizer(c, {"params", "grads", "m", "v", c.attributes.flag("amsgrad") ? "max_v" : ""});
}

extern const OpDef kAdam;
const OpDef kAdam{
    .name = "adam",
    .doc =
        "Adam (Kingma and Ba 2014) and, decoupled, AdamW (Loshchilov and Hutter 2017), torch.optim.Adam and AdamW: g = "
        "grad (negated to maximize); "
        "decoupled: param *= 1 - lr * weight_decay, else g += weight_decay * param; m = beta1 * m + (1 - beta1) * g; "
        "v = beta2 * v + (1 - beta2) * g^2; with amsgrad v is replaced below by max_v = max(max_v, v); "
        "param -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps), without bias correction lr * m / "
        "(sqrt(v) + eps).",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "m", .role = InputRole::state, .variadic = true},
               {.name = "v", .role = InputRole::state, .variadic = true},
               {.name = "max_v", .role = InputRole::state, .optional = true, .variadic = true},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = ops::adam_attributes(),
    .infer = infer_adam,
    .kernel =
        [](const NodeView& node) {
          return KernelCall{
              .name = "adam", .config = ops::adam_options(node.attributes()), .reference = !ops::parameters_f32(node)};
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 12); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t step, Attributes attributes) {
            const bool amsgrad = attributes.find("amsgrad") != nullptr;
            cases.push_back(ops::optimizer_case(std::move(note), d, step, {true, true, true, true, amsgrad},
                                                std::move(attributes)));
          };
          add("first step", DType::f32, 1, {});
          add("later", DType::f32, 100, {{"weight_decay", 0.1}});
          add("decoupled", DType::f32, 3, {{"weight_decay", 0.1}, {"decoupled", true}});
          add("amsgrad", DType::f32, 3, {{"amsgrad", true}});
          add("maximize", DType::f32, 2, {{"maximize", true}});
          add("without bias correction", DType::f32, 2, {{"do_bias_correction", false}});
          add("f64", DType::f64, 7, {});
          return cases;
        },
};

}  // namespace graven::ir
