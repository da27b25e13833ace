#include "codegen/simulate/tensor_parallel.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/op.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

const ir::OpDef& plain(const ir::Node& node) { return node.op->lowers == nullptr ? *node.op : *node.op->lowers; }

/// A product of activations with a layer's weight: which of its input's and of its result's dimensions the weight
/// joins.
struct LayerProduct {
  ir::ValueId x = ir::kNone;
  std::int32_t parameter = -1;  ///< the weight
  std::int32_t bias = -1;
  std::int32_t in = 0, out = 0;  ///< dimensions
  bool is_depthwise = false;     ///< each channel has its own: parts come in and go out
};

class Sharding {
 public:
  Sharding(const Workload& workload, std::int64_t ranks, const Machine& machine, const Link& link)
      : w_(workload), ranks_(ranks), machine_(machine), link_(link), found_(whole(workload)) {
    found_.ranks = ranks;
  }

  Shards run() {
    for (std::size_t i = 0; i < w_.forward.size(); ++i) {
      const std::optional<LayerProduct> product = layer(i);
      if (!product || product->is_depthwise || is_done_[i] || parts_(w_.root[at(product->x)]) >= 0) continue;
      // All products of one input together, as q, k and v are; or else each for itself.
      std::vector<std::size_t> siblings;
      for (std::size_t j = i; j < w_.forward.size(); ++j)
        if (const std::optional<LayerProduct> other = layer(j);
            other && !is_done_[j] && !other->is_depthwise && w_.root[at(other->x)] == w_.root[at(product->x)])
          siblings.push_back(j);
      if (!follow(siblings) && (siblings.size() == 1 || !follow({i}))) gather_behind(i, *product);
    }
    share_tables();
    return std::move(found_);
  }

 private:
  const ir::Node& node(std::size_t i) const { return w_.graph.nodes[at(w_.forward[i].node)]; }
  const ir::TensorType& type(ir::ValueId v) const { return w_.graph.type(v); }
  double bytes(ir::ValueId v) const {
    return static_cast<double>(type(v).shape.numel().maximum()) * static_cast<double>(ir::size_of(type(v).dtype));
  }
  std::int64_t size(ir::ValueId v, std::int32_t d) const { return type(v).shape[at(d)].maximum(); }
  std::int32_t last(ir::ValueId v) const { return static_cast<std::int32_t>(type(v).shape.rank()) - 1; }
  /// What the largest part is of so many.
  double part(std::int64_t n) const {
    return static_cast<double>((n + ranks_ - 1) / ranks_) / static_cast<double>(std::max<std::int64_t>(n, 1));
  }

  std::optional<LayerProduct> layer(std::size_t i) const {
    const ir::Node& n = node(i);
    const ir::OpDef& op = plain(n);
    if (n.inputs.size() < 2 || n.inputs[0] == ir::kNone || n.inputs[1] == ir::kNone) return std::nullopt;
    LayerProduct p{.x = n.inputs[0], .parameter = w_.parameter_of(n.inputs[1])};
    if (p.parameter < 0 || w_.parameter_of(n.inputs[0]) >= 0) return std::nullopt;
    if (n.inputs.size() > 2 && n.inputs[2] != ir::kNone) p.bias = w_.parameter_of(n.inputs[2]);
    const ir::ValueId y = n.outputs[0];
    if (op == ir::kLinear) {
      p.in = last(p.x), p.out = last(y);
    } else if (op == ir::kMatmul) {
      const ir::TensorType& weight = type(w_.parameters[at(p.parameter)].value);
      if (n.attributes.flag("transpose_a") || type(p.x).shape.rank() < 2 || weight.shape.rank() != 2)
        return std::nullopt;
      p.in = last(p.x), p.out = last(y);
    } else if (op == ir::kConv2d) {
      p.in = p.out = n.attributes.flag("channels_last") ? last(y) : 1;
      const std::int64_t groups = n.attributes.integer("groups");
      p.is_depthwise = groups > 1 && groups == size(p.x, p.in);
      if (groups > 1 && !p.is_depthwise) return std::nullopt;
    } else {
      return std::nullopt;
    }
    return p;
  }

