// Operators by themselves on a device: what a program says eagerly gives there what it gives on the processor.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/cuda_jit/device.h"

namespace graven {
namespace {

using cuda_jit::expect_close;
using Results = std::vector<Tensor>;

/// A few lines as users write them, on a device; what is compared is all that they return.
struct Program {
  std::string name;
  test::Call<Results(const Device&)> lines;
};
std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.name; }

/// What a training leaves behind: losses, parameters and buffers, gradients.
template <class Net>
Results trained(Net& net, optim::Optimizer& optimizer, const test::Call<Tensor()>& loss_of, int steps) {
  Results results;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    Tensor loss = loss_of();
    loss.backward();
    optimizer.step();
    results.push_back(loss);
  }
  for (const auto& [name, t] : net.state_dict()) results.push_back(t);
  for (const Tensor& p : optimizer.parameters()) results.push_back(p.grad());
  return results;
}

struct Classifier : nn::Module<Classifier> {
  nn::Linear hidden = child("hidden", nn::Linear(6, 8)), output = child("output", nn::Linear(8, 3));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.25));
  Tensor forward(Tensor x) { return output(dropout(relu(hidden(x)))); }
};

struct ConvNet : nn::Module<ConvNet> {
  nn::Conv2d conv = child("conv", nn::Conv2d(2, 4, 3, {.padding = 1}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(4));
  nn::Linear output = child("output", nn::Linear(4, 3));
  Tensor forward(Tensor x) { return output(max_pool2d(relu(norm(conv(x))), 2).mean({2, 3})); }
};

Results classifier(const Device& device) {
  Classifier net;
  net.to(device);
  const Tensor x = randn({5, 6}).to(device), labels = randint(0, 3, {5}).to(device);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
  lr_scheduler::CosineAnnealingLR schedule(optimizer, {.T_max = 4});
  return trained(
      net, optimizer,
      [&] {
        schedule.step();
        return cross_entropy(net(x), labels);
      },
      3);
}

Results convolutions(const Device& device) {
  ConvNet net;
  net.to(device);
  const Tensor x = randn({3, 2, 6, 6}, device), labels = randint(0, 3, {3}, {i64, device});
  optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Results results = trained(net, optimizer, [&] { return cross_entropy(net(x), labels); }, 2);
  net.eval();
  const NoGradGuard no_grad;
  const Tensor scores = net(x);
  results.push_back(scores);
  results.push_back((scores.argmax(1) == labels).to(f32).mean());
  return results;
}

Results views(const Device& device) {
  Tensor x = arange(24).to(f32).reshape({4, 6}).to(device);
  x[0] = ones({6}, device);
  x.slice(1, 2, 4) = 7;
  x[1].add_(0.5);
  return {x,
          x.t(),
          x.t().reshape({3, 8}),
          x.t() * 2,
          x.slice(0, 1, 4, 2).sum(0),
          x.reshape({2, 2, 6}).transpose(0, 2).contiguous(),
          x[2].expand({3, 6}) + x.slice(0, 0, 3),
          x.diagonal(),
          cat({x, x.flip(0)}, 1),
          x.t().to(i32),
          x.to(f64).sqrt()};
}

Results scalars(const Device& device) {
  const Tensor x = randn({2, 3}).to(device).requires_grad_(), scale = tensor(1.5).requires_grad_();
  const Tensor y = (2 * x + tensor(3.0) / (x * x + 1)) * scale - x.pow(2);
  const Tensor z = where(x > 0, y, tensor(0.25)).sum() + (x.clamp(-0.5, 0.5) * tensor(2, i64)).mean();
  z.backward();
  EXPECT_EQ(scale.grad().device(), Device()) << "its gradient is where it is";
  return {y, z, x.grad(), scale.grad()};
}

Results from_device_to_device(const Device& device) {
  const Tensor w = randn({3, 3}).requires_grad_();
  const Tensor loss = matmul(w.to(device), w.to(device).t()).cpu().square().sum();
  loss.backward();
  EXPECT_EQ(w.grad().device(), Device());
  return {loss, w.grad()};
}

Results made_there(const Device& device) {
  const Tensor x = rand({2, 3}, {f32, true, device});
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  for (const Tensor& t : {zeros({2}, device), ones_like(x), x.new_full({2}, 3), randn_like(x), full_like(x, 2)})
    EXPECT_EQ(t.device(), device);
  return {x,
          zeros_like(x) + full({3}, 2, device),
          dropout(ones({4, 5}, device), 0.5),
          bernoulli(x.detach()),
          randn_like(x),
          eye(3, device),
          linspace(0, 1, 5, device),
          arange(5).to(device).to(f32)};
}

Results indices(const Device& device) {
  const Tensor table = randn({5, 3}).to(device).requires_grad_();
  const Tensor at = tensor({3, 0, 3, 4}).to(device), negative = tensor({-1, 2}).to(device);
  Tensor put = zeros({5, 3}, device);
  put.index_add_(0, at, ones({4, 3}, device));
  const Tensor rows = embedding(at, table);
  rows.square().sum().backward();
  const auto [values, places] = rows.detach().sort(1);
  return {rows,
          table.grad(),
          index_select(table, 0, at),
          table.index({negative}),
          one_hot(at, 5),
          values,
          places,
          table.gather(1, tensor({{0}, {2}}).to(device)),
          put,
          std::get<0>(topk(table.detach(), 2)),
          table.detach().argmax(1),
          cumsum(table.detach(), 0)};
}

Results attention(const Device& device) {
  nn::TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 12, .dropout = 0});
  layer.to(device);
  const Tensor x = randn({2, 4, 8}).to(device).requires_grad_();
  const Tensor y = layer(x);
  y.square().mean().backward();
  Results results{y, x.grad()};
  for (const Tensor& p : layer.parameters()) results.push_back(p.grad());
  return results;
}

