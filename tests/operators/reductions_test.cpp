#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

std::vector<Tensor> pair_of(const std::tuple<Tensor, Tensor>& t) { return {std::get<0>(t), std::get<1>(t)}; }
VarianceOptions variance(const Fixture& f) {
  return {.correction = f.number("correction", 1), .keepdim = f.flag("keepdim")};
}
double order(const Fixture& f) {
  if (!f.is_text("p")) return f.number("p");
  return f.text("p") == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

TEST(Reductions, AgreeWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["var"] = one([](const Fixture& f) { return var(f.tensor("x"), f.sizes("dims"), variance(f)); });
  functions["std"] = one([](const Fixture& f) { return std(f.tensor("x"), f.sizes("dims"), variance(f)); });
  functions["var_mean"] = [](const Fixture& f) {
    return pair_of(var_mean(f.tensor("x"), f.sizes("dims"), variance(f)));
  };
  functions["std_mean"] = [](const Fixture& f) {
    return pair_of(std_mean(f.tensor("x"), f.sizes("dims"), variance(f)));
  };
  functions["norm"] =
      one([](const Fixture& f) { return norm(f.tensor("x"), order(f), f.sizes("dims"), f.flag("keepdim")); });
  functions["logsumexp"] =
      one([](const Fixture& f) { return logsumexp(f.tensor("input"), f.sizes("dim"), f.flag("keepdim")); });
  functions["all"] = one([](const Fixture& f) { return all(f.tensor("input"), f.sizes("dim"), f.flag("keepdim")); });
  functions["any"] = one([](const Fixture& f) { return any(f.tensor("input"), f.sizes("dim"), f.flag("keepdim")); });
  functions["count_nonzero"] = one([](const Fixture& f) { return count_nonzero(f.tensor("input"), f.sizes("dim")); });
  functions["cumsum"] = one([](const Fixture& f) { return cumsum(f.tensor("input"), f.integer("dim")); });
  functions["cumprod"] = one([](const Fixture& f) { return cumprod(f.tensor("input"), f.integer("dim")); });
  functions["argmax"] = one([](const Fixture& f) { return argmax(f.tensor("input")); });
  functions["argmin"] = one([](const Fixture& f) { return argmin(f.tensor("input")); });
  functions["sort"] = [](const Fixture& f) {
    return pair_of(sort(f.tensor("input"), f.integer("dim", -1), f.flag("descending")));
  };
  functions["argsort"] =
      one([](const Fixture& f) { return argsort(f.tensor("input"), f.integer("dim", -1), f.flag("descending")); });
  functions["topk"] = [](const Fixture& f) {
    return pair_of(topk(f.tensor("input"), f.integer("k"), f.integer("dim", -1), f.flag("largest", true)));
  };
  functions["kthvalue"] = [](const Fixture& f) {
    return pair_of(kthvalue(f.tensor("input"), f.integer("k"), f.integer("dim", -1), f.flag("keepdim")));
  };
  functions["median"] = one([](const Fixture& f) { return median(f.tensor("input")); });
  functions["median_dim"] = [](const Fixture& f) {
    return pair_of(median(f.tensor("input"), f.integer("dim"), f.flag("keepdim")));
  };
  functions["max_dim"] = [](const Fixture& f) {
    return pair_of(max(f.tensor("input"), f.integer("dim"), f.flag("keepdim")));
  };
  functions["min_dim"] = [](const Fixture& f) {
    return pair_of(min(f.tensor("input"), f.integer("dim"), f.flag("keepdim")));
  };
  functions["sum"] = one([](const Fixture& f) { return sum(f.tensor("x"), f.sizes("dims"), f.flag("keepdim")); });
  functions["mean"] = one([](const Fixture& f) { return mean(f.tensor("x"), f.sizes("dims"), f.flag("keepdim")); });
  functions["amax"] = one([](const Fixture& f) { return amax(f.tensor("x"), f.sizes("dims"), f.flag("keepdim")); });
  functions["amin"] = one([](const Fixture& f) { return amin(f.tensor("x"), f.sizes("dims"), f.flag("keepdim")); });
  functions["prod"] = one([](const Fixture& f) { return prod(f.tensor("x"), f.sizes("dims"), f.flag("keepdim")); });
  functions["argmax_dim"] =
      one([](const Fixture& f) { return argmax(f.tensor("input"), f.integer("dim"), f.flag("keepdim")); });
  functions["argmin_dim"] =
      one([](const Fixture& f) { return argmin(f.tensor("input"), f.integer("dim"), f.flag("keepdim")); });
  functions["softmax"] = one([](const Fixture& f) { return softmax(f.tensor("x"), f.integer("dim")); });
  functions["log_softmax"] = one([](const Fixture& f) { return log_softmax(f.tensor("x"), f.integer("dim")); });
  functions["cummax"] = [](const Fixture& f) { return pair_of(cummax(f.tensor("input"), f.integer("dim"))); };
  functions["cummin"] = [](const Fixture& f) { return pair_of(f.tensor("input").cummin(f.integer("dim"))); };
  functions["quantile"] = one([](const Fixture& f) {
    const std::optional<std::int64_t> dim = f.has("dim") ? std::optional(f.integer("dim")) : std::nullopt;
    const std::string kind = f.text("interpolation", "linear");
    if (f.is_list("q")) return quantile(f.tensor("x"), f.numbers("q"), dim, f.flag("keepdim"), kind);
    return f.tensor("x").quantile(f.number("q"), dim, f.flag("keepdim"), kind);
  });
  functions["searchsorted"] =
      one([](const Fixture& f) { return searchsorted(f.tensor("row"), f.tensor("values"), f.flag("right")); });
  functions["max"] = one([](const Fixture& f) { return max(f.tensor("x")); });
  functions["min"] = one([](const Fixture& f) { return min(f.tensor("x")); });
  functions["max_of_two"] = one([](const Fixture& f) { return max(f.tensor("x"), f.tensor("other")); });
  functions["min_of_two"] = one([](const Fixture& f) { return f.tensor("x").min(f.tensor("other")); });
  expect_family("reductions", functions);
}

TEST(Reductions, OfNothingAndOfScalars) {
  EXPECT_TRUE(all(zeros({0})).item<bool>());
  EXPECT_FALSE(any(zeros({0})).item<bool>());
  EXPECT_EQ(cumsum(zeros({0, 3}), 0).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(zeros({2, 0}).logsumexp(1).to_vector<float>(), std::vector<float>(2, -HUGE_VALF));
  EXPECT_EQ(zeros({0, 2}).logsumexp(1, true).sizes(), (Sizes{0, 1}));
  EXPECT_EQ(std::get<0>(sort(tensor(2.0))).item<double>(), 2.0);
  EXPECT_EQ(std::get<1>(topk(tensor({3, 1, 2}), 2)).to_vector<int>(), (std::vector<int>{0, 2}));
  EXPECT_EQ(tensor({1.0, 3.0}).std().item<float>(), std::sqrt(2.0f));
}

TEST(Reductions, TakeOneDimensionOrSeveral) {
  manual_seed(1);
  const Tensor x = randn({2, 3, 4});
  const struct {
    const char* name;
    Tensor one, several;
  } cases[] = {
      {"sum", x.sum(1), sum(x, {1})},
      {"sum of all", x.sum({}), sum(x)},
      {"mean", x.mean(-1, true), mean(x, {2}, true)},
      {"prod", x.prod(0), prod(x, {0})},
      {"prod of all", x.prod(), prod(x)},
      {"amax", x.amax(1), amax(x, {1})},
      {"amin", amin(x, -1), amin(x, {2})},
      {"var", x.var(0), var(x, {0})},
      {"var of all", x.var({}), var(x)},
      {"std", x.std(2, 0, true), std(x, {2}, {.correction = 0, .keepdim = true})},
      {"norm", x.norm(2, 1), norm(x, 2, {1})},
      {"logsumexp", x.logsumexp(1), logsumexp(x, {1})},
      {"all", (x > -1).all(1), all(x > -1, {1})},
      {"any", (x > 1).any(0, true), any(x > 1, {0}, true)},
      {"count_nonzero", x.count_nonzero(1), count_nonzero(x, {1})},
      {"flip", x.flip(1), flip(x, {1})},
      {"roll", x.roll(1, 2), roll(x, {1}, {2})},
      {"movedim", x.movedim(0, -1), movedim(x, {0}, {2})},
      {"several", x.sum({0, 2}), x.sum(2).sum(0)},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.one.shape(), c.several.shape()) << c.name;
    EXPECT_TRUE(allclose(c.one, c.several, 1e-6, 1e-6)) << c.name;
  }
}

TEST(Reductions, SearchForNumbersAmongIntegersIsExact) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 53;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor small = tensor({1, 2, 3}), bytes = tensor({1, 2, 3}, DType::u8), large = tensor({kLarge, kLarge + 2});
  const struct {
    const char* name;
    Tensor row;
    Scalar value;
    std::int64_t left, right;
  } cases[] = {
      {"between", small, 2.5, 2, 2},
      {"equal", small, 2.0, 1, 2},
      {"an integer", small, 2, 1, 2},
      {"below, as a fraction", tensor({0, 2, 3}), -0.5, 0, 0},
      {"negative among bytes", bytes, -1, 0, 0},
      {"above the bytes", bytes, 300, 3, 3},
      {"fraction among bytes", bytes, 1.5, 1, 1},
      {"what f64 has not", large, kLarge + 1, 1, 1},
      {"what f64 has", large, kLarge + 2, 1, 2},
      {"infinite", small, kInfinity, 3, 3},
      {"minus infinite", small, -kInfinity, 0, 0},
      {"none", small, std::numeric_limits<double>::quiet_NaN(), 3, 3},
      {"largest", tensor({std::numeric_limits<std::int64_t>::max()}), 1e30, 1, 1},
      {"among floats", tensor({1.0, 2.0, 3.0}), 2.5, 2, 2},
  };
  struct Search : nn::Graph<Search> {
    std::vector<Scalar> values;
    std::vector<Tensor> build(std::vector<Tensor> rows) {
      std::vector<Tensor> results;
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (const bool right : {false, true}) results.push_back(searchsorted(rows[i], values[i], right));
      return results;
    }
  } graph;
  std::vector<Tensor> rows;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(searchsorted(c.row, c.value).item<std::int64_t>(), c.left);
    EXPECT_EQ(searchsorted(c.row, c.value, true).item<std::int64_t>(), c.right);
    rows.push_back(c.row);
    graph.values.push_back(c.value);
  }
  const std::vector<Tensor> found = graph(rows);
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(cases[i].name);
    EXPECT_EQ(found[2 * i].item<std::int64_t>(), cases[i].left);
    EXPECT_EQ(found[2 * i + 1].item<std::int64_t>(), cases[i].right);
  }
}

