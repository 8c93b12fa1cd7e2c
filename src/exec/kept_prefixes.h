#pragma once

#include <cstdint>
#include <optional>

#include "model/kv_pages.h"

namespace carat::exec {

using PrefixId = uint32_t;

// What is cached of the first positions of a sequence, kept for other sequences to go on from. Keeping, sharing and
// going on copy nothing: pages are counted, and one that is shared is copied when somebody writes to it. All pages are
// in two pools that sequences and kept prefixes take from; a sequence holds as many as its length needs, and its
// context is a limit, not a reservation.
class KeptPrefixes {
 public:
  virtual ~KeptPrefixes() = default;

  virtual uint32_t page_positions() const = 0;
  virtual model::PageCount total() const = 0;
  virtual model::PageCount free() const = 0;
  // Pages that sequences refer to, whether prefixes do so too or not.
  virtual model::PageCount held() const = 0;
  // Bytes of a page in all layers of its kind.
  virtual uint64_t page_bytes(model::PageKind kind) const = 0;
  // Sliding pages that a kept prefix holds at most.
  virtual uint32_t window_pages() const = 0;
  // Pages that a pass with so many further rows of the sequence takes from the pools. A pass for which not enough are
  // free throws kOutOfMemory and changes nothing.
  virtual model::PageCount needed(uint32_t sequence, uint32_t rows) const = 0;
  // Frees pages of sliding layers that are behind the windows of all sequences, and that only allowed to cut them back
  // farther than the last pass.
  virtual void trim() = 0;

  // Keeps the first n positions, 0 < n <= length. None where the window before n is gone.
  virtual std::optional<PrefixId> keep(uint32_t sequence, uint32_t n) = 0;
  // Lets an empty sequence begin with what is kept.
  virtual void resume(uint32_t sequence, PrefixId prefix) = 0;
  // Whether a sequence that was resumed from it can be cut to n positions (Executor::truncate).
  virtual bool can_cut(PrefixId prefix, uint32_t n) const = 0;
  virtual void drop(PrefixId prefix) = 0;
  // Pages that nothing else refers to, which dropping it would free.
  virtual model::PageCount frees(PrefixId prefix) const = 0;
  // Pages that no sequence refers to, which one that goes on from it would hold in addition.
  virtual model::PageCount unheld(PrefixId prefix) const = 0;
};

}  // namespace carat::exec
