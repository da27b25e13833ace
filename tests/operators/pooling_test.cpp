#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

std::int64_t entry(const Sizes& s, std::size_t i, std::int64_t fallback) { return s.empty() ? fallback : s.size() == 1 ? s[0] : s[i]; }
std::int64_t one_of(const Fixture& f, const char* key, std::int64_t fallback = 0) { return entry(f.sizes(key), 0, fallback); }
Size2 two_of(const Fixture& f, const char* key, std::int64_t fallback = 0) {
  return {entry(f.sizes(key), 0, fallback), entry(f.sizes(key), 1, fallback)};
}
Size3 three_of(const Fixture& f, const char* key, std::int64_t fallback = 0) {
  return {entry(f.sizes(key), 0, fallback), entry(f.sizes(key), 1, fallback), entry(f.sizes(key), 2, fallback)};
}
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
    return max_pool1d(
        f.tensor("x"), one_of(f, "kernel_size"),
        {.stride = stride_of(f, one_of), .padding = one_of(f, "padding"), .dilation = one_of(f, "dilation", 1), .ceil_mode = f.flag("ceil_mode")});
  });
  functions["max_pool3d"] = one([](const Fixture& f) {
    return max_pool3d(f.tensor("x"), three_of(f, "kernel_size"),
                      {.stride = stride_of(f, three_of),
                       .padding = three_of(f, "padding"),
                       .dilation = three_of(f, "dilation", 1),
                       .ceil_mode = f.flag("ceil_mode")});
  });
  functions["avg_pool1d"] = one([](const Fixture& f) {
    return avg_pool1d(f.tensor("x"), one_of(f, "kernel_size"),
                      {.stride = stride_of(f, one_of),
                       .padding = one_of(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true)});
  });
  functions["avg_pool2d"] = one([](const Fixture& f) {
    return avg_pool2d(f.tensor("x"), two_of(f, "kernel_size"),
                      {.stride = stride_of(f, two_of),
                       .padding = two_of(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true),
                       .divisor_override = divisor_of(f)});
  });
  functions["avg_pool3d"] = one([](const Fixture& f) {
    return avg_pool3d(f.tensor("x"), three_of(f, "kernel_size"),
                      {.stride = stride_of(f, three_of),
                       .padding = three_of(f, "padding"),
                       .ceil_mode = f.flag("ceil_mode"),
                       .count_include_pad = f.flag("count_include_pad", true),
                       .divisor_override = divisor_of(f)});
  });
  functions["adaptive_avg_pool1d"] = one([](const Fixture& f) { return adaptive_avg_pool1d(f.tensor("x"), one_of(f, "output_size")); });
  functions["adaptive_avg_pool2d"] = one([](const Fixture& f) { return adaptive_avg_pool2d(f.tensor("x"), two_of(f, "output_size")); });
  functions["adaptive_avg_pool3d"] = one([](const Fixture& f) { return adaptive_avg_pool3d(f.tensor("x"), three_of(f, "output_size")); });
  functions["adaptive_max_pool1d"] = one([](const Fixture& f) { return adaptive_max_pool1d(f.tensor("x"), one_of(f, "output_size")); });
  functions["adaptive_max_pool2d"] = one([](const Fixture& f) { return adaptive_max_pool2d(f.tensor("x"), two_of(f, "output_size")); });
  functions["adaptive_max_pool3d"] = one([](const Fixture& f) { return adaptive_max_pool3d(f.tensor("x"), three_of(f, "output_size")); });
  functions["lp_pool1d"] =
      one([](const Fixture& f) { return lp_pool1d(f.tensor("x"), f.number("norm_type"), one_of(f, "kernel_size"), stride_of(f, one_of)); });
  functions["lp_pool2d"] =
      one([](const Fixture& f) { return lp_pool2d(f.tensor("x"), f.number("norm_type"), two_of(f, "kernel_size"), stride_of(f, two_of)); });
  expect_family("pooling", functions);
}

TEST(Pooling, LayersPrintAsPyTorchs) {
  EXPECT_EQ(nn::MaxPool1d(2).repr(), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(nn::AvgPool3d({2, 3, 3}, {.padding = {1, 1, 1}}).repr(), "AvgPool3d(kernel_size=(2, 3, 3), stride=(2, 3, 3), padding=1)");
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

}  // namespace
}  // namespace graven::tests
