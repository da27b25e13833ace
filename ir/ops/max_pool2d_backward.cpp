#include "ir/ops/pool2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_max_pool2d_backward(InferContext& c) {
  ops::infer_pool2d_backward(c);
  c.require(c.input(1).shape == c.input(0).shape,
            "the index must be " + describe(DType::u8, c.input(0).shape) + ", got " + c.input(1).to_string());
}

const OpDef kMaxPool2dBackward{
    .name = "max_pool2d_backward",
    .doc = "dx = the sum of dy over the windows whose largest element x is.",
    .inputs = {{"dy"}, {.name = "index", .dtype = DType::u8}},
    .attributes = ops::join(ops::pool2d_attributes(true), {{"input_shape", AttributeType::shape, {}, "of x"}}),
    .infer = infer_max_pool2d_backward,
    .layout = {ImageLayout::Rule::leads, 2},
    .rank_layouts = ops::pool_layouts,
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"kernel_size", Ints{2, 2}}, {"channels_last", true}, {"input_shape", Shape{1, 4, 4, 4}}},
               .shapes = {{1, 2, 2, 4}, {1, 2, 2, 4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "overlapping windows",
               .inputs = {ops::random(DType::f32, {2, 3, 3, 4}), ops::random(DType::u8, {2, 3, 3, 4}, 0, 9)},
               .attributes = {{"kernel_size", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"input_shape", Shape{2, 3, 7, 9}}},
               .gradient = false},
              {.note = "channels last",
               .inputs = {ops::random(DType::f32, {2, 3, 4, 19}), ops::random(DType::u8, {2, 3, 4, 19}, 0, 4)},
               .attributes = {{"kernel_size", Ints{2, 2}},
                              {"input_shape", Shape{2, 6, 8, 19}},
                              {"channels_last", true}},
               .gradient = false},
              {.note = "no images",
               .inputs = {ops::random(DType::f32, {0, 3, 2, 2}), ops::random(DType::u8, {0, 3, 2, 2}, 0, 4)},
               .attributes = {{"kernel_size", Ints{2, 2}}, {"input_shape", Shape{0, 3, 4, 4}}},
               .gradient = false},
              {.note = "one window",
               .inputs = {ops::random(DType::f32, {1, 1, 1, 1}), ops::random(DType::u8, {1, 1, 1, 1}, 0, 4)},
               .attributes = {{"kernel_size", Ints{2, 2}}, {"input_shape", Shape{1, 1, 2, 2}}},
               .gradient = false}};
          for (DType d : ops::kFloats)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {1, 2, 2, 3}), ops::random(DType::u8, {1, 2, 2, 3}, 0, 4)},
                             .attributes = {{"kernel_size", Ints{2, 2}}, {"input_shape", Shape{1, 2, 4, 6}}},
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
