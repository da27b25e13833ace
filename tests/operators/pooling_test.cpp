#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

template <class Size>
std::optional<Size> stride_of(const Fixture& f, Size (*get)(const Fixture&, const char*, std::int64_t)) {
  if (!f.has("stride")) return {};
  return get(f, "stride", 0);
}
std::optional<std::int64_t> divisor_of(const Fixture& f) {
  if (!f.has("divisor_override")) return {};
  return f.integer("divisor_override");
}

TEST(Pooling, AgreesWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["max_pool1d"] = one([](const Fixture& f) {
    return max_pool1d(f.tensor("x"), number(f, "kernel_size"),
                      {.stride = stride_of(f, number),
                       .padding = number(f, "padding"),
                       .dilation = number(f, "dilation", 1),
                       .ceil_mode = f.flag("ceil_mode")});
  });
  functions["max_pool2d"] = one([](const Fixture& f) {
    return max_pool2d(f.tensor("x"), size2(f, "kernel_size"),
                      {.stride = stride_of(f, size2),
                       .padding = size2(f, "padding"),
                       .dilation = size2(f, "dilation", 1),
                       .ceil_mode = f.flag("ceil_mode")});
  });
  functions["max_pool3d"] = one([](const Fixture& f) {
    return max_pool3d(f.tensor("x"), size3(f, "kernel_size"),
                      {.stride = stride_of(f, size3),
                       .padding = size3(f, "padding"),
                       .dilation = size3(f, "dilation", 1),
                       .ceil_mode = f.flag("ceil_mode")});
  });
  functions["avg_pool1d"] = one([](const Fixture& f) {
    return avg_pool1d(f.tensor("x"), number(f, "kernel_size"),
                      {.stride = stride_of(f, number),
                       .padding = number(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true)});
  });
  functions["avg_pool2d"] = one([](const Fixture& f) {
    return avg_pool2d(f.tensor("x"), size2(f, "kernel_size"),
                      {.stride = stride_of(f, size2),
                       .padding = size2(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true),
                       .divisor_override = divisor_of(f)});
  });
  functions["avg_pool3d"] = one([](const Fixture& f) {
    return avg_pool3d(f.tensor("x"), size3(f, "kernel_size"),
                      {.stride = stride_of(f, size3),
                       .padding = size3(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true),
                       .divisor_override = divisor_of(f)});
  });
  functions["adaptive_avg_pool1d"] =
      one([](const Fixture& f) { return adaptive_avg_pool1d(f.tensor("x"), number(f, "output_size")); });
  functions["adaptive_avg_pool2d"] =
      one([](const Fixture& f) { return adaptive_avg_pool2d(f.tensor("x"), size2(f, "output_size")); });
  functions["adaptive_avg_pool3d"] =
      one([](const Fixture& f) { return adaptive_avg_pool3d(f.tensor("x"), size3(f, "output_size")); });
  functions["adaptive_max_pool1d"] =
      one([](const Fixture& f) { return adaptive_max_pool1d(f.tensor("x"), number(f, "output_size")); });
  functions["adaptive_max_pool2d"] =
      one([](const Fixture& f) { return adaptive_max_pool2d(f.tensor("x"), size2(f, "output_size")); });
  functions["adaptive_max_pool3d"] =
      one([](const Fixture& f) { return adaptive_max_pool3d(f.tensor("x"), size3(f, "output_size")); });
  functions["lp_pool1d"] = one([](const Fixture& f) {
    return lp_pool1d(f.tensor("x"), f.number("norm_type"), number(f, "kernel_size"), stride_of(f, number));
  });
  functions["lp_pool2d"] = one([](const Fixture& f) {
    return lp_pool2d(f.tensor("x"), f.number("norm_type"), size2(f, "kernel_size"), stride_of(f, size2));
  });
  functions["max_pool2d_with_indices"] = [](const Fixture& f) {
    const auto [y, indices] = max_pool2d_with_indices(f.tensor("x"), size2(f, "kernel_size"),
                                                      {.stride = stride_of(f, size2),
                                                       .padding = size2(f, "padding", 0),
                                                       .dilation = size2(f, "dilation", 1),
                                                       .ceil_mode = f.flag("ceil_mode")});
    return std::vector<Tensor>{y, indices};
  };
  // Where max_pool2d took the elements of another image of the same sizes from.
  functions["max_unpool2d"] = one([](const Fixture& f) {
    const Tensor x = f.tensor("x");
    const Size2 kernel = size2(f, "kernel_size"), padding = size2(f, "padding", 0);
    const MaxPool2dOptions options{.stride = stride_of(f, size2), .padding = padding};
    const Tensor other =
        flip(arange(x.size(-2) * x.size(-1)).to(f32).reshape({x.size(-2), x.size(-1)}), {0}).expand(x.shape());
    const Tensor indices = std::get<1>(max_pool2d_with_indices(other, kernel, options));
    return max_unpool2d(max_pool2d(x, kernel, options) * 2, indices, kernel,
                        {.stride = options.stride,
                         .padding = padding,
                         .output_size = f.has("output_size") ? std::optional(size2(f, "output_size")) : std::nullopt});
  });
  expect_family("pooling", functions);
}

TEST(Pooling, LayersPrintAsPyTorchs) {
  EXPECT_EQ(nn::MaxPool1d(2).repr(), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(nn::AvgPool3d({2, 3, 3}, {.padding = {1, 1, 1}}).repr(),
            "AvgPool3d(kernel_size=(2, 3, 3), stride=(2, 3, 3), padding=1)");
  EXPECT_EQ(nn::AdaptiveMaxPool2d({5, 7}).repr(), "AdaptiveMaxPool2d(output_size=(5, 7))");
  nn::AdaptiveAvgPool3d one_voxel(1);
  EXPECT_EQ(one_voxel(zeros({2, 3, 4, 5, 6})).sizes(), (Sizes{2, 3, 1, 1, 1}));
}

TEST(Pooling, RefusesWhatHasNoMeaning) {
  const Tensor x = zeros({1, 2, 5});
  EXPECT_THROW(max_pool1d(x, 3, {.padding = 2}), UserError);
  EXPECT_THROW(max_pool1d(zeros({5}), 2), UserError);
  EXPECT_THROW(adaptive_avg_pool1d(x, 0), UserError);
  EXPECT_THROW(adaptive_max_pool2d(x, {0, 1}), UserError);
  EXPECT_THROW(avg_pool2d(x, 2, {.ceil_mode = true, .divisor_override = 3}), UserError);
  EXPECT_THROW(avg_pool2d(x, 2, {.divisor_override = 0}), UserError);
}

TEST(Pooling, RefusesPositionsThatAreNone) {
  const Tensor x = ones({1, 1, 2, 2});
  const auto at = [](std::vector<std::int64_t> positions) { return from_data(positions, {1, 1, 2, 2}); };
  EXPECT_THROW(max_unpool2d(x, at({0, 2, 8, 16}), 2), UserError);
  EXPECT_THROW(max_unpool2d(x, at({0, 2, 8, -1}), 2), UserError);
  EXPECT_THROW(max_unpool2d(x, x, 2), UserError);
  EXPECT_THROW(max_unpool2d(x, at({0, 2, 8, 10}), 2, {.output_size = Size2(0, 4)}), UserError);
  EXPECT_EQ(max_unpool2d(x, at({0, 2, 8, 10}), 2).shape(), (Shape{1, 1, 4, 4}));
}

}  // namespace
}  // namespace graven::tests
