// A training of the mock model on a set that it can learn.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fixture.h"
#include "mock_model.h"
#include "runtime_min/checkpoint.h"
#include "runtime_min/train.h"

namespace graven::runtime {

inline constexpr std::int64_t kSamples = 50, kFeatures = 6, kClasses = 3;

/// A learnable set: the class is the largest of the first three features. npy, with a test set.
class Training : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* split : {"train", "test"}) {
      const std::int64_t n = split == std::string("train") ? kSamples : 21;
      std::string images, labels;
      std::uint64_t state = split[1];
      for (std::int64_t i = 0; i < n; ++i) {
        float x[kFeatures];
        int best = 0;
        for (int f = 0; f < kFeatures; ++f) {
          state = state * 6364136223846793005U + 1442695040888963407U;
          x[f] = static_cast<float>(state >> 40) / 16777216.0F - 0.5F;
          if (f < kClasses && x[f] > x[best]) best = f;
        }
        images.append(reinterpret_cast<const char*>(x), sizeof x);
        labels += static_cast<char>(best);
      }
      write_npy(std::string("data/") + split + "/images.npy", "<f4", {n, kFeatures}, images);
      write_npy(std::string("data/") + split + "/labels.npy", "|u1", {n}, labels);
    }
    SoftmaxRegression zero{kFeatures, kClasses};
    const auto variables = zero.variables();
    save_variables(folder_ / "initial.safetensors", variables);
  }

  void write_npy(const std::string& name, const std::string& descr, const Dims& shape, const std::string& data) const {
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
    for (const std::int64_t d : shape) text += std::to_string(d) + ",";
    text += ")}\n";
    write_file(folder_ / name, std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size()) +
                                   std::string(1, '\0') + text + data);
  }

  struct Result {
    int status;
    std::string out, error;
  };

  Result train(std::vector<std::string> words, MockTrainable* model = nullptr) const {
    MockTrainable own({kFeatures}, kClasses, 8, true);
    if (model == nullptr) model = &own;
    words.insert(words.begin(), {"mock", "--weights", folder_ / "initial.safetensors"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    TrainDefaults defaults;
    defaults.data = folder_ / "data";
    defaults.out = folder_ / "out";
    defaults.epochs = 3;
    Result result{train_main(static_cast<int>(argv.size()), argv.data(), *model, defaults), "", ""};
    result.out = testing::internal::GetCapturedStdout();
    result.error = testing::internal::GetCapturedStderr();
    return result;
  }

  /// Whether the training that writes this log has made its first step.
  static bool has_stepped(const std::string& log) {
    std::string beginning(1 << 16, '\0');  // no more: the end of a file that grows may never be reached
    std::ifstream in(log, std::ios::binary);
    in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
    beginning.resize(static_cast<std::size_t>(in.gcount()));
    return beginning.find("\"event\":\"step\"") != std::string::npos;
  }

  /// What a checkpoint's manifest says.
  static TrainingState state_of(const std::string& checkpoint) {
    MockTrainable model({kFeatures}, kClasses, 8, true);
    const std::vector<Variable> weights = model.weights(), states = model.states();
    return load_checkpoint(checkpoint, "0123456789abcdef", weights, states);
  }

  /// The bytes of a checkpoint's three files.
  std::string bytes_of(const std::string& checkpoint) const {
    return read_file(checkpoint + "/weights.safetensors") + read_file(checkpoint + "/optimizer.safetensors") +
           read_file(checkpoint + "/manifest.json");
  }

  TemporaryFolder folder_;
};

}  // namespace graven::runtime
