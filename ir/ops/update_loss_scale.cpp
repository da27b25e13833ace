#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_update_loss_scale(InferContext& c) {
  c.require(c.attributes.integer("growth_interval") >= 1, "'growth_interval' must be positive");
  for (std::size_t i = 0; i < c.input_count(); ++i) c.require(c.input(i).shape.rank() == 0, "expects scalars");
}

const OpDef kUpdateLossScale{
    .name = "update_loss_scale",
    .doc =
        "torch.amp.GradScaler.update: where one of the steps is 0 (finite_step), scale becomes scale * backoff_factor "
        "and tracker 0; else tracker + 1, and when that is growth_interval, 0, and scale becomes scale * growth_factor "
        "if that is finite. Products in double, rounded to f32.",
    .inputs = {{.name = "steps", .variadic = true},
               {.name = "scale", .role = InputRole::kept, .dtype = DType::f32},
               {.name = "tracker", .role = InputRole::kept, .dtype = DType::i64}},
    .dtypes = {DType::i64},
    .attributes = {{"growth_factor", AttributeType::number, 2.0, "what the scale grows by", NumberRange{.least = 0}},
                   {"backoff_factor", AttributeType::number, 0.5, "what it shrinks by", NumberRange{.least = 0}},
                   {"growth_interval", AttributeType::integer, std::int64_t{2000},
                    "after so many steps in a row that were not skipped it grows"}},
    .infer = infer_update_loss_scale,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{}, {}, {}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, std::vector<double> steps, double tracker) {
            TestCase c{
                .note = std::move(note),
                .attributes = {{"growth_factor", 3.0}, {"backoff_factor", 0.25}, {"growth_interval", std::int64_t{4}}},
                .gradient = false};
            for (const double step : steps) c.inputs.push_back(ops::random(DType::i64, {}, step, step + 1));
            c.inputs.push_back(ops::random(DType::f32, {}, 100, 200));
            c.inputs.push_back(ops::random(DType::i64, {}, tracker, tracker + 1));
            cases.push_back(std::move(c));
          };
          add("holds", {7}, 1);
          add("grows", {7}, 3);
          add("shrinks", {0}, 3);
          add("several", {7, 3}, 2);
          add("one of several", {7, 0, 3}, 3);
          return cases;
        },
};

}  // namespace graven::ir
