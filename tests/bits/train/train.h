// Trains a model 20 steps on numbers that depend on nothing but their places, and prints a hash of every loss, weight
// and optimizer's state.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

struct Sizes {
  const char* name;
  std::int64_t inputs, bound, labels, classes;
};

inline std::uint32_t random_bits() {
  static std::uint64_t state = 88172645463325252u;  // Marsaglia's xorshift
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<std::uint32_t>(state >> 32);
}

struct Hash {
  std::uint64_t value = 14695981039346656037u;  // Fowler, Noll and Vo
  void add(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      value = (value ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  }
};

/// `argv[1]`: the weights. argv[2]: another number of steps, after which the hash of each tensor is printed, too: where
/// does a difference begin?
template <class Model, class Hyper, class Input>
int train(const Sizes& sizes, int argc, char** argv) try {
  Model model(2);
  const int steps = argc > 2 ? std::stoi(argv[2]) : 20;
  model.load(argv[1]);
  Hash all;
  double loss = 0;
  Hyper hyper;
  for (hyper.step = 1; hyper.step <= steps; ++hyper.step) {
    std::vector<Input> x(static_cast<std::size_t>(sizes.inputs));
    std::vector<std::int64_t> labels(static_cast<std::size_t>(sizes.labels));
    for (Input& value : x)
      value = sizes.bound > 0 ? static_cast<Input>(random_bits() % sizes.bound)
                              : static_cast<Input>(static_cast<float>(random_bits() >> 8) / 8388608.0f - 1.0f);
    for (std::int64_t& label : labels) label = static_cast<std::int64_t>(random_bits() % sizes.classes);
    loss = model.step(x.data(), labels.data(), hyper);
    if (!(loss > 0 && loss < 100)) throw std::runtime_error("the loss is " + std::to_string(loss));
    all.add(&loss, sizeof loss);
  }
  for (const auto& tensors : {model.parameters(), model.states()})
    for (const auto& tensor : tensors) {
      std::size_t bytes = std::strchr("fiu", tensor.dtype[0]) != nullptr ? std::stoul(tensor.dtype + 1) / 8 : 0;
      if (bytes == 0) throw std::runtime_error(std::string("a tensor of ") + tensor.dtype);
      for (const std::int64_t dimension : tensor.shape) bytes *= static_cast<std::size_t>(dimension);
      all.add(tensor.data, bytes);
      Hash own;
      own.add(tensor.data, bytes);
      if (argc > 2) std::printf("  %016llx %s\n", static_cast<unsigned long long>(own.value), tensor.path.c_str());
    }
  std::printf("%-11s %016llx loss %.9g\n", sizes.name, static_cast<unsigned long long>(all.value), loss);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", sizes.name, e.what());
  return 1;
}