  /// What is chosen together: a way from products by columns to products by rows.
  struct Region {
    std::vector<std::pair<std::size_t, ir::ValueId>> columns;  ///< positions, and what they read
    std::vector<std::size_t> rows, between;
    std::vector<std::pair<std::size_t, double>> sums;  ///< positions, bytes that forward sends besides
    ir::ByValue<std::int32_t> parts{-1};               ///< by root: the dimension that is in parts
    std::set<std::int32_t> parameters;
    double least_part = 1;  ///< of the work
  };

  /// Whether the results of these products, by columns, come to products by rows. If so, it is chosen.
  bool follow(const std::vector<std::size_t>& columns) {
    Region region;
    for (const std::size_t i : columns) {
      const LayerProduct p = *layer(i);
      const ir::ValueId y = node(i).outputs[0];
      if (size(y, p.out) < ranks_ || has_residual(i)) return false;
      region.parts[w_.root[at(y)]] = p.out;
      region.columns.emplace_back(i, w_.root[at(p.x)]);
      region.parameters.insert(p.parameter);
      if (p.bias >= 0) region.parameters.insert(p.bias);
    }
    bool ends = false;
    for (std::size_t j = columns.front() + 1; j < w_.forward.size(); ++j) {
      if (std::count(columns.begin(), columns.end(), j) > 0) continue;
      bool reads = false;
      for (const ir::ValueId v : node(j).inputs) reads = reads || (v != ir::kNone && parts_of(region, v) >= 0);
      if (!reads) continue;
      if (is_done_[j] || !pass(region, j)) return false;
      ends = ends || (!region.rows.empty() && region.rows.back() == j) || node(j).is(ir::kCrossEntropy);
    }
    // A result that leaves the graph is whole.
    for (const ir::ValueId v : w_.graph.outputs)
      if (region.parts(w_.root[at(v)]) >= 0) return false;
    if (!ends) return false;
    choose(region);
    return true;
  }

  std::int32_t parts_of(const Region& region, ir::ValueId v) const { return region.parts(w_.root[at(v)]); }

  bool has_residual(std::size_t i) const {
    const ir::Node& n = node(i);
    for (std::size_t k = 3; k < n.inputs.size(); ++k)
      if (n.inputs[k] != ir::kNone && w_.parameter_of(n.inputs[k]) < 0 && type(n.inputs[k]).shape.rank() > 0)
        return true;
    return false;
  }

