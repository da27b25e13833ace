#include "graven/layers/sequence.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/layers/arguments.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "graven/init.h"
#include "ir/ops.h"

namespace graven::nn {

using arguments::number;
using arguments::python;
using graven::detail::At;
using graven::detail::fail;
using graven::detail::require_defined;
using graven::detail::Role;

namespace {

/// A mask that leaves out (bool) or is added (floating) as what is added to the scores.
Tensor added_mask(const Tensor& mask, DType dtype, const char* what, Location where) {
  if (mask.dtype() == DType::boolean)
    return graven::where(Operand(mask, where), Operand(-std::numeric_limits<double>::infinity(), where),
                         Operand(0.0, where))
        .to(dtype, where);
  if (!ir::is_floating(mask.dtype()))
    fail("MultiheadAttention", std::string(what) + " must be bool or floating, got " + mask.describe(), where);
  return mask.to(dtype, where);
}

}  // namespace

// ---- attention ------------------------------------------------------------------------------------------------------

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                                       MultiheadAttentionOptions options)
    : out_proj(child({"out_proj", Location{}}, Linear(std::max<std::int64_t>(embed_dim, 1),
                                                      std::max<std::int64_t>(embed_dim, 1), {.bias = options.bias}))),
      embed_(embed_dim),
      heads_(num_heads),
      options_(options) {
  if (embed_dim < 1 || num_heads < 1 || embed_dim % num_heads != 0)
    throw UserError(
        fmt::format("MultiheadAttention: num_heads must divide embed_dim, got {} and {}", num_heads, embed_dim));
  if (!(options.dropout >= 0 && options.dropout <= 1))
    throw UserError("MultiheadAttention: dropout must lie in [0, 1], got " + number(options.dropout));
  const std::int64_t keys = options.kdim.value_or(embed_dim), values = options.vdim.value_or(embed_dim);
  if (keys == embed_dim && values == embed_dim) {
    in_proj_weight = parameter("in_proj_weight", init::xavier_uniform_(zeros({3 * embed_dim, embed_dim})));
  } else {
    q_proj_weight = parameter("q_proj_weight", init::xavier_uniform_(zeros({embed_dim, embed_dim})));
    k_proj_weight = parameter("k_proj_weight", init::xavier_uniform_(zeros({embed_dim, keys})));
    v_proj_weight = parameter("v_proj_weight", init::xavier_uniform_(zeros({embed_dim, values})));
  }
  if (options.bias) {
    in_proj_bias = parameter("in_proj_bias", zeros({3 * embed_dim}));
    NoGradGuard no_grad;
    out_proj.bias.zero_();
  }
}

