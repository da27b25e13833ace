// Every layer, with what it makes of symbols.
#include <utility>

#include "tests/symbols/rows.h"

namespace graven::symbols_test {

namespace {

constexpr auto kOne = [](auto& layer, X x) { return R{layer(x[0])}; };
constexpr auto kTwo = [](auto& layer, X x) { return R{layer(x[0], x[1])}; };
constexpr auto kThree = [](auto& layer, X x) { return R{layer(x[0], x[1], x[2])}; };

template <class M>
Row pointwise(std::string name, M module, Location where = Location::current()) {
  return layer_row(std::move(name), {f("a4 b3")}, std::move(module), kOne, "", where);
}
template <class M>
Row loss(std::string name, M module, Location where = Location::current()) {
  return layer_row(std::move(name), {f("a4 b3", 0.1, 0.9), f("a4 b3", 0, 1)}, std::move(module), kTwo, "", where);
}

}  // namespace

std::vector<Row> layer_rows() {
  std::vector<Row> rows{
      pointwise("ReLU", nn::ReLU()),
      pointwise("ReLU6", nn::ReLU6()),
      pointwise("Sigmoid", nn::Sigmoid()),
      pointwise("Tanh", nn::Tanh()),
      pointwise("SiLU", nn::SiLU()),
      pointwise("GELU", nn::GELU()),
      pointwise("LeakyReLU", nn::LeakyReLU()),
      pointwise("Hardsigmoid", nn::Hardsigmoid()),
      pointwise("Hardswish", nn::Hardswish()),
      pointwise("Mish", nn::Mish()),
      pointwise("SELU", nn::SELU()),
      pointwise("Softsign", nn::Softsign()),
      pointwise("Tanhshrink", nn::Tanhshrink()),
      pointwise("LogSigmoid", nn::LogSigmoid()),
      pointwise("ELU", nn::ELU()),
      pointwise("CELU", nn::CELU()),
      pointwise("Softplus", nn::Softplus()),
      pointwise("Hardtanh", nn::Hardtanh()),
      pointwise("Softshrink", nn::Softshrink()),
      pointwise("Hardshrink", nn::Hardshrink()),
      pointwise("Threshold", nn::Threshold(0.1, 3)),
      pointwise("Softmax", nn::Softmax(1)),
      pointwise("LogSoftmax", nn::LogSoftmax(0)),
      pointwise("Softmin", nn::Softmin(1)),
      pointwise("Identity", nn::Identity()),
      pointwise("Flatten", nn::Flatten(0)),
      layer_row("GLU", {f("a4 b4")}, nn::GLU(), kOne, "b"),
      layer_row("PReLU", {f("a4 b3")}, nn::PReLU(3), kOne, "b"),
      layer_row("Linear", {f("a4 c2 b3")}, nn::Linear(3, 2), kOne, "b"),
      layer_row("Bilinear", {f("a4 b3"), f("a4 c2")}, nn::Bilinear(3, 2, 5), kTwo, "b c 2c"),
      layer_row("Conv1d", {f("a4 c2 w5")}, nn::Conv1d(2, 3, 3), kOne, "c 2c w"),
      layer_row("Conv2d", {f("a4 c2 h4 w5")}, nn::Conv2d(2, 3, 3), kOne, "c 2c h 2h w"),
      layer_row("Conv3d", {f("a4 c2 d3 h4 w5")}, nn::Conv3d(2, 3, 2), kOne, "c 2c d h 2h w"),
      layer_row("ConvTranspose1d", {f("a4 c2 w5")}, nn::ConvTranspose1d(2, 3, 3), kOne, "c 2c w"),
      layer_row("ConvTranspose2d", {f("a4 c2 h4 w5")}, nn::ConvTranspose2d(2, 3, 3), kOne, "c 2c h 2h w"),
      layer_row("ConvTranspose3d", {f("a4 c2 d3 h4 w5")}, nn::ConvTranspose3d(2, 3, 2), kOne, "c 2c d h 2h w"),
      layer_row("MaxPool1d", {f("a4 c2 w5")}, nn::MaxPool1d(2), kOne, "c 2c w"),
      layer_row("MaxPool2d", {f("a4 c2 h4 w5")}, nn::MaxPool2d(2), kOne, "c 2c h 2h w"),
      layer_row("MaxPool3d", {f("a4 c2 d3 h4 w5")}, nn::MaxPool3d(2), kOne, "c 2c d h 2h w"),
      layer_row("AvgPool1d", {f("a4 c2 w5")}, nn::AvgPool1d(2), kOne, "c 2c w"),
      layer_row("AvgPool2d", {f("a4 c2 h4 w5")}, nn::AvgPool2d(2), kOne, "c 2c h 2h w"),
      layer_row("AvgPool3d", {f("a4 c2 d3 h4 w5")}, nn::AvgPool3d(2), kOne, "c 2c d h 2h w"),
      layer_row("AdaptiveAvgPool1d", {f("a4 c2 w5")}, nn::AdaptiveAvgPool1d(2), kOne, "w"),
      layer_row("AdaptiveAvgPool2d", {f("a4 c2 h4 w5")}, nn::AdaptiveAvgPool2d(2), kOne, "h 2h w"),
      layer_row("AdaptiveAvgPool3d", {f("a4 c2 d3 h4 w5")}, nn::AdaptiveAvgPool3d(2), kOne, "d h 2h w"),
      layer_row("AdaptiveMaxPool1d", {f("a4 c2 w5")}, nn::AdaptiveMaxPool1d(2), kOne, "c 2c w"),
      layer_row("AdaptiveMaxPool2d", {f("a4 c2 h4 w5")}, nn::AdaptiveMaxPool2d(2), kOne, "c 2c h 2h w"),
      layer_row("AdaptiveMaxPool3d", {f("a4 c2 d3 h4 w5")}, nn::AdaptiveMaxPool3d(2), kOne, "c 2c d h 2h w"),
      layer_row("LPPool1d", {f("a4 c2 w5", 1, 2)}, nn::LPPool1d(2, 2), kOne, "c 2c w"),
      layer_row("LPPool2d", {f("a4 c2 h4 w5", 1, 2)}, nn::LPPool2d(2, 2), kOne, "c 2c h 2h w"),
      layer_row("MaxUnpool2d", {f("a4 c2 h2 w3"), i("a4 c2 h2 w3", 6)}, nn::MaxUnpool2d(2), kTwo, "h 2h w"),
      layer_row("ReflectionPad1d", {f("a4 c2 w5")}, nn::ReflectionPad1d(1), kOne, "w"),
      layer_row("ReflectionPad2d", {f("a4 c2 h4 w5")}, nn::ReflectionPad2d(1), kOne, "h 2h w"),
      layer_row("ReflectionPad3d", {f("a4 c2 d3 h4 w5")}, nn::ReflectionPad3d(1), kOne, "d h 2h w"),
      layer_row("ReplicationPad1d", {f("a4 c2 w5")}, nn::ReplicationPad1d(1), kOne, "w"),
      layer_row("ReplicationPad2d", {f("a4 c2 h4 w5")}, nn::ReplicationPad2d(1), kOne, "h 2h w"),
      layer_row("ReplicationPad3d", {f("a4 c2 d3 h4 w5")}, nn::ReplicationPad3d(1), kOne, "d h 2h w"),
      layer_row("CircularPad1d", {f("a4 c2 w5")}, nn::CircularPad1d(1), kOne, "w"),
      layer_row("CircularPad2d", {f("a4 c2 h4 w5")}, nn::CircularPad2d(1), kOne, "h 2h w"),
      layer_row("CircularPad3d", {f("a4 c2 d3 h4 w5")}, nn::CircularPad3d(1), kOne, "d h 2h w"),
      layer_row("ZeroPad1d", {f("a4 c2 w5")}, nn::ZeroPad1d(1), kOne, "w"),
      layer_row("ZeroPad2d", {f("a4 c2 h4 w5")}, nn::ZeroPad2d(1), kOne, "h 2h w"),
      layer_row("ZeroPad3d", {f("a4 c2 d3 h4 w5")}, nn::ZeroPad3d(1), kOne, "d h 2h w"),
      layer_row("ConstantPad1d", {f("a4 c2 w5")}, nn::ConstantPad1d(1, 2), kOne, "w"),
      layer_row("ConstantPad2d", {f("a4 c2 h4 w5")}, nn::ConstantPad2d(1, 2), kOne, "h 2h w"),
      layer_row("ConstantPad3d", {f("a4 c2 d3 h4 w5")}, nn::ConstantPad3d(1, 2), kOne, "d h 2h w"),
      layer_row("Upsample", {f("a4 c2 h4 w5")}, nn::Upsample({.scale_factor = {2}}), kOne, "h 2h w"),
      layer_row("UpsamplingNearest2d", {f("a4 c2 h4 w5")}, nn::UpsamplingNearest2d({.scale_factor = {2}}), kOne,
                "h 2h w"),
      layer_row("UpsamplingBilinear2d", {f("a4 c2 h4 w5")}, nn::UpsamplingBilinear2d({.scale_factor = {2}}), kOne,
                "h 2h w"),
      layer_row("BatchNorm1d", {f("a4 c3 w5")}, nn::BatchNorm1d(3), kOne, "c"),
      layer_row("BatchNorm2d", {f("a4 c3 h4 w5")}, nn::BatchNorm2d(3), kOne, "c"),
      layer_row("BatchNorm3d", {f("a4 c3 d3 h4 w5")}, nn::BatchNorm3d(3), kOne, "c"),
      layer_row("InstanceNorm1d", {f("a4 c3 w5")}, nn::InstanceNorm1d(3, {.affine = true, .track_running_stats = true}),
                kOne, "c"),
      layer_row("InstanceNorm2d", {f("a4 c3 h4 w5")}, nn::InstanceNorm2d(3), kOne, "c"),
      layer_row("InstanceNorm3d", {f("a4 c3 d3 h4 w5")}, nn::InstanceNorm3d(3), kOne, "c"),
      layer_row("LayerNorm", {f("a4 c2 b3")}, nn::LayerNorm(3), kOne, "b"),
      layer_row("RMSNorm", {f("a4 c2 b3")}, nn::RMSNorm(3), kOne, "b"),
      layer_row("GroupNorm", {f("a4 c4 w5")}, nn::GroupNorm(2, 4), kOne, "c 2c"),
      layer_row("LocalResponseNorm", {f("a4 c3 w5")}, nn::LocalResponseNorm(2), kOne, "c"),
      layer_row("Unflatten", {f("a4 b4")}, nn::Unflatten(1, {2, 2}), kOne, "b 2b"),
      layer_row("PixelShuffle", {f("a4 c4 h2 w3")}, nn::PixelShuffle(2), kOne, "c 2c"),
      layer_row("PixelUnshuffle", {f("a4 c3 h4 w4")}, nn::PixelUnshuffle(2), kOne, "h w"),
      layer_row("ChannelShuffle", {f("a4 c4 h2")}, nn::ChannelShuffle(2), kOne, "c 2c"),
      layer_row("Unfold", {f("a4 c2 h4 w5")}, nn::Unfold(2), kOne, "h 2h w"),
      layer_row("Fold", {f("a4 c8 l4")}, nn::Fold(3, 2), kOne, "c 2c l 2l"),
      layer_row("Embedding", {i("a4 b3", 5)}, nn::Embedding(5, 2), kOne),
      layer_row("EmbeddingBag", {i("a4 b3", 5)}, nn::EmbeddingBag(5, 2, {.mode = "max"}), kOne),
      layer_row("MultiheadAttention", {f("n2 q4 4"), f("n2 k3 4")}, nn::MultiheadAttention(4, 2, {.batch_first = true}),
                [](auto& layer, X x) { return R{layer(x[0], x[1], x[1]).first}; }),
      layer_row(
          "RNN", {f("l4 n2 3")}, nn::RNN(3, 2), [](auto& layer, X x) { return R{layer(x[0]).first}; }, "l 2l"),
      layer_row(
          "LSTM", {f("l4 n2 3")}, nn::LSTM(3, 2), [](auto& layer, X x) { return R{layer(x[0]).first}; }, "l 2l"),
      layer_row(
          "GRU", {f("l4 n2 3")}, nn::GRU(3, 2), [](auto& layer, X x) { return R{layer(x[0]).first}; }, "l 2l"),
      layer_row("RNNCell", {f("n4 3")}, nn::RNNCell(3, 2), kOne),
      layer_row("LSTMCell", {f("n4 3")}, nn::LSTMCell(3, 2), [](auto& layer, X x) { return R{layer(x[0]).first}; }),
      layer_row("GRUCell", {f("n4 3")}, nn::GRUCell(3, 2), kOne),
      layer_row("TransformerEncoderLayer", {f("l4 n2 4")},
                nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6, .dropout = 0}), kOne, "l 2l"),
      layer_row("TransformerDecoderLayer", {f("l4 n2 4"), f("m3 n2 4")},
                nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 6, .dropout = 0}), kTwo, "l 2l"),
      layer_row("TransformerEncoder", {f("l4 n2 4")},
                nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6, .dropout = 0}), 1),
                kOne, "l 2l"),
      layer_row("TransformerDecoder", {f("l4 n2 4"), f("m3 n2 4")},
                nn::TransformerDecoder(nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 6, .dropout = 0}), 1),
                kTwo, "l 2l"),
      layer_row("Transformer", {f("m3 n2 4"), f("l4 n2 4")},
                nn::Transformer({.d_model = 4,
                                 .nhead = 2,
                                 .num_encoder_layers = 1,
                                 .num_decoder_layers = 1,
                                 .dim_feedforward = 6,
                                 .dropout = 0}),
                kTwo, "m l 2l"),
      loss("MSELoss", nn::MSELoss()),
      loss("L1Loss", nn::L1Loss()),
      loss("SmoothL1Loss", nn::SmoothL1Loss()),
      loss("HuberLoss", nn::HuberLoss()),
      loss("BCELoss", nn::BCELoss()),
      loss("BCEWithLogitsLoss", nn::BCEWithLogitsLoss()),
      loss("KLDivLoss", nn::KLDivLoss({.reduction = Reduction::batchmean})),
      loss("SoftMarginLoss", nn::SoftMarginLoss()),
      loss("MultiLabelSoftMarginLoss", nn::MultiLabelSoftMarginLoss()),
      loss("HingeEmbeddingLoss", nn::HingeEmbeddingLoss()),
      loss("PoissonNLLLoss", nn::PoissonNLLLoss()),
      layer_row("CrossEntropyLoss", {f("a4 c3"), i("a4", "c")}, nn::CrossEntropyLoss(), kTwo, "c"),
      layer_row("NLLLoss", {f("a4 c3"), i("a4", "c")}, nn::NLLLoss(), kTwo),
      layer_row("MultiMarginLoss", {f("a4 c3"), i("a4", "c")}, nn::MultiMarginLoss(), kTwo),
      layer_row("MarginRankingLoss", {f("a4 b3"), f("a4 b3"), f("a4 b3", 1, 2)}, nn::MarginRankingLoss(), kThree),
      layer_row("CosineEmbeddingLoss", {f("a4 b3"), f("a4 b3"), i("a4", 2)}, nn::CosineEmbeddingLoss(), kThree),
      layer_row("TripletMarginLoss", {f("a4 b3"), f("a4 b3"), f("a4 b3")}, nn::TripletMarginLoss(), kThree),
      layer_row("GaussianNLLLoss", {f("a4 b3"), f("a4 b3"), f("a4 b3", 1, 2)}, nn::GaussianNLLLoss(), kThree),
      layer_row("CosineSimilarity", {f("a4 b3"), f("a4 b3")}, nn::CosineSimilarity(), kTwo),
      layer_row("PairwiseDistance", {f("a4 b3"), f("a4 b3")}, nn::PairwiseDistance(), kTwo),
      layer_row("Dropout", {f("a4 b3")}, nn::Dropout(), kOne),
      layer_row("Dropout1d", {f("a4 b3 c2")}, nn::Dropout1d(), kOne),
      layer_row("Dropout2d", {f("a4 b3 c2 d2")}, nn::Dropout2d(), kOne),
      layer_row("Dropout3d", {f("a4 b3 c2 d2 e2")}, nn::Dropout3d(), kOne),
      layer_row("AlphaDropout", {f("a4 b3")}, nn::AlphaDropout(), kOne),
      layer_row("StochasticDepth", {f("a4 b3")}, nn::StochasticDepth(0.5), kOne),
  };
  for (Row& r : rows)
    if (r.name.find("Drop") != std::string::npos || r.name == "StochasticDepth") r.random = true;
  return rows;
}

}  // namespace graven::symbols_test
