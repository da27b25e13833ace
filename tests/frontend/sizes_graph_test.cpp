// Sizes that a symbol stands for, beside weights and constants: at each size a graph computes what the same sentence
// computes eagerly. What depends on weights alone is computed once (ir/passes/prepare_weights.cpp), what depends on a
// size is not.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <functional>
#include <string>
#include <vector>

#include "tests/frontend/error_text.h"

namespace graven::sizes_graph_test {
namespace {

struct Net : nn::Module<Net> {
  Tensor scale = parameter("scale", tensor({0.5, -1.0, 2.0, 0.25})), table = parameter("table", randn({12, 4}));
  Tensor rates = buffer("rates", tensor({1.0, 0.1, 0.01, 0.001}));
  Tensor cache = buffer("cache", zeros({5, 4}));
  nn::Linear layer = child("layer", nn::Linear(4, 4));
};

struct Sentence {
  const char* name;
  std::function<Tensor(const Net& net, const Tensor& x)> say;
};

/// Of f32[rows,length,4]: rows from 1 to 3, length from 2 to 6.
const Sentence kSentences[] = {
    {"SizeAsANumber", [](const Net& n, const Tensor& x) { return x + size_of(x, 1).to(f32) * n.scale; }},
    {"SizeTimesSize",
     [](const Net& n, const Tensor& x) {
       return x.sum({0, 1}) / (size_of(x, 0) * size_of(x, 1)).to(f32) + n.scale.exp();
     }},
    {"RowAtTheEnd", [](const Net& n, const Tensor& x) { return x + n.table.narrow(0, x.shape()[1] - 1, 1) * 2; }},
    {"RowsBehind",
     [](const Net& n, const Tensor& x) {
       return x.select(1, 0) + n.table.slice(0, x.shape()[1], x.shape()[1] + 2).sum(0).sin();
     }},
    {"RowOfAConstant",
     [](const Net& n, const Tensor& x) {
       const Tensor places = tensor({{0.0F}, {1.0F}, {2.0F}, {3.0F}, {4.0F}, {5.0F}, {6.0F}});
       return x * n.scale + places.narrow(0, x.shape()[1], 1);
     }},
    {"Rotation",
     [](const Net& n, const Tensor& x) {
       const Tensor angle = (size_of(x, 1) - 1).to(f32) * n.rates;
       return n.layer(x.select(1, -1) * angle.cos() + x.select(1, 0) * angle.sin());
     }},
    {"PlacesOfAll",
     [](const Net& n, const Tensor& x) { return x * n.scale + arange(x.shape()[1]).to(f32).unsqueeze(1) * n.rates; }},
    {"OnesOfAll", [](const Net& n, const Tensor& x) { return x.sum(0) + ones({x.shape()[1], 4}).mul(n.scale); }},
    {"WeightBySize", [](const Net& n, const Tensor& x) { return linear(x, n.layer.weight / size_of(x, 0).to(f32)); }},
    {"ProductBySize", [](const Net& n, const Tensor& x) { return matmul(x, n.layer.weight * size_of(x, 1).to(f32)); }},
    {"AllButTheFirst", [](const Net& n, const Tensor& x) { return n.layer(x.slice(1, 1).flatten(0, 1)); }},
    {"AllButTheFirstAsRows", [](const Net& n, const Tensor& x) { return n.layer(x.slice(1, 1).reshape({-1, 4})); }},
    {"Differences",
     [](const Net& n, const Tensor& x) {
       const Dim& length = x.shape()[1];
       return ((x.slice(1, 1, length) - x.slice(1, 0, length - 1)) * n.scale).flatten(0, 1);
     }},
    {"WrittenRow",
     [](const Net& n, const Tensor& x) {
       Tensor all = n.table * 1;
       all.narrow(0, x.shape()[1] - 1, 1).copy_(x.sum({0, 1}).unsqueeze(0));
       return all;
     }},
    {"WrittenRows",
     [](const Net& n, const Tensor& x) {
       Tensor all = n.table * 2;
       all.slice(0, 1, x.shape()[1] + 1).mul_(x.sum(0));
       all.slice(0, x.shape()[1], x.shape()[1] + 3).fill_(0.5);
       return all;
     }},
    {"WrittenBuffer",
     [](const Net& n, const Tensor& x) {
       {
         const NoGradGuard no_grad;
         Tensor cache = n.cache;
         cache.narrow(0, x.shape()[0], 1).copy_(x.sum({0, 1}).unsqueeze(0));
         cache.slice(0, 0, x.shape()[0]).add_(1);
       }
       return n.cache * n.scale;
     }},
    {"Triangle",
     [](const Net& n, const Tensor& x) {
       const Tensor scores = matmul(x, x.transpose(1, 2) * n.scale.unsqueeze(1));
       return scores.tril(-1).flatten(1, 2);
     }},
};

class Sizes : public testing::TestWithParam<Sentence> {};

struct Infer : nn::Graph<Infer> {
  Net net;
  Sentence sentence;
  Infer(const Net& n, Sentence s) : net(child("net", n)), sentence(std::move(s)) {}
  Tensor build(Tensor x) { return sentence.say(net, x); }
};
struct Learn : nn::Graph<Learn> {
  Net net;
  Sentence sentence;
  Learn(const Net& n, Sentence s) : net(child("net", n)), sentence(std::move(s)) {
    add_optimizer(optim::SGD(net.parameters(), {.lr = 0.01}));
  }
  Tensor build(Tensor x) {
    const Tensor loss = sentence.say(net, x).square().mean();
    loss.backward();
    return loss;
  }
};

TEST_P(Sizes, MeanInAGraphWhatTheyMeanEagerly) {
  manual_seed(2);
  Net net;
  const auto any_size = [] { return spec({Dim("rows", 3), Dim("length", 2, 6), 4}, "x"); };
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{1, 2}, {3, 6}, {2, 3}, {3, 2}, {1, 6}};
  // A module of its own, for some sentences write into buffers.
  Net inferring;
  inferring.load_state_dict(net.state_dict());
  Infer infer(inferring, GetParam());
  infer.compile(any_size());
  for (const auto& [rows, length] : sizes) {
    const Tensor x = randn({rows, length, 4}), expected = GetParam().say(net, x), found = infer(x);
    EXPECT_EQ(found.shape(), expected.shape());
    EXPECT_TRUE(allclose(found, expected, 1e-5, 1e-6)) << rows << " rows of " << length;
  }
  Net learned;
  learned.load_state_dict(net.state_dict());
  Learn learn(learned, GetParam());
  learn.compile(any_size());
  optim::SGD optimizer(net.parameters(), {.lr = 0.01});
  for (const auto& [rows, length] : sizes) {
    const Tensor x = randn({rows, length, 4});
    optimizer.zero_grad();
    const Tensor loss = GetParam().say(net, x).square().mean();
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(allclose(learn(x), loss, 1e-5, 1e-6)) << rows << " rows of " << length;
  }
  const nn::StateDict expected = net.state_dict(), found = learned.state_dict();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(allclose(found[i].second, expected[i].second, 1e-4, 1e-5)) << expected[i].first;
}

TEST(SizesOfNoInput, AreErrorsWithTheLine) {
  struct Foreign : nn::Graph<Foreign> {
    Tensor build(Tensor x) { return x + zeros({Dim("q", 2, 5), 4}).sum(0); }
  } graph;
  const std::string error = test::error_of([&] { graph.compile(spec({Dim("rows", 3), 4}, "x")); });
  EXPECT_NE(error.find("the size q in [2, 5] is none of the graph's inputs', which are rows in [1, 3]"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("sizes_graph_test.cpp:"), std::string::npos) << error;
}

TEST(SizesOfNoInput, NumbersOfMoreThan53BitsStayThemselves) {
  struct Full : nn::Graph<Full> {
    Tensor build(Tensor x) { return full_like(x, (std::int64_t{1} << 53) + 1) + x; }
  } graph;
  graph.compile(spec({Dim("rows", 3)}, i64, "x"));
  EXPECT_EQ(graph(tensor({1, 2})).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{(std::int64_t{1} << 53) + 2, (std::int64_t{1} << 53) + 3}));
}

INSTANTIATE_TEST_SUITE_P(Of, Sizes, testing::ValuesIn(kSentences),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace graven::sizes_graph_test
