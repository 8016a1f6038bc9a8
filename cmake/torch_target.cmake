# Defines tessera::torch, an imported target for the LibTorch in folder TESSERA_TORCH. Used by the build and
# the installed package.
#
# A CPU build uses the unpacked PyPI wheel. The wheel's own TorchConfig.cmake requires a CUDA toolkit, so the
# few libraries for a CPU program are listed here. libtorch.so is not among them: it loads the GPU half. A
# CUDA build uses TorchConfig.cmake.
set(tessera_torch_version_file "${TESSERA_TORCH}/include/torch/headeronly/version.h")
if(NOT EXISTS "${tessera_torch_version_file}")
  message(FATAL_ERROR "no LibTorch in TESSERA_TORCH=${TESSERA_TORCH}: run `make deps`, "
                      "or give -DTESSERA_TORCH=DIR with include/ and lib/ inside")
endif()
file(STRINGS "${tessera_torch_version_file}" tessera_torch_version_lines
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR) +[0-9]+")
string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2"
       TESSERA_TORCH_VERSION "${tessera_torch_version_lines}")
if(TESSERA_TORCH_VERSION VERSION_LESS 2.11 OR TESSERA_TORCH_VERSION VERSION_GREATER 2.15)
  message(FATAL_ERROR "LibTorch ${TESSERA_TORCH_VERSION} in ${TESSERA_TORCH}: 2.11 to 2.15 are supported")
endif()

add_library(tessera::torch INTERFACE IMPORTED GLOBAL)
target_compile_options(tessera::torch INTERFACE -fopenmp)
if(TESSERA_CUDA)
  list(APPEND CMAKE_PREFIX_PATH "${TESSERA_TORCH}")
  if(NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0" CACHE STRING "GPU architectures")
  endif()
  find_package(Torch REQUIRED)
  target_link_libraries(tessera::torch INTERFACE torch)
  target_include_directories(tessera::torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
else()
  set(tessera_torch_lib "${TESSERA_TORCH}/lib")
  target_include_directories(tessera::torch SYSTEM INTERFACE
    "${TESSERA_TORCH}/include" "${TESSERA_TORCH}/include/torch/csrc/api/include")
  # One OpenMP runtime in the process: the wheel's libgomp.so.1, which the wheel's libraries also load.
  file(GLOB tessera_torch_gomp "${tessera_torch_lib}/libgomp*.so*")
  target_link_libraries(tessera::torch INTERFACE
    "${tessera_torch_lib}/libtorch_cpu.so" "${tessera_torch_lib}/libc10.so" ${tessera_torch_gomp})
  # At run time libtorch_cpu.so finds these two by its own RPATH; the linker needs their path.
  file(GLOB tessera_torch_cuda_lib "${TESSERA_TORCH}/../nvidia/cu*/lib" "${TESSERA_TORCH}/../nvidia/cuda_*/lib")
  foreach(dir IN LISTS tessera_torch_lib tessera_torch_cuda_lib)
    get_filename_component(dir "${dir}" ABSOLUTE)
    target_link_options(tessera::torch INTERFACE "LINKER:-rpath-link,${dir}")
  endforeach()
endif()
