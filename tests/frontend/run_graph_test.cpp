// Compiled graphs against eager modules: the same numbers, shared parameters, schedules, exact resume. Programs are
// compiled into the cache.
#include <gtest/gtest.h>
#include <unistd.h>

#include <graven/graven.h>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/build/tuning.h"
#include "tests/frontend/error_text.h"

namespace graven::run_graph_test {
namespace {

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(6, 20));
  nn::Linear logits = child("logits", nn::Linear(20, 3));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

struct Train : nn::Graph<Train> {
  Mlp model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  lr_scheduler::StepLR schedule{optimizer, {.step_size = 2, .gamma = 0.5}};
  explicit Train(Mlp mlp) : model(child("model", mlp)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    add_optimizer(optimizer, schedule);
  }
  std::pair<Tensor, Tensor> build(Tensor x, Tensor labels) {
    Tensor logits = model(x);
    Tensor loss = loss_fn(logits, labels);
    loss.backward();
    return {loss, logits};
  }
};

struct Infer : nn::Graph<Infer> {
  Mlp model;
  explicit Infer(Mlp mlp) : model(child("model", mlp)) {}
  Tensor build(Tensor x) { return model(x).softmax(1); }
};

/// A network that eager mode and a graph train in turn, with one optimizer.
struct InTurn : nn::Graph<InTurn> {
  nn::Linear layer = child("layer", nn::Linear(3, 2));
  optim::AdamW optimizer{layer.parameters(), {.lr = 0.1, .amsgrad = true}};
  InTurn() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = (layer(x) * layer(x)).sum();
    loss.backward();
    return loss;
  }
  void eager_step(const Tensor& x) {
    optimizer.zero_grad();
    (layer(x) * layer(x)).sum().backward();
    optimizer.step();
  }
};

struct Wide : nn::Graph<Wide> {
  nn::Conv2d model = child("model", nn::Conv2d(64, 64, 3, {.padding = 1}));
  Tensor build(Tensor x) { return model(x); }
};

/// The program is the one that the file asks for, with results that differ by rounding; so is that of a saved graph
/// with the file beside it.
TEST(CompiledGraphs, TakeTheAlgorithmsThatWereMeasured) {
  const std::string folder = testing::TempDir() + "/tuned_graph", file = folder + "/tuning.json";
  std::filesystem::remove_all(folder);
  const Tensor x = randn({1, 64, 8, 8});
  Wide heuristics, tuned;
  tuned.load_state_dict(heuristics.state_dict());
  const Tensor expected = heuristics(x);
  heuristics.save(folder);
  std::ofstream(file) << ir::tuning_text({{"cpu",
                                           ir::name_of_device({}),
                                           codegen::tuning_versions(codegen::target_named("cpu")),
                                           "conv2d f32[1,8,8,64] f32[64,64,3,3] padding 1x1",
                                           "direct",
                                           {}}});
  tuned.set_tuning(file);
  EXPECT_EQ(tuned.tuning(), file);
  EXPECT_NE(tuned.repr().find("tuning=" + file), std::string::npos);
  EXPECT_TRUE(allclose(tuned(x), expected, 1e-4, 1e-5));
  nn::SavedGraph saved(folder);
  EXPECT_TRUE(equal(saved({x}).at(0), tuned(x)));
  const nn::ProfileOptions once{.warmup = 0, .steps = 1};
  const auto takes_winograd = [](const nn::Profile& profile) {
    return profile.table().find("conv2d_winograd") != std::string::npos;
  };
  EXPECT_TRUE(takes_winograd(heuristics.profile(once, x)));
  EXPECT_FALSE(takes_winograd(tuned.profile(once, x)));
  EXPECT_FALSE(takes_winograd(saved.profile({x}, once)));
  EXPECT_NE(error_of([&] { tuned.set_tuning(""); }).find("is running already"), std::string::npos);
  std::ofstream(file) << "damaged";
  Wide damaged;
  damaged.set_tuning(file);
  EXPECT_NE(error_of([&] { damaged(x); }).find("tuning.json: line 1, column 1"), std::string::npos);
}

