#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"
#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

nn::RecurrentOptions recurrent_options(const Fixture& f) {
  return {.num_layers = f.integer("num_layers", 1),
          .bias = f.flag("bias", true),
          .batch_first = f.flag("batch_first"),
          .bidirectional = f.flag("bidirectional"),
          .nonlinearity = f.text("nonlinearity", "tanh"),
          .proj_size = f.integer("proj_size", 0)};
}

nn::TransformerLayerOptions transformer_options(const Fixture& f) {
  return {.dim_feedforward = f.integer("dim_feedforward"),
          .dropout = f.number("dropout"),
          .activation = f.text("activation", "relu"),
          .layer_norm_eps = f.number("layer_norm_eps", 1e-5),
          .batch_first = f.flag("batch_first"),
          .norm_first = f.flag("norm_first"),
          .bias = f.flag("bias", true)};
}
nn::TransformerEncoderMasks encoder_masks(const Fixture& f) {
  return {.src_mask = f.tensor("src_mask"), .src_key_padding_mask = f.tensor("src_key_padding_mask")};
}

template <class Layer>
std::vector<Tensor> with_one_state(const Fixture& f) {
  Layer layer(f.integer("input_size"), f.integer("hidden_size"), recurrent_options(f));
  layer.to(f.tensor("x").dtype());
  f.give_parameters(layer);
  const auto [y, h] = layer(f.tensor("x"), f.tensor("h0"));
  return {y, h};
}

/// x0, x1, ...
std::vector<Tensor> sequences(const Fixture& f) {
  std::vector<Tensor> list;
  for (std::size_t i = 0; f.inputs().count("x" + std::to_string(i)); ++i)
    list.push_back(f.tensor("x" + std::to_string(i)));
  return list;
}

/// Packs x, and pads the result again; `run(layer, packed)` gives the packed result and the states.
template <class Layer, class Run>
std::vector<Tensor> packed_and_padded(const Fixture& f, const Run& run) {
  Layer layer(f.integer("input_size"), f.integer("hidden_size"), recurrent_options(f));
  layer.to(f.tensor("x").dtype());
  f.give_parameters(layer);
  const bool batch_first = f.flag("batch_first");
  const Tensor lengths = f.tensor("lengths");
  std::vector<Tensor> results = {Tensor()};
  const nn::PackedSequence y = run(layer,
                                   nn::utils::rnn::pack_padded_sequence(
                                       f.tensor("x"), lengths, {.batch_first = batch_first, .enforce_sorted = false}),
                                   results);
  nn::utils::rnn::PadPackedOptions options{.batch_first = batch_first, .padding_value = f.number("padding_value")};
  if (f.has("total_length")) options.total_length = f.integer("total_length");
  const auto [padded, ends] = nn::utils::rnn::pad_packed_sequence(y, options);
  EXPECT_TRUE(f.tensor("lengths").is_traced() || equal(ends, lengths));
  results[0] = padded;
  return results;
}
template <class Layer>
std::vector<Tensor> packed_with_one_state(const Fixture& f) {
  return packed_and_padded<Layer>(f, [&](Layer& layer, const nn::PackedSequence& x, std::vector<Tensor>& results) {
    const auto [y, h] = layer(x, f.tensor("h0"));
    results.push_back(h);
    return y;
  });
}

