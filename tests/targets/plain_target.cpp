#include "tests/targets/plain_target.h"

#include "codegen/emit/embedded.h"
#include "codegen/lowering/lowering.h"
#include "codegen/targets/cpu/target.h"
#include "ir/diagnostic.h"
#include "tests/patterns.h"

namespace graven::tests {

namespace {

/// The plain loops take any float type, plain weights, no scratch memory; what they read may not lie where they write.
ir::KernelCall lower(const ir::NodeView& node) {
  ir::KernelCall call = codegen::kernel_call(node);
  if (call.name.empty()) return call;
  const std::string path = "kernels/reference/" + (call.file.empty() ? call.name : call.file) + ".h";
  const codegen::EmbeddedFile* file = codegen::find_embedded(path);
  if (file == nullptr || file->text.find(" " + call.name + "(") == std::string_view::npos)
    throw UserError(std::string(node.node.op->name) + " has no plain kernel (" + call.name + ")").at(node.node.origins);
  call.reference = true;
  call.in_place.clear();
  call.over.clear();
  return call;
}

codegen::Target make() {
  codegen::Target target{.passes = {.name = "plain", .lower = lower},
                         .title = "plain loops",
                         .constants_in_code = true,
                         .style = codegen::cpu_target().style};  // the memory is the host's: so are the model's files
  target.style.calls.release.clear();
  target.style.just_in_time.clear();
  return target;
}

}  // namespace

const codegen::Target& plain_target() {
  static const codegen::Target target = make();
  return target;
}

}  // namespace graven::tests