TEST(Reductions, QuantilesOfMoreThanFloatsCanCountAreRefused) {
  const Tensor x = zeros({(std::int64_t{1} << 24) + 1});
  try {
    (void)quantile(x, 0.5);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("quantile: the input is too large: at most 16777216 elements of f32"),
              std::string::npos)
        << e.what();
  }
}

TEST(Reductions, RefuseWhatHasNoMeaning) {
  const Tensor x = zeros({2, 3});
  EXPECT_THROW(var(x.to(i64)), UserError);
  EXPECT_THROW(topk(x, 4), UserError);
  EXPECT_THROW(topk(x, -1), UserError);
  EXPECT_THROW(kthvalue(x, 0), UserError);
  EXPECT_THROW(median(zeros({2, 0}), 1), UserError);
  EXPECT_THROW(cumsum(x, 2), UserError);
  EXPECT_THROW(sort(x, -3), UserError);
  EXPECT_THROW(cummax(x, 2), UserError);
  EXPECT_THROW(quantile(x, 1.5), UserError);
  EXPECT_THROW(quantile(x, std::numeric_limits<double>::quiet_NaN()), UserError);
  EXPECT_THROW(quantile(x, std::vector<double>{}), UserError);
  EXPECT_THROW(quantile(x, 0.5, 0, false, "cubic"), UserError);
  EXPECT_THROW(quantile(x.to(i64), 0.5), UserError);
  EXPECT_THROW(quantile(zeros({0}), 0.5), UserError);
  EXPECT_THROW(searchsorted(x, zeros({3, 3})), UserError);
  EXPECT_THROW(searchsorted(tensor(1.0), x), UserError);
}

}  // namespace
}  // namespace graven::tests
