#include "graven/functional/padding.h"

#include <algorithm>

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

/// {before, after} of every dimension, the first one first.
Sizes ordered(const Tensor& t, const Sizes& pads, Location where) {
  const std::size_t rank = t.shape().rank();
  if (pads.size() % 2 != 0 || pads.size() / 2 > rank)
    fail("pad",
         "expects {before, after} for at most " + std::to_string(rank) + " dimensions, got " +
             std::to_string(pads.size()) + " numbers",
         where);
  Sizes result(2 * rank, 0);
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    result[2 * (rank - 1 - i)] = pads[2 * i];
    result[2 * (rank - 1 - i) + 1] = pads[2 * i + 1];
  }
  return result;
}

}  // namespace

Tensor pad(const Operand& x, const Sizes& pads, double value) {
  return apply("pad", {x.tensor()}, {{"pads", ordered(x.tensor(), pads, x.where())}, {"value", value}}, x.where());
}

Tensor pad(const Operand& x, const Sizes& pads, std::string_view mode, double value) {
  if (mode == "constant") return pad(x, pads, value);
  if (mode != "reflect" && mode != "replicate" && mode != "circular")
    fail("pad", "the mode must be 'constant', 'reflect', 'replicate' or 'circular', got '" + std::string(mode) + "'",
         x.where());
  const Sizes all = ordered(x.tensor(), pads, x.where());
  if (std::all_of(all.begin(), all.end(), [](std::int64_t p) { return p == 0; })) return x.tensor().clone(x.where());
  return apply("pad_border", {x.tensor()}, {{"pads", all}, {"mode", std::string(mode)}}, x.where());
}

}  // namespace graven
