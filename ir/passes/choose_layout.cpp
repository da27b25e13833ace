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

namespace graven::ir {

namespace {

const Ints kToLast{0, 2, 3, 1}, kToFirst{0, 3, 1, 2};
/// Where a dimension of [n, c, h, w] stands in [n, h, w, c].
constexpr std::size_t kPlace[] = {0, 3, 1, 2};

Shape permuted(const Shape& shape, const Ints& dims) {
  Shape result;
  for (std::int64_t d : dims) result.push_back(shape[at(d)]);
  return result;
}

class Layout {
 public:
  Layout(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), uses_(graph), old_(std::move(graph.nodes)) {
    graph.nodes = {};
    graph.nodes.reserve(old_.size() + 16);
  }

  void run() {
    for (Node& node : old_) {
      phase_ = node.phase;
      const std::vector<ValueId> outputs = node.outputs;
      visit(node);
      const Origins origins = node.origins;
      keep(std::move(node));
      for (ValueId v : outputs)
        if (last_(v) && uses_.is_result(v)) want(v, false, origins);
    }
    auto restore = [&](ValueId& v) {
      if (last_(v)) v = other_(v);
    };
    for (ValueId& v : graph_.outputs) restore(v);
    for (Loss& l : graph_.losses) {
      restore(l.value);
      restore(l.gradient);
    }
    for (Gradient& g : graph_.gradients) restore(g.value);
    for (Donation& d : graph_.donations) restore(d.value);
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  /// The shape that the user sees.
  Shape logical(ValueId v) const { return last_(v) ? permuted(shape(v), kToFirst) : shape(v); }
  static bool same_memory(const Shape& nchw) { return nchw[1] == Dim(1) || (nchw[2] == Dim(1) && nchw[3] == Dim(1)); }

  void keep(Node node) { graph_.nodes.push_back(std::move(node)); }
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const Origins& origins,
              std::string name) {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), origins, phase_, std::move(name)).at(0);
  }

  /// `v` in the layout that is asked for.
  ValueId want(ValueId v, bool last, const Origins& origins) {
    if (v == kNone || last_(v) == last) return v;
    if (other_(v) != kNone) return other_(v);
    const Shape from = logical(v);
    const Ints& dims = last ? kToLast : kToFirst;
    const std::string name = graph_.value(v).name + (last ? ".nhwc" : ".nchw");
    const ValueId made = same_memory(from) ? add(kReshape, {v}, {{"shape", permuted(shape(v), dims)}}, origins, name)
                                           : add(kPermute, {v}, {{"dims", dims}}, origins, name);
    last_[made] = last;
    other_[v] = made;
    other_[made] = v;
    return made;
  }

  void all_first(Node& node) {
    for (ValueId& v : node.inputs) v = want(v, false, node.origins);
  }
  /// Types of the outputs after inputs or attributes have changed; the first `images` of them are images now.
  void retype(Node& node, std::size_t images) {
    const std::vector<TensorType> results = infer(*node.op, graph_.types_of(node.inputs), node.attributes);
    for (std::size_t i = 0; i < results.size(); ++i) graph_.value(node.outputs[i]).type = results[i];
    for (std::size_t i = 0; i < images; ++i) last_[node.outputs[i]] = true;
  }

