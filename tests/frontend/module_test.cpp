// Modules: registration, names, print, state dictionaries, files, initialisers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>

#include "tests/frontend/error_text.h"

namespace graven::module_test {
namespace {

using test::error_of;

struct Block : nn::Module<Block> {
  nn::Conv2d conv = child("conv", nn::Conv2d(3, 4, 3, {.stride = 2, .padding = 1, .bias = false}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(4));
  Tensor scale = parameter("scale", ones({4, 1, 1}));
  Tensor forward(Tensor x) { return relu(norm(conv(x)) * scale); }
};

struct Net : nn::Module<Net> {
  nn::ModuleList<Block> blocks = child("blocks", nn::ModuleList<Block>{Block()});
  nn::Sequential head = child("head", nn::Sequential(nn::Flatten(), nn::Linear(16, 2), nn::Dropout(0.2)));
  Tensor forward(Tensor x) {
    for (Block& b : blocks) x = b(x);
    return head(x);
  }
};

std::vector<std::string> names_of(const nn::NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, t] : tensors) names.push_back(name);
  return names;
}

/// Made with braces, as an aggregate: its initialisers register members from where it is made.
struct Braced : nn::Module<Braced> {
  nn::Linear inner = child("inner", nn::Linear(2, 2));
  Tensor scale = parameter("scale", ones({2}));
  Tensor seen = buffer("seen", zeros({}));
  Tensor forward(Tensor x) { return inner(x) * scale; }
};
struct HoldsBraced : nn::Module<HoldsBraced> {
  Braced braced = child("braced", Braced{});
  Tensor forward(Tensor x) { return braced(x); }
};
struct BracedGraph : nn::Graph<BracedGraph> {
  HoldsBraced model = child("model", HoldsBraced{});
  Tensor build(Tensor x) { return model(x); }
};

TEST(Modules, AreMadeWithBraces) {
  EXPECT_EQ(HoldsBraced{}.named_parameters().size(), 3u);
  BracedGraph graph{};
  EXPECT_EQ(graph.trace(spec({1, 2})).nodes.size(), 2u);
}

TEST(Modules, NameWhatTheyHold) {
  const Net net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (std::vector<std::string>{"blocks.0.scale", "blocks.0.conv.weight", "blocks.0.norm.weight",
                                      "blocks.0.norm.bias", "head.1.weight", "head.1.bias"}));
  EXPECT_EQ(names_of(net.named_buffers()),
            (std::vector<std::string>{"blocks.0.norm.running_mean", "blocks.0.norm.running_var",
                                      "blocks.0.norm.num_batches_tracked"}));
  EXPECT_EQ(net.modules().size(), 9u);
  EXPECT_EQ(net.class_name(), "Net");
}

