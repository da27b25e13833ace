// What an emitted training program says of a held-out set, against the same module, eager, in evaluation mode.
#include <graven/codegen.h>
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "codegen/build/process.h"
#include "codegen/emit/evaluation.h"
#include "frontend/eager/oracle.h"
#include "ir/json.h"
#include "ir/op.h"
#include "ir/passes/pass.h"
#include "runtime_min/npy.h"
#include "tests/emit/self_tests.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 8, kTraining = 24, kHeldOut = 13;  // the last batch of the held-out set has 5

/// Convolutions with batch norm around a shortcut. The first has a bias, whose gradient the batch norm makes zero but
/// for rounding: a self-test is not to fail over it.
struct Residual : nn::Module<Residual> {
  nn::Conv2d first = child("first", nn::Conv2d(2, 16, 3, {.padding = 1}));
  nn::BatchNorm2d first_norm = child("first_norm", nn::BatchNorm2d(16));
  nn::Conv2d second = child("second", nn::Conv2d(16, 16, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d second_norm = child("second_norm", nn::BatchNorm2d(16));
  nn::Linear logits = child("logits", nn::Linear(16, 5));

  Tensor forward(Tensor x) {
    Tensor h = relu(first_norm(first(x)));
    h = relu(second_norm(second(h)) + h);
    return logits(mean(h, {2, 3}));
  }
};

struct Classify : nn::Graph<Classify> {
  Residual model = child("model", Residual());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  Classify() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// The mean over samples of what a picture's mean is off.
Tensor absolute_difference(const Tensor& pictures, const Tensor& targets) {
  return mean(abs(mean(pictures, {1, 2, 3}) - targets));
}

struct Regress : nn::Graph<Regress> {
  nn::BatchNorm2d model = child("model", nn::BatchNorm2d(2));
  optim::SGD optimizer{model.parameters(), {.lr = 0.05}};
  Regress() { add_optimizer(optimizer); }
  std::map<std::string, Tensor> build(Tensor images, Tensor targets) {
    Tensor pictures = model(images), loss = mse_loss(mean(pictures, {1, 2, 3}), targets);
    loss.backward();
    return {{"loss", loss}, {"difference", absolute_difference(pictures, targets)}, {"pictures", pictures}};
  }
};

struct Columns : nn::Graph<Columns> {
  nn::BatchNorm1d model = child("model", nn::BatchNorm1d(3));
  optim::SGD optimizer{model.parameters(), {.lr = 0.05}};
  Columns() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = mean(model(x) * x);
    loss.backward();
    return loss;
  }
};

/// Labels of two classes, some of them ignored; with dropout, evaluation is a function of its own.
struct Weighted : nn::Graph<Weighted> {
  nn::Linear model = child("model", nn::Linear(1, 2));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  nn::CrossEntropyLoss loss_fn;
  optim::SGD optimizer{model.parameters(), {.lr = 0.05}};
  bool drops;
  Weighted(CrossEntropyOptions options, bool drops_some)
      : loss_fn(child("loss_fn", nn::CrossEntropyLoss(std::move(options)))), drops(drops_some) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = loss_fn(drops ? dropout(model(x)) : model(x), y);
    loss.backward();
    return loss;
  }
};

std::vector<float> numbers(std::int64_t count, double seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i)) * 1.5 + 0.3));
  return values;
}

template <class T>
void write(const fs::path& path, runtime::DType dtype, const runtime::Dims& shape, const std::vector<T>& values) {
  runtime::NpyWriter writer(path.string(), dtype, shape);
  writer.write(values.data(), values.size() * sizeof(T));
  writer.commit();
}

std::string run(const std::vector<std::string>& command, const fs::path& folder) {
  const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
  std::string line;
  for (const auto& c : command) line += c + " ";
  if (r.exit_status != 0) throw std::runtime_error(line + "\n" + r.output);
  return r.output;
}

/// The last epoch's line of the program's log.
nlohmann::json last_epoch(const fs::path& log) {
  std::ifstream in(log);
  nlohmann::json found;
  for (std::string line; std::getline(in, line);)
    if (nlohmann::json event = nlohmann::json::parse(line); event["event"] == "epoch") found = std::move(event);
  return found;
}

struct Project {
  fs::path folder;
  EmitReport report;