  void visit(Node& node) {
    const ImageLayout::Rule rule = node.op->layout.rule;
    if (rule == ImageLayout::Rule::leads || rule == ImageLayout::Rule::follows) return visit_image(node);
    const bool any_last = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return last_(v); });
    if (node.is(kLinear) && !flat_.empty()) permute_columns(node);
    if (!any_last) return;
    if (node.op->elementwise() && node.outputs.size() == 1) return visit_elementwise(node);
    if (rule == ImageLayout::Rule::reduces) return visit_reduction(node);
    if (rule == ImageLayout::Rule::moves) return move_dimensions(node);
    if (node.is(kPermute)) return visit_permute(node);
    if (node.is(kReshape)) return visit_reshape(node);
    all_first(node);
  }

  void move_dimensions(Node& node) {
    for (ValueId& v : node.inputs) v = want(v, true, node.origins);
    if (const Attribute* dim = node.attributes.find("dim"))
      node.attributes.set("dim", static_cast<std::int64_t>(kPlace[std::get<std::int64_t>(*dim)]));
    if (const Attribute* found = node.attributes.find("pads")) {
      const Ints pads = std::get<Ints>(*found);
      Ints moved(pads.size());
      for (std::size_t d = 0; d < 4; ++d)
        for (std::size_t side = 0; side < 2; ++side) moved[2 * kPlace[d] + side] = pads[2 * d + side];
      node.attributes.set("pads", moved);
    }
    move_input_shape(node);
    retype(node, 1);
  }
  static void move_input_shape(Node& node) {
    if (const Attribute* input_shape = node.attributes.find("input_shape"))
      node.attributes.set("input_shape", permuted(std::get<Shape>(*input_shape), kToLast));
  }

  void visit_image(Node& node) {
    const ImageLayout& image = node.op->layout;
    const ValueId x = node.inputs[image.inputs - 1];
    const std::span<const DType> dtypes = options_.target->channels_last;
    const bool covered = std::find(dtypes.begin(), dtypes.end(), graph_.type(node.inputs[0]).dtype) != dtypes.end();
    bool follows = shape(x).rank() == 4 && !node.attributes.flag("channels_last");
    follows = follows && (image.rule == ImageLayout::Rule::leads ? covered : last_(x));
    if (!follows) return all_first(node);
    for (std::size_t i = 0; i < image.inputs; ++i) node.inputs[i] = want(node.inputs[i], true, node.origins);
    node.attributes.set("channels_last", true);
    move_input_shape(node);
    retype(node, image.outputs);
  }

  void visit_elementwise(Node& node) {
    // The layout of most of the elements that are read wins.
    const Shape result = logical_result(node);
    double last = 0, first = 0;
    for (ValueId v : node.inputs) {
      if (shape(v).rank() != 4) continue;
      (last_(v) ? last : first) += made_by_full(v) ? 0 : static_cast<double>(shape(v).numel().maximum());
    }
    if (result.rank() != 4 || last < first) return all_first(node);
    for (ValueId& v : node.inputs) {
      const Shape from = logical(v);
      if (from.numel() == Dim(1) && !last_(v)) continue;
      if (from.rank() < 4) {
        ValueId& padded = padded_.try_emplace(v, kNone).first->second;
        if (padded == kNone) {
          Shape full;
          for (std::size_t d = from.rank(); d < 4; ++d) full.push_back(1);
          for (const Dim& d : from) full.push_back(d);
          padded = add(kReshape, {v}, {{"shape", full}}, node.origins, graph_.value(v).name + ".4d");
        }
        v = padded;
      }
      v = want(v, true, node.origins);
    }
    retype(node, 1);
  }
  Shape logical_result(const Node& node) const { return shape(node.outputs[0]); }  // not converted yet
  bool made_by_full(ValueId v) const {
    // The old list's nodes are moved from, but the operator is a plain pointer and stays.
    return uses_.maker(v) >= 0 && old_[at(uses_.maker(v))].is(kFull);
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
    retype(node, keep_dims ? 1 : 0);
  }

  void visit_permute(Node& node) {
    Ints dims;
    for (std::int64_t d : node.attributes.integers("dims")) dims.push_back(static_cast<std::int64_t>(kPlace[d]));
    node.attributes.set("dims", dims);
    retype(node, 0);
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
    if (uses_.is_result(y) || uses_.readers(y).empty()) return false;
    for (const NodeId n : uses_.readers(y)) {
      const Node& reader = old_[at(n)];
      if (!reader.is(kLinear) || reader.inputs[0] != y) return false;
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
    ValueId w = add(kReshape, {weight}, {{"shape", Shape{rows, image[1], image[2], image[3]}}}, node.origins, name);
    w = add(kPermute, {w}, {{"dims", kToLast}}, node.origins, name);
    node.inputs[1] = add(kReshape, {w}, {{"shape", shape(weight)}}, node.origins, name);
  }

  Graph& graph_;
  const PassOptions& options_;
  Uses uses_;
  std::vector<Node> old_;
  Phase phase_ = Phase::forward;
  ByValue<bool> last_;             ///< it lies in memory as [n, h, w, c]
  ByValue<ValueId> other_{kNone};  ///< the same tensor in the other layout
  std::map<ValueId, ValueId> padded_;
  /// Flattened images whose columns stand in the order h, w, c; the [n, c, h, w] that they were.
  std::map<ValueId, Shape> flat_;
};

}  // namespace

void choose_layout(Graph& graph, const PassOptions& options) {
  const bool images = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& n) { return n.op->layout.rule == ImageLayout::Rule::leads; });
  if (!images) return;
  Layout(graph, options).run();
  simplify_algebra(graph, options);  // permutes meet permutes, and reshapes reshapes
}

}  // namespace graven::ir
