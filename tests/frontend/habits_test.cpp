// What users of PyTorch write by habit: each sentence stands in eager code and in a graph's build(), and gives the
// same. That the numbers are PyTorch's is tests/operators' matter.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <graven/graven.h>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"

namespace graven::habits_test {
namespace {

/// Of x f32[3,4], y f32[3,4], i i64[3], rows of x by column or of y.
struct Given {
  Tensor x, y, i;
};
using Sentence = test::Call<Tensor(const Given&)>;

struct AllAtOnce : nn::Graph<AllAtOnce> {
  std::vector<std::pair<std::string, Sentence>> sentences;
  std::vector<Tensor> build(Tensor x, Tensor y, Tensor i) {
    std::vector<Tensor> results;
    for (const auto& [name, sentence] : sentences) results.push_back(sentence({x, y, i}));
    return results;
  }
};

std::vector<std::pair<std::string, Sentence>> sentences() {
  return {
      {"var(0)", [](const Given& g) { return g.x.var(0); }},
      {"std(0)", [](const Given& g) { return g.x.std(0); }},
      {"std(1)", [](const Given& g) { return g.x.std(1); }},
      {"prod(0)", [](const Given& g) { return g.x.prod(0); }},
      {"sum(0)", [](const Given& g) { return g.x.sum(0); }},
      {"mean(1)", [](const Given& g) { return g.x.mean(1); }},
      {"max(tensor)", [](const Given& g) { return g.x.max(g.y); }},
      {"max(x, y)", [](const Given& g) { return max(g.x, g.y); }},
      {"min(x, y)", [](const Given& g) { return min(g.x, g.y); }},
      {"max()", [](const Given& g) { return g.x.max(); }},
      {"silu", [](const Given& g) { return g.x.silu(); }},
      {"gelu", [](const Given& g) { return g.x.gelu(); }},
      {"lerp", [](const Given& g) { return g.x.lerp(g.y, 0.25); }},
      {"addcmul", [](const Given& g) { return g.x.addcmul(g.x, g.y, 0.5); }},
      {"where", [](const Given& g) { return g.x.where(g.x > 0, g.y); }},
      {"where(c, a, b)", [](const Given& g) { return where(g.x > 0, g.x, 0); }},
      {"new_zeros", [](const Given& g) { return g.x.new_zeros({2, 2}) + 1; }},
      {"T", [](const Given& g) { return g.x.T() * 2; }},
      {"empty_like", [](const Given& g) { return empty_like(g.x).fill_(3); }},
      {"index_copy", [](const Given& g) { return index_copy(g.x, 0, g.i, g.y); }},
      {"index_fill", [](const Given& g) { return index_fill(g.x, 0, g.i.narrow(0, 0, 1), 7); }},
      {"bincount", [](const Given& g) { return bincount(g.i, {}, 5); }},
      {"quantile", [](const Given& g) { return quantile(g.x, 0.3, 1); }},
      {"diag", [](const Given& g) { return diag(g.x[0]); }},
      {"cummax", [](const Given& g) { return std::get<0>(cummax(g.x, 1)); }},
      {"searchsorted", [](const Given& g) { return searchsorted(std::get<0>(sort(g.x[0])), g.y); }},
      {"isclose", [](const Given& g) { return isclose(g.x, g.x + 1e-9); }},
      {"linalg.inv", [](const Given& g) { return linalg::inv(matmul(g.x, g.x.T()) + eye(3)); }},
      {"linalg.det", [](const Given& g) { return linalg::det(matmul(g.x, g.x.T()) + eye(3)); }},
      {"linalg.solve", [](const Given& g) { return linalg::solve(matmul(g.x, g.x.T()) + eye(3), g.y); }},
      {"linalg.cholesky", [](const Given& g) { return linalg::cholesky(matmul(g.x, g.x.T()) + eye(3)); }},
      {"linalg.vector_norm", [](const Given& g) { return linalg::vector_norm(g.x); }},
      {"diag_embed", [](const Given& g) { return diag_embed(g.x) * 2; }},
      {"kron", [](const Given& g) { return kron(g.x, g.y); }},
      {"tensordot", [](const Given& g) { return tensordot(g.x, g.y.T(), 1); }},
      {"isin", [](const Given& g) { return isin(g.i, tensor({0, 2})); }},
      {"nanmean", [](const Given& g) { return nanmean(where(g.x > 0, g.x, std::nan("")), 1); }},
      {"logcumsumexp", [](const Given& g) { return g.x.logcumsumexp(1); }},
      {"triu_indices",
       [](const Given& g) {
         const Tensor at = triu_indices(3, 4, 1);
         return g.x.index({at[0], at[1]});
       }},
      {"view(-1)", [](const Given& g) { return g.x.view(-1) * 2; }},
      {"reshape(-1)", [](const Given& g) { return g.x.T().reshape(-1); }},
      {"reshape({})", [](const Given& g) { return g.x.sum().reshape({}); }},
      {"zeros_like(x, dtype)", [](const Given& g) { return zeros_like(g.x, i64) + g.i.unsqueeze(1); }},
      {"full_like(x, 2, dtype)", [](const Given& g) { return full_like(g.x, 2.5, f64) + ones_like(g.x, f64); }},
      {"concat", [](const Given& g) { return concat({g.x, g.y}, 1); }},
      {"clip", [](const Given& g) { return g.x.clip(-0.5, 0.5); }},
      {"unfold", [](const Given& g) { return g.x.unfold(1, 2, 1) * 1; }},
  };
}

struct WithALambda : nn::Graph<WithALambda> {
  nn::Sequential model = child("model", nn::Sequential(nn::Flatten(), [](Tensor x) { return x * 2; }, nn::Tanh()));
  Tensor build(Tensor x) { return model(x); }
};

TEST(Habits, ALambdaStandsInASequential) {
  WithALambda graph;
  const Tensor x = tensor({{0.5, -1.0}, {0.25, 3.0}});
  EXPECT_TRUE(allclose(graph(x), tanh(x * 2)));
  EXPECT_TRUE(allclose(graph.model(x), tanh(x * 2)));
}

TEST(Habits, AreTheSameInAGraph) {
  const Given given{tensor({{0.5, -1.0, 2.0, 0.25}, {1.5, 0.75, -0.5, 1.0}, {-2.0, 0.1, 0.6, -0.3}}),
                    tensor({{1.0, 0.5, -0.5, 2.0}, {0.3, -0.2, 0.9, -1.1}, {0.7, 1.3, -0.4, 0.2}}), tensor({2, 0, 1})};
  AllAtOnce graph;
  graph.sentences = sentences();
  const std::vector<Tensor> found = graph(given.x, given.y, given.i);
  for (std::size_t s = 0; s < graph.sentences.size(); ++s) {
    const Tensor expected = graph.sentences[s].second(given);
    EXPECT_EQ(found[s].dtype(), expected.dtype()) << graph.sentences[s].first;
    EXPECT_TRUE(allclose(found[s].to(f64), expected.to(f64), 1e-5, 1e-6))
        << graph.sentences[s].first << found[s] << expected;
  }
}

/// Random ones belong into training graphs: what they give in a step.
struct Random : nn::Graph<Random> {
  nn::Linear model = child("model", nn::Linear(4, 4));
  optim::SGD optimizer{model.parameters(), {.lr = 0}};
  Random() { add_optimizer(optimizer); }
  std::tuple<Tensor, Tensor, Tensor> build(Tensor x) {
    Tensor logits = model(x);
    logits.sum().backward();
    Tensor drawn = multinomial(softmax(logits.detach(), 1), 2);
    return {drawn, gumbel_softmax(logits.detach(), 1.0, true), logits.detach()};
  }
};

TEST(Habits, RandomOnesDrawInEachStep) {
  manual_seed(2);
  Random graph;
  const Tensor x = ones({16, 4});
  const auto [drawn, hard, logits] = graph(x);
  EXPECT_EQ(drawn.sizes(), (std::vector<std::int64_t>{16, 2}));
  EXPECT_TRUE((drawn.select(1, 0) != drawn.select(1, 1)).all().item<bool>()) << "without replacement";
  EXPECT_TRUE(allclose(hard.sum(1), ones({16})));
  const Tensor again = std::get<0>(graph(x));
  EXPECT_FALSE(equal(drawn, again));
}

}  // namespace
}  // namespace graven::habits_test
