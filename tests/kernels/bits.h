// What the tests of kernels compute, for a comparison of compilers and instruction-set levels (tests/bits/kernels.sh).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace graven::kernels::test {

/// Writes a line with the test, what it computed and a hash of the result's bits to the file that GRAVEN_KERNEL_BITS
/// names: tests/bits/kernels.sh compares those of other compilers and instruction-set levels. All NaN count alike.
template <class T>
void record_bits(const std::vector<T>& values, const std::string& what) {
  static std::FILE* const file = [] {
    const char* const path = std::getenv("GRAVEN_KERNEL_BITS");
    return path == nullptr ? nullptr : std::fopen(path, "w");
  }();
  if (file == nullptr) return;
  std::uint64_t hash = 14695981039346656037u;  // Fowler, Noll and Vo
  for (const T& value : values) {
    unsigned char bytes[sizeof(T)] = {};
    if (const double number = static_cast<double>(value); number == number) std::memcpy(bytes, &value, sizeof(T));
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
  }
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::fprintf(file, "%016llx %s.%s %s\n", static_cast<unsigned long long>(hash), test->test_suite_name(), test->name(),
               what.c_str());
  std::fflush(file);
}

}  // namespace graven::kernels::test
