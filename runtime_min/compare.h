// The self-test of an emitted project: tensors computed now against those recorded when the project was generated.
//
//   Comparison comparison("selftest.safetensors");
//   comparison.load("images", images, DType::f32, {64, 1, 28, 28});   // recorded inputs
//   comparison.check("logits", logits, DType::f32, {64, 10});         // logits  OK, max diff 1.2e-07 of 3e-06
//   return comparison.finish();                                       // 0 when all agree, 1 otherwise
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "error.h"
#include "number.h"
#include "safetensors.h"
#include "tensor.h"

namespace graven::runtime {

class Comparison {
 public:
  explicit Comparison(std::string path) : file_(std::move(path)) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  /// Copies a recorded tensor. An Error when it is not there, or of another type.
  void load(const char* name, void* data, DType dtype, const Dims& shape) const {
    const Variable variable{name, dtype, shape, data};
    load_variables(file_, {&variable, 1}, Unexpected::ignore);
  }

  /// Compares `data` with the recorded tensor: no number may be further from its own than the recorded
  /// "tolerance.<name>", which says what rounding explains, and NaN stands only where NaN was recorded. Prints one
  /// line.
  bool check(const char* name, const void* data, DType dtype, const Dims& shape) {
    const Variable variable{name, dtype, shape, nullptr};
    check_variables(file_, {&variable, 1}, Unexpected::ignore);
    double tolerance = 0;
    load((std::string("tolerance.") + name).c_str(), &tolerance, DType::f64, {});
    const auto* computed = static_cast<const std::byte*>(data);
    const std::byte* recorded = file_.bytes(*file_.find(name)).data();
    double most = 0;
    std::int64_t wrong = 0, first = -1;
    const std::int64_t n = count_of(shape);
    for (std::int64_t i = 0; i < n; ++i) {
      const double a = number_at(dtype, computed, i), b = number_at(dtype, recorded, i);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      const double difference = std::fabs(a - b);
      if (!(difference <= most)) most = difference;
      if (difference <= tolerance) continue;
      if (wrong++ == 0) first = i;
    }
    ++checked_;
    if (wrong == 0) {
      std::printf("%-40s OK, max diff %.2g of %.2g\n", name, most, tolerance);
    } else {
      ++failed_;
      std::printf(
          "%-40s FAILED, max diff %.2g of %.2g, %lld of %lld differ, the first at %lld: recorded %.9g, computed %.9g\n",
          name, most, tolerance, static_cast<long long>(wrong), static_cast<long long>(n),
          static_cast<long long>(first), number_at(dtype, recorded, first), number_at(dtype, computed, first));
    }
    return wrong == 0;
  }

  /// Prints the sum of it and returns the exit status.
  int finish() const {
    if (failed_ == 0) {
      std::printf("OK, %d tensors\n", checked_);
    } else {
      std::printf("FAILED, %d of %d tensors\n", failed_, checked_);
    }
    return failed_ == 0 && checked_ > 0 ? 0 : 1;
  }

 private:
  SafetensorsFile file_;
  int checked_ = 0, failed_ = 0;
};

}  // namespace graven::runtime
