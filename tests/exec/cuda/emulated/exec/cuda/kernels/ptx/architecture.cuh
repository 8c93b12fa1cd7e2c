#pragma once

// ptx/architecture.cuh on the emulated machine.
#define CARAT_SM90 1
#define CARAT_SM90A 1
