// Layouts of tensors over ranks: what each of the processes that compute one model together has of a tensor (the SBP
// signatures of OneFlow: Yuan et al., OneFlow: Redesign the Distributed Deep Learning Framework from Scratch, 2021).
//
//   broadcast      all of it
//   split(d)       a part along dimension d; with several blocks, a part of each block of the dimension
//   partial_sum    a tensor of the whole shape: the tensor is the sum of what the ranks have
//
// A linear layer that reads all of x has columns of the result where it has rows of the weight; the one behind it,
// whose weight is split along the features that it reads, has terms of its result (Shoeybi et al., Megatron-LM, 2019):
//
//   x broadcast, w split(0)         ->  y split(last)
//   y split(last), v split(1)       ->  z partial_sum
//
// Users mark parameters and inputs (Tensor::set_layout); an operator's entry says which layouts of its results follow
// from which of its inputs (OpDef::rank_layouts), and the pass split_tensors chooses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace graven::ir {

/// Key of Graph::config, an integer: how many ranks have the tensors of one model in parts.
inline constexpr std::string_view kTensorParallel = "tensor_parallel";
/// Prefix of keys of Graph::config, texts of RankLayout: behind it stands a value's name. Before split_tensors it is
/// what the user has marked, behind it that of every variable that is split.
inline constexpr std::string_view kLayoutOf = "layout_of.";
/// Key of Graph::config, a boolean: layouts are chosen. Variables without a text are whole on each rank.
inline constexpr std::string_view kLayoutsChosen = "layouts_chosen";

struct RankLayout {
  enum class Kind : std::uint8_t { broadcast, split, partial_sum } kind = Kind::broadcast;
  std::int64_t dim = 0;
  std::int64_t blocks = 1;

  static RankLayout split(std::int64_t dim, std::int64_t blocks = 1) { return {Kind::split, dim, blocks}; }
  static RankLayout partial_sum() { return {Kind::partial_sum}; }
  bool is_broadcast() const { return kind == Kind::broadcast; }
  bool is_split() const { return kind == Kind::split; }
  bool is_partial() const { return kind == Kind::partial_sum; }

  /// "broadcast", "split(0)", "split(0, 3)", "partial_sum".
  std::string to_string() const;
  /// Nothing where the text is none of these.
  static std::optional<RankLayout> parse(std::string_view text);
  friend bool operator==(const RankLayout&, const RankLayout&) = default;
};

/// Whether so many ranks can have a tensor of this shape so, in parts of one size: the dimension is a number that they
/// divide.
bool can_have(const Shape& shape, const RankLayout& layout, std::int64_t ranks);
/// What one of them has.
Shape shape_on_rank(const Shape& shape, const RankLayout& layout, std::int64_t ranks);
/// The reverse.
Shape whole_shape(const Shape& on_rank, const RankLayout& layout, std::int64_t ranks);

/// How many elements of the whole tensor in a row are one rank's, where it is split.
Dim run_of(const Shape& shape, const RankLayout& layout, std::int64_t ranks);

/// What one rank sends where a tensor changes its layout, in bytes.
double bytes_sent(const RankLayout& from, const RankLayout& to, double whole_bytes, std::int64_t ranks);

/// The same of all conversions in a graph, at the symbols' maxima.
double bytes_sent(const Graph& graph);

/// How many ranks have the tensors of the graph in parts; 1: each has all. User error where the config's number is
/// none.
std::int64_t tensor_ranks(const Graph& graph);
/// Of a graph that has been through split_tensors, of a variable: broadcast, or the split of it.
RankLayout layout_of(const Graph& graph, ValueId variable);
/// The type that it has in files: whole, where the graph's is a part of it.
TensorType whole_type(const Graph& graph, ValueId variable);

/// Of a graph that has been through split_tensors: a line for each variable that is split, and for each conversion,
/// with what one rank sends for it.
std::string describe_layouts(const Graph& graph);
/// What the first rank has of a variable, of all of it.
TensorData first_part(const TensorData& whole, const RankLayout& layout, std::int64_t ranks);

class RankRules;

/// Layouts of a node's results that follow from those of its inputs.
struct RankLayouts {
  std::vector<RankLayout> inputs, outputs;
  std::vector<std::pair<std::string, Attribute>> attributes = {};  ///< that the node of one rank has instead
  /// What one rank computes instead of a node of the same operator: takes the inputs in those layouts, appends nodes,
  /// and returns the results in the order of `outputs`. nullptr: the same operator.
  std::vector<ValueId> (*nodes)(Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                                std::int64_t ranks) = nullptr;
  double bytes = 0;  ///< that one rank sends in those nodes
};

/// What an operator's entry sees and says: OpDef::rank_layouts adds what it can do besides the one way that every
/// operator has, all inputs and results broadcast. Shapes are whole.
class RankRules {
 public:
  RankRules(const NodeView& node, std::int64_t ranks, std::vector<std::int64_t> blocks)
      : node_(node), ranks_(ranks), blocks_(std::move(blocks)) {}

  const NodeView& node() const { return node_; }
  std::int64_t ranks() const { return ranks_; }
  const Shape& input(std::size_t i) const { return node_.input(i).shape; }
  const Shape& output(std::size_t i = 0) const { return node_.output(i).shape; }
  bool has_input(std::size_t i) const { return node_.has_input(i); }
  /// Calls it with each split of a dimension of this shape that the ranks can have.
  void each_split(const Shape& shape, std::int64_t dim, const std::function<void(const RankLayout&)>& what) const {
    for (const std::int64_t b : blocks_)
      if (const RankLayout layout = RankLayout::split(dim, b); can_have(shape, layout, ranks_)) what(layout);
  }
  /// Ways that are no ways, of sizes that the ranks do not divide, are left out.
  void add(RankLayouts way);
  /// Inputs and outputs that are not mentioned are broadcast.
  RankLayouts way() const {
    return {std::vector<RankLayout>(node_.input_count()), std::vector<RankLayout>(node_.node.outputs.size())};
  }
  std::vector<RankLayouts> take() { return std::move(ways_); }

 private:
  const NodeView& node_;
  std::int64_t ranks_;
  std::vector<std::int64_t> blocks_;
  std::vector<RankLayouts> ways_;
};

/// The ways that a node has, all broadcast the first. `blocks`: how many blocks a split may have.
std::vector<RankLayouts> rank_layouts(const NodeView& node, std::int64_t ranks,
                                      const std::vector<std::int64_t>& blocks);

}  // namespace graven::ir
