#pragma once

#include <cstdint>
#include <vector>

namespace carat::exec {

// Which pages of one kind are in use, and by how many tables and kept prefixes. Numbers only: the memory is elsewhere.
class PagePool {
 public:
  explicit PagePool(uint32_t pages);

  uint32_t size() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

  // A free page, referred to once. There must be one.
  uint32_t take();
  void share(uint32_t page);    // one reference more, of a page in use
  void release(uint32_t page);  // one fewer; the last one frees the page
  uint32_t references(uint32_t page) const { return references_[page]; }

 private:
  std::vector<uint32_t> references_;
  std::vector<uint32_t> free_;  // the last one is taken next: what was used a moment ago may still be in a cache
};

}  // namespace carat::exec
