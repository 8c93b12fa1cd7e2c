#include "exec/cuda/weights/ring_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "support/random.h"

namespace carat::cuda {
namespace {

void copy(std::span<const std::byte> from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }

// A ring of `count` slots, each filled with 0xee before it is used.
struct Ring {
  Ring(size_t count, size_t bytes) : memory(count, std::vector<std::byte>(bytes, std::byte{0xee})) {}
  std::vector<std::byte*> slots() {
    std::vector<std::byte*> all;
    for (std::vector<std::byte>& slot : memory) all.push_back(slot.data());
    return all;
  }
  std::vector<std::vector<std::byte>> memory;
};

TEST(RingReader, EveryLoadArrivesWholeAndInOrder) {
  test::Random random(1);
  constexpr size_t kSlotBytes = 3 * RingReader::kBlockBytes + 1000;
  const std::vector<std::byte> file = random.bytes(size_t{16} << 20);
  for (const unsigned threads : {1u, 2u, 5u}) {
    for (const size_t slots : {1u, 2u, 3u}) {
      // Pieces that end before, at and after the edge of a block, several to a load, with gaps between them.
      std::vector<RingReader::Load> loads;
      for (const size_t bytes : {size_t{1}, RingReader::kBlockBytes - 1, RingReader::kBlockBytes,
                                 RingReader::kBlockBytes + 1, 3 * RingReader::kBlockBytes}) {
        RingReader::Load load = {{std::span(file).subspan(random.below(1000), bytes), 0}};
        if (bytes + 700 <= kSlotBytes) load.push_back({std::span(file).subspan(bytes, 333), bytes + 300});
        loads.push_back(load);
      }
      loads.push_back(loads.front());
      Ring ring(slots, kSlotBytes);
      RingReader reader(loads, ring.slots(), threads, copy);
      for (size_t i = 0; i < loads.size(); ++i) {
        const std::byte* slot = reader.next();
        ASSERT_EQ(slot, ring.memory[i % slots].data());
        for (const RingReader::Piece& piece : loads[i]) {
          ASSERT_EQ(std::memcmp(slot + piece.offset, piece.from.data(), piece.from.size()), 0) << "load " << i;
        }
        reader.release();
      }
    }
  }
}

// While a load is held its slot keeps its bytes, and no more than the free slots are read ahead.
TEST(RingReader, ReadsAheadAsFarAsThereAreSlots) {
  const std::vector<std::byte> file = test::Random(2).bytes(1000);
  std::vector<RingReader::Load> loads;
  for (size_t i = 0; i < 10; ++i) loads.push_back({{std::span(file).subspan(100 * i, 100), 0}});
  Ring ring(3, 100);
  std::atomic<size_t> reads{0};
  RingReader reader(loads, ring.slots(), 4, [&](std::span<const std::byte> from, std::byte* to) {
    copy(from, to);
    ++reads;
  });
  for (size_t i = 0; i < 3; ++i) reader.next();
  // A reader that did not wait would go on within microseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reads, 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::memcmp(ring.memory[i].data(), &file[100 * i], 100), 0);
  reader.release();
  EXPECT_EQ(reader.next(), ring.memory[0].data());
  EXPECT_EQ(std::memcmp(ring.memory[0].data(), &file[300], 100), 0);
  EXPECT_EQ(reads, 4u);
}

TEST(RingReader, AFailedReadReachesTheCaller) {
  const std::vector<std::byte> file(100);
  std::vector<RingReader::Load> loads;
  for (size_t i = 0; i < 50; ++i) loads.push_back({{std::span(file).subspan(i, 50), 0}});
  for (const size_t failing : {0u, 1u, 30u, 49u}) {
    Ring ring(3, 50);
    RingReader reader(loads, ring.slots(), 4, [&](std::span<const std::byte> from, std::byte* to) {
      if (from.data() == &file[failing]) throw std::runtime_error("the disk is gone");
      copy(from, to);
    });
    size_t arrived = 0;
    try {
      for (; arrived < loads.size(); ++arrived) {
        reader.next();
        reader.release();
      }
      FAIL() << "the error of load " << failing << " was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the disk is gone");
      EXPECT_LE(arrived, failing);
    }
    EXPECT_THROW(reader.next(), std::runtime_error) << "said once, it stays";
  }
}

TEST(RingReader, CanBeAbandoned) {
  const std::vector<std::byte> file(1000);
  const std::vector<RingReader::Load> loads(100, {{std::span(file), 0}});
  for (const size_t used : {0u, 1u, 5u}) {
    Ring ring(4, 1000);
    std::atomic<size_t> reads{0};
    {
      RingReader reader(loads, ring.slots(), 3, [&](std::span<const std::byte> from, std::byte* to) {
        copy(from, to);
        ++reads;
      });
      for (size_t i = 0; i < used; ++i) {
        reader.next();
        reader.release();
      }
    }
    EXPECT_LE(reads, used + 4);
  }
}

TEST(RingReader, WrongUseIsABug) {
  const std::vector<std::byte> file(10);
  Ring ring(1, 10);
  RingReader reader({{{std::span(file), 0}}, {{std::span(file), 0}}}, ring.slots(), 1, copy);
  EXPECT_THROW(reader.release(), std::logic_error);  // nothing handed out
  reader.next();
  EXPECT_THROW(reader.next(), std::logic_error);  // its slot is still in use
  reader.release();
  reader.next();
  reader.release();
  EXPECT_THROW(reader.next(), std::logic_error);  // no more loads
}

}  // namespace
}  // namespace carat::cuda
