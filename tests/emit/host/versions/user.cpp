// What the library computes with its version, through the interface in C++, as text: the numbers of ../versions.cpp.
#include <version/model.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::string text_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%s%a", text.empty() ? "" : ",", number);
    text += digits;
  }
  return text;
}

}  // namespace

/// 0, or 1 with the error as text.
extern "C" int USER(const char* path, char* text, std::size_t size) try {
  std::vector<float> x(4096), y(4096);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) / 4 - 1;
  std::vector<double> numbers;
#ifdef TRAINING
  const std::int64_t labels[2] = {2, 0};
  version::Model model(2);
  model.load(path);
  version::Hyper hyper;
  const double expected = 0.01 / static_cast<double>(model.parameters().at(0).shape.at(0));
  if (hyper.learning_rates[0] != expected) throw std::string("a learning rate of another version");
  hyper.learning_rates[0] = 0.05;
  for (hyper.step = 1; hyper.step <= 4; ++hyper.step) numbers.push_back(model.step(x.data(), labels, hyper));
#else
  const auto weights = std::make_shared<const version::Weights>(path);
  version::Model model(weights, 2);
  model.forward(x.data(), version::maximum_batch, y.data());
  numbers.push_back(static_cast<double>(version::maximum_batch));
  for (std::int64_t i = 0; i < 3 * version::maximum_batch; ++i)
    numbers.push_back(static_cast<double>(y[static_cast<std::size_t>(i)]));
#endif
  std::snprintf(text, size, "%s", text_of(numbers).c_str());
  return 0;
} catch (const std::exception& e) {
  std::snprintf(text, size, "%s", e.what());
  return 1;
} catch (const std::string& e) {
  std::snprintf(text, size, "%s", e.c_str());
  return 1;
}
