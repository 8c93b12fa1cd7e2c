#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/value.h"

namespace carat::server {

// The last responses of the Responses API, for requests that continue one by its id instead of sending the conversation
// again. Holds at most `count` of them and about `bytes` of memory; the oldest go first, and one that does not fit
// alone is not kept. Thread-safe.
class ResponseStore {
 public:
  ResponseStore(size_t count, size_t bytes) : most_(count), most_bytes_(bytes) {}

  // The items of a conversation up to and with the response: what it was given, then its output.
  using Items = std::vector<text::Value>;

  // `output` says how many of the items at the end are the response's own.
  void put(const std::string& id, Items items, size_t output);
  std::optional<Items> find(const std::string& id) const;
  // An item of a response's output by the item's own id, as "item_reference" names it.
  std::optional<text::Value> find_item(std::string_view item_id) const;

  size_t size() const;
  size_t bytes() const;

 private:
  struct Kept {
    std::string id;
    Items items;
    size_t output = 0, bytes = 0;
  };
  void drop_oldest();

  const size_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the oldest first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_id_;
  std::unordered_map<std::string, std::list<Kept>::iterator> by_item_;  // ids of output items
  size_t bytes_ = 0;
};

}  // namespace carat::server
