#include "runtime_min/train.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "fixture.h"
#include "mock_model.h"
#include "runtime_min/checkpoint.h"
#include "runtime_min/json_reader.h"
#include "training.h"

namespace graven::runtime {
namespace {

namespace fs = std::filesystem;

TEST_F(Training, LearnsAndReports) {
  const Result r = train({"--epochs", "30", "--lr", "0.5", "--log", folder_ / "log.jsonl"});
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_NE(r.out.find("mock: 50 training samples, 21 held out, batch 8"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("images f32[6] from f32[6]"), std::string::npos) << r.out;
  const std::size_t last = r.out.find("epoch 30/30  loss 0.");
  ASSERT_NE(last, std::string::npos) << r.out;
  EXPECT_NE(r.out.find("  test loss 0.", last), std::string::npos);
  const std::size_t accuracy = r.out.find("  accuracy ", last);
  ASSERT_NE(accuracy, std::string::npos);
  EXPECT_GE(std::stod(r.out.substr(accuracy + 11)), 0.8) << r.out;

  // The log: one object a line, every step once, rates falling along the cosine.
  std::int64_t steps = 0, epochs = 0, checkpoints = 0;
  double rate = 1;
  std::istringstream log(read_file(folder_ / "log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    JsonReader json(line, "log");
    std::string key, event;
    json.begin_object();
    while (json.next_key(key)) {
      if (key == "event") {
        event = json.string();
      } else if (key == "lr" && event == "step") {
        const double lr = json.number();
        EXPECT_LE(lr, rate);
        rate = lr;
      } else if (key == "step" && event == "step") {
        EXPECT_EQ(json.integer(), ++steps);
      } else {
        json.skip();
      }
    }
    json.end();
    epochs += event == "epoch" ? 1 : 0;
    checkpoints += event == "checkpoint" ? 1 : 0;
  }
  EXPECT_EQ(steps, 30 * 7) << "48 samples in sixes of eight, and the last two";
  EXPECT_EQ(epochs, 30);
  EXPECT_EQ(checkpoints, 30);
  EXPECT_LE(list_checkpoints(folder_ / "out").size(), 4U) << "the last three and the best";
}

/// The number after "  loss " in the last line.
double last_loss(const std::string& out) {
  const std::size_t at = out.rfind("  loss ");
  return at == std::string::npos ? -1 : std::stod(out.substr(at + 7));
}

/// The values of a key in a log's events of a kind, as they are written.
std::vector<std::string> logged(const std::string& file, const std::string& event, const std::string& key) {
  std::vector<std::string> values;
  std::istringstream log(read_file(file));
  for (std::string line; std::getline(log, line);) {
    const std::string name = "\"" + key + "\":";
    const std::size_t at = line.find(name);
    if (line.find("\"event\":\"" + event + "\"") == std::string::npos || at == std::string::npos) continue;
    const std::size_t begin = at + name.size();
    const std::size_t end = line[begin] == '[' ? line.find(']', begin) + 1 : line.find_first_of(",}", begin);
    values.push_back(line.substr(begin, end - begin));
  }
  return values;
}

TEST_F(Training, LogsNamedResultsRatesAndTheNormOfGradients) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.shows_numbers = model.shows_gradients = true;
  model.description().accumulation_steps = 1;
  model.description().groups.push_back({.lr = 0.01});
  model.description().shown_results = {0, 2};
  const Result r = train({"--epochs", "2", "--accumulation-steps", "2", "--log", folder_ / "log"}, &model);
  ASSERT_EQ(r.status, 0) << r.error;
  // Of a step: whole numbers of its parts together, others as their mean, as the loss is.
  const std::vector<std::string> loss = logged(folder_ / "log", "step", "loss"),
                                 twice = logged(folder_ / "log", "step", "twice"),
                                 hits = logged(folder_ / "log", "step", "hits"),
                                 norm = logged(folder_ / "log", "step", "gradient_norm"),
                                 rates = logged(folder_ / "log", "step", "rates");
  ASSERT_EQ(loss.size(), 2u * 4);
  ASSERT_TRUE(twice.size() == 8 && hits.size() == 8 && norm.size() == 8 && rates.size() == 8);
  std::int64_t found = 0;
  for (std::size_t i = 0; i < loss.size(); ++i) {
    EXPECT_NEAR(std::stod(twice[i]), 2 * std::stod(loss[i]), 1e-6);
    EXPECT_GT(std::stod(norm[i]), 0);
    if (i < 4) found += std::stoll(hits[i]);
  }
  // What a step scales, its norm is without, but of gradients that are not scaled.
  for (const auto& [unscaled, factor] : {std::pair<const char*, double>{nullptr, 0.25}, {"model.weight", 0}}) {
    MockTrainable scaled({kFeatures}, kClasses, 8, true);
    scaled.shows_gradients = true;
    scaled.scale = 4;
    scaled.description().accumulation_steps = 1;
    if (unscaled != nullptr) scaled.description().unscaled_gradients = {unscaled, "model.bias"};
    const std::string log = folder_ / (unscaled != nullptr ? "unscaled" : "scaled");
    ASSERT_EQ(train({"--epochs", "2", "--accumulation-steps", "2", "--log", log, "--overwrite"}, &scaled).status, 0);
    const std::vector<std::string> found = logged(log, "step", "gradient_norm");
    ASSERT_EQ(found.size(), norm.size());
    for (std::size_t i = 0; i < norm.size(); ++i)
      EXPECT_DOUBLE_EQ(std::stod(found[i]), std::stod(norm[i]) * (factor == 0 ? 1 : factor));
  }
  EXPECT_EQ(rates[0], "[0.1,0.01]");
  // Of an epoch: a sum of all samples, and their mean; in its line what has a name.
  const std::vector<std::string> of_epochs = logged(folder_ / "log", "epoch", "hits"),
                                 means = logged(folder_ / "log", "epoch", "output_1"),
                                 losses = logged(folder_ / "log", "epoch", "loss");
  ASSERT_TRUE(of_epochs.size() == 2 && means.size() == 2);
  EXPECT_EQ(std::stoll(of_epochs[0]), found);
  EXPECT_NEAR(std::stod(means[1]), 2 * std::stod(losses[1]), 1e-6);
  char line[80];
  std::snprintf(line, sizeof line, "epoch 1/2  loss %.4f  hits %s  twice %.4f  test loss ", std::stod(losses[0]),
                of_epochs[0].c_str(), std::stod(means[0]));
  EXPECT_NE(r.out.find(line), std::string::npos) << r.out << line;

  // An epoch that was interrupted has the same line.
  MockTrainable again({kFeatures}, kClasses, 8, true);
  again.shows_numbers = true;
  again.description() = model.description();
  const std::vector<std::string> options = {"--accumulation-steps", "2", "--out", folder_ / "other"};
  const auto go_on = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return train(more, &again);
  };
  ASSERT_EQ(go_on({"--steps", "3"}).status, 0);
  MockTrainable third({kFeatures}, kClasses, 8, true);
  third.shows_numbers = true;
  third.description() = model.description();
  const Result resumed = train({"--epochs", "2", "--out", folder_ / "other", "--resume", folder_ / "other"}, &third);
  EXPECT_NE(resumed.out.find(line), std::string::npos) << resumed.out << resumed.error << line;
}

TEST_F(Training, ReducesRatesOnAPlateau) {
  // The losses of epochs: they stay where they are from the third on.
  const auto loss_of = [](std::int64_t epoch) { return epoch < 3 ? 1.0 / static_cast<double>(epoch + 1) : 0.3333; };
  const auto model_of = [&] {
    auto model = std::make_unique<MockTrainable>(Dims{kFeatures}, kClasses, 8, true);
    model->description().has_evaluation = false;
    model->description().groups = {{.lr = 0.1, .plateau = 0, .min_lr = 0.02},
                                   {.lr = 0.04, .plateau = 0},
                                   {.lr = 0.01, .schedule = {.kind = Schedule::Kind::step, .step_size = 1000}}};
    model->description().plateaus = {{.factor = 0.5, .patience = 1, .cooldown = 1}};
    model->loss_at = [&](std::int64_t step) { return loss_of((step - 1) / 7); };
    return model;
  };
  // As PyTorch's ReduceLROnPlateau on these numbers: 0.3333 is no improvement of 1 / 3 by a part of 1e-4, or a small
  // one.
  PlateauState state;
  const Plateau plateau = model_of()->description().plateaus[0];
  double first = 0.1, second = 0.04;
  std::vector<std::string> expected;
  for (std::int64_t epoch = 0; epoch < 12; ++epoch) {
    char text[64];
    std::snprintf(text, sizeof text, "[%g,%g,0.01]", first, second);
    expected.push_back(text);
    if (!plateau.sees(state, loss_of(epoch))) continue;
    first = std::max(first * 0.5, 0.02);
    second *= 0.5;
  }
  ASSERT_EQ(first, 0.02);
  const auto whole = model_of();
  const Result r = train({"--epochs", "12", "--log", folder_ / "log"}, whole.get());
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(logged(folder_ / "log", "epoch", "rates"), expected);
  EXPECT_NE(r.out.find("  learning rates reduced to 0.05 0.02 0.01\n"), std::string::npos) << r.out;

  // What it counts, and what it has reduced, is the checkpoint's.
  std::vector<std::string> in_parts;
  for (int epochs = 1; epochs <= 12; ++epochs) {
    const auto model = model_of();
    std::vector<std::string> words = {"--epochs", std::to_string(epochs),
                                      "--out",    folder_ / "parts",
                                      "--log",    folder_ / ("log" + std::to_string(epochs))};
    if (epochs > 1) words.insert(words.end(), {"--resume", folder_ / "parts"});
    ASSERT_EQ(train(words, model.get()).status, 0);
    const auto rates = logged(folder_ / ("log" + std::to_string(epochs)), "epoch", "rates");
    in_parts.insert(in_parts.end(), rates.begin(), rates.end());
  }
  EXPECT_EQ(in_parts, expected);
  EXPECT_EQ(read_file(list_checkpoints(folder_ / "parts")[0] + "/manifest.json"),
            read_file(list_checkpoints(folder_ / "out")[0] + "/manifest.json"));

  // Another --lr is the rate from there on.
  const Result other = train({"--epochs", "13", "--lr", "0.2", "--out", folder_ / "parts", "--resume",
                              folder_ / "parts", "--log", folder_ / "last"},
                             model_of().get());
  ASSERT_EQ(other.status, 0) << other.error;
  EXPECT_EQ(logged(folder_ / "last", "epoch", "rates"), std::vector<std::string>{"[0.2,0.08,0.02]"});

  // Of an accuracy more is better, and there must be one.
  const auto highest = model_of();
  highest->description().plateaus[0].max = true;
  const Result refused = train({"--epochs", "1", "--out", ""}, highest.get());
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.error.find("the learning rate follows the accuracy"), std::string::npos) << refused.error;
  highest->description().has_evaluation = true;
  highest->description().groups.resize(1);
  std::int64_t evaluations = 0;
  highest->evaluation = [&](std::int64_t n) {
    return Evaluation{
        .loss_sum = 1.0 / static_cast<double>(++evaluations), .samples = n, .correct = n / 2, .labels = n};
  };
  EXPECT_EQ(train({"--epochs", "5", "--out", "", "--log", folder_ / "high"}, highest.get()).status, 0);
  EXPECT_EQ(logged(folder_ / "high", "epoch", "lr"), (std::vector<std::string>{"0.1", "0.1", "0.1", "0.05", "0.05"}));
}

TEST_F(Training, ATableOfRatesHasThoseOfAllSteps) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  const Schedule table{.kind = Schedule::Kind::table, .factors = {1, 0.5, 0.25, 0.125}};
  const auto rates = [&](const char* log) { return logged(folder_ / log, "step", "lr"); };
  const std::vector<std::string> all = {"0.1", "0.05", "0.025", "0.0125"};
  model.description().groups = {{.lr = 0.1, .schedule = table}};
  model.description().accumulation_steps = 1;
  // An epoch has 50 samples, seven batches of eight.
  const struct {
    std::vector<std::string> options;
    const char* steps;  ///< that the error says; nullptr: there is none
  } cases[] = {
      {{"--epochs", "1"}, "7"},
      {{"--epochs", "3"}, "21"},
      {{"--epochs", "1", "--accumulation-steps", "2"}, nullptr},
      {{"--epochs", "2", "--accumulation-steps", "2"}, "8"},
      {{"--epochs", "2", "--accumulation-steps", "2", "--steps", "4"}, nullptr},
      {{"--epochs", "1", "--batch", "7"}, "8"},
      {{"--epochs", "1", "--batch", "7", "--drop-last"}, "7"},
      {{"--epochs", "9007199254740992"}, "63050394783186944"},
      {{"--steps", "4"}, nullptr},
      {{"--steps", "5"}, "5"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> options = c.options;
    options.insert(options.end(), {"--log", folder_ / "log", "--overwrite"});
    std::filesystem::remove(folder_ / "log");
    const Result r = train(options, &model);
    if (c.steps == nullptr) {
      EXPECT_EQ(r.status, 0) << r.error;
      EXPECT_EQ(rates("log"), all);
      continue;
    }
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.error, std::string("error: training: learning rates: expected factors of the ") + c.steps +
                           " steps that the run has (tabulated_steps of LambdaLR when the program was emitted; "
                           "--epochs and --steps), found those of 4\n");
    EXPECT_TRUE(rates("log").empty()) << "no step was made";
  }
  // What is left of a run that goes on.
  ASSERT_EQ(train({"--steps", "2", "--overwrite"}, &model).status, 0);
  EXPECT_NE(train({"--epochs", "1", "--resume"}, &model).error.find("of the 7 steps"), std::string::npos);
  EXPECT_EQ(train({"--steps", "4", "--resume"}, &model).status, 0);
  // Nobody knows where --patience ends a run, so it stops where the table does.
  const Result r = train({"--epochs", "1", "--patience", "1", "--log", folder_ / "patient", "--overwrite"}, &model);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("step 5: expected at most 4 steps, for which the program has the factors"), std::string::npos)
      << r.error;
  EXPECT_EQ(rates("patient"), all);
  // Within a sequence, too.
  model.description().groups[0].schedule = {
      .kind = Schedule::Kind::sequential, .milestones = {2}, .parts = {Schedule{}, table}};
  EXPECT_NE(train({"--epochs", "1", "--overwrite"}, &model).error.find("found those of 6"), std::string::npos);
  EXPECT_EQ(train({"--steps", "6", "--overwrite"}, &model).status, 0);
  model.description().groups[0].schedule = {
      .kind = Schedule::Kind::sequential, .milestones = {5}, .parts = {table, Schedule{}}};
  EXPECT_NE(train({"--epochs", "1", "--overwrite"}, &model).error.find("found those of 4"), std::string::npos);
  model.description().groups[0].schedule.milestones = {4};
  EXPECT_EQ(train({"--epochs", "2", "--overwrite"}, &model).status, 0);
}

