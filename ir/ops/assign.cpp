#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_assign(InferContext& c) {
  c.require(c.input(0) == c.input(1),
            "the value must be " + c.input(0).to_string() + " like its target, got " + c.input(1).to_string());
}

const OpDef kAssign{
    .name = "assign",
    .doc = "target = value: the new contents of a buffer or parameter.",
    .inputs = {{.name = "target", .role = InputRole::target}, {"value"}},
    .dtypes = kAnyDType,
    .infer = infer_assign,
    .kernel =
        [](const NodeView& node) {
          const Shape& shape = node.input(0).shape;
          return ops::strided_call("strided_copy", shape, ops::contiguous_strides(shape), 0);
        },
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{1, 1}})
            cases.push_back({.note = shape.to_string(),
                             .inputs = {ops::random(DType::f32, shape), ops::random(DType::f32, shape)},
                             .gradient = false});
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {4}, 0, 2), ops::random(d, {4}, 0, 2)},
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
