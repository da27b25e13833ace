// The kernels that run optimizers' rules, with rules of their own; the operators' rules run in tests/ops and, over
// tensors of these sizes, in tests/frontend.
#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/cpu/update.h"
#include "kernels/reference/update.h"
#include "rules.h"
#include "support.h"
#include "tests/kernels/team.h"
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

const auto kCount = static_cast<std::int64_t>(kSizes.size());

TEST(Update, AgreesWithReference) {
  for (const auto& c : {momentum_config{0.9, 0}, momentum_config{0.5, 0.01}}) {
    const auto want = three_steps<double>([&](auto params, auto grads, auto b, auto, auto, std::int64_t step) {
      reference::update_parameters<momentum_rule>(c, kCount, params.data(), constant(grads), kSizes.data(), 0.1, step,
                                                  b.data());
    });
    const auto got = with_every_pool("update", [&](Threads& threads) {
      return three_steps<float>([&](auto params, auto grads, auto b, auto, auto, std::int64_t step) {
        update_parameters<momentum_rule>(threads, c, kCount, params.data(), constant(grads), kSizes.data(), 0.1, step,
                                         b.data());
      });
    });
    expect_close(got, want, tolerance_of::plain_update.f32, "update");
  }
}

TEST(Update, WithoutStates) {
  const momentum_config c{};
  const auto want = three_steps<double>([&](auto params, auto grads, auto, auto, auto, std::int64_t step) {
    reference::update_parameters<plain_rule>(c, kCount, params.data(), constant(grads), kSizes.data(), 0.1, step);
  });
  const auto got = with_every_pool("update", [&](Threads& threads) {
    return three_steps<float>([&](auto params, auto grads, auto, auto, auto, std::int64_t step) {
      update_parameters<plain_rule>(threads, c, kCount, params.data(), constant(grads), kSizes.data(), 0.1, step);
    });
  });
  expect_close(got, want, tolerance_of::plain_update.f32, "update");
}

TEST(Update, FirstStepIgnoresWhatTheBufferHolds) {
  float p = 1, g = 2, b = NAN;
  float *params[] = {&p}, *buffers[] = {&b};
  const float* grads[] = {&g};
  const std::int64_t size = 1;
  update_parameters<momentum_rule>(*pools()[0], momentum_config{0.9, 0}, 1, params, grads, &size, 0.1, 1, buffers);
  EXPECT_EQ(b, 2);
  EXPECT_FLOAT_EQ(p, 0.8f);
}

std::int64_t workspace_bytes(const std::vector<std::int64_t>& sizes) {
  std::int64_t pieces = 0;
  for (const std::int64_t n : sizes) pieces += norm_pieces(n);
  return update_workspace_bytes(pieces, norms_rule::norms);
}

TEST(UpdateWithNorms, AgreesWithReference) {
  const momentum_config c{0.9, 0};
  const auto want = three_steps<double>([&](auto params, auto grads, auto m, auto changes, auto, std::int64_t step) {
    reference::update_parameters_with_norms<norms_rule>(c, kCount, params.data(), constant(grads), kSizes.data(), 0.01,
                                                        step, m.data(), changes.data());
  });
  const auto got = with_every_pool("update_parameters_with_norms", [&](Threads& threads) {
    return three_steps<float>([&](auto params, auto grads, auto m, auto changes, auto, std::int64_t step) {
      std::vector<double> workspace(static_cast<std::size_t>(workspace_bytes(kSizes)) / sizeof(double), NAN);
      update_parameters_with_norms<norms_rule>(threads, c, kCount, params.data(), constant(grads), kSizes.data(), 0.01,
                                               step, static_cast<void*>(workspace.data()), m.data(), changes.data());
    });
  });
  expect_close(got, want, tolerance_of::update.f32, "update_parameters_with_norms");
}

/// Two ranks, each with its shard of two tensors: the second one's shard of the smaller tensor is empty.
TEST(UpdateWithNorms, OfShardsIsThatOfWholeTensors) {
  const momentum_config c{0.9, 0};
  const std::int64_t sizes[] = {40000, 10}, cut[] = {25000, 10};
  const auto tensors = [&](std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<std::vector<float>> all;
    for (const std::int64_t n : sizes) {
      all.emplace_back(static_cast<std::size_t>(n));
      for (float& x : all.back()) x = uniform(generator);
    }
    return all;
  };
  struct State {
    std::vector<std::vector<float>> p, g, m, changes;
  };
  const auto make = [&] { return State{tensors(1), tensors(2), tensors(3), tensors(4)}; };
  const auto update = [&]<class Rule>(Rule, State& s, bool second, Collectives* ranks) {
    float *p[2], *m[2], *changes[2];
    const float* g[2];
    std::int64_t n[2];
    for (std::size_t t = 0; t < 2; ++t) {
      const std::int64_t first = second ? cut[t] : 0;
      p[t] = s.p[t].data() + first, g[t] = s.g[t].data() + first;
      m[t] = s.m[t].data() + first, changes[t] = s.changes[t].data() + first;
      n[t] = ranks == nullptr ? sizes[t] : second ? sizes[t] - cut[t] : cut[t];
    }
    Threads threads(2);
    threads.set_collectives(ranks);
    std::vector<double> workspace(
        static_cast<std::size_t>(update_workspace_bytes(norm_pieces(n[0]) + norm_pieces(n[1]) + 2, norms_rule::norms) /
                                 8),
        NAN);
    update_parameters_with_norms<Rule>(threads, c, 2, p, g, n, 0.01, 2, static_cast<void*>(workspace.data()), m,
                                       changes);
  };
  State whole = make(), alone = make(), shared = make();
  update(norms_rule{}, whole, false, nullptr);
  update(over_ranks<norms_rule>{}, alone, false, nullptr);
  EXPECT_EQ(alone.p, whole.p);
  test::Team team(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      test::Member member(team, r);
      update(over_ranks<norms_rule>{}, shared, r == 1, &member);
      EXPECT_EQ(member.visits, 1);
    });
  for (std::thread& t : ranks) t.join();
  for (std::size_t t = 0; t < 2; ++t)
    for (std::size_t i = 0; i < whole.p[t].size(); ++i)
      ASSERT_NEAR(shared.p[t][i], whole.p[t][i], 1e-6) << t << ", " << i;
}

