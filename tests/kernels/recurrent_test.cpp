#include "kernels/cpu/recurrent.h"

#include "kernels/reference/recurrent.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

struct Case {
  recurrent_config config;
  bool given;  ///< whether there are states, biases and gradients of the last states
};
// By columns of a step, by rows of the batch, with ragged units and projections; weights too large for a cache, and for
// one block of a product.
const Case kCases[] = {
    {{.steps = 1, .batch = 1, .hidden = 1, .state = 1, .reverse = false, .relu = false}, false},
    {{.steps = 5, .batch = 3, .hidden = 17, .state = 17, .reverse = false, .relu = true}, true},
    {{.steps = 4, .batch = 2, .hidden = 150, .state = 150, .reverse = true, .relu = false}, true},
    {{.steps = 3, .batch = 31, .hidden = 64, .state = 64, .reverse = false, .relu = true}, false},
    {{.steps = 4, .batch = 100, .hidden = 33, .state = 33, .reverse = true, .relu = true}, true},
    {{.steps = 2, .batch = 26, .hidden = 300, .state = 300, .reverse = false, .relu = false}, true},
    {{.steps = 2, .batch = 2, .hidden = 530, .state = 530, .reverse = false, .relu = false}, false},
    {{.steps = 2, .batch = 0, .hidden = 5, .state = 5, .reverse = false, .relu = false}, true},
    {{.steps = 5, .batch = 3, .hidden = 17, .state = 17, .padded = true}, true},
    {{.steps = 6, .batch = 7, .hidden = 20, .state = 20, .reverse = true, .padded = true}, true},
    {{.steps = 4, .batch = 31, .hidden = 64, .state = 64, .relu = true, .padded = true}, false},
    {{.steps = 5, .batch = 40, .hidden = 33, .state = 33, .reverse = true, .relu = true, .padded = true}, true},
    {{.steps = 3, .batch = 26, .hidden = 300, .state = 300, .reverse = true, .padded = true}, true},
};
const Case kProjections[] = {
    {{.steps = 4, .batch = 3, .hidden = 17, .state = 5, .reverse = false, .relu = false}, true},
    {{.steps = 3, .batch = 40, .hidden = 70, .state = 20, .reverse = true, .relu = false}, true},
    {{.steps = 3, .batch = 5, .hidden = 200, .state = 130, .reverse = false, .relu = false}, false},
    {{.steps = 6, .batch = 3, .hidden = 17, .state = 5, .padded = true}, true},
    {{.steps = 4, .batch = 40, .hidden = 70, .state = 20, .reverse = true, .padded = true}, true},
    {{.steps = 4, .batch = 5, .hidden = 200, .state = 130, .reverse = true, .padded = true}, true},
};

/// Of each sequence, in [1, steps], in no order, both ends among them; nullptr where all have all steps.
const std::int64_t* lengths_of(const recurrent_config& c) {
  static std::vector<std::int64_t> lengths;
  if (!c.padded) return nullptr;
  lengths.clear();
  for (std::int64_t b = 0; b < c.batch; ++b) lengths.push_back(1 + (b * 5 + 2) % c.steps);
  return lengths.data();
}

std::string text(const Case& c) {
  const recurrent_config& r = c.config;
  return std::to_string(r.steps) + "x" + std::to_string(r.batch) + "x" + std::to_string(r.hidden) + "->" +
         std::to_string(r.state) + (r.reverse ? " reverse" : "") + (r.relu ? " relu" : "") +
         (r.padded ? " padded" : "") + (c.given ? " given" : "");
}

/// Tensors by their sizes, which differ between float and the reference in nothing but the type.
template <class T>
struct Inputs {
  std::vector<T> x, w_hh, b_hh, h0, c0, w_hr, dy, dh_n, dc_n;
  bool given;
  const T* optional(const std::vector<T>& t) const { return given ? t.data() : nullptr; }
  const T* projection() const { return w_hr.empty() ? nullptr : w_hr.data(); }
};
Inputs<float> random_inputs(const Case& c, std::int64_t gates) {
  const recurrent_config& r = c.config;
  const std::int64_t rows = r.steps * r.batch;
  const double scale = 1 / std::sqrt(static_cast<double>(r.state));
  return {random_tensor<float>(rows * gates * r.hidden, 1),
          random_tensor<float>(gates * r.hidden * r.state, 2, -scale, scale),
          random_tensor<float>(gates * r.hidden, 3),
          random_tensor<float>(r.batch * r.state, 4),
          random_tensor<float>(r.batch * r.hidden, 5),
          random_tensor<float>(r.state == r.hidden ? 0 : r.state * r.hidden, 6, -scale, scale),
          random_tensor<float>(rows * r.state, 7),
          random_tensor<float>(r.batch * r.state, 8),
          random_tensor<float>(r.batch * r.hidden, 9),
          c.given};
}
Inputs<double> wide(const Inputs<float>& f) {
  return {converted<double>(f.x),    converted<double>(f.w_hh),
          converted<double>(f.b_hh), converted<double>(f.h0),
          converted<double>(f.c0),   converted<double>(f.w_hr),
          converted<double>(f.dy),   converted<double>(f.dh_n),
          converted<double>(f.dc_n), f.given};
}

