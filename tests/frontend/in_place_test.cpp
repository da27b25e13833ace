// Every in-place form against the function it is named after: eagerly, through views, in gradients, and recorded in a
// graph.
#include <algorithm>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graven/graven.h"
#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven {
using test::error_of;

namespace {

struct Form {
  std::string name;
  test::Call<Tensor&(Tensor&)> in_place;
  test::Call<Tensor(const Tensor&)> value;
};

/// Of f32[2,3] with elements between 0.1 and 0.9.
std::vector<Form> forms() {
  const Tensor a = tensor({{0.5, 2.0, -1.5}, {3.0, 0.25, -4.0}}).to(DType::f32),
               b = tensor({2.0, -0.5, 4.0}).to(DType::f32);
  const Tensor index = tensor({{2, 0}, {1, 1}}), rows = tensor({1, 1, 0}), mask = tensor({true, false, true});
  return {
      {"add_", [=](Tensor& x) -> Tensor& { return x.add_(a); }, [=](const Tensor& x) { return x + a; }},
      {"add_ of a multiple", [=](Tensor& x) -> Tensor& { return x.add_(b, -0.5); },
       [=](const Tensor& x) { return x - b * 0.5; }},
      {"sub_", [=](Tensor& x) -> Tensor& { return x.sub_(2); }, [=](const Tensor& x) { return x - 2; }},
      {"sub_ of a multiple", [=](Tensor& x) -> Tensor& { return x.sub_(a, 3); },
       [=](const Tensor& x) { return x - a * 3; }},
      {"mul_", [=](Tensor& x) -> Tensor& { return x.mul_(a); }, [=](const Tensor& x) { return x * a; }},
      {"div_", [=](Tensor& x) -> Tensor& { return x.div_(b); }, [=](const Tensor& x) { return x / b; }},
      {"div_ rounded", [=](Tensor& x) -> Tensor& { return x.div_(0.25, "trunc"); },
       [=](const Tensor& x) { return trunc(x / 0.25); }},
      {"floor_divide_", [=](Tensor& x) -> Tensor& { return x.floor_divide_(0.25); },
       [=](const Tensor& x) { return floor(x / 0.25); }},
      {"remainder_", [=](Tensor& x) -> Tensor& { return x.remainder_(0.25); },
       [=](const Tensor& x) { return remainder(x, 0.25); }},
      {"fmod_", [=](Tensor& x) -> Tensor& { return x.fmod_(0.25); }, [=](const Tensor& x) { return fmod(x, 0.25); }},
      {"pow_", [=](Tensor& x) -> Tensor& { return x.pow_(a); }, [=](const Tensor& x) { return pow(x, a); }},
      {"pow_ of a number", [=](Tensor& x) -> Tensor& { return x.pow_(3); }, [=](const Tensor& x) { return x * x * x; }},
      {"addcmul_", [=](Tensor& x) -> Tensor& { return x.addcmul_(a, b, 0.5); },
       [=](const Tensor& x) { return x + a * b * 0.5; }},
      {"addcdiv_", [=](Tensor& x) -> Tensor& { return x.addcdiv_(a, b, -2); },
       [=](const Tensor& x) { return x - a / b * 2; }},
      {"addcdiv_ of itself", [=](Tensor& x) -> Tensor& { return x.addcdiv_(x, x + 1, 2); },
       [=](const Tensor& x) { return x + x / (x + 1) * 2; }},
      {"lerp_", [=](Tensor& x) -> Tensor& { return x.lerp_(a, 0.25); },
       [=](const Tensor& x) { return x + (a - x) * 0.25; }},
      {"lerp_ by a tensor", [=](Tensor& x) -> Tensor& { return x.lerp_(a, b); },
       [=](const Tensor& x) { return x + (a - x) * b; }},
      {"abs_", [](Tensor& x) -> Tensor& { return x.abs_(); }, [](const Tensor& x) { return abs(x); }},
      {"neg_", [](Tensor& x) -> Tensor& { return x.neg_(); }, [](const Tensor& x) { return -x; }},
      {"exp_", [](Tensor& x) -> Tensor& { return x.exp_(); }, [](const Tensor& x) { return exp(x); }},
      {"expm1_", [](Tensor& x) -> Tensor& { return x.expm1_(); }, [](const Tensor& x) { return exp(x) - 1; }},
      {"log_", [](Tensor& x) -> Tensor& { return x.log_(); }, [](const Tensor& x) { return log(x); }},
      {"log1p_", [](Tensor& x) -> Tensor& { return x.log1p_(); }, [](const Tensor& x) { return log(x + 1); }},
      {"sqrt_", [](Tensor& x) -> Tensor& { return x.sqrt_(); }, [](const Tensor& x) { return sqrt(x); }},
      {"rsqrt_", [](Tensor& x) -> Tensor& { return x.rsqrt_(); }, [](const Tensor& x) { return 1 / sqrt(x); }},
      {"square_", [](Tensor& x) -> Tensor& { return x.square_(); }, [](const Tensor& x) { return x * x; }},
      {"reciprocal_", [](Tensor& x) -> Tensor& { return x.reciprocal_(); }, [](const Tensor& x) { return 1 / x; }},
      {"sigmoid_", [](Tensor& x) -> Tensor& { return x.sigmoid_(); },
       [](const Tensor& x) { return 1 / (exp(-x) + 1); }},
      {"tanh_", [](Tensor& x) -> Tensor& { return x.tanh_(); }, [](const Tensor& x) { return tanh(x); }},
      {"sin_", [](Tensor& x) -> Tensor& { return x.sin_(); }, [](const Tensor& x) { return sin(x); }},
      {"cos_", [](Tensor& x) -> Tensor& { return x.cos_(); }, [](const Tensor& x) { return cos(x); }},
      {"erf_", [](Tensor& x) -> Tensor& { return x.erf_(); }, [](const Tensor& x) { return erf(x); }},
      {"floor_", [](Tensor& x) -> Tensor& { return x.floor_(); }, [](const Tensor& x) { return floor(x); }},
      {"ceil_", [](Tensor& x) -> Tensor& { return x.ceil_(); }, [](const Tensor& x) { return ceil(x); }},
      {"round_", [](Tensor& x) -> Tensor& { return x.round_(); }, [](const Tensor& x) { return round(x); }},
      {"trunc_", [](Tensor& x) -> Tensor& { return x.trunc_(); }, [](const Tensor& x) { return trunc(x); }},
      {"sign_", [](Tensor& x) -> Tensor& { return x.sign_(); }, [](const Tensor& x) { return sign(x); }},
      {"relu_", [=](Tensor& x) -> Tensor& { return x.sub_(0.5).relu_(); },
       [](const Tensor& x) { return relu(x - 0.5); }},
      {"clamp_", [](Tensor& x) -> Tensor& { return x.clamp_(0.3, 0.6); },
       [](const Tensor& x) { return clamp(x, 0.3, 0.6); }},
      {"clamp_min_", [](Tensor& x) -> Tensor& { return x.clamp_min_(0.4); },
       [](const Tensor& x) { return maximum(x, 0.4); }},
      {"clamp_max_", [](Tensor& x) -> Tensor& { return x.clamp_max_(0.4); },
       [](const Tensor& x) { return minimum(x, 0.4); }},
      {"nan_to_num_", [](Tensor& x) -> Tensor& { return x.nan_to_num_(0.5); }, [](const Tensor& x) { return x * 1; }},
      {"tril_", [](Tensor& x) -> Tensor& { return x.tril_(); }, [](const Tensor& x) { return tril(x); }},
      {"triu_", [](Tensor& x) -> Tensor& { return x.triu_(1); }, [](const Tensor& x) { return triu(x, 1); }},
      {"masked_fill_", [=](Tensor& x) -> Tensor& { return x.masked_fill_(mask, -2); },
       [=](const Tensor& x) { return where(mask, -2, x); }},
      {"scatter_", [=](Tensor& x) -> Tensor& { return x.scatter_(1, index, 7); },
       [=](const Tensor& x) { return scatter(x, 1, index, 7); }},
      {"scatter_add_", [=](Tensor& x) -> Tensor& { return x.scatter_add_(1, index, a); },
       [=](const Tensor& x) { return scatter_add(x, 1, index, a); }},
      {"index_add_", [=](Tensor& x) -> Tensor& { return x.index_add_(0, rows, ones({3, 3}), 0.5); },
       [=](const Tensor& x) { return x + tensor({{0.5}, {1.0}}).to(DType::f32); }},
      {"index_copy_", [=](Tensor& x) -> Tensor& { return x.index_copy_(0, tensor({1}), ones({1, 3})); },
       [=](const Tensor& x) { return index_copy(x, 0, tensor({1}), ones({1, 3})); }},
      {"index_fill_", [=](Tensor& x) -> Tensor& { return x.index_fill_(1, tensor({0, 2}), -3); },
       [=](const Tensor& x) { return index_fill(x, 1, tensor({0, 2}), -3); }},
      {"index_put_", [=](Tensor& x) -> Tensor& { return x.index_put_({rows, tensor({2, 2, 2})}, 3); },
       [=](const Tensor& x) { return cat({x.slice(1, 0, 2), full({2, 1}, 3)}, 1); }},
      {"copy_", [=](Tensor& x) -> Tensor& { return x.copy_(b); },
       [=](const Tensor& x) { return b.expand(x.shape()) + x * 0; }},
      {"fill_", [](Tensor& x) -> Tensor& { return x.fill_(2); }, [](const Tensor& x) { return x * 0 + 2; }},
      {"zero_", [](Tensor& x) -> Tensor& { return x.zero_(); }, [](const Tensor& x) { return x * 0; }},
  };
}

Tensor start() { return tensor({{0.1, 0.35, 0.8}, {0.55, 0.9, 0.2}}).to(DType::f32); }

void expect_close(const Tensor& found, const Tensor& expected, const std::string& name) {
  EXPECT_TRUE(allclose(found, expected, 1e-6, 1e-6)) << name << ": expected " << expected << ", found " << found;
}

TEST(InPlace, FormsGiveWhatTheirFunctionsDo) {
  for (const Form& form : forms()) {
    Tensor x = start();
    const Tensor other = x.view({6}), expected = form.value(start());
    EXPECT_TRUE(form.in_place(x).is_same(x)) << form.name;
    expect_close(x, expected, form.name);
    expect_close(other, expected.reshape({6}), form.name + ", a view");
  }
}

TEST(InPlace, FormsHaveTheGradientsOfTheirFunctions) {
  const Tensor weight = tensor({{1.0, -2.0, 0.5}, {3.0, 1.5, -1.0}}).to(DType::f32);
  for (const Form& form : forms()) {
    const auto gradient = [&](const auto& computed) {
      Tensor x = start().requires_grad_();
      (computed(x) * weight).sum().backward();
      return x.grad();
    };
    const Tensor found = gradient([&](const Tensor& x) {
      Tensor y = x * 1;
      return form.in_place(y);
    });
    expect_close(found, gradient(form.value), form.name);
  }
}

struct Changes : nn::Graph<Changes> {
  std::vector<Tensor> build(Tensor x) {
    std::vector<Tensor> changed;
    for (const Form& form : forms()) {
      Tensor y = x * 1;
      const Tensor other = y.view({6});
      form.in_place(y);
      changed.push_back(stack({y, other.view({2, 3})}));
    }
    return {stack(changed)};
  }
};

TEST(InPlace, FormsAreRecorded) {
  Changes graph;
  const Tensor found = graph(start())[0];
  const std::vector<Form> all = forms();
  ASSERT_EQ(found.size(0), static_cast<std::int64_t>(all.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensor expected = all[i].value(start());
    expect_close(found[static_cast<std::int64_t>(i)], stack({expected, expected}), all[i].name);
  }
}

// ---- views under autograd -------------------------------------------------------------------------------------------

struct Written {
  std::string name;
  test::Call<Tensor(const Tensor&)> by_writing, without;
};

/// Of f32[2,3].
std::vector<Written> writes() {
  const auto rows = [](const Tensor& x) { return std::pair(x.select(0, 0), x.select(0, 1)); };
  return {
      {"a row",
       [](const Tensor& x) {
         Tensor y = x * 2, row = y.select(0, 1);
         row.mul_(row);
         return y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x * 2);
         return stack({a, b * b});
       }},
      {"a row of what has no history",
       [](const Tensor& x) {
         Tensor y = ones({3, 3});
         y.select(0, 2).copy_(x.select(0, 0) * 3);
         y.narrow(0, 0, 1).add_(x.select(0, 1));
         return y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         return stack({b + 1, ones({3}), a * 3});
       }},
      {"the view is what is used",
       [](const Tensor& x) {
         Tensor y = x * 2, row = y.select(0, 1);
         row.mul_(row);
         return row * y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x * 2);
         return stack({b * b * a, b * b * b * b});
       }},
      {"the base is written after the view was taken",
       [](const Tensor& x) {
         Tensor y = x * 2;
         const Tensor flat = y.view({6});
         y.mul_(x);
         return flat * flat;
       },
       [](const Tensor& x) { return pow(x * x * 2, 2).view({6}); }},
      {"another view sees it",
       [](const Tensor& x) {
         Tensor y = x * x;
         const Tensor column = y.select(1, 1), turned = y.t();
         y.select(0, 0).mul_(5);
         return column.sum() * turned;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x * x);
         const Tensor y = stack({a * 5, b});
         return y.select(1, 1).sum() * y.t();
       }},
      {"views of views, turned",
       [](const Tensor& x) {
         Tensor y = x * 1;
         y.t().narrow(0, 1, 2).select(1, 0).view({2, 1}).sigmoid_();
         return y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         return stack({cat({a.narrow(0, 0, 1), sigmoid(a.narrow(0, 1, 2))}), b});
       }},
      {"every other one",
       [](const Tensor& x) {
         Tensor y = x * 1;
         y.view({6}).slice(0, 1, 6, 2).exp_();
         return y;
       },
       [](const Tensor& x) { return where(tensor({{false, true, false}, {true, false, true}}), exp(x), x); }},
      {"several times",
       [](const Tensor& x) {
         Tensor y = x * 1;
         for (int i = 0; i < 3; ++i) {
           y.select(1, i).add_(y.sum());
           y.mul_(0.5);
         }
         return y;
       },
       [](const Tensor& x) {
         Tensor y = x;
         for (int i = 0; i < 3; ++i) {
           const Tensor here = arange(3).eq(i).to(DType::f32);
           y = (y + here * y.sum()) * 0.5;
         }
         return y;
       }},
      {"written over",
       [](const Tensor& x) {
         Tensor y = x * x;
         y.select(0, 0).fill_(3);
         y.select(1, 2).zero_();
         return y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x * x);
         return stack({tensor({3., 3., 0.}).to(DType::f32), b * tensor({1., 1., 0.}).to(DType::f32)});
       }},
      {"by a leaf",
       [](const Tensor& x) {
         Tensor y = zeros({2, 2, 3});
         y.select(0, 1).copy_(x);
         return y * y;
       },
       [](const Tensor& x) { return stack({x * 0, x * x}); }},
      {"views taken before the first write with history",
       [](const Tensor& x) {
         Tensor y = zeros({2, 3}), flat = y.view({6}), second = flat.narrow(0, 3, 3);
         const Tensor turned = y.t();
         y.select(0, 0).copy_(x.select(0, 1));
         second.add_(x.select(0, 0), 2);
         flat.mul_(3);
         y.add_(1);
         return stack({y, turned.t(), flat.view({2, 3})});
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         const Tensor y = stack({b, a * 2}) * 3 + 1;
         return stack({y, y, y});
       }},
      {"read and written with data before",
       [](const Tensor& x) {
         Tensor y = ones({2, 3});
         const Tensor first = y + x;
         y.select(0, 1).fill_(5);
         const Tensor second = y + x;
         y.mul_(x);
         y.select(0, 0).zero_();
         return stack({first, second, y});
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         return stack({x + 1, stack({a + 1, b + 5}), stack({a * 0, b * 5})});
       }},
      {"nothing",
       [](const Tensor& x) {
         Tensor y = x * 2;
         y.narrow(1, 1, 0).mul_(3);
         return y;
       },
       [](const Tensor& x) { return x * 2; }},
      {"the same place again",
       [](const Tensor& x) {
         Tensor y = x * 2;
         Tensor row = y.select(0, 0);
         y.select(0, 0).mul_(3);
         row.mul_(x.select(0, 1));
         return y;
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         return stack({a * 6 * b, b * 2});
       }},
      {"what only a copy can have",
       [](const Tensor& x) {
         Tensor y = x * 2;
         const Tensor copies[] = {y.t().reshape({6}), y.t().contiguous().flatten(), y.narrow(1, 0, 2).flatten(),
                                  y.t().slice(0, 0, 3, 2).flatten()};
         const Tensor views[] = {y.reshape({3, 2}), y.contiguous().flatten(), y.t().reshape({3, 1, 2}),
                                 y.slice(1, 0, 3, 2).unsqueeze(0)};
         y.mul_(y);
         Tensor sum = tensor(0.0f);
         for (const Tensor& copy : copies) sum = sum + (copy * arange(0, copy.numel()).to(f32)).sum();
         for (const Tensor& view : views) sum = sum + (view.flatten() * arange(0, view.numel()).to(f32)).sum();
         return sum.reshape({1});
       },
       [](const Tensor& x) {
         const Tensor old = x * 2, now = old * old;
         Tensor sum = tensor(0.0f);
         for (const Tensor& y : {old.t(), old.t(), old.narrow(1, 0, 2), old.t().slice(0, 0, 3, 2), now, now, now.t(),
                                 now.slice(1, 0, 3, 2)})
           sum = sum + (y.flatten() * arange(0, y.numel()).to(f32)).sum();
         return sum.reshape({1});
       }},
      {"a copy of a transpose is written",
       [](const Tensor& x) {
         Tensor y = x * 2;
         y.t().reshape({6}).mul_(3);
         y.t().contiguous().mul_(3);
         y.t().reshape({3, 2, 1}).add_(1);
         return y;
       },
       [](const Tensor& x) { return x * 2 + 1; }},
      {"an expanded tensor's copy is written",
       [](const Tensor& x) {
         Tensor row = x.select(0, 0) * 1;
         Tensor copy = row.expand({2, 3}).reshape({6});
         copy.mul_(arange(0, 6).to(f32));
         return cat({copy, row});
       },
       [=](const Tensor& x) {
         const auto [a, b] = rows(x);
         return cat({cat({a, a}) * arange(0, 6).to(f32), a});
       }},
  };
}

