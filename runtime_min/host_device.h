// HostDevice: the processor as the place where a model's memory lies, behind the interface of session.h. What the host
// gives or asks for lies there already: nothing is copied, recorded or waited for.
//
//   HostDevice<Threads> device(/*threads=*/2);
//   HostDevice<Threads>::Memory arena(device, bytes);   // page-aligned, zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "arena.h"
#include "error.h"

namespace graven::runtime {

/// `Threads`: made of a number of threads, 0 for one for each processor.
template <class Threads>
class HostDevice {
 public:
  static constexpr bool is_host = true;
  static constexpr std::size_t alignment = 64;  ///< of tensors: a cache line, and the widest vector
  struct Guard {
    explicit Guard(int) {}
  };

  explicit HostDevice(int threads) : threads_(checked(threads)) {}

  int number() const { return 0; }
  Threads& execution() { return threads_; }
  void synchronize() const {}
  template <class F>
  void rehearse(const F&) {}
  static void require_memory(std::size_t, const char*) {}

  class Memory {
   public:
    Memory(HostDevice&, std::size_t bytes) : arena_(bytes) {}
    char* data() const { return arena_.template at<char>(0); }

   private:
    Arena arena_;
  };

  class Mirror : public Memory {
   public:
    using Memory::Memory;
    char* host(char* tensor) const { return tensor; }
    void upload(HostDevice&) {}
    void download(HostDevice&) {}
    void forget_host() {}
    void outdate() {}
  };

  class PinnedMemory {
   public:
    explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {}
    char* data() { return bytes_.data(); }
    const char* data() const { return bytes_.data(); }

   private:
    std::vector<char> bytes_;
  };

  class Calls {
   public:
    template <class F>
    void run(HostDevice&, std::initializer_list<std::int64_t>, const F& calls) {
      calls();
    }
    void forget() {}
  };

 private:
  static int checked(int threads) {
    if (threads < 0) throw BadArgument("threads: expected 0 or more, found " + std::to_string(threads));
    return threads;
  }

  Threads threads_;
};

}  // namespace graven::runtime
