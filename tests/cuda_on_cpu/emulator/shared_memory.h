// Finds the `__shared__` variables of kernels, in the program that is running or in libraries that it has opened: they
// are function-local thread_local variables, which the symbol table of an ELF file lists apart from all others. The
// same table gives kernels their names.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
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
  /// Where they lie, for the calling thread: of each program or library from the first to the last.
  std::vector<std::pair<const char*, const char*>> shared_ranges() const;
  /// "tile" of the shared variable that holds the address, or "".
  std::string shared_name(const void* address) const;
  /// "kernel<float>(float*, long)", or "kernel at 0x..." when the table has no such function.
  std::string function_name(const void* address) const;

 private:
  struct Variable {
    std::size_t offset, bytes;
    std::string name;
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

/// "rows.cuh:50, in softmax.cuh:92": the lines that an instruction was compiled from, of the program that runs or of
/// a library, beginning with the innermost function. `after`: the address that a call of it returns to.
std::string source_lines(const void* after);

}  // namespace cuda_on_cpu
