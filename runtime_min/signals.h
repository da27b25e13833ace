// Signals while training: the first asks the loop to finish its step, save and stop. A second SIGINT or SIGTERM ends
// the program at once; SIGHUP (the terminal has gone) and SIGPIPE (whoever read the output has) come more than once for
// one reason, and never do. What the program was started to ignore stays ignored: nohup, a job in the background of a
// script.
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
    for (std::size_t i = 0; i < kCount; ++i) {
      ::sigaction(kSignals[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    for (std::size_t i = 0; i < kCount; ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
  }

  /// The first signal that came, 0 when none has.
  int received() const { return received_; }

 private:
  static constexpr std::size_t kCount = 4;
  static constexpr int kSignals[kCount] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

  // A handler can reach nothing but what is static.
  static inline volatile sig_atomic_t received_ = 0;

  static void handle(int signal) {
    if (received_ == 0)
      received_ = signal;
    else if (signal == SIGINT || signal == SIGTERM)
      ::_exit(128 + signal);
  }

  struct sigaction old_[kCount];
};

}  // namespace graven::runtime
