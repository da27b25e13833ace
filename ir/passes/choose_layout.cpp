// Users' images are [n, c, h, w]; the convolution and pooling kernels read [n, h, w, c]. This makes those nodes
// channels_last and lets the layout spread: elementwise nodes, batch norms, reductions, concatenations and the like
// follow their inputs, so that images are permuted where they enter the network and where something else than an image
// begins (flatten before a linear layer), and nowhere between.
//
// A value keeps its number and name and changes its shape; its counterpart in the other layout is made where somebody
// needs it, once. With one channel or one pixel the two layouts are the same memory, and a reshape does. In inference,
// flatten + linear permutes the columns of the weight (in the prepare phase) instead of the activations.
#include <algorithm>
#include <map>
#include <optional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"

namespace graven::ir {

namespace {

const Ints kToLast{0, 2, 3, 1}, kToFirst{0, 3, 1, 2};
/// Where a dimension of [n, c, h, w] stands in [n, h, w, c].
constexpr std::size_t kPlace[] = {0, 3, 1, 2};

/// Which inputs and outputs of an operator are images.
struct ImageOperator {
  std::string_view name;
  std::vector<std::size_t> inputs, outputs;
  bool forces;  ///< channels last wherever it stands; otherwise it follows its input
};

const ImageOperator* image_operator(std::string_view name) {
  static const std::vector<ImageOperator> table = {
      {"conv2d", {0}, {0}, true},
      {"conv2d_backward_input", {0}, {0}, true},
      {"conv2d_backward_weight", {0, 1}, {}, true},
      {"max_pool2d", {0}, {0, 1}, true},
      {"max_pool2d_backward", {0, 1}, {0}, true},
      {"avg_pool2d", {0}, {0}, true},
      {"avg_pool2d_backward", {0}, {0}, true},
      {"batch_norm", {0}, {0}, false},
      {"batch_norm_training", {0}, {0}, false},
      {"batch_norm_backward", {0, 1}, {0}, false},
  };
  for (const ImageOperator& op : table)
    if (op.name == name) return &op;
  return nullptr;
}

Shape permuted(const Shape& shape, const Ints& dims) {
  Shape result;
  for (std::int64_t d : dims) result.push_back(shape[static_cast<std::size_t>(d)]);
  return result;
}

class Layout {
 public:
  Layout(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), uses_(graph), writes_(graph), old_(std::move(graph.nodes)) {
    graph.nodes = {};
    graph.nodes.reserve(old_.size() + 16);
    last_.assign(graph.values.size(), false);
    other_.assign(graph.values.size(), kNone);
  }

  void run() {
    for (Node& node : old_) {
      phase_ = node.phase;
      const std::vector<ValueId> outputs = node.outputs;
      visit(node);
      const Origins origins = node.origins;
      keep(std::move(node));
      for (ValueId v : outputs)
        if (is_last(v) && uses_.is_output[static_cast<std::size_t>(v)]) want(v, false, origins);
    }
    auto restore = [&](ValueId& v) {
      if (v != kNone && is_last(v)) v = other_[static_cast<std::size_t>(v)];
    };
    for (ValueId& v : graph_.outputs) restore(v);
    for (Loss& l : graph_.losses) {
      restore(l.value);
      restore(l.gradient);
    }
    for (Gradient& g : graph_.gradients) restore(g.value);
  }

 private:
  bool is_last(ValueId v) const {
    return v != kNone && static_cast<std::size_t>(v) < last_.size() && last_[static_cast<std::size_t>(v)];
  }
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  /// The shape that the user sees.
  Shape logical(ValueId v) const { return is_last(v) ? permuted(shape(v), kToFirst) : shape(v); }
  static bool same_memory(const Shape& nchw) { return nchw[1] == Dim(1) || (nchw[2] == Dim(1) && nchw[3] == Dim(1)); }

  void keep(Node node) { graph_.nodes.push_back(std::move(node)); }
  ValueId add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, const Origins& origins,
              std::string name) {
    const ValueId v = graph_.call(op, std::move(inputs), std::move(attributes), origins, phase_, std::move(name));
    last_.resize(graph_.values.size(), false);
    other_.resize(graph_.values.size(), kNone);
    return v;
  }

