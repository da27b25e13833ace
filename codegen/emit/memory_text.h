// The lines of params.h and of the memory plans, each a value: made to be reviewed, and read by the compiler.
//
//   GRAVEN_PARAM_OF(features_3, conv_0_0_weight,    f32,  "model.features.3.conv.0.0.weight", 144, 24, 1, 1)
#pragma once

#include <string>
#include <vector>

#include "codegen/emit/blocks.h"
#include "codegen/emit/calls.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// The largest sizes of a shape: "64, 1, 28, 28".
std::string maxima(const ir::Shape& shape);

/// The lines, those of a block between GRAVEN_BLOCK and GRAVEN_BLOCK_END.
std::vector<std::string> marked_by_block(const std::vector<BlockLine>& lines);

/// Of a parameter, a buffer, a state or what is prepared; `macro` says which.
BlockLine parameter_line(const std::string& macro, const ir::Graph& graph, const ValueNames& values, ir::ValueId v);

/// One line a value of the arena: name, offset, bytes; who writes it, who reads it last, whose memory it takes over.
/// `ends`: the namespace of the functions that say where values end.
std::vector<std::string> arena_lines(const ir::Graph& graph, const Plan& plan, const ValueNames& values,
                                     const std::string& ends, const std::vector<BlockFunction>& functions);

}  // namespace graven::codegen
