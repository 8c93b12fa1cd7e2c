#include "exec/cuda/weights/ring_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace carat::cuda {

RingReader::RingReader(const std::vector<Load>& loads, std::vector<std::byte*> slots, unsigned threads, Read read)
    : slots_(std::move(slots)), read_(std::move(read)), unread_(loads.size()) {
  CARAT_CHECK(!slots_.empty() && threads > 0);
  for (size_t load = 0; load < loads.size(); ++load) {
    for (const Piece& piece : loads[load]) {
      std::byte* to = slots_[load % slots_.size()] + piece.offset;
      for (size_t at = 0; at < piece.from.size(); at += kBlockBytes) {
        blocks_.push_back({piece.from.subspan(at, std::min(kBlockBytes, piece.from.size() - at)), to + at, load});
        ++unread_[load];
      }
    }
  }
  try {
    threads_.reserve(threads);
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::exception& error) {
    const size_t started = threads_.size();
    stop();  // those that did start must be joined before they are destroyed
    fail(ErrorCode::kOutOfMemory, "cannot start {} threads to read the model (started {}: {})", threads, started,
         error.what());
  }
}

RingReader::~RingReader() { stop(); }

void RingReader::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  may_read_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void RingReader::work() noexcept {
  for (;;) {
    const Block* block = nullptr;
    {
      std::unique_lock lock(mutex_);
      may_read_.wait(lock, [this] {
        return stopping_ || next_block_ == blocks_.size() || blocks_[next_block_].load < released_ + slots_.size();
      });
      if (stopping_ || next_block_ == blocks_.size()) return;
      block = &blocks_[next_block_++];
    }
    std::exception_ptr failure;
    try {
      read_(block->from, block->to);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure && !failure_) failure_ = failure;
      stopping_ = stopping_ || failure != nullptr;
      if (--unread_[block->load] > 0 && !failure) continue;
    }
    loaded_.notify_one();
    if (failure) may_read_.notify_all();
  }
}

std::byte* RingReader::next() {
  std::unique_lock lock(mutex_);
  CARAT_CHECK(handed_out_ < unread_.size() && handed_out_ < released_ + slots_.size());
  loaded_.wait(lock, [this] { return failure_ != nullptr || unread_[handed_out_] == 0; });
  if (failure_) std::rethrow_exception(failure_);
  return slots_[handed_out_++ % slots_.size()];
}

void RingReader::release() {
  {
    const std::lock_guard lock(mutex_);
    CARAT_CHECK(released_ < handed_out_);
    ++released_;
  }
  may_read_.notify_all();
}

}  // namespace carat::cuda
