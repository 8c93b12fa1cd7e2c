#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "exec/cuda/weights/packed.h"
#include "gguf/reader.h"
#include "model/model.h"

namespace carat::cuda {

// A matrix of the file and where it goes.
struct Upload {
  model::Matrix source;
  PackedView target;
};

// Called now and then with bytes of the file.
using UploadProgress = std::function<void(uint64_t done, uint64_t total)>;

struct UploadResult {
  uint64_t bytes = 0;    // of the file
  double seconds = 0.0;  // from the first read until all is repacked; without taking the ring's memory
};

// The ring that bytes of the file pass through: as much page-locked memory, and as much again on the device. Taking
// that memory costs half a millisecond a megabyte; a larger ring does not upload faster.
struct UploadRing {
  uint64_t load_bytes = uint64_t{8} << 20;  // raised to the largest row
  uint32_t slots = 4;                       // at least 2
  uint32_t threads = 0;                     // that read the file; 0: as suits the machine
};

// File -> page-locked ring -> staging on the device -> repacked in place, each step while the ones before it work on
// what follows. Returns when all is there. Throws kIo, naming the file, when it became shorter or cannot be read.
UploadResult upload(const gguf::ModelFile& file, std::span<const Upload> uploads, const UploadProgress& progress,
                    UploadRing ring = {});

}  // namespace carat::cuda
