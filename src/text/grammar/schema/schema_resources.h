#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/schema/notation.h"

namespace carat::text::grammar {

// What the references of a schema document can name: its resources ($id), their anchors, and pointers into them. The
// document must outlive it and not move.
class SchemaResources {
 public:
  // Looks at all places of `document` where schemas stand.
  void read(const Json& document);

  // Of the document's $schema: 4, 6, 7, 2019 or 2020; 2020 where it does not say.
  int draft() const { return draft_; }

  // What `reference` names, seen from a schema; null where nothing in this document has the name. `dynamic`: as
  // $dynamicRef means it, seen through the resources of `scope`.
  const Json* find(const Json* from, std::string_view reference, bool dynamic, uint32_t scope);

  // In no order.
  template <typename Visit>
  void for_each_schema(Visit&& visit) const {
    for (const auto& [schema, resource] : resource_of_) visit(*schema);
  }

  // The scope after a step to `schema`: the resources entered so far, outermost first. One scope for all where nothing
  // is dynamic.
  uint32_t scope_after(uint32_t scope, const Json* schema);

 private:
  struct Resource {
    std::string uri;
    const Json* root = nullptr;
    std::map<std::string, const Json*, std::less<>> anchors, dynamic_anchors;
  };

  void read_schema(const Json& schema, size_t resource);
  size_t enter(const Json& schema, size_t resource);
  size_t resource_of(const Json* schema) const;
  const Resource* resource_named(std::string_view uri) const;

  int draft_ = 2020;
  bool has_dynamic_ = false;
  std::vector<Resource> resources_;
  std::unordered_map<const Json*, size_t> resource_of_;
  std::vector<std::vector<size_t>> scopes_;
};

// `reference` in a document at `base` (RFC 3986, 5.2).
std::string resolved_uri(std::string_view base, std::string_view reference);

}  // namespace carat::text::grammar
