// The attack's own promises: a try is drawn from the seed and its number alone, and can be tried again by itself.
#include "tests/attack/attack.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace graven::attack {
namespace {

std::vector<std::size_t> drawn(std::int64_t tries, std::size_t before) {
  std::vector<std::size_t> first;
  Attack attack("itself", tries);
  while (attack.next()) {
    first.push_back(attack.below(1000003));
    for (std::size_t i = 0; i < before; ++i) attack.below(7);  // what a try draws changes no other
  }
  return first;
}

TEST(Attack, ATryDependsOnItsSeedAndNumberAlone) {
  if (std::getenv("GRAVEN_ATTACK_SECONDS") || std::getenv("GRAVEN_ATTACK_TRY")) GTEST_SKIP() << "of the usual budget";
  const std::vector<std::size_t> all = drawn(20, 0);
  ASSERT_EQ(all.size(), 20u);
  EXPECT_EQ(drawn(20, 5), all);
  ::setenv("GRAVEN_ATTACK_TRY", "7", 1);
  const std::vector<std::size_t> seventh = drawn(20, 0);
  ::unsetenv("GRAVEN_ATTACK_TRY");
  EXPECT_EQ(seventh, std::vector<std::size_t>{all[6]});
}

}  // namespace
}  // namespace graven::attack
