#include "frontend/eager/program.h"

namespace graven::eager {

std::vector<Tensor> run(const ir::OpDef&, const std::vector<Tensor>&, const ir::Attributes&) {
  throw UserError("eager execution is not available in this build; record the call in a graph");
}
std::shared_ptr<const GradientProgram> gradient_of(const ir::OpDef&, const std::vector<Tensor>&, const std::vector<Tensor>&, const ir::Attributes&,
                                                   const std::vector<bool>&) {
  return nullptr;
}
std::vector<Tensor> run(const GradientProgram&, const std::vector<Tensor>&) { return {}; }

}  // namespace graven::eager
