// Finds the `__shared__` variables of the program that is running: they are its function-local thread_local variables,
// which the symbol table of an ELF file lists apart from all others. The same table gives kernels their names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuda_on_cpu {

class Symbols {
 public:
  /// Reads /proc/self/exe. Failure when it has no symbol table.
  Symbols();
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
  std::vector<Variable> shared_;     // offsets in the thread-local block
  std::vector<Function> functions_;  // sorted by offset from the load address
};

}  // namespace cuda_on_cpu