  template <class Graph>
  Project(Graph& graph, const std::string& name) : folder(fs::path(GRAVEN_BINARY_DIR) / "emitted" / name) {
    fs::remove_all(folder);
    report = emit(graph, folder, {.name = name});
    // Unoptimised, for the scalar level: what is tested is what is computed. The run time is the same text as the
    // library's.
    std::vector<std::string> command = {
        GRAVEN_CXX, "-std=c++20", "-O0", "-w", "-I.", "-DGRAVEN_HAS_BASE", "-DGRAVEN_LEVEL_NAMESPACE=isa_base"};
    if (GRAVEN_SANITIZED) command.insert(command.end(), {"-fsanitize=address,undefined", "-fno-sanitize-recover=all"});
    const std::vector<std::string> library = {std::string(GRAVEN_BINARY_DIR) + "/libgraven.a", "-lpthread", "-o"};
    fs::create_directories(folder / "build");
    for (const auto& [source, program] : {std::pair{"main.cpp", name.c_str()}, std::pair{"selftest.cpp", "selftest"}}) {
      std::vector<std::string> full = command;
      if (program == name) {
        full.insert(full.end(), {"-c", "model.cpp", "model_api.cpp"});
        if (report.evaluation_bytes > 0) full.emplace_back("evaluation.cpp");
        run(full, folder);
        full = command;
      }
      full.insert(full.end(), {source, "model.o", "model_api.o"});
      if (report.evaluation_bytes > 0) full.emplace_back("evaluation.o");
      full.insert(full.end(), library.begin(), library.end());
      full.push_back((folder / "build" / program).string());
      run(full, folder);
    }
  }

  /// Two epochs; the weights they end with lie in <out>.
  nlohmann::json train(const std::string& name, const std::string& threads) {
    const std::string out = "out" + threads, log = "log" + threads;
    run({(folder / "build" / name).string(), "--data", "x.npy,y.npy", "--test-data", "held_x.npy,held_y.npy",
         "--epochs", "2", "--threads", threads, "--log", log, "--out", out},
        folder);
    return last_epoch(folder / log);
  }
  std::string weights(const std::string& threads) const {
    std::string newest;
    for (const auto& entry : fs::directory_iterator(folder / ("out" + threads)))
      if (entry.is_directory() && !entry.is_symlink()) newest = std::max(newest, entry.path().string());
    return newest + "/weights.safetensors";
  }
};

TEST(Evaluation, AResidualNetworkWithBatchNormIsEvaluatedAsEagerModeDoes) {
  manual_seed(3);
  Classify graph;
  graph.compile(spec({kBatch, 2, 6, 6}, "images"), spec({kBatch}, i64, "labels"));
  Project project(graph, "residual_train");
  EXPECT_GT(project.report.evaluation_bytes, 0);
  for (const char* file : {"evaluation.cpp", "evaluation_plan.h", "evaluation.json"})
    EXPECT_TRUE(fs::exists(project.folder / file)) << file;
  const std::string selftest = run({(project.folder / "build/selftest").string()}, project.folder);
  EXPECT_NE(selftest.find("evaluation.scores"), std::string::npos) << selftest;
  expect_every_number_counts(project.folder, 12);

  const auto labels = [](std::int64_t count) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(i * i % 5);
    return values;
  };
  const std::vector<float> held = numbers(kHeldOut * 72, 5);
  const std::vector<std::int64_t> held_labels = labels(kHeldOut);
  write(project.folder / "x.npy", runtime::DType::f32, {kTraining, 2, 6, 6}, numbers(kTraining * 72, 1));
  write(project.folder / "y.npy", runtime::DType::i64, {kTraining}, labels(kTraining));
  write(project.folder / "held_x.npy", runtime::DType::f32, {kHeldOut, 2, 6, 6}, held);
  write(project.folder / "held_y.npy", runtime::DType::i64, {kHeldOut}, held_labels);
  const nlohmann::json one = project.train("residual_train", "1"), three = project.train("residual_train", "3");
  EXPECT_EQ(one.at("test_loss").get<double>(), three.at("test_loss").get<double>()) << "other bits with other threads";
  EXPECT_EQ(one.at("loss").get<double>(), three.at("loss").get<double>());

  graph.model.eval();
  nn::StateDict own;
  for (auto& [name, value] : nn::load(project.weights("1")))
    own.emplace_back(name.substr(std::string("model.").size()), value);
  graph.model.load_state_dict(own);
  const NoGradGuard no_grad;
  const Tensor scores = graph.model(from_data(held, {kHeldOut, 2, 6, 6}));
  const double expected = cross_entropy(scores, from_data(held_labels, {kHeldOut})).item<double>();
  EXPECT_NEAR(one.at("test_loss").get<double>(), expected, 2e-6 * std::abs(expected));
  std::int64_t correct = 0;
  for (std::int64_t row = 0; row < kHeldOut; ++row) {
    std::vector<float> rated;
    for (std::int64_t c = 0; c < 5; ++c) rated.push_back(scores[row][c].item<float>());
    correct +=
        std::max_element(rated.begin(), rated.end()) - rated.begin() == held_labels[static_cast<std::size_t>(row)];
  }
  EXPECT_EQ(one.at("accuracy").get<double>(), static_cast<double>(correct) / kHeldOut);
}

