// Recurrent layers against the reference kernels in double: projections, both directions, with and without states,
// optional inputs and results, in every order of threads and blocks. (operators_test.cpp runs the operators' own
// cases.)
#include "kernels/cuda/recurrent.cuh"
#include "kernel_harness.h"
#include "oracle.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

struct Case {
  recurrent_config config;
  bool given;  ///< whether there are states, biases, gradients of the last states, and all results are asked for
};
/// Of sequences that have lengths, so many at most.
constexpr std::int64_t kMostSequences = 5;
const Case kCases[] = {
    {{.steps = 1, .batch = 1, .hidden = 1, .state = 1, .reverse = false, .relu = false}, false},
    {{.steps = 4, .batch = 3, .hidden = 17, .state = 17, .reverse = true, .relu = true}, true},
    {{.steps = 3, .batch = 2, .hidden = 40, .state = 40, .reverse = false, .relu = false}, true},
    {{.steps = 3, .batch = 5, .hidden = 9, .state = 4, .reverse = true, .relu = false}, true},
    {{.steps = 2, .batch = 3, .hidden = 35, .state = 33, .reverse = false, .relu = false}, false},
    {{.steps = 2, .batch = 0, .hidden = 3, .state = 3, .reverse = false, .relu = false}, true},
    {{.steps = 4, .batch = 5, .hidden = 17, .state = 17, .reverse = true, .padded = true}, true},
    {{.steps = 5, .batch = 4, .hidden = 6, .state = 6, .relu = true, .padded = true}, true},
    {{.steps = 3, .batch = 3, .hidden = 9, .state = 4, .reverse = true, .padded = true}, true},
    {{.steps = 3, .batch = 4, .hidden = 9, .state = 4, .padded = true}, true},
    {{.steps = 3, .batch = 4, .hidden = 9, .state = 9, .reverse = true, .padded = true}, false},
};

/// What a layer reads and makes, in float or double, on the host or on the device.
template <class T>
struct Tensors {
  const T *x, *w_hh, *b_hh, *h0, *c0, *w_hr, *dy, *dh_n, *dc_n;
  T *y, *h_n, *c_n, *cells, *gates, *dsums, *dx, *dh0, *dc0, *before, *dh;
  const std::int64_t* lengths;
};

template <int Gates>
struct Layer {
  template <class T, class Forward, class Backward>
  static void run(const Tensors<T>& t, const Forward& forward, const Backward& backward) {
    const auto constant = [](T* p) { return static_cast<const T*>(p); };
    if constexpr (Gates == 1) {
      forward(t.y, t.h_n, t.x, t.w_hh, t.b_hh, t.h0, t.lengths);
      backward(t.dsums, t.dh0, t.before, t.dy, t.dh_n, constant(t.y), t.w_hh, t.h0, t.lengths);
    } else if constexpr (Gates == 3) {
      forward(t.y, t.h_n, t.gates, t.x, t.w_hh, t.b_hh, t.h0, t.lengths);
      backward(t.dsums, t.dx, t.dh0, t.before, t.dy, t.dh_n, constant(t.y), constant(t.gates), t.w_hh, t.h0, t.lengths);
    } else {
      forward(t.y, t.h_n, t.c_n, t.cells, t.gates, t.x, t.w_hh, t.b_hh, t.h0, t.c0, t.w_hr, t.lengths);
      backward(t.dsums, t.dh0, t.dc0, t.before, t.dh, t.dy, t.dh_n, t.dc_n, constant(t.y), constant(t.cells),
               constant(t.gates), t.w_hh, t.h0, t.c0, t.w_hr, t.lengths);
    }
  }
};

