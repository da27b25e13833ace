# tests/<dir>/*.cpp is one GoogleTest program, test_<dir>.
find_package(GTest REQUIRED)
include(GoogleTest)

add_library(graven_test_patterns STATIC tests/patterns.cpp)
target_include_directories(graven_test_patterns PUBLIC ${CMAKE_SOURCE_DIR})
graven_warnings(graven_test_patterns)

# The tests are as much text as the library. Without optimising, clang++ compiles them in half of the time that g++
# takes: they are compiled by it where both are installed, and the library by the compiler that was asked for.
set(GRAVEN_TEST_LAUNCHER)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT GRAVEN_SANITIZE)
  find_program(GRAVEN_TEST_COMPILER clang++ DOC "Compiles the tests beside a library of g++'s; OFF: g++ does")
  if(GRAVEN_TEST_COMPILER)
    set(GRAVEN_TEST_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/compile_with.sh ${GRAVEN_TEST_COMPILER}
        ${CMAKE_CXX_COMPILER_LAUNCHER} --)
  endif()
endif()

# What every such program is compiled with: -O0, for what takes time when the tests run is the library.
function(graven_test_options target)
  target_link_libraries(${target} PRIVATE graven graven_test_patterns GTest::gtest GTest::gtest_main)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # Of an inline function that several objects have, the program gets the first one's. Here that is the library's,
    # which is optimised: by the tests' own, of -O0, the library takes twice its time.
    target_link_options(${target} PRIVATE
                        "SHELL:-Wl,--whole-archive $<TARGET_FILE:graven> -Wl,--no-whole-archive")
  endif()
  target_compile_definitions(${target} PRIVATE GRAVEN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             GRAVEN_BINARY_DIR="${CMAKE_BINARY_DIR}"
                             GRAVEN_CXX_IS_CLANG=$<BOOL:$<CXX_COMPILER_ID:Clang>>)
  graven_warnings(${target})
  target_compile_options(${target} PRIVATE -O0)
  graven_few_checks(${target})
  if(GRAVEN_TEST_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${GRAVEN_TEST_LAUNCHER}")
    target_compile_options(${target} PRIVATE ${GRAVEN_CLANG_WARNINGS})
  endif()
  if(GRAVEN_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
  endif()
  if(NOT target STREQUAL graven_test_headers)
    target_precompile_headers(${target} REUSE_FROM graven_test_headers)
  endif()
endfunction()

# Precompiles what the tests include, once for all of them.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT
     "// Nothing but the precompiled headers of the tests.\n")
add_library(graven_test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cpp)
graven_test_options(graven_test_headers)
target_precompile_headers(graven_test_headers PRIVATE ${GRAVEN_STANDARD_HEADERS} ${GRAVEN_IR_HEADERS}
                          ${GRAVEN_TEST_HEADERS})

option(GRAVEN_ALL_TESTS "Build the tests that tests/run.sh runs with --all, too" OFF)

# What tests/projects and tests/cuda_on_cpu compile emitted projects with: as the tests themselves, unless all are asked
# for. Those of tests/emit, the samples and bits/ are compiled as users' projects are.
set(GRAVEN_PROJECT_COMPILER ${CMAKE_CXX_COMPILER})
set(GRAVEN_PROJECT_COMPILER_IS_CLANG $<BOOL:$<CXX_COMPILER_ID:Clang>>)
if(GRAVEN_TEST_LAUNCHER AND NOT GRAVEN_ALL_TESTS)
  set(GRAVEN_PROJECT_COMPILER ${GRAVEN_TEST_COMPILER})
  set(GRAVEN_PROJECT_COMPILER_IS_CLANG 1)
endif()

# What the sanitizers watch takes several times as long.
set(GRAVEN_TEST_TIMEOUT 600)
if(GRAVEN_SANITIZE)
  set(GRAVEN_TEST_TIMEOUT 1800)
endif()

# What takes a quarter of a minute or more is begun first: the short ones then keep all processors busy to the end.
# CTest knows how long a test takes only from the tests before.
set(GRAVEN_LONG_TEST 1000)
set(GRAVEN_LONGEST_TEST 2000)  # minutes
set(GRAVEN_LONG_PROGRAMS emit networks targets)

# Their graphs are compiled to be run once or twice; those of other tests with the flags that users' have.
set(GRAVEN_COMPILES_ONCE frontend networks ops symbols)

# Others by the tests' compiler, where there is one and not all tests are asked for. Of tests/emit a part goes on as
# users' projects do: what is said to build without a warning, by every compiler, for every processor.
set(GRAVEN_COMPILES_BY_THE_TESTS_COMPILER emit frontend networks)
string(JOIN : GRAVEN_EMITTED_AS_USERS Project.TrainingBuilds* Project.InferenceBuilds* Project.EveryCompiler*
       HostileNames.* Versions.* Processors/*)

# What emitted files include of the standard library, for those that precompile it.
set(GRAVEN_HEADERS_OF_PROJECTS
    algorithm array charconv chrono cmath cstddef cstdint cstdio cstdlib cstring exception functional future
    initializer_list iterator limits map memory new optional span stdexcept string string_view thread tuple type_traits
    utility vector)

# More than half of what such a graph takes to compile by clang++ are the standard library's headers: they stand
# precompiled, with the flags of codegen/build/jit_cpu.cpp. A command of several words has no blanks in them.
set(GRAVEN_JUST_IN_TIME_COMPILER ${GRAVEN_TEST_COMPILER})
if(GRAVEN_TEST_LAUNCHER AND NOT CMAKE_BINARY_DIR MATCHES "[ ;]")
  set(just_in_time ${CMAKE_BINARY_DIR}/just_in_time)
  set(text)
  foreach(header ${GRAVEN_HEADERS_OF_PROJECTS})
    string(APPEND text "#include <${header}>\n")
  endforeach()
  file(CONFIGURE OUTPUT ${just_in_time}/standard.h CONTENT "${text}")
  string(REGEX REPLACE ".*kKernelFlags =[ \n]*\"([^\"]*)\".*" "\\1" just_in_time_flags "${flags_text}")
  separate_arguments(just_in_time_flags)
  add_custom_command(
    OUTPUT ${just_in_time}/standard.pch
    COMMAND ${GRAVEN_TEST_COMPILER} -march=native ${just_in_time_flags} -O0 -std=c++20 -fPIC -fvisibility=hidden
            -pthread -w -fpch-instantiate-templates -x c++-header ${just_in_time}/standard.h -o
            ${just_in_time}/standard.pch -MD -MF ${just_in_time}/standard.d
    DEPFILE ${just_in_time}/standard.d
    DEPENDS ${just_in_time}/standard.h
    VERBATIM)
  add_custom_target(precompiled_just_in_time ALL DEPENDS ${just_in_time}/standard.pch)
  string(APPEND GRAVEN_JUST_IN_TIME_COMPILER " -include-pch ${just_in_time}/standard.pch")
endif()

# What CMake, in a test, compiles emitted projects with.
set(GRAVEN_COMPILE_ONCE CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_SOURCE_DIR}/tests/compile_once.sh)

# Programs of a thousand small tests and more, whose tables take as long to make as a test to run: they are run in a few
# processes, <program>/part_<number> (and so are those of tests/kernels).
set(GRAVEN_MANY_TESTS ops symbols)
set(GRAVEN_PARTS 4)
if(GRAVEN_SANITIZE)
  # To begin takes a process a tenth of a second here, and most of these tests take less.
  list(APPEND GRAVEN_MANY_TESTS frontend passes)
endif()

# Adds the program's tests, <name>/part_<number>, shared by GRAVEN_PARTS processes.
function(graven_add_parts name program variables)
  foreach(number RANGE 1 ${GRAVEN_PARTS})
    math(EXPR index "${number} - 1")
    add_test(NAME ${name}/part_${number} COMMAND ${program})
    set(environment GTEST_TOTAL_SHARDS=${GRAVEN_PARTS} GTEST_SHARD_INDEX=${index} GTEST_BRIEF=1 ${variables})
    set_tests_properties(${name}/part_${number} PROPERTIES LABELS sanitize TIMEOUT ${GRAVEN_TEST_TIMEOUT}
                         COST ${GRAVEN_LONG_TEST} ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# Adds the program's tests that GoogleTest's filter chooses (all where it is empty), with what `ARGN` tells of them.
# NO_PRETTY_VALUES: tests of a table are called by their entries' names, which CMake would follow with the bytes of the
# entries.
function(graven_discover_tests name filter)
  set(which)
  if(filter)
    set(which TEST_FILTER "${filter}")
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}/ NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 ${which}
                       PROPERTIES LABELS sanitize TIMEOUT ${GRAVEN_TEST_TIMEOUT} ${ARGN})
endfunction()

file(GLOB TEST_DIRECTORIES CONFIGURE_DEPENDS LIST_DIRECTORIES true tests/*)
foreach(directory ${TEST_DIRECTORIES})
  get_filename_component(name ${directory} NAME)
  file(GLOB sources CONFIGURE_DEPENDS ${directory}/*.cpp)
  if(NOT sources OR EXISTS ${directory}/CMakeLists.txt)
    continue()
  endif()
  add_executable(test_${name} ${sources})
  graven_test_options(test_${name})
  set(variables)
  if(name MATCHES "^(emit|targets)$")
    set(variables ${GRAVEN_COMPILE_ONCE})
  elseif(name IN_LIST GRAVEN_COMPILES_ONCE)
    set(variables CXXFLAGS=-O0)
  endif()
  if(name IN_LIST GRAVEN_MANY_TESTS)
    if(GRAVEN_TEST_LAUNCHER)
      list(APPEND variables "CXX=${GRAVEN_JUST_IN_TIME_COMPILER}")
    endif()
    graven_add_parts(${name} test_${name} "${variables}")
    continue()
  endif()
  # One at the most: of a list gtest_discover_tests makes several properties.
  if(variables)
    list(PREPEND variables ENVIRONMENT)
  endif()
  if(name IN_LIST GRAVEN_LONG_PROGRAMS)
    list(APPEND variables COST ${GRAVEN_LONG_TEST})
  endif()
  set(filter "")
  if(GRAVEN_TEST_LAUNCHER AND NOT GRAVEN_ALL_TESTS AND name IN_LIST GRAVEN_COMPILES_BY_THE_TESTS_COMPILER)
    set(compiler ${GRAVEN_JUST_IN_TIME_COMPILER})
    if(name STREQUAL "emit")
      graven_discover_tests(emit "${GRAVEN_EMITTED_AS_USERS}" ${variables})
      set(filter "-${GRAVEN_EMITTED_AS_USERS}")
      set(compiler ${GRAVEN_TEST_COMPILER})
    endif()
    # Not a second variable of ENVIRONMENT: see above.
    list(APPEND variables ENVIRONMENT_MODIFICATION "CXX=set:${compiler}")
  endif()
  graven_discover_tests(${name} "${filter}" ${variables})
endforeach()
# It compiles what it emits.
target_compile_definitions(test_emit PRIVATE GRAVEN_CXX="${CMAKE_CXX_COMPILER}"
                           GRAVEN_SANITIZED=$<BOOL:${GRAVEN_SANITIZE}>)
target_compile_definitions(test_errors PRIVATE GRAVEN_CXX="${CMAKE_CXX_COMPILER}"
                           GRAVEN_SANITIZED=$<BOOL:${GRAVEN_SANITIZE}>)
foreach(name command emit errors)
  add_dependencies(test_${name} graven_command)
endforeach()

file(GLOB TEST_SUBPROJECTS CONFIGURE_DEPENDS tests/*/CMakeLists.txt)
foreach(file ${TEST_SUBPROJECTS})
  get_filename_component(directory ${file} DIRECTORY)
  add_subdirectory(${directory})
endforeach()
