// Tensors: factories, views, promotion, printing, in-place changes. Expected values are PyTorch's.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

using test::error_of;

// ---- views: each is a function of arange(24).view({2, 3, 4}) --------------------------------------------------------

struct ViewCase {
  const char* name;
  Tensor (*f)(const Tensor&);
  Shape shape;
  std::vector<std::int64_t> elements;
  bool shares_memory;
};

std::vector<ViewCase> view_cases() {
  return {
      {"reshape",
       [](const Tensor& x) { return x.reshape({6, -1}).slice(0, 4); },
       {2, 4},
       {16, 17, 18, 19, 20, 21, 22, 23},
       true},
      {"flatten",
       [](const Tensor& x) { return x.flatten(1).select(0, 1); },
       {12},
       {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23},
       true},
      {"transpose",
       [](const Tensor& x) { return x.transpose(1, 2).select(0, 0).slice(0, 0, 2); },
       {2, 3},
       {0, 4, 8, 1, 5, 9},
       true},
      {"permute",
       [](const Tensor& x) { return x.permute({2, 0, 1}).select(0, 3); },
       {2, 3},
       {3, 7, 11, 15, 19, 23},
       true},
      {"slice with step",
       [](const Tensor& x) { return x.slice(2, 1, 4, 2).select(1, 0); },
       {2, 2},
       {1, 3, 13, 15},
       true},
      {"slice from the end",
       [](const Tensor& x) { return x.slice(-1, -1).flatten(); },
       {6},
       {3, 7, 11, 15, 19, 23},
       true},
      {"empty slice", [](const Tensor& x) { return x.slice(0, 2); }, {0, 3, 4}, {}, true},
      {"narrow", [](const Tensor& x) { return x.narrow(1, 1, 2).select(2, 0); }, {2, 2}, {4, 8, 16, 20}, true},
      {"select negative", [](const Tensor& x) { return x.select(-1, -2).select(0, 0); }, {3}, {2, 6, 10}, true},
      {"expand",
       [](const Tensor& x) { return x.select(0, 0).select(0, 0).slice(0, 0, 2).expand({3, -1}); },
       {3, 2},
       {0, 1, 0, 1, 0, 1},
       true},
      {"squeeze",
       [](const Tensor& x) { return x.slice(0, 0, 1).squeeze(0).slice(0, 2); },
       {1, 4},
       {8, 9, 10, 11},
       true},
      {"unsqueeze",
       [](const Tensor& x) { return x.select(0, 0).select(0, 0).unsqueeze(-1); },
       {4, 1},
       {0, 1, 2, 3},
       true},
      {"flatten that copies",
       [](const Tensor& x) { return x.select(0, 0).t().flatten().slice(0, 0, 4); },
       {4},
       {0, 4, 8, 1},
       false},
      {"chunk", [](const Tensor& x) { return x.chunk(2, 2).at(1).select(0, 0); }, {3, 2}, {2, 3, 6, 7, 10, 11}, true},
      {"split", [](const Tensor& x) { return x.split(3, 2).at(1).flatten(); }, {6}, {3, 7, 11, 15, 19, 23}, true},
      {"view of a view", [](const Tensor& x) { return x.select(1, 1).view({8}); }, {8}, {}, true},
  };
}

TEST(Views, HaveTheElementsOfPyTorch) {
  for (const ViewCase& c : view_cases()) {
    SCOPED_TRACE(c.name);
    const Tensor x = arange(24).view({2, 3, 4});
    if (std::string(c.name) == "view of a view") {
      EXPECT_NE(error_of([&] { (void)c.f(x); }).find("strides cannot express [8]"), std::string::npos);
      continue;
    }
    const Tensor y = c.f(x);
    EXPECT_EQ(y.shape(), c.shape);
    EXPECT_EQ(y.to_vector<std::int64_t>(), c.elements);
    if (c.elements.empty()) continue;
    Tensor base = x;
    base.fill_(100);
    EXPECT_EQ(y.to_vector<std::int64_t>()[0] == 100, c.shares_memory);
  }
}

TEST(Views, WriteThroughToTheBase) {
  Tensor x = zeros({3, 4}, i64);
  Tensor column = x.select(1, 2);
  column.copy_(arange(3));
  Tensor corner = x.slice(0, 1).slice(1, 2, 4, 1);
  corner.mul_(10);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 20, 0}));
}

TEST(Views, AreChangedByOperatorsToo) {
  Tensor x = zeros({2, 3}, i64);
  x[1] += 2;
  x.index({indexing::Slice(), 0}) -= 4;
  x.select(1, 2) *= 5;
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{-4, 0, 0, -2, 2, 10}));
  Tensor y = ones(x.sizes());
  y[0] /= 4;
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{.25, .25, .25, 1, 1, 1}));
}