TEST(Evaluation, AnyLossCountsTheLastSamplesOfAFixedBatch) {
  Regress graph;
  graph.compile(spec({kBatch, 2, 3, 3}, "images"), spec({kBatch}, "targets"));
  Project project(graph, "regress_train");
  const std::vector<float> held = numbers(kHeldOut * 18, 7), targets = numbers(kHeldOut, 11);
  write(project.folder / "x.npy", runtime::DType::f32, {kTraining, 2, 3, 3}, numbers(kTraining * 18, 1));
  write(project.folder / "y.npy", runtime::DType::f32, {kTraining}, numbers(kTraining, 2));
  write(project.folder / "held_x.npy", runtime::DType::f32, {kHeldOut, 2, 3, 3}, held);
  write(project.folder / "held_y.npy", runtime::DType::f32, {kHeldOut}, targets);
  // The log of a step has the other numbers that build() returns.
  run({(project.folder / "build/regress_train").string(), "--data", "x.npy,y.npy", "--steps", "1", "--no-shuffle",
       "--log", "step", "--out", ""},
      project.folder);
  std::ifstream log(project.folder / "step");
  nlohmann::json step = nlohmann::json::object();
  for (std::string line; std::getline(log, line) && step.value("event", "") != "step";)
    step = nlohmann::json::parse(line);
  const std::vector<float> x = numbers(kTraining * 18, 1), y = numbers(kTraining, 2);
  const double difference =
      absolute_difference(graph.model(from_data(x.data(), {kBatch, 2, 3, 3})), from_data(y.data(), {kBatch}))
          .item<double>();
  ASSERT_EQ(step.at("results").size(), 1u) << step << ": the loss stands there already";
  EXPECT_NEAR(step.at("results").at("difference").get<double>(), difference, 2e-6 * difference);

  const nlohmann::json epoch = project.train("regress_train", "2");
  EXPECT_FALSE(epoch.contains("accuracy"));
  EXPECT_EQ(epoch.at("results").size(), 1u) << epoch;
  // What has a name stands in the line of an epoch, too.
  const auto trained = codegen::run_process({(project.folder / "build/regress_train").string(), "--data", "x.npy,y.npy",
                                             "--epochs", "1", "--no-shuffle", "--out", ""},
                                            {.directory = project.folder.string(), .seconds = 100});
  EXPECT_NE(trained.output.find("  difference "), std::string::npos) << trained.output;

  graph.model.eval();
  nn::StateDict own;
  for (auto& [name, value] : nn::load(project.weights("2")))
    own.emplace_back(name.substr(std::string("model.").size()), value);
  graph.model.load_state_dict(own);
  const NoGradGuard no_grad;
  const double expected =
      mse_loss(mean(graph.model(from_data(held, {kHeldOut, 2, 3, 3})), {1, 2, 3}), from_data(targets, {kHeldOut}))
          .item<double>();
  EXPECT_NEAR(epoch.at("test_loss").get<double>(), expected, 2e-6 * std::abs(expected));
}