  /// What becomes of the parts in a step that reads some. False: it needs all of them.
  bool pass(Region& region, std::size_t j) const {
    const ir::Node& n = node(j);
    const ir::OpDef& op = plain(n);
    const ir::ValueId x = n.inputs[0], y = n.outputs.empty() ? ir::kNone : n.outputs[0];
    if (y == ir::kNone || x == ir::kNone) return false;
    const std::int32_t d = parts_of(region, x);
    const auto goes_on = [&](std::int32_t to) {
      // The dimension is there, and as long, in every result of the shape of the first one.
      for (const ir::ValueId v : n.outputs)
        if (type(v).shape == type(y).shape) region.parts[w_.root[at(v)]] = to;
      region.between.push_back(j);
      return true;
    };
    if (const std::optional<LayerProduct> p = layer(j)) {
      if (d != p->in) return false;
      region.parameters.insert(p->parameter);
      if (p->is_depthwise) {
        if (p->bias >= 0) region.parameters.insert(p->bias);
        return goes_on(p->out);
      }
      region.rows.push_back(j);
      return true;
    }
    if (op == ir::kMatmul) {
      const ir::ValueId b = n.inputs[1];
      // Of a batch each rank has its own; both operands have the dimension.
      if (d < 0 || d != parts_of(region, b) || d >= last(x) - 1 || type(x).shape.rank() != type(b).shape.rank())
        return false;
      return goes_on(d);
    }
    if (op == ir::kAttention) {
      // The same of batches and heads, whose keys and values may be fewer.
      const ir::ValueId k = n.inputs[1], v = n.inputs[2];
      if (d < 0 || d != parts_of(region, k) || d != parts_of(region, v) || d >= last(x) - 1 ||
          (size(k, d) != size(x, d) && size(k, d) % ranks_ != 0))
        return false;
      region.parts[w_.root[at(n.outputs[1])]] = d;
      return goes_on(d);
    }
    if (op == ir::kReshape) return d >= 0 && pass_reshape(region, x, y, d) && goes_on(parts_of(region, y));
    if (op == ir::kPermute) {
      const ir::Ints& dims = n.attributes.integers("dims");
      for (std::size_t k = 0; k < dims.size(); ++k)
        if (dims[k] == d) return goes_on(static_cast<std::int32_t>(k));
      return false;
    }
    if (op == ir::kSlice) {
      // Of q, k and v side by side each rank has some heads of each.
      const std::int64_t of = n.attributes.integer("dim"), dim = of < 0 ? of + last(x) + 1 : of;
      if (d < 0 || (dim == d && (size(x, d) % std::max<std::int64_t>(size(y, d), 1) != 0 || size(y, d) % ranks_ != 0)))
        return false;
      return goes_on(d);
    }
    if (op == ir::kSoftmax || op == ir::kLogSoftmax) {
      const std::int64_t of = n.attributes.integer("dim"), dim = of < 0 ? of + last(x) + 1 : of;
      return d >= 0 && dim != d && goes_on(d);
    }
    if (op == ir::kCrossEntropy) {
      if (d != 1) return false;
      const double rows = static_cast<double>(size(x, 0)) * static_cast<double>(ir::size_of(type(x).dtype));
      region.sums.emplace_back(j, 3 * rows);
      region.between.push_back(j);
      if (n.outputs.size() > 1) region.parts[w_.root[at(n.outputs[1])]] = 1;
      return true;
    }
    if (op == ir::kBatchNormTraining || op == ir::kMaxPool2d || op == ir::kAvgPool2d) {
      const std::int32_t channels =
          n.attributes.find("channels_last") && n.attributes.flag("channels_last") ? last(x) : 1;
      if (d != channels) return false;
      for (std::size_t k = 1; k < n.inputs.size(); ++k)
        if (n.inputs[k] != ir::kNone && w_.parameter_of(n.inputs[k]) >= 0)
          region.parameters.insert(w_.parameter_of(n.inputs[k]));
      return goes_on(d);
    }
    if (op.elementwise() || op == ir::kFusedElementwise || op == ir::kDropout) {
      std::int32_t to = -1;
      for (const ir::ValueId v : n.inputs) {
        if (v == ir::kNone || parts_of(region, v) < 0) continue;
        const std::int32_t own = parts_of(region, v) + last(y) - last(v);
        if (to >= 0 && own != to) return false;
        to = own;
      }
      for (const ir::ValueId v : n.inputs) {
        if (v == ir::kNone || parts_of(region, v) >= 0) continue;
        const std::int32_t own = to - (last(y) - last(v));
        if (own < 0 || size(v, own) == 1) continue;  // the same for all parts
        // A layer's numbers are dealt out like its outputs, and what is given is cut; what else is whole would have a
        // gradient in parts.
        if (w_.parameter_of(v) < 0 && w_.position(w_.root[at(v)]) < 0) continue;
        if (w_.parameter_of(v) < 0) return false;
        region.parameters.insert(w_.parameter_of(v));
      }
      return goes_on(to);
    }
    return false;
  }

  /// [.., 12 * 64] and [.., 12, 64]: parts of the one are parts of the other where they are whole heads.
  bool pass_reshape(Region& region, ir::ValueId x, ir::ValueId y, std::int32_t d) const {
    const ir::Shape &from = type(x).shape, &to = type(y).shape;
    const auto before = [](const ir::Shape& shape, std::size_t end) {
      std::int64_t n = 1;
      for (std::size_t k = 0; k < end; ++k) n *= shape[k].maximum();
      return n;
    };
    const std::int64_t ahead = before(from, at(d));
    for (std::size_t k = 0; k < to.rank(); ++k) {
      if (before(to, k) != ahead || to[k].maximum() == 1) continue;
      const std::int64_t a = from[at(d)].maximum(), b = to[k].maximum();
      if (a != b && (std::min(a, b) % ranks_ != 0 || std::max(a, b) % std::min(a, b) != 0)) return false;
      region.parts[w_.root[at(y)]] = region.parts[y] = static_cast<std::int32_t>(k);
      return true;
    }
    return false;
  }