TEST(Views, RefuseWhatPyTorchRefuses) {
  const Tensor x = zeros({2, 3});
  const std::pair<test::Call<void()>, const char*> cases[] = {
      {[&] { (void)x.reshape({4, 2}); }, "reshape: the shape [4,2] has 8 elements, f32[2,3] has 6"},
      {[&] { (void)x.reshape({4, -1}); }, "reshape: the shape [4,-1] does not fit the 6 elements of f32[2,3]"},
      {[&] { (void)x.reshape({-1, -1}); }, "reshape: only one dimension can be inferred"},
      {[&] { (void)x.permute({0, 0}); }, "permute: dimension 0 is named twice"},
      {[&] { (void)x.transpose(0, 2); }, "transpose: dimension 2 is out of range [-2, 1]"},
      {[&] { (void)x.expand({3, 3}); }, "expand: f32[2,3] cannot be expanded to [3,3]"},
      {[&] { (void)x.select(0, 2); }, "select: index 2 is out of range for dimension 0 of f32[2,3]"},
      {[&] { (void)x.narrow(1, 2, 2); }, "narrow: start 2 and length 2 leave dimension 1 of f32[2,3]"},
      {[&] { (void)zeros({0}).reshape({std::int64_t{1} << 40, 0}).split(2); },
       "split: would make 549755813888 tensors, expected at most 1048576"},
      {[&] { (void)zeros({0}).reshape({std::int64_t{1} << 40, 0}).chunk(std::numeric_limits<std::int64_t>::max()); },
       "chunk: would make 1099511627776 tensors, expected at most 1048576"},
      {[&] { (void)zeros({0}).reshape({std::int64_t{1} << 40, 0}).unbind(); },
       "unbind: would make 1099511627776 tensors, expected at most 1048576"},
      {[&] { (void)x.slice(0, 0, 2, 0); }, "slice: the step must be 1 or more, got 0"},
      {[&] { (void)x.flatten(1, 0); }, "flatten: start_dim 1 comes after end_dim 0"},
      {[&] { (void)x.item<float>(); }, "item(): needs one element, the tensor is f32[2,3]"},
      {[&] { (void)x.data<double>(); }, "data(): the tensor is f32[2,3], not f64"},
      {[&] { (void)zeros({-1}); }, "a dimension must not be negative"},
      {[&] { (void)zeros({std::int64_t{1} << 40, std::int64_t{1} << 40}); }, "is too large"},
      {[&] { (void)tensor({{1, 2}, {3}}); }, "a list of 1 stands beside one of 2"},
      {[&] { (void)from_data(std::vector<float>{1, 2}, {3}); }, "f32[3] takes 12 bytes, got 8"},
      {[&] { x.expand({2, 2, 3}).zero_(); }, "several elements of this expanded tensor share one place"},
  };
  for (const auto& [f, expected] : cases) EXPECT_NE(error_of(f).find(expected), std::string::npos) << error_of(f);
}

