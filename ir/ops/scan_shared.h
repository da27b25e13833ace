// What cumsum, cumprod and its gradient share.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline void infer_scan(InferContext& c) {
  infer_any(c);
  normalize_dim(c, "dim", c.input(0).shape.rank());
}

inline AttributeSpec scan_dim() { return {"dim", AttributeType::integer, {}, "counted from the end when negative"}; }

inline std::vector<TestCase> scan_cases(std::size_t inputs, bool integers) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape, std::int64_t dim) {
    TestCase c{.note = std::move(note), .attributes = {{"dim", dim}}, .gradient = is_floating(dtype) && inputs == 1};
    for (std::size_t i = 0; i < inputs; ++i) c.inputs.push_back(random(dtype, shape, -1.5, 1.5));
    cases.push_back(std::move(c));
  };
  add("last", DType::f32, {3, 7}, -1);
  add("first", DType::f32, {5, 70}, 0);
  add("middle", DType::f32, {2, 6, 3}, 1);
  add("one element", DType::f32, {4, 1}, 1);
  add("rank 0", DType::f32, {}, 0);
  add("empty", DType::f32, {3, 0}, 1);
  add("no lines", DType::f32, {0, 3}, 1);
  for (DType d : kFloats) add(std::string(name(d)), d, {2, 5}, 1);
  if (integers)
    for (DType d : kIntegers) add(std::string(name(d)), d, {2, 5}, 1);
  return cases;
}

}  // namespace graven::ir::ops
