#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_all_reduce(InferContext&) {}

const OpDef kAllReduce{
    .name = "all_reduce",
    .doc =
        "The mean of x over all ranks, the processes that train one model together, behind the last part of a step, "
        "parts - 1; x in the others, and where there is one rank. The sum is begun where the node stands and done when "
        "its phase is, so only nodes of a later phase read it.",
    .inputs = {{"x", InputRole::kept}, {"part", InputRole::part}, {"parts", InputRole::part}},
    .dtypes = {DType::f32, DType::f64},
    .infer = infer_all_reduce,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .amp = AmpClass::black,
    .collective = true,
    .forms = {{.shapes = {{4, 4}, {}, {}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const DType d : {DType::f32, DType::f64})
            for (const double part : {0., 2.})
              cases.push_back({.note = std::string(name(d)) + (part == 0 ? ", one rank, first" : ", one rank, last"),
                               .inputs = {ops::random(d, {5, 37}), ops::random(DType::i64, {}, part, part + 1),
                                          ops::random(DType::i64, {}, 3, 4)},
                               .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
