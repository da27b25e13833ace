#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_adadelta(InferContext& c) {
  c.require(c.attributes.number("rho") >= 0 && c.attributes.number("rho") <= 1,
            [&] { return "'rho' must lie in [0, 1], got " + ops::text_of(c.attributes.number("rho")); });
  ops::check_optimizer(c, {"params", "grads", "square_avg", "acc_delta"}, ops::Scalars::rate);
}

extern const OpDef kAdadelta;
const OpDef kAdadelta{
    .name = "adadelta",
    .doc =
        "Adadelta (Zeiler 2012), torch.optim.Adadelta: g = grad (negated to maximize) + weight_decay * param; "
        "square_avg = rho * square_avg + (1 - rho) * g^2; change = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g; "
        "acc_delta = rho * acc_delta + (1 - rho) * change^2; param -= lr * change.",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "square_avg", .role = InputRole::state, .variadic = true},
               {.name = "acc_delta", .role = InputRole::state, .variadic = true},
               {"lr", InputRole::rate}},
    .attributes = {{"rho", AttributeType::number, 0.9, "decay of both means"},
                   {"eps", AttributeType::number, 1e-6, "added below the roots"},
                   {"weight_decay", AttributeType::number, 0.0, "L2 penalty"},
                   {"maximize", AttributeType::boolean, false, "climb instead"}},
    .infer = infer_adadelta,
    .kernel =
        [](const NodeView& node) {
          const Attributes& a = node.attributes();
          KernelCall call{.name = "adadelta",
                          .config = {{"rho", a.number("rho")},
                                     {"eps", a.number("eps")},
                                     {"weight_decay", a.number("weight_decay")},
                                     {"maximize", a.flag("maximize")}},
                          .reference = !ops::parameters_f32(node)};
          return call;
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 12); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, Attributes attributes) {
            cases.push_back(
                ops::optimizer_case(std::move(note), d, {}, {true, true, true, true}, std::move(attributes)));
          };
          add("plain", DType::f32, {});
          add("weight decay, maximize", DType::f32, {{"weight_decay", 0.1}, {"maximize", true}, {"rho", 0.5}});
          add("f64", DType::f64, {{"eps", 1e-3}});
          return cases;
        },
};

}  // namespace graven::ir
