#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void infer_rmsprop(InferContext& c) {
  c.require(c.attributes.number("alpha") >= 0 && c.attributes.number("alpha") <= 1,
            [&] { return "'alpha' must lie in [0, 1], got " + ops::text_of(c.attributes.number("alpha")); });
  ops::check_optimizer(c,
                       {"params", "grads", "square_avg", c.attributes.flag("centered") ? "grad_avg" : "",
                        c.attributes.number("momentum") != 0 ? "momentum_buffers" : ""},
                       ops::Scalars::rate);
}

extern const OpDef kRmsprop;
const OpDef kRmsprop{
    .name = "rmsprop",
    .doc =
        "RMSprop (Hinton 2012; centered: Graves 2013), torch.optim.RMSprop: g = grad (negated to maximize) + "
        "weight_decay * param; "
        "square_avg = alpha * square_avg + (1 - alpha) * g^2; centered: grad_avg += (1 - alpha) * (g - grad_avg), "
        "variance = square_avg - "
        "grad_avg^2, "
        "0 where it rounds below; otherwise variance = square_avg; change = g / (sqrt(variance) + eps); with momentum "
        "buf = momentum * buf + change "
        "and "
        "change = buf; param -= lr * change.",
    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true},
               {.name = "square_avg", .role = InputRole::state, .variadic = true},
               {.name = "grad_avg", .role = InputRole::state, .optional = true, .variadic = true},
               {.name = "momentum_buffers", .role = InputRole::state, .optional = true, .variadic = true},
               {"lr", InputRole::rate}},
    .attributes = {{"alpha", AttributeType::number, 0.99, "decay of the means"},
                   {"eps", AttributeType::number, 1e-8, "added to the root"},
                   {"weight_decay", AttributeType::number, 0.0, "L2 penalty"},
                   {"momentum", AttributeType::number, 0.0, "decay of the momentum buffers; 0: none, they are absent"},
                   {"centered", AttributeType::boolean, false, "divide by the root of the variance"},
                   {"maximize", AttributeType::boolean, false, "climb instead"}},
    .infer = infer_rmsprop,
    .kernel =
        [](const NodeView& node) {
          const Attributes& a = node.attributes();
          KernelCall call{.name = "rmsprop",
                          .config = {{"alpha", a.number("alpha")},
                                     {"eps", a.number("eps")},
                                     {"weight_decay", a.number("weight_decay")},
                                     {"momentum", a.number("momentum")},
                                     {"centered", a.flag("centered")},
                                     {"maximize", a.flag("maximize")}},
                          .reference = !ops::parameters_f32(node)};
          return call;
        },
    .cost = [](const NodeView& node) { return ops::optimizer_cost(node, 8); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, Attributes attributes) {
            const bool momentum = attributes.find("momentum") != nullptr,
                       centered = attributes.find("centered") != nullptr;
            cases.push_back(ops::optimizer_case(std::move(note), d, {}, {true, true, true, centered, momentum},
                                                std::move(attributes)));
          };
          add("plain", DType::f32, {});
          add("weight decay, maximize", DType::f32, {{"weight_decay", 0.1}, {"maximize", true}, {"eps", 1e-2}});
          add("momentum", DType::f32, {{"momentum", 0.9}});
          add("centered", DType::f32, {{"centered", true}, {"eps", 1.0}});
          add("centered, momentum", DType::f32, {{"centered", true}, {"momentum", 0.5}, {"alpha", 0.9}, {"eps", 1.0}});
          add("f64", DType::f64, {{"momentum", 0.9}});
          return cases;
        },
};

}  // namespace graven::ir
