// Finds the `__shared__` variables of kernels, in the program that is running or in libraries that it has opened: they
// are function-local thread_local variables, which the symbol table of an ELF file lists apart from all others. The
// same table gives kernels their names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuda_on_cpu {

class Symbols {
 public:
  /// Reads /proc/self/exe. Failure when it has no symbol table.
  Symbols();
  /// Of a library that is open. `touch` is one of its functions, which uses a thread_local variable of it: there is
  /// memory for them then.
  Symbols(const std::string& path, void (*touch)());
  /// Adds what the other has.
  void add(Symbols other);
  /// Fills every shared variable with 0xff bytes, in the calling thread's copy.
  void poison_shared() const;
  /// "kernel<float>(float*, long)", or "kernel at 0x..." when the table has no such function.
  std::string function_name(const void* address) const;

 private:
  struct Variable {
    std::size_t offset, bytes;
  };
  struct Function {
    std::size_t offset;
    std::string name;
  };
  /// A program or a library.
  struct Image {
    std::string path;  // empty: the program itself
    void (*touch)() = nullptr;
    std::vector<Variable> shared;     // offsets in the thread-local block
    std::vector<Function> functions;  // sorted by offset from the load address
  };
  static Image read(const char* file);
  std::vector<Image> images_;
};

}  // namespace cuda_on_cpu