/// What tests/symbols does not ask of undefined tensors: methods that have no row there, and in place.
TEST(Undefined, IsOneErrorOfTheMethod) {
  const Tensor x = zeros({2, 3}), index = tensor({0}, i64), mask = zeros({2, 3}, boolean);
  Tensor none, y = zeros({2, 3});
  const std::pair<test::Call<void()>, const char*> cases[] = {
      {[&] { (void)none.dtype(); }, "dtype"},
      {[&] { (void)none.shape(); }, "shape"},
      {[&] { (void)none.dim(); }, "dim"},
      {[&] { (void)none.size(0); }, "size"},
      {[&] { (void)none.sizes(); }, "sizes"},
      {[&] { (void)none.strides(); }, "strides()"},
      {[&] { (void)none.storage_offset(); }, "storage_offset()"},
      {[&] { (void)none.numel(); }, "numel"},
      {[&] { (void)none.is_contiguous(); }, "is_contiguous"},
      {[&] { (void)none.is_traced(); }, "is_traced"},
      {[&] { (void)none.is_view(); }, "is_view"},
      {[&] { (void)none.describe(); }, "describe"},
      {[&] { (void)none.data<float>(); }, "data()"},
      {[&] { (void)none.data_ptr(); }, "data_ptr()"},
      {[&] { (void)none.item<float>(); }, "item()"},
      {[&] { (void)none.to_vector<float>(); }, "to_vector"},
      {[&] { (void)none.to_vector<int>(); }, "to_vector"},
      {[&] { (void)none.requires_grad(); }, "requires_grad"},
      {[&] { (void)none.is_leaf(); }, "is_leaf"},
      {[&] { none.requires_grad_(); }, "requires_grad_"},
      {[&] { (void)none.grad(); }, "grad"},
      {[&] { none.set_grad(x); }, "set_grad"},
      {[&] { none.backward(); }, "backward"},
      {[&] { (void)none.detach(); }, "detach"},
      {[&] { (void)none.clone(); }, "clone"},
      {[&] { (void)none.contiguous(); }, "contiguous"},
      {[&] { (void)none.to(f64); }, "to"},
      {[&] { (void)none.view({6}); }, "view"},
      {[&] { (void)none.t(); }, "t"},
      {[&] { (void)none.T(); }, "T"},
      {[&] { (void)none[0]; }, "select"},
      {[&] { (void)none.slice(0); }, "slice"},
      {[&] { (void)none.index({0}); }, "index"},
      {[&] { (void)x.view_as(none); }, "view_as"},
      {[&] { (void)x.reshape_as(none); }, "reshape_as"},
      {[&] { (void)x.expand_as(none); }, "expand_as"},
      {[&] { (void)x.type_as(none); }, "type_as"},
      {[&] { (void)none.new_zeros({2}); }, "new_zeros"},
      {[&] { (void)none.new_full({2}, 1); }, "new_full"},
      {[&] { (void)(x + none); }, "add"},
      {[&] { (void)(none - x); }, "sub"},
      {[&] { (void)(2 * none); }, "mul"},
      {[&] { (void)-none; }, "neg"},
      {[&] { (void)(none == x); }, "eq"},
      {[&] { (void)(none % 2); }, "remainder"},
      {[&] { y += none; }, "add_"},
      {[&] { none += x; }, "add_"},
      {[&] { none -= 1; }, "sub_"},
      {[&] { none *= 1; }, "mul_"},
      {[&] { y /= none; }, "div_"},
      {[&] { y[0] = none; }, "operator="},
      {[&] { none.abs_(); }, "abs_"},
      {[&] { none.zero_(); }, "zero_"},
      {[&] { none.fill_(1); }, "fill_"},
      {[&] { none.copy_(x); }, "copy_"},
      {[&] { y.copy_(none); }, "copy_"},
      {[&] { none.clamp_min_(1); }, "clamp_min_"},
      {[&] { none.masked_fill_(mask, 1); }, "masked_fill_"},
      {[&] { y.masked_fill_(none, 1); }, "masked_fill_"},
      {[&] { y.scatter_add_(0, none, x); }, "scatter_add_"},
      {[&] { y.index_add_(0, index, none); }, "index_add_"},
      {[&] { none.uniform_(); }, "uniform_"},
      {[&] { none.normal_(); }, "normal_"},
      {[&] { (void)allclose(x, none); }, "allclose"},
      {[&] { (void)equal(none, x); }, "equal"},
      {[&] { (void)result_type(x, none); }, "result_type"},
      {[&] { (void)grad({none}, {x}); }, "grad"},
      {[&] { (void)cat({x, none}); }, "cat"},
      {[&] { (void)stack({none, x}); }, "stack"},
      {[&] { (void)einsum("ij,ij->i", {x, none}); }, "einsum"},
      {[&] { nn::init::zeros_(none); }, "init::zeros_"},
      {[&] { nn::init::kaiming_uniform_(none); }, "init::kaiming_uniform_"},
      {[&] { nn::init::eye_(none); }, "init::eye_"},
      {[&] { nn::utils::clip_grad_norm_({x, none}, 1); }, "clip_grad_norm_"},
      {[&] { nn::utils::clip_grad_value_({none}, 1); }, "clip_grad_value_"},
  };
  for (const auto& [mistake, function] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.find("error: " + std::string(function) + ": expects "), 0u) << function << ": " << text;
    EXPECT_NE(text.find(", got an undefined one"), std::string::npos) << text;
    EXPECT_NE(text.find("\n  at tensor_test.cpp:"), std::string::npos) << text;
  }
  EXPECT_EQ(error_of([&] { (void)softmax(2.0, 0); }).find("error: softmax: expects a tensor, got a number\n"), 0u);
}

TEST(FromData, SaysWhatIsWrong) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const float* const nothing = nullptr;
  const std::vector<float> two{1, 2};
  const std::pair<test::Call<void()>, std::string> cases[] = {
      {[&] { from_data(nothing, {2}); }, "from_data: f32[2] takes 8 bytes, got a null pointer"},
      {[&] { from_data(two.data(), {kMany, kMany}); },
       "from_data: a tensor f32[1099511627776,1099511627776] is too large: its bytes do not fit in 63 bits"},
      // As many elements as there are bytes in 64 bits.
      {[&] { from_data(two.data(), {std::int64_t{1} << 62}); },
       "from_data: a tensor f32[4611686018427387904] is too large: its bytes do not fit in 63 bits"},
      {[&] { from_data(two.data(), {-1}); }, "from_data: a dimension must not be negative, got [-1]"},
      {[&] { from_data(two, {3}); }, "from_data: f32[3] takes 12 bytes, got 8"},
      {[&] { from_data(two, {Dim("n", 2)}); },
       "from_data: the shape [n] has a symbol; data have as many elements as they have. Make them an input"},
      {[&] { from_bytes(two.data(), 8, i64, {2}); }, "from_bytes: i64[2] takes 16 bytes, got 8"},
      {[&] { from_bytes(nullptr, 8, f32, {2}); }, "from_bytes: f32[2] takes 8 bytes, got a null pointer"},
      {[&] { from_bytes(two.data(), 8, static_cast<DType>(77), {2}); },
       "from_bytes: there is no dtype with the number 77"},
      {[&] { from_bytes(two.data(), 8, f32, {2, -1}); }, "from_bytes: a dimension must not be negative, got [2,-1]"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.substr(0, text.rfind("\n  at tensor_test.cpp:")), "error: " + error);
  }
  EXPECT_EQ(from_data(nothing, {0}).numel(), 0);
  EXPECT_EQ(from_data(nothing, {3, 0}).numel(), 0);
  EXPECT_EQ(from_bytes(nullptr, 0, i64, {0}).numel(), 0);
}

