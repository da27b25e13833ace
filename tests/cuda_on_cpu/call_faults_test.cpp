// Numbers out of range in what kernels are given: what the host is told when it next waits for the device is what the
// processor's kernels say, in every order of threads and blocks.
#include "kernel_harness.h"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/binary_cross_entropy.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/recurrent.cuh"

namespace graven::kernels {
namespace {

using namespace testing_on_device;  // NOLINT

constexpr const char* kWhere = "model.words, net.cpp:12";

/// The text of the error; empty: none.
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const index_error& e) {
    return e.what();
  } catch (const value_error& e) {
    return e.what();
  }
  return "";
}

std::int64_t count_of(const std::int64_t (&shape)[8], std::int64_t rank) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < rank; ++d) n *= shape[d];
  return n;
}

using Indices = std::vector<std::int64_t>;
using Bad = std::vector<std::pair<std::size_t, std::int64_t>>;  ///< positions, and what to put there
struct Case {
  const char* name;
  Indices good;
  Bad bad;
  std::string expected;
  std::function<void(CudaContext&, Memory&, const std::int64_t* index)> call;
};

Indices of_many(std::int64_t n, std::int64_t size) { return numbers<std::int64_t>(n, 3, 0, static_cast<double>(size)); }

Case rows(const char* name, const index_select_config& c, Indices index, Bad bad, std::string expected) {
  const std::int64_t n = c.outer * c.size * c.inner, selected = c.outer * c.count * c.inner;
  return {name, std::move(index), std::move(bad), std::move(expected),
          [=](CudaContext& context, Memory& memory, const std::int64_t* at) {
            index_select(context, c, memory.out<float>(selected), memory.in(numbers<float>(n, 1)), at, kWhere);
          }};
}

Case added(const char* name, const index_select_config& c, Indices index, Bad bad, std::string expected) {
  const std::int64_t n = c.outer * c.size * c.inner, selected = c.outer * c.count * c.inner;
  return {name, std::move(index), std::move(bad), std::move(expected),
          [=](CudaContext& context, Memory& memory, const std::int64_t* at) {
            index_add(context, c, memory.out<float>(n), memory.in(numbers<float>(selected, 1)), at, nullptr, kWhere);
          }};
}

enum class Line { gather, scatter, scatter_add };
Case lines(const char* name, Line what, const gather_config& c, Bad bad, std::string expected) {
  const std::int64_t n = count_of(c.shape, c.rank), all = count_of(c.x_shape, c.rank);
  return {name, of_many(n, c.x_shape[c.dim]), std::move(bad), std::move(expected),
          [=](CudaContext& context, Memory& memory, const std::int64_t* at) {
            const float* const x = memory.in(numbers<float>(all, 1));
            if (what == Line::gather) return gather(context, c, memory.out<float>(n), x, at, kWhere);
            const float* const source = memory.in(numbers<float>(n, 2));
            if (what == Line::scatter)
              scatter(context, c, memory.out<float>(all), x, at, source, kWhere);
            else
              scatter_add(context, c, memory.out<float>(all), x, at, source, kWhere);
          }};
}

Case labels(const char* name, bool backward, std::int64_t classes, Bad bad, std::string expected) {
  const cross_entropy_config c{.rows = 40, .classes = classes, .reduction = 1, .ignore_index = -100};
  Indices index = of_many(c.rows, classes);
  index[1] = index[30] = -100;
  return {name, index, std::move(bad), std::move(expected),
          [=](CudaContext& context, Memory& memory, const std::int64_t* at) {
            const float* const x = memory.in(numbers<float>(c.rows * classes, 1));
            if (backward)
              cross_entropy_backward(context, c, memory.out<float>(c.rows * classes), memory.in(std::vector<float>{1}),
                                     x, at, nullptr, kWhere);
            else
              cross_entropy(context, c, memory.out<float>(1), nullptr, x, at, nullptr, kWhere);
          }};
}

enum class Cell { rnn, lstm, gru };
Case lengths(const char* name, Cell cell, bool backward, Bad bad, std::string expected) {
  const recurrent_config c{.steps = 5, .batch = 3, .hidden = 4, .state = 4};
  const std::int64_t gates = cell == Cell::rnn ? 1 : cell == Cell::lstm ? 4 : 3, all = c.steps * c.batch * 4;
  return {name,
          {5, 1, 3},
          std::move(bad),
          std::move(expected),
          [=](CudaContext& context, Memory& memory, const std::int64_t* at) {
            const float *const x = memory.in(numbers<float>(all * gates, 1)),
                               *const w = memory.in(numbers<float>(gates * 16, 2)),
                               *const y = memory.in(numbers<float>(all, 3)),
                               *const kept = memory.in(numbers<float>(all * 4, 4)), *const none = nullptr;
            float* const to = memory.out<float>(all * 4);
            if (backward) {
              float* const dx = memory.out<float>(all * gates);
              if (cell == Cell::rnn)
                rnn_backward(context, c, dx, nullptr, nullptr, y, none, y, w, none, at, kWhere);
              else if (cell == Cell::lstm)
                lstm_backward(context, c, dx, nullptr, nullptr, nullptr, nullptr, y, none, none, y, y, kept, w, none,
                              none, none, at, kWhere);
              else
                gru_backward(context, c, memory.out<float>(all * gates), dx, nullptr, nullptr, y, none, y, kept, w,
                             none, at, kWhere);
            } else if (cell == Cell::rnn) {
              rnn(context, c, to, nullptr, x, w, none, none, at, kWhere);
            } else if (cell == Cell::lstm) {
              lstm(context, c, to, nullptr, nullptr, nullptr, nullptr, x, w, none, none, none, none, at, kWhere);
            } else {
              gru(context, c, to, nullptr, nullptr, x, w, none, none, at, kWhere);
            }
          }};
}