  void choose(const Region& region) {
    std::set<ir::ValueId> read;
    const auto in_parts = [&](std::size_t i, bool input, bool output) {
      is_done_[i] = true;
      const ir::ValueId y = node(i).outputs[0];
      const std::int32_t d = region.parts(w_.root[at(y)]);
      const double own = d >= 0 ? part(size(y, d)) : 1 / static_cast<double>(ranks_);
      found_.work[i] = own;
      if (input) found_.input[i] = own;
      if (output) found_.output[i] = own;
    };
    for (const auto& [i, x] : region.columns) {
      in_parts(i, false, true);
      ++found_.cut;
      // Products of one input add up what flows back into it before they send it.
      if (read.insert(x).second && flows_back(x)) found_.backward_sum[i] += bytes(x);
    }
    for (const std::size_t i : region.between) in_parts(i, true, true);
    for (const std::size_t i : region.rows) {
      in_parts(i, true, false);
      ++found_.cut;
      found_.forward_sum[i] += bytes(node(i).outputs[0]);
    }
    for (const auto& [i, sent] : region.sums) found_.forward_sum[i] += sent;
    for (std::size_t v = 0; v < w_.graph.values.size(); ++v)
      if (region.parts(static_cast<ir::ValueId>(v)) >= 0)
        parts_[static_cast<ir::ValueId>(v)] = region.parts(static_cast<ir::ValueId>(v));
    for (const std::int32_t p : region.parameters) found_.parameter[at(p)] = 1 / static_cast<double>(ranks_);
  }

  /// Whether a gradient goes back into it: not into what the step is given.
  bool flows_back(ir::ValueId x) const { return w_.position(x) >= 0; }

  /// By columns, with the whole result for all: where that pays.
  void gather_behind(std::size_t i, const LayerProduct& p) {
    const ir::ValueId y = node(i).outputs[0], x = w_.root[at(p.x)];
    if (size(y, p.out) < ranks_ || has_residual(i)) return;
    const double own = part(size(y, p.out));
    double saved = 0;
    const ir::Rates rates = machine_.rates();
    for (const std::vector<WorkStep>* list : {&w_.forward, &w_.backward})
      for (const WorkStep& step : *list)
        if (at(step.position) == i && step.is_call) saved += (1 - own) * ir::seconds_of(step.cost, rates);
    const double back = flows_back(x) ? bytes(x) : 0;
    if (all_gather(bytes(y), ranks_, link_).seconds + all_reduce(back, ranks_, link_).seconds >= saved) return;
    is_done_[i] = true;
    ++found_.cut;
    found_.work[i] = own;
    found_.forward_gather[i] += bytes(y);
    found_.backward_sum[i] += back;
    found_.parameter[at(p.parameter)] = own;
    if (p.bias >= 0) found_.parameter[at(p.bias)] = own;
  }

  /// A table that is a product's weight as well is in parts by rows, and each rank looks up what it has: forward adds
  /// that up.
  void share_tables() {
    for (std::size_t i = 0; i < w_.forward.size(); ++i) {
      const ir::Node& n = node(i);
      if (!n.is(ir::kEmbedding)) continue;
      const std::int32_t p = w_.parameter_of(n.inputs[0]);
      if (p >= 0 && found_.parameter[at(p)] < 1) found_.forward_sum[i] += bytes(n.outputs[0]);
    }
  }

  const Workload& w_;
  const std::int64_t ranks_;
  const Machine& machine_;
  const Link& link_;
  Shards found_;
  ir::ByValue<std::int32_t> parts_{-1};  // by root: the dimension that is in parts
  std::vector<bool> is_done_ = std::vector<bool>(w_.forward.size(), false);
};

}  // namespace

Shards whole(const Workload& workload) {
  const std::vector<double> ones(workload.forward.size(), 1), zeros(workload.forward.size(), 0);
  return {.work = ones,
          .output = ones,
          .input = ones,
          .forward_sum = zeros,
          .backward_sum = zeros,
          .forward_gather = zeros,
          .parameter = std::vector<double>(workload.parameters.size(), 1)};
}

Shards shard(const Workload& workload, std::int64_t ranks, const Machine& machine, const Link& link) {
  return ranks <= 1 ? whole(workload) : Sharding(workload, ranks, machine, link).run();
}

}  // namespace graven::codegen
