// Computes equal things once: of nodes with the same operator, inputs and attributes the first stays. Operands of
// commutative operators may stand in any order. What is there to be computed again is equal to nothing, and what a
// stage of a pipeline computes to nothing of another's: split_stages has had each compute it.
#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/stages.h"

namespace graven::ir {

namespace {

constexpr std::size_t kMostOrigins = 8;  // of a merged node: lists do not grow with the number of repeats

class Hash {
 public:
  void add(std::uint64_t x) {
    state_ ^= x + 0x9e3779b97f4a7c15u + (state_ << 6) + (state_ >> 2);
    state_ *= 0xff51afd7ed558ccdu;
    state_ ^= state_ >> 32;
  }
  void add(double x) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    add(bits);
  }
  void add(std::string_view s) { add(static_cast<std::uint64_t>(std::hash<std::string_view>()(s))); }
  void add(const Shape& shape) {
    add(static_cast<std::uint64_t>(shape.rank()));
    for (const Dim& d : shape) {
      if (d.is_static())
        add(static_cast<std::uint64_t>(d.value()));
      else
        add(std::string_view(d.to_string()));
    }
  }
  void add(const Attribute& a) {
    add(static_cast<std::uint64_t>(a.index()));
    switch (type_of(a)) {
      case AttributeType::boolean:
        return add(static_cast<std::uint64_t>(std::get<bool>(a)));
      case AttributeType::integer:
        return add(static_cast<std::uint64_t>(std::get<std::int64_t>(a)));
      case AttributeType::number:
        return add(std::get<double>(a));
      case AttributeType::text:
        return add(std::string_view(std::get<std::string>(a)));
      case AttributeType::integers:
        for (std::int64_t i : std::get<Ints>(a)) add(static_cast<std::uint64_t>(i));
        return;
      case AttributeType::dtype:
        return add(static_cast<std::uint64_t>(std::get<DType>(a)));
      case AttributeType::shape:
        return add(std::get<Shape>(a));
      case AttributeType::program:
        for (const ScalarProgram::Step& s : std::get<ScalarProgram>(a).steps) add(std::string_view(s.op));
        return;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace

void merge_common_subexpressions(Graph& graph, const PassOptions&) {
  const std::vector<std::int32_t> stages = has_stages(graph) ? stages_of_nodes(graph) : std::vector<std::int32_t>();
  Rewriter rewriter(graph);
  struct Seen {
    std::size_t node;
    std::vector<ValueId> inputs;
    std::int32_t stage;
  };
  std::unordered_map<std::uint64_t, std::vector<Seen>> seen;
  seen.reserve(rewriter.old().size());
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (is_random(node) || node.recomputes) {
      rewriter.keep(std::move(node));
      continue;
    }
    Seen key{graph.nodes.size(), node.inputs, stages.empty() ? 0 : stages[at(&node - rewriter.old().data())]};
    if (node.op->commutative && key.inputs.size() == 2 && key.inputs[0] > key.inputs[1])
      std::swap(key.inputs[0], key.inputs[1]);
    Hash hash;
    hash.add(node.op->name);
    for (ValueId v : key.inputs) hash.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(v)));
    for (const auto& [name, attribute] : node.attributes) {
      hash.add(std::string_view(name));
      hash.add(attribute);
    }
    std::vector<Seen>& bucket = seen[hash.value()];
    const auto equal = std::find_if(bucket.begin(), bucket.end(), [&](const Seen& s) {
      const Node& other = graph.nodes[s.node];
      return other.op == node.op && s.inputs == key.inputs && s.stage == key.stage &&
             other.attributes == node.attributes;
    });
    if (equal == bucket.end()) {
      bucket.push_back(std::move(key));
      rewriter.keep(std::move(node));
      continue;
    }
    Node& first = graph.nodes[equal->node];
    // A number that many read says nothing about where it stands, nor does what backward would compute again: they stay
    // with the first.
    if (!node.inputs.empty() && node.phase == first.phase && first.origins.size() < kMostOrigins)
      first.origins = merge(first.origins, node.origins);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) rewriter.replace(node.outputs[i], first.outputs[i]);
  }
  rewriter.finish();
  graph.compact();
}

}  // namespace graven::ir