TEST(CudaCallFaults, AreThoseOfTheProcessor) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  const gather_config short_lines{.rank = 2, .dim = 1, .shape = {5, 9}, .x_shape = {5, 7}},
      long_lines{.rank = 1, .dim = 0, .shape = {300}, .x_shape = {40}};
  const std::vector<Case> cases = {
      rows("index_select of vectors", {.outer = 2, .size = 9, .inner = 8, .count = 700}, of_many(700, 9),
           {{690, 9}, {13, -1}, {350, kHuge}}, "index_select: index -1 at position 13 is outside [0, 9)"),
      rows("index_select of elements", {.outer = 3, .size = 9, .inner = 1, .count = 20}, of_many(20, 9), {{19, 9}},
           "index_select: index 9 at position 19 is outside [0, 9)"),
      added("index_add of many rows", {.outer = 1, .size = 60, .inner = 12, .count = 70}, of_many(70, 60),
            {{69, 60}, {2, -7}}, "index_add: index -7 at position 2 is outside [0, 60)"),
      added("index_add of few rows", {.outer = 2, .size = 2, .inner = 36, .count = 300}, of_many(300, 2),
            {{299, 2}, {298, -kHuge}}, "index_add: index -1099511627776 at position 298 is outside [0, 2)"),
      added("index_add, padding", {.outer = 1, .size = 9, .inner = 5, .count = 50, .skipped = 4}, of_many(50, 9),
            {{7, -1}, {8, 9}}, "index_add: index -1 at position 7 is outside [0, 9)"),
      lines("gather", Line::gather, short_lines, {{40, 7}, {44, 8}},
            "gather: index 7 at position 40 is outside [0, 7)"),
      lines("scatter, lines", Line::scatter, short_lines, {{3, -1}},
            "scatter: index -1 at position 3 is outside [0, 7)"),
      lines("scatter, sorted", Line::scatter, long_lines, {{299, 40}, {77, 41}},
            "scatter: index 41 at position 77 is outside [0, 40)"),
      lines("scatter_add, lines", Line::scatter_add, short_lines, {{44, 7}},
            "scatter_add: index 7 at position 44 is outside [0, 7)"),
      lines("scatter_add, sorted", Line::scatter_add, long_lines, {{0, -1}, {1, -2}},
            "scatter_add: index -1 at position 0 is outside [0, 40)"),
      {"one_hot",
       of_many(70, 11),
       {{69, 11}, {68, 12}},
       "one_hot: class 12 at position 68 is outside [0, 11)",
       [](CudaContext& context, Memory& memory, const std::int64_t* at) {
         one_hot(context, one_hot_config{.rows = 70, .classes = 11}, memory.out<float>(770), at, kWhere);
       }},
      labels("cross_entropy", false, 10, {{39, 10}, {5, -1}},
             "cross_entropy: label -1 at position 5 is outside [0, 10)"),
      labels("cross_entropy of long rows", false, 9000, {{17, 9000}, {39, -101}},
             "cross_entropy: label 9000 at position 17 is outside [0, 9000)"),
      labels("cross_entropy_backward", true, 10, {{38, kHuge}, {39, 10}},
             "cross_entropy: label 1099511627776 at position 38 is outside [0, 10)"),
      lengths("rnn", Cell::rnn, false, {{1, 0}, {2, 6}}, "rnn: length 0 at position 1 is outside [1, 6)"),
      lengths("lstm", Cell::lstm, false, {{2, 6}}, "lstm: length 6 at position 2 is outside [1, 6)"),
      lengths("gru", Cell::gru, false, {{0, -1}}, "gru: length -1 at position 0 is outside [1, 6)"),
      lengths("rnn_backward", Cell::rnn, true, {{1, 0}}, "rnn_backward: length 0 at position 1 is outside [1, 6)"),
      lengths("lstm_backward", Cell::lstm, true, {{2, 6}}, "lstm_backward: length 6 at position 2 is outside [1, 6)"),
      lengths("gru_backward", Cell::gru, true, {{0, -1}}, "gru_backward: length -1 at position 0 is outside [1, 6)"),
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Indices bad = c.good;
    for (const auto& [position, index] : c.bad) bad[position] = index;
    const std::string expected = std::string(kWhere) + ": " + c.expected;
    (void)everywhere([&](CudaContext& context, Memory& memory) {
      c.call(context, memory, memory.in(c.good));
      EXPECT_EQ(error_of([&] { finish_calls(context); }), "");
      c.call(context, memory, memory.in(bad));
      c.call(context, memory, memory.in(c.good));
      EXPECT_EQ(error_of([&] { finish_calls(context); }), expected);
      EXPECT_EQ(error_of([&] { finish_calls(context); }), "") << "it was said";
      c.call(context, memory, memory.in(c.good));
      EXPECT_EQ(error_of([&] { finish_calls(context); }), "");
    });
  }
}

