// Indices in the data of compiled graphs: out of range they are errors, and nothing else happens.
#include <gtest/gtest.h>

#include <graven/graven.h>

#include "tests/frontend/error_text.h"
#include "tests/frontend/member_lines.h"

namespace graven {
namespace {

constexpr int kClassify = __LINE__;
struct Classify : nn::Graph<Classify> {
  nn::Embedding words = child("words", nn::Embedding(5, 3, {.padding_idx = 0}));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss({.label_smoothing = 0.1}));
  optim::SGD optimizer{words.parameters(), {.lr = 0.5}};
  Classify() { add_optimizer(optimizer); }
  Tensor build(Tensor tokens, Tensor labels) {
    Tensor loss = loss_fn(words(tokens), labels);
    loss.backward();
    return loss;
  }
};

TEST(IndexGraph, AnIndexOutOfRangeIsAnErrorAndChangesNothing) {
  Classify graph;
  const Tensor tokens = tensor({1, 4, 0, 1}), labels = tensor({0, 2, 1, 1});
  const Tensor before = graph.words.weight.detach().clone();
  const std::string token = test::error_of([&] { (void)graph(tensor({1, 5, 0, 1}), labels); });
  const auto line = [](int own) { return std::to_string(kClassify + (test::members_have_lines() ? own : 5)); };
  EXPECT_NE(
      token.find("words, index_graph_test.cpp:" + line(2) + ": index_select: index 5 at position 1 is outside [0, 5)"),
      std::string::npos)
      << token;
  const std::string label = test::error_of([&] { (void)graph(tokens, tensor({0, 2, 1, -1})); });
  EXPECT_NE(label.find("loss_fn, index_graph_test.cpp:" + line(3) +
                       ": cross_entropy: label -1 at position 3 is outside [0, 3)"),
            std::string::npos)
      << label;
  EXPECT_TRUE(equal(graph.words.weight, before));
  EXPECT_EQ(graph.train_step(), 0);

  // The graph goes on, and learns what eager mode learns.
  Tensor weight = before.clone().requires_grad_();
  cross_entropy(embedding(tokens, weight, 0), labels, {.label_smoothing = 0.1}).backward();
  (void)graph(tokens, labels);
  EXPECT_TRUE(allclose(graph.words.weight, before - weight.grad() * 0.5, 1e-5, 1e-6));
  EXPECT_EQ(graph.train_step(), 1);
  EXPECT_TRUE(equal(graph.words.weight[0], before[0])) << "the padding is not trained";
}

// ---- what is made of several operators: eagerly and compiled the same results, and the same training ----

struct Lookups : nn::Module<Lookups> {
  nn::ParameterList tables = child("tables", nn::ParameterList{randn({5, 4}), randn({5, 4, 3}), randn({6, 4})});
  nn::ParameterDict sources =
      child("sources",
            nn::ParameterDict{{"rows", randn({7, 4})}, {"images", randn({1, 2, 4, 5})}, {"map", randn({1, 2, 3})}});
  nn::ModuleDict<nn::EmbeddingBag> bags =
      child("bags", nn::ModuleDict<nn::EmbeddingBag>{{"sum", nn::EmbeddingBag(5, 3, {.mode = "sum"})},
                                                     {"mean", nn::EmbeddingBag(5, 3, {.padding_idx = 1})},
                                                     {"max", nn::EmbeddingBag(5, 3, {.mode = "max"})}});