TEST(InPlace, WritesIntoViewsHaveGradients) {
  for (const Written& written : writes()) {
    const auto run = [](const auto& computed) {
      Tensor x = start().requires_grad_();
      const Tensor y = computed(x);
      (y * y.detach() + y).sum().backward();
      return std::pair(y.detach(), x.grad());
    };
    const auto [found, gradient] = run(written.by_writing);
    const auto [expected, expected_gradient] = run(written.without);
    expect_close(found, expected, written.name);
    expect_close(gradient, expected_gradient, written.name + ", gradient");
  }
}

struct Start : nn::Module<Start> {
  Tensor x = parameter("x", start());
  Tensor forward() { return x; }
};
/// All of them, one behind the other.
struct TrainWrites : nn::Graph<TrainWrites> {
  Start model = child("model", Start());
  optim::SGD optimizer{model.parameters(), {.lr = 1}};
  TrainWrites() { add_optimizer(optimizer); }
  Tensor build(Tensor weight) {
    std::vector<Tensor> found;
    for (const Written& written : writes()) found.push_back(written.by_writing(model()).flatten());
    const Tensor all = cat(found);
    (all * weight).sum().backward();
    return all;
  }
};

TEST(InPlace, WritesIntoViewsAreRecorded) {
  Tensor x = start().requires_grad_();
  std::vector<Tensor> values;
  for (const Written& written : writes()) values.push_back(written.without(x).flatten());
  const Tensor expected = cat(values), weight = randn(expected.shape());
  (expected * weight).sum().backward();
  TrainWrites graph;
  expect_close(graph(weight), expected.detach(), "values");
  EXPECT_TRUE(allclose(start() - graph.model.x.detach(), x.grad(), 1e-5, 1e-5)) << "expected " << x.grad();
}

