# GRAVEN_KERNEL_FLAGS: what the kernels are compiled with, from codegen/kernel_flags.h.
set(flags_name kKernelFlags)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(flags_name kKernelFlagsOfGnu)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/codegen/kernel_flags.h)
file(READ ${CMAKE_SOURCE_DIR}/codegen/kernel_flags.h flags_text)
string(REGEX REPLACE ".*${flags_name} =[ \n]*\"([^\"]*)\".*" "\\1" GRAVEN_KERNEL_FLAGS "${flags_text}")
separate_arguments(GRAVEN_KERNEL_FLAGS)
