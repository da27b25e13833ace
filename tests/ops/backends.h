// The ways to compute a graph, and the tensors they are compared on. A new backend is one line in backends().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graven::tests {

/// Values of a graph by position.
struct Computed {
  std::vector<ir::TensorData> outputs;
};

/// Random contents within the test case's limits; the same for the same seed.
ir::TensorData random_tensor(const ir::TensorType& type, double low, double high, std::uint64_t seed);
/// Elements as doubles.
std::vector<double> as_doubles(const ir::TensorData& data);

/// Every floating value in double, by the reference kernels: what the others are measured by.
Computed run_oracle(const ir::Graph& graph, const std::vector<ir::TensorData>& inputs);

struct Backend {
  std::string name;
  std::function<Computed(const ir::Graph&, const std::vector<ir::TensorData>&)> run;
  bool compiles = false;  ///< takes seconds for each graph: many cases are put into one
};
const std::vector<Backend>& backends();

/// The largest difference over 1 + the largest magnitude of the expected tensor; infinity where one is NaN and the
/// other is not.
double difference(const ir::TensorData& expected, const ir::TensorData& computed);
/// What may remain of rounding in this dtype.
double tolerance_of(ir::DType dtype);

}  // namespace graven::tests
