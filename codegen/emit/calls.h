// Calls: each step of the plan as the text of one kernel call, with its config and a comment that says what it does, on
// which shapes, and where it comes from. What differs between targets is data (CallStyle), not branches.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/emit/code.h"
#include "codegen/emit/functor.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"
#include "codegen/targets/target.h"
#include "ir/graph.h"

namespace graven::codegen {

struct Call {
  std::vector<std::string> modules;  ///< whose operators it computes, its owner first; empty outside of any module
  std::string description;           ///< "linear + bias + relu"
  std::string types;                 ///< "f32[64,784] -> f32[64,256]"
  std::string location;              ///< "mlp.cpp:8"
  ir::NodeId node = -1;              ///< that it computes; -1: it copies a result
  double flops = 0, bytes = 0;       ///< at the symbols' maxima
  std::string begin;                 ///< says that it begins, where nothing that it is given does
  std::vector<Code> before;          ///< lines of arrays that it is given
  std::string function;              ///< "linear<relu>"; empty: it is what stands in `after`
  std::vector<std::string> names;    ///< that the function's is made of: "linear", "relu"
  std::vector<Code> arguments;
  std::vector<Code> after;           ///< statements
  std::set<std::string> headers;     ///< "kernels/cpu/linear.h"
  std::int32_t stage = 0;            ///< of a pipeline
  bool second_round = false;         ///< of its updates
  bool is_copy = false;              ///< of a result, by no kernel
  bool recomputes = false;           ///< it computes again what forward has computed (ir::Node::recomputes)
  bool uses_functor = false;         ///< of functors.h
  std::set<Pointer> written;         ///< what it writes through
  std::optional<Pointer> workspace;  ///< the argument that is scratch memory
  std::size_t kernel_calls = 1;      ///< more than one: it is a call of a block's function

  bool is_block() const { return kernel_calls > 1; }
  /// Statements, without indentation.
  std::vector<std::string> lines() const;
  std::string owner() const { return modules.empty() ? std::string() : modules.front(); }
};

/// What a profile knows of a call.
struct MeasuredCall {
  ir::NodeId node = -1;  ///< that it computes; -1: it copies a result
  ir::Phase phase = ir::Phase::forward;
  std::string module = {}, description = {}, types = {};  ///< as Call's; the module is empty where none owns it
  double flops = 0, bytes = 0;
  std::int32_t stage = 0;
  bool second_round = false;
};

/// A line of a file, and the block of the network that it belongs to; empty: to none.
struct BlockLine {
  std::string block, text;
  std::string name = {};    ///< of a config
  bool is_wrapped = false;  ///< more than one line
  friend auto operator<=>(const BlockLine&, const BlockLine&) = default;
};

struct Calls {
  std::map<ir::Phase, std::vector<Call>> phases;
  std::vector<MeasuredCall> measured;  ///< each kernel call, those of blocks one by one, phases in order
  std::vector<BlockLine> configs;      ///< "constexpr linear_config hidden_linear{.m = 64, .n = 256, .k = 784};"
  std::map<std::string, std::string> config_structs;  ///< by name: of updates, whose options stand in no header
  std::map<std::string, Functor> functors;            ///< by name
  std::set<std::string> headers;                      ///< "kernels/cpu/linear.h"
  std::set<std::string> config_headers;               ///< "kernels/config/linear.h"
};

/// Of an evaluation, `training` are the calls it stands beside: configs that are equal under one name are shared, the
/// others stand in config::evaluation.
Calls make_calls(const ir::Graph& graph, const Plan& plan, const ValueNames& values, const CallStyle& style,
                 const Calls* training = nullptr);

/// The programs that a call applies elementwise, in the order of its template arguments, the last ones left out where
/// they are none (empty: the identity): the node's own, its epilogues, or what its operator computes. `result`: the
/// element type of its first output.
std::vector<ir::ScalarProgram> programs_of(const ir::Node& node, const ir::KernelCall& call, ir::DType result);

/// What a node does in a few words: "conv2d 3->32, 3x3, stride 2 + bias + relu".
std::string describe_node(const ir::Graph& graph, const ir::Node& node);

/// The attributes that are not at their defaults: "momentum 0.9, nesterov".
std::string describe_options(const ir::OpDef& op, const ir::Attributes& attributes);

}  // namespace graven::codegen
