#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_reduce_scatter(InferContext&) {}

const OpDef kReduceScatter{
    .name = "reduce_scatter",
    .doc =
        "all_reduce of which each rank keeps its shard alone, in its place in x: a piece of the elements, one for each "
        "rank; the rest is of no use behind it. With one rank, and in the parts before the last, x.",
    .inputs = {{"x", InputRole::kept}, {"part", InputRole::part}, {"parts", InputRole::part}},
    .dtypes = {DType::f32, DType::f64},
    .infer = infer_reduce_scatter,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .amp = AmpClass::black,
    .collective = true,
    .forms = {{.shapes = {{4, 4}, {}, {}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, const Shape& shape, double part) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, shape), ops::random(DType::i64, {}, part, part + 1),
                                        ops::random(DType::i64, {}, 3, 4)},
                             .gradient = false});
          };
          for (const DType d : {DType::f32, DType::f64}) {
            add(std::string(name(d)) + ", one rank, first", d, {5, 37}, 0);
            add(std::string(name(d)) + ", one rank, last", d, {5, 37}, 2);
          }
          add("one row", DType::f32, {1, 37}, 2);
          add("empty", DType::f32, {0, 3}, 2);
          return cases;
        },
};

}  // namespace graven::ir
