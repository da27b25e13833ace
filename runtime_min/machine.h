// What the program sees of the machine it runs on: processors and its own memory.
//
//   processor_count();     // those that this process may use, 1 or more
//   peak_memory_mb();      // largest resident size so far
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace graven::runtime {

inline int processor_count() {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

inline double peak_memory_mb() {
#ifdef __linux__
  // What getrusage() says includes the process that started this one, as it was before exec().
  if (std::FILE* status = std::fopen("/proc/self/status", "r")) {
    char line[256];
    long kilobytes = 0;
    while (std::fgets(line, sizeof line, status) != nullptr)
      if (std::sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
    std::fclose(status);
    if (kilobytes > 0) return static_cast<double>(kilobytes) / 1024;
  }
#endif
  struct rusage usage;
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / (1024 * 1024);
#else
  return static_cast<double>(usage.ru_maxrss) / 1024;
#endif
}

}  // namespace graven::runtime
