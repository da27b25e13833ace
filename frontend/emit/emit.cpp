// The bridge from nn::Graph to the generator.
#include <cstring>

#include "codegen/build/tuning.h"
#include "frontend/eager/oracle.h"
#include "frontend/tensor_impl.h"
#include "graven/codegen.h"

namespace graven::codegen {

EmitReport emit(const nn::GraphBase& graph, const std::filesystem::path& directory, EmitOptions options) {
  const ir::Graph& recorded = graph.graph();
  for (const auto& [name, t] : graph.state_dict()) {
    const ir::ValueId v = recorded.find(name);
    if (v == ir::kNone || options.weights.count(name)) continue;
    if (recorded.type(v) != ir::TensorType{t.dtype(), t.shape()})
      throw UserError("emit: the parameter " + name + " of " + graph.name() + " was recorded as " +
                      recorded.type(v).to_string() + ", and is " + t.describe() + " now");
    const Tensor rows = detail::contiguous_copy(t);
    auto data = std::make_shared<ir::TensorData>();
    data->type = recorded.type(v);
    data->bytes.resize(static_cast<std::size_t>(t.numel()) * ir::size_of(t.dtype()));
    if (!data->bytes.empty()) std::memcpy(data->bytes.data(), rows.impl()->data(), data->bytes.size());
    options.weights.emplace(name, std::move(data));
  }
  if (!options.execute) options.execute = eager::reference_run;
  if (graph.tuning().empty()) return emit(recorded, directory, options);
  ir::Graph tuned = recorded;
  const std::string note = apply_tuning(tuned, graph.tuning(), target_named(options.target));
  EmitReport report = emit(tuned, directory, options);
  if (!note.empty()) report.notes.push_back(note);
  return report;
}

}  // namespace graven::codegen
