// Repeated blocks: where the modules of one class, called one after the other, are the same calls on other tensors, the
// calls stand once, in a function over the block's parameters, memory and configs:
//
//   template <class Config>
//   void Calls::inverted_residual(const auto& param, const auto& buf, const f32* x) const {
//     conv2d(threads, Config::conv_0_0_conv2d, buf.conv_0_0_conv2d, x, ...);
//
//   inverted_residual<config::features_3>(param.features_3, buf.features_3, buf.features_2.conv_3);
//
// The function is compiled for each block, so that it is as fast as calls that are written out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/names.h"

namespace graven::codegen {

/// A function that computes several modules of one class.
struct BlockFunction {
  std::string name;                     ///< "inverted_residual_backward"
  std::vector<std::string> modules;     ///< "model.features.3", ...
  std::vector<std::string> parameters;  ///< "const auto& param", "const f32* x"
  bool uses_config = false;
  std::vector<Call> calls;  ///< in the function's words
  /// Scratch memory that some of the modules do not need: "features_4.conv_2_weight_backward_workspace".
  std::vector<std::string> unneeded;
};

/// The calls of a project's graph and of its evaluation, and the functions that they call.
struct BlockCalls {
  Calls calls, evaluation;
  std::vector<BlockFunction> functions, evaluation_functions;
};

/// What is written, and how its values are called.
struct WrittenGraph {
  const ir::Graph& graph;
  const Plan& plan;
  ValueNames& values;
};

/// How many calls are to be written: those of functions once, and one for each call of a function.
std::size_t written_calls(const Calls& calls, const std::vector<BlockFunction>& functions);

/// Without functions.
BlockCalls plain_calls(const WrittenGraph& main, const std::optional<WrittenGraph>& evaluation, const CallStyle& style);

/// With functions for the modules of classes that are called again and again, of the classes whose repetition makes
/// most of the calls, and for long elements of containers; `values` then nest what belongs to these. `reserved`: what
/// no function may be called. Functions are templates of one file: where more than `most` calls would be left to write
/// into it, or ten times as many to compile, there are none.
BlockCalls block_calls(const WrittenGraph& main, const std::optional<WrittenGraph>& evaluation, const CallStyle& style,
                       const std::unordered_set<std::string>& reserved, std::size_t most);

/// Configs of blocks, said once.
struct SharedConfigs {
  std::vector<BlockLine> lines;
  /// By block: the one that has the lines; and what the others take from another block but for their own lines.
  std::map<std::string, std::string> first, rest_from;
};

/// A block that has the configs of one before it is another name for that: "using h_2 = h_1;". One that has configs of
/// the same names, of which most are the same, keeps the others: "struct h_2 : h_1 {", for dropout draws other numbers
/// in each. `base`: what the block's struct has beside its lines; then these are all the same or all its own.
SharedConfigs shared_configs(const std::vector<BlockLine>& lines,
                             const std::function<std::string(const std::string& block)>& base);

/// The lines, those of a block together where its first one stands, between the lines that begin and end it.
std::vector<std::string> lines_by_block(const std::vector<BlockLine>& lines,
                                        const std::function<std::string(const std::string& block)>& begin,
                                        const std::function<std::string(const std::string& block)>& end);

}  // namespace graven::codegen
