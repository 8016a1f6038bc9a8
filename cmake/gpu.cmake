# The library of GPU kernels, if there is an nvcc: the one of TESSERA_NVCC, of a CUDA toolkit, or of PyPI's wheels
# nvidia-cuda-nvcc, -nvvm, -crt, -cccl and -runtime, unpacked next to LibTorch's. Without one the build is the same
# but for this library, and GPUs compute with LibTorch's kernels.
set(TESSERA_NVCC "" CACHE FILEPATH "nvcc of CUDA 12.8 or later; empty: searched for; OFF: no library of GPU kernels")
set(TESSERA_GPU_ARCHITECTURES "80;90a;100;120" CACHE STRING "compute capabilities of the GPU kernels")

set(tessera_nvcc ${TESSERA_NVCC})
if("${TESSERA_NVCC}" STREQUAL "")
  file(GLOB tessera_nvcc_wheels "${TESSERA_TORCH}/../nvidia/cu*/bin" "${TESSERA_TORCH}/../nvidia/cuda_nvcc/bin")
  find_program(TESSERA_NVCC_FOUND nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin
               PATHS /usr/local/cuda/bin ${tessera_nvcc_wheels})
  set(tessera_nvcc ${TESSERA_NVCC_FOUND})
endif()
if(tessera_nvcc AND NOT EXISTS "${tessera_nvcc}")
  message(FATAL_ERROR "no nvcc at TESSERA_NVCC=${tessera_nvcc}: give the path of the program, or OFF")
endif()
if(tessera_nvcc)
  execute_process(COMMAND ${tessera_nvcc} --version OUTPUT_VARIABLE tessera_nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" tessera_nvcc_version "${tessera_nvcc_version}")
  if("${CMAKE_MATCH_1}" VERSION_LESS 12.8)
    message(STATUS "${tessera_nvcc} is of CUDA ${CMAKE_MATCH_1}, the GPU kernels need 12.8: no library of GPU kernels")
    set(tessera_nvcc)
  endif()
endif()
if(tessera_nvcc)
  get_filename_component(tessera_nvcc_real "${tessera_nvcc}" REALPATH)
  get_filename_component(tessera_nvcc_root "${tessera_nvcc_real}/../.." ABSOLUTE)
  file(GLOB tessera_cudart "${tessera_nvcc_root}/lib64/libcudart.so*" "${tessera_nvcc_root}/lib/libcudart.so*"
       "${tessera_nvcc_root}/targets/*/lib/libcudart.so*" "${TESSERA_TORCH}/../nvidia/cu*/lib/libcudart.so*"
       "${tessera_nvcc_root}/../cuda_runtime/lib/libcudart.so*")
  if(NOT tessera_cudart)
    message(STATUS "no libcudart.so of ${tessera_nvcc}: no library of GPU kernels")
    set(tessera_nvcc)
  endif()
endif()
if(TESSERA_SANITIZE)
  set(tessera_nvcc)
endif()
if(NOT tessera_nvcc)
  message(STATUS "no library of GPU kernels is built: GPUs compute with LibTorch's alone")
endif()

# nvcc takes minutes, so only a machine with a GPU builds the library along with the program.
set(tessera_has_gpu OFF)
if(TESSERA_CUDA OR EXISTS /dev/nvidiactl)
  set(tessera_has_gpu ON)
endif()
option(TESSERA_GPU_KERNELS "build the library of GPU kernels with the program (OFF: only by `ninja tessera_gpu`)" ${tessera_has_gpu})

# tessera_gpu_library(NAME SOURCES…): the library lib<NAME>.so next to the program, and the compiler's report of
# registers and memory next to each object (make cuda-check).
function(tessera_gpu_library name)
  if(NOT tessera_nvcc)
    return()
  endif()
  set(flags -std=c++20 -O3 -I${PROJECT_SOURCE_DIR}/src --expt-relaxed-constexpr -Xptxas -v -Werror all-warnings
            -Xfatbin=-compress-all
            -Xcompiler=-fPIC,-fvisibility=hidden)
  foreach(architecture IN LISTS TESSERA_GPU_ARCHITECTURES)
    list(APPEND flags -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  # Later GPUs compile the last one's intermediate code when they load it.
  list(GET TESSERA_GPU_ARCHITECTURES -1 last)
  list(APPEND flags -gencode=arch=compute_${last},code=compute_${last})
  string(REPLACE ";" "\\;" images "${TESSERA_GPU_ARCHITECTURES}")
  list(APPEND flags "-DTESSERA_GPU_IMAGES=\"${images}\"")
  set(objects)
  foreach(source IN LISTS ARGN)
    string(REPLACE "/" "_" object ${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${object}.o)
    get_filename_component(folder ${object} DIRECTORY)
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${object}.report
      COMMAND sh -c "\"$@\" 2> ${object}.report || { cat ${object}.report >&2; exit 1; }" sh
              ${CMAKE_CXX_COMPILER_LAUNCHER} ${tessera_nvcc} ${flags} -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d
      COMMENT "nvcc ${source}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  list(GET tessera_cudart 0 cudart)
  add_library(${name} SHARED ${objects})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  if(NOT TESSERA_GPU_KERNELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${cudart})
endfunction()

# tessera_graph_library(NAME SOURCE): the library of graphs next to the program. g++ compiles it, without nvcc, if LibTorch has its
# GPU half and there are CUDA's headers: of the wheels next to LibTorch, or of a toolkit.
function(tessera_graph_library name source)
  file(GLOB headers "${TESSERA_TORCH}/../nvidia/cu*/include/cuda_runtime_api.h"
       "${TESSERA_TORCH}/../nvidia/cuda_runtime/include/cuda_runtime_api.h" "${tessera_nvcc_root}/include/cuda_runtime_api.h")
  file(GLOB runtime "${TESSERA_TORCH}/../nvidia/cu*/lib/libcudart.so*" "${TESSERA_TORCH}/../nvidia/cuda_runtime/lib/libcudart.so*")
  list(APPEND runtime ${tessera_cudart})
  set(halves ${TESSERA_TORCH}/lib/libtorch_cuda.so ${TESSERA_TORCH}/lib/libc10_cuda.so)
  foreach(needed IN LISTS halves ITEMS ${TESSERA_TORCH}/include/ATen/cuda/CUDAGraph.h)
    if(NOT EXISTS ${needed})
      set(headers)
    endif()
  endforeach()
  if(NOT headers OR NOT runtime OR TESSERA_SANITIZE)
    message(STATUS "no library of a GPU's graphs is built: LibTorch's GPU half or CUDA's headers are missing")
    return()
  endif()
  list(GET headers 0 header)
  list(GET runtime 0 runtime)
  get_filename_component(header ${header} DIRECTORY)
  add_library(${name} MODULE ${source})
  tessera_settings(${name} OFF)
  target_include_directories(${name} SYSTEM PRIVATE ${TESSERA_TORCH}/include ${header})
  target_compile_options(${name} PRIVATE -fvisibility=hidden)
  # The program has loaded both halves of LibTorch, so what else these need is not looked for.
  target_link_libraries(${name} PRIVATE ${halves} ${TESSERA_TORCH}/lib/libtorch_cpu.so ${TESSERA_TORCH}/lib/libc10.so ${runtime}
                        -Wl,--no-undefined,--allow-shlib-undefined)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  if(NOT TESSERA_GPU_KERNELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
