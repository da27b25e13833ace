// How generated code speaks of values: the struct that holds the pointer and the member's name.
//
//   values.expression(v)    // "buf.hidden_linear", "param.hidden_weight", "grad.hidden_weight", "in.images",
//                           // "out.logits", "nullptr"
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/emit/code.h"
#include "codegen/emit/names.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// A symbolic dimension as generated code has it.
struct Symbol {
  std::string name;        ///< in the graph: "batch"
  std::string identifier;  ///< in C++
  std::int64_t least = 1, maximum = 0;
};

class ValueNames {
 public:
  /// `evaluation`: the graph whose constants stand beside this one's. `project`: the namespace that the names will
  /// stand in.
  ValueNames(const ir::Graph& graph, const Plan& plan, const ir::Graph* evaluation = nullptr,
             std::string_view project = {});
  /// Of an evaluation: inputs, parameters and constants have the names that they have in the training graph, whose
  /// ValueNames was told of it. The values of the arena have names of their own.
  ValueNames(const ir::Graph& evaluation, const Plan& plan, const ValueNames& training);

  /// From here on the members of blocks stand in structs of theirs.
  void nest(Nesting nesting) { nesting_ = std::move(nesting); }
  const Nesting& nesting() const { return nesting_; }
  /// Every member of every struct, as it is without nesting.
  std::unordered_set<std::string> all_members() const;

  /// The pointer, as the calls write it; "nullptr" for kNone and for results that nobody reads.
  std::string expression(ir::ValueId value) const { return code(value).text(); }
  Code code(ir::ValueId value) const;
  /// The same, of a step's memory that is reached through `object` ("instance."): constants are not in it.
  std::string expression_in(std::string_view object, ir::ValueId value) const;
  /// The same, without the const of inputs and of constants in the code.
  std::string writable_expression_in(std::string_view object, ir::ValueId value) const;
  /// The member alone: "features_3.conv_0_weight" where it is nested.
  std::string member(ir::ValueId value) const { return place(value).dotted(); }
  Nesting::Place place(ir::ValueId value) const;
  /// The member of a step's scratch memory.
  std::string workspace(const Step& step) const { return workspace_place(step).dotted(); }
  Nesting::Place workspace_place(const Step& step) const;
  /// A hyper-parameter as a number: "hyper.learning_rates[0]", "hyper.step".
  std::string hyper(ir::ValueId value) const;
  /// The member of the outputs' struct.
  const std::string& output(std::size_t index) const { return outputs_[index]; }
  /// What it is called after: its keys in the result, with dots between, or "output.0".
  const std::string& output_path(std::size_t index) const { return output_paths_[index]; }

  const std::string& root() const { return root_; }
  const std::vector<Symbol>& symbols() const { return symbols_; }
  /// A dimension as a C++ expression over the symbols: "64", "784 * batch", "batch * length + 1".
  std::string dimension(const ir::Dim& dim, std::string_view object = {}) const;
  /// Parameters, buffers and those constants that are too large for the code: what the weights file holds, in order.
  const std::vector<ir::ValueId>& stored() const { return stored_; }
  /// Constants that stand in the code.
  const std::vector<ir::ValueId>& inline_constants() const { return inline_constants_; }
  /// Results of the prepare phase that have memory.
  const std::vector<ir::ValueId>& prepared() const { return prepared_; }
  /// Values with a place in the arena, in the order of writing.
  const std::vector<ir::ValueId>& arena() const { return arena_; }
  /// Parameters with a gradient of their own, in order.
  const std::vector<ir::ValueId>& with_gradient() const { return with_gradient_; }
  /// Whether the value lies among the weights or what is prepared from them, not in the code.
  bool is_in_weights_block(ir::ValueId value) const;
  bool has_gradient(ir::ValueId parameter) const { return has_gradient_[at(parameter)]; }

 private:
  void find_homes();
  void name_arena();
  Nesting::Place nested(const std::string& member) const {
    return nesting_.empty() ? Nesting::Place{{}, member} : nesting_(member);
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  std::string root_;
  Names names_[8];  // by scope
  Nesting nesting_;
  std::vector<std::string> outputs_, output_paths_;
  std::vector<Symbol> symbols_;
  std::vector<ir::ValueId> stored_, inline_constants_, prepared_, arena_, with_gradient_;
  std::vector<bool> has_gradient_, is_stored_;
};

/// "f32", "i64", "boolean": the element types of kernels/cpu/dtype.h.
std::string_view element_type(ir::DType dtype);
/// "float", "std::int64_t", "std::uint16_t" for the 16-bit floating types: what the public header says.
std::string_view public_type(ir::DType dtype);

}  // namespace graven::codegen
