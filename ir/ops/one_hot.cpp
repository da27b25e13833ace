#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_one_hot(InferContext& c) {
  const std::int64_t classes = c.attributes.integer("num_classes");
  c.require(classes >= 1, "'num_classes' must be positive, got " + std::to_string(classes));
  Shape y = c.input(0).shape;
  y.push_back(classes);
  c.output(DType::i64, y);
}

const OpDef kOneHot{
    .name = "one_hot",
    .doc =
        "y[..., class] = 1 where index[...] is the class, else 0; i64 (PyTorch's one_hot). A class outside of [0, "
        "num_classes) is an error when it "
        "runs.",
    .inputs = {{"index"}},
    .dtypes = {DType::i64},
    .attributes = {{"num_classes", AttributeType::integer, {}, "the size of the new last dimension"}},
    .infer = infer_one_hot,
    .cost = [](const NodeView&) { return Cost{}; },
    .forms = {{.attributes = {{"num_classes", std::int64_t{4}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          cases.push_back({.note = "rows",
                           .inputs = {ops::index_input({3, 4}, 5)},
                           .attributes = {{"num_classes", std::int64_t{5}}},
                           .gradient = false});
          cases.push_back({.note = "one class",
                           .inputs = {ops::index_input({1}, 1)},
                           .attributes = {{"num_classes", std::int64_t{1}}},
                           .gradient = false});
          cases.push_back({.note = "one",
                           .inputs = {ops::index_input({}, 3)},
                           .attributes = {{"num_classes", std::int64_t{3}}},
                           .gradient = false});
          cases.push_back({.note = "none",
                           .inputs = {ops::index_input({0}, 3)},
                           .attributes = {{"num_classes", std::int64_t{3}}},
                           .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
