// Attention and recurrent layers, with PyTorch's names, defaults, parameters and gate orders.
//
//   nn::MultiheadAttention attention(64, 4, {.batch_first = true});
//   auto [y, weights] = attention(x, x, x, {.key_padding_mask = tokens == 0});
//   nn::LSTM lstm(32, 64, {.num_layers = 2, .bidirectional = true});
//   auto [out, state] = lstm(sequence);                   // sequence[length, batch, 32]; state = (h, c)
//   auto [more, last] = lstm(next, state);                // or lstm(next, {h, c})
//
//   auto [rest, ends] = lstm(nn::utils::rnn::pack_padded_sequence(sequence, lengths));   // utils/rnn.h
//
// A recurrent layer is one operator a direction, whatever the length of its sequences, which may be a symbol in a
// graph, as the batch may be.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graven/layers/products.h"
#include "graven/module.h"

namespace graven::nn {

class PackedSequence;
namespace utils::rnn {
struct PackOptions;
struct PadPackedOptions;
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, PackOptions options, Location where);
std::pair<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, PadPackedOptions options, Location where);
}  // namespace utils::rnn

struct MultiheadAttentionOptions {
  double dropout = 0;
  bool bias = true;
  bool batch_first = false;
  std::optional<std::int64_t> kdim = {}, vdim = {};  ///< sizes of keys and values; none: embed_dim
};
struct MultiheadAttentionCall {
  Tensor key_padding_mask = {};  ///< [batch, keys]; bool: true is left out; floating: is added
  bool need_weights = true;
  Tensor attn_mask = {};  ///< [queries, keys] or [batch * heads, queries, keys]; bool: true is left out (the other way
                          ///< round than scaled_dot_product_attention's, as in PyTorch); floating: is added
  bool average_attn_weights = true;
  bool is_causal = false;  ///< a hint that attn_mask is the causal one, which must be given
};
/// Multi-head attention (Vaswani et al. 2017) of query[length, batch, embed] (batch first when asked for; or without a
/// batch), key and value. in_proj_weight starts Xavier-uniform, in_proj_bias and out_proj.bias as 0.
class MultiheadAttention : public Module<MultiheadAttention> {
 public:
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads, MultiheadAttentionOptions options = {});
  /// The result, and the weights [batch, queries, keys] ([batch, heads, queries, keys] when not averaged); undefined
  /// without need_weights.
  std::pair<Tensor, Tensor> forward(Tensor query, Tensor key, Tensor value, MultiheadAttentionCall call = {});
  using Module<MultiheadAttention>::operator();
  /// For a call in braces, whose type a template cannot tell.
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const MultiheadAttentionCall& call, Location where = Location::current()) const {
    return Module<MultiheadAttention>::operator()(query, key, value, call, where);
  }
  Registered<MultiheadAttention> in_proj_weight, in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight;
  Linear out_proj;

 private:
  std::int64_t embed_, heads_;
  MultiheadAttentionOptions options_;
};

/// Sequences of several lengths side by side, which nn::utils::rnn::pack_padded_sequence() makes and
/// pad_packed_sequence() takes apart (utils/rnn.h). They stay padded within, so that a graph knows their shape: there
/// is no `data` of the steps alone, as PyTorch's has.
class PackedSequence {
 public:
  /// i64[batch].
  const Tensor& lengths() const { return lengths_; }

 private:
  friend PackedSequence utils::rnn::pack_padded_sequence(const Tensor&, const Tensor&, utils::rnn::PackOptions,
                                                         Location);
  friend std::pair<Tensor, Tensor> utils::rnn::pad_packed_sequence(const PackedSequence&, utils::rnn::PadPackedOptions,
                                                                   Location);
  template <class Layer>
  friend class Recurrent;
  Tensor steps_, lengths_;      // [length, batch, ...]
  bool ends_in_zeros_ = false;  // behind each sequence's end; else anything
};

struct RecurrentOptions {
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< of each layer's result but the last's
  bool bidirectional = false;
  std::string nonlinearity = "tanh";  ///< RNN alone: tanh or relu
  std::int64_t proj_size = 0;         ///< LSTM alone: h is projected to so many numbers (Sak et al. 2014); 0: it is not
};

/// The parameters of one direction of one layer, or of a cell.
struct RecurrentWeights {
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;
  Tensor weight_hr = {};  ///< of an LSTM with proj_size
};

/// What RNN, LSTM and GRU share. Parameters weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 (and weight_hr_l0 with
/// proj_size), ..., with _reverse for the second direction, all start uniform in +-1/sqrt(hidden_size).
template <class Layer>
class Recurrent : public Module<Layer> {
 public:
  std::int64_t input_size() const { return input_; }
  std::int64_t hidden_size() const { return hidden_; }

