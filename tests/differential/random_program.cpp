#include "tests/differential/random_program.h"

#include <graven/graven.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "frontend/eager/executor.h"
#include "frontend/tensor_impl.h"
#include "ir/diagnostic.h"
#include "ir/passes/pass.h"

namespace graven::tests {

namespace {

constexpr int kSteps = 3, kLength = 9;

struct Variables : nn::Module<Variables> {
  Tensor p = parameter("p", randn({3, 4})), q = parameter("q", randn({3, 4})), r = parameter("r", randn({3, 4}));
  Tensor a = buffer("a", randn({3, 4})), b = buffer("b", randn({3, 4})), c = buffer("c", randn({3, 4}).to(DType::f64));
  Tensor queue = buffer("queue", randn({6, 4})), place = buffer("place", tensor(0));
};

struct Named {
  std::string name;
  Tensor tensor;
};

/// One run: the same choices each time, by the seed.
class Run {
 public:
  Run(std::uint64_t seed, bool training, Variables& variables, const Tensor& x)
      : random_(seed), training_(training), v_(variables) {
    things_ = {{"p", v_.p}, {"q", v_.q}, {"r", v_.r}, {"a", v_.a}, {"b", v_.b}, {"x", x}};
  }

  std::vector<Tensor> results() {
    for (int line = 0; line < kLength; ++line) say_something();
    if (training_) {
      say("loss of the last, p and q");
      ((things_.back().tensor * v_.p).mean() + (v_.q * 0.3).square().mean()).backward();
      for (int line = choose(3); line > 0; --line) change(true);
    }
    std::vector<Tensor> results{things_.back().tensor};
    for (int count = choose(4); count > 0; --count) {
      const Named& of = any();
      const int kind = choose(kViews);
      say("return " + of.name + viewed(kind));
      results.push_back(view(of.tensor, kind));
    }
    return results;
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr int kViews = 9;
  int choose(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
  void say(const std::string& line) { text_ += "  " + line + "\n"; }
  const Named& any() { return things_[static_cast<std::size_t>(choose(static_cast<int>(things_.size())))]; }
  void add(Tensor t, const std::string& how) {
    things_.push_back({"t" + std::to_string(things_.size()), std::move(t)});
    say(things_.back().name + " = " + how);
  }
  static std::string viewed(int kind) { return kind == 0 ? "" : ".view " + std::to_string(kind); }
  static Tensor view(const Tensor& t, int kind) {
    switch (t.dim() == 2 ? kind : 0) {
      case 1:
        return t.select(0, 1);
      case 2:
        return t.select(1, t.size(1) - 1);
      case 3:
        return t.narrow(0, 1, 2);
      case 4:
        return t.slice(1, 0, t.size(1), 2);
      case 5:
        return t.t();
      case 6:
        return t.reshape({t.numel()});
      case 7:
        return t.reshape({t.numel()}).narrow(0, 2, 5);
      case 8:
        return t[1][2];
      default:
        return t;
    }
  }

  void say_something() {
    switch (choose(8)) {
      case 0:
      case 1:
        return compute();
      case 2: {
        const Named of = any();
        const int kind = choose(kViews);
        // What is held has the sizes of the others, so that it is read as they are.
        if (kind == 5) return add(of.tensor.t().t(), of.name + ".t().t()");
        return add(of.tensor.reshape({12}).reshape({3, 4}), "view of " + of.name);
      }
      case 3:
      case 4:
      case 5:
        return change(choose(6) != 0);
      case 6:
        return remember();
      default:
        if (!training_) return compute();
        const Named of = any();
        const Tensor loss = (of.tensor.square() + any().tensor * 0.1).mean();
        say("backward of " + of.name + "^2 and another");
        if (loss.requires_grad()) loss.backward();
    }
  }
  void compute() {
    const Named one = any(), other = any();
    const std::string both = one.name + ", " + other.name;
    switch (choose(6)) {
      case 0:
        return add(tanh(one.tensor + other.tensor), "tanh of sum " + both);
      case 1:
        return add(one.tensor * other.tensor * 0.5, "product " + both);
      case 2:
        return add(tanh(matmul(matmul(one.tensor, other.tensor.t()), one.tensor)), "products of matrices " + both);
      case 3:
        return add(one.tensor.clone() - other.tensor.mean(0), "clone less mean " + both);
      case 4:
        return add(one.tensor.detach() + other.tensor, "detached sum " + both);
      default:
        return add(softmax(one.tensor, -1) + v_.c.to(DType::f32) * 0.1, "softmax and c " + one.name);
    }
  }
  void change(bool guarded) {
    const Named target = any(), by = any();
    const int kind = choose(3) == 0 ? choose(kViews) : 0;
    std::optional<NoGradGuard> guard;
    if (guarded) guard.emplace();
    Tensor to = view(target.tensor, kind), from = view(by.tensor, kind);
    const std::string before = (guarded ? "quietly " : "") + target.name + viewed(kind) + " ", after = " " + by.name;
    switch (choose(9)) {
      case 0:
        say(before + "copy_" + after);
        to.copy_(from);
        break;
      case 1:
        say(before + "add_" + after);
        to.add_(from, 0.5);
        break;
      case 2:
        say(before + "clamp_");
        to.clamp_(-0.3, 0.4);
        break;
      case 3:
        say(before + "fill_");
        to.fill_(0.7);
        break;
      case 4:
        say(before + "lerp_" + after);
        to.lerp_(from, 0.1);
        break;
      case 5:
        say(before + "masked_fill_" + after);
        to.masked_fill_(from > 0, 0.1);
        break;
      case 6:
        say(before + "averaged with" + after);
        to.mul_(0.9).add_(from * 0.1);
        break;
      case 7:
        say(before + "exchanged with" + after);
        {
          const Tensor kept = to.clone();
          to.copy_(from);
          from.copy_(kept);
        }
        break;
      default:
        say(before + "tanh_");
        to.tanh_();
    }
  }
  void remember() {
    NoGradGuard guard;
    const Named of = any();
    switch (choose(4)) {
      case 0:
        say("queue by index <- " + of.name);
        v_.queue.index_put_({(arange(3) + v_.place).remainder(6)}, of.tensor.detach());
        v_.place.copy_((v_.place + 3).remainder(6));
        break;
      case 1:
        say("queue shifted <- " + of.name);
        v_.queue.copy_(cat({of.tensor.detach(), v_.queue.slice(0, 0, 3)}));
        break;
      case 2:
        say("c <- " + of.name);
        v_.c.mul_(0.5).add_(of.tensor * 0.5);
        break;
      default:
        say("p <- queue");
        v_.p.copy_(v_.queue.slice(0, 1, 4));
    }
  }

  std::mt19937_64 random_;
  bool training_;
  Variables& v_;
  std::vector<Named> things_;
  std::string text_;
};

struct Recorded : nn::Graph<Recorded> {
  std::uint64_t seed;
  bool training;
  Variables v = child("v", Variables());
  Recorded(std::uint64_t s, bool trains) : seed(s), training(trains) {
    if (training) add_optimizer(optim::SGD(v.parameters(), {.lr = 0.1, .momentum = 0.9}));
  }
  std::vector<Tensor> build(Tensor x) { return Run(seed, training, v, x).results(); }
};

ir::TensorData data_of(const Tensor& t) {
  ir::TensorData data{{t.dtype(), t.shape()}, {}};
  const Tensor rows = t.detach().contiguous();
  data.bytes.resize(static_cast<std::size_t>(t.numel()) * ir::size_of(t.dtype()));
  if (!data.bytes.empty()) std::memcpy(data.bytes.data(), rows.data_ptr(), data.bytes.size());
  return data;
}

/// The largest difference relative to 1 + the expected magnitude; both NaN is none.
double difference(const Tensor& expected, const ir::TensorData& found) {
  const auto e = expected.detach().to(DType::f64).contiguous().to_vector<double>(),
             f = from_bytes(found.bytes.data(), found.bytes.size(), found.type.dtype, found.type.shape)
                     .to(DType::f64)
                     .to_vector<double>();
  double largest = e.size() == f.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(e.size(), f.size()); ++i) {
    if (e[i] == f[i] || (std::isnan(e[i]) && std::isnan(f[i]))) continue;
    const double d = std::abs(e[i] - f[i]) / (1 + std::abs(e[i]));
    largest = std::isnan(d) ? INFINITY : std::max(largest, d);
  }
  return largest;
}

}  // namespace

ProgramResult check_program(std::uint64_t seed, bool training, bool in_backward) {
  std::string text;
  const auto finding = [&](const std::string& what) {
    return ProgramResult{false, "program " + std::to_string(seed) + (training ? ", training" : "") +
                                    (in_backward ? ", updates in backward" : "") + ": " + what + "\n" + text};
  };
  manual_seed(static_cast<std::int64_t>(seed));
  std::vector<Tensor> inputs;
  for (int step = 0; step < kSteps; ++step) inputs.push_back(randn({3, 4}));
  Variables eager;
  manual_seed(static_cast<std::int64_t>(seed) + 1);
  std::map<std::string, ir::TensorData> start;
  for (const auto& [name, t] : eager.state_dict()) start.emplace("v." + name, data_of(t));

  std::vector<std::vector<Tensor>> results;
  std::vector<nn::StateDict> held;
  bool refused = false;
  try {
    optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      Run run(seed, training, eager, inputs[static_cast<std::size_t>(step)].clone());
      results.emplace_back();
      for (const Tensor& t : run.results()) results.back().push_back(t.detach().clone());
      text = run.text();
      if (training) optimizer.step();
      held.emplace_back();
      for (const auto& [name, t] : eager.state_dict()) held.back().emplace_back("v." + name, t.detach().clone());
    }
  } catch (const UserError&) {
    refused = true;
  }

