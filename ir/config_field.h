// Reads the fields of a kernel's config from a call, into the struct of kernels/config: what the generated tables of
// eager kernels and of CUDA launchers do. Sizes are numbers by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "ir/call.h"

namespace graven::ir {

inline void read_field(const KernelCall& call, std::size_t i, std::int64_t& field) {
  field = std::get<Dim>(call.config[i].second).value();
}
inline void read_field(const KernelCall& call, std::size_t i, double& field) {
  field = std::get<double>(call.config[i].second);
}
inline void read_field(const KernelCall& call, std::size_t i, bool& field) {
  field = std::get<bool>(call.config[i].second);
}
template <std::size_t N>
void read_field(const KernelCall& call, std::size_t i, std::int64_t (&field)[N]) {
  const auto& values = std::get<std::vector<Dim>>(call.config[i].second);
  for (std::size_t k = 0; k < N; ++k) field[k] = k < values.size() ? values[k].value() : 0;
}
template <std::size_t M, std::size_t N>
void read_field(const KernelCall& call, std::size_t i, std::int64_t (&field)[M][N]) {
  const auto& rows = std::get<std::vector<std::vector<Dim>>>(call.config[i].second);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t k = 0; k < rows[r].size(); ++k) field[r][k] = rows[r][k].value();
}

}  // namespace graven::ir
