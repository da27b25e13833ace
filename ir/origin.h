// Where a node comes from: the module path that recorded it, and the line of user code. Travels through every pass; a
// fused node keeps all of its parts' origins, in order of computation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graven::ir {

struct Origin {
  std::string module;  ///< "model.features.0"; empty when recorded outside of any module
  std::string file;    ///< base name only, so that emitted bytes do not depend on where the user's code lies
  std::uint32_t line = 0;
  /// The call of a module with activation checkpointing, the innermost, that it is part of: its place in
  /// Graph::checkpoints, from 1; 0: none.
  std::uint32_t checkpoint = 0;

  /// "model.features.0 (mobilenet.cpp:18)"
  std::string to_string() const;
  friend bool operator==(const Origin&, const Origin&) = default;
};

using Origins = std::vector<Origin>;

/// Joins two lists, dropping repeats, keeping order.
Origins merge(const Origins& a, const Origins& b);

/// The module that a node is filed under: the first that its origins name, that of the operator which the others were
/// fused into. Empty outside of any module.
std::string owner_of(const Origins& origins);

/// The line of user code that a node is filed under, "mlp.cpp:8". Empty when there is none.
std::string place_of(const Origins& origins);

/// Both, for whoever reads of it: "model.words, mlp.cpp:8".
std::string described(const Origins& origins);

/// All modules of the origins, without repeats, in their order.
std::vector<std::string> modules_of(const Origins& origins);

/// Whether `path` is the module or one in it.
bool is_within(const std::string& path, const std::string& module);

/// The innermost module that is, or has in it, each of these; empty where there is none.
std::string common_module(const std::vector<std::string>& paths);

/// Paths for a reader, those of one parent together: "model.features.{0,1}, model.head".
std::string braced(const std::vector<std::string>& paths);

}  // namespace graven::ir
