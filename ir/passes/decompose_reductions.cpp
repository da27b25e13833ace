#include "ir/ops/shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// The reduced dimensions in runs that lie side by side (dimensions of size 1 between them do not count).
std::vector<Ints> runs_of(const Shape& shape, const Ints& dims) {
  std::vector<Ints> runs;
  for (std::int64_t d : dims) {
    if (!runs.empty()) {
      Ints longer = runs.back();
      longer.push_back(d);
      if (ops::adjacent(shape, longer)) {
        runs.back() = std::move(longer);
        continue;
      }
    }
    runs.push_back({d});
  }
  return runs;
}

}  // namespace

/// Reductions over dimensions that do not lie side by side become several, the last run first: the kernels reduce the
/// middle of [outer, size, inner], and every reduction here (sum, mean, product, extremes) may be taken in steps.
/// Nothing is transposed for it.
void decompose_reductions(Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    const Attribute* dims = node.attributes.find("dims");
    if (dims && node.attributes.find("keepdim")) {
      const std::vector<Ints> runs = runs_of(graph.type(node.inputs[0]).shape, std::get<Ints>(*dims));
      for (std::size_t r = runs.size(); r-- > 1;)
        node.inputs[0] =
            rewriter.add(*node.op, {node.inputs[0]}, {{"dims", runs[r]}, {"keepdim", node.attributes.at("keepdim")}},
                         node.origins, node.phase, graph.value(node.outputs[0]).name + ".partial");
      if (runs.size() > 1) node.attributes.set("dims", runs[0]);
    }
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
