// Training and inference allocate nothing between one call of the model and the next. Counted by replacing operator
// new, which sanitizers do not suffer: there the tests are skipped.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "fixture.h"
#include "mock_model.h"

#if defined(__SANITIZE_ADDRESS__)
#define GRAVEN_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRAVEN_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef GRAVEN_COUNTS_ALLOCATIONS
#define GRAVEN_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::size_t allocations = 0;
}
std::size_t graven::runtime::largest_allocation = 0;

#if GRAVEN_COUNTS_ALLOCATIONS
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  graven::runtime::largest_allocation = std::max(graven::runtime::largest_allocation, bytes);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace graven::runtime {
namespace {

/// Adds up what is allocated outside the model, call by call.
struct Meter {
  std::size_t seen = 0, between_calls = 0, calls = 0;
  void enter() {
    if (calls++ > 0) between_calls += allocations - seen;
  }
  void leave() { seen = allocations; }
};

class MeteredTrainable : public MockTrainable {
 public:
  using MockTrainable::MockTrainable;
  double step(const void* const* inputs, std::int64_t batch, const StepNumbers& numbers) override {
    meter.enter();
    const double loss = MockTrainable::step(inputs, batch, numbers);
    meter.leave();
    return loss;
  }
  Meter meter;
};

class MeteredInference : public MockInference {
 public:
  using MockInference::MockInference;
  void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) override {
    meter.enter();
    MockInference::forward(inputs, batch, outputs);
    meter.leave();
  }
  Meter meter;
};

TEST(Allocation, NoneBetweenCallsOfTheModel) {
  if (GRAVEN_COUNTS_ALLOCATIONS == 0) GTEST_SKIP() << "a sanitizer owns operator new";
  const TemporaryFolder folder;
  SoftmaxRegression zero{12, 3};
  save_variables(folder / "w.safetensors", zero.variables());
  write_file(folder / "images-idx", std::string("\0\0\x08\x02\0\0\x03\xE8\0\0\0\x0C", 12) + std::string(12000, 'x'));
  write_file(folder / "labels-idx", std::string("\0\0\x08\x01\0\0\x03\xE8", 8) + std::string(1000, '\x01'));
  const std::string both = (folder / "images-idx") + "," + (folder / "labels-idx");
  const auto run = [&](auto& model, auto&& program, std::vector<std::string> words) {
    words.insert(words.begin(), {"mock", "--weights", folder / "w.safetensors"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = program(static_cast<int>(argv.size()), argv.data(), model);
    testing::internal::GetCapturedStdout();
    const std::string error = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, 0) << error;
  };

  MeteredTrainable trained({12}, 3, 10, true);
  run(trained, [](int argc, char** argv, TrainableModel& m) { return train_main(argc, argv, m, {}); },
      {"--data", both, "--out", "", "--epochs", "1"});
  EXPECT_EQ(trained.meter.calls, 100U);
  EXPECT_EQ(trained.meter.between_calls, 0U);

  for (const std::vector<std::string>& extra :
       {std::vector<std::string>{}, {"--output", folder / "y.npy"}, {"--labels", folder / "labels-idx"}}) {
    MeteredInference served({12}, 3, 10, true);
    std::vector<std::string> words = {"--data", folder / "images-idx", "--show", "0"};
    words.insert(words.end(), extra.begin(), extra.end());
    run(served, [](int argc, char** argv, InferenceModel& m) { return infer_main(argc, argv, m, {}); }, words);
    EXPECT_EQ(served.meter.calls, 100U);
    EXPECT_EQ(served.meter.between_calls, 0U);
  }
}

}  // namespace
}  // namespace graven::runtime