TEST_F(Training, ReportsTheEndOfARunThatStopsWithinAnEpoch) {
  const std::string out = folder_ / "out";
  const auto last_line = [](const std::string& text) {
    return text.substr(text.find_last_of('\n', text.size() - 2) + 1);
  };
  // Seven steps an epoch: six of eight samples, and the last two.
  const Result r = train({"--steps", "10", "--log", folder_ / "log.jsonl"});
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_NE(r.out.find("epoch 2, step 10  loss "), std::string::npos) << r.out;
  EXPECT_NE(last_line(r.out).find("  saved " + list_checkpoints(out).at(0) + "\n"), std::string::npos) << r.out;
  // The mean of the second epoch's three steps, as the log has them.
  double sum = 0;
  std::istringstream log(read_file(folder_ / "log.jsonl"));
  for (std::string line; std::getline(log, line);)
    for (const char* step : {"8", "9", "10"})
      if (line.find(std::string("\"event\":\"step\",\"step\":") + step + ",") != std::string::npos)
        sum += std::stod(line.substr(line.find("\"loss\":") + 7));
  EXPECT_GT(sum, 0) << read_file(folder_ / "log.jsonl");
  EXPECT_NEAR(last_loss(r.out), sum / 3, 1e-4);

  // As does a run that goes on, and one that saves nothing.
  const Result more = train({"--resume", "--epochs", "3", "--steps", "12"});
  EXPECT_NE(last_line(more.out).find("epoch 2/3, step 12  loss "), std::string::npos) << more.out;
  EXPECT_NE(last_line(more.out).find("  saved " + list_checkpoints(out).at(0) + "\n"), std::string::npos) << more.out;
  const Result unsaved = train({"--out", "", "--steps", "2"});
  EXPECT_NE(last_line(unsaved.out).find("epoch 1, step 2  loss "), std::string::npos) << unsaved.out;
  EXPECT_NE(last_line(unsaved.out).find("  not saved: --out is empty\n"), std::string::npos) << unsaved.out;
  // The last step of an epoch has the epoch's line, once.
  const Result whole = train({"--out", "", "--steps", "7"});
  EXPECT_NE(last_line(whole.out).find("epoch 1  loss "), std::string::npos) << whole.out;
  EXPECT_EQ(whole.out.find("step 7"), std::string::npos) << whole.out;
}

