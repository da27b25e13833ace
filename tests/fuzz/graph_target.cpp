// The readers of graphs, as JSON and as text, and what is made of a graph that was read: what is called sound goes
// through the passes and has a plan and functors.
#include <map>
#include <string>
#include <string_view>

#include "codegen/emit/functor.h"
#include "codegen/plan/plan.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/pass.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/fuzz/targets.h"

namespace graven::fuzz {

namespace {

/// Passes may compute with what is constant, and their time grows with the graph.
bool is_small(const ir::Graph& graph) {
  constexpr std::int64_t kMostElements = 1 << 16;
  if (graph.nodes.size() > 100) return false;
  for (const ir::Value& v : graph.values)
    for (std::int64_t left = kMostElements; const ir::Dim& d : v.type.shape)
      if (const std::int64_t size = d.maximum(); size > 0 && (left /= size) == 0) return false;
  return true;
}

/// A user error is an answer; what is wrong with Graven passes through.
void carve(ir::Graph graph) {
  try {
    ir::finish_passes(graph, {});
    (void)codegen::make_plan(graph);
  } catch (const UserError& error) {
    GRAVEN_FUZZ_CHECK(std::string_view(error.what()).size() < 16384);
    return;
  }
  std::map<std::string, std::string> functors;
  for (const ir::Node& n : graph.nodes)
    for (const auto& [key, attribute] : n.attributes)
      if (const auto* program = std::get_if<ir::ScalarProgram>(&attribute); program && !program->empty()) {
        const codegen::Functor functor = codegen::make_functor(*program);
        GRAVEN_FUZZ_CHECK(functors.emplace(functor.name, functor.text).first->second == functor.text);
      }
}

}  // namespace

bool graph(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  try {
    ir::Graph read = text.starts_with("graph ") ? ir::from_text(text, "graph.json") : ir::from_json(text, "graph.json");
    ir::verify(read);
    // What was read is written in one way only.
    const std::string canonical = ir::to_json(read);
    GRAVEN_FUZZ_CHECK(ir::to_json(ir::from_json(canonical, "canonical.json")) == canonical);
    GRAVEN_FUZZ_CHECK(ir::to_json(ir::from_text(ir::to_text(read), "canonical.txt")) == canonical);
    if (is_small(read)) carve(std::move(read));
    return true;
  } catch (const UserError& error) {
    const std::string what = error.what();
    GRAVEN_FUZZ_CHECK(what.find("graph.json") != std::string::npos);
    GRAVEN_FUZZ_CHECK(what.size() < 16384);
    return false;
  }
}

}  // namespace graven::fuzz
