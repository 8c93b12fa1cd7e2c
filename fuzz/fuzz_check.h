#pragma once

#include <cstdio>
#include <cstdlib>

// A property that must hold for every input; the fuzzer keeps the input that breaks it.
#define FUZZ_CHECK(condition)                                                                   \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      std::fprintf(stderr, "property violated: %s at %s:%d\n", #condition, __FILE__, __LINE__); \
      std::abort();                                                                             \
    }                                                                                           \
  } while (false)