  /// `v` in the layout that is asked for.
  ValueId want(ValueId v, bool last, const Origins& origins) {
    if (v == kNone || is_last(v) == last) return v;
    // What is written into is converted anew for each reader.
    const bool known = other_[static_cast<std::size_t>(v)] != kNone && !writes_.written(v, Phase::forward) &&
                       !writes_.written(v, Phase::backward);
    if (known) return other_[static_cast<std::size_t>(v)];
    const Shape from = logical(v);
    const Ints& dims = last ? kToLast : kToFirst;
    const std::string name = graph_.value(v).name + (last ? ".nhwc" : ".nchw");
    const ValueId made = same_memory(from) ? add("reshape", {v}, {{"shape", permuted(shape(v), dims)}}, origins, name)
                                           : add("permute", {v}, {{"dims", dims}}, origins, name);
    last_[static_cast<std::size_t>(made)] = last;
    other_[static_cast<std::size_t>(v)] = made;
    other_[static_cast<std::size_t>(made)] = v;
    return made;
  }

  void all_first(Node& node) {
    for (ValueId& v : node.inputs) v = want(v, false, node.origins);
  }
  /// Types of the outputs after inputs or attributes have changed.
  void retype(Node& node, const std::vector<std::size_t>& images) {
    std::vector<std::optional<TensorType>> types;
    for (ValueId v : node.inputs) {
      if (v == kNone)
        types.emplace_back();
      else
        types.emplace_back(graph_.type(v));
    }
    const std::vector<TensorType> results = infer(*node.op, types, node.attributes);
    for (std::size_t i = 0; i < results.size(); ++i) graph_.value(node.outputs[i]).type = results[i];
    for (std::size_t i : images) last_[static_cast<std::size_t>(node.outputs[i])] = true;
  }

