// Networks that the tests run, small ones, with what they are called with.
#pragma once

#include <graven/graven.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace graven::cuda_jit {

/// A graph whose type nobody needs to know.
struct Running {
  std::shared_ptr<nn::GraphBase> graph;
  std::function<void(const Device&)> move;  ///< its modules
  std::function<Tensor(const std::vector<Tensor>&)> call;
};

struct Network {
  std::string name;
  std::function<Running()> make;  ///< its weights follow from the seed
  std::function<std::vector<Tensor>()> inputs;
  int steps = 3;
  DType computed = f32;  ///< else it is in mixed precision
};

inline std::ostream& operator<<(std::ostream& out, const Network& network) { return out << network.name; }

const std::vector<Network>& networks();

}  // namespace graven::cuda_jit