  ir::Graph graph;
  try {
    Recorded recorded(seed, training);
    if (in_backward) recorded.update_in_backward();
    graph = recorded.trace(spec({3, 4}, "x"));
    ir::run_passes(graph, {});
  } catch (const UserError&) {
    return {};
  } catch (const std::exception& e) {
    return finding(e.what());
  }
  if (refused) return {};
  eager::Environment kept;  // from step to step
  for (const auto& [name, data] : start)
    if (const ir::ValueId v = graph.find(name); v != ir::kNone) kept[v] = data;
  for (const ir::ValueId v : graph.states) kept[v] = data_of(zeros(graph.type(v).shape));
  for (std::size_t step = 0; step < kSteps; ++step) {
    eager::Environment values = kept;
    values[graph.inputs.at(0)] = data_of(inputs[step]);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].kind == ir::ValueKind::hyper)
        values[static_cast<ir::ValueId>(v)] = graph.values[v].name == "step"
                                                  ? data_of(tensor(static_cast<std::int64_t>(step) + 1))
                                                  : data_of(tensor(0.1, DType::f64));
    eager::execute(graph, values, {});
    for (auto& [v, data] : kept) data = values.at(v);
    const std::string at = ", step " + std::to_string(step);
    for (std::size_t k = 0; k < results[step].size(); ++k)
      if (const double d = difference(results[step][k], values.at(graph.outputs.at(k))); d > 1e-4)
        return finding("result " + std::to_string(k) + " differs by " + std::to_string(d) + at);
    for (const auto& [name, t] : held[step]) {
      const ir::ValueId v = graph.find(name);
      if (const double d = difference(t, v == ir::kNone ? start.at(name) : values.at(v)); d > 1e-4)
        return finding(name + " differs by " + std::to_string(d) + at);
    }
  }
  return {true, std::nullopt};
}

}  // namespace graven::tests
