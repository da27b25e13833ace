#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

TEST(Distances, AgreeWithPyTorch) {
  expect_family(
      "distances",
      {
          {"normalize", one([](const Fixture& f) {
             return normalize(f.tensor("input"), f.number("p", 2), f.integer("dim", 1), f.number("eps", 1e-12));
           })},
          {"cosine_similarity", one([](const Fixture& f) {
             return cosine_similarity(f.tensor("x1"), f.tensor("x2"), f.integer("dim", 1), f.number("eps", 1e-8));
           })},
          {"pairwise_distance", one([](const Fixture& f) {
             return pairwise_distance(f.tensor("x1"), f.tensor("x2"), f.number("p", 2), f.number("eps", 1e-6),
                                      f.flag("keepdim"));
           })},
          {"cdist", one([](const Fixture& f) { return cdist(f.tensor("x1"), f.tensor("x2"), f.number("p", 2)); })},
      });
}

TEST(Distances, SayWhatIsWrong) {
  EXPECT_THROW(cdist(ones({2, 3}), ones({2, 4})), UserError);
  EXPECT_THROW(cdist(ones({3}), ones({3})), UserError);
  EXPECT_THROW(cdist(ones({2, 3}), ones({2, 3}), -1), UserError);
  EXPECT_THROW(pairwise_distance(ones({}), ones({})), UserError);
  EXPECT_THROW(normalize(ones({3}), 2, 1), UserError);
}

}  // namespace
}  // namespace graven::tests
