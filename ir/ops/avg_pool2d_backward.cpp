#include "ir/ops/pool2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

const OpDef kAvgPool2dBackward{
    .name = "avg_pool2d_backward",
    .doc = "dx = the sum over the windows that hold x of dy divided by the window's divisor.",
    .inputs = {{"dy"}},
    .attributes = ops::join(ops::pool2d_attributes(false), {{"input_shape", AttributeType::shape, {}, "of x"}}),
    .infer = ops::infer_pool2d_backward,
    .layout = {ImageLayout::Rule::leads},
    .rank_layouts = ops::pool_layouts,
    .amp = AmpClass::gray,
    .forms = {{.attributes = {{"kernel_size", Ints{2, 2}}, {"channels_last", true}, {"input_shape", Shape{1, 4, 4, 4}}},
               .shapes = {{1, 2, 2, 4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{{.note = "overlapping windows",
                                       .inputs = {ops::random(DType::f32, {2, 3, 4, 5})},
                                       .attributes = {{"kernel_size", Ints{3, 3}},
                                                      {"stride", Ints{2, 2}},
                                                      {"padding", Ints{1, 1}},
                                                      {"input_shape", Shape{2, 3, 7, 9}}},
                                       .gradient = false},
                                      {.note = "channels last",
                                       .inputs = {ops::random(DType::f32, {2, 3, 4, 19})},
                                       .attributes = {{"kernel_size", Ints{2, 2}},
                                                      {"input_shape", Shape{2, 6, 8, 19}},
                                                      {"channels_last", true}},
                                       .gradient = false}};
          const auto add = [&](std::string note, DType d, std::int64_t images, std::int64_t size) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, {images, 3, size, size})},
                 .attributes = {{"kernel_size", Ints{2, 2}}, {"input_shape", Shape{images, 3, 2 * size, 2 * size}}},
                 .gradient = false});
          };
          add("no images", DType::f32, 0, 2);
          add("one window", DType::f32, 1, 1);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 2, 3);
          return cases;
        },
};

}  // namespace graven::ir