TEST(Factories, SayWhatIsWrong) {
  const std::pair<test::Call<void()>, const char*> cases[] = {
      {[] { (void)zeros({-1}); }, "zeros: a dimension must not be negative, got [-1]"},
      {[] { (void)full({2, -3}, 1); }, "full: a dimension must not be negative, got [2,-3]"},
      {[] { (void)ones({-1}); }, "ones: a dimension must not be negative, got [-1]"},
      {[] { (void)rand({-1}); }, "rand: a dimension must not be negative, got [-1]"},
      {[] { (void)randn({2}, i64); }, "randn: needs a floating-point dtype, got i64"},
      {[] { (void)randint(3, 3, {2}); }, "randint: low must be less than high, got 3 and 3"},
      {[] { (void)zeros({2}, {i64, true}); }, "zeros: only floating-point tensors have gradients, got i64[2]"},
      {[] { (void)arange(0, 3, 0); }, "arange: start, end and step must be finite, and step not 0, got 0, 3 and 0"},
      {[] { (void)arange(3, 0); },
       "arange: the end lies on the other side of the start than the step goes, got 3, 0 and 1"},
      {[] { (void)linspace(0, 1, -1); }, "linspace: the number of steps must not be negative, got -1"},
      {[] { (void)eye(-1); }, "eye: a dimension must not be negative, got [-1,-1]"},
      {[] { (void)tensor({{1, 2}, {3}}); }, "tensor: a list of 1 stands beside one of 2 at depth 1"},
      {[] { (void)tensor({{1, 2}, 3}, f32); }, "tensor: the nested lists have different depths"},
      {[] { (void)tensor({1.0, NAN}, i64); },
       "tensor: the numbers of i64 lie in [-9223372036854775808, 9223372036854775807], got nan"},
      {[] { (void)tensor({0x1p63}, i64); },
       "tensor: the numbers of i64 lie in [-9223372036854775808, 9223372036854775807], got 9.223372036854776e+18"},
      {[] { (void)tensor(1e30, i32); }, "tensor: the numbers of i32 lie in [-2147483648, 2147483647], got 1e+30"},
      {[] { (void)tensor({{300}}, u8); }, "tensor: the numbers of u8 lie in [0, 255], got 300"},
      {[] { (void)tensor(-1.5, u8); }, "tensor: the numbers of u8 lie in [0, 255], got -1.5"},
      {[] { (void)full({2}, -129, i8); }, "full: the numbers of i8 lie in [-128, 127], got -129"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.substr(0, text.rfind("\n  at tensor_test.cpp:")), std::string("error: ") + error);
  }
  // Negative numbers wrap in u8, as torch.tensor has them; and what is left of a fraction must fit.
  EXPECT_EQ(tensor({-1, -255, 255}, u8).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 1, 255}));
  EXPECT_EQ(tensor({127.9, -128.9}, i8).to_vector<std::int64_t>(), (std::vector<std::int64_t>{127, -128}));
  EXPECT_EQ(full({1}, -0.5, u8).item<std::int64_t>(), 0);
}

TEST(Views, PartsOfAHugeEmptyTensorAreAsManyAsAsked) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const Tensor x = zeros({0}).reshape({kHuge, 0});
  const std::vector<Tensor> halves = x.chunk(2);
  ASSERT_EQ(halves.size(), 2u);
  EXPECT_EQ(halves[0].size(0) + halves[1].size(0), kHuge);
  EXPECT_EQ(x.split(kHuge).size(), 1u);
  EXPECT_EQ(x.split(kHuge - 1).back().size(0), 1);
}

// ---- factories ------------------------------------------------------------------------------------------------------

