// Graphs: what is recorded, names, errors. Nothing here runs a compiled program.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "ir/op.h"
#include "tests/frontend/error_text.h"
#include "tests/frontend/member_lines.h"

namespace graven {
namespace {

using test::error_of;

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(4, 3));
  nn::Linear logits = child("logits", nn::Linear(3, 2));
  Tensor forward(Tensor x) { return logits(relu(hidden(flatten(x, 1)))); }
};

struct TrainMlp : nn::Graph<TrainMlp> {
  Mlp model = child("model", Mlp());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainMlp() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = loss_fn(model(x), labels);
    loss.backward();
    return loss;
  }
};

/// One line a node, origins without lines.
std::string text_of(const ir::Graph& graph) {
  std::ostringstream out;
  for (const ir::Node& n : graph.nodes) {
    for (ir::ValueId v : n.outputs) out << graph.value(v).name << ' ' << graph.type(v).to_string() << ' ';
    out << "= " << n.op->name << "(";
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      out << (i ? ", " : "") << (n.inputs[i] == ir::kNone ? "-" : graph.value(n.inputs[i]).name);
    out << ") " << n.origins.at(0).module << "\n";
  }
  return out.str();
}

constexpr std::uint32_t kDeclarations = __LINE__;
struct Declared : nn::Module<Declared> {
  nn::Linear first = child("first", nn::Linear(4, 4));                                                  // + 2
  nn::Sequential list =                                                                                 //
      child("list", nn::Sequential(nn::Linear(4, 4), nn::ReLU()));                                      // + 4
  nn::ModuleList<nn::Linear> several = child("several", nn::ModuleList<nn::Linear>{nn::Linear(4, 4)});  // + 5
  models::MLP mlp = child("mlp", models::MLP(4, {4}));                                                  // + 6
  nn::MultiheadAttention attention = child("attention", nn::MultiheadAttention(4, 2));
  nn::Linear given;
  explicit Declared(nn::Linear linear) : given(child("given", linear)) {  // + 9
    list.push_back(nn::Tanh());                                           // + 10
    list.push_back("last", nn::Sigmoid());                                // + 11
    several.push_back(nn::Linear(4, 4));                                  // + 12
    const std::string name = "made";
    list.push_back(name, nn::SiLU());  // + 14
  }
  Tensor forward(Tensor x) {
    x = list(first(x));
    for (nn::Linear& l : several) x = l(x);
    x = attention(x, x, x).first;
    return given(mlp(x)) * 2;  // + 20
  }
};

TEST(Trace, LayersCarryTheLineThatDeclaresThem) {
  struct Holder : nn::Graph<Holder> {
    nn::Linear shared{4, 4};
    Declared model = child("model", Declared(shared));
    nn::Linear again = child("again", shared);  // declared by the model already
    nn::MSELoss loss_fn = child("loss_fn", nn::MSELoss());
    enum : std::uint32_t { loss_line = __LINE__ - 1 };
    Tensor build(Tensor x) { return loss_fn(again(model(x)), x); }
  } graph;
  const ir::Graph& g = graph.trace(spec({3, 4}));
  std::map<std::string, std::set<std::int64_t>> lines;
  for (const ir::Node& n : g.nodes) {
    ASSERT_EQ(n.origins.size(), 1u);
    EXPECT_EQ(n.origins[0].file, "graph_test.cpp") << n.origins[0].module;
    lines[n.origins[0].module].insert(std::int64_t{n.origins[0].line} - kDeclarations);
  }
  const std::int64_t loss = static_cast<std::int64_t>(Holder::loss_line) - kDeclarations;
  const auto line = [](std::int64_t own, std::int64_t otherwise) {
    return std::set<std::int64_t>{test::members_have_lines() ? own : otherwise};
  };
  EXPECT_EQ(lines, (std::map<std::string, std::set<std::int64_t>>{{"model.first", line(2, 9)},
                                                                  {"model.list.0", line(4, 9)},
                                                                  {"model.list.1", line(4, 9)},
                                                                  {"model.list.2", {10}},
                                                                  {"model.list.last", {11}},
                                                                  {"model.list.made", {14}},
                                                                  {"model.several.0", line(5, 9)},
                                                                  {"model.several.1", {12}},
                                                                  {"model.attention", line(7, 9)},
                                                                  {"model.attention.out_proj", line(7, 9)},
                                                                  {"model.mlp.0", line(6, 9)},
                                                                  {"model.given", {9}},
                                                                  {"model", {20}},
                                                                  {"loss_fn", line(loss, 25)}}));
}