// Where ignored labels and class weights weigh the mean, a batch's loss counts by its samples, and the last samples' is
// what it is of exactly those.
TEST(Evaluation, TheLossOfTheLastSamplesIsTheirsWithIgnoredLabelsAndClassWeights) {
  const std::vector<float> x = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  const struct {
    const char* name;
    CrossEntropyOptions options;
    bool drops;
    std::vector<std::int64_t> labels;
  } cases[] = {
      {"ignored_train", {}, false, {0, 1, 0, 1, -100, 1}},
      {"weighted_train", {.weight = tensor({1.0, 5.0}), .ignore_index = -7}, true, {0, 1, 1, 1, 0, 1}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    manual_seed(4);
    Weighted graph(c.options, c.drops);
    graph.compile(spec({4, 1}, "x"), spec({4}, i64, "y"));
    Project project(graph, c.name);
    const std::vector<std::int64_t> first(c.labels.begin(), c.labels.begin() + 4);
    write(project.folder / "x.npy", runtime::DType::f32, {4, 1}, std::vector<float>(x.begin(), x.begin() + 4));
    write(project.folder / "y.npy", runtime::DType::i64, {4}, first);
    write(project.folder / "held_x.npy", runtime::DType::f32, {6, 1}, x);
    write(project.folder / "held_y.npy", runtime::DType::i64, {6}, c.labels);
    const nlohmann::json epoch = project.train(c.name, "1");

    nn::StateDict own;
    for (auto& [name, value] : nn::load(project.weights("1")))
      if (name.starts_with("model.")) own.emplace_back(name.substr(std::string("model.").size()), value);
    graph.model.load_state_dict(own);
    const NoGradGuard no_grad;
    const auto loss_of = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
      const std::vector<float> inputs(x.begin() + begin, x.begin() + end);
      const std::vector<std::int64_t> labels(c.labels.begin() + begin, c.labels.begin() + end);
      return cross_entropy(graph.model(from_data(inputs, {end - begin, 1})), from_data(labels, {end - begin}),
                           c.options)
          .item<double>();
    };
    const double expected = (4 * loss_of(0, 4) + 2 * loss_of(4, 6)) / 6;
    ASSERT_TRUE(std::isfinite(expected));
    EXPECT_NEAR(epoch.at("test_loss").get<double>(), expected, 2e-6 * std::abs(expected));
  }
}

/// Labels by position, some of them ignored, that become something else before the loss.
struct Positions : nn::Graph<Positions> {
  using Loss = Tensor (*)(const Tensor& scores, const Tensor& labels, const Tensor& weight);
  nn::Linear model = child("model", nn::Linear(1, 2));
  optim::SGD optimizer{model.parameters(), {.lr = 0.05}};
  Loss loss_of;
  explicit Positions(Loss given) : loss_of(given) { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = loss_of(model(x), y, model.weight);
    loss.backward();
    return loss;
  }
};

