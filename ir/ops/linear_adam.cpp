#include "ir/ops/linear_update_shared.h"

namespace graven::ir {

static void infer_linear_adam(InferContext& c) {
  ops::require_unit_interval(c, {"beta1", "beta2"});
  ops::infer_linear_update(c, 3, c.attributes.flag("amsgrad"));
}

extern const OpDef kLinearAdam;
const OpDef kLinearAdam{
    .name = "linear_adam",
    .doc =
        "linear_backward_weight and adam in one: dw[n, k] = dy[m, n]^T x[m, k] updates the parameter where it is "
        "computed and is not kept; "
        "db[n] = the sum of dy over rows. With taps the parameter is [n, k, taps], of which dw is one tap's gradient "
        "and 0 the others'. Made by the "
        "pass fuse_updates.",
    .inputs = {{.name = "param", .role = InputRole::parameter},
               {.name = "m", .role = InputRole::state},
               {.name = "v", .role = InputRole::state},
               {.name = "max_v", .role = InputRole::state, .optional = true},
               {"dy"},
               {"x"},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = ops::linear_update_attributes(ops::adam_attributes()),
    .outputs = {"db"},
    .infer = infer_linear_adam,
    .kernel =
        [](const NodeView& node) {
          return ops::linear_update_call(node, "linear_adam", 3, ops::adam_options(node.attributes()));
        },
    .cost = [](const NodeView& node) { return ops::linear_update_cost(node, 3, 12); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](const std::string& note, DType dtype, std::int64_t step, const Attributes& attributes,
                               Shape dy, Shape x) {
            ops::add_linear_update_cases(cases, note, dtype, step, 3, attributes.find("amsgrad") != nullptr, attributes,
                                         std::move(dy), std::move(x));
          };
          add("first step", DType::f32, 1, {}, {5, 3}, {5, 7});
          add("decoupled", DType::f32, 3, {{"weight_decay", 0.1}, {"decoupled", true}}, {33, 48}, {33, 64});
          add("amsgrad, rank 3", DType::f32, 3, {{"amsgrad", true}}, {2, 3, 4}, {2, 3, 5});
          add("many columns", DType::f32, 100, {{"weight_decay", 0.1}, {"maximize", true}}, {40, 29}, {40, 1100});
          add("without bias correction", DType::f32, 2, {{"do_bias_correction", false}}, {70, 9}, {70, 40});
          add("one tap of 9", DType::f32, 2,
              {{"weight_decay", 0.1}, {"amsgrad", true}, {"taps", std::int64_t{9}}, {"tap", std::int64_t{4}}}, {70, 20},
              {70, 300});
          add("first tap of 2", DType::f32, 1, {{"taps", std::int64_t{2}}}, {3, 4}, {3, 5});
          add("one weight", DType::f32, 2, {}, {1, 1}, {1, 1});
          add("no rows", DType::f32, 2, {}, {0, 4}, {0, 5});
          for (const DType d : ops::kFloats) add(std::string(name(d)), d, 7, {}, {4, 3}, {4, 6});
          return cases;
        },
};

}  // namespace graven::ir
