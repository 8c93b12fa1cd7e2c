#include "exec/paging/page_pool.h"

#include "base/error.h"

namespace carat::exec {

PagePool::PagePool(uint32_t pages) : references_(pages) {
  free_.reserve(pages);
  for (uint32_t page = pages; page > 0; --page) free_.push_back(page - 1);
}

uint32_t PagePool::take() {
  CARAT_CHECK(!free_.empty());
  const uint32_t page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  return page;
}

void PagePool::share(uint32_t page) {
  CARAT_CHECK(references_[page] > 0);
  ++references_[page];
}

void PagePool::release(uint32_t page) {
  CARAT_CHECK(references_[page] > 0);
  if (--references_[page] == 0) free_.push_back(page);
}

}  // namespace carat::exec