/// Results that somebody holds stay what they are; the memory of those that nobody does is used again.
TEST(CompiledGraphs, ResultsAreWrittenIntoARing) {
  struct Square : nn::Graph<Square> {
    Tensor build(Tensor x) { return x * x; }
  };
  for (const int size : {0, 1, 2, 3}) {
    SCOPED_TRACE(size);
    Square graph;
    graph.set_outputs_buffer_size(size);
    const std::string shown = graph.repr();
    EXPECT_EQ(shown.find("outputs_buffer_size=" + std::to_string(size)) != std::string::npos, size != 2) << shown;
    std::set<const float*> places;
    for (int call = 1; call <= 8; ++call) places.insert(graph(full({1000}, call)).data<float>());
    if (size > 0) {
      EXPECT_LE(places.size(), static_cast<std::size_t>(size));
    }
    std::vector<Tensor> held;
    for (int call = 1; call <= 5; ++call) held.push_back(graph(full({1000}, call)));
    for (int call = 1; call <= 5; ++call) {
      EXPECT_EQ(held[static_cast<std::size_t>(call - 1)].min().item<float>(), static_cast<float>(call * call));
      EXPECT_EQ(held[static_cast<std::size_t>(call - 1)].max().item<float>(), static_cast<float>(call * call));
    }
    EXPECT_NE(error_of([&] { graph.set_outputs_buffer_size(4); }).find("is recorded already"), std::string::npos);
  }
  Square graph;
  EXPECT_NE(error_of([&] { graph.set_outputs_buffer_size(-1); }).find("must not be negative, got -1"),
            std::string::npos);
}

TEST(CompiledGraphs, ShareTheirOptimizersStateWithEagerSteps) {
  const Tensor x = tensor({{0.5, -1.0, 2.0}, {1.5, 0.25, -0.75}});
  const auto run = [&](const std::string& steps) {
    manual_seed(7);
    InTurn net;
    for (const char step : steps) {
      if (step == 'e') net.eager_step(x);
      if (step == 'g') net(x);
      if (step == 's') net.optimizer.load_state_dict(net.optimizer.state_dict());
      if (step == 'd') net.load_state_dict(net.state_dict());
    }
    nn::StateDict state = net.optimizer.state_dict();
    for (const auto& [name, p] : net.layer.named_parameters()) state.emplace_back(name, p);
    return state;
  };
  const nn::StateDict expected = run("eeeeee");
  for (const char* steps : {"eegggg", "gggggg", "ggggee", "egegeg", "eesgggg", "ggsgsgsgg", "gdggdggdg", "eeedggg"}) {
    SCOPED_TRACE(steps);
    const nn::StateDict found = run(steps);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].first, expected[i].first);
      EXPECT_TRUE(allclose(found[i].second.to(f64), expected[i].second.to(f64), 1e-5, 1e-6))
          << found[i].first << found[i].second << expected[i].second;
    }
  }
}

/// What was loaded into an optimizer counts from the next step of the graph on, before the first as after others.
TEST(CompiledGraphs, GoOnFromWhatTheirOptimizersWereGiven) {
  const Tensor x = tensor({{0.5, -1.0, 2.0}});
  manual_seed(7);
  InTurn source;
  for (int i = 0; i < 3; ++i) source(x);
  const nn::StateDict weights = source.layer.state_dict();
  nn::StateDict kept_weights, kept;
  for (const auto& [name, t] : weights) kept_weights.emplace_back(name, t.detach().clone());
  for (const auto& [name, t] : source.optimizer.state_dict()) kept.emplace_back(name, t.clone());
  source(x);
  for (const int steps_before : {0, 2}) {
    manual_seed(9);
    InTurn other;
    for (int i = 0; i < steps_before; ++i) other(x);
    other.layer.load_state_dict(kept_weights);
    other.optimizer.load_state_dict(kept);
    other(x);
    EXPECT_EQ(other.train_step(), 4);
    EXPECT_TRUE(allclose(other.layer.weight, source.layer.weight, 1e-6, 1e-7)) << steps_before;
  }
  // Back to before the first step.
  manual_seed(7);
  InTurn fresh, again;
  const nn::StateDict nothing = fresh.optimizer.state_dict();
  again.layer.load_state_dict(fresh.layer.state_dict());
  for (int i = 0; i < 2; ++i) again(x);
  again.layer.load_state_dict(fresh.layer.state_dict());
  again.optimizer.load_state_dict(nothing);
  fresh(x);
  again(x);
  EXPECT_TRUE(equal(again.layer.weight, fresh.layer.weight));
}

