// Attention in which a query sees no later key is written as a softmax of masked scores. The mask becomes a property of
// the softmax, which then reads what a query sees and no more, and of which no mask is made:
//
//   softmax(scores + causal_mask)              softmax(scores; causal)
//   softmax(scores + mask)                     the same, of a constant that is 0 where a query sees, else -infinity
//   softmax(where(mask, scores, -infinity))    the same, of a constant that is true there, else false
//   softmax(where(mask, -infinity, scores))    the same, of the opposite
//
// Where the mask is added, one thing changes: a hidden score of NaN or infinity made the whole row NaN, and is no
// longer read.
#include <cmath>
#include <optional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"
#include "ir/tensor_value.h"

namespace graven::ir {

namespace {

class CausalSoftmaxes {
 public:
  explicit CausalSoftmaxes(Graph& graph) : graph_(graph), uses_(graph) {}

  void run() {
    for (Node& node : graph_.nodes) {
      if (!node.is(kSoftmax) || node.attributes.flag("causal")) continue;
      const Shape& shape = graph_.type(node.inputs[0]).shape;
      if (shape.rank() < 2 || node.attributes.integer("dim") + 1 != static_cast<std::int64_t>(shape.rank())) continue;
      const std::optional<Masked> masked = find_mask(node.inputs[0]);
      if (!masked) continue;
      node.inputs[0] = masked->scores;
      node.attributes.set("causal", true);
      node.attributes.set("offset", masked->offset);
    }
  }

 private:
  struct Masked {
    ValueId scores;
    std::int64_t offset;
  };

  const Node* maker(ValueId v) const { return uses_.maker(graph_, v); }

  std::optional<Masked> find_mask(ValueId x) const {
    const Node* node = maker(x);
    if (!node) return std::nullopt;
    const TensorType& type = graph_.type(x);
    const auto with = [&](ValueId scores, const std::optional<std::int64_t>& offset) -> std::optional<Masked> {
      if (!offset || graph_.type(scores) != type) return std::nullopt;
      return Masked{scores, *offset};
    };
    if (node->is(kAdd)) {
      for (const std::size_t i : {1, 0})
        if (const auto found = with(node->inputs[1 - i], offset_of(node->inputs[i], type.shape, 0, -INFINITY)))
          return found;
    } else if (node->is(kWhere)) {
      for (const std::size_t i : {2, 1})
        if (const Node* full = maker(node->inputs[i]);
            full && full->is(kFull) && full->attributes.number("value") == -INFINITY)
          if (const auto found =
                  with(node->inputs[3 - i], offset_of(node->inputs[0], type.shape, i == 2 ? 1 : 0, i == 2 ? 0 : 1)))
            return found;
    }
    return std::nullopt;
  }

  /// The offset of a mask [queries, keys], the last dimensions of `scores`, that is `seen` for the keys that a query
  /// sees and `hidden` for the others; nothing where it is no such mask, or hides nothing.
  std::optional<std::int64_t> offset_of(ValueId mask, const Shape& scores, double seen, double hidden) const {
    const Dim queries = scores.back(1), keys = scores.back(0);
    if (graph_.type(mask).shape.numel() != queries * keys || graph_.type(mask).shape.rank() < 2 ||
        graph_.type(mask).shape.back(0) != keys || graph_.type(mask).shape.back(1) != queries)
      return std::nullopt;
    const Node* node = maker(mask);
    while (node && node->is(kReshape)) {
      mask = node->inputs[0];
      node = maker(mask);
    }
    if (node) return node->is(kCausalMask) && seen == 0 ? std::optional<std::int64_t>(0) : std::nullopt;
    const auto constant = graph_.constants.find(mask);
    if (constant == graph_.constants.end()) return std::nullopt;
    const std::optional<std::vector<double>> elements = elements_of(*constant->second);
    if (!elements) return std::nullopt;
    const std::int64_t rows = queries.value(), columns = keys.value();
    std::int64_t offset = -1;
    while (offset + 1 < columns && (*elements)[at(offset + 1)] == seen) ++offset;
    if (offset < 0 || offset + 1 == columns) return std::nullopt;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        if ((*elements)[at(row * columns + column)] != (column <= row + offset ? seen : hidden)) return std::nullopt;
    return offset;
  }

  Graph& graph_;
  const Uses uses_;
};

}  // namespace

void recognize_causal_softmax(Graph& graph, const PassOptions& options) {
  CausalSoftmaxes(graph).run();
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
