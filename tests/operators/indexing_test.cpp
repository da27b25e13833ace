#include <gtest/gtest.h>

#include <sstream>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

/// "i,1:,..." is {the input i, Slice(1, None), Ellipsis}.
std::vector<TensorIndex> entries(const Fixture& f) {
  std::vector<TensorIndex> indices;
  std::istringstream text(f.text("at"));
  for (std::string part; std::getline(text, part, ',');) {
    if (f.tensor(part).defined()) {
      indices.emplace_back(f.tensor(part));
    } else if (part == "...") {
      indices.emplace_back(indexing::Ellipsis);
    } else if (part == "None") {
      indices.emplace_back(indexing::None);
    } else if (part.find(':') != std::string::npos) {
      std::istringstream bounds(part);
      indexing::Slice slice;
      indexing::Slice::Bound* next[] = {&slice.start, &slice.stop, &slice.step};
      int k = 0;
      for (std::string bound; std::getline(bounds, bound, ':'); ++k)
        if (!bound.empty()) *next[k] = std::stoi(bound);
      indices.emplace_back(slice);
    } else {
      indices.emplace_back(std::stoi(part));
    }
  }
  return indices;
}

TEST(Indexing, AgreesWithPyTorch) {
  const auto input = [](const Fixture& f) { return f.tensor("input"); };
  const auto at = [](const Fixture& f) { return f.tensor("index"); };
  expect_family(
      "indexing",
      {
          {"embedding", one([=](const Fixture& f) {
             return embedding(at(f), f.tensor("weight"),
                              f.has("padding_idx") ? std::optional(f.integer("padding_idx")) : std::nullopt);
           })},
          {"embedding_bag", one([=](const Fixture& f) {
             EmbeddingBagFunctionOptions o{.offsets = f.tensor("offsets"),
                                           .mode = f.text("mode"),
                                           .per_sample_weights = f.tensor("per_sample_weights"),
                                           .include_last_offset = f.flag("include_last_offset")};
             if (f.has("padding_idx")) o.padding_idx = f.integer("padding_idx");
             return embedding_bag(at(f), f.tensor("weight"), o);
           })},
          {"one_hot", one([](const Fixture& f) { return one_hot(f.tensor("tensor"), f.integer("num_classes", -1)); })},
          {"gather", one([=](const Fixture& f) { return gather(input(f), f.integer("dim"), at(f)); })},
          {"scatter",
           one([=](const Fixture& f) { return scatter(input(f), f.integer("dim"), at(f), f.tensor("src")); })},
          {"scatter_value",
           one([=](const Fixture& f) { return scatter(input(f), f.integer("dim"), at(f), f.number("value")); })},
          {"scatter_add",
           one([=](const Fixture& f) { return scatter_add(input(f), f.integer("dim"), at(f), f.tensor("src")); })},
          {"scatter_reduce", one([=](const Fixture& f) {
             return scatter_reduce(input(f), f.integer("dim"), at(f), f.tensor("src"), f.text("reduce"),
                                   f.flag("include_self"));
           })},
          {"index_select", one([=](const Fixture& f) { return index_select(input(f), f.integer("dim"), at(f)); })},
          {"index", one([=](const Fixture& f) { return index(input(f), f.integer("dim"), at(f)); })},
          {"index_add", one([=](const Fixture& f) {
             return index_add(input(f), f.integer("dim"), at(f), f.tensor("source"), f.number("alpha", 1));
           })},
          {"index_tensors", one([=](const Fixture& f) { return input(f).index(entries(f)); })},
          {"index_put", one([=](const Fixture& f) {
             return input(f).index_put(entries(f), f.tensor("values"), f.flag("accumulate"));
           })},
          {"index_put_value",
           one([=](const Fixture& f) { return index_put(input(f), entries(f), f.number("value")); })},
          {"index_copy",
           one([=](const Fixture& f) { return index_copy(input(f), f.integer("dim"), at(f), f.tensor("source")); })},
          {"index_fill",
           one([=](const Fixture& f) { return index_fill(input(f), f.integer("dim"), at(f), f.number("value")); })},
          {"index_fill_tensor",
           one([=](const Fixture& f) { return input(f).index_fill(f.integer("dim"), at(f), f.tensor("value")); })},
          {"bincount", one([=](const Fixture& f) { return bincount(input(f), {}, f.integer("minlength")); })},
          {"bincount_weights",
           one([=](const Fixture& f) { return input(f).bincount(f.tensor("weights"), f.integer("minlength")); })},
          {"take", one([=](const Fixture& f) { return take(input(f), at(f)); })},
          {"take_along_dim_of_all",
           one([=](const Fixture& f) { return take_along_dim(input(f), f.tensor("indices")); })},
          {"take_along_dim",
           one([=](const Fixture& f) { return take_along_dim(input(f), f.tensor("indices"), f.integer("dim")); })},
      });
}