TEST_F(Training, IsDeterministic) {
  EXPECT_EQ(train({"--out", folder_ / "a"}).status, 0);
  EXPECT_EQ(train({"--out", folder_ / "b"}).status, 0);
  EXPECT_EQ(bytes_of(folder_ / "a/latest"), bytes_of(folder_ / "b/latest"));
  EXPECT_EQ(train({"--out", folder_ / "c", "--seed", "1"}).status, 0);
  EXPECT_NE(bytes_of(folder_ / "a/latest"), bytes_of(folder_ / "c/latest"));
}

TEST_F(Training, StoppedAndResumedIsTheSameRun) {
  const Result whole = train({"--out", folder_ / "whole", "--lr", "0.3", "--seed", "9"});
  EXPECT_EQ(whole.status, 0);
  const std::string expected = bytes_of(folder_ / "whole/latest");
  for (const char* first : {"1", "6", "7", "8", "14", "20"}) {
    SCOPED_TRACE(std::string("stopped after step ") + first);
    const std::string out = folder_ / (std::string("cut") + first);
    EXPECT_EQ(train({"--out", out, "--lr", "0.3", "--seed", "9", "--steps", first}).status, 0);
    const Result r = train({"--out", out, "--resume"});  // seed and rate are the checkpoint's
    EXPECT_EQ(r.status, 0) << r.error;
    EXPECT_NE(r.out.find(std::string("step ") + first), std::string::npos) << r.out;
    EXPECT_EQ(bytes_of(out + "/latest"), expected);
    // "epoch 3/3  loss 0.9" and so on, but for the time that it took.
    const auto last_epoch = [](const std::string& text) {
      return text.substr(text.find("epoch 3/3"), text.rfind("  ") - text.find("epoch 3/3"));
    };
    EXPECT_EQ(last_epoch(r.out), last_epoch(whole.out)) << "the mean over all of the epoch's steps";
  }
}

/// The rate of each step, from a log.
std::vector<double> rates_of(const std::string& path) {
  std::vector<double> rates;
  std::istringstream log(read_file(path));
  for (std::string line; std::getline(log, line);) {
    JsonReader json(line, "log");
    std::string key, event;
    json.begin_object();
    while (json.next_key(key)) {
      if (key == "event")
        event = json.string();
      else if (key == "lr" && event == "step")
        rates.push_back(json.number());
      else
        json.skip();
    }
  }
  return rates;
}