std::pair<Tensor, Tensor> MultiheadAttention::forward(Tensor query, Tensor key, Tensor value,
                                                      MultiheadAttentionCall call) {
  const At at(call_location());
  const Location where = at.where();
  const char* name = "MultiheadAttention";
  require_defined(query, name, where, "query");
  require_defined(key, name, where, "key");
  require_defined(value, name, where, "value");
  const bool batched = query.dim() == 3;
  if ((!batched && query.dim() != 2) || key.dim() != query.dim() || value.dim() != query.dim())
    fail(name,
         "expects query, key and value of 3 dimensions, or of 2 without a batch, got " + query.describe() + ", " +
             key.describe() + ", " + value.describe(),
         where);
  if (call.is_causal && !call.attn_mask.defined())
    fail(name, "is_causal is a hint about attn_mask, which must be given", where);
  const bool self = query.is_same(key) && key.is_same(value);
  // To [batch, length, size].
  const auto to_rows = [&](const Tensor& t) {
    return !batched ? t.unsqueeze(0, where) : options_.batch_first ? t : t.transpose(0, 1, where);
  };
  const Tensor q = to_rows(query), k = self ? q : to_rows(key), v = self ? q : to_rows(value);
  const Dim batch = q.shape()[0];
  const std::int64_t size = embed_ / heads_;

  // The projections: one product where all three read the same.
  constexpr std::string_view kRoles[3] = {"q", "k", "v"};
  Tensor projected[3];
  const auto bias_part = [&](std::int64_t i) {
    return in_proj_bias.defined() ? in_proj_bias.slice(0, i * embed_, (i + 1) * embed_, 1, where) : Tensor();
  };
  if (in_proj_weight.defined() && self) {
    const Tensor all = linear(at(q), in_proj_weight, in_proj_bias);
    for (std::int64_t i = 0; i < 3; ++i) {
      const Role role(kRoles[i]);
      projected[i] = all.slice(-1, i * embed_, (i + 1) * embed_, 1, where);
    }
  } else {
    const Tensor inputs[3] = {q, k, v};
    const Tensor separate[3] = {q_proj_weight, k_proj_weight, v_proj_weight};
    for (std::int64_t i = 0; i < 3; ++i) {
      const Role role(kRoles[i]);
      const Tensor weight =
          in_proj_weight.defined() ? in_proj_weight.slice(0, i * embed_, (i + 1) * embed_, 1, where) : separate[i];
      projected[i] = linear(at(inputs[i]), weight, bias_part(i));
    }
  }
  // [batch, heads, length, size]
  for (Tensor& t : projected) t = t.reshape({t.shape()[0], t.shape()[1], heads_, size}, where).transpose(1, 2, where);

  Tensor mask;
  if (call.attn_mask.defined()) {
    mask = added_mask(call.attn_mask, q.dtype(), "attn_mask", where);
    const Dim queries = projected[0].shape()[2], keys = projected[1].shape()[2], all = batch * Dim(heads_);
    if (mask.shape() != Shape{queries, keys} && mask.shape() != Shape{all, queries, keys})
      fail(name,
           "attn_mask must be [" + queries.to_string() + ", " + keys.to_string() + "] or [" + all.to_string() + ", " +
               queries.to_string() + ", " + keys.to_string() + "], as queries, keys and batch * heads are, got " +
               call.attn_mask.describe(),
           where);
    if (mask.dim() == 3) mask = mask.reshape({batch, heads_, queries, keys}, where);
  }
  if (call.key_padding_mask.defined()) {
    Tensor padding = added_mask(call.key_padding_mask, q.dtype(), "key_padding_mask", where);
    if (!batched) padding = padding.unsqueeze(0, where);
    const Dim keys = projected[1].shape()[2];
    if (padding.shape() != Shape{batch, keys})
      fail(name,
           "key_padding_mask must be [" + (batched ? batch.to_string() + ", " : std::string()) + keys.to_string() +
               "], as batch and keys are, got " + call.key_padding_mask.describe(),
           where);
    padding = padding.reshape({padding.shape()[0], 1, 1, padding.shape()[1]}, where);
    mask = mask.defined() ? at.add(mask, padding) : padding;
  }
  const double dropped = is_training() ? options_.dropout : 0;
  Tensor result, weights;
  if (!call.need_weights) {
    result = scaled_dot_product_attention(at(projected[0]), projected[1], projected[2],
                                          {.attn_mask = mask, .dropout_p = dropped});
  } else {
    const Tensor scaled = graven::mul(at(projected[0]), at(1 / std::sqrt(static_cast<double>(size))));
    std::optional<Role> role(std::in_place, "k_transposed");
    const Tensor columns = projected[1].transpose(-2, -1, where);
    role.emplace("scores");
    Tensor scores = matmul(at(scaled), at(columns));
    if (mask.defined()) scores = at.add(scores, mask);
    role.emplace("weights");
    weights = dropout(at(softmax(at(scores), -1)), dropped);
    role.emplace("context");
    result = matmul(at(weights), at(projected[2]));
    role.reset();
    if (call.average_attn_weights) weights = mean(at(weights), {1});
    if (!batched) weights = weights.squeeze(0, where);
  }
  const Dim queries = result.shape()[2];
  result = result.transpose(1, 2, where).reshape({batch, queries, embed_}, where);
  result = out_proj(result);
  if (!batched)
    result = result.squeeze(0, where);
  else if (!options_.batch_first)
    result = result.transpose(0, 1, where);
  return {result, weights};
}

