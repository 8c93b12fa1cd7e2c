#pragma once

// What the architecture that is being compiled for has. A kernel that uses instructions of these headers which not
// every card has guards its body with one of these and traps in the other branch; the plan chooses it only where the
// instructions exist.

// sm_90 and later: clusters, mbarrier, TMA, bulk copies, stmatrix.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CARAT_SM90 1
#endif

// sm_90a, Hopper alone: wgmma and setmaxnreg besides.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CARAT_SM90A 1
#endif