/// Gradients as they are stored once they are multiplied.
template <class T>
Tensors<T> multiplied(const std::vector<T*>& grads, T factor) {
  Tensors<T> products;
  for (std::size_t t = 0; t < grads.size(); ++t) {
    products.emplace_back(grads[t], grads[t] + kSizes[t]);
    for (T& g : products.back()) g = static_cast<T>(static_cast<compute_t<T>>(g) * static_cast<compute_t<T>>(factor));
  }
  return products;
}

/// `update(params, grads, step, factor, states...)` by a factor does what it does by gradients that are multiplied
/// before, without one, bit for bit.
template <class T, class Update>
void expect_clipped(const Update& update, const char* what) {
  const T factor = static_cast<T>(0.37f);
  const auto want = three_steps<T>([&](auto params, auto grads, auto a, auto b, auto, std::int64_t step) {
    Tensors<T> products = multiplied(grads, factor);
    update(params.data(), constant(pointers(products)), step, static_cast<const T*>(nullptr), a.data(), b.data());
  });
  const auto got = three_steps<T>([&](auto params, auto grads, auto a, auto b, auto, std::int64_t step) {
    update(params.data(), constant(grads), step, &factor, a.data(), b.data());
  });
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0) << what;
}

template <class T>
void expect_clipped_by_reference(const char* what) {
  const momentum_config c{0.9, 0.01};
  expect_clipped<T>(
      [&](auto params, auto grads, std::int64_t step, const T* factor, auto a, auto) {
        if (factor != nullptr)
          reference::update_parameters<momentum_rule>(c, kCount, params, grads, kSizes.data(), 0.1, step, factor, a);
        else
          reference::update_parameters<momentum_rule>(c, kCount, params, grads, kSizes.data(), 0.1, step, a);
      },
      what);
  expect_clipped<T>(
      [&](auto params, auto grads, std::int64_t step, const T* factor, auto a, auto b) {
        if (factor != nullptr)
          reference::update_parameters_with_norms<norms_rule>(c, kCount, params, grads, kSizes.data(), 0.01, step,
                                                              factor, a, b);
        else
          reference::update_parameters_with_norms<norms_rule>(c, kCount, params, grads, kSizes.data(), 0.01, step, a,
                                                              b);
      },
      what);
}

TEST(Update, ByAFactorIsByGradientsThatAreMultiplied) {
  expect_clipped_by_reference<float>("f32");
  expect_clipped_by_reference<double>("f64");
  expect_clipped_by_reference<f16>("f16");
  expect_clipped_by_reference<bf16>("bf16");
  const momentum_config c{0.9, 0.01};
  for (const auto& threads : pools()) {
    expect_clipped<float>(
        [&](auto params, auto grads, std::int64_t step, const float* factor, auto a, auto) {
          if (factor != nullptr)
            update_parameters<momentum_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.1, step, factor, a);
          else
            update_parameters<momentum_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.1, step, a);
        },
        "a rule");
    expect_clipped<float>(
        [&](auto params, auto grads, std::int64_t step, const float* factor, auto, auto) {
          if (factor != nullptr)
            update_parameters<plain_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.1, step, factor);
          else
            update_parameters<plain_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.1, step);
        },
        "a rule without states");
    expect_clipped<float>(
        [&](auto params, auto grads, std::int64_t step, const float* factor, auto a, auto b) {
          std::vector<double> workspace(static_cast<std::size_t>(workspace_bytes(kSizes)) / sizeof(double), NAN);
          void* const scratch = workspace.data();
          if (factor != nullptr)
            update_parameters_with_norms<norms_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.01, step,
                                                     factor, scratch, a, b);
          else
            update_parameters_with_norms<norms_rule>(*threads, c, kCount, params, grads, kSizes.data(), 0.01, step,
                                                     scratch, a, b);
        },
        "a rule with norms");
  }
}

TEST(UpdateWithNorms, TensorsOfZerosTakeAnOrdinaryStep) {
  float p[] = {0, 0}, m[] = {0, 0}, changes[] = {0, 0};
  const float g[] = {0.5f, -2};
  float *params[] = {p}, *ms[] = {m}, *all_changes[] = {changes};
  const float* grads[] = {g};
  const std::int64_t size = 2;
  double workspace[2];
  update_parameters_with_norms<norms_rule>(*pools()[0], momentum_config{0.5, 0}, 1, params, grads, &size, 0.1, 1,
                                           static_cast<void*>(workspace), ms, all_changes);
  EXPECT_FLOAT_EQ(p[0], -0.025f);
  EXPECT_FLOAT_EQ(p[1], 0.1f);
}

}  // namespace
}  // namespace graven::kernels::test
