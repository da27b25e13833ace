// The range of each row of a matrix.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct row_range_config {
  std::int64_t rows;
  std::int64_t size;  ///< of a row, 1 or more
};

}  // namespace graven::kernels
