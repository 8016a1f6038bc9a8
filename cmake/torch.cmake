# LibTorch for the build: its folder and its one precompiled header.
set(TESSERA_TORCH "${PROJECT_SOURCE_DIR}/build/deps/torch-2.11/torch" CACHE PATH
    "folder of a LibTorch 2.11 to 2.15 (holds include/ and lib/)")
include(${CMAKE_CURRENT_LIST_DIR}/torch_target.cmake)
message(STATUS "LibTorch ${TESSERA_TORCH_VERSION} in ${TESSERA_TORCH}")

# Code on LibTorch calls kernels and waits for them: -O1 is as fast as -O2, and compiles in half the time. GCC accepts the
# precompiled header for the same level only.
set(TESSERA_TORCH_OPTIMISATION $<$<CONFIG:Release>:-O1>)

# The header costs 30 s once, and then saves ten seconds in each file.
add_library(torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_compile_features(torch_pch PUBLIC cxx_std_20)
target_compile_options(torch_pch PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fopenmp ${TESSERA_TORCH_OPTIMISATION})
target_link_libraries(torch_pch PRIVATE tessera::torch)
target_include_directories(torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/src)
# Angle brackets: with a path in its name, checkouts in two places would share nothing in the compiler cache.
target_precompile_headers(torch_pch PRIVATE <ops/torch.h>)
