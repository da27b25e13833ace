#include <algorithm>

#include "kernels/cpu/adadelta.h"
#include "kernels/cpu/adagrad.h"
#include "kernels/cpu/adam.h"
#include "kernels/cpu/lamb.h"
#include "kernels/cpu/rmsprop.h"
#include "kernels/cpu/sgd.h"
#include "kernels/reference/adadelta.h"
#include "kernels/reference/adagrad.h"
#include "kernels/reference/adam.h"
#include "kernels/reference/lamb.h"
#include "kernels/reference/rmsprop.h"
#include "kernels/reference/sgd.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

const std::vector<std::int64_t> kSizes = {1, 200704, 0, 256, 17, 16384, 3};

template <class T>
using Tensors = std::vector<std::vector<T>>;

template <class T>
Tensors<T> tensors(unsigned seed, double low = -1, double high = 1) {
  Tensors<T> all;
  for (const auto n : kSizes) all.push_back(random_tensor<T>(n, seed++, low, high));
  return all;
}
template <class To, class From>
Tensors<To> converted_all(const Tensors<From>& from) {
  Tensors<To> all;
  for (const auto& t : from) all.push_back(converted<To>(t));
  return all;
}
template <class T>
std::vector<T*> pointers(Tensors<T>& all) {
  std::vector<T*> p;
  for (auto& t : all) p.push_back(t.data());
  return p;
}
template <class T>
std::vector<T> joined(const std::vector<const Tensors<T>*>& groups) {
  std::vector<T> all;
  for (const auto* g : groups)
    for (const auto& t : *g) all.insert(all.end(), t.begin(), t.end());
  return all;
}

/// Three steps of an optimizer over all tensors; the result is the parameters and the states behind each other.
template <class T, class Step>
std::vector<T> three_steps(const Step& step) {
  auto params = converted_all<T>(tensors<float>(1)), a = params, b = params, c = params;
  for (auto* state : {&a, &b, &c})
    for (auto& t : *state) std::fill(t.begin(), t.end(), T(0));
  for (std::int64_t s = 1; s <= 3; ++s) {
    auto grads = converted_all<T>(tensors<float>(static_cast<unsigned>(100 * s)));
    step(pointers(params), pointers(grads), pointers(a), pointers(b), pointers(c), s);
  }
  return joined<T>({&params, &a, &b, &c});
}

template <class T>
const T* const* constant(const std::vector<T*>& p) {
  return const_cast<const T* const*>(p.data());
}

TEST(Sgd, AgreesWithReference) {
  const sgd_config configs[] = {{0, 0, 0, false, false},
                                {0.9, 0, 0, false, false},
                                {0.9, 0, 1e-2, true, false},
                                {0.9, 0.5, 1e-2, false, true},
                                {0, 0, 1e-2, false, true}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto momentum, auto, auto, std::int64_t step) {
      reference::sgd(c, count, params.data(), constant(grads), c.momentum == 0 ? nullptr : momentum.data(),
                     kSizes.data(), 0.1, step);
    });
    const auto got = with_every_pool("sgd", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto momentum, auto, auto, std::int64_t step) {
        sgd(threads, c, count, params.data(), constant(grads), c.momentum == 0 ? nullptr : momentum.data(),
            kSizes.data(), 0.1, step);
      });
    });
    expect_close(got, want, tolerance_of::plain_update.f32, "sgd");
  }
}

TEST(Sgd, FirstStepIgnoresWhatTheBufferHolds) {
  float p = 1, g = 2, b = NAN;
  float *params[] = {&p}, *momentum[] = {&b};
  const float* grads[] = {&g};
  const std::int64_t size = 1;
  sgd(*pools()[0], {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0, .nesterov = false, .maximize = false}, 1,
      params, grads, momentum, &size, 0.1, 1);
  EXPECT_EQ(b, 2);
  EXPECT_FLOAT_EQ(p, 0.8f);
}

TEST(Adam, AgreesWithReference) {
  const adam_config configs[] = {{0.9, 0.999, 1e-8, 0, false, false, false, true},
                                 {0.8, 0.99, 1e-6, 0.1, false, true, false, true},
                                 {0.9, 0.999, 1e-8, 0.01, true, false, true, true},
                                 {0.9, 0.95, 1e-8, 0.01, true, true, false, false}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto m, auto v, auto most, std::int64_t step) {
      reference::adam(c, count, params.data(), constant(grads), m.data(), v.data(), c.amsgrad ? most.data() : nullptr,
                      kSizes.data(), 0.01, step);
    });
    const auto got = with_every_pool("adam", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto m, auto v, auto most, std::int64_t step) {
        adam(threads, c, count, params.data(), constant(grads), m.data(), v.data(), c.amsgrad ? most.data() : nullptr,
             kSizes.data(), 0.01, step);
      });
    });
    // A gradient near zero makes m / sqrt(v) sensitive.
    expect_close(got, want, tolerance_of::update.f32, "adam");
  }
}

TEST(Rmsprop, AgreesWithReference) {
  // Where weight decay all but cancels a gradient, its rounding is divided by little more than eps.
  const rmsprop_config configs[] = {{0.99, 1e-8, 0, 0, false, false},
                                    {0.9, 1e-2, 0.1, 0.9, false, true},
                                    {0.9, 1e-2, 0, 0, true, false},
                                    {0.5, 1e-2, 0.1, 0.5, true, true}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto square, auto mean, auto momentum,
                                              std::int64_t) {
      reference::rmsprop(c, count, params.data(), constant(grads), square.data(), c.centered ? mean.data() : nullptr,
                         c.momentum != 0 ? momentum.data() : nullptr, kSizes.data(), 0.01);
    });
    const auto got = with_every_pool("rmsprop", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto square, auto mean, auto momentum, std::int64_t) {
        rmsprop(threads, c, count, params.data(), constant(grads), square.data(), c.centered ? mean.data() : nullptr,
                c.momentum != 0 ? momentum.data() : nullptr, kSizes.data(), 0.01);
      });
    });
    expect_close(got, want, tolerance_of::update.f32, "rmsprop");
  }
}