// ---- recurrent ------------------------------------------------------------------------------------------------------

namespace {

/// What makes a step: how many gates there are of which size, and whether the one of an RNN is relu.
struct Gates {
  std::int64_t count, size;
  bool rectified;
};

/// One step of a cell: `projected` is W_ih x + b_ih[batch, gates * hidden].
std::vector<Tensor> step(const Gates& gates, const RecurrentWeights& w, const Tensor& projected,
                         const std::vector<Tensor>& state, Location where) {
  const At at(where);
  const Tensor recurrent = linear(at(state[0]), w.weight_hh, w.bias_hh);
  const auto gate = [&](const Tensor& t, std::int64_t i) {
    return t.slice(-1, i * gates.size, (i + 1) * gates.size, 1, where);
  };
  if (gates.count == 1) {
    const Tensor sum = at.add(projected, recurrent);
    return {gates.rectified ? relu(at(sum)) : tanh(at(sum))};
  }
  if (gates.count == 4) {
    const Tensor sum = at.add(projected, recurrent);
    const Tensor i = sigmoid(at(gate(sum, 0))), f = sigmoid(at(gate(sum, 1))), g = tanh(at(gate(sum, 2))),
                 o = sigmoid(at(gate(sum, 3)));
    const Tensor c = at.add(at.mul(f, state[1]), at.mul(i, g));
    return {at.mul(o, tanh(at(c))), c};
  }
  const Tensor r = sigmoid(at(at.add(gate(projected, 0), gate(recurrent, 0)))),
               z = sigmoid(at(at.add(gate(projected, 1), gate(recurrent, 1))));
  const Tensor n = tanh(at(at.add(gate(projected, 2), at.mul(r, gate(recurrent, 2)))));
  return {at.add(n, at.mul(z, at.sub(state[0], n)))};
}

/// Checks the arguments of a layer or a cell.
void check_recurrent(const std::string& name, std::int64_t gates, std::int64_t input_size, std::int64_t hidden_size,
                     const std::string& nonlinearity) {
  if (input_size < 1 || hidden_size < 1)
    throw UserError(
        fmt::format("{}: input_size and hidden_size must be positive, got {} and {}", name, input_size, hidden_size));
  // All gates' rows of both directions must be countable; what is too large for memory is said where it is allocated.
  if (constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
      input_size > kMost || hidden_size > kMost)
    throw UserError(
        fmt::format("{}: input_size and hidden_size are too large, got {} and {}", name, input_size, hidden_size));
  if (nonlinearity != "tanh" && (nonlinearity != "relu" || gates != 1))
    throw UserError(name + ": nonlinearity must be tanh, or relu for an RNN, got '" + nonlinearity + "'");
}

}  // namespace

