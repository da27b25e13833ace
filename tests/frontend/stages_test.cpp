// Stages of a pipeline, in the graph: which node is in which stage, what crosses from one to another, that numbers stay
// what they are without, and what is refused. tests/projects/pipeline_test.cpp runs their projects.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "codegen/targets/targets.h"
#include "frontend/eager/executor.h"
#include "ir/analysis.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/pass.h"
#include "ir/stages.h"
#include "ir/tensor_value.h"
#include "ir/text.h"
#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::stages_test {
namespace {

using test::error_of;

template <class Model>
struct Train : nn::Graph<Train<Model>> {
  Model model;
  optim::AdamW optimizer;
  explicit Train(Model m)
      : model(this->child("model", m)), optimizer(model.parameters(), {.lr = 0.01, .clip_grad_max_norm = 0.5}) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(flatten(model(x), 0, -2), flatten(labels));
    loss.backward();
    return loss;
  }
};

struct Mlp : nn::Module<Mlp> {
  nn::Linear first = child("first", nn::Linear(16, 32)), second = child("second", nn::Linear(32, 32)),
             third = child("third", nn::Linear(32, 4));
  Tensor forward(Tensor x) {
    // A residual that passes over a stage, and a mask that all of them read.
    const Tensor mask = gt(x.slice(1, 0, 1), 0).to(f32);
    const Tensor h = relu(first(x) * mask);
    return third(relu(second(h)) * mask + h) * mask;
  }
};

void in_three(Mlp& m) {
  m.first.set_stage(0);
  m.second.set_stage(1);
  m.third.set_stage(2);
}

/// The second stage reads the input under another shape, as the first one does, and as that one has shaped it: in
/// training behind a dropout, and as it is when it is evaluated.
struct Shaped : nn::Module<Shaped> {
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  Tensor forward(Tensor x) { return flatten(dropout(x), 1); }
};
struct Joined : nn::Module<Joined> {
  nn::Linear linear = child("linear", nn::Linear(56, 4));
  Tensor forward(Tensor a, Tensor b, Tensor c) { return linear(concat({a, b, c}, 1)); }
};
struct Passes : nn::Module<Passes> {
  Shaped shaped = child("shaped", Shaped());
  nn::Linear linear = child("linear", nn::Linear(16, 24));
  Joined joined = child("joined", Joined());
  Tensor forward(Tensor x) {
    const Tensor flat = flatten(x, 1);
    return joined(relu(linear(flat)), shaped(x), flat);
  }
};

/// A mean teacher: what its layers are, the update of another stage than the one that reads them decides; and a buffer
/// that follows parameters of one stage.
struct Followed : nn::Module<Followed> {
  Tensor norm = buffer("norm", zeros({1}));
};
struct TrainWithTeacher : nn::Graph<TrainWithTeacher> {
  Mlp model, teacher = child("teacher", Mlp());
  Followed followed = child("followed", Followed());
  optim::AdamW optimizer{
      {{model.first.parameters(), {.lr = 0.01, .weight_decay = 0.1}}, {others(), {.lr = 0.02, .weight_decay = 0}}}};
  explicit TrainWithTeacher(Mlp m) : model(child("model", m)) {
    add_optimizer(optimizer);
    teacher.load_state_dict(model.state_dict());
  }
  std::vector<Tensor> others() const {
    std::vector<Tensor> all = model.second.parameters();
    for (const Tensor& t : model.third.parameters()) all.push_back(t);
    return all;
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor taught;
    {
      const NoGradGuard no_grad;
      taught = teacher(x);
    }
    const Tensor scores = model(x);
    Tensor loss = cross_entropy(scores, labels) + 0.1 * square(scores - taught).mean();
    loss.backward();
    nn::utils::clip_grad_norm_(model.parameters(), 0.5);
    nn::utils::update_average_(teacher, model, 0.9);
    const nn::AfterUpdate after;
    followed.norm.copy_(0.5 * followed.norm + model.third.weight.square().sum());
    return loss;
  }
};
void in_three_with(Mlp& teacher, Mlp& m) {
  in_three(m);
  teacher.set_stage(2);
}

const Spec kX = spec({8, 16}, "x"), kLabels = spec({8}, i64, "labels");