/// Outputs of these sizes, guarded, one behind the other; some of them left out.
template <class T>
class Outputs {
 public:
  Outputs(const std::vector<std::int64_t>& sizes, bool all) : all_(all) {
    for (const std::int64_t n : sizes) tensors_.emplace_back(n);
  }
  /// The first, or nullptr where only the first is asked for.
  T* operator[](std::size_t i) { return i == 0 || all_ ? tensors_[i].data() : nullptr; }
  std::vector<T> values(const std::string& what) const {
    std::vector<T> together;
    for (std::size_t i = 0; i < (all_ ? tensors_.size() : 1); ++i) {
      tensors_[i].expect_untouched_around(what);
      const std::vector<T> values = tensors_[i].values();
      together.insert(together.end(), values.begin(), values.end());
    }
    return together;
  }

 private:
  bool all_;
  std::vector<Guarded<T>> tensors_;
};

/// run(threads or nullptr for the reference, outputs, workspace), compared; once more with the first output alone,
/// which must be the same.
template <class Fast, class Reference>
void compare(const std::string& what, const std::vector<std::int64_t>& sizes, std::int64_t workspace_bytes,
             const Fast& fast, const Reference& reference) {
  SCOPED_TRACE(what);
  Outputs<double> expected(sizes, true);
  reference(expected);
  const auto run = [&](bool all) {
    return with_every_pool(what + (all ? "" : ", the first output"), [&](Threads& threads) {
      Outputs<float> outputs(sizes, all);
      Guarded<float> workspace(workspace_bytes / 4);
      fast(threads, outputs, workspace.data());
      workspace.expect_untouched_around(what + " workspace");
      return outputs.values(what);
    });
  };
  const std::vector<float> all = run(true), first = run(false);
  expect_close(all, expected.values(what), tolerance_of::recurrent.f32, what);
  expect_same_bits(first, std::vector<float>(all.begin(), all.begin() + sizes[0]), what + ", the first output");
}

TEST(Recurrent, Rnn) {
  for (const Case& c : kCases) {
    const recurrent_config& r = c.config;
    const Inputs<float> f = random_inputs(c, 1);
    const Inputs<double> d = wide(f);
    const std::int64_t all = r.steps * r.batch * r.hidden, one = r.batch * r.hidden;
    compare(
        "rnn " + text(c), {all, one}, recurrent_workspace_bytes(r, 1),
        [&](Threads& t, Outputs<float>& o, float* workspace) {
          rnn(t, r, o[0], o[1], f.x.data(), f.w_hh.data(), f.optional(f.b_hh), f.optional(f.h0), lengths_of(r),
              workspace);
        },
        [&](Outputs<double>& o) {
          reference::rnn(r, o[0], o[1], d.x.data(), d.w_hh.data(), d.optional(d.b_hh), d.optional(d.h0), lengths_of(r));
        });
    std::vector<double> y(d.dy.size());
    reference::rnn(r, y.data(), nullptr, d.x.data(), d.w_hh.data(), d.optional(d.b_hh), d.optional(d.h0),
                   lengths_of(r));
    const auto yf = converted<float>(y);
    y = converted<double>(yf);
    compare(
        "rnn_backward " + text(c), {all, one, all}, recurrent_backward_workspace_bytes(r, 1),
        [&](Threads& t, Outputs<float>& o, float* workspace) {
          rnn_backward(t, r, o[0], o[1], o[2], f.dy.data(), f.optional(f.dh_n), yf.data(), f.w_hh.data(),
                       f.optional(f.h0), lengths_of(r), workspace);
        },
        [&](Outputs<double>& o) {
          reference::rnn_backward(r, o[0], o[1], o[2], d.dy.data(), d.optional(d.dh_n), y.data(), d.w_hh.data(),
                                  d.optional(d.h0), lengths_of(r));
        });
  }
}