TEST(Trace, ErrorsSayWhereALayerIsCalledAndWhereItIsDeclared) {
  constexpr int kLine = __LINE__;
  struct Net : nn::Module<Net> {
    nn::Sequential list = child("list", nn::Sequential(nn::ReLU(), nn::Linear(4, 4)));  // + 2
    nn::Softmax softmax = child("softmax", nn::Softmax(5));                             // + 3
    bool wide = true;
    Tensor forward(Tensor x) {
      if (wide) return list(x);  // + 6
      return softmax(x);         // + 7
    }
  };
  struct Holder : nn::Graph<Holder> {
    Net net;
    explicit Holder(Net n) : net(child("net", n)) {}
    Tensor build(Tensor x) { return net(x); }
  };
  const auto expect = [&](const std::string& text, const std::string& layer, int called, int declared) {
    const auto at = [&](int line) { return "graph_test.cpp:" + std::to_string(kLine + line); };
    if (!test::members_have_lines()) declared = 1;
    EXPECT_NE(text.find("\n  at " + at(called) + "\n  the " + layer + " is declared at " + at(declared)),
              std::string::npos)
        << text;
  };
  Net net;
  expect(error_of([&] { (void)net(zeros({2, 3})); }), "Linear", 6, 2);
  expect(error_of([&] { Holder(net).compile(spec({2, 3})); }), "Linear", 6, 2);
  net.wide = false;
  expect(error_of([&] { (void)net(zeros({2, 3})); }), "Softmax", 7, 3);
  expect(error_of([&] { Holder(net).compile(spec({2, 3})); }), "Softmax", 7, 3);
  // What a module was not found to register nobody knows the declaration of.
  EXPECT_EQ(error_of([&] { (void)nn::Linear(4, 4)(zeros({2, 3})); }).find("is declared at"), std::string::npos);
  // A user's own operators have their own line alone.
  struct Own : nn::Module<Own> {
    nn::Linear layer = child("layer", nn::Linear(4, 4));
    Tensor forward(Tensor x) { return layer(x) + zeros({3}); }
  };
  EXPECT_EQ(error_of([&] { (void)nn::Sequential(Own())(zeros({2, 4})); }).find("is declared at"), std::string::npos);
}

TEST(Trace, RecordsAnMlp) {
  TrainMlp graph;
  const ir::Graph& g = graph.trace(spec({Dim("batch", 8), 2, 2}, "images"), spec({Dim("batch", 8)}, i64, "labels"));
  EXPECT_EQ(
      text_of(g),
      "model.reshape f32[batch,4] = reshape(images) model\n"
      "model.hidden.linear f32[batch,3] = linear(model.reshape, model.hidden.weight, model.hidden.bias) model.hidden\n"
      "model.hidden.relu f32[batch,3] = relu(model.hidden.linear) model\n"
      "model.logits.linear f32[batch,2] = linear(model.hidden.relu, model.logits.weight, model.logits.bias) "
      "model.logits\n"
      "loss_fn.cross_entropy f32[] loss_fn.cross_entropy.probabilities f32[batch,2] = "
      "cross_entropy(model.logits.linear, labels) loss_fn\n");
  EXPECT_EQ(g.name, "TrainMlp");
  EXPECT_TRUE(g.training);
  ASSERT_EQ(g.losses.size(), 1u);
  EXPECT_EQ(g.losses[0].value, g.outputs.at(0));
  ASSERT_EQ(g.optimizers.size(), 1u);
  EXPECT_EQ(g.optimizers[0].kind, "sgd");
  EXPECT_EQ(g.optimizers[0].groups[0].parameters.size(), 4u);
  EXPECT_EQ(g.optimizers[0].groups[0].options.at("momentum"), 0.9);
  std::vector<std::string> modules;
  for (const auto& m : g.modules) modules.push_back(m.path + ":" + m.class_name);
  EXPECT_EQ(modules, (std::vector<std::string>{"model:Mlp", "model.hidden:Linear", "model.logits:Linear",
                                               "loss_fn:CrossEntropyLoss"}));
  // A user's function has its own line, in forward(); a layer's operator the line that declares the layer, two above.
  EXPECT_EQ(g.nodes[2].origins[0].file, "graph_test.cpp");
  EXPECT_EQ(g.nodes[2].origins[0].line, g.nodes[1].origins[0].line + (test::members_have_lines() ? 2 : 3));
}