template <int Gates, class Forward, class Backward, class ForwardOracle, class BackwardOracle>
void check(const Forward& forward, const Backward& backward, const ForwardOracle& forward_oracle,
           const BackwardOracle& backward_oracle) {
  for (const Case& c : kCases) {
    const recurrent_config& r = c.config;
    if (Gates != 4 && r.state != r.hidden) continue;  // an LSTM alone projects
    SCOPED_TRACE(std::to_string(r.steps) + "x" + std::to_string(r.batch) + "x" + std::to_string(r.hidden) + "->" +
                 std::to_string(r.state));
    const std::int64_t rows = r.steps * r.batch;
    const std::int64_t inputs[] = {rows * Gates * r.hidden, Gates * r.hidden * r.state, Gates * r.hidden,
                                   r.batch * r.state,       r.batch * r.hidden,         r.state * r.hidden,
                                   rows * r.state,          r.batch * r.state,          r.batch * r.hidden};
    // y, h_n, c_n, cells, gates; dsums, dx, dh0, dc0, before, dh
    const std::int64_t outputs[] = {rows * r.state,          r.batch * r.state,   r.batch * r.hidden,
                                    rows * r.hidden,         rows * 4 * r.hidden, rows * Gates * r.hidden,
                                    rows * Gates * r.hidden, r.batch * r.state,   r.batch * r.hidden,
                                    rows * r.state,          rows * r.state};
    std::vector<std::vector<float>> in;
    for (std::size_t i = 0; i < std::size(inputs); ++i) in.push_back(numbers<float>(inputs[i], i + 1, -0.5, 0.5));
    const bool made[] = {true,       true, Gates == 4, Gates == 4, Gates > 1, true,
                         Gates == 3, true, Gates == 4, true,       Gates == 4};
    // What the gradient reads is always there.
    const auto asked = [&](std::size_t i) { return made[i] && (c.given || i == 0 || i == 3 || i == 4 || i == 5); };
    const auto tensors = [&]<class T>(const T* const(&from)[9], T* const(&to)[11], const std::int64_t* lengths) {
      const auto given = [&](std::size_t i) { return c.given ? from[i] : nullptr; };
      const auto result = [&](std::size_t i) { return asked(i) ? to[i] : nullptr; };
      return Tensors<T>{from[0],   from[1],    given(2),
                        given(3),  given(4),   r.state == r.hidden ? nullptr : from[5],
                        from[6],   given(7),   given(8),
                        result(0), result(1),  result(2),
                        result(3), result(4),  result(5),
                        result(6), result(7),  result(8),
                        result(9), result(10), r.padded ? lengths : nullptr};
    };
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < kMostSequences; ++b) lengths.push_back(1 + (b * 2 + 1) % r.steps);
    std::vector<std::vector<double>> wide_in, expected;
    const double* from[9];
    double* to[11];
    for (const auto& i : in) wide_in.push_back(wide(i));
    for (const std::int64_t n : outputs) expected.emplace_back(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < 9; ++i) from[i] = wide_in[i].data();
    for (std::size_t i = 0; i < 11; ++i) to[i] = expected[i].data();
    Layer<Gates>::template run<double>(
        tensors(from, to, lengths.data()), [&](auto... a) { forward_oracle(r, a...); },
        [&](auto... a) { backward_oracle(r, a...); });
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float* device_in[9];
      float* device_out[11];
      for (std::size_t i = 0; i < 9; ++i) device_in[i] = memory.in(in[i]);
      for (std::size_t i = 0; i < 11; ++i) device_out[i] = memory.out<float>(outputs[i]);
      Layer<Gates>::template run<float>(
          tensors(device_in, device_out, memory.in(lengths)), [&](auto... a) { forward(context, r, a...); },
          [&](auto... a) { backward(context, r, a...); });
      context.synchronize();
      for (std::size_t i = 0; i < 11; ++i)
        if (asked(i)) memory.result(device_out[i], outputs[i]);
    });
    std::size_t next = 0;
    for (std::size_t i = 0; i < 11; ++i)
      if (asked(i))
        expect_close(got[next++], expected[i], tolerance_of::cuda_product.f32, "result " + std::to_string(i));
  }
}

TEST(CudaRecurrent, Rnn) {
  check<1>([](auto&&... a) { rnn(a...); }, [](auto&&... a) { rnn_backward(a...); }, oracle::rnn, oracle::rnn_backward);
}
TEST(CudaRecurrent, Lstm) {
  check<4>([](auto&&... a) { lstm(a...); }, [](auto&&... a) { lstm_backward(a...); }, oracle::lstm,
           oracle::lstm_backward);
}
TEST(CudaRecurrent, Gru) {
  check<3>([](auto&&... a) { gru(a...); }, [](auto&&... a) { gru_backward(a...); }, oracle::gru, oracle::gru_backward);
}

}  // namespace
}  // namespace graven::kernels
