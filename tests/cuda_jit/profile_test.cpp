// Profiles of graphs that run on a device: the road is the one of a real device, the times are the emulated one's.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_jit/device.h"

namespace graven {
namespace {

struct ProfiledMlp : nn::Module<ProfiledMlp> {
  nn::Linear hidden = child("hidden", nn::Linear(12, 20));
  nn::Linear logits = child("logits", nn::Linear(20, 5));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

struct TrainProfiledMlp : nn::Graph<TrainProfiledMlp> {
  ProfiledMlp model = child("model", ProfiledMlp());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainProfiledMlp() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = loss_fn(model(x), y);
    loss.backward();
    return loss;
  }
};

std::map<std::string, std::set<std::string>> modules_of(const nn::Profile& profile) {
  std::map<std::string, std::set<std::string>> found;
  for (const nn::ProfileRow& row : profile.rows()) found[row.phase].insert(row.module);
  return found;
}

TEST(CudaProfile, HasTheModulesOfEachPhase) {
  manual_seed(1);
  TrainProfiledMlp graph;
  graph.model.to("cuda");
  const Tensor x = randn({7, 12}).cuda(), y = randint(0, 5, {7}).cuda();
  const nn::Profile profile = graph.profile({.warmup = 1, .steps = 3}, x, y);
  const std::map<std::string, std::set<std::string>> modules = modules_of(profile);
  ASSERT_EQ(modules.size(), 3u);
  for (const char* phase : {"forward", "backward"})
    EXPECT_EQ(modules.at(phase), (std::set<std::string>{"loss_fn", "model.hidden", "model.logits"})) << phase;
  EXPECT_EQ(modules.at("update"), std::set<std::string>{"optimizer"});
  EXPECT_EQ(profile.steps(), 3);
  EXPECT_NE(profile.table().find(", cuda:0: "), std::string::npos) << profile.table();
  double seconds = 0;
  for (const nn::ProfileRow& row : profile.rows()) {
    EXPECT_GT(row.seconds, 0) << row.module;
    seconds += row.seconds;
    if (row.module == "model.hidden" && row.phase == "forward") {
      EXPECT_EQ(row.flops, 2.0 * 7 * 12 * 20);
      EXPECT_EQ(row.bytes, 4.0 * (7 * 12 + 12 * 20 + 20 + 7 * 20));
    }
  }
  EXPECT_LE(seconds, profile.seconds());
  EXPECT_GT(profile.peak_flops(), 0);
  EXPECT_GT(profile.bandwidth(), 0);
}

TEST(CudaProfile, TrainsAsCallsDo) {
  const auto state_after = [](const std::function<void(TrainProfiledMlp&, const Tensor&, const Tensor&)>& steps) {
    manual_seed(2);
    TrainProfiledMlp graph;
    graph.model.to("cuda");
    const Tensor x = randn({7, 12}).cuda(), y = randint(0, 5, {7}).cuda();
    steps(graph, x, y);
    std::vector<std::vector<double>> state;
    for (const auto& [name, t] : graph.state_dict()) state.push_back(t.cpu().to_vector<double>());
    return state;
  };
  const auto plain = state_after([](TrainProfiledMlp& graph, const Tensor& x, const Tensor& y) {
    for (int i = 0; i < 6; ++i) graph(x, y);
  });
  // Between calls that are recorded and replayed.
  EXPECT_EQ(state_after([](TrainProfiledMlp& graph, const Tensor& x, const Tensor& y) {
              for (int i = 0; i < 2; ++i) graph(x, y);
              graph.profile({.warmup = 0, .steps = 2}, x, y);
              for (int i = 0; i < 2; ++i) graph(x, y);
            }),
            plain);
}

TEST(CudaProfile, RangesNeedTheirLibrary) {
  setenv("GRAVEN_NVTX", "1", 1);
  TrainProfiledMlp graph;
  graph.model.to("cuda");
  std::string text = "no error";
  try {
    graph(randn({7, 12}).cuda(), randint(0, 5, {7}).cuda());
  } catch (const UserError& e) {
    text = e.what();
  }
  unsetenv("GRAVEN_NVTX");
  EXPECT_NE(text.find("GRAVEN_NVTX asks for ranges of NVTX, and there is no libnvtx3interop.so.1"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace graven