ir::Graph lowered(ir::Graph graph) {
  ir::PassOptions options;
  options.target = &codegen::target_named("cpu").passes;
  ir::run_passes(graph, options);
  return graph;
}

/// Every number that a step leaves, by name.
std::map<std::string, std::vector<double>> step(const ir::Graph& graph) {
  eager::Environment values;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ir::Value& value = graph.values[v];
    if (value.kind == ir::ValueKind::node || value.kind == ir::ValueKind::constant) continue;
    std::mt19937 random(static_cast<std::uint32_t>(std::hash<std::string>()(value.name)));
    std::vector<double> elements(static_cast<std::size_t>(value.type.shape.numel().value()));
    for (double& e : elements) {
      if (value.kind == ir::ValueKind::hyper)
        e = value.name == "lr.0" ? 0.05 : value.name == "part" ? 0 : value.name == "parts" ? 1 : 3;
      else if (value.kind == ir::ValueKind::state)
        e = 0.25;  // Adam's steps are no quotients of rounding
      else if (ir::is_floating(value.type.dtype))
        e = static_cast<double>(random() >> 8) / (1 << 24) - 0.5;
      else
        e = static_cast<double>(random() % 4);
    }
    values[static_cast<ir::ValueId>(v)] = *ir::tensor_data(value.type, elements);
  }
  eager::execute(graph, values);
  std::map<std::string, std::vector<double>> results;
  const auto keep = [&](const std::string& name, ir::ValueId v) { results[name] = *ir::elements_of(values.at(v)); };
  keep("loss", graph.outputs.at(0));
  for (const std::vector<ir::ValueId>* list : {&graph.parameters, &graph.states})
    for (const ir::ValueId v : *list) keep(graph.value(v).name, v);
  return results;
}

struct Network {
  const char* name;
  /// `ask` is asked of the graph and its model.
  test::Call<ir::Graph(bool staged, const test::Call<void(nn::GraphBase&, nn::ModuleBase&)>& ask)> record;
  std::int32_t stages;
};

models::GPT2LMHeadModel small_gpt2() {
  return models::GPT2LMHeadModel(
      {.n_layer = 4, .n_head = 2, .n_embd = 16, .n_positions = 8, .vocab_size = 12, .resid_pdrop = 0.1});
}
void in_two(models::GPT2LMHeadModel& model) {
  model.transformer.set_stage(0);
  model.transformer.h[2].set_stage(1);
  model.transformer.h[3].set_stage(1);
  model.transformer.ln_f.set_stage(1);
  model.lm_head.set_stage(1);
}

std::vector<Network> networks() {
  const auto of = [](auto make, auto stages, Spec x, Spec labels) {
    return [=](bool staged, const test::Call<void(nn::GraphBase&, nn::ModuleBase&)>& ask) {
      manual_seed(1);
      auto model = make();
      if (staged) stages(model);
      Train graph(model);
      if (!staged) graph.enable_data_parallel();  // its steps have parts as well
      if (ask) ask(graph, model);
      return graph.trace(x, labels);
    };
  };
  return {{"mlp", of([] { return Mlp(); }, in_three, kX, kLabels), 3},
          {"lenet",
           of([] { return models::LeNet(); },
              [](models::LeNet& m) {
                int layer = 0;
                for (const auto& [name, module] : m.named_modules())
                  if (module.children().empty()) module.set_stage(std::min(layer++ / 3, 3));
              },
              spec({4, 1, 28, 28}, "x"), spec({4}, i64, "labels")),
           4},
          {"teacher",
           [](bool staged, const test::Call<void(nn::GraphBase&, nn::ModuleBase&)>& ask) {
             manual_seed(1);
             Mlp model;
             TrainWithTeacher graph(model);
             if (staged) in_three_with(graph.teacher, model);
             if (!staged) graph.enable_data_parallel();
             if (ask) ask(graph, model);
             return graph.trace(kX, kLabels);
           },
           3},
          {"passes",
           of([] { return Passes(); },
              [](Passes& m) {
                m.shaped.set_stage(0);
                m.linear.set_stage(0);
                m.joined.set_stage(1);
              },
              spec({8, 4, 4}, "x"), kLabels),
           2},
          {"gpt2", of(small_gpt2, in_two, spec({2, 8}, i64, "x"), spec({2, 8}, i64, "labels")), 2}};
}