TEST(Modules, PrintAsPyTorchDoes) {
  EXPECT_EQ(Net().repr(),
            "Net(\n"
            "  (blocks): ModuleList(\n"
            "    (0): Block(\n"
            "      (conv): Conv2d(3, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)\n"
            "      (norm): BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
            "    )\n"
            "  )\n"
            "  (head): Sequential(\n"
            "    (0): Flatten(start_dim=1, end_dim=-1)\n"
            "    (1): Linear(in_features=16, out_features=2, bias=True)\n"
            "    (2): Dropout(p=0.2, inplace=False)\n"
            "  )\n"
            ")");
  EXPECT_EQ(nn::MaxPool2d(2).repr(), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(nn::GELU().repr(), "GELU(approximate='none')");
}

struct Scaled : nn::Module<Scaled> {
  double factor;
  nn::Linear inner = child("inner", nn::Linear(2, 3));
  explicit Scaled(double f) : factor(f) {}
  std::string extra_repr() const { return "factor=" + std::to_string(static_cast<int>(factor)); }
  Tensor forward(Tensor x) { return inner(x) * factor; }
};
struct Halved : nn::Module<Halved> {
  std::string extra_repr() const { return "by=2"; }
  Tensor forward(Tensor x) { return x / 2; }
};
struct HoldsScaled : nn::Module<HoldsScaled> {
  Scaled one = child("one", Scaled(4));
  nn::Sequential list = child("list", nn::Sequential(Halved(), nn::ReLU()));
  nn::ModuleList<Halved> more = child("more", nn::ModuleList<Halved>{Halved()});
  nn::ModuleDict<Halved> keys = child("keys", nn::ModuleDict<Halved>{{"a", Halved()}});
  Tensor forward(Tensor x) { return list(one(x)); }
};
struct ScaledGraph : nn::Graph<ScaledGraph> {
  Scaled model = child("model", Scaled(7));
  Tensor build(Tensor x) { return model(x); }
};

TEST(Modules, PrintWhatTheySayOfThemselves) {
  Scaled scaled(3);
  const std::string expected = "Scaled(factor=3\n  (inner): Linear(in_features=2, out_features=3, bias=True)\n)";
  EXPECT_EQ(scaled.repr(), expected);
  std::ostringstream out;
  out << scaled;
  EXPECT_EQ(out.str(), expected);
  scaled.factor = 5;
  EXPECT_EQ(scaled.repr().find("Scaled(factor=5\n"), 0u) << scaled.repr();
  EXPECT_EQ(HoldsScaled().repr(),
            "HoldsScaled(\n"
            "  (one): Scaled(factor=4\n"
            "    (inner): Linear(in_features=2, out_features=3, bias=True)\n"
            "  )\n"
            "  (list): Sequential(\n"
            "    (0): Halved(by=2)\n"
            "    (1): ReLU()\n"
            "  )\n"
            "  (more): ModuleList(\n"
            "    (0): Halved(by=2)\n"
            "  )\n"
            "  (keys): ModuleDict(\n"
            "    (a): Halved(by=2)\n"
            "  )\n"
            ")");
  EXPECT_NE(ScaledGraph().repr().find("(MODULE:model:Scaled(factor=7)): ("), std::string::npos) << ScaledGraph().repr();
}

TEST(Modules, CopiesShareEverything) {
  nn::Linear a(2, 2);
  nn::Linear b = a;
  b.weight.detach().fill_(3);
  EXPECT_EQ(a.weight.to_vector<double>(), (std::vector<double>(4, 3)));
  b.eval();
  EXPECT_FALSE(a.is_training());
  Net net;
  net.eval();
  for (const nn::ModuleBase& m : net.modules()) EXPECT_FALSE(m.is_training());
}

TEST(Modules, OfAnotherDtypeHaveNoGradientsOfTheOld) {
  nn::Linear layer(2, 1);
  layer(ones({1, 2})).sum().backward();
  EXPECT_TRUE(layer.weight.grad().defined());
  layer.to(f64);
  EXPECT_EQ(layer.weight.dtype(), f64);
  EXPECT_FALSE(layer.weight.grad().defined());
  layer(ones({1, 2}, f64)).sum().backward();
  EXPECT_EQ(layer.weight.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Modules, SharedParametersCountOnce) {
  struct Tied : nn::Module<Tied> {
    nn::Linear a = child("a", nn::Linear(2, 2));
    nn::Linear again = child("again", a);
    Tensor same = parameter("same", a.weight);
    Tensor forward(Tensor x) { return again(a(x)); }
  };
  EXPECT_EQ(names_of(Tied().named_parameters()), (std::vector<std::string>{"same", "a.bias"}));
}

TEST(Modules, RefuseWhatIsNotRegistered) {
  struct Forgetful : nn::Module<Forgetful> {
    nn::Linear hidden{2, 2};
    Tensor forward(Tensor x) { return hidden(x); }
  };
  const std::string text = error_of([] { (void)Forgetful()(zeros({1, 2})); });
  EXPECT_NE(text.find("the module Linear is called within forward() of Forgetful, but is not registered"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("at module_test.cpp:"), std::string::npos) << text;
}

struct Repeated : nn::Module<Repeated> {
  nn::ModuleList<nn::Sequential> blocks =
      child("blocks", nn::ModuleList<nn::Sequential>{nn::Sequential(nn::Linear(2, 2), nn::ReLU()),
                                                     nn::Sequential(nn::ReLU(), nn::Linear(3, 2))});
  Tensor forward(Tensor x) {
    for (nn::Sequential& b : blocks) x = b(x);
    return x;
  }
};

TEST(Modules, ErrorsNameTheModuleAndTheUsersLine) {
  const std::string nested = error_of([] { (void)Repeated()(ones({1, 2})); });
  EXPECT_NE(nested.find("error: Repeated.blocks.1.1 (linear): "), std::string::npos) << nested;
  EXPECT_NE(nested.find("at module_test.cpp:"), std::string::npos) << nested;
  models::ResNet resnet = models::resnet18();
  const auto line = static_cast<int>(__LINE__) + 1;
  const std::string text = error_of([&] { (void)resnet(zeros({1, 4, 32, 32})); });
  EXPECT_NE(text.find("error: ResNet.conv1 (conv2d): "), std::string::npos) << text;
  EXPECT_NE(text.find("at module_test.cpp:" + std::to_string(line)), std::string::npos) << text;
  // Out of the user's own module, the user's own line.
  struct Classifier : nn::Module<Classifier> {
    models::ResNet backbone = child("backbone", models::resnet18());
    Tensor forward(Tensor x) { return backbone(x); }
  } classifier;
  const std::string inner = error_of([&] { (void)classifier(zeros({1, 4, 32, 32})); });
  EXPECT_NE(inner.find("error: Classifier.backbone.conv1 (conv2d): "), std::string::npos) << inner;
  EXPECT_NE(inner.find("at module_test.cpp:" + std::to_string(line + 6)), std::string::npos) << inner;
}

struct ForgottenTensor : nn::Module<ForgottenTensor> {
  nn::Linear known = child("known", nn::Linear(2, 2));
  Tensor w = ones({2, 2}, {f32, true});
  Tensor forward(Tensor x) { return matmul(known(x), w); }
};

struct Options {
  Tensor mask;
};

/// Multiplies by what it is given.
struct Product : nn::Module<Product> {
  Tensor forward(Tensor x, Tensor y) { return x * y; }
  Tensor forward(Tensor x, const std::vector<Tensor>& factors) {
    for (const Tensor& f : factors) x = x * f;
    return x;
  }
  Tensor forward(Tensor x, const Options& options) { return x * options.mask; }
};

struct Outer : nn::Module<Outer> {
  Product product = child("product", Product());
  template <class Other>
  Tensor forward(Tensor x, Other other) {
    return product(x, other);
  }
};

TEST(Modules, RefuseParametersThatAreNotRegistered) {
  const char* message =
      "the tensor f32[2,2] requires a gradient and is used in forward() of ForgottenTensor, but is no registered "
      "parameter";
  const Tensor x = ones({1, 2});
  const std::string text = error_of([&] { (void)ForgottenTensor()(x); });
  EXPECT_NE(text.find(message), std::string::npos) << text;
  EXPECT_NE(text.find("at module_test.cpp:"), std::string::npos) << text;
  {
    NoGradGuard no_grad;  // it would not be loaded either
    EXPECT_NE(error_of([&] { (void)ForgottenTensor()(x); }).find(message), std::string::npos);
  }
  nn::Sequential net(nn::Linear(2, 2), ForgottenTensor());
  EXPECT_NE(error_of([&] { (void)net(x); }).find(message), std::string::npos);

  // A view of it.
  struct View : nn::Module<View> {
    Tensor w = ones({2, 2}).requires_grad_();
    Tensor forward(Tensor input) { return input * w.select(0, 0); }
  };
  EXPECT_NE(error_of([&] { (void)View()(x); }).find("is used in forward() of View, but is no registered parameter"),
            std::string::npos);

  // Made by an earlier call, and kept.
  struct Lazy : nn::Module<Lazy> {
    Tensor w;
    Tensor forward(Tensor input) {
      if (!w.defined()) w = ones({2}).requires_grad_();
      return input * w;
    }
  } lazy;
  (void)lazy(x);
  EXPECT_NE(error_of([&] { (void)lazy(x); }).find("is used in forward() of Lazy, but is no registered parameter"),
            std::string::npos);
  // An inner module's argument has to come from somewhere too.
  struct Passes : nn::Module<Passes> {
    Product product = child("product", Product());
    Tensor w = ones({2}).requires_grad_();
    Tensor forward(Tensor input) { return product(input, w); }
  };
  EXPECT_NE(
      error_of([&] { (void)Passes()(x); }).find("is used in forward() of Product, but is no registered parameter"),
      std::string::npos);
}

TEST(Modules, AllowLeavesThatAreArgumentsOrTheirOwn) {
  // As an adversarial example: the input's gradient.
  const nn::Linear linear(2, 2);
  Tensor x = ones({1, 2}).requires_grad_();
  linear(x).sum().backward();
  EXPECT_EQ(x.grad().describe(), "f32[1,2]");

  // Through inner modules, in trees, and in a structure that nobody can look into.
  const auto gradient_of = [](const auto& call) {
    Tensor factor = full({2}, 3).requires_grad_();
    call(factor).sum().backward();
    return factor.grad().to_vector<double>();
  };
  const Tensor ten = full({2}, 10);
  const std::vector<double> tens = {10, 10};
  EXPECT_EQ(gradient_of([&](const Tensor& f) { return Outer()(ten, f); }), tens);
  EXPECT_EQ(gradient_of([&](const Tensor& f) { return Outer()(ten, std::vector<Tensor>{f}); }), tens);
  EXPECT_EQ(gradient_of([&](const Tensor& f) { return Outer()(ten, Options{f}); }), tens);

  // Made within forward(), as by a gradient penalty.
  struct Penalty : nn::Module<Penalty> {
    nn::Linear layer = child("layer", nn::Linear(2, 1));
    Tensor forward(Tensor input) {
      Tensor point = input.detach().clone().requires_grad_();
      return grad({layer(point).sum()}, {point})[0].square().sum();
    }
  };
  EXPECT_EQ(Penalty()(x).describe(), "f32[]");

  // Constants, detached tensors, and buffers that somebody takes the gradient of.
  struct Constants : nn::Module<Constants> {
    Tensor constant = ones({2}), detached = ones({2}).requires_grad_(), moving = buffer("moving", ones({2}));
    Tensor forward(Tensor input) { return input * constant * detached.detach() * moving; }
  } constants;
  constants.moving.requires_grad_();
  constants(x.detach()).sum().backward();
  EXPECT_EQ(constants.moving.grad().to_vector<double>(), (std::vector<double>{1, 1}));
  // Outside of modules there is nothing to register with.
  Tensor w = ones({2}).requires_grad_();
  (w * 2).sum().backward();
}

TEST(Modules, RefuseBadNames) {
  struct Twice : nn::Module<Twice> {
    nn::ReLU a = child("a", nn::ReLU());
    nn::ReLU b = child("a", nn::ReLU());
    Tensor forward(Tensor x) { return x; }
  };
  struct Dotted : nn::Module<Dotted> {
    Tensor w = parameter("a.b", ones({1}));
    Tensor forward(Tensor x) { return x; }
  };
  struct Broken : nn::Module<Broken> {
    Tensor w = parameter("a\nb", ones({1}));
    Tensor forward(Tensor x) { return x; }
  };
  EXPECT_NE(error_of([] { Broken(); }).find("a parameter of Broken has a control character in its name"),
            std::string::npos);
  struct Integer : nn::Module<Integer> {
    Tensor w = parameter("w", arange(3));
    Tensor forward(Tensor x) { return x; }
  };
  EXPECT_NE(error_of([] { Twice(); }).find("the child 'a' of Twice has a name that is taken"), std::string::npos);
  EXPECT_NE(error_of([] { Dotted(); }).find("the parameter 'a.b' of Dotted has a dot in its name"), std::string::npos);
  EXPECT_NE(error_of([] { Integer(); }).find("the parameter 'w' of Integer must be floating-point, got i64[3]"),
            std::string::npos);
  EXPECT_NE(error_of([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }).find("groups 2 must divide in_channels 3"),
            std::string::npos);
  EXPECT_NE(error_of([] { nn::Linear(0, 4); }).find("Linear: in_features must be positive, got 0"), std::string::npos);
}

struct Contained : nn::Module<Contained> {
  nn::ModuleDict<> heads = child(
      "heads", nn::ModuleDict<>{{"right", nn::Linear(2, 2)}, {"left", nn::Sequential(nn::ReLU(), nn::Linear(2, 1))}});
  nn::ParameterList scales = child("scales", nn::ParameterList{ones({2}), ones({1})});
  nn::ParameterDict shifts = child("shifts", nn::ParameterDict{{"z", zeros({2})}, {"a", zeros({1})}});
  Tensor forward(Tensor x) {
    return heads["left"](heads["right"](x) * scales[0] + shifts["z"]) * scales[1] + shifts["a"];
  }
};

TEST(Containers, NameAndTrainWhatTheyHold) {
  Contained net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (std::vector<std::string>{"heads.right.weight", "heads.right.bias", "heads.left.1.weight",
                                      "heads.left.1.bias", "scales.0", "scales.1", "shifts.z", "shifts.a"}));
  EXPECT_EQ(net.heads.keys(), (std::vector<std::string>{"right", "left"}));
  EXPECT_EQ(net.shifts.keys(), (std::vector<std::string>{"z", "a"}));
  EXPECT_TRUE(net.heads.contains("left") && net.shifts.contains("a") && !net.heads.contains("a"));
  EXPECT_EQ(net.heads.size() + net.scales.size() + net.shifts.size(), 6u);
  net(ones({3, 2})).sum().backward();
  for (const auto& [name, t] : net.named_parameters()) EXPECT_TRUE(t.grad().defined()) << name;
  EXPECT_EQ(net.scales[1].grad().describe(), "f32[1]");
  std::string keys;
  for (const auto& [key, shift] : net.shifts) keys += key + shift.describe();
  for (const Tensor& scale : net.scales) keys += scale.describe();
  EXPECT_EQ(keys, "zf32[2]af32[1]f32[2]f32[1]");
  // Later entries, and what is assigned to one, are registered.
  net.scales.push_back(ones({5}));
  net.shifts.insert("new", ones({6}));
  net.heads.insert("third", nn::Linear(1, 1, {.bias = false}));
  const nn::Linear other(2, 2);
  net.scales[0] = other.bias;
  const nn::StateDict state = net.state_dict();
  EXPECT_EQ(names_of(state), (std::vector<std::string>{"heads.right.weight", "heads.right.bias", "heads.left.1.weight",
                                                       "heads.left.1.bias", "heads.third.weight", "scales.0",
                                                       "scales.1", "scales.2", "shifts.z", "shifts.a", "shifts.new"}));
  EXPECT_TRUE(state[5].second.is_same(other.bias));
}

struct TrainContained : nn::Graph<TrainContained> {
  Contained net = child("net", Contained());
  optim::SGD optimizer{net.parameters(), {.lr = 0.5}};
  TrainContained() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = net(x).square().mean();
    loss.backward();
    return loss;
  }
};

TEST(Containers, TrainInGraphsAsEagerly) {
  manual_seed(6);
  TrainContained graph;
  Contained eager;
  eager.load_state_dict(graph.net.state_dict());
  const Tensor x = randn({4, 2});
  const Tensor loss = eager(x).square().mean();
  loss.backward();
  EXPECT_TRUE(allclose(graph(x), loss));
  const nn::NamedTensors trained = graph.net.named_parameters(), before = eager.named_parameters();
  for (std::size_t i = 0; i < trained.size(); ++i)
    EXPECT_TRUE(allclose(trained[i].second, before[i].second.detach() - before[i].second.grad() * 0.5, 1e-5, 1e-6))
        << trained[i].first;
}

Tensor doubled(const Tensor& x) { return x * 2; }

TEST(Containers, TakeFunctionsAsModules) {
  int calls = 0;
  nn::Sequential net(
      nn::Linear(2, 3), relu, doubled, [](Tensor x) { return x - 1; },
      [&calls](const auto& x) {
        ++calls;
        return x.sum(-1);
      });
  EXPECT_EQ(names_of(net.named_parameters()), (std::vector<std::string>{"0.weight", "0.bias"}));
  EXPECT_EQ(net.repr(),
            "Sequential(\n"
            "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
            "  (1): Lambda()\n"
            "  (2): Lambda()\n"
            "  (3): Lambda()\n"
            "  (4): Lambda()\n"
            ")");
  nn::Linear fc(2, 3);
  fc.weight = net.named_parameters()[0].second;
  fc.bias = net.named_parameters()[1].second;
  const Tensor x = randn({4, 2});
  EXPECT_TRUE(equal(net(x), (relu(fc(x)) * 2 - 1).sum(-1)));
  const nn::Sequential copy(net);
  EXPECT_EQ(copy.size(), 5u);
  EXPECT_TRUE(equal(copy(x), net(x)));
  EXPECT_EQ(calls, 3);
  nn::Sequential outer;
  outer.push_back(net);
  outer.push_back("negative", nn::Lambda(neg));
  EXPECT_EQ(names_of(outer.named_parameters()), (std::vector<std::string>{"0.0.weight", "0.0.bias"}));
  EXPECT_TRUE(equal(outer(x), -net(x)));
  // The line of the call is that of a function that has none of its own.
  const nn::Sequential wrong([](Tensor t) { return t.reshape({7}); }), bare(linalg::inv);
  const std::string own = error_of([&] { wrong(x); }), named = error_of([&] { bare(x); });
  EXPECT_NE(own.find("module_test.cpp:" + std::to_string(__LINE__ - 2)), std::string::npos) << own;
  EXPECT_NE(named.find("module_test.cpp:" + std::to_string(__LINE__ - 2)), std::string::npos) << named;
  // What a function captures is nobody's: it would not be trained.
  Tensor forgotten = ones({2}).requires_grad_();
  const std::string text = error_of([&] { nn::Sequential([&](Tensor t) { return t * forgotten; })(x); });
  EXPECT_NE(text.find("registered"), std::string::npos) << text;
}

TEST(Containers, RefuseWhatIsForgottenOrNotThere) {
  struct ListOfModules : nn::Module<ListOfModules> {
    nn::ModuleList<nn::Linear> layers{nn::Linear(2, 2)};
    Tensor forward(Tensor x) { return layers[0](x); }
  };
  struct LoopOverModules : nn::Module<LoopOverModules> {
    nn::ModuleList<nn::Linear> layers{nn::Linear(2, 2)};
    Tensor forward(Tensor x) {
      for (nn::Linear& l : layers) x = l(x);
      return x;
    }
  };
  struct DictOfModules : nn::Module<DictOfModules> {
    nn::ModuleDict<nn::Linear> layers{{"a", nn::Linear(2, 2)}};
    Tensor forward(Tensor x) { return layers["a"](x); }
  };
  struct ListOfParameters : nn::Module<ListOfParameters> {
    nn::ParameterList scales{ones({2})};
    Tensor forward(Tensor x) { return x * scales[0]; }
  };
  struct DictOfParameters : nn::Module<DictOfParameters> {
    nn::ParameterDict scales{{"a", ones({2})}};
    Tensor forward(Tensor x) {
      for (const auto& [key, scale] : scales) x = x * scale;
      return x;
    }
  };
  struct Traced : nn::Graph<Traced> {
    nn::ParameterList scales{ones({2})};
    Tensor build(Tensor x) { return x * scales[0]; }
  };
  const Tensor x = ones({1, 2});
  nn::ModuleList<nn::Linear> none;
  nn::ModuleDict<nn::Linear> heads{{"left", nn::Linear(1, 1)}, {"right", nn::Linear(1, 1)}};
  nn::ParameterList list{x};
  nn::ParameterDict dict{{"a", x}};
  const struct {
    std::string wanted, found;
  } cases[] = {
      {"the ModuleList is used within forward() of ListOfModules, but is not registered",
       error_of([&] { (void)ListOfModules()(x); })},
      {"the ModuleList is used within forward() of LoopOverModules, but is not registered",
       error_of([&] { (void)LoopOverModules()(x); })},
      {"the ModuleDict is used within forward() of DictOfModules, but is not registered",
       error_of([&] { (void)DictOfModules()(x); })},
      {"the ParameterList is used within forward() of ListOfParameters, but is not registered",
       error_of([&] { (void)ListOfParameters()(x); })},
      {"the ParameterDict is used within forward() of DictOfParameters, but is not registered",
       error_of([&] { (void)DictOfParameters()(x); })},
      {"the parameter f32[2] of ParameterList.0 is used in build() of Traced, but no module that is registered in the "
       "graph has it",
       error_of([&] { (void)Traced()(x); })},
      {"ModuleList: index 0 is out of range, it has 0 entries", error_of([&] { (void)none[0]; })},
      {"ModuleDict: there is no entry 'up', it has left, right", error_of([&] { (void)heads["up"]; })},
      {"the child 'left' of ModuleDict has a name that is taken",
       error_of([&] { heads.insert("left", nn::Linear(1, 1)); })},
      {"the child 'a.b' of ModuleDict has a dot in its name", error_of([&] { heads.insert("a.b", nn::Linear(1, 1)); })},
      {"ParameterList: index 1 is out of range, it has 1 entry", error_of([&] { (void)list[1]; })},
      {"ParameterList: entry 1 must be a tensor, got an undefined one", error_of([&] { list.push_back({}); })},
      {"the parameter '1' of ParameterList must be floating-point, got i64[3]",
       error_of([&] { list.push_back(arange(3)); })},
      {"ParameterDict: there is no entry 'b', it has a", error_of([&] { (void)dict["b"]; })},
      {"ParameterDict: entry 'b' must be a tensor, got an undefined one", error_of([&] { dict.insert("b", {}); })},
      {"the parameter 'a' of ParameterDict has a name that is taken", error_of([&] { dict.insert("a", x); })},
  };
  for (const auto& c : cases) EXPECT_NE(c.found.find(c.wanted), std::string::npos) << c.wanted << "\n" << c.found;
}

TEST(StateDict, LoadsAllOrNothing) {
  manual_seed(1);
  Net a, b;
  b.load_state_dict(a.state_dict());
  for (std::size_t i = 0; i < a.state_dict().size(); ++i)
    EXPECT_TRUE(equal(a.state_dict()[i].second, b.state_dict()[i].second));

  nn::StateDict wrong = a.state_dict();
  wrong[0].second = full({4, 1, 1}, 7);
  wrong[1].first = "somewhere.else";
  wrong[2].second = zeros({5});
  const std::string text = error_of([&] { b.load_state_dict(wrong); });
  EXPECT_NE(text.find("3 entries do not fit; nothing was loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("missing     blocks.0.conv.weight  f32[4,3,3,3]"), std::string::npos) << text;
  EXPECT_NE(text.find("mismatch    blocks.0.norm.weight  expected f32[4], got f32[5]"), std::string::npos) << text;
  EXPECT_NE(text.find("unexpected  somewhere.else  f32[4,3,3,3]"), std::string::npos) << text;
  EXPECT_EQ(b.state_dict()[0].second.to_vector<double>(), (std::vector<double>(4, 1)));

  wrong[2].second = zeros({4});
  const nn::LoadReport report = b.load_state_dict(wrong, false);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"blocks.0.conv.weight"}));
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"somewhere.else"}));
  EXPECT_EQ(b.state_dict()[0].second.to_vector<double>(), (std::vector<double>(4, 7)));
}

