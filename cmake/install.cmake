# cmake --install: the library, the command, the public headers, and a package that find_package(graven) finds.
#
#   find_package(graven 0.1 REQUIRED)
#   target_link_libraries(my_program PRIVATE graven::graven)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(GRAVEN_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR}/graven-${PROJECT_VERSION})

install(TARGETS graven EXPORT graven-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${GRAVEN_INCLUDE_DIR})
if(TARGET graven_command)
  install(TARGETS graven_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY frontend/include/graven DESTINATION ${GRAVEN_INCLUDE_DIR} FILES_MATCHING PATTERN "*.h")
# What the public headers speak of: the graph and the options of emission. Not the kernels, not the generator's inside.
file(GLOB IR_HEADERS ir/*.h ir/op_list.inc)
install(FILES ${IR_HEADERS} DESTINATION ${GRAVEN_INCLUDE_DIR}/ir)
install(FILES ir/passes/pass.h DESTINATION ${GRAVEN_INCLUDE_DIR}/ir/passes)
install(FILES codegen/emit/project.h DESTINATION ${GRAVEN_INCLUDE_DIR}/codegen/emit)

# The pages, and what they link to. Links to headers go to where those are installed; the others hold as they are.
set(GRAVEN_DOC_DIR ${CMAKE_INSTALL_DATADIR}/doc/graven)
install(FILES LICENSE ARCHITECTURE.md DESTINATION ${GRAVEN_DOC_DIR})
install(DIRECTORY samples DESTINATION ${GRAVEN_DOC_DIR})
file(RELATIVE_PATH to_headers ${CMAKE_INSTALL_FULL_DATADIR}/doc/graven
     ${CMAKE_INSTALL_FULL_INCLUDEDIR}/graven-${PROJECT_VERSION}/graven)
file(GLOB pages RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS README.md docs/*.md)
foreach(page IN LISTS pages)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${page})
  file(READ ${page} text)
  string(REPLACE "](frontend/include/graven" "](${to_headers}" text "${text}")
  string(REPLACE "](../frontend/include/graven" "](../${to_headers}" text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/installed_pages/${page} CONTENT "@text@" @ONLY)
  # Tests that a page shows as examples.
  string(REGEX MATCHALL "\\(tests/[^)#]+" shown "${text}")
  foreach(link IN LISTS shown)
    string(REGEX REPLACE "^.tests/" "tests/" file "${link}")
    get_filename_component(folder ${file} DIRECTORY)
    install(FILES ${file} DESTINATION ${GRAVEN_DOC_DIR}/${folder})
  endforeach()
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${CMAKE_BINARY_DIR}/installed_pages/${page} DESTINATION ${GRAVEN_DOC_DIR}/${folder})
endforeach()

string(REGEX MATCH "^[0-9]+" fmt_VERSION_MAJOR "${fmt_VERSION}")
install(EXPORT graven-targets NAMESPACE graven:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graven)
configure_package_config_file(cmake/graven-config.cmake.in ${CMAKE_BINARY_DIR}/graven-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graven)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/graven-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/graven-config.cmake ${CMAKE_BINARY_DIR}/graven-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graven)
