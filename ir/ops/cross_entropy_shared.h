// What cross_entropy and its gradient share.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline AttributeSpec loss_reduction_attribute() {
  return {"reduction", AttributeType::text, std::string("mean"), "none, mean or sum"};
}

/// 0 none, 1 mean, 2 sum, as in cross_entropy_config; -1 for anything else.
inline std::int64_t reduction_number(const std::string& text) {
  return text == "none" ? 0 : text == "mean" ? 1 : text == "sum" ? 2 : -1;
}

inline std::int64_t reduction_of(const InferContext& c) {
  const std::int64_t number = reduction_number(c.attributes.text("reduction"));
  c.require(number >= 0,
            "'reduction' must be none, mean or sum, got '" + c.attributes.text("reduction").substr(0, 100) + "'");
  return number;
}

inline void check_labels(const InferContext& c, std::size_t i, const Dim& rows) {
  const TensorType expected{DType::i64, {rows}};
  c.require(c.input(i) == expected, "labels must be " + expected.to_string() + ", got " + c.input(i).to_string());
}

inline std::vector<AttributeSpec> cross_entropy_attributes() {
  return {
      loss_reduction_attribute(),
      {"ignore_index", AttributeType::integer, std::int64_t{-100}, "a label whose rows have no loss and no gradient"},
      {"label_smoothing", AttributeType::number, 0.0,
       "the part of the target that is spread over all classes, in [0, 1]"}};
}

/// The attributes, and the classes' weights (input `i`, if present).
inline void check_cross_entropy(const InferContext& c, std::size_t i, const TensorType& scores) {
  const double smoothing = c.attributes.number("label_smoothing");
  c.require(smoothing >= 0 && smoothing <= 1, "'label_smoothing' must lie in [0, 1], got " + text_of(smoothing));
  fixed(scores.shape[1], "the number of classes");
  if (!c.has_input(i)) return;
  const TensorType expected{scores.dtype, {scores.shape[1]}};
  c.require(c.input(i) == expected, "weight must be " + expected.to_string() + ", got " + c.input(i).to_string());
}

}  // namespace graven::ir::ops
