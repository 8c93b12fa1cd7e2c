# One static library per folder. CARAT_LAYERS is the allowed direction: a folder may link only folders before it.
set(CARAT_LAYERS base gguf quant text model exec engine hub runtime chat server batch capi cli)

# carat_library(folder SOURCES ... [LINKS ...]): the library carat_<folder>, linking only lower layers.
function(carat_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(carat_${name} STATIC ${arg_SOURCES})
  target_link_libraries(carat_${name} PUBLIC carat_flags ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS})
endfunction()

# carat_test(name SOURCES ... LINKS ... [LABELS ...] [TIMEOUT s] [FILTER tests] [PREFIX text] [GPU_TESTS tests]): one
# GoogleTest program, each test (that the filter takes) known to ctest, under its own name or with the prefix. GPU_TESTS:
# which of them have the label gpu in place of LABELS.
function(carat_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;FILTER;PREFIX;GPU_TESTS" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} carat_test_support GTest::gtest GTest::gmock)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  if("${arg_LABELS}" STREQUAL unit)
    # What takes time in them is in the libraries; less optimised, they compile in three quarters of the time.
    target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()
  if(arg_GPU_TESTS)
    carat_discover_tests(${name} "${arg_GPU_TESTS}" "" gpu ${arg_TIMEOUT})
    set(arg_FILTER "-${arg_GPU_TESTS}")
  endif()
  carat_discover_tests(${name} "${arg_FILTER}" "${arg_PREFIX}" "${arg_LABELS}" ${arg_TIMEOUT})
endfunction()

function(carat_discover_tests name filter prefix labels timeout)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER "${filter}" TEST_PREFIX "${prefix}"
    PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" SKIP_REGULAR_EXPRESSION "skipped: ")
endfunction()
