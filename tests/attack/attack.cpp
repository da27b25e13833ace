#include "tests/attack/attack.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace graven::attack {

namespace {

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  if (error != std::errc() || *end != 0 || number < 0)
    throw std::runtime_error(std::string(name) + ": expected a whole number, found '" + text + "'");
  return number;
}

}  // namespace

Attack::Attack(std::string what, std::int64_t tries)
    : what_(std::move(what)),
      tries_(tries),
      only_(from_environment("GRAVEN_ATTACK_TRY", 0)),
      seconds_(static_cast<double>(from_environment("GRAVEN_ATTACK_SECONDS", 0))),
      seed_(static_cast<std::uint64_t>(from_environment("GRAVEN_ATTACK_SEED", 1))) {}

bool Attack::next() {
  ++number_;
  if (only_ > 0) {
    if (number_ > 1 && tried_ > 0) return false;
    number_ = only_;
  } else if (seconds_ > 0) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > seconds_) return false;
  } else if (number_ > tries_) {
    return false;
  }
  ++tried_;
  std::seed_seq sequence{seed_, static_cast<std::uint64_t>(number_)};
  random_.seed(sequence);
  return true;
}

Attack::~Attack() {
  std::string text = "attack: " + what_ + ": seed " + std::to_string(seed_) + ": " + std::to_string(tried_) +
                     (tried_ == 1 ? " try" : " tries");
  const char* between = "; ";
  for (const auto& [what, n] : counts_) {
    text += between + std::to_string(n) + " " + what;
    between = ", ";
  }
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

std::string Attack::where() const {
  return what_ + ": seed " + std::to_string(seed_) + ", try " + std::to_string(number_);
}

}  // namespace graven::attack
