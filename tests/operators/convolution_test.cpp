#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

template <class Padding, class Size>
Padding padding(const Fixture& f, Size (*size)(const Fixture&, const char*, std::int64_t)) {
  return f.is_text("padding") ? Padding(f.text("padding").c_str()) : Padding(size(f, "padding", 0));
}
template <class Layer>
Tensor run(Layer layer, const Fixture& f) {
  f.give_parameters(layer);
  return layer(f.tensor("x"));
}

TEST(Convolution, AgreesWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["conv1d"] = one([](const Fixture& f) {
    return conv1d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                  {.stride = number(f, "stride", 1),
                   .padding = padding<Padding1, std::int64_t>(f, number),
                   .dilation = number(f, "dilation", 1),
                   .groups = number(f, "groups", 1)});
  });
  functions["conv2d"] = one([](const Fixture& f) {
    return conv2d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                  {.stride = size2(f, "stride", 1),
                   .padding = padding<Padding2, Size2>(f, size2),
                   .dilation = size2(f, "dilation", 1),
                   .groups = number(f, "groups", 1)});
  });
  functions["conv3d"] = one([](const Fixture& f) {
    return conv3d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                  {.stride = size3(f, "stride", 1),
                   .padding = padding<Padding3, Size3>(f, size3),
                   .dilation = size3(f, "dilation", 1),
                   .groups = number(f, "groups", 1)});
  });
  functions["conv_transpose1d"] = one([](const Fixture& f) {
    return conv_transpose1d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                            {.stride = number(f, "stride", 1),
                             .padding = number(f, "padding", 0),
                             .output_padding = number(f, "output_padding", 0),
                             .groups = number(f, "groups", 1),
                             .dilation = number(f, "dilation", 1)});
  });
  functions["conv_transpose2d"] = one([](const Fixture& f) {
    return conv_transpose2d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                            {.stride = size2(f, "stride", 1),
                             .padding = size2(f, "padding", 0),
                             .output_padding = size2(f, "output_padding", 0),
                             .groups = number(f, "groups", 1),
                             .dilation = size2(f, "dilation", 1)});
  });
  functions["conv_transpose3d"] = one([](const Fixture& f) {
    return conv_transpose3d(f.tensor("x"), f.tensor("weight"), f.tensor("bias"),
                            {.stride = size3(f, "stride", 1),
                             .padding = size3(f, "padding", 0),
                             .output_padding = size3(f, "output_padding", 0),
                             .groups = number(f, "groups", 1),
                             .dilation = size3(f, "dilation", 1)});
  });
  const auto windows = [](const Fixture& f) {
    return WindowOptions{
        .dilation = size2(f, "dilation", 1), .padding = size2(f, "padding", 0), .stride = size2(f, "stride", 1)};
  };
  functions["unfold"] =
      one([=](const Fixture& f) { return unfold(f.tensor("x"), size2(f, "kernel_size"), windows(f)); });
  functions["fold"] = one([=](const Fixture& f) {
    return fold(f.tensor("x"), size2(f, "output_size"), size2(f, "kernel_size"), windows(f));
  });
  // Layers with the case's weights.
  functions["Conv1d"] = one([](const Fixture& f) {
    return run(
        nn::Conv1d(3, 2, 3, {.stride = number(f, "stride", 1), .padding = 2, .padding_mode = f.text("padding_mode")}),
        f);
  });
  functions["Conv2d"] = one([](const Fixture& f) {
    const Sizes w = f.tensor("weight").sizes();
    return run(nn::Conv2d(w[1], w[0], {w[2], w[3]},
                          {.padding = padding<Padding2, Size2>(f, size2), .padding_mode = f.text("padding_mode")}),
               f);
  });
  functions["Conv3d"] = one([](const Fixture& f) {
    const Sizes w = f.tensor("weight").sizes();
    return run(nn::Conv3d(f.tensor("x").size(1), w[0], {w[2], w[3], w[4]},
                          {.stride = size3(f, "stride", 1),
                           .padding = size3(f, "padding", 0),
                           .dilation = size3(f, "dilation", 1),
                           .groups = number(f, "groups", 1),
                           .padding_mode = f.text("padding_mode", "zeros")}),
               f);
  });
  expect_family("convolution", functions, tolerance::layers, tolerance::layer_gradients);
}

