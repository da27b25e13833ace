#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ir/diagnostic.h"
#include "ir/json.h"

namespace graven::ir {

namespace {

[[noreturn]] void system_failure(const std::string& path, const std::string& action) {
  const int code = errno;
  throw UserError(path + ": cannot " + action + ": " + std::strerror(code));
}

/// The old file or the new one, never half of it.
void write_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) system_failure(temporary, "create");
  auto give_up = [&](const std::string& action) {
    const int code = errno;
    ::close(file);
    ::unlink(temporary.c_str());
    errno = code;
    system_failure(temporary, action);
  };
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) give_up("write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file) != 0 && errno != EINVAL) give_up("sync");
  if (::close(file) != 0) {
    ::unlink(temporary.c_str());
    system_failure(temporary, "close");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    errno = code;
    system_failure(path, "rename into place");
  }
}

}  // namespace

void write_graph(const std::string& path, const Graph& graph) {
  if (has_large_constants(graph)) throw UserError(path + ": a graph with constants of more than 512 bytes cannot be written yet");
  write_atomically(path, to_json(graph));
}

Graph read_graph(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) system_failure(path, "open");
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || (text.fail() && !in.eof())) system_failure(path, "read");
  return from_json(text.str(), path);
}

}  // namespace graven::ir