TEST(StateDict, GoesThroughAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("graven_module_test_" + std::to_string(::getpid()) + ".safetensors"))
          .string();
  Net a, b;
  a.to(bf16);
  b.to(bf16);
  nn::save(a.state_dict(), path);
  b.load_state_dict(nn::load(path));
  for (std::size_t i = 0; i < a.state_dict().size(); ++i)
    EXPECT_TRUE(equal(a.state_dict()[i].second, b.state_dict()[i].second));
  std::filesystem::remove(path);
  EXPECT_NE(error_of([&] { nn::load(path); }).find(path), std::string::npos);
}

TEST(Init, FollowsTheFormulas) {
  manual_seed(3);
  const nn::Linear linear(100, 50);
  const double bound = 1 / std::sqrt(100.0);
  double largest = 0;
  for (double v : linear.weight.to_vector<double>()) largest = std::max(largest, std::abs(v));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
  for (double v : linear.bias.to_vector<double>()) EXPECT_LE(std::abs(v), bound);
  EXPECT_EQ(nn::init::fans(zeros({8, 4, 3, 5})), (std::pair<std::int64_t, std::int64_t>{60, 120}));
  EXPECT_DOUBLE_EQ(nn::init::calculate_gain("leaky_relu", 1), 1);
  double square = 0;
  for (double v : nn::init::kaiming_normal_(zeros({200, 100}), {.nonlinearity = "relu"}).to_vector<double>())
    square += v * v / 20000;
  EXPECT_NEAR(square, 2.0 / 100, 0.001);
  EXPECT_NE(error_of([] { nn::init::xavier_uniform_(zeros({3})); }).find("need two dimensions or more"),
            std::string::npos);
}

