# Compiler cache, warnings and sanitizers: everything that applies to each target alike.
find_program(CARAT_CCACHE ccache)
if(CARAT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CARAT_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CARAT_CCACHE})
endif()

add_library(carat_flags INTERFACE)
target_include_directories(carat_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(carat_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Errors where the warnings are known; newer compilers have others, and no build should fail for those.
  target_compile_options(carat_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 report impossible overflows in inlined library code at -O2 and above.
  target_compile_options(carat_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow -Wno-array-bounds
    -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overread>)
endif()
# Exactness is promised bit for bit across machines for the same build: no fast-math and no silent contraction.
target_compile_options(carat_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(CARAT_SANITIZE)
  target_compile_options(carat_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CARAT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(carat_flags INTERFACE -fsanitize=${CARAT_SANITIZE})
endif()