/// Assignments to views that have no name, and what they are short for.
struct Assignment {
  std::string name;
  test::Call<void(Tensor& x, const Tensor& value)> assigned, copied;
};

/// Of f32[2,3], and f32[3].
std::vector<Assignment> assignments() {
  using indexing::None;
  using indexing::Slice;
  return {
      {"row", [](Tensor& x, const Tensor& v) { x[0] = v; },
       [](Tensor& x, const Tensor& v) { x.select(0, 0).copy_(v); }},
      {"last row", [](Tensor& x, const Tensor& v) { x[-1] = v * 2; },
       [](Tensor& x, const Tensor& v) { x.select(0, -1).copy_(v * 2); }},
      {"element", [](Tensor& x, const Tensor& v) { x[1][2] = v[0]; },
       [](Tensor& x, const Tensor& v) { x.select(0, 1).select(0, 2).copy_(v.select(0, 0)); }},
      {"number", [](Tensor& x, const Tensor&) { x[0] = 5.0; },
       [](Tensor& x, const Tensor&) { x.select(0, 0).fill_(5.0); }},
      {"integer", [](Tensor& x, const Tensor&) { x[0] = 5; },
       [](Tensor& x, const Tensor&) { x.select(0, 0).fill_(5); }},
      {"column", [](Tensor& x, const Tensor&) { x.index({Slice(), 0}) = ones({2}); },
       [](Tensor& x, const Tensor&) { x.select(1, 0).copy_(ones({2})); }},
      {"steps", [](Tensor& x, const Tensor& v) { x.index({Slice(), Slice(None, None, 2)}) = v[1]; },
       [](Tensor& x, const Tensor& v) { x.slice(1, 0, 3, 2).copy_(v.select(0, 1)); }},
      {"everything", [](Tensor& x, const Tensor& v) { x.index({Slice()}) = v; },
       [](Tensor& x, const Tensor& v) { x.copy_(v); }},
      {"narrow", [](Tensor& x, const Tensor& v) { x.narrow(1, 1, 2) = v.narrow(0, 0, 2); },
       [](Tensor& x, const Tensor& v) { x.narrow(1, 1, 2).copy_(v.narrow(0, 0, 2)); }},
      {"transposed", [](Tensor& x, const Tensor& v) { x.t()[1] = v.slice(0, 1); },
       [](Tensor& x, const Tensor& v) { x.select(1, 1).copy_(v.slice(0, 1)); }},
      {"reshaped", [](Tensor& x, const Tensor& v) { x.view({6}).narrow(0, 2, 3) = v; },
       [](Tensor& x, const Tensor& v) { x.view({6}).narrow(0, 2, 3).copy_(v); }},
      {"integers", [](Tensor& x, const Tensor&) { x[1] = tensor({3, 2, 1}); },
       [](Tensor& x, const Tensor&) { x.select(0, 1).copy_(tensor({3, 2, 1})); }},
      {"itself", [](Tensor& x, const Tensor&) { x[0] = x[1]; },
       [](Tensor& x, const Tensor&) { x.select(0, 0).copy_(x.select(0, 1)); }},
  };
}

