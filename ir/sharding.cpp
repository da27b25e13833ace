#include "ir/sharding.h"

#include <string>

#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/stages.h"

namespace graven::ir {

namespace {

std::int64_t integer_option(const Graph& graph, std::string_view key, std::int64_t fallback, double most,
                            const char* expected) {
  const double value = graph.number(key).value_or(static_cast<double>(fallback));
  if (!(value >= 1 && value <= most) || value != static_cast<double>(static_cast<std::int64_t>(value)))
    throw UserError("config." + std::string(key) + ": expected " + expected + ", found " + std::to_string(value));
  return static_cast<std::int64_t>(value);
}

}  // namespace

Sharding::Sharding(const Graph& graph) {
  if (!graph.number(kZeroStage)) return;
  stage_ = static_cast<int>(integer_option(graph, kZeroStage, 1, 3, "1, 2 or 3"));
  least_ = integer_option(graph, kShardMinSize, 1024, 1e15, "an integer of at least 1");
  if (!graph.flag(kDataParallel))
    throw UserError("config." + std::string(kZeroStage) + ": expected a data parallel graph (config." +
                    std::string(kDataParallel) + "), found one without ranks");
  if (has_stages(graph))
    throw UserError(
        "the graph " + graph.name +
        " asks for stages of a pipeline (set_stage), and for ranks that share what they have (enable_zero): "
        "one of the two");
}

ByValue<bool> Sharding::shards_of_gradients(const Graph& graph) const {
  ByValue<bool> shards;
  for (const Node& node : graph.nodes) {
    const bool begins = node.is(kReduceScatter, kAccumulateShard);
    const bool goes_on = node.is(kClamp, kFusedElementwise) && node.inputs.size() == 1 && node.inputs[0] != kNone &&
                         shards(node.inputs[0]);
    if (begins || goes_on) shards[node.outputs[0]] = true;
  }
  return shards;
}

}  // namespace graven::ir