TEST(Initialisers, TruncateTheNormalDistribution) {
  manual_seed(7);
  const Tensor x = nn::init::trunc_normal_(zeros({300, 100}), 1, 2, -1, 2);
  double sum = 0, least = 9, most = -9;
  for (const double v : x.to_vector<double>()) sum += v, least = std::min(least, v), most = std::max(most, v);
  EXPECT_GE(least, -1);
  EXPECT_LE(most, 2);
  EXPECT_LT(least, -0.99);
  EXPECT_GT(most, 1.99);
  // mean + std (pdf(a) - pdf(b)) / (cdf(b) - cdf(a)) with a = -1, b = 0.5: 1 + 2 (0.2419707 - 0.3520653) / (0.6914625 -
  // 0.1586553).
  EXPECT_NEAR(sum / 30000, 0.586739, 0.02);
  EXPECT_NE(error_of([] { nn::init::trunc_normal_(zeros({3}), 0, 1, 2, -2); }).find("low < high"), std::string::npos);
  EXPECT_NE(error_of([] { nn::init::trunc_normal_(zeros({3}, i64)); }).find("floating"), std::string::npos);
}

TEST(Initialisers, MakeOrthonormalRowsOrColumns) {
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 12}, {12, 5}, {7, 7}}) {
    const Tensor w = nn::init::orthogonal_(zeros({rows, columns}, f64), 3);
    const Tensor products = rows < columns ? matmul(w, w.t()) : matmul(w.t(), w);
    const std::int64_t n = std::min(rows, columns);
    EXPECT_LT((products - 9 * nn::init::eye_(zeros({n, n}, f64))).abs().amax().item<double>(), 1e-13)
        << rows << " x " << columns;
  }
  EXPECT_EQ(nn::init::orthogonal_(zeros({4, 2, 3, 3})).sizes(), (std::vector<std::int64_t>{4, 2, 3, 3}));
  EXPECT_NE(error_of([] { nn::init::orthogonal_(zeros({3})); }).find("two dimensions or more"), std::string::npos);
}