TEST(Indexing, AnIndexOutOfRangeIsAnError) {
  const auto error_of = [](const auto& call) -> std::string {
    try {
      (void)call();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  const Tensor x = zeros({3, 4}), below = tensor({0, -1}), above = tensor({0, 3});
  const struct {
    std::string wanted, found;
  } cases[] = {
      {"index 3 at position 1 is outside [0, 3)", error_of([&] { return embedding(above, x); })},
      {"index -1 at position 1 is outside [0, 3)", error_of([&] { return embedding(below, x); })},
      {"index 3 at position 1 is outside [0, 3)", error_of([&] { return index_select(x, 0, above); })},
      {"index -1 at position 1 is outside [0, 3)", error_of([&] { return index_select(x, 0, below); })},
      {"index 3 at position 1 is outside [0, 3)", error_of([&] { return index(x, 0, above); })},
      {"index -4 at position 1 is outside [-3, 3)", error_of([&] { return index(x, 0, tensor({0, -4})); })},
      {"index_fill: index -4 at position 1 is outside [-3, 3)",
       error_of([&] { return index_fill(x, 0, tensor({0, -4}), 1.0); })},
      {"one_hot: the class 9223372036854775807 is too large",
       error_of([&] { return one_hot(tensor({0, std::numeric_limits<std::int64_t>::max()})); })},
      {"bincount: the number 9223372036854775807 is too large",
       error_of([&] { return bincount(tensor({0, std::numeric_limits<std::int64_t>::max()})); })},
      {"index_fill: the numbers of u8 lie in [0, 255], got 300",
       error_of([&] { return index_fill(zeros({3}, DType::u8), 0, tensor({0}), 300); })},
      {"index_fill: the numbers of i8 lie in [-128, 127], got -129",
       error_of([&] { return index_fill(zeros({3}, DType::i8), 0, tensor({0}), -129); })},
      {"index_fill: the numbers of i64 lie in [-9223372036854775808, 9223372036854775807], got 1e+30",
       error_of([&] { return index_fill(zeros({3}, DType::i64), 0, tensor({0}), 1e30); })},
      {"gather: index 3 at position 1 is outside [0, 3)", error_of([&] { return gather(x, 0, above.unsqueeze(1)); })},
      {"scatter: index 3 at position 1 is outside [0, 3)",
       error_of([&] { return scatter(x, 0, above.unsqueeze(1), 1.0); })},
      {"scatter_add: index -1 at position 1 is outside [0, 3)",
       error_of([&] { return scatter_add(x, 0, below.unsqueeze(1), ones({2, 1})); })},
      {"index_add: index 3 at position 1 is outside [0, 3)",
       error_of([&] { return index_add(x, 0, above, ones({2, 4})); })},
      {"one_hot: class 3 at position 1 is outside [0, 3)", error_of([&] { return one_hot(above, 3); })},
      {"one_hot: class -1 at position 1 is outside [0, 1)", error_of([&] { return one_hot(below); })},
      {"index 3 at position 1 is outside [0, 3)",
       error_of([&] { return scatter_reduce(x, 0, above.unsqueeze(1), ones({2, 1}), "sum"); })},
      {"index 3 at position 2 is outside [0, 3)",
       error_of([&] { return scatter_reduce(zeros({3}), 0, tensor({1, 0, 3, 2}), tensor({4., 3., 2., 1.}), "prod"); })},
      {"index 3 at position 2 is outside [0, 3)",
       error_of([&] { return scatter_reduce(zeros({3}), 0, tensor({1, 0, 3, 2}), tensor({4., 3., 2., 1.}), "amax"); })},
      {"reduce must be sum, prod, mean, amax or amin, got 'max'",
       error_of([&] { return scatter_reduce(x, 0, below.unsqueeze(1), ones({2, 1}), "max"); })},
      {"the source must be f32, as the input is, got i64[2,1]",
       error_of([&] { return scatter_reduce(x, 0, below.unsqueeze(1), ones({2, 1}, i64), "sum"); })},
      {"the mean is of floating-point numbers, got i64[3,4]",
       error_of([&] { return scatter_reduce(x.to(i64), 0, below.unsqueeze(1), ones({2, 1}, i64), "mean"); })},
      {"the index must have as many dimensions as the input, got i64[2] and f32[3,4]",
       error_of([&] { return scatter_reduce(x, 0, below, ones({2}), "sum"); })},
      {"the index must not be larger than the source, got i64[2,1] and f32[1,1]",
       error_of([&] { return scatter_reduce(x, 0, below.unsqueeze(1), ones({1, 1}), "amin"); })},
      {"index 3 at position 1 is outside [0, 3)", error_of([&] { return x.index({above, below}); })},
      {"index 4 at position 0 is outside [0, 4)", error_of([&] { return x.index({tensor({0}), tensor({4})}); })},
      {"index -5 at position 0 is outside [-4, 4)", error_of([&] { return x.index({tensor({0}), tensor({-5})}); })},
      {"index: the index tensors must broadcast together, got i64[3] beside i64[2]",
       error_of([&] { return x.index({below, tensor({0, 1, 2})}); })},
      {"a tensor that is an index must be of i64, i32 or i8, got bool[3,4]",
       error_of([&] { return x.index({x > 0}); })},
      {"index: the index must be of integers, got f32[2]", error_of([&] { return x.index({ones({2}), below}); })},
      {"index: 3 indices for f32[3,4]", error_of([&] { return x.index({below, below, below}); })},
      {"index 3 at position 4 is outside [0, 3)", error_of([&] { return index_copy(x, 0, above, ones({2, 4})); })},
      {"index 3 at position 4 is outside [0, 3)", error_of([&] { return index_fill(x, 0, above, 1.0); })},
      {"index -4 at position 0 is outside [-3, 3)", error_of([&] { return index_fill(x, 0, tensor({-4}), 1.0); })},
      {"index_copy: the source must be f32[2,4], a slice for each index, got f32[2,3]",
       error_of([&] { return index_copy(x, 0, below, ones({2, 3})); })},
      {"index_copy: the index must be a vector, got i64[2,1]",
       error_of([&] { return index_copy(x, 0, below.unsqueeze(1), ones({2, 4})); })},
      {"index_fill: the value must be a number or a tensor without dimensions, got f32[2]",
       error_of([&] { return index_fill(x, 0, below, ones({2})); })},
      {"bincount: the numbers must not be negative, got -1", error_of([&] { return bincount(below); })},
      {"bincount: expects a vector, got i64[3,4]", error_of([&] { return bincount(x.to(i64)); })},
      {"bincount: the index must be of integers, got f32[3]", error_of([&] { return bincount(zeros({3})); })},
      {"bincount: the weights must have the shape of the numbers, got f32[3] for i64[2]",
       error_of([&] { return bincount(above, ones({3})); })},
      {"bincount: minlength must not be negative, got -2", error_of([&] { return bincount(above, {}, -2); })},
      {"index 12 at position 1 is outside [0, 12)", error_of([&] { return take(x, tensor({0, 12})); })},
      {"index 3 at position 1 is outside [0, 3)", error_of([&] { return index_put(x, {above}, 1.0); })},
      {"index_put: the values must broadcast to [2,4], got f32[3]",
       error_of([&] { return index_put(x, {below}, ones({3})); })},
      {"index_put: the values must be f32, as the input is, got i64[4]",
       error_of([&] { return index_put(x, {below}, ones({4}, i64)); })},
      {"index_put: the indices must be tensors, Slice() and the ellipsis",
       error_of([&] { return index_put(x, {0, below}, 1.0); })},
      {"index_put: expects one index tensor at least",
       error_of([&] { return index_put(x, {indexing::Slice()}, 1.0); })},
      {"index 3 at position 1 is outside [0, 3)",
       error_of([&] { return embedding_bag(above, x, {.offsets = tensor({0})}); })},
      {"index 3 at position 1 is outside [0, 3)",
       error_of([&] { return embedding_bag(tensor({0, 1}), x, {.offsets = tensor({0, 3})}); })},
      {"embedding_bag: the first offset must be 0, got 1",
       error_of([&] { return embedding_bag(tensor({0, 1}), x, {.offsets = tensor({1, 2})}); })},
      {"embedding_bag: the offsets must be a vector of integers, got f32[1]",
       error_of([&] { return embedding_bag(tensor({0, 1}), x, {.offsets = zeros({1})}); })},
      {"embedding_bag: a vector of indices needs offsets", error_of([&] { return embedding_bag(tensor({0, 1}), x); })},
      {"embedding_bag: offsets are for a vector of indices; each row of i64[1,2] is a bag",
       error_of([&] { return embedding_bag(tensor({{0, 1}}), x, {.offsets = tensor({0})}); })},
      {"embedding_bag: mode must be sum, mean or max, got 'min'",
       error_of([&] { return embedding_bag(tensor({{0, 1}}), x, {.mode = "min"}); })},
      {"embedding_bag: per_sample_weights are for the mode sum, not 'mean'",
       error_of([&] { return embedding_bag(tensor({{0, 1}}), x, {.per_sample_weights = ones({1, 2})}); })},
      {"embedding_bag: the per_sample_weights must be of the indices' shape and of the weight's dtype, f32[1,2], got "
       "f32[2]",
       error_of([&] { return embedding_bag(tensor({{0, 1}}), x, {.mode = "sum", .per_sample_weights = ones({2})}); })},
      {"EmbeddingBag: mode must be sum, mean or max, got 'min'", error_of([&] {
         nn::EmbeddingBag(3, 4, {.mode = "min"});
         return x;
       })},
      {"EmbeddingBag: padding_idx must be one of the 3 rows, got -4", error_of([&] {
         nn::EmbeddingBag(3, 4, {.padding_idx = -4});
         return x;
       })},
      {"the index must be of integers, got f32[2]", error_of([&] { return embedding(ones({2}), x); })},
      {"padding_idx must be one of the 3 rows, got 3", error_of([&] { return embedding(below, x, 3); })},
  };
  for (const auto& c : cases) EXPECT_NE(c.found.find(c.wanted), std::string::npos) << c.wanted << "\n" << c.found;
}

TEST(Indexing, PaddingStartsAsZeroAndIsNotTrained) {
  nn::Embedding table(4, 3, {.padding_idx = -1});
  EXPECT_EQ(table.weight[3].to_vector<double>(), (std::vector<double>{0, 0, 0}));
  table(tensor({3, 1, 3})).sum().backward();
  EXPECT_EQ(table.weight.grad().to_vector<double>(), (std::vector<double>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace graven::tests