TEST(Trace, ALayerThatNoLineDeclaresHasThatOfItsCall) {
  struct Holder : nn::Graph<Holder> {
    nn::ReLU relu = child(nn::Name(std::string_view("relu"), Location{}), nn::ReLU());
    enum : std::uint32_t { line = __LINE__ + 1 };
    Tensor build(Tensor x) { return relu(x); }
  } graph;
  const ir::Origin& origin = graph.trace(spec({2})).nodes.at(0).origins.at(0);
  EXPECT_EQ(origin.file, "graph_test.cpp");
  EXPECT_EQ(origin.line, Holder::line + 0u);
}

TEST(Trace, PrintsAsOneFlowDoes) {
  TrainMlp graph;
  const std::string name = graph.name();
  EXPECT_EQ(name.substr(0, 9), "TrainMlp_");
  std::ostringstream before;
  before << graph;
  EXPECT_EQ(
      before.str(),
      "(GRAPH:" + name +
          ":TrainMlp): (\n"
          "  (CONFIG:config:GraphConfig(training=True, ))\n"
          "  (MODULE:model:Mlp()): (\n"
          "    (MODULE:model.hidden:Linear(in_features=4, out_features=3, bias=True)): (\n"
          "      (PARAMETER:model.hidden.weight:tensor(..., size=(3, 4), dtype=float32, requires_grad=True)): ()\n"
          "      (PARAMETER:model.hidden.bias:tensor(..., size=(3,), dtype=float32, requires_grad=True)): ()\n"
          "    )\n"
          "    (MODULE:model.logits:Linear(in_features=3, out_features=2, bias=True)): (\n"
          "      (PARAMETER:model.logits.weight:tensor(..., size=(2, 3), dtype=float32, requires_grad=True)): ()\n"
          "      (PARAMETER:model.logits.bias:tensor(..., size=(2,), dtype=float32, requires_grad=True)): ()\n"
          "    )\n"
          "  )\n"
          "  (MODULE:loss_fn:CrossEntropyLoss()): ()\n"
          ")");
  graph.compile(spec({5, 2, 2}), spec({5}, i64));
  std::ostringstream after;
  after << graph;
  EXPECT_NE(after.str().find("  (INPUT:_" + name + "-input_1:tensor(..., size=(5,), dtype=int64))\n"),
            std::string::npos);
  EXPECT_NE(after.str().find("    (INPUT:_loss_fn-input_0:tensor(..., is_lazy='True', size=(5, 2), dtype=float32))\n"),
            std::string::npos);
  EXPECT_NE(after.str().find("      (OPERATOR:model.hidden.linear:linear(model.reshape, model.hidden.weight, "
                             "model.hidden.bias) -> f32[5,3])\n"),
            std::string::npos);
  EXPECT_NE(after.str().find("  (OUTPUT:_" + name + "-output_0:tensor(..., size=(), dtype=float32))\n"),
            std::string::npos);
}

