# samples/NN_name.cpp is the program build/samples/NN_name.
file(GLOB SAMPLES CONFIGURE_DEPENDS samples/*.cpp)
foreach(source ${SAMPLES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE graven)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/samples)
  graven_warnings(${name})
endforeach()