TEST(CudaCallFaults, OfProbabilities) {
  const binary_cross_entropy_config c{.n = 700};
  std::vector<float> x = numbers<float>(c.n, 1, 0, 1), t = numbers<float>(c.n, 2, 0, 1);
  const auto expect = [&](const char* expected) {
    (void)everywhere([&](CudaContext& context, Memory& memory) {
      binary_cross_entropy(context, c, memory.out<float>(c.n), memory.in(x), memory.in(t), "loss");
      EXPECT_EQ(error_of([&] { finish_calls(context); }), expected);
    });
  };
  expect("");
  t[600] = -0.25f;
  expect("loss: binary_cross_entropy: target -0.25 at position 600 is outside [0, 1]");
  x[699] = std::nanf("");
  expect("loss: binary_cross_entropy: input nan at position 699 is outside [0, 1]");
  x[31] = 1.5f;
  expect("loss: binary_cross_entropy: input 1.5 at position 31 is outside [0, 1]");
}

// What is learned stays as it is until the host is told: a part of a step can be made again.
TEST(CudaCallFaults, NothingIsAddedUpBehindOne) {
  const auto sums = everywhere([&](CudaContext& context, Memory& memory) {
    auto* const sum = memory.inout(std::vector<float>{1, 2, 3});
    const float* const x = memory.in(std::vector<float>{10, 20, 30});
    const std::int64_t *const part = memory.in(Indices{1}), *const parts = memory.in(Indices{2});
    one_hot(context, one_hot_config{.rows = 1, .classes = 3}, memory.out<float>(3), memory.in(Indices{3}));
    accumulate(context, accumulate_config{.n = 3}, sum, x, part, parts, nullptr);
    EXPECT_NE(error_of([&] { finish_calls(context); }), "");
    memory.result(sum, 3);
    accumulate(context, accumulate_config{.n = 3}, sum, x, part, parts, nullptr);
    context.synchronize();
    memory.result(sum, 3);
  });
  EXPECT_EQ(sums[0], (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(sums[1], (std::vector<double>{5.5, 11, 16.5}));
}

// Of launches that both found something the first one is told, also where they are of one layer; and of nothing every
// index is out of range.
TEST(CudaCallFaults, TheFirstLaunchOfACallIsTold) {
  (void)everywhere([&](CudaContext& context, Memory& memory) {
    const one_hot_config config{.rows = 4, .classes = 3};
    auto* const y = memory.out<float>(12);
    one_hot(context, config, y, memory.in(Indices{0, 1, 2, 9}), "layer");
    one_hot(context, config, y, memory.in(Indices{0, 7, 2, 1}), "layer");
    EXPECT_EQ(error_of([&] { finish_calls(context); }), "layer: one_hot: class 9 at position 3 is outside [0, 3)");
    index_select(context, index_select_config{.outer = 1, .size = 0, .inner = 2, .count = 1}, y,
                 static_cast<const float*>(y), memory.in(Indices{0}), "layer");
    EXPECT_EQ(error_of([&] { finish_calls(context); }), "layer: index_select: index 0 at position 0 is outside [0, 0)");
  });
}

// Of calls that both found something, the one that came first is told.
TEST(CudaCallFaults, TheFirstCallIsTold) {
  (void)everywhere([&](CudaContext& context, Memory& memory) {
    const one_hot_config first{.rows = 2, .classes = 3}, second{.rows = 2, .classes = 4};
    auto* const y = memory.out<float>(8);
    const std::int64_t *const good = memory.in(Indices{0, 1}), *const bad = memory.in(Indices{0, 9});
    one_hot(context, first, y, good, "first");
    one_hot(context, second, y, bad, "second");
    one_hot(context, first, y, bad, "first");
    EXPECT_EQ(error_of([&] { finish_calls(context); }), "second: one_hot: class 9 at position 1 is outside [0, 4)");
  });
}

}  // namespace
}  // namespace graven::kernels