TEST_F(Training, SetsTheLengthOfOneCyclesAndSequences) {
  const struct {
    const char* name;
    Schedule schedule;
    std::vector<std::string> words;
    std::vector<double> rates;
  } cases[] = {
      {"one cycle",
       {.kind = Schedule::Kind::one_cycle,
        .div_factor = 10,
        .final_div_factor = 4,
        .pct_start = 0.5,
        .total_steps = 1000,
        .anneal_linear = true},
       {"--lr", "0.125", "--total-steps", "8"},
       {0.125, 0.5, 0.875, 1.25, 0.9453125, 0.640625, 0.3359375, 0.03125, 0.03125, 0.03125}},
      {"sequence",
       {.kind = Schedule::Kind::sequential,
        .milestones = {3},
        .parts = {{.kind = Schedule::Kind::linear, .start_factor = 0.25, .total_iters = 3},
                  {.kind = Schedule::Kind::polynomial, .total_iters = 900}}},
       {"--lr", "0.5", "--total-steps", "7"},
       {0.125, 0.25, 0.375, 0.5, 0.375, 0.25, 0.125, 0, 0, 0}},
      {"sequence, warmed up",
       {.kind = Schedule::Kind::sequential,
        .milestones = {5},
        .parts = {{}, {.kind = Schedule::Kind::step, .step_size = 1000}}},
       {"--lr", "0.75", "--warmup", "2"},
       {0.25, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto run = [&](const std::string& out, std::vector<std::string> words) {
      MockTrainable model({kFeatures}, kClasses, 8, true);
      model.description().groups = {{.lr = 0.1, .schedule = c.schedule}};
      words.insert(words.end(), {"--out", folder_ / out, "--log", folder_ / (out + ".jsonl"), "--steps"});
      words.push_back(words[0] == "--resume" || out.find("whole") == 0 ? "10" : "4");
      const Result r = train(words, &model);
      EXPECT_EQ(r.status, 0) << r.error;
    };
    const std::string whole = std::string("whole ") + c.name, cut = std::string("cut ") + c.name;
    run(whole, c.words);
    run(cut, c.words);
    run(cut, {"--resume"});
    const std::vector<double> rates = rates_of(folder_ / (whole + ".jsonl"));
    ASSERT_EQ(rates.size(), c.rates.size());
    for (std::size_t t = 0; t < rates.size(); ++t) EXPECT_NEAR(rates[t], c.rates[t], 1e-15) << t;
    EXPECT_EQ(rates_of(folder_ / (cut + ".jsonl")), rates);
    EXPECT_EQ(bytes_of(folder_ / (cut + "/latest")), bytes_of(folder_ / (whole + "/latest")));
  }

  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().groups = {{.lr = 0.1, .schedule = cases[1].schedule}};
  EXPECT_EQ(
      train({"--total-steps", "3"}, &model).error,
      "error: --total-steps: expected more than the 3 steps before the learning-rate schedule's last part, found 3\n");
  model.description().groups = {{.lr = 0.1, .schedule = cases[2].schedule}};
  EXPECT_EQ(train({"--total-steps", "9"}, &model).error,
            "error: --total-steps: the model's learning-rate schedule has no length to set\n");
}

/// Runs the trainer in a child process, kills it once `ready` says so, and returns how it ended.
int run_and_kill(const std::function<int()>& run, const std::function<bool()>& ready, int signal) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  for (int i = 0; i < 6000 && !ready(); ++i) ::usleep(10'000);
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(Training, KilledAtAnyMomentAndResumedIsTheSameRun) {
  EXPECT_EQ(train({"--out", folder_ / "whole", "--epochs", "12"}).status, 0);
  const std::string expected = bytes_of(folder_ / "whole/latest");
  const std::string out = folder_ / "killed";
  int kills = 0, finished = 0;
  for (int round = 0; round < 15 && finished == 0; ++round) {
    // With nothing saved yet there is nothing to resume from: start anew.
    const bool resume = !list_checkpoints(out).empty();
    const auto run = [&] {
      return train({"--out", out, "--epochs", "12", "--checkpoint-every", "5", resume ? "--resume" : "--overwrite"})
          .status;
    };
    const auto wait = [&] { return ::usleep(static_cast<useconds_t>(5000 + 4000 * round)) == 0; };
    const int status = run_and_kill(run, wait, SIGKILL);
    if (WIFSIGNALED(status)) {
      ++kills;
    } else {
      ASSERT_EQ(status, 0);
      ++finished;
    }
  }
  EXPECT_GT(kills, 0);
  const char* go_on = list_checkpoints(out).empty() ? "--overwrite" : "--resume";
  EXPECT_EQ(train({"--out", out, "--epochs", "12", go_on}).status, 0);
  EXPECT_EQ(read_file(out + "/latest/weights.safetensors"), read_file(folder_ / "whole/latest/weights.safetensors"));
  EXPECT_EQ(bytes_of(out + "/latest"), expected);
}

TEST_F(Training, ASignalSavesAndStops) {
  const std::string out = folder_ / "out";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    const std::string log = folder_ / ("log" + std::to_string(signal));
    const auto run = [&] {
      ::signal(signal, SIG_DFL);  // in the background it may be ignored
      return train({"--out", out, "--epochs", "1000000", "--overwrite", "--save-every", "1000000", "--log", log})
          .status;
    };
    const int status = run_and_kill(run, [&] { return has_stepped(log); }, signal);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    const std::vector<std::string> checkpoints = list_checkpoints(out);
    ASSERT_FALSE(checkpoints.empty());
    EXPECT_TRUE(is_whole_checkpoint(checkpoints[0]));
    const Result r = train({"--out", out, "--resume", "--steps", std::to_string(step_of(checkpoints[0]) + 1)});
    EXPECT_EQ(r.status, 0) << r.error;
  }
  // A new run may begin with the weights of the one that it replaces.
  const Result r =
      train({"--out", out, "--overwrite", "--weights", out + "/latest/weights.safetensors", "--steps", "1"});
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(list_checkpoints(out).size(), 1);
}

TEST_F(Training, WhoeverReadsTheOutputMayGo) {
  const std::string out = folder_ / "out";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Both streams: the first line that meets nobody stops the run, and those that follow must not end it before it has
    // saved.
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(ends[1], stream);
    for (const int end : ends) ::close(end);
    std::vector<std::string> words = {"mock",
                                      "--weights",
                                      folder_ / "initial.safetensors",
                                      "--data",
                                      folder_ / "data",
                                      "--out",
                                      out,
                                      "--epochs",
                                      "1000000",
                                      "--save-every",
                                      "1000000"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    MockTrainable model({kFeatures}, kClasses, 8, true);
    ::_exit(train_main(static_cast<int>(argv.size()), argv.data(), model, {}));
  }
  ::close(ends[1]);
  char some[100];
  EXPECT_GT(::read(ends[0], some, sizeof some), 0);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  // Gone before the loop began to look out for it, the reader simply ends the program.
  if (WIFSIGNALED(status)) GTEST_SKIP() << "the reader was gone before the first step";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGPIPE);
  ASSERT_FALSE(list_checkpoints(out).empty());
  EXPECT_TRUE(is_whole_checkpoint(list_checkpoints(out)[0]));
}

TEST_F(Training, SignalsThatAreIgnoredStayIgnored) {
  const auto run = [&] {
    ::signal(SIGHUP, SIG_IGN);
    return train({"--epochs", "2000", "--save-every", "2000", "--log", folder_ / "log"}).status;
  };
  const int status = run_and_kill(run, [&] { return has_stepped(folder_ / "log"); }, SIGHUP);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "as under nohup";
}

TEST_F(Training, StopsOnNaN) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.nan_at_step = 12;
  const Result r = train({"--checkpoint-every", "5"}, &model);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("training: step 12: expected a finite loss, found NaN; the last checkpoint is "),
            std::string::npos)
      << r.error;
  EXPECT_NE(r.error.find("step-00000010"), std::string::npos) << r.error;
  EXPECT_EQ(step_of(list_checkpoints(folder_ / "out")[0]), 10);
}

TEST_F(Training, AFixedBatchLeavesOutTheRest) {
  MockTrainable model({kFeatures}, kClasses, 8, false);
  const Result r = train({"--epochs", "1", "--out", folder_ / "fixed"}, &model);
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(step_of(list_checkpoints(folder_ / "fixed")[0]), 6) << "48 of 50 samples";
  MockTrainable any({kFeatures}, kClasses, 8, true);
  EXPECT_EQ(train({"--epochs", "1", "--drop-last", "--out", folder_ / "any"}, &any).status, 0);
  const auto test_loss = [](const Result& result) { return result.out.substr(result.out.find("test loss"), 16); };
  EXPECT_EQ(read_file(folder_ / "fixed/latest/weights.safetensors").size(),
            read_file(folder_ / "any/latest/weights.safetensors").size());
  const Result again = train({"--epochs", "1", "--drop-last", "--out", folder_ / "any2"});
  EXPECT_EQ(test_loss(again), test_loss(r)) << "21 test samples count once each, whatever fills the batch";
  MockTrainable large({kFeatures}, kClasses, 64, false);
  EXPECT_NE(train({"--out", folder_ / "large"}, &large).error.find("at least one batch of 64 samples, found 50"),
            std::string::npos);
  EXPECT_EQ(train({"--no-drop-last"}, &model).status, 2);
}

/// The numbers of the log's epochs under that key.
std::vector<double> numbers_of_epochs(const std::string& log, const std::string& key) {
  std::vector<double> numbers;
  std::istringstream lines(read_file(log));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("\"" + key + "\":");
    if (line.find("\"event\":\"epoch\"") == std::string::npos || at == std::string::npos) continue;
    numbers.push_back(std::stod(line.substr(at + key.size() + 3)));
  }
  return numbers;
}

// The mean over samples, not over steps: the last step of an epoch has two samples where the others have eight.
TEST_F(Training, AnEpochsLossIsTheMeanOverItsSamples) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.loss_at = [](std::int64_t step) { return step % 7 == 0 ? 64.0 : static_cast<double>(step); };
  EXPECT_EQ(train({"--epochs", "2", "--log", folder_ / "log"}, &model).status, 0);
  const auto mean = [](double of_whole_batches) { return (8 * of_whole_batches + 2 * 64) / 50; };
  EXPECT_EQ(numbers_of_epochs(folder_ / "log", "loss"),
            (std::vector<double>{mean(1 + 2 + 3 + 4 + 5 + 6), mean(8 + 9 + 10 + 11 + 12 + 13)}));
  EXPECT_EQ(
      train({"--epochs", "1", "--drop-last", "--out", folder_ / "dropped", "--log", folder_ / "dropped.log"}, &model)
          .status,
      0);
  EXPECT_EQ(numbers_of_epochs(folder_ / "dropped.log", "loss"), std::vector<double>{(1 + 2 + 3 + 4 + 5 + 6) / 6.0})
      << "48 samples";
  // Resumed within the epoch, of which each sample still counts once.
  EXPECT_EQ(train({"--epochs", "1", "--steps", "3", "--out", folder_ / "part"}, &model).status, 0);
  EXPECT_EQ(
      train({"--resume", "--epochs", "1", "--out", folder_ / "part", "--log", folder_ / "part.log"}, &model).status, 0);
  EXPECT_EQ(numbers_of_epochs(folder_ / "part.log", "loss"), std::vector<double>{mean(1 + 2 + 3 + 4 + 5 + 6)});
}