struct AssignsToViews : nn::Graph<AssignsToViews> {
  std::vector<Tensor> build(Tensor x, Tensor value) {
    std::vector<Tensor> results;
    for (const Assignment& a : assignments()) {
      Tensor y = x * 1;
      a.assigned(y, value);
      results.push_back(y);
    }
    return results;
  }
};

TEST(InPlace, AssigningToAViewWritesItsElements) {
  const Tensor value = tensor({-1.0, -2.0, -3.0}).to(DType::f32);
  AssignsToViews graph;
  const std::vector<Tensor> recorded = graph(start(), value);
  const std::vector<Assignment> all = assignments();
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    Tensor expected = start(), found = start();
    all[i].copied(expected, value);
    all[i].assigned(found, value);
    EXPECT_FALSE(equal(expected, start()));
    EXPECT_TRUE(equal(found, expected)) << found << expected;
    EXPECT_TRUE(equal(recorded[i], expected)) << recorded[i] << expected;
  }
  Tensor n = zeros({2, 2}, DType::i64);
  n[0] = 2.75;
  n[1] = tensor({-1.5, 7.0});
  EXPECT_EQ(n.to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 2, -1, 7}));
  Tensor x = start(), w = tensor({1.0, 2.0, 3.0}).to(DType::f32).requires_grad_();
  x[0] = w * 2;
  x.sum().backward();
  EXPECT_TRUE(equal(w.grad(), full({3}, 2.0)));
}