TEST(Convolution, LayersPrintAsPyTorchs) {
  EXPECT_EQ(nn::Conv1d(16, 33, 3, {.stride = 2}).repr(), "Conv1d(16, 33, kernel_size=(3,), stride=(2,))");
  EXPECT_EQ(nn::Conv2d(3, 4, 3, {.padding = "same", .padding_mode = "reflect"}).repr(),
            "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=same, padding_mode=reflect)");
  EXPECT_EQ(nn::Conv3d(2, 4, {1, 3, 3}, {.padding = {0, 1, 1}, .bias = false}).repr(),
            "Conv3d(2, 4, kernel_size=(1, 3, 3), stride=(1, 1, 1), padding=(0, 1, 1), bias=False)");
  EXPECT_EQ(nn::ConvTranspose2d(16, 8, 3, {.stride = 2, .padding = 1, .output_padding = 1}).repr(),
            "ConvTranspose2d(16, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))");
  nn::ConvTranspose1d up(4, 2, 4, {.stride = 4, .groups = 2});
  EXPECT_EQ(up.weight.sizes(), (Sizes{4, 1, 4}));
  EXPECT_EQ(up(zeros({3, 4, 5})).sizes(), (Sizes{3, 2, 20}));
}

TEST(Convolution, RefusesWhatHasNoMeaning) {
  const Tensor x = zeros({1, 2, 5}), w = zeros({3, 2, 3});
  EXPECT_THROW(conv1d(x, w, {}, {.stride = 2, .padding = "same"}), UserError);
  EXPECT_THROW(conv1d(x, w, {}, {.padding = "half"}), UserError);
  EXPECT_THROW(conv1d(zeros({1, 3, 5}), w), UserError);
  EXPECT_THROW(conv1d(zeros({5}), w), UserError);
  EXPECT_THROW(conv3d(zeros({1, 2, 2, 5, 5}), zeros({3, 2, 3, 3, 3})), UserError);
  EXPECT_THROW(conv_transpose1d(x, zeros({2, 3, 3}), {}, {.output_padding = 1}), UserError);
  EXPECT_THROW(conv_transpose1d(x, zeros({2, 3, 1}), {}, {.padding = 9}), UserError);
  EXPECT_THROW(nn::Conv2d(3, 4, 3, {.padding_mode = "mirror"}), UserError);
  EXPECT_THROW(nn::Conv1d(3, 4, 3, {.groups = 2}), UserError);
}

TEST(Convolution, RefusesWindowsThatDoNotFit) {
  const Tensor image = zeros({1, 2, 3, 3}), columns = zeros({1, 8, 4});
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THROW(unfold(image, 4), UserError);
  EXPECT_THROW(unfold(image, 0), UserError);
  EXPECT_THROW(unfold(image, huge, {.padding = huge}), UserError);
  EXPECT_THROW(unfold(zeros({3}), 2), UserError);
  EXPECT_THROW(fold(columns, 4, 2), UserError);
  EXPECT_THROW(fold(columns, 3, 3), UserError);
  EXPECT_THROW(fold(columns, -3, 2), UserError);
  EXPECT_THROW(conv_transpose3d(zeros({1, 2, 2, 2, 2}), zeros({2, 1, 2, 2, 2}), {}, {.output_padding = 1}), UserError);
  EXPECT_THROW(conv_transpose3d(zeros({1, 2, 1, 2, 2}), zeros({2, 1, 1, 2, 2}), {}, {.padding = {1, 0, 0}}), UserError);
}

}  // namespace
}  // namespace graven::tests
