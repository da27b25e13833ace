#include "codegen/lowering/families.h"

namespace graven::codegen::lowering {

namespace {

KernelCall random_call(const NodeView& node, std::string name) {
  return {.name = std::move(name),
          .file = "random",
          .config_type = "random_config",
          .config = {{"n", node.output().shape.numel()}, {"stream", Dim(node.attributes().integer("stream"))}}};
}

KernelCall random_normal(const NodeView& node) { return random_call(node, "random_normal"); }
KernelCall random_uniform(const NodeView& node) { return random_call(node, "random_uniform"); }

KernelCall dropout(const NodeView& node) {
  return {.name = "dropout",
          .file = "random",
          .config_type = "dropout_config",
          .config = {{"n", node.output().shape.numel()},
                     {"p", node.attributes().number("p")},
                     {"stream", Dim(node.attributes().integer("stream"))},
                     {"ranks", Dim(node.attributes().integer("ranks"))},
                     {"run", Dim(node.attributes().integer("run"))}},
          .in_place = {0}};
}

}  // namespace

std::span<const Row> random_numbers() {
  static constexpr Row kRows[] = {
      {&ir::kDropout, dropout},
      {&ir::kRandomNormal, random_normal},
      {&ir::kRandomUniform, random_uniform},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
