#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace carat::server {

// Things that took time to make, by a text they were made of. Bounded in number and in bytes of these texts; the one
// that was used longest ago goes first. Thread-safe.
template <typename Value>
class RecentCache {
 public:
  RecentCache(size_t most_entries, size_t most_bytes) : most_entries_(most_entries), most_bytes_(most_bytes) {}

  // Null where it is not known.
  std::shared_ptr<const Value> find(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto known = by_key_.find(key);
    if (known == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->second;
  }

  void put(std::string key, std::shared_ptr<const Value> value) {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key) || key.size() > most_bytes_) return;
    bytes_ += key.size();
    entries_.emplace_front(std::move(key), std::move(value));
    by_key_.emplace(entries_.front().first, entries_.begin());
    while (entries_.size() > most_entries_ || bytes_ > most_bytes_) {
      bytes_ -= entries_.back().first.size();
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Value>>;

  const size_t most_entries_, most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                                          // the latest used first
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator> by_key_;  // keys are those of entries_
  size_t bytes_ = 0;
};

}  // namespace carat::server
