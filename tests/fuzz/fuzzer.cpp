// One libFuzzer program a target; GRAVEN_FUZZ_TARGET is its name.
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  graven::fuzz::GRAVEN_FUZZ_TARGET({data, size});
  return 0;
}
