#include "tests/cuda_jit/device.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

namespace graven::cuda_jit {

namespace {

/// Before anything asks for a device.
const bool kStandIn = [] { return setenv("GRAVEN_CUDA_PATH", STAND_IN, 0) == 0; }();

}  // namespace

long long count(const char* function) {
  void* const library = dlopen(STAND_IN "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<long long (*)()>(dlsym(library, function))();
}

void expect_close(const Tensor& got, const Tensor& expected, double tolerance) {
  ASSERT_TRUE(kStandIn);
  ASSERT_EQ(got.describe(), expected.describe());
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::abs(a[i] - b[i]), tolerance * (1 + std::abs(b[i])))
        << "element " << i << " of " << a.size() << ": " << a[i] << ", expected " << b[i];
}

}  // namespace graven::cuda_jit
