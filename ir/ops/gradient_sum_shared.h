// Sums of gradients, over the parts of a batch and over ranks, and what a rank keeps of them: operators that differ in
// where the result lies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/rank_shared.h"

namespace graven::ir::ops {

inline void infer_sum_over_parts(InferContext& c) {
  c.require(c.input(0) == c.input(1), "expects a sum and terms of one type");
  c.require(!c.has_input(4) || c.input(4).shape.rank() == 0, "expects a scalar 'scale'");
}

/// accumulate, and what does so over ranks as well.
inline OpDef sum_over_parts(std::string_view op, std::string_view doc, bool collective) {
  return {
      .name = op,
      .doc = doc,
      .inputs = {{"sum", InputRole::kept},
                 {"x"},
                 {"part", InputRole::part},
                 {"parts", InputRole::part},
                 {.name = "scale", .dtype = DType::f32, .optional = true}},
      .dtypes = {DType::f32, DType::f64},
      .infer = infer_sum_over_parts,
      .rank_layouts = sum_layouts,
      .cost =
          [](const NodeView& node) {
            return Cost{.flops = 2 * static_cast<double>(node.input(0).shape.numel().maximum())};
          },
      .amp = AmpClass::black,
      .collective = collective,
      .forms = {{}, {.shapes = {{4, 4}, {4, 4}, {}, {}, {}}}},
      .cases =
          [] {
            std::vector<TestCase> cases;
            const auto add = [&](std::string note, DType d, const Shape& shape, double part, double parts,
                                 bool scaled) {
              cases.push_back(
                  {.note = std::move(note),
                   .inputs = {ops::random(d, shape), ops::random(d, shape), ops::random(DType::i64, {}, part, part + 1),
                              ops::random(DType::i64, {}, parts, parts + 1),
                              scaled ? ops::random(DType::f32, {}, 3, 5) : ops::absent()},
                   .gradient = false});
            };
            for (const DType d : {DType::f32, DType::f64})
              for (const bool scaled : {false, true}) {
                const std::string kind = std::string(name(d)) + (scaled ? ", scaled" : "");
                add(kind + ", first", d, {5, 37}, 0, 3, scaled);
                add(kind + ", in between", d, {5, 37}, 1, 3, scaled);
                add(kind + ", last", d, {5, 37}, 2, 3, scaled);
                add(kind + ", only one", d, {5, 37}, 0, 1, scaled);
              }
            add("rank 0", DType::f32, {}, 2, 3, false);
            add("several pieces", DType::f32, {1, 51000}, 1, 2, false);
            add("empty", DType::f32, {0, 3}, 1, 2, false);
            return cases;
          },
  };
}

/// all_reduce, and what leaves a rank its shard alone.
inline OpDef sum_over_ranks(std::string_view op, std::string_view doc) {
  return {
      .name = op,
      .doc = doc,
      .inputs = {{"x", InputRole::kept}, {"part", InputRole::part}, {"parts", InputRole::part}},
      .dtypes = {DType::f32, DType::f64},
      .infer = [](InferContext&) {},
      .rank_layouts = sum_layouts,
      .cost =
          [](const NodeView& node) {
            return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())};
          },
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
}

}  // namespace graven::ir::ops
