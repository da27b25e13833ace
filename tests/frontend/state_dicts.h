// What tests of saving and loading do with dictionaries of state.
#pragma once

#include <graven/graven.h>
#include <gtest/gtest.h>

namespace graven {

/// Tensors of its own, so that later steps leave it as it is.
inline nn::StateDict copy_of(const nn::StateDict& state) {
  nn::StateDict copy;
  for (const auto& [name, t] : state) copy.emplace_back(name, t.detach().clone());
  return copy;
}

/// The same names in the same order, and the same elements.
inline void expect_same(const nn::StateDict& found, const nn::StateDict& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_TRUE(equal(found[i].second, expected[i].second)) << found[i].first;
  }
}

}  // namespace graven