/// What build() returns of a parameter is what it saw, whatever the update does to its memory.
struct ShowsItsWeights : nn::Graph<ShowsItsWeights> {
  struct Net : nn::Module<Net> {
    Tensor w = parameter("w", tensor({1.0, 2.0, 3.0, 4.0}));
    Tensor forward(Tensor x) { return w * x; }
  };
  Net net = child("net", Net());
  ShowsItsWeights() { add_optimizer(optim::SGD(net.parameters(), {.lr = 1})); }
  std::vector<Tensor> build(Tensor x) {
    Tensor loss = net(x).sum();
    loss.backward();
    return {net.w,          net.w.reshape({2, 2}).reshape({4}),
            net.w.detach(), net.w.clone(),
            net.w + 0,      net.w.reshape({2, 2}).transpose(0, 1).transpose(0, 1).flatten(),
            net.w * 1,      net.w.unsqueeze(0).squeeze(0)};
  }
};

TEST(CompiledGraphs, ReturnParametersAsTheySawThem) {
  ShowsItsWeights graph;
  for (float first : {1.0f, 0.0f})
    for (const Tensor& shown : graph(ones({4})))
      EXPECT_EQ(shown.to_vector<float>(), (std::vector<float>{first, first + 1, first + 2, first + 3}));
  EXPECT_EQ(graph.net.w.to_vector<float>(), (std::vector<float>{-1, 0, 1, 2}));
}

TEST(CompiledGraphs, UpdateInBackwardGivesTheSameBits) {
  const auto train = [](bool in_backward) {
    manual_seed(12);
    const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
    Train graph((Mlp()));
    if (in_backward) graph.update_in_backward();
    for (int step = 0; step < 5; ++step) graph(x, labels);
    const std::string config = in_backward ? "(CONFIG:config:GraphConfig(training=True, update_in_backward=True, ))"
                                           : "GraphConfig(training=True, ))";
    EXPECT_NE(graph.repr().find(config), std::string::npos) << graph.repr();
    return graph.state_dict();
  };
  const nn::StateDict apart = train(false), together = train(true);
  ASSERT_EQ(apart.size(), together.size());
  for (std::size_t i = 0; i < apart.size(); ++i) {
    EXPECT_EQ(apart[i].first, together[i].first);
    EXPECT_TRUE(equal(apart[i].second, together[i].second)) << apart[i].first;
  }
}

/// Layers whose gradients are large enough to be used where they are computed. Of the first kernel one tap alone meets
/// the image.
struct WideNet : nn::Module<WideNet> {
  nn::Conv2d around = child("around", nn::Conv2d(40, 420, 3, {.padding = 1})),
             pixel = child("pixel", nn::Conv2d(420, 60, 1));
  models::MLP head = child("head", models::MLP(60, {600, 300, 3}));
  Tensor forward(Tensor x) { return head(pixel(around(x.reshape({-1, 40, 1, 1})).relu()).flatten(1)); }
};

/// Their biases in a group of their own, without decay.
template <class Optimizer, class Options>
struct WideTrain : nn::Graph<WideTrain<Optimizer, Options>> {
  WideNet model;
  Optimizer optimizer;