TEST(Adagrad, AgreesWithReference) {
  const adagrad_config configs[] = {{0, 1e-10, 0, 0, false}, {0.1, 1e-10, 0.1, 0, true}, {0, 1e-3, 0, 0.5, false}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto sums, auto, auto, std::int64_t step) {
      reference::adagrad(c, count, params.data(), constant(grads), sums.data(), kSizes.data(), 0.01, step);
    });
    const auto got = with_every_pool("adagrad", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto sums, auto, auto, std::int64_t step) {
        adagrad(threads, c, count, params.data(), constant(grads), sums.data(), kSizes.data(), 0.01, step);
      });
    });
    expect_close(got, want, tolerance_of::adaptive_update.f32, "adagrad");
  }
}

TEST(Adadelta, AgreesWithReference) {
  const adadelta_config configs[] = {{0.9, 1e-6, 0, false}, {0.5, 1e-3, 0.1, true}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto square, auto delta, auto, std::int64_t) {
      reference::adadelta(c, count, params.data(), constant(grads), square.data(), delta.data(), kSizes.data(), 1.0);
    });
    const auto got = with_every_pool("adadelta", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto square, auto delta, auto, std::int64_t) {
        adadelta(threads, c, count, params.data(), constant(grads), square.data(), delta.data(), kSizes.data(), 1.0);
      });
    });
    expect_close(got, want, tolerance_of::adaptive_update.f32, "adadelta");
  }
}

TEST(Lamb, AgreesWithReference) {
  const lamb_config configs[] = {{0.9, 0.999, 1e-8, 0, true, true, false},
                                 {0.8, 0.99, 1e-6, 0.1, true, true, true},
                                 {0.9, 0.999, 1e-6, 0.1, false, true, false},
                                 {0.9, 0.95, 1e-6, 0.01, true, false, false}};
  const auto count = static_cast<std::int64_t>(kSizes.size());
  std::int64_t pieces = 0;
  for (const std::int64_t n : kSizes) pieces += lamb_pieces(n);
  for (const auto& c : configs) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto m, auto v, auto, std::int64_t step) {
      reference::lamb(c, count, params.data(), constant(grads), m.data(), v.data(), kSizes.data(), 0.01, step);
    });
    const auto got = with_every_pool("lamb", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto m, auto v, auto, std::int64_t step) {
        std::vector<double> workspace(static_cast<std::size_t>(lamb_workspace_bytes(pieces, count)) / sizeof(double),
                                      NAN);
        lamb(threads, c, count, params.data(), constant(grads), m.data(), v.data(), kSizes.data(), 0.01, step,
             workspace.data());
      });
    });
    // A gradient near zero makes m / sqrt(v) sensitive.
    expect_close(got, want, tolerance_of::update.f32, "lamb");
  }
}

TEST(Lamb, TensorsOfZerosTakeAnOrdinaryStep) {
  float p[] = {0, 0}, m[] = {0, 0}, v[] = {0, 0};
  const float g[] = {0.5f, -2};
  float *params[] = {p}, *ms[] = {m}, *vs[] = {v};
  const float* grads[] = {g};
  const std::int64_t size = 2;
  double workspace[3];
  const lamb_config c{.beta1 = 0.9,
                      .beta2 = 0.999,
                      .eps = 1e-8,
                      .weight_decay = 0,
                      .decoupled = true,
                      .do_bias_correction = true,
                      .maximize = false};
  lamb(*pools()[0], c, 1, params, grads, ms, vs, &size, 0.1, 1, workspace);
  EXPECT_NEAR(p[0], -0.1, 1e-6);
  EXPECT_NEAR(p[1], 0.1, 1e-6);
}

TEST(Optimizers, FirstStepsAreTheFormulas) {
  float p[] = {1, -2}, m[] = {0, 0}, v[] = {0, 0};
  const float g1[] = {0.5f, -1}, g2[] = {-0.25f, 3};
  float *params[] = {p}, *ms[] = {m}, *vs[] = {v};
  const float *first[] = {g1}, *second[] = {g2};
  const std::int64_t size = 2;
  const adam_config c{.beta1 = 0.9,
                      .beta2 = 0.999,
                      .eps = 1e-8,
                      .weight_decay = 0,
                      .decoupled = false,
                      .amsgrad = false,
                      .maximize = false,
                      .do_bias_correction = true};
  adam(*pools()[0], c, 1, params, first, ms, vs, nullptr, &size, 0.1, 1);
  EXPECT_NEAR(p[0], 0.9, 1e-6);  // the first step is lr * sign(g)
  EXPECT_NEAR(p[1], -1.9, 1e-6);
  adam(*pools()[0], c, 1, params, second, ms, vs, nullptr, &size, 0.1, 2);
  const double mean = (0.9 * 0.1 * 0.5 + 0.1 * -0.25) / (1 - 0.81),
               square = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1 - 0.999 * 0.999);
  EXPECT_NEAR(p[0], 0.9 - 0.1 * mean / std::sqrt(square), 1e-5);
}

}  // namespace
}  // namespace graven::kernels::test
