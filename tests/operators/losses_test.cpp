#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

TEST(Losses, AgreeWithPyTorch) {
  expect_family("losses", {
                              {"mse_loss", one([](const Fixture& f) { return mse_loss(f.tensor("input"), f.tensor("target"), f.reduction()); })},
                              {"l1_loss", one([](const Fixture& f) { return l1_loss(f.tensor("input"), f.tensor("target"), f.reduction()); })},
                          });
}

}  // namespace
}  // namespace graven::tests
