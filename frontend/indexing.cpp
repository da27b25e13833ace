#include "graven/indexing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "frontend/dispatch.h"
#include "frontend/functional/indexed.h"

namespace graven {

TensorIndex::TensorIndex(const char* dots) : kind_(Kind::ellipsis) {
  if (dots == nullptr || std::string_view(dots) != "...")
    throw UserError("index: the only text that is an index is \"...\"");
}

Tensor Tensor::index(const std::vector<TensorIndex>& indices, Location given) const {
  const Location where = given.in("index");
  detail::require_defined(*this, "index", where);
  const auto count = [&](TensorIndex::Kind kind) {
    return std::count_if(indices.begin(), indices.end(), [kind](const TensorIndex& i) { return i.kind() == kind; });
  };
  const std::int64_t taken =
      count(TensorIndex::Kind::position) + count(TensorIndex::Kind::slice) + count(TensorIndex::Kind::tensor);
  if (count(TensorIndex::Kind::ellipsis) > 1) detail::fail("index", "one ellipsis at most", where);
  if (taken > dim()) detail::fail("index", fmt::format("{} indices for {}", taken, describe()), where);
  Tensor x = *this;
  std::int64_t at = 0;  // the dimension of x that the next index is for
  detail::IndexTensors tensors;
  for (const TensorIndex& index : indices) {
    switch (index.kind()) {
      case TensorIndex::Kind::position:
        x = x.select(at, index.position(), where);
        break;
      case TensorIndex::Kind::slice: {
        const indexing::Slice& s = index.slice();
        x = x.slice(at++, s.start.value.value_or(0), s.stop.value.value_or(std::numeric_limits<std::int64_t>::max()),
                    s.step.value.value_or(1), where);
        break;
      }
      case TensorIndex::Kind::none:
        x = x.unsqueeze(at++, where);
        break;
      case TensorIndex::Kind::ellipsis:
        at += dim() - taken;
        break;
      case TensorIndex::Kind::tensor:
        tensors.emplace_back(at++, index.tensor());
        break;
    }
  }
  return tensors.empty() ? x : detail::index_by(x, tensors, where);
}

}  // namespace graven