 protected:
  Recurrent(const char* name, std::int64_t gates, std::int64_t input_size, std::int64_t hidden_size,
            RecurrentOptions options);
  /// The result and the last states: h, and c for an LSTM.
  std::pair<Tensor, std::vector<Tensor>> run(Tensor x, std::vector<Tensor> state);
  std::pair<PackedSequence, std::vector<Tensor>> run(PackedSequence x, std::vector<Tensor> state);

 private:
  std::pair<Tensor, std::vector<Tensor>> run_steps(Tensor x, const Tensor& lengths, std::vector<Tensor> state);
  std::string name_;
  std::int64_t gates_, input_, hidden_;
  std::int64_t state_ = 0;  ///< numbers in h
  RecurrentOptions options_;
  std::vector<RecurrentWeights> directions_;  ///< by layer, forwards and backwards
};

/// h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. x[length, batch, input] (batch first when asked for; or without a
/// batch), h0[layers * directions, batch, hidden], zero when absent. Gives the last layer's result [length, batch,
/// directions * hidden] and the last h. Of packed sequences (always [length, batch, input]) each has so many steps as
/// its length says, in both directions, and the last h is that of its own last step; the result is packed likewise.
class RNN : public Recurrent<RNN> {
 public:
  RNN(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options = {});
  std::pair<Tensor, Tensor> forward(Tensor x, Tensor h0 = {});
  std::pair<PackedSequence, Tensor> forward(PackedSequence x, Tensor h0 = {});
};

/// i, f, o = sigmoid, g = tanh of their rows of W_ih x + b_ih + W_hh h + b_hh; c = f c + i g; h = o tanh(c) (Hochreiter
/// and Schmidhuber 1997), or, with proj_size, W_hr (o tanh(c)): then the result and h0 have proj_size numbers instead
/// of hidden_size, c0 has hidden_size. Gives the last layer's result and the last (h, c).
class LSTM : public Recurrent<LSTM> {
 public:
  LSTM(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options = {});
  std::pair<Tensor, std::pair<Tensor, Tensor>> forward(Tensor x, std::pair<Tensor, Tensor> state = {});
  std::pair<PackedSequence, std::pair<Tensor, Tensor>> forward(PackedSequence x, std::pair<Tensor, Tensor> state = {});
  using Module<LSTM>::operator();
  /// For a state in braces.
  std::pair<Tensor, std::pair<Tensor, Tensor>> operator()(const Tensor& x, const std::pair<Tensor, Tensor>& state,
                                                          Location where = Location::current()) const {
    return Module<LSTM>::operator()(x, state, where);
  }
  std::pair<PackedSequence, std::pair<Tensor, Tensor>> operator()(const PackedSequence& x,
                                                                  const std::pair<Tensor, Tensor>& state,
                                                                  Location where = Location::current()) const {
    return Module<LSTM>::operator()(x, state, where);
  }
};

/// r, z = sigmoid of their rows of W_ih x + b_ih + W_hh h + b_hh; n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h = (1 -
/// z) n + z h (Cho et al. 2014).
class GRU : public Recurrent<GRU> {
 public:
  GRU(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options = {});
  std::pair<Tensor, Tensor> forward(Tensor x, Tensor h0 = {});
  std::pair<PackedSequence, Tensor> forward(PackedSequence x, Tensor h0 = {});
};

struct RecurrentCellOptions {
  bool bias = true;
  std::string nonlinearity = "tanh";  ///< RNNCell alone: tanh or relu
};
/// What RNNCell, LSTMCell and GRUCell share: one step of x[batch, input] (or without a batch). The parameters start
/// uniform in +-1/sqrt(hidden_size).
template <class Layer>
class RecurrentCell : public Module<Layer> {
 public:
  Registered<RecurrentCell> weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  RecurrentCell(const char* name, std::int64_t gates, std::int64_t input_size, std::int64_t hidden_size,
                RecurrentCellOptions options);
  /// The next state of `state`, whose undefined tensors are zeros.
  std::vector<Tensor> run(Tensor x, std::vector<Tensor> state);

 private:
  std::string name_;
  std::int64_t gates_, input_, hidden_;
  RecurrentCellOptions options_;
};
/// A step of RNN: h of x[batch, input] and h[batch, hidden], zeros when absent.
class RNNCell : public RecurrentCell<RNNCell> {
 public:
  RNNCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options = {});
  Tensor forward(Tensor x, Tensor h = {});
};
/// A step of LSTM: the next (h, c).
class LSTMCell : public RecurrentCell<LSTMCell> {
 public:
  LSTMCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options = {});
  std::pair<Tensor, Tensor> forward(Tensor x, std::pair<Tensor, Tensor> state = {});
};
/// A step of GRU.
class GRUCell : public RecurrentCell<GRUCell> {
 public:
  GRUCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options = {});
  Tensor forward(Tensor x, Tensor h = {});
};

}  // namespace graven::nn