TEST(Trace, KeepsTheTreeOfInputsAndOutputs) {
  using Batch = std::map<std::string, Tensor>;
  struct Trees : nn::Graph<Trees> {
    std::pair<Tensor, std::vector<Tensor>> build(Batch batch, std::optional<Tensor> mask) {
      EXPECT_FALSE(mask.has_value());
      return {batch.at("x"), {batch.at("y") + 1, batch.at("x")}};
    }
  } graph;
  const std::map<std::string, Spec> batch{{"x", spec({2})}, {"y", spec({3})}};
  const ir::Graph& g = graph.trace(batch, std::optional<Spec>());
  EXPECT_EQ(g.inputs.size(), 2u);
  ASSERT_EQ(g.outputs.size(), 3u);
  EXPECT_EQ(g.outputs[0], g.inputs[0]) << "returning an input is legal";
  EXPECT_EQ(g.input_tree.children[0].keys, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(g.input_tree.children[1].kind, ir::Tree::Kind::none);
  EXPECT_EQ(g.output_tree.children[1].children.size(), 2u);
}

TEST(Trace, TheSameModuleTwiceIsOneVariable) {
  struct Twice : nn::Graph<Twice> {
    nn::Linear a = child("a", nn::Linear(2, 2));
    nn::Linear b = child("b", a);
    Tensor build(Tensor x) { return b(a(a(x))); }
  } graph;
  const ir::Graph& g = graph.trace(spec({1, 2}));
  EXPECT_EQ(g.parameters.size(), 2u);
  EXPECT_EQ(g.nodes.size(), 3u);
}

TEST(Trace, CapturesConstantsOnce) {
  const Tensor table = arange(3).to(f32);
  struct Captures : nn::Graph<Captures> {
    Tensor table;
    Tensor build(Tensor x) { return (x + table) * table + ones({3}); }
  } graph;
  graph.table = table;
  const ir::Graph& g = graph.trace(spec({3}));
  EXPECT_EQ(g.constants.size(), 2u);
  EXPECT_EQ(g.nodes.size(), 3u);
}

TEST(Trace, InPlaceChangesBecomeValues) {
  struct InPlace : nn::Graph<InPlace> {
    Tensor build(Tensor x) {
      Tensor y = x * 2;
      Tensor same = y;
      y.add_(1);
      y.relu_();
      x.mul_(3);
      return same + x;
    }
  } graph;
  EXPECT_EQ(text_of(graph.trace(spec({3}))),
            "full f32[] = full() \nmul f32[3] = mul(input_0, full) \n"
            "full_2 f32[] = full() \nadd f32[3] = add(mul, full_2) \n"
            "relu f32[3] = relu(add) \n"
            "full_3 f32[] = full() \nmul_2 f32[3] = mul(input_0, full_3) \n"
            "add_2 f32[3] = add(relu, mul_2) \n");
}

TEST(Trace, StridesAreThoseOfEagerMode) {
  struct Transposed : nn::Graph<Transposed> {
    Tensor build(Tensor x) {
      const Tensor y = x.select(2, 0).t();
      EXPECT_FALSE(y.is_contiguous());
      EXPECT_TRUE(y.contiguous().is_contiguous());
      EXPECT_TRUE(y.reshape({-1}).is_contiguous());
      return y.contiguous().view({-1}) +
             y.view({3, 1, -1}).flatten();  // what a symbolic dimension's strides can express, too
    }
  } transposed;
  transposed.compile(spec({Dim("batch", 4), 3, 2}));
  struct Refused : nn::Graph<Refused> {
    Tensor build(Tensor x) { return x.t().view({-1}); }
  } refused;
  EXPECT_NE(
      error_of([&] { refused.compile(spec({Dim("batch", 4), 3})); }).find("view: strides cannot express [3*batch]"),
      std::string::npos)
      << error_of([&] { refused.compile(spec({Dim("batch", 4), 3})); });
}

TEST(Trace, WritesIntoViewsAreSeenThroughWhatTheyAreViewsOf) {
  struct OnView : nn::Graph<OnView> {
    Tensor build(Tensor x) {
      Tensor y = x * 2;
      y.select(0, 0).add_(1);
      return y;
    }
  } on_view;
  EXPECT_EQ(text_of(on_view.trace(spec({2, 2}))),
            "full f32[] = full() \nmul f32[2,2] = mul(input_0, full) \n"
            "slice f32[1,2] = slice(mul) \nreshape f32[2] = reshape(slice) \n"
            "full_2 f32[] = full() \nadd f32[2] = add(reshape, full_2) \n"
            "reshape_2 f32[1,2] = reshape(add) \n"
            "slice_2 f32[1,2] = slice(mul) \ncat f32[2,2] = cat(reshape_2, slice_2) \n");
  struct Detached : nn::Graph<Detached> {
    Tensor build(Tensor x) {
      Tensor y = x * 2, z = y.detach();
      z.add_(1);
      return y;
    }
  } detached;
  EXPECT_NE(
      error_of([&] { detached.compile(spec({2, 2})); }).find("add_: what detach() gave is changed in place in a graph"),
      std::string::npos);
  struct Expanded : nn::Graph<Expanded> {
    Tensor build(Tensor x) {
      Tensor y = x * 2, z = y.expand({3, 2});
      z.add_(1);
      return y;
    }
  } expanded;
  EXPECT_NE(
      error_of([&] { expanded.compile(spec({1, 2})); }).find("add_: a tensor that was expanded is changed in place"),
      std::string::npos);
  struct OfSymbol : nn::Graph<OfSymbol> {
    Tensor build(Tensor x) {
      Tensor y = x * 2;
      y.narrow(0, 0, 1).add_(1);
      return y;
    }
  } of_symbol;
  of_symbol.compile(spec({Dim("batch", 4), 2}));
  EXPECT_TRUE(equal(of_symbol(ones({3, 2})), tensor({{3, 3}, {2, 2}, {2, 2}}, f32)));
}

TEST(Trace, BuffersAreAssigned) {
  struct Counter : nn::Module<Counter> {
    Tensor count = buffer("count", zeros({}));
    Tensor forward(Tensor x) {
      count.add_(1);
      return x + count;
    }
  };
  struct Counts : nn::Graph<Counts> {
    Counter counter = child("counter", Counter());
    Tensor build(Tensor x) { return counter(counter(x)); }
  } graph;
  const ir::Graph traced = graph.trace(spec({2}));
  EXPECT_EQ(text_of(traced),
            "counter.full f32[] = full() counter\ncounter.add f32[] = add(counter.count, counter.full) counter\n"
            "counter.add_2 f32[2] = add(input_0, counter.add) counter\n"
            "counter.full_2 f32[] = full() counter\ncounter.add_3 f32[] = add(counter.add, counter.full_2) counter\n"
            "counter.add_4 f32[2] = add(counter.add_2, counter.add_3) counter\n");
  ASSERT_EQ(traced.donations.size(), 1u);
  EXPECT_EQ(traced.value(traced.donations[0].variable).name, "counter.count");
  EXPECT_EQ(traced.value(traced.donations[0].value).name, "counter.add_3");
}

TEST(Trace, ComputesNothing) {
  // 100,000 nodes on tensors of a terabyte: recorded, not computed.
  struct Deep : nn::Graph<Deep> {
    Tensor build(Tensor x) {
      for (int i = 0; i < 100000; ++i) x = relu(x);
      return x;
    }
  } graph;
  EXPECT_EQ(graph.trace(spec({1 << 20, 1 << 18})).nodes.size(), 100000u);
}

TEST(Trace, ThreadsDoNotMeet) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      TrainMlp graph;
      EXPECT_EQ(graph.trace(spec({5, 4}), spec({5}, i64)).nodes.size(), 5u);
    });
  for (std::thread& t : threads) t.join();
}