  static std::vector<optim::Group<Options>> groups(const WideNet& model, const Options& options) {
    std::vector<optim::Group<Options>> result{{{}, options}, {{}, options}};
    result[1].options.weight_decay = 0;
    for (const Tensor& p : model.parameters()) result[p.dim() == 1 ? 1 : 0].parameters.push_back(p);
    return result;
  }
  WideTrain(WideNet net, const Options& options) : model(this->child("model", net)), optimizer(groups(net, options)) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

/// The state after three steps.
template <class Optimizer, class Options>
nn::StateDict train_wide(const Options& options, bool in_backward, int threads) {
  manual_seed(13);
  const Tensor x = randn({70, 40}), labels = randint(0, 3, {70});
  WideTrain<Optimizer, Options> graph(WideNet(), options);
  graph.update_in_backward(in_backward);
  graph.set_threads(threads);
  for (int step = 0; step < 3; ++step) graph(x, labels);
  return graph.state_dict();
}
template <class Optimizer, class Options>
void expect_same_training(const Options& options) {
  const nn::StateDict apart = train_wide<Optimizer>(options, false, 1);
  for (const int threads : {1, 3}) {
    const nn::StateDict together = train_wide<Optimizer>(options, true, threads);
    ASSERT_EQ(apart.size(), together.size());
    for (std::size_t i = 0; i < apart.size(); ++i)
      EXPECT_TRUE(equal(apart[i].second, together[i].second)) << apart[i].first;
  }
}

TEST(CompiledGraphs, GradientsThatAreNotStoredUpdateTheSame) {
  expect_same_training<optim::SGD>(
      optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  expect_same_training<optim::Adam>(optim::AdamOptions{.lr = 1e-2, .weight_decay = 0.1, .amsgrad = true});
}

/// An environment variable, until it goes.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* given = std::getenv(name)) before_ = given;
    setenv(name, value, 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(CompiledGraphs, TheCompilerAndItsFlagsAreThoseThatAreChosenOrAnError) {
  const auto error_with = [](const char* compiler, const char* flags = "-O1") -> std::string {
    const EnvironmentVariable cxx("CXX", compiler), cxxflags("CXXFLAGS", flags);
    Mlp model;
    Infer graph(model);
    try {
      return allclose(graph(ones({2, 6})), model(ones({2, 6})).softmax(1), 1e-5, 1e-6) ? "none" : "other numbers";
    } catch (const UserError& e) {
      return e.what();
    }
  };
  EXPECT_NE(
      error_with("/nonexistent/c++").find("CXX: expected a C++20 compiler, found '/nonexistent/c++': no such program"),
      std::string::npos);
  EXPECT_NE(error_with("false").find(
                "CXX: expected a C++20 compiler, found 'false': with --version it fails with exit status 1"),
            std::string::npos);
  EXPECT_EQ(error_with("env GRAVEN_TEST=1 c++"), "none");
  EXPECT_EQ(error_with("c++", "-g1  -O0 -std=c++11"), "none") << "the standard is not the user's to choose";
  EXPECT_NE(error_with("c++", "-fno-such-thing-as-this").find("fails with exit status 1 on the generated code"),
            std::string::npos);
}

/// A folder of its own, removed on leaving.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string pattern = testing::TempDir() + "graven-run-XXXXXX";
    path = mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(CompiledGraphs, RunFromACacheInAnyFolder) {
  const Folder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  const EnvironmentVariable cache("GRAVEN_CACHE", "some/cache"), flags("CXXFLAGS", "-O0");
  Mlp model;
  Infer graph(model);
  EXPECT_TRUE(allclose(graph(ones({2, 6})), model(ones({2, 6})).softmax(1), 1e-5, 1e-6));
  std::filesystem::current_path(before);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path / "some/cache"));
}

TEST(CompiledGraphs, WhatACompilerWritesWithoutAnErrorIsLookedAt) {
  const Folder folder;
  const EnvironmentVariable cache("GRAVEN_CACHE", (folder.path / "cache").c_str()), flags("CXXFLAGS", "-O0");
  const std::string compiler = (folder.path / "compiler").string();
  struct Case {
    const char* what;
    const char* does;  // "$out": the file that it is to write
    const char* error;
  };
  const Case cases[] = {
      {"nothing", "true", "leaves nothing that can be read"},
      {"an empty file", ": > \"$out\"", "cannot be loaded"},
      {"rubbish", "echo rubbish > \"$out\"", "cannot be loaded"},
      {"half a library", "c++ \"$@\" && head -c 20000 \"$out\" > half && cat half > \"$out\"", "cannot be loaded"},
      {"another library", "echo 'int x;' | c++ -shared -fPIC -x c++ - -o \"$out\"", "is not whole"},
      // One function has another name.
      {"no error()", "c++ -Dgraven_jit_error=of_another_name \"$@\"", "graven_jit_error"},
      {"no create()", "c++ -Dgraven_jit_create=of_another_name \"$@\"", "graven_jit_create"},
      {"no destroy()", "c++ -Dgraven_jit_destroy=of_another_name \"$@\"", "graven_jit_destroy"},
      {"no bind()", "c++ -Dgraven_jit_bind=of_another_name \"$@\"", "graven_jit_bind"},
      {"no weights_changed()", "c++ -Dgraven_jit_weights_changed=of_another_name \"$@\"", "graven_jit_weights_changed"},
      {"no run()", "c++ -Dgraven_jit_run=of_another_name \"$@\"", "graven_jit_run"},
  };
  Mlp model;
  for (const Case& c : cases) {
    std::ofstream(compiler)
        << "#!/bin/sh\n[ \"$1\" = --version ] && { echo a compiler; exit 0; }\nfor out; do :; done\n"
        << c.does << "\n";
    std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
    const EnvironmentVariable cxx("CXX", compiler.c_str());
    Infer graph(model);
    try {
      graph(ones({2, 6}));
      ADD_FAILURE() << c.what << " is run";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.error), std::string::npos) << c.what << ": " << e.what();
    }
  }
  // The same command, which works meanwhile.
  std::ofstream(compiler) << "#!/bin/sh\n[ \"$1\" = --version ] && { echo a compiler; exit 0; }\nexec c++ \"$@\"\n";
  const EnvironmentVariable cxx("CXX", compiler.c_str());
  Infer graph(model);
  EXPECT_TRUE(allclose(graph(ones({2, 6})), model(ones({2, 6})).softmax(1), 1e-5, 1e-6));
}

