# ---- the run time of emitted projects, which the library uses for files ----------------------------------------------
file(GLOB RUNTIME_SOURCES CONFIGURE_DEPENDS runtime_min/*.cpp)
add_library(graven_runtime OBJECT ${RUNTIME_SOURCES})
target_include_directories(graven_runtime PUBLIC ${CMAKE_SOURCE_DIR})
graven_optimise(graven_runtime)
graven_warnings(graven_runtime)
graven_tell_fuzzers(graven_runtime)

# ---- the table of compiled kernels for eager mode: written by a program from the operators' entries ------------------
option(GRAVEN_NATIVE "Compile the kernels of eager mode for this machine's processor" ON)
set(EAGER_TABLE_PARTS 6)
set(EAGER_TABLE_DIRECTORY ${CMAKE_BINARY_DIR}/eager_table)
file(GLOB LOWERING_SOURCES CONFIGURE_DEPENDS codegen/lowering/*.cpp)
add_executable(graven_eager_table codegen/eager_table/main.cpp codegen/emit/functor.cpp codegen/emit/scalar_text.cpp
               codegen/emit/update.cpp codegen/targets/cpu/kernels.cpp frontend/eager/key.cpp ${LOWERING_SOURCES}
               ${GRAVEN_IR_OBJECTS} $<TARGET_OBJECTS:graven_runtime>)
target_include_directories(graven_eager_table PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(graven_eager_table PRIVATE nlohmann_json::nlohmann_json fmt::fmt Threads::Threads)
target_precompile_headers(graven_eager_table REUSE_FROM graven_ir)
graven_warnings(graven_eager_table)
graven_tell_fuzzers(graven_eager_table)
file(GLOB_RECURSE KERNEL_HEADERS CONFIGURE_DEPENDS kernels/cpu/*.h kernels/reference/*.h kernels/config/*.h)
set(EAGER_TABLE_SOURCES ${EAGER_TABLE_DIRECTORY}/parts.cpp)
math(EXPR last_part "${EAGER_TABLE_PARTS} - 1")
foreach(part RANGE ${last_part})
  list(APPEND EAGER_TABLE_SOURCES ${EAGER_TABLE_DIRECTORY}/part_${part}.cpp)
endforeach()
add_custom_command(
  OUTPUT ${EAGER_TABLE_SOURCES}
  COMMAND graven_eager_table ${CMAKE_SOURCE_DIR} ${EAGER_TABLE_DIRECTORY} ${EAGER_TABLE_PARTS}
  DEPENDS graven_eager_table ${KERNEL_HEADERS}
  COMMENT "Writing the table of eager kernels")
set(EAGER_KERNEL_SOURCES ${EAGER_TABLE_SOURCES} ${CMAKE_SOURCE_DIR}/frontend/eager/broadcast.cpp
                         ${CMAKE_SOURCE_DIR}/frontend/eager/convert_halves.cpp)
set_source_files_properties(${EAGER_KERNEL_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
set(EAGER_KERNEL_FLAGS ${GRAVEN_KERNEL_FLAGS})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # An optimizer's options are read at run time here. Its loop becomes one for each choice of them, or else it would not
  # be vectorised.
  include(CheckCXXCompilerFlag)
  foreach(flag --param=max-unswitch-insns=300 --param=max-unswitch-level=6 --param=max-unswitch-depth=6)
    string(MAKE_C_IDENTIFIER "GRAVEN_HAS${flag}" has_flag)
    check_cxx_compiler_flag(${flag} ${has_flag})
    if(${has_flag})
      list(APPEND EAGER_KERNEL_FLAGS ${flag})  # from g++ 13 on the level is called depth
    endif()
  endforeach()
endif()
if(GRAVEN_SANITIZE)
  set(EAGER_KERNEL_FLAGS -O0)  # compiled four times as fast; tests/kernels have the same kernels under the sanitizers
endif()
if(GRAVEN_SANITIZE STREQUAL "address")
  list(APPEND EAGER_KERNEL_FLAGS -fsanitize=alignment)
endif()
set_source_files_properties(${EAGER_KERNEL_SOURCES} PROPERTIES COMPILE_OPTIONS "${EAGER_KERNEL_FLAGS}")
# Millions of numbers are drawn for a network's parameters; without -march, so that they are the same on every
# processor.
set_source_files_properties(${CMAKE_SOURCE_DIR}/frontend/random.cpp PROPERTIES COMPILE_OPTIONS "-O2"
                            SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
if(GRAVEN_SANITIZE)
  # The search for places in the arena is what most plans take their time for.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/codegen/plan/arena.cpp PROPERTIES COMPILE_OPTIONS "-O1"
                              SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endif()
if(GRAVEN_NATIVE AND NOT GRAVEN_SANITIZE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native GRAVEN_HAS_MARCH_NATIVE)
  if(GRAVEN_HAS_MARCH_NATIVE)
    set_source_files_properties(${EAGER_KERNEL_SOURCES} PROPERTIES COMPILE_OPTIONS
                                "${EAGER_KERNEL_FLAGS};-march=native")
  endif()
  # Clang 19 names processors with AVX10 by features that it warns of itself.
  check_cxx_compiler_flag(-Winvalid-feature-combination GRAVEN_HAS_INVALID_FEATURE_COMBINATION)
  if(GRAVEN_HAS_MARCH_NATIVE AND GRAVEN_HAS_INVALID_FEATURE_COMBINATION)
    set_property(SOURCE ${EAGER_KERNEL_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -Wno-invalid-feature-combination)
  endif()
endif()

# ---- the table of launchers of CUDA kernels: the host's side of kernels/cuda, compiled without a toolkit -------------
set(CUDA_TABLE_PARTS 4)
set(CUDA_TABLE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda_table)
add_executable(graven_cuda_table codegen/cuda_table/main.cpp codegen/cuda_table/host_text.cpp codegen/build/cuda/key.cpp
               codegen/targets/cuda/kernels.cpp ${LOWERING_SOURCES} ${GRAVEN_IR_OBJECTS}
               $<TARGET_OBJECTS:graven_runtime>)
target_include_directories(graven_cuda_table PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(graven_cuda_table PRIVATE nlohmann_json::nlohmann_json fmt::fmt Threads::Threads)
target_precompile_headers(graven_cuda_table REUSE_FROM graven_ir)
graven_warnings(graven_cuda_table)
graven_tell_fuzzers(graven_cuda_table)
file(GLOB CUDA_KERNEL_FILES CONFIGURE_DEPENDS kernels/cuda/*.cuh kernels/config/*.h)
set(CUDA_TABLE_SOURCES ${CUDA_TABLE_DIRECTORY}/parts.cpp)
math(EXPR last_part "${CUDA_TABLE_PARTS} - 1")
foreach(part RANGE ${last_part})
  list(APPEND CUDA_TABLE_SOURCES ${CUDA_TABLE_DIRECTORY}/part_${part}.cpp)
endforeach()
# Written as well, and looked at again behind it: what includes them is compiled in the same run.
set(CUDA_TABLE_HEADERS)
foreach(file ${CUDA_KERNEL_FILES})
  if(file MATCHES "/kernels/cuda/")
    get_filename_component(name ${file} NAME)
    list(APPEND CUDA_TABLE_HEADERS ${CUDA_TABLE_DIRECTORY}/cuda_host/${name})
  endif()
endforeach()
add_custom_command(
  OUTPUT ${CUDA_TABLE_SOURCES}
  BYPRODUCTS ${CUDA_TABLE_HEADERS}
  COMMAND graven_cuda_table ${CMAKE_SOURCE_DIR} ${CUDA_TABLE_DIRECTORY} ${CUDA_TABLE_PARTS}
  DEPENDS graven_cuda_table ${CUDA_KERNEL_FILES}
  COMMENT "Writing the table of CUDA launchers")
file(GLOB CUDA_HOST_SOURCES CONFIGURE_DEPENDS codegen/build/cuda/*.cpp codegen/build/jit_cuda.cpp)
list(FILTER CUDA_HOST_SOURCES EXCLUDE REGEX "/key.cpp")  # the generator's, too
# -O0: they choose what is launched, and compute nothing. Kernels' parameters are not used there, nor is
# `#pragma unroll` known.
set_source_files_properties(
  ${CUDA_TABLE_SOURCES} ${CUDA_HOST_SOURCES}
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON INCLUDE_DIRECTORIES
             "${CMAKE_SOURCE_DIR}/codegen/build/cuda/toolkit;${CUDA_TABLE_DIRECTORY}")
set_source_files_properties(${CUDA_TABLE_SOURCES}
                            PROPERTIES COMPILE_OPTIONS "-O0;-Wno-unused-parameter;-Wno-unknown-pragmas")
set_source_files_properties(${CUDA_HOST_SOURCES}
                            PROPERTIES COMPILE_OPTIONS "-Wno-unused-parameter;-Wno-unknown-pragmas" OBJECT_DEPENDS
                            ${CUDA_TABLE_DIRECTORY}/parts.cpp)

file(GLOB_RECURSE LIBRARY_SOURCES CONFIGURE_DEPENDS frontend/*.cpp codegen/*.cpp)
list(FILTER LIBRARY_SOURCES EXCLUDE REGEX "codegen/cli/|codegen/(eager|cuda)_table/|/templates/")
add_library(graven STATIC ${GRAVEN_IR_OBJECTS} $<TARGET_OBJECTS:graven_runtime> ${LIBRARY_SOURCES}
            ${EAGER_TABLE_SOURCES} ${CUDA_TABLE_SOURCES})
target_include_directories(graven PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                           $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/frontend/include>)
target_include_directories(graven SYSTEM PRIVATE ${INJA_INCLUDE_DIR})
target_link_libraries(graven PUBLIC nlohmann_json::nlohmann_json fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(graven PROPERTIES LINKER_LANGUAGE CXX)
set_source_files_properties(${CMAKE_SOURCE_DIR}/codegen/build/tuning.cpp
                            PROPERTIES COMPILE_DEFINITIONS GRAVEN_VERSION="${PROJECT_VERSION}"
                                       SKIP_UNITY_BUILD_INCLUSION ON)
target_compile_features(graven PUBLIC cxx_std_20)
target_precompile_headers(graven PRIVATE ${GRAVEN_STANDARD_HEADERS} ${GRAVEN_IR_HEADERS} <nlohmann/json.hpp>
                          <graven/graven.h>)
graven_optimise(graven)
graven_warnings(graven)
graven_few_checks(graven)

# ---- the texts of emitted projects, compiled into the library --------------------------------------------------------
file(GLOB_RECURSE EMBEDDED_FILES RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS templates/*
     codegen/targets/*/templates/* kernels/*.h kernels/*.cuh kernels/cuda/nvrtc/*
     runtime_min/*.h runtime_min/*.cpp)
# LICENSE is not in the GLOB: it would be every folder's, of build trees and their projects as well.
list(APPEND EMBEDDED_FILES LICENSE)
list(SORT EMBEDDED_FILES)
string(REPLACE ";" "\n" EMBEDDED_LIST "${EMBEDDED_FILES}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded_files.txt CONTENT "${EMBEDDED_LIST}\n" @ONLY)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/embedded_files.cpp
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DLIST=${CMAKE_BINARY_DIR}/embedded_files.txt
          -DOUTPUT=${CMAKE_BINARY_DIR}/embedded_files.cpp -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${EMBEDDED_FILES} ${CMAKE_BINARY_DIR}/embedded_files.txt ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
target_sources(graven PRIVATE ${CMAKE_BINARY_DIR}/embedded_files.cpp)
set_source_files_properties(${CMAKE_BINARY_DIR}/embedded_files.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                            SKIP_PRECOMPILE_HEADERS ON)