template <class Layer>
Recurrent<Layer>::Recurrent(const char* name, std::int64_t gates, std::int64_t input_size, std::int64_t hidden_size,
                            RecurrentOptions options)
    : name_(name), gates_(gates), input_(input_size), hidden_(hidden_size), options_(std::move(options)) {
  const auto require = [&](bool good, const std::string& text) {
    if (!good) throw UserError(name_ + ": " + text);
  };
  check_recurrent(name_, gates, input_size, hidden_size, options_.nonlinearity);
  require(options_.num_layers > 0, fmt::format("num_layers must be positive, got {}", options_.num_layers));
  constexpr std::int64_t kMostLayers = 65536;
  require(options_.num_layers <= kMostLayers,
          fmt::format("num_layers must be at most {}, got {}", kMostLayers, options_.num_layers));
  require(options_.dropout >= 0 && options_.dropout <= 1,
          "dropout must lie in [0, 1], got " + number(options_.dropout));
  require(options_.proj_size == 0 || gates == 4, "proj_size is of an LSTM alone");
  require(options_.proj_size >= 0 && options_.proj_size < hidden_size,
          fmt::format("proj_size must be smaller than hidden_size, {}, and not negative, got {}", hidden_size,
                      options_.proj_size));
  state_ = options_.proj_size > 0 ? options_.proj_size : hidden_size;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  const std::int64_t rows = gates * hidden_size, count = options_.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < options_.num_layers; ++layer)
    for (std::int64_t d = 0; d < count; ++d) {
      const std::string suffix = fmt::format("_l{}{}", layer, d == 1 ? "_reverse" : "");
      const auto make = [&](const char* what, const Shape& shape) {
        return this->parameter(what + suffix, init::uniform_(zeros(shape), -bound, bound));
      };
      RecurrentWeights direction;
      direction.weight_ih = make("weight_ih", {rows, layer == 0 ? input_size : count * state_});
      direction.weight_hh = make("weight_hh", {rows, state_});
      if (options_.bias) {
        direction.bias_ih = make("bias_ih", {rows});
        direction.bias_hh = make("bias_hh", {rows});
      }
      if (options_.proj_size > 0) direction.weight_hr = make("weight_hr", {state_, hidden_size});
      directions_.push_back(std::move(direction));
    }
  std::string text = fmt::format("{}, {}", input_size, hidden_size);
  if (options_.proj_size != 0) text += fmt::format(", proj_size={}", options_.proj_size);
  if (options_.num_layers != 1) text += fmt::format(", num_layers={}", options_.num_layers);
  if (!options_.bias) text += ", bias=False";
  if (options_.batch_first) text += ", batch_first=True";
  if (options_.dropout != 0) text += ", dropout=" + number(options_.dropout);
  if (options_.bidirectional) text += ", bidirectional=True";
  this->set_arguments(std::move(text));
}

template <class Layer>
std::pair<Tensor, std::vector<Tensor>> Recurrent<Layer>::run(Tensor x, std::vector<Tensor> state) {
  return run_steps(std::move(x), Tensor(), std::move(state));
}

template <class Layer>
std::pair<PackedSequence, std::vector<Tensor>> Recurrent<Layer>::run(PackedSequence x, std::vector<Tensor> state) {
  auto [y, states] = run_steps(x.steps_, x.lengths_, std::move(state));
  x.steps_ = y;
  x.ends_in_zeros_ = true;
  return {x, states};
}