/// Threads of this process.
std::int64_t threads_here() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// Threads that a program has besides the caller's: of a graph, and of a saved one, whose number is `chosen` or, where
/// there is none, nobody's choice. `others`: threads that are there without programs; those of a program before may be
/// seen for a moment after they have ended.
std::array<std::int64_t, 2> threads_of_programs(std::optional<int> chosen, std::int64_t others) {
  for (int i = 0; i < 1000 && threads_here() != others; ++i) usleep(10'000);
  const Folder folder;
  std::array<std::int64_t, 2> counts{};
  Mlp model;
  Infer graph(model);
  if (chosen) graph.set_threads(*chosen);
  graph.trace(ones({2, 6}));
  graph.save(folder.path.string());
  nn::SavedGraph saved(folder.path.string());
  if (chosen) saved.set_threads(*chosen);
  std::int64_t before = threads_here();
  graph(ones({2, 6}));
  counts[0] = threads_here() - before;
  before = threads_here();
  saved({ones({2, 6})});
  counts[1] = threads_here() - before;
  return counts;
}

TEST(CompiledGraphs, RunOnAllProcessorsUnlessToldOtherwise) {
  const EnvironmentVariable flags("CXXFLAGS", "-O0");
  set_num_threads(0);  // eager mode has all
  (void)(ones({2}) + ones({2}));
  const std::int64_t before = threads_here(), all = get_num_threads() - 1;
  EXPECT_EQ(threads_of_programs({}, before), (std::array<std::int64_t, 2>{all, all}));
  EXPECT_EQ(threads_of_programs(0, before), (std::array<std::int64_t, 2>{all, all}));
  EXPECT_EQ(threads_of_programs(1, before), (std::array<std::int64_t, 2>{0, 0}));
  EXPECT_EQ(threads_of_programs(4, before), (std::array<std::int64_t, 2>{3, 3}));
}

/// Each parameter of the Mlp in a group of its own: another norm each, and the last one's gradient small enough to stay
/// as it is.
struct ClippedTrain : nn::Graph<ClippedTrain> {
  Mlp model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kMaxNorms[] = {1e-3, 1e-3, 1e-3, 1e3}, kOrders[] = {2, 1, kInfinity, 3};

  static std::vector<optim::Group<optim::SGDOptions>> groups(const Mlp& model, bool clipped) {
    std::vector<optim::Group<optim::SGDOptions>> result;
    for (const Tensor& p : model.parameters()) {
      const std::size_t i = result.size();
      optim::SGDOptions options{.lr = 0.5, .momentum = 0.9};
      if (clipped) options.clip_grad_max_norm = kMaxNorms[i], options.clip_grad_norm_type = kOrders[i];
      result.push_back({{p}, options});
    }
    return result;
  }
  explicit ClippedTrain(Mlp mlp) : model(child("model", mlp)), optimizer(groups(model, true)) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = loss_fn(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(CompiledGraphs, ClipGradientsAsEagerOptimizersDo) {
  manual_seed(13);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  Mlp by_hand, by_option, in_graph;
  by_option.load_state_dict(by_hand.state_dict());
  in_graph.load_state_dict(by_hand.state_dict());
  ASSERT_EQ(by_hand.parameters().size(), std::size(ClippedTrain::kOrders));
  optim::SGD plain(ClippedTrain::groups(by_hand, false)), clipping(ClippedTrain::groups(by_option, true));
  ClippedTrain graph(in_graph);
  for (int step = 0; step < 4; ++step) {
    const auto train = [&](Mlp& model, optim::Optimizer& optimizer, bool clip) {
      optimizer.zero_grad();
      cross_entropy(model(x), labels).backward();
      const std::vector<Tensor> parameters = model.parameters();
      for (std::size_t i = 0; clip && i < parameters.size(); ++i) {
        const double norm =
            nn::utils::clip_grad_norm_({parameters[i]}, ClippedTrain::kMaxNorms[i], ClippedTrain::kOrders[i]);
        EXPECT_EQ(norm > ClippedTrain::kMaxNorms[i], i != 3) << "the case clips what it is to clip";
      }
      optimizer.step();
    };
    train(by_hand, plain, true);
    train(by_option, clipping, false);
    graph(x, labels);
    for (std::size_t i = 0; i < by_hand.parameters().size(); ++i) {
      EXPECT_TRUE(equal(by_option.parameters()[i], by_hand.parameters()[i])) << i;
      EXPECT_TRUE(allclose(in_graph.parameters()[i], by_hand.parameters()[i], 1e-5, 1e-6)) << i;
    }
  }
}

/// Takes whatever it is given; counts how often it is recorded.
struct AnyShape : nn::Graph<AnyShape> {
  Mlp model;
  optim::SGD optimizer;
  int recorded = 0;
  explicit AnyShape(Mlp mlp) : model(child("model", mlp)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    add_optimizer(optimizer);
  }
  Tensor build(std::vector<Tensor> x, Tensor labels) {
    ++recorded;
    Tensor sum = model(x.at(0));
    for (std::size_t i = 1; i < x.size(); ++i) sum = sum + model(x[i]);
    Tensor loss = cross_entropy(sum, labels);
    loss.backward();
    return loss;
  }
};

TEST(CompiledGraphs, WithDynamicInputShapeKeepTheProgramsUsedLast) {
  manual_seed(15);
  Mlp eager, shared;
  shared.load_state_dict(eager.state_dict());
  AnyShape graph(shared);
  graph.with_dynamic_input_shape(2);
  optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
  struct Call {
    std::int64_t batch, inputs;
    int recorded;  ///< in all, after it
  };
  // Two programs are kept: the third drops the one that was not used for longest.
  for (const Call& call :
       {Call{8, 1, 1}, {5, 1, 2}, {8, 1, 2}, {8, 2, 3}, {8, 1, 3}, {5, 1, 4}, {8, 1, 4}, {8, 2, 5}}) {
    std::vector<Tensor> x;
    for (std::int64_t i = 0; i < call.inputs; ++i) x.push_back(randn({call.batch, 6}));
    const Tensor labels = randint(0, 3, {call.batch});
    optimizer.zero_grad();
    Tensor sum = eager(x[0]);
    for (std::size_t i = 1; i < x.size(); ++i) sum = sum + eager(x[i]);
    const Tensor loss = cross_entropy(sum, labels);
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(graph(x, labels).item<double>(), loss.item<double>(), 1e-5);
    EXPECT_EQ(graph.recorded, call.recorded);
    EXPECT_EQ(graph.graph().type(graph.graph().inputs.back()).shape[0].value(), call.batch);
  }
  EXPECT_EQ(graph.train_step(), 8);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(allclose(shared.parameters()[i], eager.parameters()[i], 1e-4, 1e-5)) << i;

  // A call that build() refuses changes nothing.
  EXPECT_NE(test::error_of([&] { graph(std::vector<Tensor>{randn({4, 7})}, randint(0, 3, {4})); }), "");
  (void)graph(std::vector<Tensor>{randn({8, 6}), randn({8, 6})}, randint(0, 3, {8}));
  (void)graph(std::vector<Tensor>{randn({8, 6})}, randint(0, 3, {8}));
  EXPECT_EQ(graph.recorded, 6) << "once for the refused call";

  EXPECT_NE(test::error_of([&] { graph.with_dynamic_input_shape(); }).find("is recorded already"), std::string::npos);
  AnyShape fresh((Mlp()));
  EXPECT_NE(test::error_of([&] { fresh.with_dynamic_input_shape(0); }).find("must be positive, got 0"),
            std::string::npos);
}

/// One layer for each kind of optimizer, and for each kind of state that an option adds.
struct Towers : nn::Module<Towers> {
  static constexpr int kCount = 9;
  nn::ModuleList<nn::Linear> layers = child("layers", nn::ModuleList<nn::Linear>());
  Towers() {
    for (int i = 0; i < kCount; ++i) layers.push_back(nn::Linear(6, 5));
  }
  Tensor forward(Tensor x) {
    Tensor sum = layers[0](x).tanh();
    for (int i = 1; i < kCount; ++i) sum = sum + layers[static_cast<std::size_t>(i)](x).tanh();
    return sum;
  }
  std::vector<optim::Optimizer> optimizers() {
    const auto of = [&](std::size_t i) { return layers[i].parameters(); };
    return {optim::SGD(of(0), {.lr = 0.1, .momentum = 0.9, .nesterov = true}),
            optim::Adam(of(1), {.lr = 0.1, .amsgrad = true}),
            optim::AdamW(of(2), {.lr = 0.1, .do_bias_correction = false}),
            optim::RMSprop(of(3), {.lr = 0.02}),
            optim::RMSprop(of(4), {.lr = 0.02, .eps = 1e-3, .momentum = 0.5, .centered = true}),
            optim::Adagrad(of(5), {.lr = 0.1, .lr_decay = 0.5, .initial_accumulator_value = 0.1}),
            optim::Adadelta(of(6), {.eps = 1e-3, .weight_decay = 0.1}),
            optim::LAMB(of(7), {.lr = 0.1, .weight_decay = 0.1}),
            optim::LAMB(of(8), {.lr = 0.1,
                                .weight_decay = 0.1,
                                .adam_w_mode = false,
                                .do_bias_correction = false,
                                .clip_grad_max_norm = 0.01})};
  }
};

struct TrainTowers : nn::Graph<TrainTowers> {
  Towers model;
  explicit TrainTowers(Towers towers) : model(child("model", towers)) {
    for (const optim::Optimizer& o : model.optimizers()) add_optimizer(o);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(CompiledGraphs, EveryOptimizerStepsAsItDoesEagerly) {
  manual_seed(14);
  const Tensor x = randn({8, 6}), labels = randint(0, 5, {8});
  Towers eager, shared, other;
  for (Towers* t : {&shared, &other}) t->load_state_dict(eager.state_dict());
  TrainTowers graph(shared), together(other);
  together.update_in_backward();
  std::vector<optim::Optimizer> optimizers = eager.optimizers();
  nn::StateDict saved;
  for (int step = 0; step < 4; ++step) {
    for (optim::Optimizer& o : optimizers) o.zero_grad();
    const Tensor loss = cross_entropy(eager(x), labels);
    loss.backward();
    for (optim::Optimizer& o : optimizers) o.step();
    EXPECT_NEAR(graph(x, labels).item<double>(), loss.item<double>(), 1e-5) << "step " << step;
    together(x, labels);
    if (step == 1)
      for (const auto& [name, t] : graph.state_dict()) saved.emplace_back(name, t.detach().clone());
  }
  const auto parameters = eager.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(allclose(shared.parameters()[i], parameters[i].second, 1e-4, 1e-5)) << parameters[i].first;
    EXPECT_TRUE(equal(other.parameters()[i], shared.parameters()[i])) << parameters[i].first << ", updated in backward";
  }
  // From the state after step 2 the same again, bit for bit.
  const nn::StateDict end = [&] {
    nn::StateDict copy;
    for (const auto& [name, t] : graph.state_dict()) copy.emplace_back(name, t.detach().clone());
    return copy;
  }();
  graph.load_state_dict(saved);
  for (int step = 2; step < 4; ++step) graph(x, labels);
  for (std::size_t i = 0; i < end.size(); ++i)
    EXPECT_TRUE(equal(graph.state_dict()[i].second, end[i].second)) << end[i].first;
}

TEST(CompiledGraphs, TrainAsEagerModulesDo) {
  manual_seed(11);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  Mlp eager, shared;
  shared.load_state_dict(eager.state_dict());
  Train graph(shared);
  Infer infer(shared);
  infer.compile(spec({Dim("batch", 16), 6}, "x"));
  optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
  lr_scheduler::StepLR schedule(optimizer, {.step_size = 2, .gamma = 0.5});

  nn::StateDict saved;
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(graph.learning_rates(), schedule.get_last_lr());
    const Tensor logits = eager(x), loss = cross_entropy(logits, labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    const auto [graph_loss, graph_logits] = graph(x, labels);
    EXPECT_NEAR(graph_loss.item<double>(), loss.item<double>(), 1e-5) << "step " << step;
    EXPECT_TRUE(allclose(graph_logits, logits, 1e-4, 1e-5)) << "step " << step;
    if (step == 2)
      for (const auto& [name, t] : graph.state_dict()) saved.emplace_back(name, t.detach().clone());
  }
  EXPECT_EQ(graph.train_step(), 6);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(allclose(shared.parameters()[i], eager.parameters()[i], 1e-4, 1e-5)) << "modules see what graphs write";

  // The inference graph sees what training wrote, and what the user writes; any batch will do.
  for (std::int64_t batch : {1, 16, 5}) {
    const Tensor input = randn({batch, 6});
    EXPECT_TRUE(allclose(infer(input), shared(input).softmax(1), 1e-4, 1e-5)) << batch;
  }
  {
    NoGradGuard no_grad;
    shared.hidden.weight.mul_(2);
  }
  EXPECT_TRUE(allclose(infer(x), shared(x).softmax(1), 1e-4, 1e-5));

  // From the state after step 3 another graph does steps 4 to 6 again, bit for bit.
  Mlp fresh;
  Train resumed(fresh);
  resumed.load_state_dict(saved);
  EXPECT_EQ(resumed.train_step(), 3);
  EXPECT_EQ(resumed.learning_rates(), (std::vector<double>{0.05}));
  Mlp again;
  Train original(again);
  original.load_state_dict(saved);
  for (int step = 3; step < 6; ++step) EXPECT_TRUE(equal(resumed(x, labels).first, original(x, labels).first));
  EXPECT_EQ(test::error_of([&] { (void)resumed(x, labels.to(i32)); }).find("error: input 1 ('input_1') of Train_"), 0u);
}

}  // namespace
}  // namespace graven::run_graph_test