TEST(Sequence, AgreesWithPyTorch) {
  expect_family(
      "sequence",
      {
          {"scaled_dot_product_attention", one([](const Fixture& f) {
             const std::optional<double> scale = f.has("scale") ? std::optional(f.number("scale")) : std::nullopt;
             return scaled_dot_product_attention(f.tensor("query"), f.tensor("key"), f.tensor("value"),
                                                 {.attn_mask = f.tensor("attn_mask"),
                                                  .is_causal = f.flag("is_causal"),
                                                  .scale = scale,
                                                  .enable_gqa = f.flag("enable_gqa")});
           })},
          {"MultiheadAttention",
           [](const Fixture& f) {
             nn::MultiheadAttentionOptions options{.bias = f.flag("bias", true), .batch_first = f.flag("batch_first")};
             if (f.has("kdim")) options.kdim = f.integer("kdim");
             if (f.has("vdim")) options.vdim = f.integer("vdim");
             nn::MultiheadAttention layer(f.integer("embed_dim"), f.integer("num_heads"), options);
             f.give_parameters(layer);
             const Tensor query = f.tensor("query");
             const Tensor key = f.tensor("key").defined() ? f.tensor("key") : query;
             const Tensor value = f.tensor("value").defined() ? f.tensor("value") : key;
             const nn::MultiheadAttentionCall call{.key_padding_mask = f.tensor("key_padding_mask"),
                                                   .need_weights = f.flag("need_weights", true),
                                                   .attn_mask = f.tensor("attn_mask"),
                                                   .average_attn_weights = f.flag("average_attn_weights", true)};
             const auto [y, weights] = layer(query, key, value, call);
             return weights.defined() ? std::vector<Tensor>{y, weights} : std::vector<Tensor>{y};
           }},
          {"TransformerEncoderLayer", one([](const Fixture& f) {
             nn::TransformerEncoderLayer layer(f.integer("d_model"), f.integer("nhead"), transformer_options(f));
             f.give_parameters(layer);
             return layer(f.tensor("src"), encoder_masks(f));
           })},
          {"TransformerDecoderLayer", one([](const Fixture& f) {
             nn::TransformerDecoderLayer layer(f.integer("d_model"), f.integer("nhead"), transformer_options(f));
             f.give_parameters(layer);
             return layer(f.tensor("tgt"), f.tensor("memory"),
                          {.tgt_mask = f.tensor("tgt_mask"),
                           .memory_mask = f.tensor("memory_mask"),
                           .tgt_key_padding_mask = f.tensor("tgt_key_padding_mask"),
                           .memory_key_padding_mask = f.tensor("memory_key_padding_mask")});
           })},
          {"TransformerEncoder", one([](const Fixture& f) {
             const std::int64_t d_model = f.integer("d_model");
             nn::TransformerEncoder encoder(
                 nn::TransformerEncoderLayer(d_model, f.integer("nhead"), transformer_options(f)), f.integer("layers"),
                 f.flag("norm") ? std::optional(nn::LayerNorm(d_model)) : std::nullopt);
             f.give_parameters(encoder);
             return encoder(f.tensor("src"), encoder_masks(f));
           })},
          {"Transformer", one([](const Fixture& f) {
             nn::Transformer transformer({.d_model = f.integer("d_model"),
                                          .nhead = f.integer("nhead"),
                                          .num_encoder_layers = f.integer("num_encoder_layers"),
                                          .num_decoder_layers = f.integer("num_decoder_layers"),
                                          .dim_feedforward = f.integer("dim_feedforward"),
                                          .dropout = f.number("dropout"),
                                          .activation = f.text("activation", "relu"),
                                          .batch_first = f.flag("batch_first"),
                                          .norm_first = f.flag("norm_first")});
             f.give_parameters(transformer);
             return transformer(f.tensor("src"), f.tensor("tgt"),
                                nn::TransformerMasks{.src_mask = f.tensor("src_mask"),
                                                     .tgt_mask = f.tensor("tgt_mask"),
                                                     .src_key_padding_mask = f.tensor("src_key_padding_mask"),
                                                     .memory_key_padding_mask = f.tensor("memory_key_padding_mask")});
           })},
          {"LSTMCell",
           [](const Fixture& f) {
             nn::LSTMCell cell(f.integer("input_size"), f.integer("hidden_size"), {.bias = f.flag("bias", true)});
             f.give_parameters(cell);
             const auto [h, c] = cell(f.tensor("x"), std::pair(f.tensor("h"), f.tensor("c")));
             return std::vector<Tensor>{h, c};
           }},
          {"pad_sequence",
           [](const Fixture& f) {
             using namespace nn::utils::rnn;
             const auto side = f.text("padding_side") == "left" ? PaddingSide::left : PaddingSide::right;
             return std::vector<Tensor>{pad_sequence(sequences(f), {.batch_first = f.flag("batch_first"),
                                                                    .padding_value = f.number("padding_value"),
                                                                    .padding_side = side})};
           }},
          {"unpad_sequence",
           [](const Fixture& f) {
             const std::vector<std::int64_t> lengths = f.sizes("lengths");
             return nn::utils::rnn::unpad_sequence(f.tensor("padded"),
                                                   from_data(lengths, Shape{static_cast<std::int64_t>(lengths.size())}),
                                                   f.flag("batch_first"));
           }},
          {"pack_sequence",
           [](const Fixture& f) {
             nn::RNN layer(f.integer("input_size"), f.integer("hidden_size"), {.bias = false});
             f.give_parameters(layer);
             const auto [y, last] = layer(nn::utils::rnn::pack_sequence(sequences(f), false));
             // In a graph lengths are data, though these would be known.
             std::vector<Tensor> results = nn::utils::rnn::unpack_sequence(y);
             results.push_back(last);
             return results;
           }},
          {"packed_RNN", packed_with_one_state<nn::RNN>},
          {"packed_GRU", packed_with_one_state<nn::GRU>},
          {"packed_LSTM",
           [](const Fixture& f) {
             return packed_and_padded<nn::LSTM>(
                 f, [&](nn::LSTM& layer, const nn::PackedSequence& x, std::vector<Tensor>& results) {
                   const auto [y, state] = layer(x, {f.tensor("h0"), f.tensor("c0")});
                   results.insert(results.end(), {state.first, state.second});
                   return y;
                 });
           }},
          {"RNN", with_one_state<nn::RNN>},
          {"GRU", with_one_state<nn::GRU>},
          {"LSTM",
           [](const Fixture& f) {
             nn::LSTM layer(f.integer("input_size"), f.integer("hidden_size"), recurrent_options(f));
             layer.to(f.tensor("x").dtype());
             f.give_parameters(layer);
             const auto [y, state] = layer(f.tensor("x"), std::pair(f.tensor("h0"), f.tensor("c0")));
             return std::vector<Tensor>{y, state.first, state.second};
           }},
      },
      tolerance::layers, tolerance::layer_gradients);
}

