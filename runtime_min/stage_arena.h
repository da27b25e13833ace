// StageArena: which parts of a memory plan the calls of one stage of a pipeline touch, laid one behind the other. A
// device's memory is taken as soon as it is asked for, so that a process that runs one stage asks for no more.
//
//   StageArena arena;
//   arena.add(0, 1024);                           // from `offset` on, so many bytes
//   arena.add(4096, 512);
//   char* tensor = arena.place(memory, 4096);     // memory + 1024, of arena.bytes() bytes
#pragma once

#include <cstddef>
#include <vector>

namespace graven::runtime {

class StageArena {
 public:
  /// Parts come in the order of their offsets, and do not overlap.
  void add(std::size_t offset, std::size_t bytes) {
    parts_.push_back({offset, bytes, bytes_});
    bytes_ += bytes;
  }
  std::size_t bytes() const { return bytes_; }
  /// Where what the plan has at `offset` lies; nullptr where the stage touches nothing there.
  char* place(char* memory, std::size_t offset) const {
    for (const Part& p : parts_)
      if (offset >= p.offset && offset < p.offset + p.bytes) return memory + p.place + (offset - p.offset);
    return nullptr;
  }

 private:
  struct Part {
    std::size_t offset, bytes, place;
  };
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;
};

}  // namespace graven::runtime