// A held-out set of any size, the batch fixed or not: each sample counts once. Nothing is learnt in epoch 1 before the
// evaluation that another batch would change, for the rate is 0.
TEST_F(Training, HeldOutSamplesCountOnceWhateverFillsTheBatch) {
  for (const std::int64_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17}) {
    SCOPED_TRACE(n);
    std::string images, labels;
    double expected = 0;
    int right = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (int f = 0; f < kFeatures; ++f) {
        const auto x = static_cast<float>((i * 7 + f * 3) % 11) - 5;
        images.append(reinterpret_cast<const char*>(&x), sizeof x);
      }
      labels += static_cast<char>(i % kClasses);
      // Weights of zeros and the biases below.
      const double scores[] = {0, 1, 2};
      expected += std::log(1 + std::exp(1.0) + std::exp(2.0)) - scores[i % kClasses];
      right += i % kClasses == 2 ? 1 : 0;
    }
    write_npy("few/images.npy", "<f4", {n, kFeatures}, images);
    write_npy("few/labels.npy", "|u1", {n}, labels);
    SoftmaxRegression biased{kFeatures, kClasses};
    biased.bias = {0, 1, 2};
    save_variables(folder_ / "biased.safetensors", biased.variables());
    for (const bool symbolic : {false, true}) {
      MockTrainable model({kFeatures}, kClasses, 8, symbolic);
      const std::string log = folder_ / (std::to_string(n) + (symbolic ? "any" : "fixed"));
      const Result r = train({"--epochs", "1", "--lr", "0", "--weights", folder_ / "biased.safetensors", "--test-data",
                              folder_ / "few", "--log", log, "--out", log + ".out"},
                             &model);
      ASSERT_EQ(r.status, 0) << r.error;
      ASSERT_EQ(numbers_of_epochs(log, "test_loss").size(), 1U);
      EXPECT_NEAR(numbers_of_epochs(log, "test_loss")[0], expected / static_cast<double>(n), 1e-12);
      EXPECT_EQ(numbers_of_epochs(log, "accuracy"), std::vector<double>{right / static_cast<double>(n)});
    }
  }
}

TEST_F(Training, RefusesMistakes) {
  EXPECT_EQ(train({"--epochs", "1"}).status, 0);
  const struct {
    std::vector<std::string> words;
    int status;
    std::string error;
  } cases[] = {
      {{"--epochs", "1"}, 1, "holds the checkpoints of another run"},
      {{"--batch", "9"}, 2, "--batch: expected a whole number from 1 to 8"},
      {{"--batch", "0"}, 2, "--batch"},
      {{"--lr", "-1"}, 2, "--lr"},
      {{"--lr", "nan"}, 2, "--lr"},
      {{"--bogus"}, 2, "unknown option"},
      {{"--data", folder_ / "nothing"}, 1, "nothing: cannot open: No such file or directory"},
      {{"--data", folder_ / "nothing,nor this"}, 1, "cannot open"},
      {{"--resume", "--out", folder_ / "void"}, 1, "a checkpoint to resume from"},
      {{"--resume", "--out", ""}, 2, "--resume"},
      {{"--bench", "2", "--weights", "nope.safetensors"},
       1,
       "--weights: expected \"nope.safetensors\" beside the program"},
      {{"--resume="}, 2, "--resume: expected the path of a checkpoint"},
      {{"--resume", "", "--overwrite"}, 2, "--resume: expected the path of a checkpoint"},
      // What a wrong command line would overwrite is still there afterwards.
      {{"--overwrite", "--weights", folder_ / "none.safetensors"}, 1, "--weights"},
      {{"--overwrite", "--weights", folder_ / "data/train/labels.npy"}, 1, "labels.npy: header"},
      {{"--out", folder_ / "new", "--weights", folder_ / "none.safetensors"}, 1, "--weights"},
      {{"--out", folder_ / "initial.safetensors"}, 1, "expected a folder, found a file"},
      {{"--out", folder_ / "new", "--weights", folder_ / "data/train/labels.npy"}, 1, "labels.npy: header"},
      {{"--log", folder_ / "no/folder/log"}, 1, "cannot open for appending"},
      {{"--log", "/dev/full", "--out", folder_ / "full"}, 1, "/dev/full: cannot write: No space left"},
      {{"--mean", "0.5", "--out", folder_ / "new"}, 2, "--mean and --std: expected 8-bit images to scale"},
      {{"--data", ""}, 2, "--data: expected a path, found nothing"},
      {{"--data-format", "foo"},
       2,
       "--data-format: expected auto, idx, cifar10, cifar100, npy, npz, safetensors, raw, text or tokens, found "
       "\"foo\""},
  };
  for (const auto& c : cases) {
    const Result r = train(c.words);
    EXPECT_EQ(r.status, c.status) << c.error;
    EXPECT_NE(r.error.find(c.error), std::string::npos) << r.error;
  }

  ASSERT_EQ(list_checkpoints(folder_ / "out").size(), 1);
  EXPECT_TRUE(is_whole_checkpoint(folder_ / "out/latest"));

  MockTrainable other({kFeatures}, kClasses, 8, true);
  other.description().computation = "another";
  EXPECT_NE(train({"--resume"}, &other).error.find("or of another model: a layer, the loss, "), std::string::npos);

  EXPECT_EQ(train({"--resume", "--epochs", "2"}).status, 0);
  const Result back = train({"--resume", folder_ / "out/step-00000007", "--epochs", "3"});
  EXPECT_EQ(back.status, 2);
  EXPECT_NE(back.error.find("holds a checkpoint of step 14"), std::string::npos) << back.error;
  const Result branch =
      train({"--resume", folder_ / "out/step-00000007", "--epochs", "3", "--out", folder_ / "branch"});
  EXPECT_EQ(branch.status, 0) << branch.error;

  write_npy("data/train/images.npy", "<f4", {2, kFeatures}, std::string(2 * kFeatures * 4, '\0'));
  write_npy("data/train/labels.npy", "|u1", {2}, std::string("\x01\x03", 2));
  EXPECT_NE(train({"--overwrite"}).error.find("sample 1 of \"labels\": expected a number from 0 to 2, found 3"),
            std::string::npos);
  write_npy("data/train/labels.npy", "|u1", {2}, std::string("\x01\x02", 2));
  EXPECT_NE(train({"--resume"}).error.find("a training set of 50 samples"), std::string::npos);
}

TEST_F(Training, SavesAndPrintsAsOftenAsAsked) {
  const Result r =
      train({"--epochs", "7", "--save-every", "3", "--print-every", "4", "--eval-every", "0", "--keep", "0"});
  EXPECT_EQ(r.status, 0) << r.error;
  std::vector<std::int64_t> steps;
  for (const std::string& path : list_checkpoints(folder_ / "out")) steps.push_back(step_of(path));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{49, 42, 21})) << "epochs 3, 6 and the last";
  EXPECT_EQ(r.out.find("epoch 3/7"), std::string::npos);
  EXPECT_NE(r.out.find("epoch 4/7"), std::string::npos);
  EXPECT_NE(r.out.find("epoch 7/7"), std::string::npos);
  EXPECT_EQ(r.out.find("test loss"), std::string::npos);
  EXPECT_EQ(train({"--epochs", "2", "--save-every", "0", "--overwrite"}).status, 0);
  EXPECT_EQ(list_checkpoints(folder_ / "out").size(), 1U);
}

