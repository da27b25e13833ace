file(GLOB_RECURSE LIBRARY_SOURCES CONFIGURE_DEPENDS frontend/*.cpp codegen/*.cpp runtime_min/*.cpp)
list(FILTER LIBRARY_SOURCES EXCLUDE REGEX "codegen/cli/|frontend/eager/table/")
add_library(graven STATIC $<TARGET_OBJECTS:graven_ir> ${LIBRARY_SOURCES})
target_include_directories(graven PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/frontend/include)
target_include_directories(graven SYSTEM PRIVATE ${INJA_INCLUDE_DIR})
target_link_libraries(graven PUBLIC nlohmann_json::nlohmann_json fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(graven PROPERTIES LINKER_LANGUAGE CXX)
graven_warnings(graven)

# ---- the texts of emitted projects, compiled into the library ----------------------------------------------------------------------------
file(GLOB_RECURSE EMBEDDED_FILES RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS templates/* kernels/*.h kernels/*.cuh runtime_min/*.h runtime_min/*.cpp)
list(SORT EMBEDDED_FILES)
string(REPLACE ";" "\n" EMBEDDED_LIST "${EMBEDDED_FILES}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded_files.txt CONTENT "${EMBEDDED_LIST}\n" @ONLY)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/embedded_files.cpp
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DLIST=${CMAKE_BINARY_DIR}/embedded_files.txt -DOUTPUT=${CMAKE_BINARY_DIR}/embedded_files.cpp
          -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${EMBEDDED_FILES} ${CMAKE_BINARY_DIR}/embedded_files.txt ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
target_sources(graven PRIVATE ${CMAKE_BINARY_DIR}/embedded_files.cpp)
