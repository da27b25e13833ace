// The data that the templates are filled with: everything about one graph, its plan and its options, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/emit/record.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"

namespace graven::codegen {

/// One of the files that the calls are spread over.
struct ModelFile {
  std::string path;     ///< "model.cpp", "model_forward_2.cpp"
  nlohmann::json data;  ///< "file" of templates/project/model.cpp
};

struct ProjectData {
  nlohmann::json common;           ///< what every template may use
  nlohmann::json evaluation_plan;  ///< the data of memory_plan.h for the evaluation's arena
  std::vector<ModelFile> files;
  std::vector<std::string> headers;           ///< kernels' files that generated files include
  std::vector<ir::ValueId> stored_constants;  ///< those that lie among the weights
  std::vector<std::string> notes;             ///< for EmitReport::notes
  bool training = false;
};

/// "train_mlp" of "TrainMlp"; an identifier.
std::string project_name(const ir::Graph& graph, const EmitOptions& options);

/// `extent`: of the self-test. `evaluation`: nullptr when the forward phase is the evaluation, or, with
/// `evaluation_unknown`, when there is none.
ProjectData make_project_data(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                              bool evaluation_unknown, const EmitOptions& options, const Extent& extent,
                              const std::string& graph_hash);

}  // namespace graven::codegen
