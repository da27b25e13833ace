#include "graven/layers/distances.h"

#include "graven/functional/distances.h"

namespace graven::nn {

CosineSimilarity::CosineSimilarity(std::int64_t dim, double eps) : dim_(dim), eps_(eps) {}
Tensor CosineSimilarity::forward(Tensor x1, Tensor x2) {
  return cosine_similarity(Operand(x1, call_location()), Operand(x2, call_location()), dim_, eps_);
}

PairwiseDistance::PairwiseDistance(double p, double eps, bool keepdim) : p_(p), eps_(eps), keepdim_(keepdim) {}
Tensor PairwiseDistance::forward(Tensor x1, Tensor x2) {
  return pairwise_distance(Operand(x1, call_location()), Operand(x2, call_location()), p_, eps_, keepdim_);
}

}  // namespace graven::nn
