#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_gather_shards(InferContext& c) { c.output(c.input(0).dtype, c.input(0).shape); }

const OpDef kGatherShards{
    .name = "gather_shards",
    .doc = "All of a tensor of which each rank has its shard, a piece of the elements. With one rank it is a copy.",
    .inputs = {{"x"}},
    .dtypes = {DType::f32, DType::f64},
    .infer = infer_gather_shards,
    .cost = [](const NodeView&) { return Cost{.flops = 0}; },
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const DType d : {DType::f32, DType::f64})
            for (const Shape& shape : {Shape{5, 37}, Shape{}, Shape{1}, Shape{0, 4}, Shape{2, 19, 3700}})
              cases.push_back({.note = std::string(name(d)) + " " + shape.to_string(),
                               .inputs = {ops::random(d, shape)},
                               .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
