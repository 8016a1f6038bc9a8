# Each folder under src/ is a target. A hall is a folder of rooms; its library contains the objects of all of
# them.
#
# tessera_layer(NAME [ROOMS …] [SOURCES …] [ALONE …] [GENERATED …] [LINK …] [TORCH]): the static library of src/NAME.
#   ROOMS      sub-folders, each with its own object library tessera_NAME_ROOM
#   LINK       its lower layers and external libraries
#   TORCH      the folder uses LibTorch and shares the one precompiled header
#   ALONE      sources compiled separately, because names without linkage would clash with another file's
#   GENERATED  sources written by the build
#   SOURCES    the sources instead of all in the folder, for a folder that selects them; declare its tests too
# tessera_test(NAME SOURCES … [ALONE …] [LINK …] [TORCH] [TIMEOUT SECONDS]): a test executable for CTest.
#
# Sources are found by name: x_test.cpp is a test, x_bench.cpp a benchmark with its own target. Each folder
# with tests has one test executable, NAME_test or NAME_ROOM_test. The files of a room are compiled as one group
# (TESSERA_UNITY), because LibTorch's headers cost three seconds before the first line, precompiled too.
function(tessera_settings target torch)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fopenmp)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include/tessera>)
  if(torch)
    target_link_libraries(${target} PUBLIC tessera::torch)
    target_precompile_headers(${target} REUSE_FROM torch_pch)
    target_compile_options(${target} PRIVATE ${TESSERA_TORCH_OPTIMISATION})
  endif()
endfunction()

function(tessera_grouped target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 25)
  # GCC treats a file included by a group as a header, and warns about members from unnamed namespaces.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Finds the sources and tests of one folder, relative to the current one.
function(tessera_find_sources folder sources tests)
  file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*.cpp)
  set(of_tests ${found})
  list(FILTER of_tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER found EXCLUDE REGEX "(_test|_bench)\\.cpp$|(^|/)main\\.cpp$")
  set(${sources} ${found} PARENT_SCOPE)
  set(${tests} ${of_tests} PARENT_SCOPE)
endfunction()

function(tessera_layer name)
  cmake_parse_arguments(arg "TORCH" "" "ROOMS;SOURCES;ALONE;GENERATED;LINK" ${ARGN})
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(torch)
  if(arg_TORCH)
    set(torch TORCH)
  endif()
  tessera_find_sources(. sources tests)
  if(arg_SOURCES)
    set(sources ${arg_SOURCES})
    set(tests)
  endif()
  add_library(tessera_${name} STATIC ${sources} ${arg_GENERATED})
  foreach(room IN LISTS arg_ROOMS)
    tessera_find_sources(${room} room_sources room_tests)
    string(REPLACE "/" "_" room_name ${name}_${room})
    add_library(tessera_${room_name} OBJECT ${room_sources})
    tessera_settings(tessera_${room_name} "${arg_TORCH}")
    tessera_grouped(tessera_${room_name})
    target_link_libraries(tessera_${room_name} PUBLIC ${arg_LINK})
    target_sources(tessera_${name} PRIVATE $<TARGET_OBJECTS:tessera_${room_name}>)
    if(room_tests)
      tessera_test(${room_name}_test ${torch} SOURCES ${room_tests} LINK tessera_${name})
    endif()
  endforeach()
  add_library(tessera::${name} ALIAS tessera_${name})
  set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  tessera_settings(tessera_${name} "${arg_TORCH}")
  if(NOT arg_SOURCES)
    tessera_grouped(tessera_${name})
  endif()
  target_link_libraries(tessera_${name} PUBLIC ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS tessera_${name})
  if(tests)
    tessera_test(${name}_test ${torch} SOURCES ${tests} LINK tessera_${name})
  endif()
endfunction()

function(tessera_test name)
  if(NOT TESSERA_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "TORCH" "TIMEOUT" "SOURCES;ALONE;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${arg_ALONE})
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  tessera_settings(${name} "${arg_TORCH}")
  if(arg_TORCH)
    tessera_grouped(${name})
  endif()
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
    ENVIRONMENT "OMP_NUM_THREADS=2;GOMP_SPINCOUNT=5000")
endfunction()
