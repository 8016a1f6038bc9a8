# tessera_layer(NAME SOURCES ... [ALONE ...] [LINK ...] [TORCH]): one static library for one folder under src/.
#   LINK   the lower layers and outside libraries it may know
#   TORCH  the folder is built on LibTorch (shares the one precompiled header). LibTorch costs each compilation four seconds
#          before the first line of ours, so that eight files are compiled together (TESSERA_UNITY); a name without
#          linkage must then be the only one of its group.
#   ALONE  sources that are compiled by themselves: families, each of which has a Config of its own, or tests with a Case
# tessera_test(NAME SOURCES ... [ALONE ...] [LINK ...] [TORCH]): the folder's one test executable, found by CTest.
function(tessera_settings target torch)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fopenmp)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include/tessera>)
  if(torch)
    target_link_libraries(${target} PUBLIC tessera::torch)
    target_precompile_headers(${target} REUSE_FROM torch_pch)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 8)
    # A file that a group includes is taken for a header, whose classes may have no members of unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(tessera_layer name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;ALONE;LINK" ${ARGN})
  add_library(tessera_${name} STATIC ${arg_SOURCES} ${arg_ALONE})
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(tessera::${name} ALIAS tessera_${name})
  set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name})
  tessera_settings(tessera_${name} ${arg_TORCH})
  target_link_libraries(tessera_${name} PUBLIC ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS tessera_${name})
endfunction()

function(tessera_test name)
  if(NOT TESSERA_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "TORCH" "TIMEOUT" "SOURCES;ALONE;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${arg_ALONE})
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  tessera_settings(${name} ${arg_TORCH})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE TESSERA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gtest_main)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(processors 1)
  if(arg_TORCH)
    set(processors 2)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} PROCESSORS ${processors}
    ENVIRONMENT "OMP_NUM_THREADS=2")
endfunction()
