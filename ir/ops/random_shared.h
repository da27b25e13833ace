// What the operators that draw random numbers share: the inputs seed and step, the attribute stream.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline AttributeSpec stream_attribute() {
  return {"stream", AttributeType::integer, std::int64_t{0},
          "which of 2^62 independent sequences; a hash of where the call stands, so that other calls do not change its "
          "numbers"};
}

/// Of dropout of a tensor that ranks may have in parts (kernels/config/random.h).
inline std::vector<AttributeSpec> dropout_attributes(AttributeSpec p) {
  return {
      std::move(p),
      stream_attribute(),
      {"ranks", AttributeType::integer, std::int64_t{1},
       "that have what is dropped in parts: an element's word is that of its place in the whole tensor",
       NumberRange{.least = 1}},
      {"run", AttributeType::integer, std::int64_t{0},
       "so many elements in a row are the first rank's, then the second one's, and so on", NumberRange{.least = 0}}};
}

/// Checks inputs `first` (seed) and `first + 1` (step), and the stream.
inline void check_random(const InferContext& c, std::size_t first) {
  const TensorType expected{DType::i64, {}};
  c.require(c.input(first) == expected, "seed must be i64[], got " + c.input(first).to_string());
  c.require(c.input(first + 1) == expected, "step must be i64[], got " + c.input(first + 1).to_string());
  c.require(c.attributes.integer("stream") >= 0,
            "'stream' must not be negative, got " + std::to_string(c.attributes.integer("stream")));
}

/// Of dropout of what has this shape: the inputs as check_random() does, and the attributes.
inline void check_dropout(const InferContext& c, const Shape& dropped, std::size_t first) {
  check_random(c, first);
  const double p = c.attributes.number("p");
  c.require(p >= 0 && p <= 1, "'p' must lie in [0, 1], got " + text_of(p));
  const std::int64_t run = c.attributes.integer("run");
  if (const Dim n = dropped.numel(); c.attributes.integer("ranks") > 1)
    c.require(run > 0 && divide(n, run).has_value(), [&] {
      return "'run' must divide the " + count_of(n, "element") + " of a part, got " + std::to_string(run);
    });
}

/// random_uniform and random_normal.
inline void infer_random(InferContext& c) {
  check_random(c, 0);
  const DType dtype = c.attributes.dtype("dtype");
  for (const Dim& d : c.attributes.shape("shape"))
    if (d.minimum() < 0) c.fail("a dimension must not be negative, got " + c.attributes.shape("shape").to_string());
  (void)c.attributes.shape("shape").numel();
  c.output(dtype, c.attributes.shape("shape"));
}
inline std::vector<AttributeSpec> random_attributes() {
  return {{"shape", AttributeType::shape, {}, "of the result"},
          {"dtype", AttributeType::dtype, DType::f32, "of the result: f32 or f64"},
          stream_attribute()};
}
inline std::vector<TestCase> random_cases() {
  std::vector<TestCase> cases;
  const auto add = [&](std::string note, Shape shape, DType dtype, std::int64_t stream) {
    cases.push_back({.note = std::move(note),
                     .inputs = {random(DType::i64, {}, 0, 1000), random(DType::i64, {}, 1, 1000)},
                     .attributes = {{"shape", std::move(shape)}, {"dtype", dtype}, {"stream", stream}},
                     .gradient = false});
  };
  add("a matrix", {5, 7}, DType::f32, 1);
  add("double", {5, 7}, DType::f64, 1);
  add("a far stream", {3}, DType::f32, std::int64_t{0x3123456789abcdef});
  add("rank 0", {}, DType::f32, 2);
  add("empty", {0}, DType::f32, 2);
  add("one", {1}, DType::f32, 2);
  return cases;
}

}  // namespace graven::ir::ops
