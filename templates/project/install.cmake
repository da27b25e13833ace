# ---- cmake --install build --prefix DIR: a library for find_package() ------------------------------------------------
set_target_properties(@{ namespace }@ PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS @{ namespace }@ RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS @{ namespace }@_model EXPORT @{ namespace }@_targets)
install(FILES model.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/@{ namespace }@)
{% if has_weights %}
install(FILES weights.safetensors DESTINATION ${CMAKE_INSTALL_DATADIR}/@{ namespace }@)
{% endif %}
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/@{ namespace }@)
install(EXPORT @{ namespace }@_targets NAMESPACE @{ namespace }@:: DESTINATION ${package})
{% if has_ranks and not on_device %}
set(find_mpi)
if(GRAVEN_MPI)
  set(find_mpi "set(MPI_CXX_SKIP_MPICXX TRUE)\nfind_dependency(MPI COMPONENTS CXX)\n")
endif()
{% endif %}
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/@{ namespace }@-config.cmake "include(CMakeFindDependencyMacro)
find_dependency(Threads)
{% if has_ranks and not on_device %}
${find_mpi}{% endif %}
{% if on_device %}
find_dependency(CUDAToolkit)
{% endif %}
include(\${CMAKE_CURRENT_LIST_DIR}/@{ namespace }@_targets.cmake)
")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/@{ namespace }@-config.cmake DESTINATION ${package})