/// `lengths`: of packed sequences, which are [length, batch, input].
template <class Layer>
std::pair<Tensor, std::vector<Tensor>> Recurrent<Layer>::run_steps(Tensor x, const Tensor& lengths,
                                                                   std::vector<Tensor> state) {
  const At at(this->call_location());
  const Location where = at.where();
  require_defined(x, name_, where);
  const bool packed = lengths.defined(), batched = packed || x.dim() == 3;
  if (packed && x.dim() != 3) fail(name_, "expects packed sequences of 3 dimensions, got " + x.describe(), where);
  if (!batched && x.dim() != 2) fail(name_, "expects 3 dimensions, or 2 without a batch, got " + x.describe(), where);
  if (x.shape().back() != Dim(input_))
    fail(name_, "expects " + std::to_string(input_) + " numbers a step, got " + x.describe(), where);
  if (!batched) x = x.unsqueeze(1, where);
  const bool batch_first = batched && !packed && options_.batch_first;
  if (batch_first) x = x.transpose(0, 1, where);
  const Dim length = x.shape()[0], batch = x.shape()[1];
  const std::int64_t count = options_.bidirectional ? 2 : 1, states = gates_ == 4 ? 2 : 1;
  if (length == Dim(0)) fail(name_, "expects at least one step, got " + x.describe(), where);
  constexpr const char* kNames[] = {"h0", "c0"};
  for (std::size_t s = 0; s < state.size(); ++s) {
    if (!state[s].defined()) continue;
    if (!batched) state[s] = state[s].unsqueeze(1, where);
    const Shape expected{options_.num_layers * count, batch, s == 0 ? state_ : hidden_};
    if (state[s].shape() != expected)
      fail(name_,
           std::string(kNames[s]) + " must be " + ir::describe(x.dtype(), expected) + ", got " + state[s].describe(),
           where);
  }
  // A state that is not given is zero: the operators know that.
  const auto initial = [&](std::size_t which, std::int64_t index) {
    return which < state.size() && state[which].defined() ? state[which].select(0, index, where) : Tensor();
  };
  const ir::OpDef& op = gates_ == 4 ? ir::kLstm : gates_ == 3 ? ir::kGru : ir::kRnn;
  std::vector<std::vector<Tensor>> last(static_cast<std::size_t>(states));
  for (std::int64_t layer = 0; layer < options_.num_layers; ++layer) {
    std::vector<Tensor> sides;
    for (std::int64_t d = 0; d < count; ++d) {
      const std::int64_t index = layer * count + d;
      const RecurrentWeights& direction = directions_[static_cast<std::size_t>(index)];
      // All steps' inputs in one product; only what depends on the step before is the recurrent operator's.
      std::vector<Tensor> inputs{linear(at(x), direction.weight_ih, direction.bias_ih), direction.weight_hh,
                                 direction.bias_hh, initial(0, index)};
      if (gates_ == 4) inputs.insert(inputs.end(), {initial(1, index), direction.weight_hr});
      inputs.push_back(lengths);
      ir::Attributes attributes{{"reverse", d == 1}};
      if (gates_ == 1) attributes.set("relu", options_.nonlinearity == "relu");
      const std::vector<Tensor> results = graven::detail::apply(op, std::move(inputs), std::move(attributes), where);
      sides.push_back(results[0]);
      for (std::size_t s = 0; s < last.size(); ++s) last[s].push_back(results[s + 1]);
    }
    x = sides.size() == 1 ? sides[0] : cat(sides, -1, where);
    if (layer + 1 < options_.num_layers) x = dropout(at(x), options_.dropout, this->is_training());
  }
  std::vector<Tensor> final_states;
  for (const auto& s : last) {
    Tensor all = stack(s, 0, where);
    final_states.push_back(batched ? all : all.squeeze(1, where));
  }
  if (!batched) x = x.squeeze(1, where);
  if (batch_first) x = x.transpose(0, 1, where);
  return {x, final_states};
}
template class Recurrent<RNN>;
template class Recurrent<LSTM>;
template class Recurrent<GRU>;

RNN::RNN(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options)
    : Recurrent("RNN", 1, input_size, hidden_size, options) {}
std::pair<Tensor, Tensor> RNN::forward(Tensor x, Tensor h0) {
  auto [y, states] = run(x, {h0});
  return {y, states[0]};
}
std::pair<PackedSequence, Tensor> RNN::forward(PackedSequence x, Tensor h0) {
  auto [y, states] = run(x, {h0});
  return {y, states[0]};
}

LSTM::LSTM(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options)
    : Recurrent("LSTM", 4, input_size, hidden_size, options) {}
std::pair<Tensor, std::pair<Tensor, Tensor>> LSTM::forward(Tensor x, std::pair<Tensor, Tensor> state) {
  auto [y, states] = run(x, {state.first, state.second});
  return {y, {states[0], states[1]}};
}
std::pair<PackedSequence, std::pair<Tensor, Tensor>> LSTM::forward(PackedSequence x, std::pair<Tensor, Tensor> state) {
  auto [y, states] = run(x, {state.first, state.second});
  return {y, {states[0], states[1]}};
}

GRU::GRU(std::int64_t input_size, std::int64_t hidden_size, RecurrentOptions options)
    : Recurrent("GRU", 3, input_size, hidden_size, options) {}