TEST(Initialisers, PassChannelsOn) {
  const Tensor x = randn({2, 4, 5, 5}),
               y = conv2d(x, nn::init::dirac_(zeros({6, 2, 3, 3}), 2), {}, {.padding = 1, .groups = 2});
  EXPECT_EQ((y.index({indexing::Slice(), indexing::Slice(0, 2)}) - x.index({indexing::Slice(), indexing::Slice(0, 2)}))
                .abs()
                .amax()
                .item<double>(),
            0);
  EXPECT_EQ((y.index({indexing::Slice(), indexing::Slice(3, 5)}) - x.index({indexing::Slice(), indexing::Slice(2, 4)}))
                .abs()
                .amax()
                .item<double>(),
            0);
  EXPECT_EQ(y.index({indexing::Slice(), 2}).abs().amax().item<double>(), 0);
  EXPECT_NE(error_of([] { nn::init::dirac_(zeros({3, 3})); }).find("3 to 5 dimensions"), std::string::npos);
  EXPECT_NE(error_of([] { nn::init::eye_(zeros({3})); }).find("a matrix"), std::string::npos);
}

TEST(Layers, ComputeWhatTheyAreNamedFor) {
  nn::Linear linear(2, 2);
  linear.load_state_dict({{"weight", tensor({{1., 2.}, {3., 4.}})}, {"bias", tensor({10., 20.})}});
  EXPECT_EQ(linear(tensor({{1., 1.}})).to_vector<double>(), (std::vector<double>{13, 27}));
  nn::Conv2d conv(1, 1, 2, {.bias = false});
  conv.load_state_dict({{"weight", tensor({1., 2., 3., 4.}).view({1, 1, 2, 2})}});
  EXPECT_EQ(conv(arange(9).to(f32).view({1, 1, 3, 3})).to_vector<double>(), (std::vector<double>{27, 37, 57, 67}));
  EXPECT_EQ(nn::MaxPool2d(2)(arange(16).to(f32).view({1, 1, 4, 4})).to_vector<double>(),
            (std::vector<double>{5, 7, 13, 15}));
  EXPECT_EQ(nn::AvgPool2d(2)(arange(16).to(f32).view({1, 4, 4})).to_vector<double>(),
            (std::vector<double>{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(nn::AdaptiveAvgPool2d(1)(arange(4).to(f32).view({1, 1, 2, 2})).describe(), "f32[1,1,1,1]");
  nn::Dropout dropout(0.5);
  const std::vector<double> dropped = dropout(ones({1000})).to_vector<double>();
  EXPECT_EQ(std::count(dropped.begin(), dropped.end(), 0.0) + std::count(dropped.begin(), dropped.end(), 2.0), 1000);
  EXPECT_NEAR(static_cast<double>(std::count(dropped.begin(), dropped.end(), 0.0)), 500, 80);
  dropout.eval();
  EXPECT_EQ(dropout(ones({2})).to_vector<double>(), (std::vector<double>{1, 1}));
  // A batch of 2 values a channel: normalised to +-1; running statistics move by a tenth (unbiased variance 2).
  nn::BatchNorm2d norm(1);
  const Tensor y = norm(tensor({1., 3.}).view({2, 1, 1, 1}));
  EXPECT_NEAR(y.to_vector<double>()[1], 1, 1e-4);
  EXPECT_NEAR(norm.running_mean.item<double>(), 0.2, 1e-6);
  EXPECT_NEAR(norm.running_var.item<double>(), 1.1, 1e-6);
  EXPECT_EQ(norm.num_batches_tracked.item<int>(), 1);
  norm.eval();
  EXPECT_NEAR(norm(tensor({0.2}).view({1, 1, 1, 1})).item<double>(), 0, 1e-6);
}

TEST(Modules, EmptyFunctionsAreRefusedWhereTheyAreGiven) {
  const std::function<Tensor(Tensor)> none;
  Tensor (*const nobody)(const Operand&) = nullptr;
  EXPECT_NE(error_of([&] {
              nn::Sequential net(nn::ReLU(), none);
            }).find("the function that a Sequential or a list is to call is empty"),
            std::string::npos);
  EXPECT_NE(error_of([&] { nn::ModuleList<> list{nn::AnyModule(nobody)}; }).find("is empty"), std::string::npos);
  EXPECT_EQ(error_of([&] {
              nn::Sequential net(nn::ReLU(), std::function<Tensor(Tensor)>([](Tensor x) { return x; }), tanh);
            }),
            "no error");
}

TEST(Modules, StatesUnderAnotherPrefixSayIt) {
  nn::Linear layer(2, 3);
  nn::StateDict graphs;
  for (const auto& [name, t] : layer.state_dict()) graphs.emplace_back("model." + name, t);
  const std::string error = error_of([&] { layer.load_state_dict(graphs); });
  EXPECT_NE(error.find("the names of what is loaded begin with 'model.'"), std::string::npos) << error;
  struct Holds : nn::Module<Holds> {
    nn::Linear model = child("model", nn::Linear(2, 3));
    Tensor forward(Tensor x) { return model(x); }
  } holds;
  const std::string other = error_of([&] { holds.load_state_dict(layer.state_dict()); });
  EXPECT_NE(other.find("the names here begin with 'model.'"), std::string::npos) << other;
  EXPECT_NE(other.find("graph.model.load_state_dict()"), std::string::npos) << other;
  const std::string unlike = error_of([&] { layer.load_state_dict({{"model.bias", zeros({3})}}); });
  EXPECT_EQ(unlike.find("begin with"), std::string::npos) << unlike;
}

TEST(Modules, RecurrentLayersOfImpossibleSizesAreRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62, kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(error_of([] { nn::LSTM(2, kHuge); }).find("LSTM: input_size and hidden_size are too large"),
            std::string::npos);
  EXPECT_NE(error_of([] { nn::GRU(kHuge, 2); }).find("GRU: input_size and hidden_size are too large"),
            std::string::npos);
  EXPECT_NE(error_of([] { nn::LSTMCell(2, kHuge / 2); }).find("LSTMCell: input_size and hidden_size are too large"),
            std::string::npos);
  EXPECT_NE(error_of([] { nn::LSTM(2, std::int64_t{1} << 59); }).find("is too large"), std::string::npos);
  EXPECT_NE(error_of([] { nn::GRU(2, 3, {.num_layers = kMost}); }).find("GRU: num_layers must be at most 65536"),
            std::string::npos);
}

TEST(Modules, AreHandlesThatMovesLeaveBehind) {
  nn::Linear first(3, 2);
  const nn::Linear second = std::move(first);
  EXPECT_EQ(first.parameters().size(), 2u);  // NOLINT(bugprone-use-after-move): what it is about
  EXPECT_EQ(second(ones({4, 3})).shape(), (Shape{4, 2}));
  EXPECT_NE(error_of([&] { (void)first(ones({4, 3})); }), "no error");  // its weight has gone with the other
}

}  // namespace
}  // namespace graven::module_test
