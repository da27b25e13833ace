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
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/names.h"

namespace graven::codegen {

/// A function that computes several modules of one class.
struct BlockFunction {
  std::string name;                  ///< "inverted_residual_backward"
  std::vector<std::string> modules;  ///< "model.features.3", ...
  std::vector<std::string> types;    ///< of its parameters: "const auto&", "const f32*"
  std::vector<std::string> parameters;
  bool uses_config = false;
  std::vector<Call> calls;  ///< in the function's words
  /// Scratch memory that some of the modules do not need: "features_4.conv_2_weight_backward_workspace".
  std::vector<std::string> unneeded;
};

/// The modules whose members get structs, as paths: those of a class that is called again and again, of the classes
/// whose repetition makes most of the code.
std::vector<std::string> repeated_modules(const std::vector<ir::ModuleInfo>& modules,
                                          const std::vector<const std::vector<Call>*>& phases);

/// What a function may be told of a pointer that is not its block's.
struct Pointer {
  std::string element;  ///< "f32"
  std::string type;     ///< "f32[64,8,8,24]"; empty for scratch memory
};

/// Moves the calls of repeated blocks into functions, and leaves a call of the function in their place. `blocks` are
/// the identifiers of modules, by path. `suffix` ends the functions' names ("_backward"); `taken` are names that no
/// function may have, `used` those that functions have, to which the new ones are added. `pointers`: by expression.
/// `arguments` are what another phase calls the pointers that it is given, by block and expression; those of this phase
/// are added.
std::vector<BlockFunction> share_blocks(
    std::vector<Call>& calls, const std::vector<ir::ModuleInfo>& modules,
    const std::unordered_map<std::string, std::string>& blocks, const std::string& suffix,
    const std::unordered_set<std::string>& taken, std::unordered_set<std::string>& used,
    const std::unordered_map<std::string, Pointer>& pointers,
    std::unordered_map<std::string, std::unordered_map<std::string, std::string>>& arguments);

}  // namespace graven::codegen
