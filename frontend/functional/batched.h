// Functions of images, signals and volumes take them with or without a batch dimension.
#pragma once

#include <cstdint>

#include <fmt/format.h>

#include "frontend/dispatch.h"

namespace graven::detail {

/// Runs f on x with a batch dimension, which single ones get and lose again. `rank`: with the batch.
template <class F>
Tensor batched(const Operand& x, std::int64_t rank, const char* function, F&& f) {
  const Tensor& t = x.tensor(function);
  const Location where = x.where().in(function);
  if (t.dim() == rank - 1) return f(t.unsqueeze(0, where)).squeeze(0, where);
  if (t.dim() != rank)
    fail(function, fmt::format("expects a tensor of {} or {} dimensions, got {}", rank - 1, rank, t.describe()),
         x.where());
  return f(t);
}

}  // namespace graven::detail
