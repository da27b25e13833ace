#include "codegen/build/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

/// Keeps the first half and the last half of a long output.
class BoundedText {
 public:
  explicit BoundedText(std::size_t limit) : half_(limit / 2) {}
  void append(const char* data, std::size_t size) {
    const std::size_t head = std::min(size, half_ > head_.size() ? half_ - head_.size() : 0);
    head_.append(data, head);
    tail_.append(data + head, size - head);
    if (tail_.size() > 2 * half_ + 1) {
      dropped_ += tail_.size() - half_;
      tail_.erase(0, tail_.size() - half_);
    }
  }
  std::string text() const {
    return dropped_ ? head_ + "\n... (" + std::to_string(dropped_) + " bytes left out) ...\n" + tail_ : head_ + tail_;
  }

 private:
  std::size_t half_, dropped_ = 0;
  std::string head_, tail_;
};

/// In the watcher: the thread that waits for the program is gone, and with it the process, however it was ended.
/// Compilers remove their temporary files at SIGTERM.
void end_group(int) {
  ::signal(SIGTERM, SIG_IGN);
  kill(0, SIGTERM);
  sleep(1);
  kill(0, SIGKILL);
}

void close_all() {
  if (syscall(SYS_close_range, 0U, ~0U, 0U) == 0) return;
  const long limit = sysconf(_SC_OPEN_MAX);  // a kernel before 5.9
  for (int fd = 0; fd < limit; ++fd) close(fd);
}

/// Between this process and the program stands a watcher, which leads the group and ends it when this process is gone:
/// SIGKILL leaves no time to do so here, and a compiler does not end what it has started. Returns in the program alone.
/// Only calls that are safe between fork and exec of a process with threads.
void watch(pid_t parent) {
  ::signal(SIGCHLD, SIG_DFL);  // who ignores it cannot wait
  ::signal(SIGUSR1, end_group);
  sigset_t gone;
  sigemptyset(&gone);
  sigaddset(&gone, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &gone, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != parent) _exit(127);
  const pid_t program = fork();
  if (program == 0) {
    ::signal(SIGUSR1, SIG_DFL);
    return;
  }
  if (program < 0) _exit(127);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);  // they are the program's to answer
  close_all();  // pipes and locks of this process's other threads
  int status = 0;
  while (waitpid(program, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  GRAVEN_CHECK(!arguments.empty(), "no program");
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw UserError(arguments[0] + ": cannot be started: " + std::strerror(errno));
  // Where a standard stream is closed, an end has its number, which the child needs for its own.
  for (int& end : ends) {
    if (end > STDERR_FILENO) continue;
    const int moved = fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int reason = errno;
    close(end);
    end = moved;
    if (moved >= 0) continue;
    for (const int other : ends)
      if (other >= 0) close(other);
    throw UserError(arguments[0] + ": cannot be started: " + std::strerror(reason));
  }
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const int reason = errno;
    close(ends[0]);
    close(ends[1]);
    throw UserError(arguments[0] + ": cannot be started: " + std::strerror(reason));
  }
  if (child == 0) {
    // Only calls that are safe between fork and exec of a process with threads.
    setpgid(0, 0);
    watch(self);
    const int empty = open("/dev/null", O_RDONLY);
    if (empty >= 0) dup2(empty, 0);
    if (!options.echo) {
      dup2(ends[1], 1);
      dup2(ends[1], 2);
    }
    if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(127);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  setpgid(child, child);  // in both processes, so that it holds whichever runs first
  close(ends[1]);
  ProcessResult result;
  BoundedText text(options.output_limit);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  char buffer[1 << 14];
  // The pipe closes when the last process of the group has ended (or at once with echo; then only the wait below
  // counts).
  while (!options.echo) {
    const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    pollfd p{ends[0], POLLIN, 0};
    const int ready = poll(&p, 1, static_cast<int>(left * 1000) + 1);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  int status = 0;
  for (;;) {
    if (result.timed_out) kill(-child, SIGKILL);
    const pid_t ended = waitpid(child, &status, result.timed_out ? 0 : WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      result.timed_out = true;
      continue;
    }
    usleep(1000);
  }
  close(ends[0]);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.timed_out) {
    result.failure = fmt::format("takes longer than {:g} s", options.seconds);
  } else if (result.exit_status > 128) {
    result.failure = fmt::format("is ended by signal {}", result.exit_status - 128);
  } else if (result.exit_status != 0) {
    result.failure =
        result.exit_status == 127 ? "cannot be started" : fmt::format("fails with exit status {}", result.exit_status);
  }
  result.output = text.text();
  return result;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : std::string();
  const char* path = std::getenv("PATH");
  const std::string folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = folders.substr(begin, end - begin) + "/" + name;
    if (end > begin && access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return {};
}

}  // namespace graven::codegen
