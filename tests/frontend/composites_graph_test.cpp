// Functions and layers that are made of several operators, or of constants beside the data: a compiled graph gives what
// eager mode gives.
#include <gtest/gtest.h>

#include <vector>

#include <graven/graven.h>

namespace graven {
namespace {

class Composites : public nn::Graph<Composites> {
 public:
  Composites() {
    encoder.eval();
    transformer.eval();
  }
  std::vector<Tensor> build(Tensor images, Tensor volumes, Tensor rows, Tensor heads) {
    std::vector<Tensor> results;
    const auto [pooled, indices] = max_pool2d_with_indices(images, 3, {.stride = 2, .padding = 1});
    results.push_back(max_unpool2d(pooled, indices, 3, {.stride = 2, .padding = 1, .output_size = Size2(6, 6)}));
    results.push_back(fold(unfold(images, 3, {.padding = 1, .stride = 2}), 6, 3, {.padding = 1, .stride = 2}));
    results.push_back(channel_shuffle(pixel_unshuffle(pixel_shuffle(images, 2), 3), 3));
    results.push_back(local_response_norm(images, 3, 0.5));
    results.push_back(deconvolve(volumes));
    const auto state = cell(rows);
    results.push_back(cell(rows, state).second);
    results.push_back(cdist(normalize(rows), flip(rows, {0})) + cosine_similarity(rows, flip(rows, {1})));
    results.push_back(triplet_margin_loss(rows, flip(rows, {0}), flip(rows, {1})) +
                      gaussian_nll_loss(rows, flip(rows, {0}), abs(rows)));
    results.push_back(encoder(rows.unsqueeze(0)));
    const Tensor line = rows.unsqueeze(1), hidden = arange(5).unsqueeze(0) == 4;
    results.push_back(transformer(
        line, line, {.tgt_mask = nn::Transformer::generate_square_subsequent_mask(5), .src_key_padding_mask = hidden}));
    const Tensor few = heads.narrow(1, 0, 2);
    results.push_back(scaled_dot_product_attention(heads, few, few, {.enable_gqa = true}));
    return results;
  }
  nn::ConvTranspose3d deconvolve = child(
      "deconvolve", nn::ConvTranspose3d(2, 3, {2, 3, 2}, {.stride = 2, .padding = 1, .output_padding = {1, 0, 1}}));
  nn::LSTMCell cell = child("cell", nn::LSTMCell(4, 3));
  nn::TransformerEncoder encoder =
      child("encoder",
            nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6, .batch_first = true}), 2));
  nn::Transformer transformer =
      child("transformer",
            nn::Transformer(
                {.d_model = 4, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 6}));
};

TEST(CompositesGraph, GivesWhatEagerModeGives) {
  manual_seed(3);
  const Tensor images = randn({2, 4, 6, 6}), volumes = randn({1, 2, 2, 3, 3}), rows = randn({5, 4}),
               heads = randn({1, 4, 3, 2});
  Composites graph;
  NoGradGuard no_grad;
  const std::vector<Tensor> expected = graph.build(images, volumes, rows, heads),
                            found = graph(images, volumes, rows, heads);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].shape(), expected[i].shape()) << i;
    EXPECT_TRUE(allclose(found[i], expected[i], 1e-5, 1e-5)) << i;
  }
}

/// What is made of other operators, without parameters: its results, and the gradients of both inputs.
class Rearranged : public nn::Graph<Rearranged> {
 public:
  std::vector<Tensor> build(Tensor x, Tensor square, Tensor index) {
    std::vector<Tensor> results;
    const auto [most, where_most] = cummax(x, 1);
    const auto [least, where_least] = cummin(x, 0);
    results.insert(results.end(), {most, where_most, least, where_least});
    results.push_back(quantile(x, {0.2, 0.5}, 1));
    results.push_back(searchsorted(std::get<0>(sort(x, 1)), x));
    results.push_back(std::get<0>(median(x, 1)));
    results.push_back(isclose(x, x + 0.1, 0.5));
    results.push_back(index_copy(x, 0, index, x.narrow(0, 0, 2) * 2));
    results.push_back(index_fill(x, 1, index, 3));
    results.push_back(bincount(index, {}, 5));
    results.push_back(diag(x.select(0, 0), -1));
    results.push_back(x.unfold(1, 3, 2));
    results.push_back(x.T() + x.new_full({5, 1}, 0.5));
    results.push_back(x.where(x > 0, x.new_zeros({})).max(x * 0.5));
    results.push_back(linalg::solve(square, x.narrow(1, 0, 2)));
    results.push_back(linalg::inv(square) * linalg::det(square));
    results.push_back(linalg::cholesky(matmul(square, square.T()) + eye(4)));
    results.push_back(linalg::matrix_norm(square, 1) + linalg::vector_norm(x, 3));
    results.push_back(baddbmm(square, x.reshape({1, 4, 5}), x.reshape({1, 5, 4}), 0));
    return results;
  }
};

