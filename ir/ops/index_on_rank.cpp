#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_index_on_rank(InferContext& c) {
  c.require(c.attributes.integer("size") >= 1 && c.attributes.integer("ranks") >= 1,
            "'size' and 'ranks' must be positive");
  c.output(DType::i64, c.input(0).shape);
  c.output(DType::boolean, c.input(0).shape);
}

const OpDef kIndexOnRank{
    .name = "index_on_rank",
    .doc =
        "Of ranks that have 'size' entries of a table each, one behind the other: whether an entry is this rank's "
        "(mine), and which of its own it is (own; 0 of the others). With 'ignores' that index is nobody's; another one "
        "outside of [0, ranks * size) is an error when it runs. A process that runs alone is the first rank.",
    .inputs = {{"index"}},
    .dtypes = {DType::i64},
    .attributes = {{"size", AttributeType::integer, {}, "entries of each rank"},
                   {"ranks", AttributeType::integer, {}, "that have the table"},
                   {"ignores", AttributeType::boolean, false, "whether one index is nobody's: 'ignored'"},
                   {"ignored", AttributeType::integer, std::int64_t{0}, "that index"}},
    .outputs = {"own", "mine"},
    .infer = infer_index_on_rank,
    .cost = [](const NodeView&) { return Cost{.flops = 0}; },
    .by_rank = true,
    .forms = {{.attributes = {{"size", std::int64_t{4}}, {"ranks", std::int64_t{2}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, Shape shape, std::int64_t size, std::int64_t ranks,
                               std::optional<std::int64_t> ignored) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::index_input(std::move(shape), size * ranks)},
                             .attributes = {{"size", size},
                                            {"ranks", ranks},
                                            {"ignores", ignored.has_value()},
                                            {"ignored", ignored.value_or(0)}},
                             .gradient = false});
          };
          add("two ranks", {4, 9}, 7, 2, {});
          add("ignored", {40}, 2, 3, 1);
          add("one rank", {5}, 4, 1, {});
          add("one", {1}, 1, 1, {});
          add("rank 0", {}, 3, 2, {});
          add("none", {0}, 3, 2, {});
          return cases;
        },
};

}  // namespace graven::ir