// However labels get to the loss, that of the last samples is theirs alone; or the samples are left out.
TEST(Evaluation, TheLossOfTheLastSamplesIsTheirsHoweverLabelsGetToIt) {
  constexpr std::int64_t kLength = 3, kSamples = 6, kRows = 4;
  std::vector<float> x;
  for (std::int64_t i = 0; i < kSamples * kLength; ++i) x.push_back(static_cast<float>(i * i % 7) / 7);
  const std::vector<std::int64_t> labels = {0, 1, -100, 1, 1, 0, -100, 0, 1, 0, 1, 1, -100, -100, 1, 1, 0, 0};
  const struct {
    const char* name;
    bool exact;
    Positions::Loss loss;
    bool accuracy = false;
  } cases[] = {
      {"flattened", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) { return cross_entropy(flatten(s, 0, 1), flatten(y)); },
       true},
      {"reshaped_and_cast", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         return cross_entropy(s.reshape({-1, 2}), y.reshape({-1}).to(i32).to(i64));
       },
       true},
      {"permuted", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         return cross_entropy(s.permute({1, 0, 2}).reshape({-1, 2}), y.permute({1, 0}).reshape({-1}));
       }},
      {"shifted", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         return cross_entropy(s.slice(1, 0, 2).reshape({-1, 2}), y.slice(1, 1).reshape({-1}));
       }},
      {"by_class", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) { return cross_entropy(s.permute({0, 2, 1}), y); }, true},
      {"several", true,
       [](const Tensor& s, const Tensor& y, const Tensor& weight) {
         return cross_entropy(s.select(1, 0), y.select(1, 0)) + 2 * cross_entropy(s.select(1, 2), y.select(1, 2)) +
                0.1 * weight.square().sum();
       }},
      {"of_samples", true,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         return cross_entropy(s.permute({0, 2, 1}), y, Reduction::none).sum(1).mean() + s.square().mean();
       }},
      {"masked", false,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         const Tensor counts = ne(y, -100).to(f32);
         return (cross_entropy(s.permute({0, 2, 1}), y, Reduction::none) * counts).sum() / counts.sum();
       }},
      {"beside_another", false,
       [](const Tensor& s, const Tensor& y, const Tensor&) {
         return cross_entropy(s.reshape({-1, 2}), y.reshape({-1})) + s.square().mean();
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    manual_seed(4);
    Positions graph(c.loss);
    graph.compile(spec({kRows, kLength, 1}, "x"), spec({kRows, kLength}, i64, "y"));
    Project project(graph, std::string("labels_") + c.name);
    const std::vector<std::int64_t> first(labels.begin(), labels.begin() + kRows * kLength);
    write(project.folder / "x.npy", runtime::DType::f32, {kRows, kLength, 1},
          std::vector<float>(x.begin(), x.begin() + kRows * kLength));
    write(project.folder / "y.npy", runtime::DType::i64, {kRows, kLength}, first);
    write(project.folder / "held_x.npy", runtime::DType::f32, {kSamples, kLength, 1}, x);
    write(project.folder / "held_y.npy", runtime::DType::i64, {kSamples, kLength}, labels);
    const nlohmann::json epoch = project.train(std::string("labels_") + c.name, "1");
    EXPECT_EQ(epoch.contains("accuracy"), c.accuracy);

    nn::StateDict own;
    for (auto& [name, value] : nn::load(project.weights("1")))
      if (name.starts_with("model.")) own.emplace_back(name.substr(std::string("model.").size()), value);
    graph.model.load_state_dict(own);
    const NoGradGuard no_grad;
    const Tensor all = from_data(x, {kSamples, kLength, 1}), targets = from_data(labels, {kSamples, kLength});
    const auto loss_of = [&](std::int64_t begin, std::int64_t end) {
      return c.loss(graph.model(all.slice(0, begin, end)), targets.slice(0, begin, end), graph.model.weight)
          .item<double>();
    };
    const double expected = c.exact ? (4 * loss_of(0, 4) + 2 * loss_of(4, 6)) / 6 : loss_of(0, 4);
    ASSERT_TRUE(std::isfinite(expected));
    EXPECT_NEAR(epoch.at("test_loss").get<double>(), expected, 2e-6 * std::abs(expected));
    const codegen::ProcessResult r =
        codegen::run_process({(project.folder / "build" / (std::string("labels_") + c.name)).string(), "--data",
                              "x.npy,y.npy", "--test-data", "held_x.npy,held_y.npy", "--epochs", "1", "--out", ""},
                             {.directory = project.folder.string(), .seconds = 100});
    EXPECT_EQ(r.output.find("the loss is neither a mean nor a sum over the samples") == std::string::npos, c.exact)
        << r.output;
  }
}

