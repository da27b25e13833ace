// Graphs read back from the folder that save() wrote: the numbers of the graph that was saved, without its code.
// Programs are compiled into the cache.
#include <gtest/gtest.h>
#include <unistd.h>

#include <graven/graven.h>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/call.h"
#include "tests/frontend/error_text.h"
#include "tests/read_text.h"

namespace graven::saved_graph_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;

struct Net : nn::Module<Net> {
  nn::Linear first = child("first", nn::Linear(6, 12));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(12));
  nn::Linear last = child("last", nn::Linear(12, 3));
  Tensor forward(Tensor x) { return last(relu(norm(first(x)))); }
};

struct Infer : nn::Graph<Infer> {
  Net model;
  explicit Infer(Net net) : model(child("model", net)) {}
  std::pair<Tensor, Tensor> build(Tensor x) {
    Tensor logits = model(x);
    return {logits.softmax(1), logits};
  }
};

struct Train : nn::Graph<Train> {
  Net model;
  optim::AdamW decayed;
  optim::RMSprop others;
  lr_scheduler::ExponentialLR schedule{decayed, {.gamma = 0.5}};
  explicit Train(Net net)
      : model(child("model", net)),
        decayed({model.first.weight, model.last.weight}, {.lr = 0.05, .amsgrad = true}),
        others({model.first.bias, model.last.bias}, {.momentum = 0.9}) {
    add_optimizer(decayed, schedule);
    add_optimizer(others);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::temp_directory_path() / ("graven_saved_graph_" + name + "_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

void expect_equal(const nn::StateDict& a, const nn::StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const auto other =
        std::find_if(b.begin(), b.end(), [&, wanted = name](const auto& entry) { return entry.first == wanted; });
    ASSERT_NE(other, b.end()) << name;
    EXPECT_TRUE(equal(tensor, other->second)) << name;
  }
}

TEST(SavedGraph, RunsAsTheGraphThatWasSaved) {
  manual_seed(21);
  const Folder folder("infer");
  Net net;
  net(randn({32, 6}));  // running statistics of its own
  net.eval();
  Infer graph(net);
  graph.compile(spec({Dim("batch", 8), 6}, "features"));
  graph.save(folder.path());

  nn::SavedGraph saved(folder.path());
  EXPECT_EQ(saved.name(), "Infer");
  EXPECT_FALSE(saved.training());
  ASSERT_EQ(saved.inputs().size(), 1u);
  EXPECT_EQ(saved.inputs()[0].name, "features");
  EXPECT_EQ(saved.output_names().size(), 2u);
  for (const std::int64_t batch : {8, 3}) {
    const Tensor x = randn({batch, 6});
    const auto [probabilities, logits] = graph(x);
    const std::vector<Tensor> outputs = saved({x});
    ASSERT_EQ(outputs.size(), 2u);
    EXPECT_TRUE(equal(outputs[0], probabilities));
    EXPECT_TRUE(equal(outputs[1], logits));
  }
  expect_equal(saved.state_dict(), graph.state_dict());

  // Other weights, all or nothing; the folder's graph and the one that was saved are apart.
  nn::StateDict doubled;
  for (const auto& [name, tensor] : saved.state_dict())
    doubled.emplace_back(name, name.find("weight") != std::string::npos ? tensor * 2 : tensor);
  const Tensor x = randn({8, 6}), before = saved({x})[1];
  saved.load_state_dict(doubled);
  EXPECT_FALSE(allclose(saved({x})[1], before));
  EXPECT_TRUE(equal(graph(x).second, before));
  graph.load_state_dict(doubled);
  EXPECT_TRUE(equal(graph(x).second, saved({x})[1]));
}

TEST(SavedGraph, TrainsOnAsTheGraphThatWasSaved) {
  manual_seed(22);
  const Folder folder("train");
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  Train graph((Net()));
  for (int step = 0; step < 2; ++step) graph(x, labels);
  graph.save(folder.path());
  nn::save(graph.state_dict(), folder / "state.safetensors");

  nn::SavedGraph saved(folder.path());
  EXPECT_TRUE(saved.training());
  EXPECT_EQ(saved.train_step(), 0);
  saved.load_state_dict(nn::load(folder / "state.safetensors"));
  EXPECT_EQ(saved.train_step(), 2);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(saved.learning_rates(), graph.learning_rates());
    EXPECT_TRUE(equal(saved({x, labels})[0], graph(x, labels))) << step;
  }
  EXPECT_EQ(saved.train_step(), 5);
  expect_equal(saved.state_dict(), graph.state_dict());
}

// A parameter that no loss depends on is left alone, as PyTorch leaves one whose grad is None, and the program has no
// optimizer state for it.
struct PartlyUsed : nn::Module<PartlyUsed> {
  nn::Linear used = child("used", nn::Linear(6, 3)), unused = child("unused", nn::Linear(6, 3)),
             detached = child("detached", nn::Linear(6, 3));
  Tensor forward(Tensor x) {
    Tensor never_read = unused(x);
    return used(x) + detached(x).detach();
  }
};
struct TrainPartlyUsed : nn::Graph<TrainPartlyUsed> {
  PartlyUsed model = child("model", PartlyUsed());
  optim::Adam optimizer{model.parameters(), {.lr = 0.05}};
  TrainPartlyUsed() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x).square().mean();
    loss.backward();
    return loss;
  }
};