Results recurrence(const Device& device) {
  nn::LSTM lstm(3, 4);
  lstm.to(device);
  const Tensor x = randn({5, 2, 3}).to(device);
  const auto [y, state] = lstm(x);
  y.sum().backward();
  Results results{y, state.first, state.second};
  for (const Tensor& p : lstm.parameters()) results.push_back(p.grad());
  return results;
}

/// What lies in memory as something else: one channel, one pixel, dimensions of size 1.
Results other_views_of_results(const Device& device) {
  const Tensor x = randn({2, 3, 4, 4}).to(device).requires_grad_(), p = randn({1, 3, 1, 1}).to(device).requires_grad_(),
               one = randn({1, 3, 3, 3}).to(device);
  const Tensor y = x * p - x.mean(1, true) + x.std();
  const Tensor z = conv2d(y, one), whole = adaptive_avg_pool2d(y, 1), top = max_pool2d(z, 2);
  (z.sum() + whole.square().sum() + top.sum() + y.slice(2, 0, 4, 2).sum()).backward();
  return {y, z, whole, top, x.grad(), p.grad(), dot(x.detach().reshape({96}), y.detach().reshape({96}))};
}

/// Indices and values of the host beside tensors of the device, and what functions make themselves.
Results beside_the_host(const Device& device) {
  const Tensor x = randn({4, 3}).to(device), q = randn({1, 2, 3, 4}).to(device);
  Tensor put = x.clone();
  put.index_put_({tensor({1, 2})}, 3);
  put.index_put_({tensor({0})}, tensor(7.0));
  const Tensor w = randn({2, 3}, device).requires_grad_();
  Tensor h = w * 2;
  h[0] = 0;
  h.sum().backward();
  nn::LSTM lstm(3, 2);
  lstm.to(device);
  const auto packed = nn::utils::rnn::pack_padded_sequence(x.reshape({2, 2, 3}), tensor({2, 1}));
  data::DataLoader loader(data::TensorDataset(x, arange(4).to(device)), {.batch_size = 2});
  Results results{put,      x.index({tensor({-1, 0})}), scaled_dot_product_attention(q, q, q, {.is_causal = true}), h,
                  w.grad(), lstm(packed).second.first,  affine_grid(randn({1, 2, 3}).to(device), {1, 1, 2, 2})};
  for (const auto& [rows, numbers] : loader.epoch(0)) results.push_back(rows);
  return results;
}