/// Whatever their arguments, also those that leave everything where it is.
TEST(Views, AreNotWhatFunctionsThatCopyGive) {
  const std::vector<std::pair<const char*, test::Call<Tensor(Tensor)>>> functions = {
      {"repeat", [](Tensor x) { return repeat(x, {1, 1, 1}); }},
      {"tile", [](Tensor x) { return tile(x, {1}); }},
      {"repeat_interleave", [](Tensor x) { return repeat_interleave(x, 1, 0); }},
      {"roll", [](Tensor x) { return roll(x, {0}, {0}); }},
      {"roll of all", [](Tensor x) { return roll(x, {0}); }},
      {"roll of a scalar", [](Tensor x) { return roll(x.select(0, 0).select(0, 0).select(0, 0), {3}); }},
      {"flip", [](Tensor x) { return flip(x, {}); }},
      {"pad", [](Tensor x) { return pad(x, {0, 0}); }},
      {"pad by reflection", [](Tensor x) { return pad(x, {0, 0}, "reflect"); }},
      {"interpolate", [](Tensor x) { return interpolate(x, {.size = {3}}); }},
      {"interpolate, linear", [](Tensor x) { return interpolate(x, {.size = {3}, .mode = "linear"}); }},
      {"adaptive_avg_pool1d", [](Tensor x) { return adaptive_avg_pool1d(x, 3); }},
      {"adaptive_avg_pool3d", [](Tensor x) { return adaptive_avg_pool3d(x.reshape({1, 4, 1, 2, 3}), {1, 2, 3}); }},
      {"pixel_shuffle", [](Tensor x) { return pixel_shuffle(x, 1); }},
      {"pixel_shuffle of one pixel",
       [](Tensor x) { return pixel_shuffle(x.flatten().slice(0, 0, 4).reshape({4, 1, 1}), 2); }},
      {"pixel_unshuffle", [](Tensor x) { return pixel_unshuffle(x, 1); }},
      {"channel_shuffle", [](Tensor x) { return channel_shuffle(x, 1); }},
      {"diff", [](Tensor x) { return diff(x, 0); }},
      {"nan_to_num", [](Tensor x) { return nan_to_num(x); }},
      {"nan_to_num of integers", [](Tensor x) { return nan_to_num(x.to(i32)); }},
      {"cat", [](Tensor x) { return cat({x}); }},
      {"stack", [](Tensor x) { return stack({x}); }},
      {"clone", [](Tensor x) { return x.clone(); }},
  };
  for (const auto& [name, f] : functions) {
    const Tensor x = arange(24).to(f32).reshape({4, 2, 3}), before = x.clone();
    f(x).fill_(-1);
    EXPECT_TRUE(equal(x, before)) << name;
    const Tensor whole = x.to(i32), first = whole.clone();
    if (std::string(name) == "nan_to_num of integers") nan_to_num(whole).fill_(-1);
    EXPECT_TRUE(equal(whole, first)) << name;
  }
}

