#include "exec/cuda/weights/upload.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/weights/repack.h"
#include "exec/cuda/weights/ring_reader.h"
#include "exec/cuda/weights/upload_cut.h"

namespace carat::cuda {

namespace {

// One thread copies 4 to 7 GB/s out of the page cache, so eight keep a bus of 32 GB/s busy and twelve one of 55. Where
// they take every core, the thread that feeds the bus has to wait for one: 41 GB/s instead of 51 with 16 of 16 cores.
unsigned reading_threads() { return std::clamp(usable_threads() * 3 / 4, 1u, 12u); }

struct Slot {
  Slot(uint64_t bytes) : host(bytes, "the upload ring"), device(bytes, "upload staging") {}
  PinnedMemory host;
  DeviceMemory device;
  Event copied, repacked;
};

// Copies and repacking run on streams of their own, so that the bus is not idle while a kernel runs.
struct Streams {
  Stream copies, kernels;
  // Also when something throws: the ring may not be freed under work that reads it.
  ~Streams() {
    cudaStreamSynchronize(copies.get());
    cudaStreamSynchronize(kernels.get());
  }
};

std::vector<UploadLoad> loads_of(std::span<const Upload> uploads, UploadRing& ring) {
  std::vector<UploadRows> matrices;
  for (const Upload& item : uploads) {
    matrices.push_back({item.source.rows * item.source.slices, item.source.row_bytes()});
    ring.load_bytes = std::max(ring.load_bytes, item.source.row_bytes());
  }
  return cut_uploads(matrices, ring.load_bytes);
}

std::vector<RingReader::Load> pieces_of(std::span<const Upload> uploads, const std::vector<UploadLoad>& loads) {
  std::vector<RingReader::Load> pieces(loads.size());
  for (size_t i = 0; i < loads.size(); ++i) {
    for (const UploadPart& part : loads[i].parts) {
      const model::Matrix& source = uploads[part.matrix].source;
      const uint64_t row_bytes = source.row_bytes();
      pieces[i].push_back({source.data.subspan(part.first_row * row_bytes, part.rows * row_bytes), part.offset});
    }
  }
  return pieces;
}

// Puts the copy of one load and the repacking of its parts on their streams.
void send(const UploadLoad& load, std::span<const Upload> uploads, const Slot& slot, const Streams& streams) {
  check(cudaStreamWaitEvent(streams.copies.get(), slot.repacked.get()), "waiting for upload staging");
  check(cudaMemcpyAsync(slot.device.data(), slot.host.data(), load.bytes, cudaMemcpyHostToDevice, streams.copies.get()),
        "uploading weights");
  slot.copied.record(streams.copies.get());
  check(cudaStreamWaitEvent(streams.kernels.get(), slot.copied.get()), "waiting for an upload");
  for (const UploadPart& part : load.parts) {
    const Upload& item = uploads[part.matrix];
    repack(item.source.format, slot.device.as<char>() + part.offset, static_cast<uint32_t>(part.rows), item.target,
           static_cast<uint32_t>(part.first_row), streams.kernels.get());
  }
  slot.repacked.record(streams.kernels.get());
}

}  // namespace

UploadResult upload(const gguf::ModelFile& file, std::span<const Upload> uploads, const UploadProgress& progress,
                    UploadRing ring) {
  CARAT_CHECK(ring.slots >= 2);
  const std::vector<UploadLoad> loads = loads_of(uploads, ring);
  if (loads.empty()) return {};
  uint64_t total = 0;
  for (const Upload& item : uploads) total += item.source.data.size();
  std::vector<Slot> slots;
  std::vector<std::byte*> slot_bytes;
  for (size_t i = 0; i < std::min<size_t>(ring.slots, loads.size()); ++i) {
    slots.emplace_back(ring.load_bytes);
    slot_bytes.push_back(slots.back().host.as<std::byte>());
  }
  const Streams streams;
  const unsigned threads = ring.threads > 0 ? ring.threads : reading_threads();

  UploadResult result;
  const auto started = std::chrono::steady_clock::now();
  RingReader reader(pieces_of(uploads, loads), slot_bytes, threads,
                    [&file](std::span<const std::byte> from, std::byte* to) { file.read(from, to); });
  for (size_t i = 0; i < loads.size(); ++i) {
    reader.next();
    send(loads[i], uploads, slots[i % slots.size()], streams);
    // The copy before this one is waited for rather than this one: the bus always has the next copy queued.
    if (i > 0) {
      slots[(i - 1) % slots.size()].copied.synchronise();
      reader.release();
    }
    for (const UploadPart& part : loads[i].parts) result.bytes += part.rows * uploads[part.matrix].source.row_bytes();
    if (progress) progress(result.bytes, total);
  }
  streams.kernels.synchronise();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

}  // namespace carat::cuda