/// A module moves between its forward and its backward pass: gradients come to where the parameters are.
Results moved_between(const Device& device) {
  nn::Linear net(3, 2);
  optim::Adam optimizer(net.parameters(), {.lr = 0.1});
  const Tensor loss = net(randn({2, 3})).square().sum();
  net.to(device);
  loss.backward();
  EXPECT_EQ(net.parameters()[0].grad().device(), device);
  optimizer.step();
  return {net.parameters()[0], net.parameters()[1]};
}

Results gradients_in_hand(const Device& device) {
  nn::Linear net(4, 2);
  net.to(device);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  amp::GradScaler scaler({.init_scale = 8});
  const Tensor x = randn({3, 4}).to(device);
  Results results;
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    scaler.scale(net(x).square().sum()).backward();
    scaler.unscale_(optimizer);
    results.push_back(tensor(static_cast<double>(nn::utils::clip_grad_norm_(net.parameters(), 0.5))));
    scaler.step(optimizer);
    scaler.update();
  }
  for (const Tensor& p : net.parameters()) results.push_back(p);
  return results;
}

Results optimizers(const Device& device) {
  Results results;
  const auto step = [&](const auto& make) {
    const std::vector<Tensor> parameters{randn({2, 3}, device).requires_grad_(), randn({4}, device).requires_grad_()};
    auto optimizer = make(parameters);
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      (parameters[0].square().sum() + parameters[1].pow(3).sum()).backward();
      optimizer.step();
    }
    for (const auto& [name, t] : optimizer.state_dict()) results.push_back(t);
    results.insert(results.end(), parameters.begin(), parameters.end());
  };
  using Parameters = std::vector<Tensor>;
  step([](const Parameters& p) { return optim::Adam(p, {.lr = 0.1, .weight_decay = 0.1}); });
  step([](const Parameters& p) { return optim::SGD(p, {.lr = 0.1, .momentum = 0.5, .nesterov = true}); });
  step([](const Parameters& p) { return optim::RMSprop(p, {.lr = 0.1}); });
  step([](const Parameters& p) { return optim::Adagrad(p, {.lr = 0.1}); });
  step([](const Parameters& p) { return optim::NAdam(p, {.lr = 0.1}); });
  step([](const Parameters& p) { return optim::Rprop(p, {.lr = 0.1}); });
  step([](const Parameters& p) { return optim::LAMB(p, {.lr = 0.1}); });
  step([](const Parameters& p) { return optim::Adafactor(p, {.lr = 0.1}); });
  return results;
}

/// As in the documentation of nn.Graph: a graph and eager lines take turns on one module.
struct GraphOf : nn::Graph<GraphOf> {
  Classifier model;
  explicit GraphOf(const Classifier& given) : model(child("model", given)) {}
  Tensor build(Tensor x) { return softmax(model(x), 1); }
};
Results graphs_and_operators(const Device& device) {
  Classifier net;
  net.to(device);
  net.eval();
  GraphOf graph(net);
  const Tensor x = randn({4, 6}).to(device);
  const Tensor before = graph(x);
  optim::SGD optimizer(net.parameters(), {.lr = 0.5});
  (graph(x) - before).abs().sum().item<double>();
  net(x).square().sum().backward();
  optimizer.step();
  const Tensor behind = graph(x), eagerly = softmax(net(x), 1);
  EXPECT_TRUE(allclose(behind, eagerly, 1e-4, 1e-5)) << "the graph sees what the optimizer has written";
  return {before, behind, eagerly};
}

