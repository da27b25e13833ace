// Functors: the C++ text of what an elementwise node, a fused node or an epilogue computes for one element. The text is
// printed from the operators' rules (ir/element_rule.h), the one place where an elementwise computation is stated,
// and serves every backend: kernels/README.md, "Epilogues and elementwise bodies".
//
//   make_functor(ir::kRelu, {}).text
//
//   struct relu {
//     static constexpr int inputs = 1;
//     template <class T>
//     GRAVEN_DEVICE static T apply(T x) {
//       return x < T(0) ? T(0) : x;
//     }
//   };
//
// The name says what is computed ("relu", "leaky_relu_0p01", "add_relu"); where the operators' names alone leave the
// wiring open, the arguments are spelled out ("sub_y_x", "add_x_1em05_rsqrt_r_mul_y_r": r is the result before), and
// what the gradients of common operators compute is called after them ("mul_sigmoid_gradient"); only what would be too
// long, or converts on the way, ends in a digest of the program instead. Equal names mean equal text. No counter is
// involved: the same program has the same name in every graph.
#pragma once

#include <string>
#include <string_view>

#include "codegen/emit/scalar_text.h"
#include "ir/attribute.h"
#include "ir/op.h"

namespace graven::codegen {

struct Functor {
  std::string name;  ///< of the struct; a C++ identifier
  std::string text;  ///< the struct, ending in a newline; needs kernels/config/device.h (GRAVEN_DEVICE) and
                     ///< kernels/cpu/scalar_math.h
};

/// The functor of one elementwise operator with its attributes written into it. "cast" converts nothing itself: kernels
/// convert when they load and store. Internal error when the operator is not elementwise.
Functor make_functor(const ir::OpDef& op, const ir::Attributes& attributes);

/// The functor whose scalar attributes are further inputs, in the order of the declaration, after the operator's own:
/// one functor for every value of the attributes. Named after the operator, "<op>_with" when it has such attributes.
Functor make_functor_with_inputs(const ir::OpDef& op);

/// The functor of a fused program. Internal error when a step names an operator that is not elementwise, or an argument
/// that does not exist.
Functor make_functor(const ir::ScalarProgram& program);

/// The program that an elementwise node is: one step.
ir::ScalarProgram program_of(const ir::OpDef& op, const ir::Attributes& attributes, ir::DType dtype);

/// What a program does in a few words: "mul + add", "relu_gradient".
std::string title(const ir::ScalarProgram& program);

/// A one-line description for comments, inputs named `names`: "relu(add(x, y))".
std::string describe(const ir::ScalarProgram& program, const std::vector<std::string>& names);

}  // namespace graven::codegen
