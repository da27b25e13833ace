// What works along a symbol, in one compiled training graph: the results and the steps of eager mode, whatever the
// size.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/frontend/error_text.h"

namespace graven::symbols_test {
namespace {

struct Net : nn::Module<Net> {
  nn::Linear layer = child("layer", nn::Linear(3, 4));
  std::vector<Tensor> forward(Tensor x, Tensor positions) {
    const Tensor y = tanh(layer(x));
    const Dim batch = x.shape()[0];
    Tensor changed = y * 2;
    changed.select(0, -1).mul_(3);
    Tensor first = changed.narrow(0, 0, 1);
    changed.add_(1);
    first.add_(y[0]);
    const Tensor tall = cat({y, y * 3}, 0);
    Tensor parts = cat({y, y * 3}, 0);
    chunk(parts, 2)[1].mul_(2);
    parts.slice(0, 1).add_(y.sum());
    parts.slice(0, 0, -1).mul_(0.5);
    return {y / size_of(x, 0),
            y * zeros({batch, 1}) + ones({1, 1}).expand({batch, 4}) * y,
            arange(batch) * 2,
            y.select(0, -1) + y.narrow(0, -1, 1) + y[0],
            changed,
            roll(y, {1, -2}, {0, 1}),
            flip(y, {0, 1}),
            std::get<0>(topk(y, 1, 0)),
            std::get<0>(median(y, 0)),
            median(y),
            index(y, 0, positions) + index(y, 0, positions - size_of(y, 0)),
            index_add(y, 0, positions, y.slice(0, 0, 1).expand({2, -1})),
            scatter_reduce(y, 0, positions.unsqueeze(1).expand({2, 4}), y[0].unsqueeze(0).expand({2, 4}), "mean"),
            var(y, {0}, {.correction = 0.5}),
            glu(tall, 0),
            chunk(tall, 2)[1],
            parts,
            cat({y, ones({1, 4})}, 0).slice(0, batch, batch + 1),
            kl_div(log_softmax(y, 1), softmax(y.detach() * 2, 1), {.reduction = Reduction::batchmean})};
  }
};

Tensor whole_loss_of(const std::vector<Tensor>& results) {
  Tensor loss = zeros({});
  for (const Tensor& r : results)
    if (ir::is_floating(r.dtype())) loss = loss + (r.square() + r.sin()).sum();
  return loss;
}

struct Train : nn::Graph<Train> {
  Net net = child("net", Net());
  optim::SGD optimizer{net.parameters(), {.lr = 0.01}};
  Train() { add_optimizer(optimizer); }
  std::vector<Tensor> build(Tensor x, Tensor positions) {
    std::vector<Tensor> results = net(x, positions);
    Tensor loss = whole_loss_of(results);
    loss.backward();
    results.push_back(loss);
    return results;
  }
};

TEST(CompiledSymbols, TrainAsEagerlyAtEverySize) {
  manual_seed(11);
  Train graph;
  Net eager;
  eager.load_state_dict(graph.net.state_dict());
  optim::SGD optimizer(eager.parameters(), {.lr = 0.01});
  graph.compile(spec({Dim("batch", 6), 3}), spec({2}, i64));
  for (const std::int64_t size : {6, 1, 2, 4, 6}) {
    SCOPED_TRACE(size);
    const Tensor x = randn({size, 3}), positions = tensor({std::int64_t{0}, size - 1});
    std::vector<Tensor> expected = eager(x, positions);
    expected.push_back(whole_loss_of(expected));
    expected.back().backward();
    optimizer.step();
    optimizer.zero_grad();
    const std::vector<Tensor> found = graph(x, positions);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      ASSERT_EQ(found[k].describe(), expected[k].describe()) << k;
      EXPECT_TRUE(allclose(found[k].to(f64), expected[k].detach().to(f64), 1e-4, 1e-5)) << "result " << k;
    }
    for (const char* name : {"layer.weight", "layer.bias"})
      EXPECT_TRUE(allclose(graph.net.layer.named(std::string(name).substr(6)),
                           eager.layer.named(std::string(name).substr(6)), 1e-4, 1e-5))
          << name;
  }
}

struct Third : nn::Graph<Third> {
  Tensor build(Tensor x) { return x.select(0, 2) + x.narrow(0, 1, 2).sum(0); }
};

TEST(CompiledSymbols, WhatIsNotThereIsAnErrorWhenTheGraphRuns) {
  Third graph;
  graph.compile(spec({Dim("batch", 6), 3}));
  const Tensor x = randn({3, 3});
  EXPECT_TRUE(allclose(graph(x), x[2] + x.narrow(0, 1, 2).sum(0)));
  const std::string text = test::error_of([&] { (void)graph(randn({2, 3})); });
  EXPECT_NE(text.find("index_select: index 2 at position "), std::string::npos) << text;
  EXPECT_NE(text.find("compiled_test.cpp:"), std::string::npos) << text;
}

struct Normalised : nn::Graph<Normalised> {
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(3));
  Tensor build(Tensor x) { return norm(x); }
};

TEST(CompiledSymbols, StatisticsOfOneValueAreAnError) {
  Normalised graph;
  graph.compile(spec({Dim("batch", 6), 3}));
  (void)graph(randn({2, 3}));
  const std::string text = test::error_of([&] { (void)graph(randn({1, 3})); });
  EXPECT_NE(text.find("batch must lie in [2, 6]"), std::string::npos) << text;
}

struct OfPictures : nn::Graph<OfPictures> {
  nn::InstanceNorm2d norm = child("norm", nn::InstanceNorm2d(3));
  Tensor build(Tensor x) { return norm(x); }
};

TEST(CompiledSymbols, StatisticsOfOneValueOfTwoSymbolsAreAnError) {
  OfPictures graph;
  graph.compile(spec({2, 3, Dim("height", 4), Dim("width", 4)}));
  for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{1, 2}, {4, 1}, {3, 4}}) {
    const Tensor x = randn({2, 3, height, width});
    EXPECT_TRUE(allclose(graph(x), graph.norm(x), 1e-4, 1e-5));
  }
  const std::string text = test::error_of([&] { (void)graph(randn({2, 3, 1, 1})); });
  EXPECT_NE(text.find("height*width must be at least 2, got 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace graven::symbols_test
