// Profiles of graphs: whose rows they have, what these say, and that nothing else changes.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/frontend/error_text.h"
#include "tests/read_text.h"

namespace graven {
namespace {

struct ProfiledLeNet : nn::Graph<ProfiledLeNet> {
  models::LeNet model = child("model", models::LeNet());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  ProfiledLeNet() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

std::pair<Tensor, Tensor> profiled_batch() {
  manual_seed(3);
  return {rand({16, 1, 28, 28}), randint(0, 10, {16})};
}

/// The modules of a phase.
std::set<std::string> modules_of(const nn::Profile& profile, const std::string& phase) {
  std::set<std::string> found;
  for (const nn::ProfileRow& row : profile.rows())
    if (row.phase == phase) found.insert(row.module);
  return found;
}

TEST(Profile, HasTheModulesOfTheNetworkInEachPhase) {
  const auto [images, labels] = profiled_batch();
  ProfiledLeNet graph;
  const nn::Profile profile = graph.profile(images, labels);
  // Those that compute something: a ReLU is in the call of the layer before it, and so is its gradient.
  const std::set<std::string> layers = {
      "model.features.0",   "model.features.2",   "model.features.3",   "model.features.5",
      "model.classifier.1", "model.classifier.3", "model.classifier.5", "loss_fn"};
  std::set<std::string> forward = layers;
  forward.insert("model.classifier.0");  // which flattens what lies channels last
  EXPECT_EQ(modules_of(profile, "forward"), forward);
  EXPECT_EQ(modules_of(profile, "backward"), layers);
  EXPECT_EQ(modules_of(profile, "update"), std::set<std::string>{"optimizer"});
  std::set<std::string> phases;
  for (const nn::ProfileRow& row : profile.rows()) phases.insert(row.phase);
  EXPECT_EQ(phases, (std::set<std::string>{"forward", "backward", "update"}));
  EXPECT_EQ(profile.steps(), 20);
  EXPECT_EQ(graph.train_step(), 23);
}

TEST(Profile, CallsTakeMostOfTheStepAndNoMore) {
  const auto [images, labels] = profiled_batch();
  ProfiledLeNet graph;
  const nn::Profile profile = graph.profile(images, labels);
  double seconds = 0, share = 0;
  for (const nn::ProfileRow& row : profile.rows()) {
    EXPECT_GT(row.seconds, 0) << row.module;
    EXPECT_GT(row.calls, 0) << row.module;
    EXPECT_GT(row.bytes, 0) << row.module;
    EXPECT_GT(row.share_of_limit, 0) << row.module;
    seconds += row.seconds;
    share += row.share;
  }
  EXPECT_LE(seconds, profile.seconds());
  EXPECT_GT(seconds, 0);
  EXPECT_NEAR(share, seconds / profile.seconds(), 1e-9);
  EXPECT_GT(profile.peak_flops(), 1e8);
  EXPECT_GT(profile.bandwidth(), 1e8);
}

struct ProfiledLayers : nn::Graph<ProfiledLayers> {
  nn::Linear linear = child("linear", nn::Linear(48, 32));
  nn::Conv2d conv = child("conv", nn::Conv2d(4, 16, 3, {.stride = 2, .padding = 1}));
  std::vector<Tensor> build(Tensor x, Tensor images) { return {linear(x), conv(images)}; }
};

/// What one call does, by hand.
TEST(Profile, CountsFlopsAndBytes) {
  manual_seed(1);
  ProfiledLayers graph;
  const nn::Profile profile = graph.profile({.warmup = 1, .steps = 2}, rand({10, 48}), rand({2, 4, 12, 12}));
  std::map<std::string, nn::ProfileRow> products;
  for (const nn::ProfileRow& row : profile.rows())
    if (row.phase == "forward" && row.flops > 0) {
      EXPECT_TRUE(products.emplace(row.module, row).second) << row.operation;
    }
  ASSERT_EQ(products.size(), 2u);
  EXPECT_EQ(products["linear"].flops, 2.0 * 10 * 48 * 32);
  EXPECT_EQ(products["linear"].bytes, 4.0 * (10 * 48 + 48 * 32 + 32 + 10 * 32));  // 32 columns are whole panels
  EXPECT_EQ(products["linear"].calls, 1);
  EXPECT_EQ(products["conv"].flops, 2.0 * 2 * 6 * 6 * 16 * 4 * 3 * 3);
  EXPECT_EQ(products["conv"].bytes, 4.0 * (2 * 4 * 12 * 12 + 16 * 4 * 3 * 3 + 16 + 2 * 16 * 6 * 6));
}

struct ProfiledOfAnyBatch : nn::Graph<ProfiledOfAnyBatch> {
  nn::Linear linear = child("linear", nn::Linear(48, 32));
  Tensor build(Tensor x) { return linear(x); }
};

TEST(Profile, GoesByTheSizesOfTheCall) {
  ProfiledOfAnyBatch graph;
  graph.compile(spec({Dim("batch", 64), 48}));
  for (const std::int64_t batch : {1, 7, 64}) {
    const nn::Profile profile = graph.profile({.warmup = 0, .steps = 1}, zeros({batch, 48}));
    ASSERT_EQ(profile.rows().size(), 1u);
    EXPECT_EQ(profile.rows()[0].flops, 2.0 * static_cast<double>(batch) * 48 * 32);
  }
}

/// What a profile leaves is what as many calls leave, bit for bit; and so with calls that are profiled in a loop.
TEST(Profile, TrainsAsCallsDo) {
  const auto batch = profiled_batch();
  const Tensor &images = batch.first, &labels = batch.second;
  const auto state_after = [&](const std::function<void(ProfiledLeNet&)>& steps) {
    manual_seed(5);
    ProfiledLeNet graph;
    steps(graph);
    std::string bytes;
    for (const auto& [name, t] : graph.state_dict()) {
      bytes += name;
      bytes.append(static_cast<const char*>(t.data_ptr()),
                   static_cast<std::size_t>(t.numel()) * ir::size_of(t.dtype()));
    }
    return bytes;
  };
  const std::string plain = state_after([&](ProfiledLeNet& graph) {
    for (int i = 0; i < 5; ++i) graph(images, labels);
  });
  EXPECT_EQ(state_after([&](ProfiledLeNet& graph) { graph.profile({.warmup = 2, .steps = 3}, images, labels); }),
            plain);
  EXPECT_EQ(state_after([&](ProfiledLeNet& graph) {
              graph(images, labels);
              const nn::Profile profile = graph.profile([&] {
                for (int i = 0; i < 3; ++i) graph(images, labels);
              });
              EXPECT_EQ(profile.steps(), 3);
              graph(images, labels);
            }),
            plain);
}

struct ProfiledInParts : ProfiledLeNet {
  ProfiledInParts() { set_gradient_accumulation_steps(2); }
};

TEST(Profile, CountsTheCallsOfAllPartsOfAStep) {
  const auto [images, labels] = profiled_batch();
  ProfiledInParts graph;
  const nn::Profile profile = graph.profile({.warmup = 0, .steps = 2}, images, labels);
  for (const nn::ProfileRow& row : profile.rows()) {
    if (row.module == "loss_fn" && row.phase == "forward") {
      EXPECT_EQ(row.calls, 2);
    }
    if (row.phase == "update") {
      EXPECT_EQ(row.calls, 1);
    }
  }
}

TEST(Profile, PrintsATableOfPhasesModulesAndOperators) {
  const auto [images, labels] = profiled_batch();
  ProfiledLeNet graph;
  std::ostringstream out;
  out << graph.profile(images, labels);
  const std::string table = out.str();
  for (const char* part :
       {"ProfiledLeNet_", " a step, the mean of the faster half of 20\n", "limits, measured now: ", "calls",
        "of limit\n", "\nforward ", "\n  model.features.0 ", "\n    conv2d 1->6, 5x5 + bias + relu ", "\nbackward ",
        "\n  model.classifier.1 ", "\nupdate ", "\n  optimizer  sgd, momentum 0.9 ", "\nbetween calls ", "\ntotal "})
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 160u) << line;
}

/// What Perfetto and Chrome need of it.
TEST(Profile, SavesATrace) {
  const auto [images, labels] = profiled_batch();
  ProfiledLeNet graph;
  const nn::Profile profile = graph.profile({.warmup = 1, .steps = 4}, images, labels);
  const std::string path = std::string(GRAVEN_BINARY_DIR) + "/profile_" + std::to_string(getpid()) + ".json";
  profile.save_trace(path);
  const nlohmann::json trace = nlohmann::json::parse(read_text(path));
  std::filesystem::remove(path);
  double calls = 0, steps = 0;
  std::map<int, std::string> names;
  std::map<int, double> ends;  // by row: the spans of one follow one another
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const int row = event.at("tid");
    EXPECT_EQ(event.at("pid"), 1);
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") names[row] = event.at("args").at("name");
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    const double begin = event.at("ts"), length = event.at("dur");
    EXPECT_GE(length, 0);
    EXPECT_GE(begin, ends[row] - 0.001);
    ends[row] = begin + length;
    ASSERT_TRUE(names.count(row));
    if (names[row] == "steps") {
      ++steps;
      continue;
    }
    ++calls;
    EXPECT_EQ(event.at("cat"), names[row]);
    const nlohmann::json& args = event.at("args");
    EXPECT_EQ(event.at("name"), args.at("module").get<std::string>() + ": " + args.at("operator").get<std::string>());
    EXPECT_GT(args.at("bytes").get<double>(), 0);
    EXPECT_TRUE(args.at("flops").is_number());
    EXPECT_FALSE(args.at("shapes").get<std::string>().empty());
  }
  EXPECT_EQ(steps, 4);
  double expected = 0;
  for (const nn::ProfileRow& row : profile.rows()) expected += row.calls;
  EXPECT_EQ(calls, 4 * expected);
}

TEST(Profile, IsOfAGraphThatWasSavedAsWell) {
  const auto [images, labels] = profiled_batch();
  ProfiledLeNet graph;
  graph.compile(images, labels);
  const std::string folder = std::string(GRAVEN_BINARY_DIR) + "/profiled_graph_" + std::to_string(getpid());
  graph.save(folder);
  nn::SavedGraph saved(folder);
  std::filesystem::remove_all(folder);
  const nn::Profile profile = saved.profile({images, labels}, {.warmup = 1, .steps = 2});
  EXPECT_EQ(profile.steps(), 2);
  EXPECT_EQ(saved.train_step(), 3);
  EXPECT_EQ(modules_of(profile, "update"), std::set<std::string>{"optimizer"});
}

TEST(Profile, RefusesWhatItCannotMeasure) {
  const auto [images, labels] = profiled_batch();
  const Tensor x = images, y = labels;
  ProfiledLeNet graph;
  const struct {
    const char* what;
    std::function<void()> call;
  } cases[] = {
      {"profile: expected steps of 1 or more, got 0", [&] { graph.profile({.steps = 0}, x, y); }},
      {"profile: expected warmup of 0 or more calls, got -1", [&] { graph.profile({.warmup = -1}, x, y); }},
      {"profile: expected a function that calls the graph, found one that does not", [&] { graph.profile([] {}); }},
      {"profile is called within what it profiles", [&] { graph.profile([&] { graph.profile(x, y); }); }},
      {"input 0 ('input_0')", [&] { graph.profile(y, y); }},
      {"/missing/trace.json: cannot create",
       [&] { graph.profile({.warmup = 0, .steps = 1}, x, y).save_trace("/missing/trace.json"); }},
      {"save_trace: expected the name of a file",
       [&] { graph.profile({.warmup = 0, .steps = 1}, x, y).save_trace(""); }},
  };
  graph(x, y);
  for (const auto& c : cases) {
    const std::string text = test::error_of(c.call);
    EXPECT_NE(text.find(c.what), std::string::npos) << text;
  }
  EXPECT_EQ(graph.train_step(), 3);  // the last two's
}

}  // namespace
}  // namespace graven
