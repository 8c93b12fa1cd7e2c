// Repacking of weights, which the upload asks for, on the emulated machine.
#include "exec/cuda/weights/repack.cu"
