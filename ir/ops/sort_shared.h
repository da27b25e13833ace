// What sort and its gradient share.
#pragma once

#include "ir/ops/shared.h"
#include "kernels/config/sort.h"

namespace graven::ir::ops {

/// The call for x of shape `x` of which `count` elements along dim are taken.
inline KernelCall sort_call(std::string name, const Shape& x, std::int64_t dim, const Dim& count, bool descending) {
  const Span3 span = around(x, dim);
  return {.name = std::move(name),
          .file = "sort",
          .config = {{"outer", span.outer},
                     {"size", span.size},
                     {"inner", span.inner},
                     {"count", count},
                     {"descending", descending}}};
}

}  // namespace graven::ir::ops
