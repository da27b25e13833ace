# The programs: the graven command and the benchmark.
file(GLOB CLI_SOURCES CONFIGURE_DEPENDS codegen/cli/*.cpp)
add_executable(graven_command ${CLI_SOURCES})
set_target_properties(graven_command PROPERTIES OUTPUT_NAME graven RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_link_libraries(graven_command PRIVATE graven CLI11::CLI11)
target_compile_definitions(graven_command PRIVATE GRAVEN_VERSION="${PROJECT_VERSION}")
target_precompile_headers(graven_command REUSE_FROM graven)
graven_warnings(graven_command)

if(NOT GRAVEN_SANITIZE)
  add_executable(graven-bench tests/bench/graven_bench/main.cpp tests/bench/graven_bench/machine.cpp
                 tests/bench/graven_bench/scale.cpp tests/bench/graven_bench/workloads.cpp)
  set_target_properties(graven-bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(graven-bench PRIVATE graven CLI11::CLI11)
  set_source_files_properties(tests/bench/graven_bench/machine.cpp PROPERTIES COMPILE_OPTIONS "-O2;-march=native"
                              SKIP_PRECOMPILE_HEADERS ON)
  target_precompile_headers(graven-bench REUSE_FROM graven)
  graven_warnings(graven-bench)

  # Losses in f32 and in mixed precision, for tests/bench/amp/compare.py.
  add_executable(amp-losses EXCLUDE_FROM_ALL tests/bench/amp/main.cpp)
  set_target_properties(amp-losses PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(amp-losses PRIVATE graven)
  target_precompile_headers(amp-losses REUSE_FROM graven)
  graven_warnings(amp-losses)
  # Recurrent layers timed, for tests/bench/recurrent/compare.py.
  add_executable(recurrent-times EXCLUDE_FROM_ALL tests/bench/recurrent/main.cpp)
  set_target_properties(recurrent-times PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(recurrent-times PRIVATE graven)
  target_precompile_headers(recurrent-times REUSE_FROM graven)
  graven_warnings(recurrent-times)
endif()