TEST(InPlace, AssigningToACopyIsAnError) {
  Tensor x = start();
  const Tensor rows = tensor({0, 1});
  const std::vector<test::Call<void()>> cases = {
      [&] { x.index({rows}) = ones({2, 3}); },
      [&] { x.clone()[0].clone() = 1; },
      [&] { x.t().reshape({6}) = 1; },
      [&] { x + 1 = x; },
  };
  for (const auto& f : cases) {
    const std::string error = error_of(f);
    EXPECT_NE(error.find("operator=: assigns to f32["), std::string::npos) << error;
    EXPECT_NE(error.find("at in_place_test.cpp:"), std::string::npos) << error;
  }
  EXPECT_NE(error_of([&] { x[0] = ones({2}); }).find("in_place_test.cpp:"), std::string::npos);
  EXPECT_TRUE(equal(x, start()));
}

/// Names keep assigning handles, whatever moves them about.
TEST(InPlace, HandlesStayHandles) {
  static_assert(std::is_copy_assignable_v<Tensor> && std::is_nothrow_move_assignable_v<Tensor> &&
                std::is_nothrow_move_constructible_v<Tensor> && std::is_nothrow_swappable_v<Tensor>);
  Tensor a = ones({2}), b = zeros({2});
  const Tensor first = a, second = b;
  std::swap(a, b);
  EXPECT_TRUE(a.is_same(second) && b.is_same(first));
  const Tensor old = std::exchange(a, b);
  EXPECT_TRUE(old.is_same(second) && a.is_same(first));
  std::vector<Tensor> list{first, second};
  list.insert(list.begin(), ones({3}));
  list.erase(list.begin());
  std::rotate(list.begin(), list.begin() + 1, list.end());
  EXPECT_TRUE(list[0].is_same(second) && list[1].is_same(first));
  std::tie(a, b) = std::make_tuple(second, first);
  EXPECT_TRUE(a.is_same(second) && b.is_same(first));
  const auto identity = [](Tensor t) { return t; };
  a = identity(first);
  EXPECT_TRUE(a.is_same(first));
  Tensor& self = a;
  a = self;
  a = std::move(self);
  EXPECT_TRUE(a.is_same(first));
  a = {};
  EXPECT_FALSE(a.defined());
  EXPECT_TRUE(equal(first, ones({2})) && equal(second, zeros({2})));
}