TEST(Sequence, PacksAndPadsWhatIsNoLayersResult) {
  using namespace nn::utils::rnn;
  const Tensor x = arange(6).to(DType::f32).reshape({3, 2, 1});
  const auto packed = pack_padded_sequence(x, tensor({1, 3}), {.enforce_sorted = false});
  EXPECT_EQ(pad_packed_sequence(packed).first.flatten().to_vector<float>(), (std::vector<float>{0, 1, 0, 3, 0, 5}));
  EXPECT_EQ(pad_packed_sequence(packed, {.padding_value = -1, .total_length = 4}).first.flatten().to_vector<float>(),
            (std::vector<float>{0, 1, -1, 3, -1, 5, -1, -1}));
  EXPECT_EQ(pad_packed_sequence(packed, {.batch_first = true}).first.flatten().to_vector<float>(),
            (std::vector<float>{0, 0, 0, 1, 3, 5}));
  EXPECT_EQ(packed.lengths().to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 3}));
}

TEST(Sequence, SaysWhatIsWrongWithLengths) {
  using namespace nn::utils::rnn;
  const Tensor x = ones({5, 2, 3});
  const auto says = [](const std::string& text, const test::Call<void()>& call) {
    const std::string error = test::error_of(call);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  says("pack_padded_sequence: lengths must be integers [2], as the batch is, got i64[3]",
       [&] { pack_padded_sequence(x, tensor({1, 2, 3})); });
  says("lengths must be integers [2], as the batch is, got f32[2]", [&] { pack_padded_sequence(x, ones({2})); });
  says("pack_padded_sequence: expects lengths that descend, got 1 before 2 at position 0; enforce_sorted = false takes",
       [&] { pack_padded_sequence(x, tensor({1, 2})); });
  says("no error", [&] { pack_padded_sequence(x, tensor({2, 2})); });
  const PackOptions any_order{.enforce_sorted = false};
  says("total_length must be at least 5",
       [&] { pad_packed_sequence(pack_padded_sequence(x, tensor({1, 2}), any_order), {.total_length = 4}); });
  says("RNN (rnn): length 6 at position 1 is outside [1, 6)",
       [&] { nn::RNN(3, 4)(pack_padded_sequence(x, tensor({1, 6}), any_order)); });
  says("GRU (gru): length 0 at position 0 is outside [1, 6)",
       [&] { nn::GRU(3, 4)(pack_padded_sequence(x, tensor({0, 2}), any_order)); });
  says("LSTM (lstm): length -1 at position 0 is outside [1, 6)",
       [&] { nn::LSTM(3, 4)(pack_padded_sequence(x, tensor({-1, 2}), any_order)); });
  says("expects packed sequences of 3 dimensions",
       [&] { nn::GRU(3, 4)(pack_padded_sequence(ones({5, 2}), tensor({1, 2}), any_order)); });
}

TEST(Sequence, SaysWhatIsWrongWithListsOfSequences) {
  using namespace nn::utils::rnn;
  const auto says = [](const char* text, const test::Call<void()>& call) {
    const std::string error = test::error_of(call);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  says("pad_sequence: expects at least one sequence, got none", [] { pad_sequence({}); });
  says("pad_sequence: expects sequences that differ in their length alone, got f32[2,3] at position 0 and f32[4,2]",
       [] { pad_sequence({ones({2, 3}), ones({4, 2})}); });
  says("at position 1", [] { pad_sequence({ones({2}), ones({2}, f64)}); });
  says("pad_sequence", [] { pad_sequence({ones({2}), Tensor()}); });
  says("pad_sequence: expects sequences [length, ...], got f32[] at position 0", [] { pad_sequence({tensor(1.0f)}); });
  says("pack_sequence: length 0 at position 1", [] { pack_sequence({ones({2, 3}), ones({0, 3})}); });
  says("pack_sequence: expects lengths that descend, got 1 before 2 at position 1",
       [] { pack_sequence({ones({4, 3}), ones({1, 3}), ones({2, 3})}); });
  says("no error", [] { pack_sequence({ones({1, 3}), ones({2, 3})}, false); });
  says("unpad_sequence: length 4 at position 1 is outside [0, 3]",
       [] { unpad_sequence(ones({3, 2}), tensor({1, 4})); });
  says("unpad_sequence: lengths must be integers [2]", [] { unpad_sequence(ones({3, 2}), tensor({1, 2, 3})); });
  EXPECT_EQ(unpack_sequence(pack_sequence({ones({2, 3}), ones({1, 3})})).at(1).sizes(), (Sizes{1, 3}));
}

TEST(Sequence, SaysWhatIsWrong) {
  EXPECT_THROW(nn::MultiheadAttention(8, 3), UserError);
  EXPECT_THROW(nn::LSTM(3, 4, {.nonlinearity = "relu"}), UserError);
  EXPECT_THROW(nn::GRU(3, 4)(ones({5, 2, 4})), UserError);
  EXPECT_THROW(nn::GRU(3, 4)(ones({5, 2, 3}), ones({1, 2, 5})), UserError);
  EXPECT_THROW(nn::GRU(3, 4)(ones({0, 2, 3})), UserError);
  EXPECT_THROW(nn::GRU(3, 4, {.proj_size = 2}), UserError);
  EXPECT_THROW(nn::LSTM(3, 4, {.proj_size = 4}), UserError);
  EXPECT_THROW(nn::LSTM(3, 4, {.proj_size = 2})(ones({5, 2, 3}), {ones({1, 2, 4}), ones({1, 2, 4})}), UserError);
  EXPECT_THROW(nn::LSTMCell(3, 4)(ones({2, 4})), UserError);
  EXPECT_THROW(nn::RNNCell(3, 4)(ones({2, 3}), ones({3, 4})), UserError);
  EXPECT_THROW(nn::TransformerEncoderLayer(4, 2, {.activation = "tanh"}), UserError);
  EXPECT_THROW(nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), 0), UserError);
  EXPECT_THROW(
      scaled_dot_product_attention(ones({2, 3, 4, 5}), ones({2, 2, 4, 5}), ones({2, 2, 4, 5}), {.enable_gqa = true}),
      UserError);
  EXPECT_THROW(scaled_dot_product_attention(ones({2, 3}), ones({4, 5}), ones({4, 5})), UserError);
  EXPECT_THROW(scaled_dot_product_attention(ones({2, 3}), ones({2, 3}), ones({2, 3}),
                                            {.attn_mask = ones({2, 2}), .is_causal = true}),
               UserError);
}

}  // namespace
}  // namespace graven::tests