void check_lstm(const Case& c) {
  const recurrent_config& r = c.config;
  const Inputs<float> f = random_inputs(c, 4);
  const Inputs<double> d = wide(f);
  const std::int64_t rows = r.steps * r.batch;
  const std::vector<std::int64_t> sizes{rows * r.state, r.batch * r.state, r.batch * r.hidden, rows * r.hidden,
                                        rows * 4 * r.hidden};
  const auto expected = [&](double* y, double* h_n, double* c_n, double* cells, double* gates) {
    reference::lstm(r, y, h_n, c_n, cells, gates, d.x.data(), d.w_hh.data(), d.optional(d.b_hh), d.optional(d.h0),
                    d.optional(d.c0), d.projection(), lengths_of(r));
  };
  compare(
      "lstm " + text(c), sizes, recurrent_workspace_bytes(r, 4),
      [&](Threads& t, Outputs<float>& o, float* workspace) {
        lstm(t, r, o[0], o[1], o[2], o[3], o[4], f.x.data(), f.w_hh.data(), f.optional(f.b_hh), f.optional(f.h0),
             f.optional(f.c0), f.projection(), lengths_of(r), workspace);
      },
      [&](Outputs<double>& o) { expected(o[0], o[1], o[2], o[3], o[4]); });
  std::vector<double> y(d.dy.size()), cells(static_cast<std::size_t>(rows * r.hidden)), gates(d.x.size());
  expected(y.data(), nullptr, nullptr, cells.data(), gates.data());
  const auto yf = converted<float>(y), cellsf = converted<float>(cells), gatesf = converted<float>(gates);
  y = converted<double>(yf), cells = converted<double>(cellsf), gates = converted<double>(gatesf);
  compare(
      "lstm_backward " + text(c),
      {rows * 4 * r.hidden, r.batch * r.state, r.batch * r.hidden, rows * r.state, rows * r.state},
      recurrent_backward_workspace_bytes(r, 4),
      [&](Threads& t, Outputs<float>& o, float* workspace) {
        lstm_backward(t, r, o[0], o[1], o[2], o[3], o[4], f.dy.data(), f.optional(f.dh_n), f.optional(f.dc_n),
                      yf.data(), cellsf.data(), gatesf.data(), f.w_hh.data(), f.optional(f.h0), f.optional(f.c0),
                      f.projection(), lengths_of(r), workspace);
      },
      [&](Outputs<double>& o) {
        reference::lstm_backward(r, o[0], o[1], o[2], o[3], o[4], d.dy.data(), d.optional(d.dh_n), d.optional(d.dc_n),
                                 y.data(), cells.data(), gates.data(), d.w_hh.data(), d.optional(d.h0),
                                 d.optional(d.c0), d.projection(), lengths_of(r));
      });
}

TEST(Recurrent, Lstm) {
  for (const Case& c : kCases) check_lstm(c);
}
TEST(Recurrent, LstmThatProjects) {
  for (const Case& c : kProjections) check_lstm(c);
}

TEST(Recurrent, Gru) {
  for (const Case& c : kCases) {
    const recurrent_config& r = c.config;
    const Inputs<float> f = random_inputs(c, 3);
    const Inputs<double> d = wide(f);
    const std::int64_t rows = r.steps * r.batch, one = r.batch * r.hidden;
    const auto expected = [&](double* y, double* h_n, double* gates) {
      reference::gru(r, y, h_n, gates, d.x.data(), d.w_hh.data(), d.optional(d.b_hh), d.optional(d.h0), lengths_of(r));
    };
    compare(
        "gru " + text(c), {rows * r.hidden, one, rows * 4 * r.hidden}, recurrent_workspace_bytes(r, 3),
        [&](Threads& t, Outputs<float>& o, float* workspace) {
          gru(t, r, o[0], o[1], o[2], f.x.data(), f.w_hh.data(), f.optional(f.b_hh), f.optional(f.h0), lengths_of(r),
              workspace);
        },
        [&](Outputs<double>& o) { expected(o[0], o[1], o[2]); });
    std::vector<double> y(d.dy.size()), gates(static_cast<std::size_t>(rows * 4 * r.hidden));
    expected(y.data(), nullptr, gates.data());
    const auto yf = converted<float>(y), gatesf = converted<float>(gates);
    y = converted<double>(yf), gates = converted<double>(gatesf);
    compare(
        "gru_backward " + text(c), {rows * 3 * r.hidden, rows * 3 * r.hidden, one, rows * r.hidden},
        recurrent_backward_workspace_bytes(r, 3),
        [&](Threads& t, Outputs<float>& o, float* workspace) {
          gru_backward(t, r, o[0], o[1], o[2], o[3], f.dy.data(), f.optional(f.dh_n), yf.data(), gatesf.data(),
                       f.w_hh.data(), f.optional(f.h0), lengths_of(r), workspace);
        },
        [&](Outputs<double>& o) {
          reference::gru_backward(r, o[0], o[1], o[2], o[3], d.dy.data(), d.optional(d.dh_n), y.data(), gates.data(),
                                  d.w_hh.data(), d.optional(d.h0), lengths_of(r));
        });
  }
}

}  // namespace
}  // namespace graven::kernels::test