TEST(SavedGraph, HasStateOnlyForWhatALossDependsOn) {
  manual_seed(23);
  const Folder folder("partly_used");
  const Tensor x = randn({8, 6});
  TrainPartlyUsed graph;
  PartlyUsed eager;
  eager.load_state_dict(graph.model.state_dict());
  optim::Adam optimizer(eager.parameters(), {.lr = 0.05});
  for (int step = 0; step < 2; ++step) {
    Tensor loss = eager(x).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(graph(x).item<double>(), loss.item<double>(), 1e-6) << step;
  }
  EXPECT_TRUE(equal(graph.model.unused.weight, eager.unused.weight));
  EXPECT_TRUE(equal(graph.model.detached.weight, eager.detached.weight));
  std::vector<std::string> names;
  for (const auto& entry : graph.state_dict())
    if (entry.first.find('-') != std::string::npos) names.push_back(entry.first);
  EXPECT_EQ(names, (std::vector<std::string>{"model.used.weight-m", "model.used.weight-v", "model.used.bias-m",
                                             "model.used.bias-v"}));

  graph.save(folder.path());
  nn::SavedGraph saved(folder.path());
  saved.load_state_dict(graph.state_dict());
  EXPECT_TRUE(equal(saved({x})[0], graph(x)));
  expect_equal(saved.state_dict(), graph.state_dict());
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

struct Fault {
  std::string name;
  test::Call<void(const Folder&)> make;
  std::string error;
};
const Fault kFaults[] = {
    {"no_folder", [](const Folder& f) { fs::remove_all(f.path()); },
     "graph.json: cannot open: No such file or directory"},
    {"no_graph", [](const Folder& f) { fs::remove(f / "graph.json"); },
     "graph.json: cannot open: No such file or directory"},
    {"no_weights", [](const Folder& f) { fs::remove(f / "weights.safetensors"); }, "weights.safetensors"},
    {"half_a_graph",
     [](const Folder& f) {
       const std::string text = read_text(f / "graph.json");
       write(f / "graph.json", text.substr(0, text.size() / 2));
     },
     "graph.json"},
    {"half_of_the_weights",
     [](const Folder& f) {
       const std::string text = read_text(f / "weights.safetensors");
       write(f / "weights.safetensors", text.substr(0, text.size() / 2));
     },
     "weights.safetensors"},
    {"a_weight_less",
     [](const Folder& f) {
       nn::StateDict state = nn::load(f / "weights.safetensors");
       state.pop_back();
       nn::save(state, f / "weights.safetensors");
     },
     "missing     model.norm.weight  f32[12]"},
    {"a_weight_more",
     [](const Folder& f) {
       nn::StateDict state = nn::load(f / "weights.safetensors");
       state.emplace_back("extra", zeros({2}));
       nn::save(state, f / "weights.safetensors");
     },
     "unexpected  extra  f32[2]"},
    {"another_shape",
     [](const Folder& f) {
       nn::StateDict state = nn::load(f / "weights.safetensors");
       for (auto& [name, tensor] : state)
         if (name == "model.last.bias") tensor = zeros({4});
       nn::save(state, f / "weights.safetensors");
     },
     "mismatch    model.last.bias  expected f32[3], got f32[4]"},
    {"a_graph_of_larger_weights",
     [](const Folder& f) {
       // Nothing is allocated for it.
       std::string text = read_text(f / "graph.json");
       for (std::size_t at = 0; (at = text.find("f32[12]", at)) != std::string::npos; ++at)
         text.replace(at, 7, "f32[99999999999999]");
       write(f / "graph.json", text);
     },
     ""},
};
class SavedGraphFaults : public testing::TestWithParam<Fault> {};
TEST_P(SavedGraphFaults, AreOneError) {
  const Folder folder("fault_" + GetParam().name);
  Infer graph([] {
    Net net;
    net.eval();
    return net;
  }());
  graph.compile(spec({2, 6}));
  graph.save(folder.path());
  GetParam().make(folder);
  const std::string error = error_of([&] { nn::SavedGraph saved(folder.path()); });
  EXPECT_NE(error, "");
  EXPECT_NE(error.find(GetParam().error), std::string::npos) << error;
}
INSTANTIATE_TEST_SUITE_P(All, SavedGraphFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return info.param.name; });

TEST(SavedGraph, NamesTheInputThatDoesNotFit) {
  const Folder folder("inputs");
  Net net;
  net.eval();
  Infer graph(net);
  graph.compile(spec({Dim("batch", 8), 6}, "features"));
  graph.save(folder.path());
  nn::SavedGraph saved(folder.path());
  EXPECT_NE(error_of([&] { saved({}); }).find("Infer takes 1 inputs, got 0"), std::string::npos);
  EXPECT_NE(error_of([&] { nn::SavedGraph("/nowhere"); }).find("saved_graph_test.cpp:"), std::string::npos);
  EXPECT_NE(error_of([&] {
              saved({zeros({2, 5})});
            }).find("input 0 ('features') of Infer: expected f32[batch,6], got f32[2,5]"),
            std::string::npos)
      << error_of([&] { saved({zeros({2, 5})}); });
  EXPECT_NE(error_of([&] { saved({zeros({9, 6})}); }).find("batch must lie in [1, 8]"), std::string::npos);
  EXPECT_NE(error_of([&] { saved.set_threads(-1); }).find("must not be negative"), std::string::npos);
  (void)saved({zeros({8, 6})});
  EXPECT_NE(error_of([&] { saved.set_threads(1); }).find("is running already"), std::string::npos);
}

}  // namespace
}  // namespace graven::saved_graph_test
