# ---- a shared library (BUILD_SHARED_LIBS) ----------------------------------------------------------------------------
# It shows model.h and nothing else. Its version is the graph's: programs and libraries get the one that they were
# linked with, several of them in one process, too.
set(again)
get_target_property(kind @{ namespace }@_model TYPE)
if(kind STREQUAL "SHARED_LIBRARY")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/graph.json)
  file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/graph.json version)
  string(SUBSTRING ${version} 0 12 version)
  set(shown ${CMAKE_CURRENT_BINARY_DIR}/@{ namespace }@.map)
  file(WRITE ${shown} "@{ namespace }@_${version} {
  global: @{ namespace }@_*; extern \"C++\" { @{ namespace }@::*::Model::*; @{ namespace }@::*::Weights::*; };
  local: *;
};
")
  target_link_options(@{ namespace }@_model PRIVATE LINKER:--version-script=${shown})
  set_target_properties(@{ namespace }@_model PROPERTIES SOVERSION ${version} LINK_DEPENDS ${shown})
  set(again @{ model_runtime_sources }@)  # of the run time that the library hides, the programs have their own
else()
  # A host in C alone links with the C compiler, which does not bring the library of C++.
  set(of_cxx ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(REMOVE_DUPLICATES of_cxx)
  list(FILTER of_cxx INCLUDE REGEX "^(stdc[+][+]|c[+][+]|c[+][+]abi|m)$")
  if(NOT CMAKE_VERSION VERSION_LESS 3.18)
    set(of_cxx "$<$<LINK_LANGUAGE:C>:${of_cxx}>")
  endif()
  target_link_libraries(@{ namespace }@_model INTERFACE "${of_cxx}")
endif()
