#include "text/grammar/schema/schema_resources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace carat::text::grammar {

namespace {

constexpr std::array<std::string_view, 6> kMapsOfSchemas = {
    "$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"};
constexpr std::array<std::string_view, 15> kSchemas = {"items",
                                                       "additionalItems",
                                                       "additionalProperties",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "contains",
                                                       "propertyNames",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "prefixItems"};

int draft_named(const Json& document) {
  if (!document.is_object() || !document.contains("$schema") || !document["$schema"].is_string()) return 2020;
  const auto& name = document["$schema"].get_ref<const std::string&>();
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("draft-04") || has("draft-03")) return 4;
  if (has("draft-06")) return 6;
  if (has("draft-07")) return 7;
  return has("2019-09") ? 2019 : 2020;
}

// "scheme:", and the rest up to the path.
bool has_scheme(std::string_view uri) {
  size_t i = 0;
  while (i < uri.size() &&
         (std::isalnum(static_cast<unsigned char>(uri[i])) != 0 || uri[i] == '+' || uri[i] == '-' || uri[i] == '.')) {
    ++i;
  }
  return i > 0 && i < uri.size() && uri[i] == ':' && std::isalpha(static_cast<unsigned char>(uri[0])) != 0;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> segments;
  const bool is_absolute = path.starts_with('/');
  bool ends_open = false;
  size_t at = is_absolute ? 1 : 0;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    ends_open = segment == "." || segment == "..";
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (segment != ".") {
      segments.push_back(segment);
    }
    at = end + 1;
  }
  std::string result = is_absolute ? "/" : "";
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0) result += '/';
    result += segments[i];
  }
  if (ends_open && !result.ends_with('/')) result += '/';
  return result;
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto hex = [&](size_t at) -> int {
      if (at >= text.size() || std::isxdigit(static_cast<unsigned char>(text[at])) == 0) return -1;
      const char c = text[at];
      return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    };
    if (text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      result += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string resolved_uri(std::string_view base, std::string_view reference) {
  if (has_scheme(reference)) return std::string(reference);
  base = base.substr(0, base.find('#'));
  if (reference.empty() || reference[0] == '#') return std::string(base) + std::string(reference);
  size_t path = 0;  // where that of the base begins
  if (has_scheme(base)) path = base.find(':') + 1;
  if (reference.starts_with("//")) return std::string(base.substr(0, path)) + std::string(reference);
  if (base.substr(path).starts_with("//")) path = std::min(base.find('/', path + 2), base.size());
  const size_t fragment = std::min(reference.find_first_of("?#"), reference.size());
  const std::string_view tail = reference.substr(fragment);
  reference = reference.substr(0, fragment);
  std::string merged(reference);
  if (!reference.starts_with('/')) {
    const std::string_view base_path = base.substr(path);
    const size_t slash = base_path.rfind('/');
    merged = std::string(slash == std::string_view::npos ? (path > 0 ? "/" : "") : base_path.substr(0, slash + 1)) +
             std::string(reference);
  }
  return std::string(base.substr(0, path)) + without_dots(merged) + std::string(tail);
}

void SchemaResources::read(const Json& document) {
  draft_ = draft_named(document);
  resources_.push_back({"", &document, {}, {}});
  read_schema(document, 0);
  scopes_.push_back({has_dynamic_ ? resource_of(&document) : 0});
}

// The resource that the schema's own content belongs to.
size_t SchemaResources::enter(const Json& schema, size_t resource) {
  const char* keyword = draft_ == 4 ? "id" : "$id";
  const auto id = schema.find(keyword);
  const bool is_hidden = draft_ <= 7 && schema.contains("$ref");
  if (id == schema.end() || !id->is_string() || is_hidden) return resource;
  std::string uri = resolved_uri(resources_[resource].uri, id->get_ref<const std::string&>());
  const size_t hash = uri.find('#');
  if (hash != std::string::npos && hash + 1 < uri.size()) {  // an anchor in older drafts
    const std::string name = uri.substr(hash + 1);
    uri.resize(hash);
    if (uri == resources_[resource].uri || resource_named(uri) == nullptr) {
      resources_[resource].anchors.emplace(name, &schema);
    }
    return resource;
  }
  if (hash != std::string::npos) uri.resize(hash);
  if (resources_[resource].root == &schema) {  // the document's own
    resources_[resource].uri = std::move(uri);
    return resource;
  }
  resources_.push_back({std::move(uri), &schema, {}, {}});
  return resources_.size() - 1;
}

void SchemaResources::read_schema(const Json& schema, size_t resource) {
  if (!schema.is_object() || resource_of_.contains(&schema)) return;
  resource = enter(schema, resource);
  resource_of_[&schema] = resource;
  if (draft_ >= 2019) {
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const auto anchor = schema.find(keyword);
      if (anchor == schema.end() || !anchor->is_string()) continue;
      resources_[resource].anchors.emplace(anchor->get<std::string>(), &schema);
      if (keyword[1] == 'd') resources_[resource].dynamic_anchors.emplace(anchor->get<std::string>(), &schema);
    }
    has_dynamic_ = has_dynamic_ || schema.contains("$dynamicRef");
  }
  for (const auto& [name, value] : schema.items()) {
    if (std::find(kMapsOfSchemas.begin(), kMapsOfSchemas.end(), name) != kMapsOfSchemas.end()) {
      if (!value.is_object()) continue;
      for (const auto& [key, each] : value.items()) read_schema(each, resource);
    } else if (std::find(kSchemas.begin(), kSchemas.end(), name) != kSchemas.end()) {
      if (value.is_object()) read_schema(value, resource);
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) read_schema(value[i], resource);
    }
  }
}