  void visit(Node& node) {
    const std::string_view op = node.op->name;
    if (const ImageOperator* image = image_operator(op)) return visit_image(node, *image);
    const bool any_last = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_last(v); });
    if (op == "linear" && !flat_.empty()) permute_columns(node);
    if (!any_last) return;
    if (node.op->elementwise() && node.outputs.size() == 1) return visit_elementwise(node);
    if (op == "sum" || op == "mean" || op == "amax" || op == "amin" || op == "prod") return visit_reduction(node);
    if (op == "permute") return visit_permute(node);
    if (op == "reshape") return visit_reshape(node);
    if (op == "cat") return visit_cat(node);
    if (op == "slice" || op == "resample" || op == "resample_backward" || op == "cumsum" || op == "cumprod" ||
        op == "cumprod_backward") {
      for (ValueId& v : node.inputs) v = want(v, true, node.origins);
      node.attributes.set("dim", static_cast<std::int64_t>(kPlace[node.attributes.integer("dim")]));
      return retype(node, {0});
    }
    if (op == "pad" || op == "pad_border" || op == "pad_border_backward") {
      if (const Attribute* input_shape = node.attributes.find("input_shape"))
        node.attributes.set("input_shape", permuted(std::get<Shape>(*input_shape), kToLast));
      const Ints pads = node.attributes.integers("pads");
      Ints moved(pads.size());
      for (std::size_t d = 0; d < 4; ++d)
        for (std::size_t side = 0; side < 2; ++side) moved[2 * kPlace[d] + side] = pads[2 * d + side];
      node.attributes.set("pads", moved);
      return retype(node, {0});
    }
    all_first(node);
  }

  void visit_image(Node& node, const ImageOperator& image) {
    const ValueId x = node.inputs[image.inputs.back()];
    const bool covered = options_.target == Target::cuda || graph_.type(node.inputs[0]).dtype == DType::f32;
    bool follows = shape(x).rank() == 4 && !node.attributes.flag("channels_last");
    if (image.forces)
      follows = follows && covered;
    else
      follows = follows && is_last(x);
    if (!follows) return all_first(node);
    for (std::size_t i : image.inputs) node.inputs[i] = want(node.inputs[i], true, node.origins);
    node.attributes.set("channels_last", true);
    if (const Attribute* input_shape = node.attributes.find("input_shape"))
      node.attributes.set("input_shape", permuted(std::get<Shape>(*input_shape), kToLast));
    retype(node, image.outputs);
  }

  void visit_elementwise(Node& node) {
    // The layout of most of the elements that are read wins.
    const Shape result = logical_result(node);
    double last = 0, first = 0;
    for (ValueId v : node.inputs) {
      if (shape(v).rank() != 4) continue;
      (is_last(v) ? last : first) += made_by_full(v) ? 0 : static_cast<double>(shape(v).numel().maximum());
    }
    if (result.rank() != 4 || last < first) return all_first(node);
    for (ValueId& v : node.inputs) {
      const Shape from = logical(v);
      if (from.numel() == Dim(1) && !is_last(v)) continue;
      if (from.rank() < 4) {
        ValueId& padded = padded_.try_emplace(v, kNone).first->second;
        if (padded == kNone) {
          Shape full;
          for (std::size_t d = from.rank(); d < 4; ++d) full.push_back(1);
          for (const Dim& d : from) full.push_back(d);
          padded = add("reshape", {v}, {{"shape", full}}, node.origins, graph_.value(v).name + ".4d");
        }
        v = padded;
      }
      v = want(v, true, node.origins);
    }
    retype(node, {0});
  }
  Shape logical_result(const Node& node) const { return shape(node.outputs[0]); }  // not converted yet
  bool made_by_full(ValueId v) const {
    if (static_cast<std::size_t>(v) >= uses_.producer.size()) return false;
    const NodeId maker = uses_.producer[static_cast<std::size_t>(v)];
    // The old list's nodes are moved from, but the operator is a plain pointer and stays.
    return maker >= 0 && old_[static_cast<std::size_t>(maker)].op->name == "full";
  }

  void visit_reduction(Node& node) {
    const Ints dims = node.attributes.integers("dims");
    const bool keep_dims = node.attributes.flag("keepdim");
    bool reduced[4] = {};
    Ints moved;
    for (std::int64_t d : dims) {
      reduced[d] = true;
      moved.push_back(static_cast<std::int64_t>(kPlace[d]));
    }
    const bool same_order = reduced[1] || (reduced[2] && reduced[3]);
    if (!keep_dims && !same_order) return all_first(node);
    std::sort(moved.begin(), moved.end());
    node.attributes.set("dims", moved);
    retype(node, keep_dims ? std::vector<std::size_t>{0} : std::vector<std::size_t>{});
  }

  void visit_permute(Node& node) {
    Ints dims;
    for (std::int64_t d : node.attributes.integers("dims")) dims.push_back(static_cast<std::int64_t>(kPlace[d]));
    node.attributes.set("dims", dims);
    retype(node, {});
  }

  void visit_reshape(Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const Shape from = logical(x);
    if (same_memory(from)) return;
    const Shape& to = shape(y);
    if (is_inference(graph_) && to.rank() == 2 && to[0] == from[0] && only_linear_weights(y)) {
      flat_[y] = from;
      return;
    }
    all_first(node);
  }
  /// Whether `y` is only the input of linear layers whose weights are the user's parameters, columns in the order of
  /// `y`.
  bool only_linear_weights(ValueId y) const {
    if (uses_.is_output[static_cast<std::size_t>(y)] || uses_.consumers[static_cast<std::size_t>(y)].empty())
      return false;
    for (NodeId n : uses_.consumers[static_cast<std::size_t>(y)]) {
      const Node& reader = old_[static_cast<std::size_t>(n)];
      if (reader.op->name != "linear" || reader.inputs[0] != y || reader.attributes.flag("packed")) return false;
      if (std::count(reader.inputs.begin(), reader.inputs.end(), y) != 1) return false;
      if (graph_.value(reader.inputs[1]).kind != ValueKind::parameter) return false;
    }
    return true;
  }
  void permute_columns(Node& node) {
    const auto flat = flat_.find(node.inputs[0]);
    if (flat == flat_.end()) return;
    const Shape& image = flat->second;
    const ValueId weight = node.inputs[1];
    const Dim rows = shape(weight)[0];
    const std::string name = graph_.value(weight).name + ".nhwc";
    ValueId w = add("reshape", {weight}, {{"shape", Shape{rows, image[1], image[2], image[3]}}}, node.origins, name);
    w = add("permute", {w}, {{"dims", kToLast}}, node.origins, name);
    node.inputs[1] = add("reshape", {w}, {{"shape", shape(weight)}}, node.origins, name);
  }

  void visit_cat(Node& node) {
    for (ValueId& v : node.inputs) v = want(v, true, node.origins);
    node.attributes.set("dim", static_cast<std::int64_t>(kPlace[node.attributes.integer("dim")]));
    retype(node, {0});
  }

  Graph& graph_;
  const PassOptions& options_;
  Uses uses_;
  Writes writes_;
  std::vector<Node> old_;
  Phase phase_ = Phase::forward;
  std::vector<bool> last_;      ///< by value: it lies in memory as [n, h, w, c]
  std::vector<ValueId> other_;  ///< by value: the same tensor in the other layout
  std::map<ValueId, ValueId> padded_;
  /// Flattened images whose columns stand in the order h, w, c; the [n, c, h, w] that they were.
  std::map<ValueId, Shape> flat_;
};

}  // namespace

void choose_layout(Graph& graph, const PassOptions& options) {
  const bool images = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
    const ImageOperator* image = image_operator(n.op->name);
    return image && image->forces;
  });
  if (!images) return;
  Layout(graph, options).run();
  simplify_algebra(graph, options);  // permutes meet permutes, and reshapes reshapes
}

}  // namespace graven::ir