  std::vector<Tensor> forward(Tensor i, Tensor j, Tensor tokens, Tensor offsets) {
    std::vector<Tensor> results;
    results.push_back(tables[1].index({i, j}));
    results.push_back(tables[1].index({i, indexing::Slice(), 1}));
    results.push_back(tables[1].index({indexing::Slice(1, 4), "...", j}));
    results.push_back(take(tables[0], i - j));
    results.push_back(index_put(tables[0], {i, j}, sources["rows"].select(1, 0)));
    results.push_back(index_put(tables[0], {i}, sources["rows"], true));
    const Tensor places = (i + 5).unsqueeze(1).expand({7, 4}) % 6;
    for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"})
      for (const bool include_self : {true, false})
        results.push_back(scatter_reduce(tables[2], 0, places, sources["rows"], reduce, include_self));
    for (const auto& [key, bag] : bags) {
      results.push_back(bag(tokens, offsets));
      results.push_back(bag(tokens.reshape({2, 3})));
    }
    results.push_back(grid_sample(sources["images"], affine_grid(sources["map"], {1, 2, 3, 4})));
    results.push_back(grid_sample(sources["images"], affine_grid(sources["map"], {1, 2, 3, 4}, true),
                                  {.padding_mode = "border", .align_corners = true}));
    results.push_back(
        grid_sample(sources["images"], affine_grid(sources["map"], {1, 2, 3, 4}), {.padding_mode = "reflection"}));
    results.push_back(grid_sample(sources["images"], affine_grid(sources["map"], {1, 2, 3, 4}), {.mode = "nearest"}));
    return results;
  }
};

Tensor loss_of(const std::vector<Tensor>& results) {
  Tensor loss = zeros({});
  for (const Tensor& r : results) loss = loss + (r.square() + r.sin()).mean();
  return loss;
}

struct TrainLookups : nn::Graph<TrainLookups> {
  Lookups model = child("model", Lookups());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  TrainLookups() { add_optimizer(optimizer); }
  std::vector<Tensor> build(Tensor i, Tensor j, Tensor tokens, Tensor offsets) {
    std::vector<Tensor> results = model(i, j, tokens, offsets);
    Tensor loss = loss_of(results);
    loss.backward();
    results.push_back(loss);
    return results;
  }
};

TEST(IndexGraph, ComposedLookupsTrainAsEagerly) {
  manual_seed(9);
  TrainLookups graph;
  Lookups eager;
  eager.load_state_dict(graph.model.state_dict());
  const Tensor i = tensor({0, -1, 4, 2, 2, -5, 3}), j = tensor({1, 2, 0, -1, -1, 0, 1}),
               tokens = tensor({1, 4, 0, 1, 1, 3}), offsets = tensor({0, 2, 2, 5});
  std::vector<Tensor> expected = eager(i, j, tokens, offsets);
  expected.push_back(loss_of(expected));
  expected.back().backward();
  const std::vector<Tensor> found = graph(i, j, tokens, offsets);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(found[k].shape(), expected[k].shape()) << k;
    EXPECT_TRUE(allclose(found[k], expected[k], 1e-5, 1e-5)) << k;
  }
  const nn::NamedTensors trained = graph.model.named_parameters(), before = eager.named_parameters();
  for (std::size_t k = 0; k < trained.size(); ++k)
    EXPECT_TRUE(allclose(trained[k].second, before[k].second.detach() - before[k].second.grad() * 0.1, 1e-5, 1e-5))
        << trained[k].first;

  // Each index is checked, also where another row would be in range.
  EXPECT_NE(test::error_of([&] {
              (void)graph(i, tensor({1, 4, 0, -1, -1, 0, 1}), tokens, offsets);
            }).find("index 4 at position 1 is outside [0, 4)"),
            std::string::npos);
}

struct Turn : nn::Graph<Turn> {
  Tensor build(Tensor images, Tensor maps, Tensor i) {
    return grid_sample(images, affine_grid(maps, images.shape())).index({indexing::Slice(), 0, i, i});
  }
};

TEST(IndexGraph, GridsAndIndicesOfAnyBatch) {
  manual_seed(10);
  Turn graph;
  const Dim batch("batch", 4);
  graph.compile(spec({batch, 2, 3, 5}), spec({batch, 2, 3}), spec({2}, i64));
  NoGradGuard no_grad;
  for (const std::int64_t n : {1, 3, 4}) {
    const Tensor images = randn({n, 2, 3, 5}), maps = randn({n, 2, 3}), i = tensor({2, -2});
    EXPECT_TRUE(allclose(graph(images, maps, i), graph.build(images, maps, i), 1e-5, 1e-5)) << n;
  }
}

}  // namespace
}  // namespace graven
