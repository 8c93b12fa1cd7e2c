#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace carat::cuda {

// Brings loads, one after the other, into the slots of a ring by threads of its own, ahead of their use: load i goes to
// slot i modulo their number as soon as load i - slots was released. All threads work on the oldest load that is not
// there yet, so that it comes soon and none waits at the end of a load. One thread calls next() and release().
class RingReader {
 public:
  struct Piece {
    std::span<const std::byte> from;  // bytes of a mapped file, which are not touched here
    size_t offset = 0;                // in the slot
  };
  using Load = std::vector<Piece>;
  // Puts the bytes at `to`. Called by many threads at a time.
  using Read = std::function<void(std::span<const std::byte> from, std::byte* to)>;

  // Most bytes of one call of Read: enough to make the call's own cost disappear, little enough to spread a load.
  static constexpr size_t kBlockBytes = size_t{1} << 20;

  // Throws kOutOfMemory when the system refuses a thread. The slots must be large enough and outlive the reader.
  RingReader(const std::vector<Load>& loads, std::vector<std::byte*> slots, unsigned threads, Read read);
  ~RingReader();  // waits for reads under way, starts none
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  // Waits until the next load is complete and returns its slot. Throws what a Read threw.
  std::byte* next();
  // The oldest load that next() returned is not needed any more.
  void release();

 private:
  struct Block {
    std::span<const std::byte> from;
    std::byte* to = nullptr;
    size_t load = 0;
  };
  void work() noexcept;
  void stop() noexcept;

  const std::vector<std::byte*> slots_;
  const Read read_;
  std::vector<Block> blocks_;  // of all loads, in order

  std::mutex mutex_;  // guards what follows
  std::condition_variable may_read_, loaded_;
  std::vector<size_t> unread_;  // [loads] blocks that are not there yet
  size_t next_block_ = 0;
  size_t handed_out_ = 0, released_ = 0;  // loads
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace carat::cuda