/// What half types do there: products and convolutions, elementwise work, sums, what only moves elements, gradients.
Results halves(const Device& device) {
  Results results;
  const auto made = [&](const std::vector<std::int64_t>& shape, DType half) { return randn(shape, device).to(half); };
  for (const DType half : {bf16, f16}) {
    const Tensor x = made({6, 8}, half), w = made({5, 8}, half), b = made({5}, half);
    results.push_back(gelu(linear(x, w, b)));
    results.push_back(conv2d(made({2, 4, 7, 6}, half), made({6, 4, 3, 3}, half), {}, {.stride = 2, .padding = 1}));
    results.push_back(x.mean(0).to(f32) + arange(8).to(device).to(half));
  }
  const Tensor x = made({6, 8}, bf16), w = made({5, 8}, bf16);
  results.push_back(where(x > 0, x * 2.0 + 1, sigmoid(x)));
  for (const Tensor& reduced : {x.sum(), x.amax(1)}) results.push_back(reduced);
  results.push_back(cat({x.t(), x.t().slice(1, 0, 3)}, 1));
  results.push_back(embedding(tensor({3, 0, 3}).to(device), x));
  Tensor leaf = x.detach().clone().requires_grad_(), weight = w.detach().clone().requires_grad_();
  (linear(leaf, weight).square().slice(1, 1, 4) * 0.125).sum().backward();
  results.push_back(leaf.grad());
  results.push_back(weight.grad());
  return results;
}

/// What has no kernel of half types there, nor here: it computes in f32 and rounds.
Results halves_that_are_widened(const Device& device) {
  Results results;
  constexpr DType half = bf16;
  const auto made = [&](const std::vector<std::int64_t>& shape) { return randn(shape, device).to(half); };
  Tensor x = made({6, 8}).requires_grad_(), gamma = made({8}).requires_grad_();
  Tensor words = made({5, 8}).requires_grad_();
  const Tensor ids = tensor({3, 0, 3, 1, 1, 4}).to(device), labels = tensor({1, 0, 7, 2, 2, 5}).to(device);
  const Tensor h = layer_norm(x + embedding(ids, words), {8}, gamma);
  Tensor loss = cross_entropy(h, labels) + (softmax(h, 1) * log_softmax(x, 0)).sum();
  loss.backward();
  for (const Tensor& t : {h, loss, x.grad(), gamma.grad(), words.grad()}) results.push_back(t);
  const auto [sorted, order] = sort(x.detach(), 1);
  for (const Tensor& t : {sorted, order, argmax(x.detach(), 1), cumsum(x.detach(), 0)}) results.push_back(t);
  const Tensor images = made({2, 4, 6, 6});
  results.push_back(max_pool2d(images, 2));
  results.push_back(group_norm(images, 2));
  results.push_back(conv2d(images, made({4, 1, 3, 3}), {}, {.padding = 1, .groups = 4}));
  nn::GRU gru(8, 4);
  gru.to(half);
  gru.to(device);
  results.push_back(std::get<0>(gru(made({3, 2, 8}))));
  // States are of the parameters' type, as PyTorch's.
  nn::Linear layer(8, 3);
  layer.to(half);
  layer.to(device);
  optim::Adam optimizer(layer.parameters(), {.lr = 0.01});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    layer(x.detach()).square().mean().backward();
    nn::utils::clip_grad_norm_(layer.parameters(), 0.5);
    optimizer.step();
  }
  results.push_back(layer.weight.detach().to(f32));
  return results;
}

class EagerOnADevice : public testing::TestWithParam<Program> {};

TEST_P(EagerOnADevice, GivesWhatTheProcessorGives) {
  const auto run = [](const Device& device) {
    manual_seed(29);
    return GetParam().lines(device);
  };
  const Results expected = run("cpu"), got = run("cuda");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(got[i], expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EagerOnADevice,
    testing::Values(Program{"classifier", classifier}, Program{"convolutions", convolutions}, Program{"views", views},
                    Program{"scalars", scalars}, Program{"from_device_to_device", from_device_to_device},
                    Program{"made_there", made_there}, Program{"indices", indices}, Program{"attention", attention},
                    Program{"recurrence", recurrence}, Program{"gradients_in_hand", gradients_in_hand},
                    Program{"optimizers", optimizers}, Program{"other_views_of_results", other_views_of_results},
                    Program{"beside_the_host", beside_the_host}, Program{"moved_between", moved_between},
                    Program{"graphs_and_operators", graphs_and_operators}, Program{"halves", halves},
                    Program{"halves_that_are_widened", halves_that_are_widened}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace graven