// A label outside of the classes is put into a batch only where every reader of the labels takes it.
TEST(Evaluation, OnlyLabelsThatTheLossAloneReadsMayBeIgnored) {
  const auto main_of = [](const auto& record, const ir::Shape& x_shape) {
    ir::Graph g;
    g.name = "Labelled";
    g.training = true;
    const ir::ValueId x = g.add_input("x", {ir::DType::f32, x_shape});
    const ir::ValueId y = g.add_input("y", {ir::DType::i64, ir::Shape{x_shape[0]}});
    const ir::ValueId w = g.add_parameter("w", {ir::DType::f32, {2, 3}}, true);
    const ir::ValueId loss = record(g, g.call("linear", {x, w}, {}, {}), y);
    g.outputs = {loss};
    g.losses = {{loss, ir::kNone}};
    g.optimizers.push_back({"sgd", {{{w}, {{"lr", 0.1}}}}, {}});
    return render_project(g, {.format = false}).at("main.cpp");
  };
  using ir::ValueId;
  const auto plain = [](ir::Graph& g, ValueId logits, ValueId y) {
    return g.call("cross_entropy", {logits, y}, {}, {});
  };
  const auto sum = [](ir::Graph& g, ValueId logits, ValueId y) {
    return g.call("cross_entropy", {logits, y}, {{"reduction", std::string("sum")}}, {});
  };
  const auto scaled = [](ir::Graph& g, ValueId logits, ValueId y) {
    const ValueId loss = g.call("cross_entropy", {logits, y}, {}, {});
    return g.call("mul", {loss, loss}, {}, {});
  };
  const auto more = [](ir::Graph& g, ValueId logits, ValueId y) {
    const ValueId loss = g.call("cross_entropy", {logits, y}, {}, {});
    return g.call("add", {loss, g.call("mean", {logits}, {{"dims", ir::Ints{0, 1}}}, {})}, {}, {});
  };
  const auto embedded = [](ir::Graph& g, ValueId logits, ValueId y) {
    const ValueId table = g.add_parameter("table", {ir::DType::f32, {2, 2}}, false);
    return g.call("cross_entropy", {g.call("add", {logits, g.call("embedding", {table, y}, {}, {})}, {}, {}), y}, {},
                  {});
  };
  const std::string labels = ".ignorable_labels = 1", is_sum = ".loss_is_sum = true";
  const ir::Shape fixed{4, 3}, any{ir::Dim("batch", 4), 3};
  EXPECT_NE(main_of(plain, fixed).find(labels), std::string::npos);
  EXPECT_EQ(main_of(plain, fixed).find(is_sum), std::string::npos);
  EXPECT_NE(main_of(sum, fixed).find(labels), std::string::npos);
  EXPECT_NE(main_of(sum, fixed).find(is_sum), std::string::npos);
  EXPECT_EQ(main_of(plain, any).find(labels), std::string::npos) << "it is never filled up";
  EXPECT_NE(main_of(scaled, fixed).find(labels), std::string::npos);
  EXPECT_EQ(main_of(more, fixed).find(labels), std::string::npos) << "the loss is more than the cross entropy";
  EXPECT_EQ(main_of(embedded, fixed).find(labels), std::string::npos) << "an index of -100 is an error";
}

// Constants stand in one file and one namespace with the training graph's: those of one name are one only where all of
// them is equal.
TEST(Evaluation, OnlyEqualConstantsOfOneNameAreShared) {
  const auto table = [](std::vector<float> elements, Shape shape) {
    ir::TensorData data{{ir::DType::f32, std::move(shape)}, {}};
    data.bytes.resize(elements.size() * sizeof(float));
    std::memcpy(data.bytes.data(), elements.data(), data.bytes.size());
    return std::make_shared<const ir::TensorData>(std::move(data));
  };
  const auto with_constant = [](std::shared_ptr<const ir::TensorData> data, const std::string& name, bool trains) {
    ir::Graph g;
    g.name = "Shares";
    const ir::ValueId x = g.add_input("x", {ir::DType::f32, {2, 2}}), constant = g.add_constant(name, std::move(data));
    const ir::ValueId weight = g.add_parameter("weight", {ir::DType::f32, {2, 2}}, true);
    const auto mul = [&](ir::ValueId a, ir::ValueId b) { return g.add_node(ir::get_op("mul"), {a, b}, {}, {})[0]; };
    const ir::ValueId loss =
        g.add_node(ir::get_op("sum"), {mul(mul(x, weight), constant)}, {{"dims", ir::Ints{0, 1}}}, {})[0];
    g.outputs = {loss};
    g.training = trains;
    if (trains) g.losses = {{loss, ir::kNone}};
    g.value(constant).name = name;
    return g;
  };
  const auto first = table({1, 2, 3, 4}, {2, 2});
  const struct {
    const char* what;
    std::shared_ptr<const ir::TensorData> data;
    const char* name;
    bool is_shared;
  } cases[] = {
      {"the same", table({1, 2, 3, 4}, {2, 2}), "scale", true},
      {"another number", table({1, 2, 3, 5}, {2, 2}), "scale", false},
      {"another sign of zero", table({1, 2, 3, -4}, {2, 2}), "scale", false},
      {"another shape", table({1, 2, 3, 4}, {1, 2, 2}), "scale", false},
      {"the beginning alone", table({1, 2}, {1, 2}), "scale", false},
      {"another name", table({1, 2, 3, 4}, {2, 2}), "other", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    ir::Graph lowered = with_constant(first, "scale", true);
    ir::run_passes(lowered, {});
    EmitOptions options;
    options.evaluation = std::make_shared<const ir::Graph>(with_constant(c.data, c.name, false));
    bool unknown = false;
    const auto evaluation = make_evaluation(lowered, lowered, options, unknown);
    ASSERT_TRUE(evaluation);
    ASSERT_EQ(evaluation->graph.constants.size(), 1U);
    const auto& [id, kept] = *evaluation->graph.constants.begin();
    EXPECT_EQ(kept->bytes, c.data->bytes) << "it computes with its own";
    const std::string& name = evaluation->graph.value(id).name;
    const bool found = std::any_of(lowered.constants.begin(), lowered.constants.end(),
                                   [&](const auto& entry) { return lowered.value(entry.first).name == name; });
    EXPECT_EQ(found, c.is_shared) << name;
    for (const ir::Value& value : lowered.values)
      EXPECT_TRUE(c.is_shared || value.name != name) << name << " is another value's name";
  }
}

TEST(Evaluation, ABatchNormOfOneValueASampleNeedsTwoSamples) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted/columns_train";
  const auto needs_two = [&](const Shape& shape) {
    Columns graph;
    graph.compile(spec(shape, "x"));
    emit(graph, folder, {.name = "columns_train", .format = false});
    std::ifstream in(folder / "main.cpp");
    std::ostringstream text;
    text << in.rdbuf();
    return text.str().find(".least_batch = 2") != std::string::npos;
  };
  EXPECT_TRUE(needs_two({Dim("batch", 8), 3}));
  EXPECT_FALSE(needs_two({Dim("batch", 8), 3, 2}));
  EXPECT_FALSE(needs_two({8, 3})) << "never another batch";
}