/// What shares the memory without having been taken as a view has no part in it.
struct Detached : nn::Graph<Detached> {
  Tensor build(Tensor x) {
    Tensor y = zeros({2, 3});
    const Tensor other = y.detach();
    y.add_(x);
    return other + x;
  }
};

TEST(InPlace, WhatAutogradCannotFollowIsAnError) {
  const Tensor w = start().requires_grad_();
  const std::vector<std::pair<test::Call<void()>, std::string>> cases = {
      {[=] { w.select(0, 1).mul_(2); },
       "mul_: a view of a leaf that requires a gradient is changed in place; use NoGradGuard, or a new tensor"},
      {[=] { Tensor(w).mul_(2); }, "mul_: a leaf that requires a gradient is changed in place"},
      {[=] { (w * 2).detach().mul_(w); },
       "mul_: what detach() gave, or a view that was taken under NoGradGuard, is changed in place"},
      {[=] { w.select(0, 0).unsqueeze(0).expand({2, 3}).mul_(w); },
       "mul_: several elements of this expanded tensor share one place in memory"},
      {[=] {
         const Tensor y = w * 2, squares = y * y;
         y.select(0, 1).mul_(2);
         squares.sum().backward();
       },
       "that mul (in_place_test.cpp:"},
  };
  for (const auto& [f, expected] : cases) EXPECT_NE(error_of(f).find(expected), std::string::npos) << error_of(f);
  Detached detached;
  const std::string error = error_of([&] { detached(start()); });
  EXPECT_NE(error.find("shares the memory of one that was changed in place by a recorded value"), std::string::npos)
      << error;
  EXPECT_TRUE(equal(w.detach(), start()));
}

