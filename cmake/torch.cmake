# LibTorch as one imported target, tessera::torch.
#
# A CPU build takes the PyPI wheel as it lies on disk: the wheel's own TorchConfig.cmake insists on a CUDA
# toolkit, so the few libraries that a CPU program needs are named here. A CUDA build uses TorchConfig.cmake.
set(TESSERA_TORCH "${PROJECT_SOURCE_DIR}/build/deps/torch-2.11/torch" CACHE PATH
    "folder of a LibTorch 2.11 to 2.15 (holds include/ and lib/)")
if(NOT EXISTS "${TESSERA_TORCH}/include/torch/csrc/api/include/torch/torch.h")
  message(FATAL_ERROR "no LibTorch in TESSERA_TORCH=${TESSERA_TORCH}: run `make deps`, "
                      "or give -DTESSERA_TORCH=DIR with include/ and lib/ inside")
endif()
file(STRINGS "${TESSERA_TORCH}/include/torch/headeronly/version.h" torch_version_lines
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR) +[0-9]+")
string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" TESSERA_TORCH_VERSION "${torch_version_lines}")
if(TESSERA_TORCH_VERSION VERSION_LESS 2.11 OR TESSERA_TORCH_VERSION VERSION_GREATER 2.15)
  message(FATAL_ERROR "LibTorch ${TESSERA_TORCH_VERSION} in ${TESSERA_TORCH}: 2.11 to 2.15 are supported")
endif()
message(STATUS "LibTorch ${TESSERA_TORCH_VERSION} in ${TESSERA_TORCH}")

add_library(tessera_torch INTERFACE)
add_library(tessera::torch ALIAS tessera_torch)
set_target_properties(tessera_torch PROPERTIES EXPORT_NAME torch)
if(TESSERA_CUDA)
  list(APPEND CMAKE_PREFIX_PATH "${TESSERA_TORCH}")
  if(NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0" CACHE STRING "GPU architectures")
  endif()
  find_package(Torch REQUIRED)
  target_link_libraries(tessera_torch INTERFACE torch)
  target_include_directories(tessera_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
else()
  set(torch_lib "${TESSERA_TORCH}/lib")
  file(GLOB torch_cuda_libs "${TESSERA_TORCH}/../nvidia/cu*/lib" "${TESSERA_TORCH}/../nvidia/cuda_*/lib")
  target_include_directories(tessera_torch SYSTEM INTERFACE
    "${TESSERA_TORCH}/include" "${TESSERA_TORCH}/include/torch/csrc/api/include")
  target_link_libraries(tessera_torch INTERFACE
    "${torch_lib}/libtorch.so" "${torch_lib}/libtorch_cpu.so" "${torch_lib}/libc10.so")
  set(torch_rpath "${torch_lib}")
  foreach(dir IN LISTS torch_cuda_libs)
    get_filename_component(dir "${dir}" ABSOLUTE)
    list(APPEND torch_rpath "${dir}")
    target_link_options(tessera_torch INTERFACE "LINKER:-rpath-link,${dir}")
  endforeach()
  # One OpenMP runtime in the process: the wheel's libgomp.so.1, which the wheel's libraries load too.
  file(GLOB torch_gomp "${torch_lib}/libgomp*.so*")
  target_link_options(tessera_torch INTERFACE "LINKER:-rpath-link,${torch_lib}")
  target_link_libraries(tessera_torch INTERFACE ${torch_gomp})
  list(APPEND CMAKE_BUILD_RPATH ${torch_rpath})
  list(APPEND CMAKE_INSTALL_RPATH ${torch_rpath})
endif()
target_compile_options(tessera_torch INTERFACE -fopenmp)

# The one precompiled header: 45 s once, then a file of models/ takes 8 s instead of 20.
add_library(torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_compile_features(torch_pch PUBLIC cxx_std_20)
target_compile_options(torch_pch PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fopenmp)
target_link_libraries(torch_pch PRIVATE tessera_torch)
target_precompile_headers(torch_pch PRIVATE <torch/torch.h>)
