// Every function of the library, with what it makes of symbols.
#include <tuple>
#include <utility>

#include "tests/call.h"
#include "tests/symbols/rows.h"

namespace graven::symbols_test {

namespace {

using Unary = Tensor (*)(const Operand&);
using Binary = Tensor (*)(const Operand&, const Operand&);

template <class Tuple>
R both(const Tuple& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

void add_pointwise(std::vector<Row>& rows) {
  const std::pair<const char*, Unary> anywhere[] = {{"neg", neg},
                                                    {"abs", abs},
                                                    {"sign", sign},
                                                    {"exp", exp},
                                                    {"expm1", expm1},
                                                    {"square", square},
                                                    {"sin", sin},
                                                    {"cos", cos},
                                                    {"erf", erf},
                                                    {"floor", floor},
                                                    {"ceil", ceil},
                                                    {"round", round},
                                                    {"relu", relu},
                                                    {"relu6", relu6},
                                                    {"sigmoid", sigmoid},
                                                    {"tanh", tanh},
                                                    {"silu", silu},
                                                    {"tan", tan},
                                                    {"asin", asin},
                                                    {"acos", acos},
                                                    {"atan", atan},
                                                    {"sinh", sinh},
                                                    {"cosh", cosh},
                                                    {"asinh", asinh},
                                                    {"atanh", atanh},
                                                    {"exp2", exp2},
                                                    {"erfc", erfc},
                                                    {"trunc", trunc},
                                                    {"frac", frac},
                                                    {"isnan", isnan},
                                                    {"isinf", isinf},
                                                    {"isfinite", isfinite},
                                                    {"mish", mish},
                                                    {"selu", selu},
                                                    {"log1p", log1p},
                                                    {"softsign", softsign},
                                                    {"hardsigmoid", hardsigmoid},
                                                    {"hardswish", hardswish},
                                                    {"tanhshrink", tanhshrink},
                                                    {"logsigmoid", logsigmoid},
                                                    {"logical_not", logical_not}};
  for (const auto& [name, function] : anywhere)
    rows.push_back(row(name, {f("a4 b3", -0.9, 0.9)}, [f = function](X x) { return R{f(x[0])}; }));
  const std::pair<const char*, Unary> positive[] = {
      {"log", log},     {"log2", log2},   {"log10", log10},          {"sqrt", sqrt},
      {"rsqrt", rsqrt}, {"acosh", acosh}, {"reciprocal", reciprocal}};
  for (const auto& [name, function] : positive)
    rows.push_back(row(name, {f("a4 b3", 1.5, 3)}, [f = function](X x) { return R{f(x[0])}; }));
  const std::pair<const char*, Binary> binaries[] = {{"mul", mul},
                                                     {"div", div},
                                                     {"pow", pow},
                                                     {"maximum", maximum},
                                                     {"minimum", minimum},
                                                     {"eq", eq},
                                                     {"ne", ne},
                                                     {"lt", lt},
                                                     {"le", le},
                                                     {"gt", gt},
                                                     {"ge", ge},
                                                     {"logical_and", logical_and},
                                                     {"logical_or", logical_or},
                                                     {"logical_xor", logical_xor},
                                                     {"atan2", atan2},
                                                     {"logaddexp", logaddexp},
                                                     {"floor_divide", floor_divide},
                                                     {"remainder", remainder},
                                                     {"fmod", fmod}};
  for (const auto& [name, function] : binaries) {
    rows.push_back(
        row(name, {f("a4 b3", 0.5, 2), f("a4 b3", 0.5, 2)}, [f = function](X x) { return R{f(x[0], x[1])}; }));
    rows.push_back(
        row(name, {f("a4 b3", 0.5, 2), f("b3", 0.5, 2)}, [f = function](X x) { return R{f(x[0], x[1]), f(x[0], 2)}; }));
  }
  const std::pair<const char*, Binary> bits[] = {
      {"bitwise_and", bitwise_and}, {"bitwise_or", bitwise_or}, {"bitwise_xor", bitwise_xor}};
  for (const auto& [name, function] : bits)
    rows.push_back(row(name, {i("a4 b3", 9), i("a4 b3", 9)}, [f = function](X x) { return R{f(x[0], x[1])}; }));
  const std::vector<Row> others{
      row("xlogy", {f("a4 b3"), f("b3", 1, 2)},
          [](X x) { return R{xlogy(x[0], x[1]), xlogy(2, x[1]), xlogy(x[0], 2)}; }),
      row("add", {f("a4 b3"), f("a4 1")}, [](X x) { return R{add(x[0], x[1], 2), x[0] + x[1], x[0] + 1}; }),
      row("sub", {f("a4 b3"), f("1 b3")}, [](X x) { return R{sub(x[0], x[1], 2), 1 - x[0]}; }),
      row("div", {f("a4 b3", 1, 2), f("a4 b3", 1, 2)},
          [](X x) { return R{div(x[0], x[1], "floor"), div(x[0], x[1], "trunc")}; }),
      row("bitwise_not", {i("a4 b3", 9)}, [](X x) { return R{bitwise_not(x[0])}; }),
      row("where", {o("a4 b3"), f("a4 b3"), f("a4 1")},
          [](X x) { return R{where(x[0], x[1], x[2]), where(x[0], x[1], 0)}; }),
      without("12", row("clamp", {f("a4 b3"), f("b3", -1, 0), f("b3", 0, 1)},
                        [](X x) { return R{clamp(x[0], -0.5, 0.5), clamp(x[0], x[1], x[2])}; })),
      without("12", row("clip", {f("a4 b3"), f("b3", -1, 0), f("b3", 0, 1)},
                        [](X x) { return R{clip(x[0], -0.5, 0.5), clip(x[0], x[1], x[2])}; })),
      row("isclose", {f("a4 b3"), f("b3")}, [](X x) { return R{isclose(x[0], x[1], 0.5)}; }),
      row("gelu", {f("a4 b3")}, [](X x) { return R{gelu(x[0]), gelu(x[0], "tanh")}; }),
      row("softplus", {f("a4 b3")}, [](X x) { return R{softplus(x[0], 2)}; }),
      row("leaky_relu", {f("a4 b3")}, [](X x) { return R{leaky_relu(x[0])}; }),
      row("elu", {f("a4 b3")}, [](X x) { return R{elu(x[0])}; }),
      row("celu", {f("a4 b3")}, [](X x) { return R{celu(x[0], 2)}; }),
      row("hardtanh", {f("a4 b3")}, [](X x) { return R{hardtanh(x[0], -0.5, 0.5)}; }),
      row("softshrink", {f("a4 b3")}, [](X x) { return R{softshrink(x[0])}; }),
      row("hardshrink", {f("a4 b3")}, [](X x) { return R{hardshrink(x[0])}; }),
      row("threshold", {f("a4 b3")}, [](X x) { return R{threshold(x[0], 0.2, 3)}; }),
      row("nan_to_num", {f("a4 b3")}, [](X x) { return R{nan_to_num(x[0])}; }),
      row("lerp", {f("a4 b3"), f("a4 b3"), f("b3")},
          [](X x) { return R{lerp(x[0], x[1], x[2]), lerp(x[0], x[1], 0.5)}; }),
      row("addcmul", {f("a4 b3"), f("a4 1"), f("b3")}, [](X x) { return R{addcmul(x[0], x[1], x[2], 2)}; }),
      row("addcdiv", {f("a4 b3"), f("a4 1"), f("b3", 1, 2)}, [](X x) { return R{addcdiv(x[0], x[1], x[2], 2)}; }),
      row("prelu", {f("a4 b3 c2"), f("b3")}, [](X x) { return R{prelu(x[0], x[1])}; }),
      row("logit", {f("a4 b3", 0.1, 0.9)}, [](X x) { return R{logit(x[0]), logit(x[0], 0.2)}; }),
      row(
          "glu", {f("a4 b4")}, [](X x) { return R{glu(x[0])}; }, "b"),
      row("softmax", {f("a4 b3 c2")}, [](X x) { return R{softmax(x[0], 0), softmax(x[0], 1), softmax(x[0], -1)}; }),
      row("log_softmax", {f("a4 b3 c2")},
          [](X x) { return R{log_softmax(x[0], 0), log_softmax(x[0], 1), log_softmax(x[0], -1)}; }),
      row("softmin", {f("a4 b3 c2")}, [](X x) { return R{softmin(x[0], 0), softmin(x[0], 1), softmin(x[0], -1)}; }),
  };
  rows.insert(rows.end(), others.begin(), others.end());
}

void add_factories(std::vector<Row>& rows) {
  const std::vector<Row> more{
      row("empty", {f("a4 b3")}, [](X x) { return R{x[0] + empty({x[0].shape()[0], 1}).zero_()}; }),
      row("zeros", {f("a4 b3")}, [](X x) { return R{x[0] + zeros(x[0].shape()), zeros({x[0].shape()[0], 2}, i64)}; }),
      row("ones", {f("a4 b3")},
          [](X x) { return R{x[0] * ones({x[0].shape()[0], 1}), ones({2, x[0].shape()[1]}, boolean)}; }),
      row("full", {f("a4 b3")}, [](X x) { return R{x[0] * full(x[0].shape(), 2.5), full({x[0].shape()[0]}, 7, i64)}; }),
      row("empty_like", {f("a4 b3")}, [](X x) { return R{x[0] + empty_like(x[0]).zero_()}; }),
      row("zeros_like", {f("a4 b3")}, [](X x) { return R{x[0] + zeros_like(x[0])}; }),
      row("ones_like", {f("a4 b3")}, [](X x) { return R{x[0] * ones_like(x[0])}; }),
      row("full_like", {f("a4 b3")}, [](X x) { return R{x[0] * full_like(x[0], 3)}; }),
      row("new_empty", {f("a4 b3")}, [](X x) { return R{x[0] + x[0].new_empty({x[0].shape()[0], 1}).zero_()}; }),
      row("new_zeros", {f("a4 b3")}, [](X x) { return R{x[0] + x[0].new_zeros(x[0].shape())}; }),
      row("new_ones", {f("a4 b3")}, [](X x) { return R{x[0] * x[0].new_ones({x[0].shape()[0], 1})}; }),
      row("new_full", {f("a4 b3")}, [](X x) { return R{x[0] * x[0].new_full({x[0].shape()[0], 1}, 3)}; }),
      row("arange", {f("a4 b3")}, [](X x) { return R{x[0] * arange(x[0].shape()[1]), arange(x[0].shape()[0])}; }),
      row("size_of", {f("a4 b3")},
          [](X x) { return R{x[0] / size_of(x[0], 0), size_of(x[0], -1), size_of(x[0].flatten(), 0)}; }),
      random_row("rand", {f("a4 b3")}, [](X x) { return R{x[0] + rand(x[0].shape()), rand({x[0].shape()[0], 2})}; }),
      random_row("randn", {f("a4 b3")}, [](X x) { return R{x[0] + randn(x[0].shape()), randn({x[0].shape()[0], 2})}; }),
      random_row("randint", {f("a4 b3")}, [](X x) { return R{x[0] + randint(0, 5, x[0].shape())}; }),
      random_row("rand_like", {f("a4 b3")}, [](X x) { return R{x[0] + rand_like(x[0])}; }),
      random_row("randn_like", {f("a4 b3")}, [](X x) { return R{x[0] + randn_like(x[0])}; }),
      random_row("bernoulli", {f("a4 b3", 0, 1)}, [](X x) { return R{x[0] + bernoulli(x[0])}; }),
      random_row("gumbel_softmax", {f("a4 b3")},
                 [](X x) { return R{gumbel_softmax(x[0]), gumbel_softmax(x[0], 2, true)}; }),
      random_row(
          "multinomial", {f("a4 b3", 1, 2)}, [](X x) { return R{multinomial(x[0], 2), multinomial(x[0], 4, true)}; },
          "b"),
      random_row("dropout", {f("a4 b3")}, [](X x) { return R{dropout(x[0])}; }),
      random_row("dropout1d", {f("a4 b3 c2")}, [](X x) { return R{dropout1d(x[0])}; }),
      random_row("dropout2d", {f("a4 b3 c2 d2")}, [](X x) { return R{dropout2d(x[0])}; }),
      random_row("dropout3d", {f("a4 b3 c2 d2 e2")}, [](X x) { return R{dropout3d(x[0])}; }),
      random_row("alpha_dropout", {f("a4 b3")}, [](X x) { return R{alpha_dropout(x[0])}; }),
      random_row("stochastic_depth", {f("a4 b3")},
                 [](X x) { return R{stochastic_depth(x[0], 0.5), stochastic_depth(x[0], 0.5, "batch")}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_reductions(std::vector<Row>& rows) {
  using Reduction = Tensor (*)(const Operand&, const OneOrMore&, bool);
  const std::pair<const char*, Reduction> reductions[] = {
      {"sum", sum}, {"mean", mean}, {"amax", amax}, {"amin", amin}, {"prod", prod}, {"all", all}, {"any", any}};
  for (const auto& [name, function] : reductions)
    rows.push_back(row(name, {f("a4 b3 c2")}, [f = function](X x) {
      return R{f(x[0], {}, false), f(x[0], {0}, false), f(x[0], {1}, true), f(x[0], {0, 2}, false)};
    }));
  const std::vector<Row> more{
      row("argmax", {f("a4 b3")}, [](X x) { return R{argmax(x[0]), argmax(x[0], 0), argmax(x[0], 1, true)}; }),
      row("argmin", {f("a4 b3")}, [](X x) { return R{argmin(x[0]), argmin(x[0], 0), argmin(x[0], 1, true)}; }),
      row("var", {f("a4 b3 c2")},
          [](X x) {
            return R{var(x[0]), var(x[0], {0}), var(x[0], {1}, {.correction = 0, .keepdim = true}), var(x[0], {0, 2})};
          }),
      row("std", {f("a4 b3 c2")},
          [](X x) { return R{std(x[0]), std(x[0], {0, 1}), std(x[0], {1}, {.correction = 0, .keepdim = true})}; }),
      row("var_mean", {f("a4 b3")}, [](X x) { return both(var_mean(x[0], {0}, {.correction = 0.5})); }),
      row("std_mean", {f("a4 b3")}, [](X x) { return both(std_mean(x[0], {1}, {.correction = 0.5})); }),
      row("norm", {f("a4 b3")}, [](X x) { return R{norm(x[0]), norm(x[0], 1, {0}), norm(x[0], 3, {1}, true)}; }),
      row("logsumexp", {f("a4 b3")},
          [](X x) { return R{logsumexp(x[0], {0}), logsumexp(x[0], {0, 1}), logsumexp(x[0], {1}, true)}; }),
      row("count_nonzero", {i("a4 b3", 2)}, [](X x) { return R{count_nonzero(x[0]), count_nonzero(x[0], {0})}; }),
      row(
          "logcumsumexp", {f("a4 b3")}, [](X x) { return R{logcumsumexp(x[0], 1)}; }, "b"),
      row("nansum", {f("a4 b3")}, [](X x) { return R{nansum(x[0]), nansum(x[0], 1, true)}; }),
      row("nanmean", {f("a4 b3")}, [](X x) { return R{nanmean(x[0]), nanmean(x[0], 0)}; }),
      row("isin", {i("a4 b3", 5), i("c2", 5)}, [](X x) { return R{isin(x[0], x[1]), isin(x[0], x[1], true)}; }),
      row("cumsum", {f("a4 b3")}, [](X x) { return R{cumsum(x[0], 0), cumsum(x[0], 1)}; }),
      row("cumprod", {f("a4 b3")}, [](X x) { return R{cumprod(x[0], 0), cumprod(x[0], 1)}; }),
      row("sort", {f("a4 b3")}, [](X x) { return both(sort(x[0], 0)); }),
      row("sort", {f("a4 b3")}, [](X x) { return both(sort(x[0], 1, true)); }),
      row("argsort", {f("a4 b3")}, [](X x) { return R{argsort(x[0], 0), argsort(x[0], 1)}; }),
      row("topk", {f("a4 b3")}, [](X x) { return both(topk(x[0], 1, 0)); }),
      row("topk", {f("a4 b3")}, [](X x) { return both(topk(x[0], 2, 0, false)); }),
      row("topk", {f("a4 b3")}, [](X x) { return both(topk(x[0], 2, 1)); }),
      row("kthvalue", {f("a4 b3")}, [](X x) { return both(kthvalue(x[0], 2, 0)); }),
      row("kthvalue", {f("a4 b3")}, [](X x) { return both(kthvalue(x[0], 1, 1, true)); }),
      row("median", {f("a4 b3")}, [](X x) { return R{median(x[0])}; }),
      row("median", {f("a4 b3")}, [](X x) { return both(median(x[0], 0)); }),
      row("median", {f("a4 b3")}, [](X x) { return both(median(x[0], 1, true)); }),
      row("max", {f("a4 b3"), f("b3")}, [](X x) { return R{max(x[0]), max(x[0], x[1])}; }),
      row("min", {f("a4 b3"), f("b3")}, [](X x) { return R{min(x[0]), min(x[0], x[1])}; }),
      row(
          "cummax", {f("a4 b3")}, [](X x) { return both(cummax(x[0], 1)); }, "b"),
      row(
          "cummin", {f("a4 b3")}, [](X x) { return both(cummin(x[0], 0)); }, "a 2a"),
      row(
          "quantile", {f("a4 b3")}, [](X x) { return R{quantile(x[0], 0.3, 1)}; }, "b"),
      row("searchsorted", {f("a4"), f("b3 c2")}, [](X x) { return R{searchsorted(std::get<0>(sort(x[0])), x[1])}; }),
      row("searchsorted", {f("a4 b3"), f("a4 c2")},
          [](X x) { return R{searchsorted(std::get<0>(sort(x[0], 1)), x[1], true)}; }),
      row("max", {f("a4 b3")}, [](X x) { return both(max(x[0], 0)); }),
      row("min", {f("a4 b3")}, [](X x) { return both(min(x[0], 1, true)); }),
      row("normalize", {f("a4 b3")}, [](X x) { return R{normalize(x[0]), normalize(x[0], 1, 0)}; }),
      row("cosine_similarity", {f("a4 b3"), f("a4 b3")},
          [](X x) { return R{cosine_similarity(x[0], x[1]), cosine_similarity(x[0], x[1], 0)}; }),
      row("pairwise_distance", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{pairwise_distance(x[0], x[1])}; }),
      row("cdist", {f("a4 b3 e5"), f("a4 c2 e5")}, [](X x) { return R{cdist(x[0], x[1])}; }),
      row("cdist", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{cdist(x[0], x[1])}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_shapes(std::vector<Row>& rows) {
  const auto columns = [](X x) { return x[0].shape()[1]; };
  const std::vector<Row> more{
      row("reshape", {f("a4 b3")},
          [](X x) { return R{reshape(x[0], {-1}), reshape(x[0], {x[0].shape()[1], x[0].shape()[0]})}; }),
      row(
          "reshape", {f("a4 b3 c2")}, [](X x) { return R{reshape(x[0], {4, -1})}; }, "a"),
      row("flatten", {f("a4 b3 c2")}, [](X x) { return R{flatten(x[0]), flatten(x[0], 1), flatten(x[0], 0, 1)}; }),
      row("transpose", {f("a4 b3")}, [](X x) { return R{transpose(x[0], 0, 1), x[0].t(), swapaxes(x[0], 0, -1)}; }),
      row("swapaxes", {f("a4 b3")}, [](X x) { return R{swapaxes(x[0], 0, -1)}; }),
      row("permute", {f("a4 b3 c2")}, [](X x) { return R{permute(x[0], {2, 0, 1})}; }),
      row("movedim", {f("a4 b3 c2")}, [](X x) { return R{movedim(x[0], {0}, {2})}; }),
      row("cat", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{cat({x[0], x[1]}, 0), cat({x[0], x[1], x[0]}, 1)}; }),
      row("cat", {f("a4 b3"), f("c2 b3")}, [](X x) { return R{cat({x[0], x[1]})}; }),
      row("concat", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{concat({x[0], x[1]}, 1)}; }),
      row("stack", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{stack({x[0], x[1]}), stack({x[0], x[1]}, 2)}; }),
      row("hstack", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{hstack({x[0], x[1]})}; }),
      row("vstack", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{vstack({x[0], x[1]})}; }),
      row(
          "squeeze", {f("a4 1 b3")}, [](X x) { return R{squeeze(x[0])}; }, "a b"),
      row("squeeze", {f("a4 1 b3")}, [](X x) { return R{squeeze(x[0], 1)}; }),
      row(
          "squeeze", {f("a4 b3")}, [](X x) { return R{squeeze(x[0], 1)}; }, "b"),
      row("unsqueeze", {f("a4 b3")}, [](X x) { return R{unsqueeze(x[0], 0), unsqueeze(x[0], -1)}; }),
      row(
          "unflatten", {f("a4 b4")}, [](X x) { return R{unflatten(x[0], 1, {2, -1})}; }, "b"),
      row("broadcast_to", {f("a4 1"), f("a4 b3")},
          [](X x) { return R{broadcast_to(x[0], x[1].shape()), broadcast_to(x[0], {2, -1, 5})}; }),
      row("broadcast_to", {f("a4 b3")},
          [columns](X x) { return R{broadcast_to(ones({1, 1}), {2, columns(x)}) * x[0].sum(0)}; }),
      row("narrow", {f("a4 b3")},
          [](X x) { return R{narrow(x[0], 0, 0, 2), narrow(x[0], 0, 0, 1), narrow(x[0], 1, 1, 1)}; }),
      row("narrow", {f("a4 b3")}, [](X x) { return R{narrow(x[0], 0, -1, 1), narrow(x[0], 1, -2, 2)}; }),
      row("select", {f("a4 b3")}, [](X x) { return R{select(x[0], 0, 0), select(x[0], 1, -1)}; }),
      row("select", {f("a4 b3")}, [](X x) { return R{select(x[0], 0, -1), select(x[0], 1, 2), x[0][0]}; }),
      row(
          "split", {f("a4 b3")}, [](X x) { return split(x[0], 2); }, "a 2a"),
      row(
          "split", {f("a4 b3")}, [](X x) { return split(x[0], {1, 2}, 1); }, "b"),
      row(
          "chunk", {f("a4 b3")}, [](X x) { return chunk(x[0], 2); }, "a"),
      row(
          "unbind", {f("a4 b3")}, [](X x) { return unbind(x[0]); }, "a 2a"),
      row("flip", {f("a4 b3 c2")}, [](X x) { return R{flip(x[0], {0}), flip(x[0], {2, 0, 1})}; }),
      row("roll", {f("a4 b3")},
          [](X x) { return R{roll(x[0], {1}, {0}), roll(x[0], {-2, 5}, {0, 1}), roll(x[0], {3})}; }),
      row("repeat", {f("a4 b3")}, [](X x) { return R{repeat(x[0], {2, 1, 3})}; }),
      row("tile", {f("a4 b3")}, [](X x) { return R{tile(x[0], {2})}; }),
      row("repeat_interleave", {f("a4 b3")},
          [](X x) {
            return R{repeat_interleave(x[0], 2), repeat_interleave(x[0], 3, 0), repeat_interleave(x[0], 2, 1)};
          }),
      row("tril", {f("a4 b3 c2")}, [](X x) { return R{tril(x[0]), tril(x[0], 1)}; }),
      row("triu", {f("a4 b3 c2")}, [](X x) { return R{triu(x[0]), triu(x[0], -1)}; }),
      row(
          "diagonal", {f("a4 b3 c2")}, [](X x) { return R{diagonal(x[0], 0, 1, 2)}; }, "b c 2c"),
      row(
          "diag", {f("a4")}, [](X x) { return R{diag(x[0], 1)}; }, "a 2a"),
      row(
          "diag_embed", {f("a4 b3")}, [](X x) { return R{diag_embed(x[0]), diag_embed(x[0], -1, 0, 2)}; }, "b"),
      row("masked_fill", {f("a4 b3"), o("a4 1")}, [](X x) { return R{masked_fill(x[0], x[1], 7)}; }),
      row("meshgrid", {f("a4"), f("b3")}, [](X x) { return meshgrid({x[0], x[1]}); }),
      row("meshgrid", {f("a4")}, [](X x) { return meshgrid({x[0], x[0]}); }),
      row(
          "pixel_shuffle", {f("a4 b4 h2 w3")}, [](X x) { return R{pixel_shuffle(x[0], 2)}; }, "b 2b"),
      row(
          "pixel_unshuffle", {f("a4 b3 h4 w4")}, [](X x) { return R{pixel_unshuffle(x[0], 2)}; }, "h w"),
      row(
          "channel_shuffle", {f("a4 b4 h2")}, [](X x) { return R{channel_shuffle(x[0], 2)}; }, "b 2b"),
      row(
          "diff", {f("a4 b3")}, [](X x) { return R{diff(x[0])}; }, "b"),
      row("pad", {f("a4 b3 c2")}, [](X x) { return R{pad(x[0], {1, 0}), pad(x[0], {1, 1}, "replicate")}; }),
      row("one_hot", {i("a4 b3", 5)}, [](X x) { return R{one_hot(x[0], 5)}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_indexing(std::vector<Row>& rows) {
  using indexing::None;
  using indexing::Slice;
  const std::vector<Row> more{
      row("embedding", {i("a4 b3", "r"), f("r5 e2")}, [](X x) { return R{embedding(x[0], x[1])}; }),
      row(
          "embedding", {i("a4 b3", "r"), f("r5 e2")}, [](X x) { return R{embedding(x[0], x[1], 0)}; }, "r"),
      row("embedding_bag", {i("a4 b3", 5), f("5 e2")},
          [](X x) { return R{embedding_bag(x[0], x[1]), embedding_bag(x[0], x[1], {.mode = "max"})}; }),
      row(
          "embedding_bag", {i("n6", 5), f("5 e2")},
          [](X x) { return R{embedding_bag(x[0], x[1], {.offsets = tensor({0, 2, 3}), .mode = "sum"})}; }, "n 2n"),
      row("gather", {f("a4 b3"), i("c2 b3", "a")}, [](X x) { return R{gather(x[0], 0, x[1])}; }),
      row("scatter", {f("a4 b3"), i("c2 b3", "a")}, [](X x) { return R{scatter(x[0], 0, x[1], 2.0)}; }),
      row("scatter", {f("a4 b3"), i("1 b3", "a"), f("1 b3")}, [](X x) { return R{scatter(x[0], 0, x[1], x[2])}; }),
      row("scatter_add", {f("a4 b3"), i("c2 b3", "a"), f("c2 b3")},
          [](X x) { return R{scatter_add(x[0], 0, x[1], x[2])}; }),
      row("scatter_reduce", {f("a4 b3"), i("c2 b3", "a"), f("c2 b3")},
          [](X x) {
            R results;
            for (const char* reduce : {"sum", "mean", "amax", "amin"})
              for (const bool self : {true, false})
                results.push_back(scatter_reduce(x[0], 0, x[1], x[2], reduce, self));
            return results;
          }),
      row(
          "scatter_reduce", {f("a4 b3"), i("c3 b3", "a"), f("c3 b3")},
          [](X x) { return R{scatter_reduce(x[0], 0, x[1], x[2], "prod")}; }, "c"),
      row("index_select", {f("a4 b3"), i("c2", "a")}, [](X x) { return R{index_select(x[0], 0, x[1])}; }),
      row("index", {f("a4 b3"), i("c2", "a")},
          [](X x) { return R{index(x[0], 0, x[1]), index(x[0], 0, x[1] - size_of(x[0], 0))}; }),
      row("index", {f("a4 b3"), i("c2", "a"), i("c2", "b")},
          [](X x) { return R{x[0].index({x[1], x[2]}), x[0].index({Slice(), x[2]})}; }),
      row("index", {f("a4 b3")},
          [](X x) { return R{x[0].index({0}), x[0].index({None, Slice(), -1}), x[0].index({"...", Slice(0, 1)})}; }),
      row("index_add", {f("a4 b3"), i("c2", "a"), f("c2 b3")},
          [](X x) { return R{index_add(x[0], 0, x[1], x[2], 2)}; }),
      row("index_copy", {f("a4 b3"), i("1", "a"), f("1 b3")}, [](X x) { return R{index_copy(x[0], 0, x[1], x[2])}; }),
      row("index_fill", {f("a4 b3"), i("c2", "a")}, [](X x) { return R{index_fill(x[0], 0, x[1], 2)}; }),
      row("bincount", {i("a4", 5)}, [](X x) { return R{bincount(x[0], {}, 5)}; }),
      row("index_put", {f("a4 b3"), i("c2", "a"), f("c2 b3")},
          [](X x) { return R{index_put(x[0], {x[1]}, x[2], true)}; }),
      row("index_put", {f("a4 b3"), i("1", "a"), i("1", "b"), f("1")},
          [](X x) { return R{index_put(x[0], {x[1], x[2]}, x[3])}; }),
      row("take", {f("a4 b3"), i("c2", "a")}, [](X x) { return R{take(x[0], x[1])}; }),
      row("take_along_dim", {f("a4 b3"), i("c2 b3", "a")}, [](X x) { return R{take_along_dim(x[0], x[1], 0)}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_products(std::vector<Row>& rows) {
  const std::vector<Row> more{
      without("2", row(
                       "linear", {f("a4 c2 b3"), f("o5 b3"), f("o5")}, [](X x) { return R{linear(x[0], x[1], x[2])}; },
                       "b o")),
      row("matmul", {f("a4 b3"), f("b3 c2")}, [](X x) { return R{matmul(x[0], x[1])}; }),
      row("matmul", {f("n2 a4 b3"), f("n2 b3 c2")}, [](X x) { return R{matmul(x[0], x[1])}; }),
      row("mm", {f("a4 b3"), f("b3 c2")}, [](X x) { return R{mm(x[0], x[1])}; }),
      row("mm", {f("a4 b3"), f("b3 a4")}, [](X x) { return R{mm(x[0], x[1])}; }),
      row("bmm", {f("n2 a4 b3"), f("n2 b3 c2")}, [](X x) { return R{bmm(x[0], x[1])}; }),
      row("mv", {f("a4 b3"), f("b3")}, [](X x) { return R{mv(x[0], x[1])}; }),
      row("dot", {f("a4"), f("a4")}, [](X x) { return R{dot(x[0], x[1])}; }),
      row("outer", {f("a4"), f("b3")}, [](X x) { return R{outer(x[0], x[1])}; }),
      row("kron", {f("a4 b3"), f("b3 c2")}, [](X x) { return R{kron(x[0], x[1]), kron(x[1].select(1, 0), x[0])}; }),
      row("tensordot", {f("a4 b3 c2"), f("b3 c2 d5")},
          [](X x) { return R{tensordot(x[0], x[1]), tensordot(x[0], x[1], {1, 2}, {0, 1})}; }),
      row("outer", {f("a4")}, [](X x) { return R{outer(x[0], x[0])}; }),
      row("addmm", {f("a4 c2"), f("a4 b3"), f("b3 c2")}, [](X x) { return R{addmm(x[0], x[1], x[2], 2, 3)}; }),
      row("baddbmm", {f("n2 a4 c2"), f("n2 a4 b3"), f("n2 b3 c2")}, [](X x) { return R{baddbmm(x[0], x[1], x[2])}; }),
      row("einsum", {f("n2 a4 b3"), f("n2 b3 c2")},
          [](X x) { return R{einsum("nab,nbc->nac", {x[0], x[1]}), einsum("nab->ab", {x[0]})}; }),
      row("einsum", {f("a4 3 3")}, [](X x) { return R{einsum("aii->a", {x[0]}), einsum("aij->i", {x[0]})}; }),
      row("bilinear", {f("a4 b3"), f("a4 c2"), f("o5 b3 c2")}, [](X x) { return R{bilinear(x[0], x[1], x[2])}; }),
      row(
          "trace", {f("b3 c2")}, [](X x) { return R{trace(x[0])}; }, "b c 2c"),
      row("cross", {f("a4 3"), f("a4 3")}, [](X x) { return R{cross(x[0], x[1])}; }),
      row("vector_norm", {f("a4 b3")}, [](X x) { return R{linalg::vector_norm(x[0], 2, 0)}; }),
      row("matrix_norm", {f("a4 b3 c2")},
          [](X x) {
            return R{linalg::matrix_norm(x[0]), linalg::matrix_norm(x[0], 1), linalg::matrix_norm(x[0], -1)};
          }),
      row("solve", {f("a4 2 2"), f("a4 2 1")}, [](X x) { return R{linalg::solve(x[0] + 3 * eye(2), x[1])}; }),
      row("inv", {f("a4 2 2")}, [](X x) { return R{linalg::inv(x[0] + 3 * eye(2))}; }),
      row("det", {f("a4 2 2")}, [](X x) { return R{linalg::det(x[0] + 3 * eye(2))}; }),
      row("cholesky", {f("a4 2 2")},
          [](X x) { return R{linalg::cholesky(x[0] + transpose(x[0], 1, 2) + 5 * eye(2))}; }),
      row("scaled_dot_product_attention", {f("n2 q4 e2"), f("n2 k3 e2"), f("n2 k3 v2")},
          [](X x) { return R{scaled_dot_product_attention(x[0], x[1], x[2])}; }),
      row("scaled_dot_product_attention", {f("n2 q3 e2"), f("n2 k3 e2"), f("n2 k3 v2")},
          [](X x) { return R{scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true})}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_images(std::vector<Row>& rows) {
  const std::vector<Row> more{
      row(
          "conv1d", {f("a4 c2 w5"), f("3 c2 3")}, [](X x) { return R{conv1d(x[0], x[1], {}, {.padding = 1})}; },
          "c 2c"),
      without("2", row(
                       "conv2d", {f("a4 c2 h4 w5"), f("3 c2 3 3"), f("3")},
                       [](X x) { return R{conv2d(x[0], x[1], x[2])}; }, "c 2c h 2h w")),
      row(
          "conv3d", {f("a4 c2 d3 h4 w5"), f("3 c2 2 3 3")}, [](X x) { return R{conv3d(x[0], x[1])}; }, "c 2c d h 2h w"),
      row(
          "conv_transpose1d", {f("a4 c2 w5"), f("c2 3 3")}, [](X x) { return R{conv_transpose1d(x[0], x[1])}; },
          "c 2c"),
      without("2", row(
                       "conv_transpose2d", {f("a4 c2 h4 w5"), f("c2 3 3 3"), f("3")},
                       [](X x) { return R{conv_transpose2d(x[0], x[1], x[2])}; }, "c 2c")),
      row(
          "conv_transpose3d", {f("a4 c2 d3 h4 w5"), f("c2 3 2 3 3")},
          [](X x) { return R{conv_transpose3d(x[0], x[1])}; }, "c 2c d"),
      row(
          "max_pool1d", {f("a4 c2 w5")}, [](X x) { return R{max_pool1d(x[0], 2)}; }, "c 2c w"),
      row(
          "max_pool2d", {f("a4 c2 h4 w5")}, [](X x) { return R{max_pool2d(x[0], 2)}; }, "c 2c h w"),
      row(
          "max_pool3d", {f("a4 c2 d3 h4 w5")}, [](X x) { return R{max_pool3d(x[0], 2)}; }, "c 2c d h w"),
      row(
          "avg_pool1d", {f("a4 c2 w5")}, [](X x) { return R{avg_pool1d(x[0], 2)}; }, "c 2c w"),
      row(
          "avg_pool2d", {f("a4 c2 h4 w5")}, [](X x) { return R{avg_pool2d(x[0], 2)}; }, "c 2c h w"),
      row(
          "avg_pool3d", {f("a4 c2 d3 h4 w5")}, [](X x) { return R{avg_pool3d(x[0], 2)}; }, "c 2c d h w"),
      row("adaptive_avg_pool1d", {f("a4 c2 w5")}, [](X x) { return R{adaptive_avg_pool1d(x[0], 2)}; }),
      row("adaptive_avg_pool2d", {f("a4 c2 h4 w5")}, [](X x) { return R{adaptive_avg_pool2d(x[0], 2)}; }),
      row("adaptive_avg_pool3d", {f("a4 c2 d3 h4 w5")}, [](X x) { return R{adaptive_avg_pool3d(x[0], 2)}; }),
      row(
          "adaptive_max_pool1d", {f("a4 c2 w5")}, [](X x) { return R{adaptive_max_pool1d(x[0], 2)}; }, "c 2c w"),
      row(
          "adaptive_max_pool2d", {f("a4 c2 h4 w5")}, [](X x) { return R{adaptive_max_pool2d(x[0], 2)}; },
          "c 2c h 2h w"),
      row(
          "adaptive_max_pool3d", {f("a4 c2 d3 h4 w5")}, [](X x) { return R{adaptive_max_pool3d(x[0], 2)}; },
          "c 2c d h 2h w"),
      row(
          "lp_pool1d", {f("a4 c2 w5", 1, 2)}, [](X x) { return R{lp_pool1d(x[0], 2, 2)}; }, "c 2c w"),
      row(
          "lp_pool2d", {f("a4 c2 h4 w5", 1, 2)}, [](X x) { return R{lp_pool2d(x[0], 2, 2)}; }, "c 2c h w"),
      row(
          "max_pool2d_with_indices", {f("a4 c2 h4 w5")}, [](X x) { return both(max_pool2d_with_indices(x[0], 2)); },
          "c 2c h 2h w"),
      row(
          "max_unpool2d", {f("a4 c2 h2 w3"), i("a4 c2 h2 w3", 6)}, [](X x) { return R{max_unpool2d(x[0], x[1], 2)}; },
          "h 2h w"),
      row(
          "unfold", {f("a4 c2 h4 w5")}, [](X x) { return R{unfold(x[0], 2)}; }, "h 2h w"),
      row(
          "fold", {f("a4 c8 l4")}, [](X x) { return R{fold(x[0], 3, 2)}; }, "c 2c l 2l"),
      row(
          "interpolate", {f("a4 c2 h4 w5")},
          [](X x) { return R{interpolate(x[0], {.size = {3, 3}, .mode = "bilinear"})}; }, "h 2h w"),
      row(
          "grid_sample", {f("a4 c2 h4 w5"), f("a4 y3 x2 2")}, [](X x) { return R{grid_sample(x[0], x[1])}; }, "h 2h w"),
      row("affine_grid", {f("a4 2 3")}, [](X x) { return R{affine_grid(x[0], {x[0].shape()[0], 1, 3, 2})}; }),
      row(
          "batch_norm", {f("a4 c3 h2")}, [](X x) { return R{batch_norm(x[0], {}, {}, {}, {}, true)}; }, "c"),
      row(
          "layer_norm", {f("a4 c2 b3")}, [](X x) { return R{layer_norm(x[0], {3})}; }, "b"),
      row(
          "rms_norm", {f("a4 c2 b3")}, [](X x) { return R{rms_norm(x[0], {3})}; }, "b"),
      row(
          "group_norm", {f("a4 c4 h3")}, [](X x) { return R{group_norm(x[0], 2)}; }, "c 2c"),
      row(
          "instance_norm", {f("a4 c2 h3")}, [](X x) { return R{instance_norm(x[0])}; }, "c 2c"),
      row(
          "local_response_norm", {f("a4 c3 h2")}, [](X x) { return R{local_response_norm(x[0], 2)}; }, "c"),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

void add_losses(std::vector<Row>& rows) {
  using Loss = Tensor (*)(const Operand&, const Operand&, Reduction);
  const std::pair<const char*, Loss> plain[] = {{"mse_loss", mse_loss},
                                                {"l1_loss", l1_loss},
                                                {"soft_margin_loss", soft_margin_loss},
                                                {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits}};
  for (const auto& [name, function] : plain)
    rows.push_back(row(name, {f("a4 b3"), f("a4 b3", 0, 1)}, [f = function](X x) {
      return R{f(x[0], x[1], Reduction::mean), f(x[0], x[1], Reduction::sum), f(x[0], x[1], Reduction::none)};
    }));
  const std::vector<Row> more{
      row("smooth_l1_loss", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{smooth_l1_loss(x[0], x[1])}; }),
      row("huber_loss", {f("a4 b3"), f("a4 b3")}, [](X x) { return R{huber_loss(x[0], x[1], Reduction::mean, 0.5)}; }),
      row("binary_cross_entropy", {f("a4 b3", 0.1, 0.9), f("a4 b3", 0, 1)},
          [](X x) { return R{binary_cross_entropy(x[0], x[1])}; }),
      row("kl_div", {f("a4 b3"), f("a4 b3", 0, 1)},
          [](X x) { return R{kl_div(x[0], x[1]), kl_div(x[0], x[1], {.reduction = Reduction::batchmean})}; }),
      row(
          "cross_entropy", {f("a4 c3 w2"), i("a4 w2", "c")},
          [](X x) {
            return R{cross_entropy(x[0], x[1]),
                     cross_entropy(x[0], x[1], {.reduction = Reduction::none, .label_smoothing = 0.1})};
          },
          "c"),
      row("cross_entropy", {f("a4 c3"), f("a4 c3", 0, 1)},
          [](X x) { return R{cross_entropy(x[0], x[1], {.label_smoothing = 0.1})}; }),
      row("nll_loss", {f("a4 c3 w2"), i("a4 w2", "c")},
          [](X x) { return R{nll_loss(x[0], x[1]), nll_loss(x[0], x[1], Reduction::none)}; }),
      row("margin_ranking_loss", {f("a4 b3"), f("a4 b3"), f("a4 b3")},
          [](X x) { return R{margin_ranking_loss(x[0], x[1], sign(x[2]), 0.1)}; }),
      row("hinge_embedding_loss", {f("a4 b3"), f("a4 b3")},
          [](X x) { return R{hinge_embedding_loss(x[0], sign(x[1]))}; }),
      row("cosine_embedding_loss", {f("a4 b3"), f("a4 b3"), f("a4")},
          [](X x) { return R{cosine_embedding_loss(x[0], x[1], sign(x[2]))}; }),
      row("triplet_margin_loss", {f("a4 b3"), f("a4 b3"), f("a4 b3")},
          [](X x) { return R{triplet_margin_loss(x[0], x[1], x[2], {.swap = true})}; }),
      row("multilabel_soft_margin_loss", {f("a4 b3"), f("a4 b3", 0, 1)},
          [](X x) { return R{multilabel_soft_margin_loss(x[0], x[1])}; }),
      row("multi_margin_loss", {f("a4 c3"), i("a4", "c")},
          [](X x) { return R{multi_margin_loss(x[0], x[1]), multi_margin_loss(x[0], x[1], {.p = 2})}; }),
      row("poisson_nll_loss", {f("a4 b3"), f("a4 b3", 0, 3)},
          [](X x) { return R{poisson_nll_loss(x[0], x[1], {.full = true})}; }),
      row("gaussian_nll_loss", {f("a4 b3"), f("a4 b3"), f("a4 b3", 0.5, 1)},
          [](X x) { return R{gaussian_nll_loss(x[0], x[1], x[2])}; }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

/// Methods that are no functions, too: views and what is changed in place.
void add_methods(std::vector<Row>& rows) {
  using Method = Tensor& (Tensor::*)(Location);
  const std::pair<const char*, Method> changes[] = {
      {"abs_", &Tensor::abs_},         {"neg_", &Tensor::neg_},
      {"exp_", &Tensor::exp_},         {"expm1_", &Tensor::expm1_},
      {"log_", &Tensor::log_},         {"log1p_", &Tensor::log1p_},
      {"sqrt_", &Tensor::sqrt_},       {"rsqrt_", &Tensor::rsqrt_},
      {"square_", &Tensor::square_},   {"reciprocal_", &Tensor::reciprocal_},
      {"sigmoid_", &Tensor::sigmoid_}, {"tanh_", &Tensor::tanh_},
      {"sin_", &Tensor::sin_},         {"cos_", &Tensor::cos_},
      {"erf_", &Tensor::erf_},         {"floor_", &Tensor::floor_},
      {"ceil_", &Tensor::ceil_},       {"round_", &Tensor::round_},
      {"trunc_", &Tensor::trunc_},     {"sign_", &Tensor::sign_},
      {"relu_", &Tensor::relu_},       {"zero_", &Tensor::zero_}};
  for (const auto& [name, method] : changes)
    rows.push_back(row(name, {f("a4 b3", 0.5, 2)}, [m = method](X x) {
      Tensor y = x[0] * 1;
      (y.*m)(Location::current());
      return R{y};
    }));
  const auto changed = [](X x, const test::Call<void(Tensor&)>& how) {
    Tensor y = x[0] * 1;
    how(y);
    return R{y};
  };
  const std::vector<Row> more{
      row("add_", {f("a4 b3"), f("b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.add_(x[1], 2); }); }),
      row("sub_", {f("a4 b3"), f("b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.sub_(x[1]); }); }),
      row("mul_", {f("a4 b3"), f("b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.mul_(x[1]); }); }),
      row("div_", {f("a4 b3"), f("b3", 1, 2)}, [=](X x) { return changed(x, [&](Tensor& y) { y.div_(x[1]); }); }),
      row("floor_divide_", {f("a4 b3"), f("b3", 1, 2)},
          [=](X x) { return changed(x, [&](Tensor& y) { y.floor_divide_(x[1]); }); }),
      row("remainder_", {f("a4 b3"), f("b3", 1, 2)},
          [=](X x) { return changed(x, [&](Tensor& y) { y.remainder_(x[1]); }); }),
      row("fmod_", {f("a4 b3"), f("b3", 1, 2)}, [=](X x) { return changed(x, [&](Tensor& y) { y.fmod_(x[1]); }); }),
      row("pow_", {f("a4 b3", 1, 2)}, [=](X x) { return changed(x, [&](Tensor& y) { y.pow_(2.5); }); }),
      row("addcmul_", {f("a4 b3"), f("b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.addcmul_(x[1], x[1]); }); }),
      row("addcdiv_", {f("a4 b3"), f("b3", 1, 2)},
          [=](X x) { return changed(x, [&](Tensor& y) { y.addcdiv_(x[1], x[1]); }); }),
      row("lerp_", {f("a4 b3"), f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.lerp_(x[1], 0.25); }); }),
      row("clamp_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.clamp_(-0.5, 0.5); }); }),
      row("clamp_min_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.clamp_min_(-0.5); }); }),
      row("clamp_max_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.clamp_max_(0.5); }); }),
      row("clamp_min", {f("a4 b3")}, [](X x) { return R{x[0].clamp_min(-0.5)}; }),
      row("clamp_max", {f("a4 b3")}, [](X x) { return R{x[0].clamp_max(0.5)}; }),
      row("nan_to_num_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.nan_to_num_(); }); }),
      row("tril_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.tril_(); }); }),
      row("triu_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.triu_(1); }); }),
      row("masked_fill_", {f("a4 b3"), o("b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.masked_fill_(x[1], 3); }); }),
      row("scatter_", {f("a4 b3"), i("1 b3", "a")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.scatter_(0, x[1], 3.0); }); }),
      row("scatter_add_", {f("a4 b3"), i("c2 b3", "a"), f("c2 b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.scatter_add_(0, x[1], x[2]); }); }),
      row("index_copy_", {f("a4 b3"), i("c2", "a"), f("c2 b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.index_copy_(0, x[1], x[2]); }); }),
      row("index_fill_", {f("a4 b3"), i("c2", "a")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.index_fill_(0, x[1], 2.5); }); }),
      row("index_add_", {f("a4 b3"), i("c2", "a"), f("c2 b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.index_add_(0, x[1], x[2]); }); }),
      row("index_put_", {f("a4 b3"), i("c2", "a"), f("c2 b3")},
          [=](X x) { return changed(x, [&](Tensor& y) { y.index_put_({x[1]}, x[2], true); }); }),
      row("copy_", {f("a4 b3"), f("b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.copy_(x[1]); }); }),
      row("fill_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.fill_(3); }); }),
      random_row("uniform_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.uniform_(); }); }),
      random_row("normal_", {f("a4 b3")}, [=](X x) { return changed(x, [&](Tensor& y) { y.normal_(); }); }),
      row("detach", {f("a4 b3")}, [](X x) { return R{x[0].detach() + x[0]}; }),
      row("clone", {f("a4 b3")}, [](X x) { return R{x[0].clone()}; }),
      row("contiguous", {f("a4 b3")}, [](X x) { return R{x[0].t().contiguous()}; }),
      row("to", {f("a4 b3")}, [](X x) { return R{x[0].to(f64), x[0].to(i64)}; }),
      row("type_as", {f("a4 b3"), i("a4", 3)}, [](X x) { return R{x[0].type_as(x[1])}; }),
      row("view", {f("a4 b3")}, [](X x) { return R{x[0].view({-1})}; }),
      row("view_as", {f("a4 b3"), f("a4 3 b3")}, [](X x) { return R{cat({x[0], x[0], x[0]}, 1).view_as(x[1])}; }),
      row("reshape_as", {f("a4 b3"), f("b3 a4")}, [](X x) { return R{x[0].reshape_as(x[1])}; }),
      row("expand", {f("a4 1"), f("a4 b3")},
          [](X x) { return R{x[0].expand({-1, 2}), x[0].expand(x[1].shape()), ones({1, 1}).expand(x[1].shape())}; }),
      row("expand_as", {f("a4 1"), f("a4 b3")}, [](X x) { return R{x[0].expand_as(x[1])}; }),
      row("slice", {f("a4 b3")}, [](X x) { return R{x[0].slice(0), x[0].slice(0, 0, 1), x[0].slice(0, -1)}; }),
      row(
          "slice", {f("a4 b3")}, [](X x) { return R{x[0].slice(0, 0, 2)}; }, "a"),
      row("slice", {f("a4 b3")}, [](X x) { return R{x[0].slice(0, 1)}; }),
      row("slice", {f("a4 b3")}, [](X x) { return R{x[0].slice(0, 0, -1)}; }),
      row("slice", {f("a4 b3")}, [](X x) { return R{x[0].slice(0, 1, 1000000, 2)}; }),
      row("slice", {f("b3 a4")}, [](X x) { return R{x[0].slice(1, 0, std::numeric_limits<std::int64_t>::max(), 2)}; }),
      row(
          "slice", {f("a4 b3")},
          [](X x) {
            const Dim n = x[0].slice(0).shape()[1];
            return R{x[0].slice(0, 0, n), x[0].slice(0, n, 4), x[0].narrow(0, 1, n), x[0].narrow(0, -3, n)};
          },
          "a 2a"),
      row(
          "size", {f("a4 b3")}, [](X x) { return R{x[0] * x[0].size(0)}; }, "a 2a"),
      row(
          "sizes", {f("a4 b3")}, [](X x) { return R{zeros(x[0].sizes())}; }, "a 2a b"),
      row(
          "numel", {f("a4 b3")}, [](X x) { return R{x[0] * x[0].numel()}; }, "a 2a b"),
      // Parts are views: what is written into them is written into the whole.
      row("select", {f("a4 b3")},
          [=](X x) {
            return changed(x, [&](Tensor& y) {
              y.select(0, -1).mul_(3);
              y.select(1, 0).fill_(2);
            });
          }),
      row("narrow", {f("a4 b3")},
          [=](X x) {
            return changed(x, [&](Tensor& y) {
              Tensor part = y.narrow(0, 0, 1);
              y.mul_(2);
              part.add_(y.narrow(0, -1, 1));
            });
          }),
  };
  rows.insert(rows.end(), more.begin(), more.end());
}

}  // namespace

std::vector<Row> function_rows() {
  std::vector<Row> rows;
  add_pointwise(rows);
  add_factories(rows);
  add_reductions(rows);
  add_shapes(rows);
  add_indexing(rows);
  add_products(rows);
  add_images(rows);
  add_losses(rows);
  add_methods(rows);
  return rows;
}

}  // namespace graven::symbols_test