TEST(InPlace, LongChainsOfViewsAreTakenApart) {
  Tensor x = start(), y = start().requires_grad_() * 1;
  for (int i = 0; i < 30000; ++i) {
    x = x.unsqueeze(0).squeeze(0);
    y = y.t();
  }
  EXPECT_EQ(x.sizes(), (Sizes{2, 3}));
  EXPECT_EQ(y.sizes(), (Sizes{2, 3}));
}

TEST(InPlace, IntegersStayIntegers) {
  Tensor n = tensor({7, -7, 12});
  n.add_(tensor({1, 2, 3}), -2).floor_divide_(4);
  EXPECT_EQ(n.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, -3, 1}));
  EXPECT_NE(error_of([&] {
              n.add_(tensor({1, 2, 3}), 0.5);
            }).find("add_: the factor of integers must be a whole number, got 0.5"),
            std::string::npos);
  EXPECT_NE(error_of([&] { n.exp_(); }).find("exp_: a result of f32 cannot be stored in i64[3]"), std::string::npos);
  Tensor flags = tensor({true, false});
  EXPECT_NE(error_of([&] { flags.add_(flags, 2); }).find("add_: bools are not scaled"), std::string::npos);
}

/// Each buffer holds what the other did: neither may be overwritten before both are read.
struct Exchange : nn::Module<Exchange> {
  Tensor first = buffer("first", tensor({1.0, 2.0, 3.0})), second = buffer("second", tensor({-4.0, 5.0, 0.5}));
  Tensor kept = buffer("kept", zeros({3}, DType::f64)), again = buffer("again", zeros({3}, DType::f64));
  Tensor forward(Tensor x) {
    const Tensor before = first.clone();
    first.copy_(second);
    second.copy_(before);
    kept.add_(x);
    again.copy_(kept);
    return first * x + before;
  }
};
struct InferExchange : nn::Graph<InferExchange> {
  Exchange model = child("model", Exchange());
  Tensor build(Tensor x) { return model(x); }
};