TEST(Factories, GiveTheElementsOfPyTorch) {
  EXPECT_EQ(arange(5).dtype(), i64);
  EXPECT_EQ(arange(0., 1., 0.25).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, 3, 1}));
  // As many as by the step itself; the elements are by what is left of start and step as integers.
  EXPECT_EQ(arange(0, 5, 1.5, i64).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(1, 9, 2.7, i32).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_EQ(arange(0, -5, -1.5, i64).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, -1, -2, -3}));
  EXPECT_EQ(arange(0.7, 5, 1, i32).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(arange(0, 2, 0.5, i64).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(linspace(-1, 1, 5).to_vector<double>(), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(linspace(0, 1, 1).to_vector<double>(), (std::vector<double>{0}));
  EXPECT_EQ(eye(2).to_vector<double>(), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(tensor({{1., 2.}, {3., 4.}}).describe(), "f32[2,2]");
  EXPECT_EQ(tensor({1, 2}).describe(), "i64[2]");
  EXPECT_EQ(tensor({true, false}).describe(), "bool[2]");
  EXPECT_EQ(tensor(3).describe(), "i64[]");
  EXPECT_EQ(full({2}, 1.5, f16).to_vector<double>(), (std::vector<double>{1.5, 1.5}));
  EXPECT_EQ(zeros({0, 3}).numel(), 0);
}

TEST(Conversions, RoundAsPyTorchDoes) {
  const Tensor x = tensor({1.0, -2.75, 0.1, 70000.0, 6e-8, 1e-9}, f64);
  EXPECT_EQ(x.to(f16).to_vector<double>(),
            (std::vector<double>{1.0, -2.75, 0.0999755859375, INFINITY, 5.9604644775390625e-08, 0}));
  EXPECT_EQ(x.slice(0, 0, 4).to(bf16).to_vector<double>(), (std::vector<double>{1.0, -2.75, 0.10009765625, 70144.0}));
  EXPECT_EQ(x.slice(0, 0, 3).to(i32).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, -2, 0}));
  EXPECT_EQ(x.slice(0, 0, 3).to(boolean).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(Random, DependsOnTheSeedAlone) {
  manual_seed(7);
  const Tensor a = randn({1000}), b = rand({1000});
  manual_seed(7);
  EXPECT_TRUE(equal(a, randn({1000})));
  EXPECT_TRUE(equal(b, rand({1000})));
  EXPECT_FALSE(equal(b, rand({1000})));
  double mean = 0, square = 0;
  for (double v : a.to_vector<double>()) mean += v / 1000, square += v * v / 1000;
  EXPECT_NEAR(mean, 0, 0.15);
  EXPECT_NEAR(square, 1, 0.2);
  for (double v : b.to_vector<double>()) EXPECT_TRUE(v >= 0 && v < 1);
  std::vector<std::int64_t> seen(3, 0);
  for (std::int64_t v : randint(-1, 2, {300}).to_vector<std::int64_t>()) ++seen.at(static_cast<std::size_t>(v + 1));
  for (std::int64_t count : seen) EXPECT_GT(count, 50);
  std::vector<std::int64_t> p = randperm(50).to_vector<std::int64_t>();
  std::sort(p.begin(), p.end());
  EXPECT_EQ(p, arange(50).to_vector<std::int64_t>());
}

// ---- promotion ------------------------------------------------------------------------------------------------------

TEST(Promotion, IsThatOfPyTorch) {
  const auto of = [](DType d, bool scalar) { return scalar ? zeros({}, d) : zeros({2}, d); };
  struct Case {
    Operand a, b;
    DType expected;
  };
  const Case cases[] = {
      {of(f32, false), of(f64, false), f64},
      {of(f32, false), of(f64, true), f32},
      {of(i64, false), of(f32, true), f32},
      {of(i32, false), of(i64, true), i32},
      {of(f16, false), of(bf16, false), f32},
      {of(i8, false), of(u8, false), i32},
      {of(boolean, false), of(i8, false), i8},
      {of(f16, false), 2.0, f16},
      {of(i32, false), 2, i32},
      {of(i32, false), 2.5, f32},
      {of(boolean, false), 1, i64},
      {of(boolean, false), true, boolean},
      {of(i64, true), of(i32, false), i32},
      {of(f64, true), of(i64, false), f64},
      {1.0, of(f64, false), f64},
  };
  for (const Case& c : cases) EXPECT_EQ(result_type(c.a, c.b), c.expected) << ir::name(c.expected);
}

// ---- printing: torch's own output -----------------------------------------------------------------------------------

TEST(Printing, IsThatOfPyTorch) {
  const std::pair<Tensor, const char*> cases[] = {
      {tensor({{1., 2.}, {3., 4.}}), "tensor([[1., 2.],\n        [3., 4.]])"},
      {tensor({0.5, -1.25}), "tensor([ 0.5000, -1.2500])"},
      {tensor({1e-5, 1.}), "tensor([1.0000e-05, 1.0000e+00])"},
      {tensor({1, -20}), "tensor([  1, -20])"},
      {tensor({true, false}), "tensor([ True, False])"},
      {tensor(3.5), "tensor(3.5000)"},
      {tensor(3), "tensor(3)"},
      {zeros({0}), "tensor([])"},
      {zeros({0, 3}), "tensor([], size=(0, 3))"},
      {zeros({2}, f64), "tensor([0., 0.], dtype=f64)"},
      {zeros({2}).requires_grad_(), "tensor([0., 0.], requires_grad=True)"},
      {arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"},
  };
  for (const auto& [t, expected] : cases) EXPECT_EQ(to_string(t), expected);
}

// ---- arithmetic and in-place ----------------------------------------------------------------------------------------

TEST(Arithmetic, ComputesAtOnce) {
  const Tensor x = tensor({1., 2., 3.}), n = tensor({1, 2, 3});
  EXPECT_EQ((x * 2 + 1).to_vector<double>(), (std::vector<double>{3, 5, 7}));
  EXPECT_EQ((1 - x).to_vector<double>(), (std::vector<double>{0, -1, -2}));
  EXPECT_EQ((n / 2).dtype(), f32);
  EXPECT_EQ((n / 2).to_vector<double>(), (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ((n + 1).dtype(), i64);
  EXPECT_EQ((-n).to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, -2, -3}));
  EXPECT_EQ((x > 1.5).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ((x.unsqueeze(1) * x).sum().item<double>(), 36);
  EXPECT_EQ(where(x > 2, x, 0).to_vector<double>(), (std::vector<double>{0, 0, 3}));
  EXPECT_EQ(n.pow(2).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 4, 9}));
  EXPECT_EQ((tensor({true, false}) + tensor({true, true})).dtype(), boolean);
  const Tensor yes = tensor({true}), one = tensor({1.0});
  for (const test::Call<Tensor()>& difference : std::vector<test::Call<Tensor()>>{
           [&] { return yes - yes; }, [&] { return one - yes; }, [&] { return yes - one; }, [&] { return yes - 1; },
           [&] { return 1.5 - yes; }, [&] { return one - true; }, [&] { return sub(one, yes, 2); }})
    EXPECT_NE(error_of([&] { (void)difference(); }).find("bools cannot be subtracted"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)(x + zeros({2})); }).find("tensor_test.cpp:"), std::string::npos);
}

TEST(Arithmetic, OperatorsOfBoolsAndIntegersAreThoseOfPyTorch) {
  const Tensor a = tensor({true, true, false, false}), b = tensor({true, false, true, false}), n = tensor({12, -7, 5});
  EXPECT_TRUE(equal(a & b, tensor({true, false, false, false})));
  EXPECT_TRUE(equal(a | b, tensor({true, true, true, false})));
  EXPECT_TRUE(equal(a ^ b, tensor({false, true, true, false})));
  EXPECT_TRUE(equal(!a, tensor({false, false, true, true})));
  EXPECT_TRUE(equal(~a, !a));
  EXPECT_TRUE(equal(~n, tensor({-13, 6, -6})));
  EXPECT_TRUE(equal(n & 6, tensor({4, 0, 4})));
  EXPECT_TRUE(equal(n % 5, tensor({2, 3, 0}))) << "the divisor's sign";
  EXPECT_TRUE(equal((n > 0) & (n != 5), tensor({true, false, false})));
  EXPECT_THROW(tensor({1.5}) & tensor({1.5}), UserError);
}

TEST(InPlace, ChangesTheTensorItself) {
  Tensor x = ones({2, 2});
  const Tensor same = x;
  x += 1;
  x.mul_(tensor({1., 10.}));
  EXPECT_EQ(same.to_vector<double>(), (std::vector<double>{2, 20, 2, 20}));
  Tensor n = arange(3);
  EXPECT_NE(error_of([&] { n.mul_(0.5); }).find("a result of f32 cannot be stored in i64[3]"), std::string::npos);
  EXPECT_NE(error_of([&] { x.add_(ones({3, 2, 2})); }).find("does not fit into f32[2,2]"), std::string::npos);
  EXPECT_EQ(x.clamp_(0, 5).to_vector<double>(), (std::vector<double>{2, 5, 2, 5}));
}

TEST(Tensor, MethodsAreTheFunctions) {
  const Tensor x = tensor({{3., -1., 2.}, {0.5, 4., -2.}}), y = tensor({{1., -1., 5.}, {2., 2., 2.}}),
               index = tensor({{0, 2}, {1, 0}});
  const std::vector<std::pair<Tensor, Tensor>> pairs = {
      {x.add(y), tensor({{4., -2., 7.}, {2.5, 6., 0.}})},
      {x.sub(1), tensor({{2., -2., 1.}, {-0.5, 3., -3.}})},
      {x.mul(y), tensor({{3., 1., 10.}, {1., 8., -4.}})},
      {x.eq(y), tensor({{false, true, false}, {false, false, false}})},
      {x.ne(y), tensor({{true, false, true}, {true, true, true}})},
      {x.lt(y), tensor({{false, false, true}, {true, false, true}})},
      {x.le(y), tensor({{false, true, true}, {true, false, true}})},
      {x.gt(0), tensor({{true, false, true}, {true, true, false}})},
      {x.ge(2), tensor({{true, false, true}, {false, true, false}})},
      {x.gt(0).logical_and(y.gt(1)), tensor({{false, false, true}, {true, true, false}})},
      {x.gt(3).logical_or(y.lt(0)), tensor({{false, true, false}, {false, true, false}})},
      {x.maximum(y), tensor({{3., -1., 5.}, {2., 4., 2.}})},
      {x.minimum(1), tensor({{1., -1., 1.}, {0.5, 1., -2.}})},
      {x.remainder(2), tensor({{1., 1., 0.}, {0.5, 0., 0.}})},
      {x.fmod(2), tensor({{1., -1., 0.}, {0.5, 0., -0.}})},
      {x.max(), tensor(4.)},
      {x.min(), tensor(-2.)},
      {std::get<0>(x.max(1)), tensor({3., 4.})},
      {std::get<1>(x.max(1)), tensor({0, 1})},
      {std::get<0>(x.min(0, true)), tensor({{0.5, -1., -2.}})},
      {x.median(), tensor(0.5)},
      {std::get<0>(x.median(1)), tensor({2., 0.5})},
      {std::get<0>(x.kthvalue(1)), tensor({-1., -2.})},
      {x.gt(0).count_nonzero(), tensor(4)},
      {x.gather(1, index), tensor({{3., 2.}, {4., 0.5}})},
      {x.scatter(1, index, 9.), tensor({{9., -1., 9.}, {9., 9., -2.}})},
      {x.scatter_add(1, index, ones({2, 2}, x.dtype())), tensor({{4., -1., 3.}, {1.5, 5., -2.}})},
      {x.index_select(1, tensor({2, 0})), tensor({{2., 3.}, {-2., 0.5}})},
      {x.index_add(0, tensor({1}), ones({1, 3}, x.dtype()), 2), tensor({{3., -1., 2.}, {2.5, 6., 0.}})},
      {x.take_along_dim(index, 1), tensor({{3., 2.}, {4., 0.5}})},
      {x[0].outer(x[1]), tensor({{1.5, 12., -6.}, {-0.5, -4., 2.}, {1., 8., -4.}})},
      {ones({2, 2}, x.dtype()).addmm(x, y.t(), 2, 0.5), tensor({{9., 6.}, {-4.75, 4.5}})},
      {matmul(x, y.t()).trace(), tensor(19.)},
      {x.clamp_min(0), tensor({{3., 0., 2.}, {0.5, 4., 0.}})},
      {x.clamp_max(1), tensor({{1., -1., 1.}, {0.5, 1., -2.}})},
      {x.div(0.).nan_to_num(0, 7, -7), tensor({{7., -7., 7.}, {7., 7., -7.}})},
      {x.flatten().view_as(x), x},
      {x.t().reshape_as(x), tensor({{3., 0.5, -1.}, {4., 2., -2.}})},
      {x[0].expand_as(x), tensor({{3., -1., 2.}, {3., -1., 2.}})},
      {x.gt(0).type_as(x), tensor({{1., 0., 1.}, {1., 1., 0.}})},
      {tensor({1., 2.}).diag_embed(1), tensor({{0., 1., 0.}, {0., 0., 2.}, {0., 0., 0.}})},
      {diag_embed(tensor({{1., 2.}, {3., 4.}}), -1, 0, 2),
       tensor({{{0., 0., 0.}, {0., 0., 0.}}, {{1., 0., 0.}, {3., 0., 0.}}, {{0., 2., 0.}, {0., 4., 0.}}})},
      {kron(tensor({{1, 2}, {3, 4}}), tensor({{0, 5}, {6, 7}})),
       tensor({{0, 5, 0, 10}, {6, 7, 12, 14}, {0, 15, 0, 20}, {18, 21, 24, 28}})},
      {kron(tensor({2., 3.}), tensor({{1.}, {4.}})), tensor({{2., 3.}, {8., 12.}})},
      {tensordot(arange(60.).reshape({3, 4, 5}), arange(24.).reshape({4, 3, 2}), {1, 0}, {0, 1}),
       tensor({{4400.F, 4730.F}, {4532.F, 4874.F}, {4664.F, 5018.F}, {4796.F, 5162.F}, {4928.F, 5306.F}})},
      {tensordot(x, y, 0).sum(), (x.sum() * y.sum())},
      {tril_indices(4, 3, -1), tensor({{1, 2, 2, 3, 3, 3}, {0, 0, 1, 0, 1, 2}})},
      {triu_indices(4, 3, 1), tensor({{0, 0, 1}, {1, 2, 2}})},
      {tril_indices(2, 0), zeros({2, 0}, i64)},
      {tensor({{1., std::nan(""), 2.}, {std::nan(""), std::nan(""), std::nan("")}}).nansum(1), tensor({3., 0.})},
      {tensor({1., std::nan(""), 2.}).nanmean(), tensor(1.5)},
      {isin(tensor({{1, 2}, {3, 4}}), tensor({2, 3})), tensor({{false, true}, {true, false}})},
      {isin(tensor({1, 2}), tensor({2, 3}), true), tensor({true, false})},
      // What is far below the largest is not lost.
      {tensor({-2000., -1000., 0., 1000., -1000.}).logcumsumexp(0), tensor({-2000., -1000., 0., 1000., 1000.})},
      {tensor({0., 0., 0., 0., 0.}).logcumsumexp(0).exp().round(), tensor({1., 2., 3., 4., 5.})},
      {x.diff(), tensor({{-4., 3.}, {3.5, -6.}})},
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(pairs[i].first.sizes(), pairs[i].second.sizes()) << i;
    EXPECT_EQ(pairs[i].first.dtype(), pairs[i].second.dtype()) << i;
    EXPECT_EQ(pairs[i].first.to_vector<double>(), pairs[i].second.to_vector<double>()) << i;
  }
}

TEST(Methods, CompareAsTheFunctionsDo) {
  const Tensor x = tensor({1.0, 2.0});
  EXPECT_TRUE(x.equal(x.clone()) && x.allclose(x + 1e-9) && x.is_floating_point());
  EXPECT_FALSE(x.equal(x + 1e-6) || x.allclose(x + 1) || x.to(i32).is_floating_point());
}

TEST(Parameters, AreAVectorAndBack) {
  nn::Linear layer(3, 2);
  const Tensor weights = nn::utils::parameters_to_vector(layer.parameters());
  EXPECT_EQ(weights.sizes(), (Sizes{8}));
  nn::utils::vector_to_parameters(arange(8.), layer.parameters());
  EXPECT_EQ(layer.weight.to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(layer.bias.to_vector<double>(), (std::vector<double>{6, 7}));
  EXPECT_TRUE(layer.bias.requires_grad() && weights.requires_grad());
  EXPECT_NE(test::error_of([&] {
              nn::utils::vector_to_parameters(arange(7.), layer.parameters());
            }).find("vector_to_parameters: expects a vector of 8 elements, got f32[7]"),
            std::string::npos);
}

TEST(Printing, SizesDtypesAndDevicesGoIntoStreams) {
  const Tensor x = ones({2, 3}).to(bf16);
  std::ostringstream out;
  out << x.shape() << " " << x.shape()[1] << " " << x.dtype() << " " << x.device() << " " << Shape{Dim("batch", 8), 4};
  EXPECT_EQ(out.str(), "[2,3] 3 bf16 cpu [batch,4]");
}

}  // namespace
}  // namespace graven
