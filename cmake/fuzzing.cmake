# Whether the sanitized tree also builds tests/fuzz: that takes clang++ and its libFuzzer.
set(GRAVEN_FUZZ OFF)
if(GRAVEN_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
  check_cxx_source_compiles(
    "#include <cstddef>\n#include <cstdint>
     extern \"C\" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }"
    GRAVEN_HAS_LIBFUZZER)
  unset(CMAKE_REQUIRED_FLAGS)
  if(GRAVEN_HAS_LIBFUZZER)
    set(GRAVEN_FUZZ ON)
  endif()
endif()

# Has the target's code tell the fuzzers which branches were taken. For what they read with alone: it takes twice the
# time.
function(graven_tell_fuzzers target)
  if(GRAVEN_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