size_t SchemaResources::resource_of(const Json* schema) const {
  const auto found = resource_of_.find(schema);
  return found == resource_of_.end() ? 0 : found->second;
}

const SchemaResources::Resource* SchemaResources::resource_named(std::string_view uri) const {
  const auto found =
      std::find_if(resources_.begin(), resources_.end(), [&](const Resource& each) { return each.uri == uri; });
  return found == resources_.end() ? nullptr : &*found;
}

const Json* SchemaResources::find(const Json* from, std::string_view reference, bool dynamic, uint32_t scope) {
  const std::string whole = resolved_uri(resources_[resource_of(from)].uri, reference);
  const size_t hash = std::min(whole.find('#'), whole.size());
  const Resource* resource = resource_named(std::string_view(whole).substr(0, hash));
  if (resource == nullptr) return nullptr;
  const std::string fragment = percent_decoded(std::string_view(whole).substr(std::min(hash + 1, whole.size())));
  if (fragment.empty()) return resource->root;
  if (fragment[0] == '/') {
    try {
      const Json* target = &resource->root->at(Json::json_pointer(fragment));
      read_schema(*target, static_cast<size_t>(resource - resources_.data()));
      return target;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }
  const auto anchor = resource->anchors.find(fragment);
  if (anchor == resource->anchors.end()) return nullptr;
  if (dynamic && resource->dynamic_anchors.contains(fragment)) {
    for (const size_t outer : scopes_[scope]) {
      const auto found = resources_[outer].dynamic_anchors.find(fragment);
      if (found != resources_[outer].dynamic_anchors.end()) return found->second;
    }
  }
  return anchor->second;
}

uint32_t SchemaResources::scope_after(uint32_t scope, const Json* schema) {
  if (!has_dynamic_) return scope;
  const auto found = resource_of_.find(schema);
  if (found == resource_of_.end()) return scope;
  std::vector<size_t> entered = scopes_[scope];
  if (std::find(entered.begin(), entered.end(), found->second) != entered.end()) return scope;
  entered.push_back(found->second);
  const auto known = std::find(scopes_.begin(), scopes_.end(), entered);
  if (known != scopes_.end()) return static_cast<uint32_t>(known - scopes_.begin());
  scopes_.push_back(std::move(entered));
  return static_cast<uint32_t>(scopes_.size() - 1);
}

}  // namespace carat::text::grammar