TEST(Graphs, SayWhatIsWrong) {
  struct Unregistered : nn::Graph<Unregistered> {
    nn::Linear linear{2, 2};
    Tensor build(Tensor x) { return linear(x); }
  } unregistered;
  EXPECT_NE(error_of([&] {
              unregistered.compile(spec({1, 2}));
            }).find("the module Linear is called in build() of Unregistered, but is not registered"),
            std::string::npos);
  struct Parameter : nn::Graph<Parameter> {
    nn::Linear linear{2, 2};
    Tensor build(Tensor x) { return matmul(x, linear.weight); }
  } parameter;
  EXPECT_NE(error_of([&] {
              parameter.compile(spec({1, 2}));
            }).find("the parameter f32[2,2] of Linear.weight is used in build() of Parameter"),
            std::string::npos);
  struct Leaf : nn::Graph<Leaf> {
    Tensor w = ones({2, 2}).requires_grad_();
    Tensor build(Tensor x) { return matmul(x, w); }
  } leaf;
  EXPECT_NE(error_of([&] {
              leaf.compile(spec({1, 2}));
            }).find("requires a gradient and is used in build() of Leaf, but is no registered parameter"),
            std::string::npos);
  struct NoOptimizer : nn::Graph<NoOptimizer> {
    nn::Linear linear = child("linear", nn::Linear(2, 2));
    Tensor build(Tensor x) {
      Tensor loss = linear(x).sum();
      loss.backward();
      return loss;
    }
  } no_optimizer;
  EXPECT_NE(
      error_of([&] { no_optimizer.compile(spec({1, 2})); }).find("calls backward(), but the graph has no optimizer"),
      std::string::npos);
  EXPECT_FALSE(no_optimizer.is_compiled());
  struct NoBackward : nn::Graph<NoBackward> {
    nn::Linear linear = child("linear", nn::Linear(2, 2));
    optim::SGD optimizer{linear.parameters()};
    NoBackward() { add_optimizer(optimizer); }
    Tensor build(Tensor x) { return linear(x).sum(); }
  } no_backward;
  EXPECT_NE(error_of([&] {
              no_backward.compile(spec({1, 2}));
            }).find("has an optimizer, but its build() calls backward() on no loss"),
            std::string::npos);
  struct Foreign : nn::Graph<Foreign> {
    optim::SGD optimizer{nn::Linear(2, 2).parameters()};
    Foreign() { add_optimizer(optimizer); }
    Tensor build(Tensor x) { return x; }
  };
  EXPECT_NE(error_of([] { Foreign(); }).find("(Linear.weight) that is not in the graph Foreign_"), std::string::npos);
  struct TwoOwners : nn::Graph<TwoOwners> {
    nn::Linear linear = child("linear", nn::Linear(2, 2));
    TwoOwners() {
      add_optimizer(optim::SGD(linear.parameters()));
      add_optimizer(optim::SGD(linear.parameters()));
    }
    Tensor build(Tensor x) { return x; }
  };
  EXPECT_NE(error_of([] { TwoOwners(); }).find("the parameter linear.weight belongs to another optimizer"),
            std::string::npos);
  struct Shapes : nn::Graph<Shapes> {
    nn::Sequential net = child("net", nn::Sequential(nn::Linear(2, 3), nn::Linear(4, 1)));
    Tensor build(Tensor x) { return net(x); }
  } shapes;
  const std::string text = error_of([&] { shapes.compile(spec({1, 2})); });
  EXPECT_EQ(text.find("error: net.1 (linear): "), 0u) << text;
  EXPECT_NE(text.find("f32[1,3] from net.0.linear"), std::string::npos) << text;
  EXPECT_NE(text.find("at graph_test.cpp:"), std::string::npos) << text;
  struct Peeks : nn::Graph<Peeks> {
    Tensor kept;
    Tensor build(Tensor x) {
      kept = x * 2;
      return kept;
    }
  } peeks;
  peeks.compile(spec({2}));
  EXPECT_NE(error_of([&] { (void)peeks.kept.item<float>(); }).find("has no data until the graph runs"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { (void)(peeks.kept + 1); }).find("was recorded by a graph's build(), and is used outside of it"),
      std::string::npos);
  const struct {
    const char* name;
    void (*use)(Tensor& t);
  } uses[] = {
      {"reshape", [](Tensor& t) { t.reshape({1, 2}); }},
      {"view", [](Tensor& t) { t.view({2, 1}); }},
      {"permute", [](Tensor& t) { t.permute({0}); }},
      {"expand", [](Tensor& t) { t.expand({3, 2}); }},
      {"slice", [](Tensor& t) { t.slice(0, 1); }},
      {"select", [](Tensor& t) { t.select(0, 1); }},
      {"unsqueeze", [](Tensor& t) { t.unsqueeze(0); }},
      {"stack", [](Tensor& t) { stack({t, t}); }},
      {"index", [](Tensor& t) { t.index({tensor({1, 0})}); }},
      {"add_", [](Tensor& t) { t.add_(1); }},
      {"copy_", [](Tensor& t) { zeros({2}).copy_(t); }},
      {"a part is assigned", [](Tensor& t) { zeros({2, 2})[0] = t; }},
      {"load_state_dict", [](Tensor& t) { nn::Linear(1, 2).load_state_dict({{"weight", ones({2, 1})}, {"bias", t}}); }},
  };
  for (const auto& use : uses) {
    SCOPED_TRACE(use.name);
    const std::string error = error_of([&] { use.use(peeks.kept); });
    EXPECT_NE(error.find("was recorded by a graph's build(), and is used outside of it"), std::string::npos) << error;
  }
  Peeks symbolic;
  symbolic.compile(spec({Dim("batch", 4), 3}));
  for (Tensor (*triangle)(const Operand&, std::int64_t) : {&tril, &triu})
    EXPECT_NE(error_of([&] { triangle(symbolic.kept, 0); }).find("is used outside of it"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)Peeks().graph(); }).find("has not been recorded yet"), std::string::npos);
}

