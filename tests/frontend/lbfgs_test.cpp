// LBFGS against PyTorch's numbers (tests/fixtures/make_optimizers.py): parameters, losses and how often the loss was
// evaluated.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::lbfgs_test {
namespace {

optim::LBFGSOptions options_of(const nlohmann::json& o) {
  optim::LBFGSOptions options;
  options.lr = o.value("lr", options.lr);
  options.max_iter = o.value("max_iter", options.max_iter);
  if (o.contains("max_eval")) options.max_eval = o.at("max_eval").get<std::int64_t>();
  options.tolerance_change = o.value("tolerance_change", options.tolerance_change);
  options.history_size = o.value("history_size", options.history_size);
  options.line_search_fn = o.contains("line_search_fn") ? optim::LineSearch::strong_wolfe : optim::LineSearch::none;
  return options;
}

/// The loss of make_optimizers.py.
struct Problem {
  Tensor a = tensor({1.5, -2.0}, f64).requires_grad_(), b = tensor({{0.5}, {3.0}}, f64).requires_grad_();
  std::int64_t evaluations = 0;

  test::Call<Tensor()> closure(optim::LBFGS& optimizer) {
    return [this, &optimizer] {
      ++evaluations;
      optimizer.zero_grad();
      const Tensor p = cat({a, b.reshape({-1})});
      const Tensor squares = square(p - arange(4).to(f64) / 4) * tensor({1.0, 5.0, 0.5, 2.0}, f64);
      const Tensor loss = squares.sum() + 0.1 * pow(p, 4).sum() + (p.slice(0, 1) * p.slice(0, 0, 3)).sum() * 0.3;
      loss.backward();
      return loss;
    };
  }
  std::vector<double> parameters() const {
    std::vector<double> all = a.to_vector<double>();
    for (const double x : b.to_vector<double>()) all.push_back(x);
    return all;
  }
};

TEST(Lbfgs, TakesTheStepsOfPyTorch) {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/optimizers.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("lbfgs");
  ASSERT_GT(cases.size(), 5u);
  for (const bool resumed : {false, true})
    for (const auto& c : cases) {
      SCOPED_TRACE(c.at("options").dump() + (resumed ? ", resumed before each step" : ""));
      Problem problem;
      optim::LBFGS optimizer({problem.a, problem.b}, options_of(c.at("options")));
      for (const auto& step : c.at("steps")) {
        if (resumed) {
          const nn::StateDict state = optimizer.state_dict();
          optimizer = optim::LBFGS({problem.a, problem.b}, options_of(c.at("options")));
          const nn::LoadReport report = optimizer.load_state_dict(state);
          EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
        }
        const Tensor loss = optimizer.step(problem.closure(optimizer));
        EXPECT_NEAR(loss.item<double>(), step.at("loss").get<double>(), 1e-9);
        EXPECT_EQ(problem.evaluations, step.at("evaluations").get<std::int64_t>());
        const std::vector<double> found = problem.parameters();
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_NEAR(found[i], step.at("parameters")[i].get<double>(), 1e-8) << i;
      }
    }
}

TEST(Lbfgs, TrainsAModule) {
  manual_seed(20);
  nn::Sequential model(nn::Linear(1, 8), [](Tensor x) { return x.tanh(); }, nn::Linear(8, 1));
  const Tensor x = linspace(-1, 1, 32).unsqueeze(1), y = sin(3 * x);
  optim::LBFGS optimizer(model.parameters(), {.line_search_fn = optim::LineSearch::strong_wolfe});
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    last = optimizer
               .step([&] {
                 optimizer.zero_grad();
                 const Tensor loss = mse_loss(model(x), y);
                 loss.backward();
                 return loss;
               })
               .item<double>();
  }
  EXPECT_LT(last, 1e-3);
}

TEST(Lbfgs, SaysWhatIsWrong) {
  const Tensor p = ones({2}).requires_grad_();
  const optim::LBFGS optimizer({p});
  struct Recorded : nn::Graph<Recorded> {
    Tensor build(Tensor x) {
      optim::LBFGS inner({ones({2}).requires_grad_()});
      inner.step([&] { return x; });
      return x;
    }
  } graph;
  const struct {
    test::Call<void()> mistake;
    const char* error;
  } cases[] = {
      {[&] { optim::LBFGS({}); }, "lbfgs: there are no parameters to optimise"},
      {[&] { optim::LBFGS({p, p}); }, "lbfgs: parameter 1 is given twice: f32[2] is parameter 0, too"},
      {[&] { optim::LBFGS({p * 2}); }, "lbfgs: parameter 0 must be a leaf, got the result of an operator, f32[2]"},
      {[&] { optim::LBFGS({ones({2}, i64)}); }, "lbfgs: parameter 0 must be floating-point, got i64[2]"},
      {[&] { optim::LBFGS({p, ones({2}, f16)}); }, "lbfgs: parameter 1 must be f32 or f64, got f16[2]"},
      {[&] { optim::LBFGS({p, ones({3}, f64)}); },
       "lbfgs: the parameters must have one dtype, got f32[2] and, as parameter 1, f64[3]"},
      {[&] { optim::LBFGS({p}, {.lr = -1}); }, "lbfgs: lr must be finite and not negative, got -1"},
      {[&] { optim::LBFGS({p}, {.max_iter = 0}); }, "lbfgs: max_iter must be positive, got 0"},
      {[&] { optim::LBFGS({p}, {.history_size = 0}); }, "lbfgs: history_size must be positive, got 0"},
      {[&] { optim::LBFGS(optimizer).step([&] { return ones({2}); }); },
       "step() of LBFGS: the closure must return the loss, a tensor of one element, got f32[2]"},
      {[&] { optim::LBFGS(optimizer).step({}); }, "step() of LBFGS: the closure, which computes the loss, is empty"},
      {[&] { graph.compile(spec({2})); },
       "step() of LBFGS within build(): it evaluates its closure as often as it needs"},
      {[&] { optim::LBFGS(optimizer).load_state_dict({}); }, "missing     n_iter"},
      {[&] { optim::LBFGS(optimizer).load_state_dict({{"n_iter", tensor(3, i64)}, {"func_evals", tensor(4, i64)}}); },
       "after the first step there must be d and prev_flat_grad; nothing was loaded"},
  };
  for (const auto& c : cases) {
    const std::string text = test::error_of(c.mistake);
    EXPECT_NE(text.find(c.error), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace graven::lbfgs_test