/// Every node reads what its own stage makes, or has received; no phase goes back to a stage that it has left.
void expect_stages(const ir::Graph& graph) {
  const std::vector<std::int32_t> stage = ir::stages_of_nodes(graph);
  const std::vector<bool> second = ir::second_round(graph);
  const ir::Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    for (const ir::ValueId v : node.inputs) {
      if (v == ir::kNone || uses.maker(v) < 0) continue;
      const std::int32_t from = stage[ir::at(uses.maker(v))];
      if (node.is(ir::kReceive)) {
        EXPECT_EQ(from, node.attributes.integer("from"));
        EXPECT_EQ(stage[n], node.attributes.integer("to"));
        const bool is_forward = node.phase == ir::Phase::forward;
        EXPECT_TRUE(node.phase == ir::Phase::update || (from < stage[n]) == is_forward) << graph.value(v).name;
      } else {
        EXPECT_EQ(from, stage[n]) << node.op->name << " reads " << graph.value(v).name;
      }
    }
    if (n > 0 && graph.nodes[n - 1].phase == node.phase && second[n - 1] == second[n]) {
      const bool backward = node.phase == ir::Phase::backward;
      EXPECT_LE(backward ? stage[n] : stage[n - 1], backward ? stage[n - 1] : stage[n]);
    }
  }
}

TEST(Stages, LeaveNumbersAsTheyAre) {
  for (const Network& n : networks()) {
    SCOPED_TRACE(n.name);
    const ir::Graph staged = lowered(n.record(true, {})), plain = lowered(n.record(false, {}));
    EXPECT_EQ(ir::count_stages(staged), n.stages);
    EXPECT_FALSE(ir::has_stages(plain));
    const auto found = step(staged), expected = step(plain);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, numbers] : expected) {
      ASSERT_EQ(found.at(name).size(), numbers.size()) << name;
      double largest = 0, apart = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        largest = std::max(largest, std::abs(numbers[i]));
        apart = std::max(apart, std::abs(numbers[i] - found.at(name)[i]));
      }
      EXPECT_LE(apart, 1e-5 * largest) << name;
    }
  }
}

TEST(Stages, EvaluateWhatIsTheSameWithoutThem) {
  for (const Network& n : networks()) {
    SCOPED_TRACE(n.name);
    const auto evaluation = [&](bool staged) {
      ir::Graph graph = ir::evaluation_graph(n.record(staged, {}));
      EXPECT_FALSE(ir::has_stages(graph)) << "one that is evaluated alone has none";
      if (staged) graph.config[std::string(ir::kStagedEvaluation)] = true;
      graph = lowered(std::move(graph));
      if (staged) ir::sort_by_stage(graph);
      return graph;
    };
    const ir::Graph staged = evaluation(true), plain = evaluation(false);
    EXPECT_EQ(ir::count_stages(staged), n.stages);
    EXPECT_FALSE(ir::crossings(staged).empty());
    expect_stages(staged);
    EXPECT_EQ(step(staged).at("loss"), step(plain).at("loss"));
    const codegen::Plan plan = codegen::make_plan(staged, codegen::target_named("cpu"), /*keep_results=*/true);
    const std::vector<ir::ValueId> root = ir::memory_roots(staged);
    for (const ir::Crossing& c : ir::crossings(staged))
      EXPECT_EQ(plan.placements[ir::at(root[ir::at(c.value)])].home, codegen::Home::arena) << "what can be sent";
  }
}

