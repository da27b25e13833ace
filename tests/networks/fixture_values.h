// The inputs and initial parameters of the stored fixtures: the C++ twin of values() and labels() in
// tests/fixtures/make_networks.py. Exact in double, so nothing but results has to be stored.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace graven::test {

/// `count` values in [-scale, scale): a hash of (seed, index).
inline std::vector<double> values(std::int64_t count, std::int64_t seed, double scale) {
  std::vector<double> out(static_cast<std::size_t>(count));
  constexpr std::uint64_t kMask = 0xffffffffu;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t h =
        (static_cast<std::uint64_t>(i) * 2654435761u + static_cast<std::uint64_t>(seed) * 40503u + 12345u) & kMask;
    h = ((h ^ (h >> 15)) * 2246822519u) & kMask;
    h = ((h ^ (h >> 13)) * 3266489917u) & kMask;
    h = h ^ (h >> 16);
    out[static_cast<std::size_t>(i)] = (static_cast<double>(h) / 2147483648.0 - 1.0) * scale;
  }
  return out;
}

/// `count` classes in [0, classes).
inline std::vector<std::int64_t> labels(std::int64_t count, std::int64_t seed, std::int64_t classes) {
  std::vector<std::int64_t> out;
  for (const double v : values(count, seed, 0.5))
    out.push_back(static_cast<std::int64_t>(std::floor((v + 0.5) * static_cast<double>(classes))));
  return out;
}

}  // namespace graven::test
