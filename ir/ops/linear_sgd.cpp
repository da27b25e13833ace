#include "ir/ops/linear_update_shared.h"

namespace graven::ir {

static void infer_linear_sgd(InferContext& c) { ops::infer_linear_update(c, 1, c.attributes.number("momentum") != 0); }

extern const OpDef kLinearSgd;
const OpDef kLinearSgd{
    .name = "linear_sgd",
    .doc =
        "linear_backward_weight and sgd in one: dw[n, k] = dy[m, n]^T x[m, k] updates the parameter where it is "
        "computed and is not kept; "
        "db[n] = the sum of dy over rows. With taps the parameter is [n, k, taps], of which dw is one tap's gradient "
        "and 0 the others'. Made by the "
        "pass fuse_updates.",
    .inputs = {{.name = "param", .role = InputRole::parameter},
               {.name = "momentum_buffer", .role = InputRole::state, .optional = true},
               {"dy"},
               {"x"},
               {"lr", InputRole::rate},
               {"step", InputRole::step}},
    .attributes = ops::linear_update_attributes(ops::sgd_attributes()),
    .outputs = {"db"},
    .infer = infer_linear_sgd,
    .kernel =
        [](const NodeView& node) {
          return ops::linear_update_call(node, "linear_sgd", 1, ops::sgd_options(node.attributes()));
        },
    .cost = [](const NodeView& node) { return ops::linear_update_cost(node, 1, 4); },
    .amp = AmpClass::black,
    .change_is_proportional = true,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](const std::string& note, DType dtype, std::int64_t step, const Attributes& attributes,
                               Shape dy, Shape x) {
            ops::add_linear_update_cases(cases, note, dtype, step, 1, attributes.find("momentum") != nullptr,
                                         attributes, std::move(dy), std::move(x));
          };
          add("plain", DType::f32, 1, {}, {5, 3}, {5, 7});
          add("momentum, first step", DType::f32, 1, {{"momentum", 0.9}, {"weight_decay", 0.1}}, {33, 48}, {33, 64});
          add("nesterov, rank 3", DType::f32, 4, {{"momentum", 0.9}, {"nesterov", true}}, {2, 3, 4}, {2, 3, 5});
          add("many columns", DType::f32, 2, {{"momentum", 0.9}, {"dampening", 0.5}, {"maximize", true}}, {40, 29},
              {40, 1100});
          add("many rows", DType::f32, 1, {{"weight_decay", 0.1}}, {1300, 70}, {1300, 300});
          add("no rows", DType::f32, 1, {}, {0, 4}, {0, 5});
          add("one tap of 9", DType::f32, 2,
              {{"momentum", 0.9}, {"weight_decay", 0.1}, {"taps", std::int64_t{9}}, {"tap", std::int64_t{4}}}, {70, 20},
              {70, 300});
          add("last tap of 2", DType::f32, 1, {{"taps", std::int64_t{2}}, {"tap", std::int64_t{1}}}, {3, 4}, {3, 5});
          add("one weight", DType::f32, 1, {}, {1, 1}, {1, 1});
          for (const DType d : ops::kFloats) add(std::string(name(d)), d, 2, {{"momentum", 0.9}}, {4, 3}, {4, 6});
          return cases;
        },
};

}  // namespace graven::ir
