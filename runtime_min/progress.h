// How far a run is: on a terminal one line that is redrawn, elsewhere a plain line now and then.
//
//   Progress progress("epoch 1/5", 938);
//   progress.update(done, loss, samples);  // as often as one likes: it draws ten times a second,
//                                          // or prints every 10 seconds
//   progress.finish();                       // clears the bar
//
//   epoch 1/5 [=========>          ]  45%  loss 0.5123  41203 samples/s  0:12 left
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "stopwatch.h"

namespace graven::runtime {

/// "0:12", "1:02:03".
inline std::string clock_time(double seconds) {
  const auto s = static_cast<long long>(std::min(std::max(seconds, 0.0), 3.6e9) + 0.5);
  char text[48];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  }
  return text;
}

class Progress {
 public:
  /// `done` of `total` steps were done before (a resumed epoch).
  Progress(const char* title, std::int64_t total, std::int64_t done = 0, bool shown = true)
      : total_(total),
        start_(done),
        shown_(shown),
        terminal_(::isatty(STDERR_FILENO) != 0),
        interval_(terminal_ ? 0.1 : 10) {
    std::snprintf(title_, sizeof title_, "%s", title);
  }

  void update(std::int64_t done, double loss, std::int64_t samples) {
    const double now = watch_.seconds();
    if (!shown_ || now < due_ || now < interval_) return;
    due_ = now + interval_;
    const double rate = static_cast<double>(samples) / now;
    const double left =
        done > start_ ? now / static_cast<double>(done - start_) * static_cast<double>(total_ - done) : 0;
    const int percent = total_ > 0 ? static_cast<int>(100 * done / total_) : 100;
    char bar[kWidth + 1];
    const int filled = kWidth * percent / 100;
    for (int i = 0; i < kWidth; ++i) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    bar[kWidth] = '\0';
    if (terminal_) {
      std::fprintf(stderr, "\r%s [%s] %3d%%  loss %.4f  %.0f samples/s  %s left \033[K", title_, bar, percent, loss,
                   rate, clock_time(left).c_str());
      drawn_ = true;
    } else {
      std::fprintf(stderr, "%s  %d%%  loss %.4f  %.0f samples/s  %s left\n", title_, percent, loss, rate,
                   clock_time(left).c_str());
    }
    std::fflush(stderr);
  }

  void finish() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  static constexpr int kWidth = 24;

  char title_[64];
  std::int64_t total_, start_;
  bool shown_, terminal_, drawn_ = false;
  double interval_, due_ = 0;
  Stopwatch watch_;
};

}  // namespace graven::runtime