TEST_F(Training, StopsEarlyWhenTheHeldOutLossFallsNoMore) {
  // The rate is so high that the loss does not go on falling.
  const Result long_run = train({"--epochs", "30", "--lr", "30", "--patience", "3", "--save-every", "30"});
  EXPECT_EQ(long_run.status, 0) << long_run.error;
  const auto text = long_run.out.find("stopped early: the held-out loss has not fallen below");
  ASSERT_NE(text, std::string::npos) << long_run.out;
  EXPECT_NE(long_run.out.find("for 3 epochs", text), std::string::npos) << long_run.out;
  // The losses that were printed say the same: the least stands three epochs before the last.
  std::vector<double> losses;
  std::istringstream lines(long_run.out);
  for (std::string line; std::getline(lines, line);)
    if (const auto at = line.find("test loss "); at != std::string::npos)
      losses.push_back(std::stod(line.substr(at + 10)));
  ASSERT_GT(losses.size(), 3U);
  ASSERT_LT(losses.size(), 30U);
  EXPECT_EQ(std::min_element(losses.begin(), losses.end()) - losses.begin() + 4,
            static_cast<std::ptrdiff_t>(losses.size()));
  EXPECT_EQ(step_of(list_checkpoints(folder_ / "out").at(0)), static_cast<std::int64_t>(losses.size()) * 7);
  // A run that is stopped before and goes on stops at the same epoch, with the same bytes.
  const std::string before = std::to_string(losses.size() - 1);
  EXPECT_EQ(train({"--epochs", before, "--lr", "30", "--patience", "3", "--out", folder_ / "parts"}).status, 0);
  const Result rest = train({"--epochs", "30", "--patience", "3", "--out", folder_ / "parts", "--resume"});
  EXPECT_NE(rest.out.find("stopped early"), std::string::npos) << rest.out;
  EXPECT_EQ(read_file(folder_ / "parts/latest/weights.safetensors"),
            read_file(folder_ / "out/latest/weights.safetensors"));
  EXPECT_NE(train({"--epochs", "30", "--patience", "3", "--out", folder_ / "parts", "--resume"})
                .out.find("nothing left to do"),
            std::string::npos);
}

TEST_F(Training, WithoutPatienceOrWhileTheLossFallsItGoesOn) {
  EXPECT_EQ(train({"--epochs", "30", "--lr", "30", "--out", ""}).out.find("stopped early"), std::string::npos);
  const Result falls = train({"--epochs", "5", "--lr", "0.05", "--patience", "1", "--out", ""});
  EXPECT_EQ(falls.out.find("stopped early"), std::string::npos) << falls.out;
  const Result asks_much = train({"--epochs", "5", "--lr", "0.05", "--patience", "2", "--min-delta", "5", "--out", ""});
  EXPECT_NE(asks_much.out.find("stopped early"), std::string::npos) << asks_much.out;
  EXPECT_NE(asks_much.out.find("epoch 3/5"), std::string::npos);
  EXPECT_EQ(asks_much.out.find("epoch 4/5"), std::string::npos);
  const Result never = train({"--patience", "2", "--eval-every", "0", "--out", ""});
  EXPECT_EQ(never.status, 2);
  EXPECT_NE(never.error.find("--patience"), std::string::npos) << never.error;
}

TEST_F(Training, GoesOnInACopiedFolderAndWithAUsersFilesInIt) {
  EXPECT_EQ(train({"--epochs", "2", "--out", folder_ / "whole"}).status, 0);
  EXPECT_EQ(train({"--epochs", "1"}).status, 0);
  fs::rename(folder_ / "out", folder_ / "moved");
  ASSERT_EQ(std::system(("cp -RL '" + (folder_ / "moved") + "' '" + (folder_ / "out") + "'").c_str()), 0);
  write_file(folder_ / "out/step-00000007/figures/loss.txt", "a plot");
  const Result r = train({"--epochs", "2", "--resume", "--keep", "1"});
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(bytes_of(folder_ / "out/latest"), bytes_of(folder_ / "whole/latest"));
  EXPECT_EQ(fs::read_symlink(folder_ / "out/latest"), "step-00000014");
  EXPECT_EQ(read_file(folder_ / "out/step-00000007/figures/loss.txt"), "a plot");
}

TEST_F(Training, ABatchNormsLastBatchIsNotOfOneSample) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().least_batch = 2;
  const Result r = train({"--batch", "7", "--epochs", "1"}, &model);  // 50 samples
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.error.find("--batch: expected another one, or --drop-last"), std::string::npos) << r.error;
  EXPECT_EQ(train({"--batch", "7", "--epochs", "1", "--drop-last"}, &model).status, 0);
  EXPECT_EQ(train({"--batch", "6", "--epochs", "1", "--overwrite"}, &model).status, 0);
  EXPECT_NE(train({"--batch", "1"}, &model).error.find("--batch: expected a whole number from 2 to 8"),
            std::string::npos);
}

TEST_F(Training, OverridesAreTold) {
  EXPECT_EQ(train({"--epochs", "1"}).status, 0);
  const Result r = train({"--resume", "--epochs", "2", "--lr", "0.2", "--seed", "0"});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.error.find("--lr is not the checkpoint's"), std::string::npos) << r.error;
  EXPECT_EQ(r.error.find("--seed"), std::string::npos) << "the same value is no override";
  const Result done = train({"--resume", "--epochs", "2"});
  EXPECT_NE(done.out.find("nothing left to do"), std::string::npos) << done.out;

  // Each option by itself: what is said is taken, what is unsaid is the checkpoint's.
  const auto options_of = [](const TrainingState& s) {
    std::ostringstream text;
    text << "seed " << s.seed << " batch " << s.batch << " shuffle " << s.shuffle << " drop-last " << s.drop_last
         << " lr " << s.lr << " warmup " << s.warmup << " total-steps " << s.total_steps;
    return text.str();
  };
  const struct {
    std::vector<std::string> words;
    const char* expected;
  } cases[] = {
      {{}, "seed 4 batch 7 shuffle 0 drop-last 1 lr 0.2 warmup 3 total-steps 40"},
      {{"--seed", "0"}, "seed 0 batch 7 shuffle 0 drop-last 1 lr 0.2 warmup 3 total-steps 40"},
      {{"--batch", "8"}, "seed 4 batch 8 shuffle 0 drop-last 1 lr 0.2 warmup 3 total-steps 40"},
      {{"--shuffle"}, "seed 4 batch 7 shuffle 1 drop-last 1 lr 0.2 warmup 3 total-steps 40"},
      {{"--no-drop-last"}, "seed 4 batch 7 shuffle 0 drop-last 0 lr 0.2 warmup 3 total-steps 40"},
      {{"--lr", "0.1"}, "seed 4 batch 7 shuffle 0 drop-last 1 lr 0.1 warmup 3 total-steps 40"},
      {{"--warmup", "0"}, "seed 4 batch 7 shuffle 0 drop-last 1 lr 0.2 warmup 0 total-steps 40"},
      {{"--total-steps", "50"}, "seed 4 batch 7 shuffle 0 drop-last 1 lr 0.2 warmup 3 total-steps 50"},
  };
  const std::string first = folder_ / "first";
  EXPECT_EQ(train({"--out", first, "--epochs", "1", "--seed", "4", "--batch", "7", "--no-shuffle", "--drop-last",
                   "--lr", "0.2", "--warmup", "3", "--total-steps", "40"})
                .status,
            0);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.expected);
    const std::string out = folder_ / ("with" + (c.words.empty() ? "" : c.words[0]));
    std::vector<std::string> words = {"--resume", first, "--out", out, "--epochs", "2"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Result goes_on = train(words);
    EXPECT_EQ(goes_on.status, 0) << goes_on.error;
    EXPECT_EQ(options_of(state_of(out + "/latest")), c.expected);
    if (c.words.empty()) {
      EXPECT_EQ(goes_on.error, "");
    } else {
      EXPECT_NE(goes_on.error.find(" is not the checkpoint's: the run will not be the one that was stopped"),
                std::string::npos)
          << goes_on.error;
    }
  }

  // A model that takes smaller batches than the checkpoint has.
  MockTrainable smaller({kFeatures}, kClasses, 4, true);
  EXPECT_NE(train({"--resume", first, "--out", folder_ / "smaller"}, &smaller)
                .error.find("batch: expected 1 to 4 samples, found 7"),
            std::string::npos);
}

/// The first features of the samples of each epoch of `steps` steps.
std::vector<std::vector<float>> epochs_of(const std::vector<MockTrainable::Note>& notes, int steps) {
  std::vector<std::vector<float>> epochs;
  int step = 0;
  for (const MockTrainable::Note& n : notes) {
    if (n.what != "step") continue;
    if (step++ % steps == 0) epochs.emplace_back();
    epochs.back().insert(epochs.back().end(), n.samples.begin(), n.samples.end());
  }
  return epochs;
}

