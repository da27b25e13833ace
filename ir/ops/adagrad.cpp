#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_adagrad(InferContext& c) { ops::check_optimizer(c, {"params", "grads", "sums"}); }

extern const OpDef kAdagrad;
const OpDef kAdagrad{
    .name = "adagrad",
    .doc =
        "Adagrad (Duchi, Hazan and Singer 2011), torch.optim.Adagrad: g = grad (negated to maximize) + weight_decay * "
        "param; "
        "sum = (initial_accumulator_value in step 1, later sum) + g^2; param -= lr / (1 + (step - 1) * lr_decay) * g / "
        "(sqrt(sum) + eps).",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "sums", .role = InputRole::state, .variadic = true},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = {{"lr_decay", AttributeType::number, 0.0, "of the rate"},
                   {"eps", AttributeType::number, 1e-10, "added to the root"},
                   {"weight_decay", AttributeType::number, 0.0, "L2 penalty"},
                   {"initial_accumulator_value", AttributeType::number, 0.0, "where the sums start"},
                   {"maximize", AttributeType::boolean, false, "climb instead"}},
    .infer = infer_adagrad,
    .kernel =
        [](const NodeView& node) {
          const Attributes& a = node.attributes();
          KernelCall call{.name = "adagrad",
                          .config = {{"lr_decay", a.number("lr_decay")},
                                     {"eps", a.number("eps")},
                                     {"weight_decay", a.number("weight_decay")},
                                     {"initial_accumulator_value", a.number("initial_accumulator_value")},
                                     {"maximize", a.flag("maximize")}},
                          .reference = !ops::parameters_f32(node)};
          return call;
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 6); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t step, Attributes attributes) {
            cases.push_back(ops::optimizer_case(std::move(note), d, step, {true, true, true}, std::move(attributes)));
          };
          add("first step", DType::f32, 1, {{"initial_accumulator_value", 0.5}});
          add("later", DType::f32, 20, {{"lr_decay", 0.1}});
          add("weight decay, maximize", DType::f32, 3, {{"weight_decay", 0.1}, {"maximize", true}});
          add("f64", DType::f64, 2, {});
          return cases;
        },
};

}  // namespace graven::ir
