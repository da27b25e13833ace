// Lets an emitted GPT-2 write: reads a prompt, and adds one byte after the other, drawn from the model's probabilities.
//
//   generate --weights run/latest/weights.safetensors --prompt "Graven " --length 300 --temperature 0.8 --seed 1
//
// softmax(logits / temperature): below 1 the likely bytes become likelier; 0 always takes the likeliest. The same seed
// writes the same text.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gpt2/model.h>

namespace {

constexpr std::size_t kLength = 64, kVocabulary = 256;  // of the emitted model: tokens i64[1,64], logits f32[1,64,256]

struct Options {
  std::string weights = "weights.safetensors", prompt = "\n";
  std::size_t length = 300;
  double temperature = 1;
  std::uint64_t seed = 0;
};

/// The whole of a number that is not negative.
template <class Number, class Parse>
Number number(const std::string& option, const std::string& text, Parse parse) {
  try {
    std::size_t end = 0;
    const Number value = static_cast<Number>(parse(text, &end));
    if (end == text.size() && text[0] != '-' && std::isfinite(static_cast<double>(value))) return value;
  } catch (const std::logic_error&) {  // no number, or one out of range: the same to the user
  }
  throw std::runtime_error(option + ": expected a number of at least 0, found '" + text + "'");
}

Options parse(int argc, char** argv) {
  const auto integer = [](const std::string& text, std::size_t* end) { return std::stoull(text, end); };
  const auto real = [](const std::string& text, std::size_t* end) { return std::stod(text, end); };
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc)
      throw std::runtime_error(
          "usage: generate [--weights FILE] [--prompt TEXT] [--length N] [--temperature T] [--seed N]");
    const std::string value = argv[i + 1];
    if (name == "--weights") {
      options.weights = value;
    } else if (name == "--prompt") {
      options.prompt = value;
    } else if (name == "--length") {
      options.length = number<std::size_t>(name, value, integer);
    } else if (name == "--temperature") {
      options.temperature = number<double>(name, value, real);
    } else if (name == "--seed") {
      options.seed = number<std::uint64_t>(name, value, integer);
    } else {
      throw std::runtime_error("unknown option " + name);
    }
  }
  if (options.prompt.empty()) throw std::runtime_error("--prompt: expected one byte at least, found none");
  return options;
}

/// A token drawn from softmax(logits / temperature), by a uniform number in [0, 1).
std::size_t draw(const float* logits, double temperature, double uniform) {
  const float* likeliest = std::max_element(logits, logits + kVocabulary);
  if (temperature == 0) return static_cast<std::size_t>(likeliest - logits);
  std::vector<double> weights(kVocabulary);
  double sum = 0;
  for (std::size_t i = 0; i < kVocabulary; ++i) sum += weights[i] = std::exp((logits[i] - *likeliest) / temperature);
  double left = uniform * sum;
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return static_cast<std::size_t>(likeliest - logits);  // rounding left a little
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  gpt2::Model model(std::make_shared<const gpt2::Weights>(options.weights), 0);
  std::mt19937_64 random(options.seed);

  std::string text = options.prompt;
  std::vector<std::int64_t> tokens(kLength);
  std::vector<float> logits(kLength * kVocabulary);
  for (std::size_t i = 0; i < options.length; ++i) {
    // The model sees the last bytes, from position 0 on. What follows them does not matter: no token looks ahead.
    const std::size_t seen = std::min(text.size(), kLength), first = text.size() - seen;
    for (std::size_t t = 0; t < kLength; ++t) tokens[t] = t < seen ? static_cast<unsigned char>(text[first + t]) : 0;
    model.forward(tokens.data(), logits.data());
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    text += static_cast<char>(draw(&logits[(seen - 1) * kVocabulary], options.temperature, uniform));
  }
  text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error("standard output: cannot be written");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "generate: %s\n", e.what());
  return 1;
}