TEST_F(Training, EachEpochHasAnOrderOfItsOwn) {
  const auto run = [&](std::vector<std::string> words) {
    std::vector<MockTrainable::Note> notes;
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.notes = &notes;
    words.insert(words.end(), {"--out", "", "--epochs", "2"});
    EXPECT_EQ(train(words, &model).status, 0);
    for (const MockTrainable::Note& n : notes)
      if (n.what == "step") {
        EXPECT_EQ(n.seed, words[0] == "--seed" ? 5 : 0);
      }
    return epochs_of(notes, 7);
  };
  const auto sorted = [](std::vector<float> list) {
    std::sort(list.begin(), list.end());
    return list;
  };
  const auto plain = run({"--no-shuffle"}), shuffled = run({}), other = run({"--seed", "5"});
  ASSERT_EQ(plain.size(), 2U);
  EXPECT_EQ(plain[0].size(), static_cast<std::size_t>(kSamples));
  EXPECT_EQ(plain[1], plain[0]);
  for (const auto& epochs : {shuffled, other})
    for (const auto& epoch : epochs) EXPECT_EQ(sorted(epoch), sorted(plain[0])) << "every sample once";
  EXPECT_NE(shuffled[0], plain[0]);
  EXPECT_NE(shuffled[1], shuffled[0]);
  EXPECT_NE(other[0], shuffled[0]);
}

TEST_F(Training, TheModelIsToldWhenItsWeightsAreWrittenAndRead) {
  const auto run = [&](std::vector<std::string> words) {
    std::vector<MockTrainable::Note> notes;
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.notes = &notes;
    EXPECT_EQ(train(std::move(words), &model).status, 0);
    std::string text;
    for (const MockTrainable::Note& n : notes) text += n.what.substr(0, 1);
    return text;
  };
  // c: changed, s: a step, e: a part of an evaluation, n: needed. Checkpoints after step 5 and at the ends of the
  // epochs, once each.
  EXPECT_EQ(run({"--epochs", "1", "--checkpoint-every", "5"}), "csssssnsseeen");
  EXPECT_EQ(run({"--epochs", "2", "--resume", "--checkpoint-every", "7"}), "cssssssseeen");
}

TEST_F(Training, RatesOfGroupsKeepTheirRatio) {
  std::vector<MockTrainable::Note> notes;
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().groups = {{.lr = 0.1}, {.lr = 0.1}, {.lr = 0.025}, {.lr = 0}};
  model.notes = &notes;
  EXPECT_EQ(train({"--steps", "1", "--lr", "0.11"}, &model).status, 0);
  const std::vector<double>& rates = notes.at(1).rates;
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_EQ(rates[0], 0.11) << "to the bit";
  EXPECT_EQ(rates[1], 0.11) << "0.1 * (0.11 / 0.1) is another number";
  EXPECT_NEAR(rates[2], 0.0275, 1e-15);
  EXPECT_EQ(rates[3], 0);
}

TEST_F(Training, EvaluationsLeaveInputsThatAllSamplesShareAlone) {
  for (const char* split : {"train", "test"}) {
    const float scale = split == std::string("train") ? 1.5F : 2.5F;
    write_npy(std::string("data/") + split + "/scale.npy", "<f4", {1},
              std::string(reinterpret_cast<const char*>(&scale), sizeof scale));
  }
  std::vector<MockTrainable::Note> notes;
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().inputs.push_back({.name = "scale", .dtype = DType::f32, .shape = {1}, .batched = false});
  model.notes = &notes;
  const Result r = train({"--epochs", "2"}, &model);
  EXPECT_EQ(r.status, 0) << r.error;
  int steps = 0, evaluations = 0;
  for (const MockTrainable::Note& n : notes) {
    if (n.what == "step" || n.what == "evaluation") {
      EXPECT_EQ(n.shared, n.what == "step" ? 1.5F : 2.5F);
      ++(n.what == "step" ? steps : evaluations);
    }
  }
  EXPECT_EQ(steps, 14);
  EXPECT_EQ(evaluations, 6);
}

// What fills the last batch has the ignored label, and the loss counts by the samples that are there.
TEST_F(Training, RowsThatFillTheBatchAreIgnoredWhereTheLossCanIgnoreThem) {
  write_npy("five/images.npy", "<f4", {5, kFeatures}, std::string(5 * kFeatures * 4, '\0'));
  write_npy("five/labels.npy", "|u1", {5}, std::string(5, '\1'));
  const std::string log = folder_ / "ignored.log";
  for (const bool is_sum : {false, true}) {
    SCOPED_TRACE(is_sum);
    MockTrainable model({kFeatures}, kClasses, 8, false);
    model.description().ignorable_labels = 1;
    model.description().inputs[1].ignored = -7;
    model.description().loss_is_sum = is_sum;
    std::vector<std::vector<std::int64_t>> labels;
    model.evaluation_of = [&](const void* const* inputs, std::int64_t count) {
      const auto* given = static_cast<const std::int64_t*>(inputs[1]);
      labels.emplace_back(given, given + 8);
      // A mean of 3 as evaluate() gives it, the sum over all rows; or a sum.
      return Evaluation{.loss_sum = is_sum ? 15.0 : 8 * 3.0, .samples = 8, .correct = count, .labels = count};
    };
    const std::string epoch_log = log + (is_sum ? "s" : "m");
    const Result r = train({"--epochs", "1", "--test-data", folder_ / "five", "--log", epoch_log, "--out", ""}, &model);
    ASSERT_EQ(r.status, 0) << r.error;
    EXPECT_EQ(labels, (std::vector<std::vector<std::int64_t>>{{1, 1, 1, 1, 1, -7, -7, -7}})) << "one call";
    EXPECT_EQ(numbers_of_epochs(epoch_log, "test_loss"), std::vector<double>{3});
    EXPECT_EQ(numbers_of_epochs(epoch_log, "accuracy"), std::vector<double>{1});
  }
}

// A share that is no number cannot be taken out: the samples are left out instead, and one line says so.
TEST_F(Training, ALossWhoseShareIsNotFiniteLeavesItsSamplesOut) {
  write_npy("ten/images.npy", "<f4", {10, kFeatures}, std::string(10 * kFeatures * 4, '\0'));
  write_npy("ten/labels.npy", "|u1", {10}, std::string(10, '\0'));
  MockTrainable model({kFeatures}, kClasses, 8, false);
  model.evaluation = [](std::int64_t count) {
    return Evaluation{.loss_sum = count == 0 ? std::nan("") : 8 * 3.0, .samples = 8, .correct = count, .labels = count};
  };
  const Result r = train(
      {"--epochs", "1", "--test-data", folder_ / "ten", "--log", folder_ / "log", "--out", folder_ / "left"}, &model);
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(numbers_of_epochs(folder_ / "log", "test_loss"), std::vector<double>{3});
  EXPECT_NE(r.error.find("warning: the test loss leaves out the last 2 of 10 samples"), std::string::npos) << r.error;
  EXPECT_TRUE(fs::is_symlink(folder_ / "left/best"));
}

TEST_F(Training, AnEpochWhoseLossIsNaNIsNeverTheBest) {
  write_npy("one/images.npy", "<f4", {8, kFeatures}, std::string(8 * kFeatures * 4, '\0'));
  write_npy("one/labels.npy", "|u1", {8}, std::string(8, '\0'));
  for (const bool accuracy : {true, false}) {
    SCOPED_TRACE(accuracy);
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.description().has_accuracy = accuracy;
    int epoch = 0;
    model.evaluation = [&](std::int64_t samples) {
      const bool second = ++epoch == 2;
      return Evaluation{
          .loss_sum = second ? 5.0 : std::nan(""), .samples = samples, .correct = second ? 1 : 8, .labels = samples};
    };
    const std::string out = folder_ / (accuracy ? "nan_accuracy" : "nan_loss");
    const Result r = train({"--epochs", "3", "--test-data", folder_ / "one", "--out", out}, &model);
    ASSERT_EQ(r.status, 0) << r.error;
    EXPECT_EQ(fs::read_symlink(out + "/best"), "step-00000014") << "epoch 2";
  }
}