TEST(Evaluation, ItsGraphStandsBesideTheProjectsAndGivesTheSameBytes) {
  manual_seed(3);
  Classify graph;
  graph.compile(spec({kBatch, 2, 6, 6}, "images"), spec({kBatch}, i64, "labels"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted/residual_twice", dumps = folder / "dumps";
  fs::remove_all(folder);
  EmitOptions options{.name = "residual", .format = false};
  options.passes.dump_directory = dumps.string();
  emit(graph, folder / "project", options);
  EmitOptions recorded = recorded_options(ir::read_graph((folder / "project/graph.json").string()));
  recorded.format = false;
  recorded.execute = eager::reference_run;
  EXPECT_EQ(check(folder / "project", recorded), std::vector<std::string>());
  // What is left out of the training is left out of the evaluation.
  EmitOptions apart = options;
  apart.passes = {};
  const std::string together = render_project(graph.graph(), apart).at("evaluation.cpp");
  apart.passes.disabled = {"fuse_epilogues", "fuse_elementwise"};
  const std::string separate = render_project(graph.graph(), apart).at("evaluation.cpp");
  EXPECT_EQ(together.find("elementwise<relu>("), std::string::npos) << together;
  EXPECT_NE(separate.find("elementwise<relu>("), std::string::npos) << separate;
  // A dump from the middle of the passes says the same, with the evaluation beside it.
  fs::path dump;
  for (const auto& entry : fs::directory_iterator(dumps))
    if (entry.path().filename().string().ends_with("-simplify_algebra.json")) dump = entry.path();
  recorded.evaluation = read_evaluation(dump);
  ASSERT_TRUE(recorded.evaluation);
  const auto texts = render_project(ir::read_graph(dump.string()), recorded);
  std::ifstream in(folder / "project/evaluation.cpp");
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(texts.at("evaluation.cpp"), text.str());
  // Without it, the program says that it cannot evaluate, rather than evaluate another network.
  recorded.evaluation = nullptr;
  EmitReport report;
  const auto without = render_project(ir::read_graph(dump.string()), recorded, &report);
  EXPECT_EQ(without.count("evaluation.cpp"), 0u);
  EXPECT_NE(without.at("main.cpp").find(".has_evaluation = false"), std::string::npos);
  EXPECT_FALSE(report.notes.empty());
  // A file of another graph is refused.
  ir::Graph other = *read_evaluation(folder / "project/graph.json");
  other.value(other.inputs[0]).type.shape = {4, 2, 6, 6};
  recorded.evaluation = std::make_shared<ir::Graph>(other);
  EXPECT_THROW(render_project(ir::read_graph((folder / "project/graph.json").string()), recorded), UserError);
}

}  // namespace
}  // namespace graven::codegen
