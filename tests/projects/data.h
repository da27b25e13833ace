// What the tests of emitted projects train on, and read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "runtime_min/npy.h"

namespace graven::tests {

namespace fs = std::filesystem;

constexpr std::int64_t kFeatures = 6, kClasses = 3;

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_npy(const fs::path& path, runtime::DType dtype, const runtime::Dims& shape, const std::string& data) {
  fs::create_directories(path.parent_path());
  runtime::NpyWriter out(path.string(), dtype, shape);
  out.write(data.data(), data.size());
  out.commit();
}

/// The class is the largest of the first three features.
inline void write_data(const fs::path& folder, std::int64_t samples, unsigned seed) {
  std::mt19937 random(seed);
  std::string images, labels;
  for (std::int64_t i = 0; i < samples; ++i) {
    float x[kFeatures];
    std::int64_t best = 0;
    for (int f = 0; f < kFeatures; ++f) {
      x[f] = static_cast<float>(random() % 1000) / 1000;
      if (f < kClasses && x[f] > x[best]) best = f;
    }
    images.append(reinterpret_cast<const char*>(x), sizeof x);
    labels += static_cast<char>(best);
  }
  write_npy(folder / "images.npy", runtime::DType::f32, {samples, kFeatures}, images);
  write_npy(folder / "labels.npy", runtime::DType::u8, {samples}, labels);
}

}  // namespace graven::tests