TEST(InPlace, BuffersOfAGraphExchangeTheirValues) {
  Exchange eager;
  InferExchange graph;
  for (int call = 0; call < 3; ++call) {
    const Tensor x = tensor({1.0 + call, 2.0, -1.0});
    EXPECT_TRUE(equal(graph(x), eager(x))) << "call " << call;
    EXPECT_TRUE(equal(graph.model.first, eager.first) && equal(graph.model.second, eager.second)) << "call " << call;
    EXPECT_TRUE(equal(graph.model.kept, eager.kept) && equal(graph.model.again, eager.again)) << "call " << call;
  }
}

/// A parameter that build() clips, as a critic's are, and that the optimizer changes from there.
struct TrainClipped : nn::Graph<TrainClipped> {
  nn::Linear layer = child("layer", nn::Linear(3, 2));
  TrainClipped() { add_optimizer(optim::SGD(layer.parameters(), {.lr = 0.1, .momentum = 0.9})); }
  Tensor build(Tensor x) {
    {
      NoGradGuard no_grad;
      layer.weight.clamp_(-0.2, 0.2);
    }
    const Tensor loss = layer(x).square().mean();
    loss.backward();
    return loss;
  }
};

TEST(InPlace, WhatBuildChangesTheOptimizerChangesFurther) {
  manual_seed(3);
  TrainClipped graph;
  nn::Linear eager(3, 2);
  eager.load_state_dict(graph.layer.state_dict());
  optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    const Tensor x = randn({4, 3});
    {
      NoGradGuard no_grad;
      eager.weight.clamp_(-0.2, 0.2);
    }
    optimizer.zero_grad();
    const Tensor loss = eager(x).square().mean();
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(allclose(graph(x), loss.detach(), 1e-5, 1e-6)) << "step " << step;
    EXPECT_TRUE(allclose(graph.layer.weight.detach(), eager.weight.detach(), 1e-5, 1e-6))
        << "step " << step << ": " << graph.layer.weight << " where " << eager.weight << " is due";
  }
}

}  // namespace
}  // namespace graven