TEST_F(Training, StepsThatAreSkippedBecauseOfTheirLossDoNotCount) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().scales_loss = true;
  model.description().has_evaluation = false;
  // 7 steps an epoch: all of the second and the first of the third have no loss that is a number.
  model.loss_at = [](std::int64_t step) { return step <= 7 ? 3.0 : step <= 15 ? std::nan("") : 2.0; };
  const std::string out = folder_ / "skipped";
  const Result r = train({"--epochs", "3", "--out", out, "--keep", "1", "--patience", "2"}, &model);
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_NE(r.out.find("epoch 1/3  loss 3.0000"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("epoch 2/3  loss nan"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("epoch 3/3  loss 2.0000"), std::string::npos) << r.out;
  EXPECT_EQ(fs::read_symlink(out + "/best"), "step-00000021");
  // Stopped where some of an epoch's losses are numbers.
  const std::string stopped = folder_ / "stopped";
  ASSERT_EQ(train({"--steps", "17", "--out", stopped}, &model).status, 0);
  EXPECT_EQ(state_of(stopped + "/latest").counted, 16);
  const Result resumed = train({"--epochs", "3", "--out", stopped, "--resume"}, &model);
  EXPECT_NE(resumed.out.find("epoch 3/3  loss 2.0000"), std::string::npos) << resumed.out;
}

TEST_F(Training, GoesOnInAnotherFolderThatHasNoCheckpoints) {
  ASSERT_EQ(train({"--epochs", "1", "--out", folder_ / "first"}).status, 0);
  ASSERT_EQ(train({"--epochs", "1", "--out", folder_ / "other", "--seed", "7"}).status, 0);
  const std::string kept = bytes_of(folder_ / "other/latest");
  const std::vector<std::string> there = {"--epochs", "3", "--resume", folder_ / "first", "--out", folder_ / "other"};
  const Result r = train(there);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("other: holds the checkpoints of another run"), std::string::npos) << r.error;
  EXPECT_EQ(bytes_of(folder_ / "other/latest"), kept);
  std::vector<std::string> over = there;
  over.emplace_back("--overwrite");
  EXPECT_EQ(train(over).status, 0);
  for (const std::string& checkpoint : list_checkpoints(folder_ / "other")) EXPECT_GT(step_of(checkpoint), 7);
  // A folder of the run's own, by whatever name.
  fs::create_directory_symlink(folder_ / "other", folder_ / "link");
  EXPECT_EQ(train({"--epochs", "4", "--resume", folder_ / "link/latest", "--out", folder_ / "other"}).status, 0);
}

TEST_F(Training, InputsWithTheBatchElsewhereAreNotFed) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().inputs[0] = {
      .name = "images", .dtype = DType::f32, .shape = {kFeatures, 8}, .batched = false, .batch_dimensions = {{1, 1}}};
  const Result r = train({}, &model);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("input \"images\" f32[6,batch]: expected the batch as dimension 0 and nowhere else"),
            std::string::npos)
      << r.error;
  EXPECT_NE(r.error.find("found batch as dimension 1"), std::string::npos) << r.error;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(Training, TheBestEpochIsTheFirstOfTheBest) {
  write_npy("one/images.npy", "<f4", {8, kFeatures}, std::string(8 * kFeatures * 4, '\0'));
  write_npy("one/labels.npy", "|u1", {8}, std::string(8, '\0'));
  const struct {
    const char* note;
    bool accuracy, held_out;
    double numbers[4];  // of the epochs: labels that are right, or the loss
  } cases[] = {{"the most labels that are right", true, true, {3, 5, 5, 4}},
               {"the least loss of the held-out set", false, true, {4, 2, 3, 2}},
               {"the least loss where there is no such set", false, false, {4, 2, 3, 2}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.description().has_accuracy = c.accuracy;
    int epoch = 0;
    model.evaluation = [&](std::int64_t samples) {
      const double number = c.numbers[epoch++];
      return Evaluation{
          .loss_sum = number, .samples = samples, .correct = static_cast<std::int64_t>(number), .labels = samples};
    };
    if (!c.held_out) model.loss_at = [&](std::int64_t step) { return c.numbers[(step - 1) / 7]; };
    const std::string out = folder_ / c.note, data = folder_ / "data/train/";
    std::vector<std::string> words = {"--out",    out, "--data", data + "images.npy," + data + "labels.npy",
                                      "--epochs", "4", "--keep", "1"};
    if (c.held_out) words.insert(words.end(), {"--test-data", folder_ / "one"});
    const Result r = train(words, &model);
    EXPECT_EQ(r.status, 0) << r.error;
    EXPECT_EQ(fs::read_symlink(out + "/best"), "step-00000014") << "epoch 2";
    EXPECT_EQ(list_checkpoints(out).size(), 2U) << "the newest and the best";
  }
}

TEST_F(Training, AnEpochWhoseEvaluationASignalEndsIsEvaluatedWhenTheRunGoesOn) {
  EXPECT_EQ(train({"--out", folder_ / "whole", "--epochs", "1"}).status, 0);
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.evaluation = [](std::int64_t samples) {
    ::raise(SIGTERM);
    return Evaluation{.samples = samples};
  };
  const Result r = train({"--epochs", "1"}, &model);
  EXPECT_EQ(r.status, 128 + SIGTERM) << r.error;
  EXPECT_EQ(r.out.find("test loss"), std::string::npos) << r.out;
  EXPECT_EQ(train({"--resume", "--epochs", "1"}).status, 0);
  EXPECT_EQ(bytes_of(folder_ / "out/latest"), bytes_of(folder_ / "whole/latest"));
}

TEST_F(Training, BenchPrintsOneLine) {
  const Result r = train({"--bench", "5", "--data", ""});
  EXPECT_EQ(r.status, 0) << r.error;
  JsonReader json(r.out, "bench");
  std::vector<std::string> keys;
  std::string key;
  json.begin_object();
  while (json.next_key(key)) {
    keys.push_back(key);
    if (key == "runs") {
      EXPECT_EQ(json.integer(), 5);
    } else {
      json.skip();
    }
  }
  json.end();
  EXPECT_EQ(keys, (std::vector<std::string>{"peer", "workload", "threads", "batch", "runs", "median_ms", "min_ms",
                                            "first_ms", "rss_mb"}));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(Training, ProcessorsAndDevicesAreChosenByTheirOwnOptions) {
  const struct {
    bool on_device;
    std::vector<std::string> words;
    int started_on;
    const char* said;
  } cases[] = {
      {false, {"--threads", "3"}, 3, "\"threads\":3"},
      {false, {"--device", "1"}, -1, "--device: the program was emitted for the processor"},
      {true, {}, 0, "\"device\":0"},
      {true, {"--device", "2"}, 2, "\"device\":2"},
      {true, {"--device", "-1"}, -1, "--device: expected a whole number from 0 to 4095, found \"-1\""},
      {true, {"--threads", "3"}, -1, "--threads: all work is the CUDA device's; --device N chooses which"},
  };
  for (const auto& c : cases) {
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.description().on_device = c.on_device;
    std::vector<std::string> words = {"--bench", "2"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Result r = train(words, &model);
    EXPECT_EQ(model.started_on, c.started_on);
    EXPECT_EQ(r.status, c.started_on < 0 ? 2 : 0);
    EXPECT_NE((r.out + r.error).find(c.said), std::string::npos) << r.out << r.error;
  }
}

TEST_F(Training, HelpNamesInputsAndDefaults) {
  const Result r = train({"--help"});
  EXPECT_EQ(r.status, 0);
  for (const char* part : {"images  f32[8,6]", "labels  i64[8], from 0 to 2", "cross_entropy(mean)", "--epochs N",
                           "(default: 3)", "--lr X", "(default: 0.1)"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace graven::runtime