TEST(Graphs, UpdateInBackwardIsAskedForInTime) {
  TrainMlp recorded;
  recorded.compile(spec({2, 4}), spec({2}, i64));
  EXPECT_NE(error_of([&] { recorded.update_in_backward(); }).find("is recorded already"), std::string::npos);
  struct Infer : nn::Graph<Infer> {
    Mlp model = child("model", Mlp());
    Tensor build(Tensor x) { return model(x); }
  } infer;
  infer.update_in_backward();
  EXPECT_NE(error_of([&] { infer.compile(spec({2, 4})); }).find("has no optimizer, so there is no update"),
            std::string::npos);
}

TEST(Graphs, MixedPrecisionIsAskedForInTime) {
  TrainMlp recorded;
  recorded.compile(spec({2, 4}), spec({2}, i64));
  EXPECT_NE(error_of([&] { recorded.enable_amp(); }).find("is recorded already"), std::string::npos);
  TrainMlp graph;
  EXPECT_NE(error_of([&] { graph.enable_amp(f32); }).find("expected f16 or bf16, got f32"), std::string::npos);
  graph.enable_amp(f16);
  EXPECT_NE(graph.repr().find("GraphConfig(training=True, amp=f16, )"), std::string::npos);
  graph.enable_amp(f16, false);
  EXPECT_EQ(graph.repr().find("amp"), std::string::npos);
  graph.enable_amp();
  EXPECT_EQ(graph.trace(spec({2, 4}), spec({2}, i64)).config.at("amp"), ir::Attribute(bf16));
}