TEST(CompositesGraph, RearrangesAsEagerModeDoes) {
  manual_seed(6);
  const Tensor x = randn({4, 5}), square = randn({4, 4}) + 3 * flip(eye(4), 0), index = tensor({2, 0});
  Rearranged graph;
  const std::vector<Tensor> expected = graph.build(x, square, index), found = graph(x, square, index);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].shape(), expected[i].shape()) << i;
    ASSERT_EQ(found[i].dtype(), expected[i].dtype()) << i;
    EXPECT_TRUE(allclose(found[i], expected[i], 1e-4, 1e-4)) << i;
  }
}

/// Learns through them.
struct Learner : nn::Module<Learner> {
  Tensor x = parameter("x", linspace(-1, 1, 20).reshape({4, 5}) + (arange(20).reshape({4, 5}) % 7).to(f32) * 0.3);
  nn::Sequential net =
      child("net", nn::Sequential(nn::Linear(5, 4), relu, [](Tensor t) { return std::get<0>(cummax(t, 1)); }));
  Tensor forward(Tensor input) {
    const Tensor square = matmul(x, x.T()) + 4 * eye(4);
    return net(input + x).sum() + quantile(x, 0.3) + linalg::solve(square, x).sum() + linalg::det(square) * 0.01 +
           x.unfold(1, 2, 1).prod(-1).sum() + linalg::cholesky(square).trace() + diag(x.select(1, 2)).sum() +
           index_fill(x, 0, tensor({1}), 0).norm();
  }
};
struct Learning : nn::Graph<Learning> {
  Learner learner;
  optim::SGD optimizer;
  explicit Learning(const Learner& given)
      : learner(child("learner", given)), optimizer(learner.parameters(), {.lr = 0.01}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor input) {
    Tensor loss = learner(input);
    loss.backward();
    return loss;
  }
};

TEST(CompositesGraph, LearnsAsEagerModeDoes) {
  manual_seed(7);
  const Tensor input = randn({4, 5});
  Learner eager, recorded;
  recorded.load_state_dict(eager.state_dict());
  Learning graph(recorded);
  optim::SGD optimizer(eager.parameters(), {.lr = 0.01});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor loss = eager(input);
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(allclose(graph(input), loss.detach(), 1e-4, 1e-4)) << step;
    for (std::size_t i = 0; i < eager.parameters().size(); ++i)
      EXPECT_TRUE(allclose(recorded.parameters()[i], eager.parameters()[i], 1e-4, 1e-4)) << step << ", parameter " << i;
  }
}

/// The statistics of all batches so far, and a number that depends on the batch's own.
class Averaged : public nn::Graph<Averaged> {
 public:
  Tensor build(Tensor x) { return norm(x); }
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(3, {.momentum = std::nullopt}));
};

TEST(CompositesGraph, BatchNormWithoutMomentumAveragesOverAllBatches) {
  manual_seed(4);
  Averaged eager, compiled;
  EXPECT_EQ(eager.norm.repr(), "BatchNorm1d(3, eps=1e-05, momentum=None, affine=True, track_running_stats=True)");
  Tensor means = zeros({3}), variances = zeros({3});
  NoGradGuard no_grad;
  constexpr int kBatches = 3;
  for (int i = 0; i < kBatches; ++i) {
    const Tensor x = randn({5, 3}) * (i + 1) + i;
    EXPECT_TRUE(allclose(compiled(x), eager.build(x), 1e-5, 1e-5));
    means = means + mean(x, {0}) / kBatches;
    variances = variances + var(x, {0}) / kBatches;
  }
  for (Averaged* graph : {&eager, &compiled}) {
    EXPECT_TRUE(allclose(graph->norm.running_mean, means, 1e-5, 1e-5));
    EXPECT_TRUE(allclose(graph->norm.running_var, variances, 1e-5, 1e-5));
    EXPECT_EQ(graph->norm.num_batches_tracked.item<std::int64_t>(), kBatches);
  }
}

TEST(CompositesGraph, AlphaDropoutKeepsMeanAndVariance) {
  manual_seed(5);
  const Tensor x = randn({200000});
  const Tensor y = alpha_dropout(x, 0.3);
  EXPECT_NEAR(mean(y).item<double>(), 0, 0.02);
  EXPECT_NEAR(std(y).item<double>(), 1, 0.02);
  const Tensor two_values = alpha_dropout(ones({200000}), 0.3);
  const double share = (two_values < 0.0).to(f32).mean().item<double>();
  EXPECT_NEAR(share, 0.3, 0.01);
}

TEST(CompositesGraph, AStackOfLayersHasParametersOfItsOwn) {
  nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 6});
  nn::TransformerEncoder encoder(layer, 2, nn::LayerNorm(4));
  EXPECT_EQ(encoder.named_parameters().size(), 2 * layer.named_parameters().size() + 2);
  EXPECT_EQ(encoder.named_parameters()[0].first, "layers.0.self_attn.in_proj_weight");
  EXPECT_TRUE(equal(encoder.layers[0].linear1.weight, layer.linear1.weight));
  NoGradGuard no_grad;
  encoder.layers[0].linear1.weight.zero_();
  EXPECT_FALSE(equal(encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight));
  EXPECT_TRUE(equal(encoder.layers[1].linear1.weight, layer.linear1.weight));
}

}  // namespace
}  // namespace graven
