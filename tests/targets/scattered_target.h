// A target of two memory spaces and two streams, whose kernels run anywhere: each node goes where a hash of its name
// says, and the seed, so that there are as many ways to share the work as there are seeds.
#pragma once

#include "codegen/targets/cpu/target.h"
#include "ir/passes/pass.h"

namespace graven::tests {

inline std::uint64_t scattering = 1;  ///< the seed

inline ir::Place scattered_place(const ir::NodeView& node) {
  if (node.node.outputs.empty()) return {};
  std::uint64_t hash = 0xcbf29ce484222325u * scattering;  // FNV-1a
  for (const char c : node.graph.value(node.node.outputs[0]).name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash ^= hash >> 29;
  return {.stream = static_cast<std::int32_t>(hash & 1), .space = static_cast<std::int32_t>(hash >> 1 & 1)};
}

inline constexpr std::string_view kScatteredSpaces[] = {"near", "far"}, kScatteredStreams[] = {"even", "odd"};
inline constexpr ir::TargetTraits kScattered{.name = "scattered",
                                             .epilogues = ir::kHostEpilogues,
                                             .channels_last = ir::kHostImages,
                                             .spaces = kScatteredSpaces,
                                             .streams = kScatteredStreams,
                                             .place = scattered_place};

inline const codegen::Target& scattered_target() {
  static const codegen::Target target = [] {
    codegen::Target t = codegen::cpu_target();
    t.passes = kScattered;
    t.passes.lower = codegen::cpu_target().passes.lower;
    t.title = "scattered work";
    return t;
  }();
  return target;
}

}  // namespace graven::tests