TEST(Stages, ReadWhatTheyHaveReceived) {
  const std::pair<const char*, test::Call<void(nn::GraphBase&, nn::ModuleBase&)>> asks[] = {
      {"as it is", {}},
      {"amp", [](nn::GraphBase& g, nn::ModuleBase&) { g.enable_amp(bf16); }},
      {"recomputed",
       [](nn::GraphBase&, nn::ModuleBase& model) {
         for (const auto& [name, module] : model.named_modules())
           if (module.children().empty()) module.activation_checkpointing();
       }},
      {"data parallel", [](nn::GraphBase& g, nn::ModuleBase&) { g.enable_data_parallel(); }},
      {"an update for each parameter", [](nn::GraphBase& g, nn::ModuleBase&) { g.allow_fuse_model_update_ops(false); }},
  };
  for (const Network& n : networks())
    for (const auto& [what, ask] : asks) {
      SCOPED_TRACE(std::string(n.name) + ", " + what);
      const ir::Graph traced = n.record(true, ask);
      ir::Graph graph = lowered(traced);
      for (const ir::Graph* g : {&traced, &std::as_const(graph)}) {
        EXPECT_EQ(ir::to_json(ir::from_json(ir::to_json(*g), "graph.json", {})), ir::to_json(*g));
        EXPECT_EQ(ir::to_json(ir::from_text(ir::to_text(*g), "graph.txt")), ir::to_json(*g));
      }
      ir::sort_by_stage(graph);
      expect_stages(graph);
      const codegen::Plan plan = codegen::make_plan(graph);
      codegen::verify_plan(graph, plan);
      // The plan keeps the calls of a stage together, in every mode.
      const std::vector<std::int32_t> stage = ir::stages_of_nodes(graph);
      const std::vector<bool> second = ir::second_round(graph);
      for (const std::string_view mode : ir::kStraightenModes) {
        graph.config[std::string(ir::kStraightenAlgorithm)] = std::string(mode);
        std::set<std::tuple<ir::Phase, bool, std::int32_t>> left;
        std::tuple<ir::Phase, bool, std::int32_t> last{ir::Phase::prepare, false, -1};
        for (const codegen::Step& s : codegen::make_plan(graph).steps) {
          const std::tuple now(graph.nodes[ir::at(s.node)].phase, bool(second[ir::at(s.node)]), stage[ir::at(s.node)]);
          if (now == last) continue;
          EXPECT_TRUE(left.insert(now).second) << mode;
          last = now;
        }
      }
    }
}