TEST(Graphs, CheckTheInputsOfLaterCalls) {
  struct Two : nn::Graph<Two> {
    Tensor build(Tensor x, std::map<std::string, Tensor> more) { return x + more.at("y"); }
  } graph;
  graph.compile(spec({Dim("batch", 8), 3}, "x"), std::map<std::string, Spec>{{"y", spec({Dim("batch", 8), 3})}});
  const auto call = [&](Tensor x, Tensor y) {
    return error_of([&] { (void)graph(x, std::map<std::string, Tensor>{{"y", y}}); });
  };
  const std::string wide = call(zeros({2, 4}), zeros({2, 3}));
  EXPECT_NE(wide.find("input 0 ('x') of Two_"), std::string::npos) << wide;
  EXPECT_NE(wide.find("expected f32[batch,3], got f32[2,4]"), std::string::npos) << wide;
  EXPECT_NE(wide.find("at graph_test.cpp:"), std::string::npos) << wide;
  EXPECT_NE(call(zeros({9, 3}), zeros({9, 3})).find("batch must lie in [1, 8]"), std::string::npos);
  EXPECT_NE(call(zeros({2, 3}), zeros({4, 3})).find("input 1[\"y\"] ('input_1')"), std::string::npos);
  EXPECT_NE(call(zeros({2, 3}), zeros({4, 3})).find("batch is 2 in an earlier input"), std::string::npos);
  EXPECT_NE(call(zeros({2, 3}, f64), zeros({2, 3})).find("got f64[2,3]"), std::string::npos);
}

TEST(Graphs, KeepTheirStateUnderStableNames) {
  TrainMlp a, b;
  std::vector<std::string> names;
  for (const auto& [name, t] : a.state_dict()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "model.hidden.weight", "model.hidden.bias", "model.logits.weight", "model.logits.bias",
                       "model.hidden.weight-momentum", "model.hidden.bias-momentum", "model.logits.weight-momentum",
                       "model.logits.bias-momentum", "seed", "lr.0", "initial_lr.0", "train_step"}));
  nn::StateDict state = a.state_dict();
  for (auto& [name, t] : state)
    if (t.dtype() == f32) t = full(t.shape(), 0.5);
  state.back() = {"train_step", tensor(7)};
  b.load_state_dict(state);
  EXPECT_EQ(b.train_step(), 7);
  EXPECT_EQ(b.model.hidden.bias.to_vector<double>(), (std::vector<double>(3, 0.5)));
  EXPECT_EQ(b.learning_rates(), (std::vector<double>{0.1}));
}

