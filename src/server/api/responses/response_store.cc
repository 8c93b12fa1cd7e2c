#include "server/api/responses/response_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace carat::server {

namespace {

std::string id_of(const text::Value& item) {
  const text::Value id = item.get("id");
  return id.is_string() ? id.text() : std::string();
}

// About the memory that a value takes: its texts, and something for each element.
size_t size_of(const text::Value& value) {
  constexpr size_t kElement = 16;
  if (value.is_string()) return kElement + value.text().size();
  size_t size = kElement;
  if (value.is_list()) {
    for (const text::Value& item : value.as_list()) size += size_of(item);
  } else if (value.is_map()) {
    for (const text::ValueMap::Entry& entry : value.as_map().entries()) {
      size += entry.key.text().size() + size_of(entry.value);
    }
  }
  return size;
}

}  // namespace

void ResponseStore::put(const std::string& id, Items items, size_t output) {
  Kept kept{.id = id, .items = std::move(items), .output = output};
  for (const text::Value& item : kept.items) kept.bytes += size_of(item);
  const std::lock_guard lock(mutex_);
  if (most_ == 0 || kept.bytes > most_bytes_ || by_id_.contains(id)) return;
  while (kept_.size() >= most_ || bytes_ + kept.bytes > most_bytes_) drop_oldest();
  bytes_ += kept.bytes;
  kept_.push_back(std::move(kept));
  const auto place = std::prev(kept_.end());
  by_id_[id] = place;
  const size_t first = place->items.size() - std::min(output, place->items.size());
  for (size_t i = first; i < place->items.size(); ++i) {
    if (std::string name = id_of(place->items[i]); !name.empty()) by_item_[std::move(name)] = place;
  }
}

std::optional<ResponseStore::Items> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second->items;
}

std::optional<text::Value> ResponseStore::find_item(std::string_view item_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_item_.find(std::string(item_id));
  if (found == by_item_.end()) return std::nullopt;
  for (const text::Value& item : found->second->items) {
    if (id_of(item) == item_id) return item;
  }
  return std::nullopt;
}

void ResponseStore::drop_oldest() {
  const Kept& oldest = kept_.front();
  by_id_.erase(oldest.id);
  for (const text::Value& item : oldest.items) {
    const auto found = by_item_.find(id_of(item));
    if (found != by_item_.end() && &*found->second == &oldest) by_item_.erase(found);
  }
  bytes_ -= oldest.bytes;
  kept_.pop_front();
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace carat::server