TEST(Stages, OfGpt2SendOneTensorForwardAndTwoBack) {
  const Network gpt2 = networks().back();
  ir::Graph graph = lowered(gpt2.record(true, {}));
  ir::sort_by_stage(graph);
  std::map<ir::Phase, std::multiset<std::string>> sent;
  for (const ir::Crossing& c : ir::crossings(graph))
    sent[c.phase].insert(std::to_string(c.from) + " to " + std::to_string(c.to) + ": " +
                         graph.type(c.value).to_string());
  using Sent = std::multiset<std::string>;
  EXPECT_EQ(sent[ir::Phase::forward], Sent{"0 to 1: f32[2,8,16]"});
  // The gradient of the residual stream, and the part of the embeddings' gradient that the last layer has.
  EXPECT_EQ(sent[ir::Phase::backward], (Sent{"1 to 0: f32[2,8,16]", "1 to 0: f32[12,16]"}));
  // The norms of their gradients.
  EXPECT_EQ(sent[ir::Phase::update], (Sent{"0 to 1: f32[]", "1 to 0: f32[]"}));
  const auto have = ir::stages_of_variables(graph);
  EXPECT_EQ(have[ir::at(graph.find("model.transformer.wte.weight"))], (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(have[ir::at(graph.find("model.transformer.wte.weight-m"))], (std::vector<std::int32_t>{0}));
  EXPECT_EQ(have[ir::at(graph.find("model.transformer.h.3.ln_1.weight"))], (std::vector<std::int32_t>{1}));
}

TEST(Stages, TrainInOneProcess) {
  const auto losses = [](bool staged) {
    manual_seed(4);
    Mlp model;
    if (staged) in_three(model);
    Train graph(model);
    const Tensor x = randn({8, 16}), labels = arange(8).remainder(4).to(i64);
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) found.push_back(graph(x, labels).item<double>());
    return found;
  };
  const std::vector<double> staged = losses(true), plain = losses(false);
  EXPECT_LT(staged.back(), staged.front());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(staged[i], plain[i], 1e-5);

  ASSERT_EQ(::setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0);
  const std::string said = error_of([&] { losses(true); });
  ASSERT_EQ(::unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
  EXPECT_NE(said.find("has stages, and is called in one of 2 processes"), std::string::npos) << said;
}

TEST(Stages, ArePrinted) {
  Mlp model;
  model.first.set_stage(0);
  model.second.set_stage(1);
  model.second.activation_checkpointing();
  Train graph(model);
  const std::string text = graph.repr();
  EXPECT_NE(text.find("(CONFIG:config:ModuleConfig(stage_id=0, ))"), std::string::npos) << text;
  EXPECT_NE(text.find("(CONFIG:config:ModuleConfig(stage_id=1, activation_checkpointing=True, ))"), std::string::npos);
  const ir::Graph traced = graph.trace(kX, kLabels);
  EXPECT_NE(ir::to_text(traced).find("config stage_of.model.second = {\"integer\":1}"), std::string::npos);
}

/// What is said of the mlp with these stages.
std::string refused(const test::Call<void(Mlp&)>& stages, const test::Call<void(nn::GraphBase&)>& ask = {}) {
  return error_of([&] {
    Mlp model;
    stages(model);
    Train graph(model);
    if (ask) ask(graph);
    lowered(graph.trace(kX, kLabels));
  });
}

TEST(Stages, RefuseWhatCannotBe) {
  const auto expect = [](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect(error_of([] { Mlp().first.set_stage(-1); }), "set_stage: stages are counted from 0, got -1");
  expect(refused([](Mlp& m) {
           m.first.set_stage(0);
           m.third.set_stage(2);
         }),
         "the stages of Train are 0, 2, and there is no stage 1: they are counted from 0, without gaps");
  expect(refused([](Mlp& m) { m.second.set_stage(1); }), "are 1, and there is no stage 0");
  const std::string back = refused([](Mlp& m) {
    m.first.set_stage(1);
    m.second.set_stage(0);
  });
  expect(back, "flows from model.first (stage 1) to model.second (stage 0): values flow to later stages");
  expect(back, "stages_test.cpp");
  expect(refused(in_three, [](nn::GraphBase& g) { g.update_in_backward(); }),
         "asks for update_in_backward, and has stages (set_stage)");
  expect(refused(in_three, [](nn::GraphBase& g) { g.set_grad_scaler(amp::GradScaler()); }),
         "which belongs to the update, reads what stages 0, 1, 2 of Train make: expected one stage");

  expect(error_of([] {
           struct Sums : nn::Graph<Sums> {
             Mlp model;
             Followed followed = child("followed", Followed());
             optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
             explicit Sums(Mlp m) : model(child("model", m)) { add_optimizer(optimizer); }
             Tensor build(Tensor x, Tensor labels) {
               Tensor loss = cross_entropy(model(x), labels);
               loss.backward();
               const nn::AfterUpdate after;
               followed.norm.copy_(model.first.weight.square().sum() + model.third.weight.square().sum());
               return loss;
             }
           };
           Mlp model;
           in_three(model);
           Sums graph(model);
           lowered(graph.trace(kX, kLabels));
         }),
         "reads what stages 0, 2 of Sums make: expected one stage\n  behind the update a stage reads what it has "
         "updated itself");

  struct Unused : nn::Module<Unused> {
    nn::Linear first = child("first", nn::Linear(16, 4)), second = child("second", nn::Linear(4, 4));
    Tensor forward(Tensor x) { return first(x); }
  };
  expect(error_of([] {
           Unused model;
           model.first.set_stage(0);
           model.second.set_stage(1);
           Train graph(model);
           lowered(graph.trace(kX, kLabels));
         }),
         "stage 1 of Train computes nothing that a result needs (model.second)");

  struct Watched : nn::Module<Watched> {
    nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(16));
    nn::Linear out = child("out", nn::Linear(16, 4));
    Tensor forward(Tensor x) {
      const Tensor before = norm.running_mean.mean();
      return out(norm(x)) + before;
    }
  };
  expect(error_of([] {
           Watched model;
           model.norm.set_stage(0);
           model.out.set_stage(1);
           Train graph(model);
           lowered(graph.trace(kX, kLabels));
         }),
         "'model.norm.running_mean' is changed in stage 0 while a step runs, and read in stage 1: expected one stage");
}

TEST(Stages, OfInferencesAreNone) {
  struct Infer : nn::Graph<Infer> {
    Mlp model = child("model", Mlp());
    Infer() { in_three(model); }
    Tensor build(Tensor x) { return model(x); }
  } infer;
  infer.model.eval();
  const ir::Graph graph = lowered(infer.trace(kX));
  EXPECT_FALSE(ir::has_stages(graph));
  for (const ir::Node& n : graph.nodes) EXPECT_FALSE(n.is(ir::kReceive));
}

}  // namespace
}  // namespace graven::stages_test