/// A running mean in a buffer, kept in one of two ways.
struct Center : nn::Module<Center> {
  bool assigns;
  Tensor mean = buffer("mean", zeros({1}));
  Tensor scale = parameter("scale", ones({1}));
  explicit Center(bool assigns) : assigns(assigns) {}
  Tensor forward(Tensor x) {
    const Tensor next = 0.9 * mean + 0.1 * x.detach().mean();
    if (assigns)
      mean = next;
    else
      mean.copy_(next);
    Tensor local = scale;  // a name of this call's own
    local = local * 2;
    return (x - next) * local;
  }
};
struct Centers : nn::Graph<Centers> {
  Center model;
  explicit Centers(Center m) : model(child("model", std::move(m))) {}
  Tensor build(Tensor x) { return model(x); }
};
/// Keeps no handle of what it registers.
struct KeepsNothing : nn::Module<KeepsNothing> {
  KeepsNothing() { (void)buffer("mean", zeros({1})); }
  Tensor forward(Tensor x) {
    Tensor mean = named("mean");
    mean = mean + x.mean();
    return x - mean;
  }
};
struct Tied : nn::Module<Tied> {
  nn::Linear first = child("first", nn::Linear(3, 3)), second = child("second", nn::Linear(3, 3));
  Tied() { second.weight = first.weight; }
  Tensor forward(Tensor x) {
    Tensor w = second.weight;
    w = w * 0.5;
    return first(x) + linear(x, w);
  }
};
template <class M>
struct Holds : nn::Graph<Holds<M>> {
  M model;
  explicit Holds(M m) : model(this->child("model", std::move(m))) {}
  Tensor build(Tensor x) { return model(x); }
};

TEST(Graphs, AMemberThatForgetsWhatIsRegisteredIsAnError) {
  const Center outside(true);
  Centers graph(outside);
  const std::string error = error_of([&] { graph(ones({4})); });
  EXPECT_EQ(
      error.find("error: model.mean (Center.mean): the member of the buffer 'mean' was given another tensor within "
                 "build() of Centers_"),
      0u)
      << error;
  EXPECT_NE(error.find("Write into its memory: mean.copy_(...)"), std::string::npos) << error;
  EXPECT_NE(error.find("at graph_test.cpp:"), std::string::npos) << error;

  Center kept(false);
  Centers copies(kept), moved(Center(false));
  for (Centers* good : {&copies, &moved})
    for (const double mean : {0.1, 0.19, 0.271}) {
      (void)(*good)(ones({4}));
      EXPECT_NEAR(good->model.mean.item<double>(), mean, 1e-6);
    }
  EXPECT_NEAR(kept.state_dict().at(1).second.item<double>() + kept.state_dict().at(0).second.item<double>(), 1.271,
              1e-6);
  EXPECT_EQ(error_of([] { Holds<KeepsNothing>(KeepsNothing()).compile(spec({4})); }), "no error");
  EXPECT_EQ(error_of([] { Holds<Tied>(Tied()).compile(spec({2, 3})); }), "no error");
}

struct Forgets : nn::Graph<Forgets> {
  Mlp model = child("model", Mlp());
  optim::SGD optimizer{model.hidden.parameters(), {.lr = 0.1}};
  Forgets() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(Graphs, SayWhatNoOptimizerHas) {
  const auto said = [](auto&& graph, int level) {
    graph.debug(level);
    testing::internal::CaptureStderr();
    graph.compile(spec({2, 4}), spec({2}, i64));
    return testing::internal::GetCapturedStderr();
  };
  const std::string line = "in no optimizer, though a loss depends on them: model.logits.weight, model.logits.bias.\n";
  EXPECT_NE(said(Forgets(), 1).find(line), std::string::npos);
  EXPECT_EQ(said(Forgets(), 0).find("in no optimizer"), std::string::npos);
  EXPECT_EQ(said(TrainMlp(), 1).find("in no optimizer"), std::string::npos);
  Forgets frozen;
  frozen.model.logits.requires_grad_(false);
  EXPECT_EQ(said(frozen, 1).find("in no optimizer"), std::string::npos);
}

TEST(Graphs, ASmallerLastBatchIsToldWhatTakesIt) {
  Holds<Mlp> graph{Mlp()};
  graph.compile(spec({4, 4}));
  const std::string error = error_of([&] { graph(ones({3, 4})); });
  EXPECT_NE(
      error.find("expected f32[4,4], got f32[3,4]\n  a last batch that is smaller: a DataLoader's drop_last leaves it "
                 "out; Dim(\"batch\", 4) in the spec"),
      std::string::npos)
      << error;
  EXPECT_EQ(error_of([&] { graph(ones({5, 4})); }).find("a last batch"), std::string::npos);
  EXPECT_EQ(error_of([&] { graph(ones({3, 5})); }).find("a last batch"), std::string::npos);
}

}  // namespace
}  // namespace graven