std::pair<Tensor, Tensor> GRU::forward(Tensor x, Tensor h0) {
  auto [y, states] = run(x, {h0});
  return {y, states[0]};
}
std::pair<PackedSequence, Tensor> GRU::forward(PackedSequence x, Tensor h0) {
  auto [y, states] = run(x, {h0});
  return {y, states[0]};
}

template <class Layer>
RecurrentCell<Layer>::RecurrentCell(const char* name, std::int64_t gates, std::int64_t input_size,
                                    std::int64_t hidden_size, RecurrentCellOptions options)
    : name_(name), gates_(gates), input_(input_size), hidden_(hidden_size), options_(std::move(options)) {
  check_recurrent(name_, gates, input_size, hidden_size, options_.nonlinearity);
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  const auto make = [&](const char* what, const Shape& shape) {
    return this->parameter(what, init::uniform_(zeros(shape), -bound, bound));
  };
  weight_ih = make("weight_ih", {gates * hidden_size, input_size});
  weight_hh = make("weight_hh", {gates * hidden_size, hidden_size});
  if (options_.bias) {
    bias_ih = make("bias_ih", {gates * hidden_size});
    bias_hh = make("bias_hh", {gates * hidden_size});
  }
  std::string text = fmt::format("{}, {}", input_size, hidden_size);
  if (!options_.bias) text += ", bias=False";
  if (options_.nonlinearity != "tanh") text += ", nonlinearity=" + options_.nonlinearity;
  this->set_arguments(std::move(text));
}

template <class Layer>
std::vector<Tensor> RecurrentCell<Layer>::run(Tensor x, std::vector<Tensor> state) {
  const At at(this->call_location());
  const Location where = at.where();
  require_defined(x, name_, where);
  const bool batched = x.dim() == 2;
  if (!batched && x.dim() != 1)
    fail(name_, "expects [batch, input], or [input] without a batch, got " + x.describe(), where);
  if (x.shape().back() != Dim(input_))
    fail(name_, "expects " + std::to_string(input_) + " numbers a step, got " + x.describe(), where);
  if (!batched) x = x.unsqueeze(0, where);
  const Shape expected{x.shape()[0], hidden_};
  for (Tensor& s : state) {
    if (!s.defined()) {
      s = graven::detail::filled(expected, 0, x.dtype(), x, where);
      continue;
    }
    if (!batched) s = s.unsqueeze(0, where);
    if (s.shape() != expected)
      fail(name_, "a state must be " + ir::describe(x.dtype(), expected) + ", got " + s.describe(), where);
  }
  const RecurrentWeights weights{weight_ih, weight_hh, bias_ih, bias_hh};
  const Tensor projected = linear(at(x), weights.weight_ih, weights.bias_ih);
  std::vector<Tensor> next = step({gates_, hidden_, options_.nonlinearity == "relu"}, weights, projected, state, where);
  if (!batched)
    for (Tensor& s : next) s = s.squeeze(0, where);
  return next;
}
template class RecurrentCell<RNNCell>;
template class RecurrentCell<LSTMCell>;
template class RecurrentCell<GRUCell>;

RNNCell::RNNCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options)
    : RecurrentCell("RNNCell", 1, input_size, hidden_size, std::move(options)) {}
Tensor RNNCell::forward(Tensor x, Tensor h) { return run(x, {h})[0]; }

LSTMCell::LSTMCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options)
    : RecurrentCell("LSTMCell", 4, input_size, hidden_size, std::move(options)) {}
std::pair<Tensor, Tensor> LSTMCell::forward(Tensor x, std::pair<Tensor, Tensor> state) {
  const std::vector<Tensor> next = run(x, {state.first, state.second});
  return {next[0], next[1]};
}

GRUCell::GRUCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions options)
    : RecurrentCell("GRUCell", 3, input_size, hidden_size, std::move(options)) {}
Tensor GRUCell::forward(Tensor x, Tensor h) { return run(x, {h})[0]; }

}  // namespace graven::nn
