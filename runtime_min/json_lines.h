// A log of one JSON object a line, appended to a file; whatever was there stays.
//
//   JsonLines log("train.jsonl");
//   log.write(JsonWriter().begin_object().key("step").value(1).end_object());
//
// A pipe needs a reader. A line is written with one call, so a killed run leaves whole lines (on local file systems). A
// failed write is an Error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "error.h"
#include "file.h"
#include "json_writer.h"

namespace graven::runtime {

class JsonLines {
 public:
  /// An empty path: nothing is written.
  explicit JsonLines(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    descriptor_ = open_stream(path_, O_CREAT | O_APPEND);
  }
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;
  ~JsonLines() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool enabled() const { return descriptor_ >= 0; }

  void write(const JsonWriter& json) {
    if (descriptor_ < 0) return;
    line_.assign(json.text());
    line_ += '\n';
    ssize_t n;
    do {
      n = ::write(descriptor_, line_.data(), line_.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) throw system_error(path_, "write");
    if (static_cast<std::size_t>(n) != line_.size()) throw Error(path_, "cannot write: the disk is full");
  }

 private:
  std::string path_, line_;
  int descriptor_ = -1;
};

}  // namespace graven::runtime
