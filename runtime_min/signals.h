// SIGINT and SIGTERM while training: the first asks the loop to finish its step, save and stop; the second ends the program at once.
//
//   const StopSignals signals;               // handlers stand while it lives, the old ones come back afterwards
//   while (signals.received() == 0) step();
//   return 128 + signals.received();
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstddef>

namespace graven::runtime {

class StopSignals {
 public:
  StopSignals() {
    received_ = 0;
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;  // a write of a checkpoint in progress goes on
    ::sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(kSignals[i], &action, &old_[i]);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
  }

  /// The first signal that came, 0 when none has.
  int received() const { return received_; }

 private:
  static constexpr int kSignals[2] = {SIGINT, SIGTERM};

  // A handler can reach nothing but what is static.
  static inline volatile sig_atomic_t received_ = 0;

  static void handle(int signal) {
    if (received_ != 0) ::_exit(128 + signal);
    received_ = signal;
  }

  struct sigaction old_[2];
};

}  // namespace graven::runtime
