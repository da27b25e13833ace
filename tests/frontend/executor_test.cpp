// The executor: whole training steps, before and after the passes, in the chosen kernels, the reference and double,
// against eager training.
#include "frontend/eager/executor.h"

#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <cstring>

#include "frontend/tensor_impl.h"
#include "ir/passes/pass.h"

namespace graven::executor_test {
namespace {

struct Net : nn::Module<Net> {
  nn::Sequential features =
      child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),
                                       nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier =
      child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(64, 12), nn::ReLU(), nn::Linear(12, 5)));
  Tensor forward(Tensor images) { return classifier(features(images)); }
};

struct TrainNet : nn::Graph<TrainNet> {
  Net model = child("model", Net());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainNet() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

ir::TensorData data_of(const Tensor& t) {
  ir::TensorData data{{t.dtype(), t.shape()}, {}};
  const Tensor rows = t.contiguous();
  data.bytes.resize(static_cast<std::size_t>(t.numel()) * ir::size_of(t.dtype()));
  if (!data.bytes.empty()) std::memcpy(data.bytes.data(), rows.data_ptr(), data.bytes.size());
  return data;
}

Tensor tensor_of(const ir::TensorData& d) {
  return from_bytes(d.bytes.data(), d.bytes.size(), d.type.dtype, d.type.shape).to(f64);
}

struct Case {
  const char* name;
  std::vector<std::string> disabled;
  std::string to;
  eager::Oracle oracle;
  double tolerance;
};

TEST(Executor, TrainsWholeGraphs) {
  manual_seed(5);
  TrainNet graph;
  const Tensor images = randn({7, 1, 16, 16}), labels = randint(0, 5, {7});
  const ir::Graph& traced =
      graph.trace(spec({Dim("batch", 9), 1, 16, 16}, "images"), spec({Dim("batch", 9)}, i64, "labels"));

  nn::StateDict before;
  for (const auto& [name, t] : graph.state_dict()) before.emplace_back(name, t.detach().clone());
  const Tensor loss = graph.loss_fn(graph.model(images), labels);
  loss.backward();
  graph.optimizer.step();

  const Case cases[] = {
      {"no rewriting, chosen kernels", {}, "add_optimizer_updates", eager::Oracle::none, 1e-5},
      {"no rewriting, reference", {}, "add_optimizer_updates", eager::Oracle::reference, 1e-5},
      {"no rewriting, double", {}, "add_optimizer_updates", eager::Oracle::double_reference, 1e-5},
      {"all passes, chosen kernels", {}, "", eager::Oracle::none, 1e-5},
      {"all passes, double", {}, "", eager::Oracle::double_reference, 1e-5},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ir::Graph g = traced;
    ir::PassOptions passes;
    passes.disabled = c.disabled;
    passes.to = c.to;
    ir::run_passes(g, passes);
    eager::Environment values;
    values[g.inputs.at(0)] = data_of(images);
    values[g.inputs.at(1)] = data_of(labels);
    for (const auto& [name, t] : before)
      if (const ir::ValueId v = g.find(name); v != ir::kNone) values[v] = data_of(t);
    for (std::size_t v = 0; v < g.values.size(); ++v) {
      const ir::Value& value = g.values[v];
      const auto id = static_cast<ir::ValueId>(v);
      if (value.kind == ir::ValueKind::state) values[id] = data_of(zeros(value.type.shape));
      if (value.kind == ir::ValueKind::hyper)
        values[id] = data_of(value.name == "step" ? tensor(1, i64) : tensor(0.1, f64));
    }
    eager::execute(g, values, {.oracle = c.oracle, .symbols = {{"batch", 7}}});
    EXPECT_NEAR(tensor_of(values.at(g.outputs.at(0))).item<double>(), loss.item<double>(), 1e-5);
    for (const auto& [name, t] : graph.model.state_dict()) {
      const Tensor got = tensor_of(values.at(g.find("model." + name)));
      EXPECT_TRUE(allclose(got, t.detach().to(f64), c.tolerance, c.tolerance)) << name;
    }
  }
}

TEST(Executor, SaysWhatIsMissing) {
  ir::Graph g;
  const ir::ValueId x = g.add_input("x", {f32, {2}});
  g.outputs = {g.call("relu", {x}, {}, {})};
  eager::Environment values;
  try {
    eager::execute(g, values);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("the value 'x' is needed by relu and was not given"), std::string::npos);
  }
}

}  // namespace
}  // namespace graven::executor_test
