// What every generator of the standing attack shares: a seed, a budget of tries, and the line at its end that says how
// many of each it tried.
//
//   Attack attack("graph.json edits", 300);       // 300 tries; GRAVEN_ATTACK_SECONDS=60: as many as a minute gives
//   while (attack.next()) {
//     SCOPED_TRACE(attack.where());               // "graph.json edits: seed 1, try 17"
//     if (attack.below(3) == 0) ...               // drawn for this try alone: seed and number of a try make it
//     attack.count("refused");
//   }                                             // prints "attack: graph.json edits: seed 1: 300 tries; 260 refused,
//                                                 // 40 sound"
//
// GRAVEN_ATTACK_SEED=N draws others; GRAVEN_ATTACK_TRY=N tries that one alone, as a failure names it.
// docs/robustness.md has the commands.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace graven::attack {

class Attack {
 public:
  /// `tries`: what CI runs of it, seconds at most for all generators of a file together.
  Attack(std::string what, std::int64_t tries);
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;
  /// Prints the counts.
  ~Attack();

  /// Whether there is another try; begins it.
  bool next();
  /// The number of this try, from 1.
  std::int64_t number() const { return number_; }
  std::string where() const;
  /// Whether it goes on for GRAVEN_ATTACK_SECONDS.
  bool is_long() const { return seconds_ > 0; }

  std::mt19937_64& random() { return random_; }
  /// A number from 0 to `count` - 1.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }
  /// One of a container's elements.
  template <class Container>
  const auto& choose(const Container& from) {
    return from[below(std::size(from))];
  }

  /// One more of what was tried, or of how it ended.
  void count(const std::string& what, std::int64_t more = 1) { counts_[what] += more; }

 private:
  std::string what_;
  std::int64_t tries_, number_ = 0, tried_ = 0, only_ = 0;
  double seconds_ = 0;
  std::uint64_t seed_ = 1;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mt19937_64 random_;
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace graven::attack
