#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_receive(InferContext& c) {
  c.require(c.attributes.integer("from") != c.attributes.integer("to"), [&] {
    return "expected two stages, found stage " + std::to_string(c.attributes.integer("to")) + " twice";
  });
  c.output(c.input(0).dtype, c.input(0).shape);
}

const OpDef kReceive{
    .name = "receive",
    .doc =
        "y is x, where stage 'to' of a pipeline has it, which stage 'from' has made. Where one process runs both, it "
        "is x's memory; else it is sent.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"from", AttributeType::integer, {}, "the stage that makes it", NumberRange{.least = 0}},
                   {"to", AttributeType::integer, {}, "another stage, which reads it", NumberRange{.least = 0}}},
    .infer = infer_receive,
    .layout = {ImageLayout::Rule::moves},
    .alias = true,
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"from", std::int64_t{0}}, {"to", std::int64_t{1}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const Attributes stages{{"from", std::int64_t{1}}, {"to", std::int64_t{0}}};
          for (const Shape& shape : {Shape{2, 3}, Shape{0, 3}, Shape{1}, Shape{}})
            cases.push_back({.note = "shape " + shape.to_string(),
                             .inputs = {ops::random(DType::f32, shape)},
                             .attributes = stages,
                             .gradient = false});
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {6}, 0, 2)},
                             .attributes = stages,
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
