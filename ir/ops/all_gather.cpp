#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_all_gather(InferContext& c) {
  c.require(c.attributes.integer("least") >= 1, "'least' must be positive");
}

const OpDef kAllGather{
    .name = "all_gather",
    .doc =
        "Tensors of which each rank has updated its shard, whole on all of them. Those of fewer than `least` elements "
        "are whole already. With one rank they are what they were.",
    .inputs = {{.name = "tensors", .role = InputRole::kept, .variadic = true}},
    .dtypes = {DType::f32, DType::f64},
    .attributes = {{"least", AttributeType::integer, std::nullopt, "elements of the smallest tensor that is shared"}},
    .infer = infer_all_gather,
    .cost = [](const NodeView&) { return Cost{.flops = 0}; },
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"least", 1024}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const DType d : {DType::f32, DType::f64}) {
            TestCase c{.note = std::string(name(d)), .attributes = {{"least", 16}}, .gradient = false};
            for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{37}, Shape{0, 4}, Shape{2, 19, 70}})
              c.inputs.push_back(ops::random(d, shape));
            cases.push_back(std::move(c));
          }
          return cases;
        },
};

}  // namespace graven::ir
