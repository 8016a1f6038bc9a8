# `cmake --install`: the program, the layers as static libraries, their headers, a CMake package, and
# (component torch) the required part of LibTorch.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(TESSERA_INSTALL_TORCH ON CACHE BOOL "also install LibTorch's libraries and headers (0.6 GB), to be independent of the build tree")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
set(torch_dir ${CMAKE_INSTALL_LIBDIR}/tessera/torch)
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
list(REMOVE_ITEM layers tessera_cli)
list(TRANSFORM layers REPLACE "^tessera_" "tessera::" OUTPUT_VARIABLE tessera_exported_layers)
add_custom_target(installable DEPENDS ${layers})
install(TARGETS ${layers} EXPORT tessera ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
install(EXPORT tessera NAMESPACE tessera:: FILE tessera-targets.cmake DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera
        FILES_MATCHING PATTERN "*.h" PATTERN "*testing.h" EXCLUDE PATTERN "cli" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tessera-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/tessera-config.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/tessera-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tessera-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tessera-config-version.cmake
              ${CMAKE_CURRENT_LIST_DIR}/torch_target.cmake
        DESTINATION ${package_dir})

if(TARGET tessera)
  add_dependencies(installable tessera)
  # The installed LibTorch, else the one of the build.
  set(torch_rpath ${TESSERA_TORCH}/lib)
  if(TESSERA_INSTALL_TORCH)
    file(RELATIVE_PATH from_program /${CMAKE_INSTALL_BINDIR} /${torch_dir}/lib)
    set(torch_rpath "$ORIGIN/${from_program}")
  endif()
  set_target_properties(tessera_program PROPERTIES INSTALL_RPATH "${torch_rpath}")
  install(TARGETS tessera tessera_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET tessera_gpu AND TESSERA_GPU_KERNELS)  # the program looks for it in its own folder
    add_dependencies(tessera_program tessera_gpu)
    install(TARGETS tessera_gpu LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  if(TARGET tessera_gpu_torch AND TESSERA_GPU_KERNELS)
    add_dependencies(tessera_program tessera_gpu_torch)
    install(TARGETS tessera_gpu_torch LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
  install(CODE "execute_process(COMMAND $<TARGET_FILE:tessera> manual
    -o \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
if(TESSERA_WITH_TORCH AND TESSERA_INSTALL_TORCH)
  # libtorch_cpu.so also searches its own folder for its CUDA libraries.
  file(GLOB torch_libs ${TESSERA_TORCH}/lib/libtorch_cpu.so* ${TESSERA_TORCH}/lib/libc10.so*
       ${TESSERA_TORCH}/lib/libgomp*.so* ${TESSERA_TORCH}/../nvidia/cu*/lib/libcudart.so*
       ${TESSERA_TORCH}/../nvidia/cu*/lib/libcupti.so*)
  install(FILES ${torch_libs} DESTINATION ${torch_dir}/lib COMPONENT torch)
  install(DIRECTORY ${TESSERA_TORCH}/include DESTINATION ${torch_dir} COMPONENT torch)
endif()
