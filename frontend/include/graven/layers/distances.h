// Distances as modules: the functions of graven/functional/distances.h with their options.
//
//   nn::CosineSimilarity likeness = child("likeness", nn::CosineSimilarity());
#pragma once

#include "graven/module.h"

namespace graven::nn {

/// Of x1 and x2 along dim.
class CosineSimilarity : public Module<CosineSimilarity> {
 public:
  explicit CosineSimilarity(std::int64_t dim = 1, double eps = 1e-8);
  Tensor forward(Tensor x1, Tensor x2);

 private:
  std::int64_t dim_;
  double eps_;
};

/// The p-norm of x1 - x2 + eps over the last dimension.
class PairwiseDistance : public Module<PairwiseDistance> {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false);
  Tensor forward(Tensor x1, Tensor x2);

 private:
  double p_, eps_;
  bool keepdim_;
};

}  // namespace graven::nn
