#include "text/grammar/schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_keywords.h"

namespace carat::text::grammar {

namespace {

void check_depth(int depth) {
  if (depth > static_cast<int>(kMaxNesting)) {
    fail(ErrorCode::kBadArgument, "the JSON schema nests more than {} deep", kMaxNesting);
  }
}

}  // namespace

void fail_at(std::string_view pointer, const std::string& problem) {
  fail(ErrorCode::kBadArgument, "JSON schema, {}: {}", pointer, problem);
}

std::string escaped_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

SchemaDocument::SchemaDocument(std::string_view json) {
  if (json.size() > kMaxSourceBytes) {
    fail(ErrorCode::kBadArgument, "the JSON schema has {} bytes, more than the {} it may have", json.size(),
         kMaxSourceBytes);
  }
  const auto check = [](int depth, Json::parse_event_t event, Json& value) {
    check_depth(depth);
    if (event == Json::parse_event_t::key && value.get_ref<const std::string&>().starts_with("$carat:")) {
      fail(ErrorCode::kBadArgument, "the JSON schema has the name {}; names that begin with $carat: are taken",
           value.dump());
    }
    return true;
  };
  try {
    document_ = Json::parse(json.begin(), json.end(), check);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kBadArgument, "the JSON schema is no valid JSON: {}", error.what());
  }
  resources_.read(document_);
}

SchemaPart SchemaDocument::never() {
  static const Json nothing = false;
  return {&nothing, "#"};
}

SchemaPart SchemaDocument::root() const { return {&document_, "#"}; }

SchemaPart SchemaDocument::moved(const SchemaPart& part, const Json* schema, std::string pointer) {
  return {schema, std::move(pointer), false, resources_.scope_after(part.scope, schema)};
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword) {
  return moved(part, &(*part.schema)[std::string(keyword)], fmt::format("{}/{}", part.pointer, keyword));
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword, std::string_view name) {
  return moved(part, &(*part.schema)[std::string(keyword)][std::string(name)],
               fmt::format("{}/{}/{}", part.pointer, keyword, escaped_name(name)));
}

SchemaPart SchemaDocument::child(const SchemaPart& part, std::string_view keyword, size_t index) {
  return moved(part, &(*part.schema)[std::string(keyword)][index],
               fmt::format("{}/{}/{}", part.pointer, keyword, index));
}

SchemaPart SchemaDocument::alternative(const SchemaPart& choice, size_t index) {
  SchemaPart part = child(choice, "anyOf", index);
  part.owners = choice.owners;
  part.origin = list_with(choice.origin, choice.schema);
  const auto reached = flatten({part});
  if (!reached) return part;
  const std::vector<const Json*> origins = lists_[part.origin];
  for (const SchemaPart& each : *reached) {
    if (std::find(origins.begin(), origins.end(), each.schema) == origins.end()) continue;
    fail_at(part.pointer, "the references go round in a circle and describe nothing");
  }
  return part;
}

SchemaPart SchemaDocument::resolve(const SchemaPart& part, std::string_view keyword) {
  const auto& reference = (*part.schema)[std::string(keyword)].get_ref<const std::string&>();
  const Json* target = resources_.find(part.schema, reference, keyword == "$dynamicRef", part.scope);
  if (target == nullptr) {
    fail_at(fmt::format("{}/{}", part.pointer, keyword),
            fmt::format("there is no {} in this document; schemas elsewhere are not fetched, so put it into $defs",
                        Json(reference).dump()));
  }
  SchemaPart reached = moved(part, target, reference.starts_with("#/") || reference == "#" ? reference : part.pointer);
  if (!reference.starts_with('#')) reached.pointer = reference;
  if (reference.starts_with('#') && !reference.starts_with("#/") && reference != "#") reached.pointer = reference;
  reached.owners = part.owners;
  return reached;
}

void SchemaDocument::check(const SchemaPart& part) {
  if (checked_.insert(part.schema).second) check_keywords(*this, part, resources_.draft());
}

void SchemaDocument::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(std::move(text));
}

void SchemaDocument::count_step(std::string_view pointer) {
  if (++steps_ > kMaxSchemaSteps) fail_at(pointer, "the schema takes too long to work through; make it simpler");
}

bool SchemaDocument::some_has_name(const SchemaPart& part, const std::string& name) {
  const Json& some = (*part.schema)["$carat:some"];
  if (some.contains("pattern") && !text_set(some["pattern"], part.pointer).contains(name)) return false;
  if (some.contains("without")) {
    const Json& names = some["without"];
    if (std::find(names.begin(), names.end(), name) != names.end()) return false;
    for (const Json& pattern : some["withoutPatterns"]) {
      if (text_set(pattern, part.pointer).contains(name)) return false;
    }
  }
  return !some.contains("name") || is_valid(*this, name, child(part, "$carat:some", "name"));
}

const TextSet& SchemaDocument::text_set(const std::string& pattern, std::string_view pointer) {
  const auto known = text_sets_.find(pattern);
  if (known != text_sets_.end()) return known->second;
  return text_sets_.emplace(pattern, TextSet::matching(pattern, fmt::format("JSON schema, {}", pointer))).first->second;
}

// --- what holds at one place
// -------------------------------------------------------------------------------------------

std::optional<Conjunction> SchemaDocument::flatten(const Conjunction& parts) {
  Conjunction flat;
  Path path;
  for (const SchemaPart& part : parts) {
    if (!collect(part, path, flat)) return std::nullopt;
  }
  return flat;
}

uint32_t SchemaDocument::list_with(uint32_t number, const Json* schema) {
  std::vector<const Json*> list = lists_[number];
  if (std::find(list.begin(), list.end(), schema) != list.end()) return number;
  list.push_back(schema);
  std::sort(list.begin(), list.end());
  const auto known = std::find(lists_.begin(), lists_.end(), list);
  if (known != lists_.end()) return static_cast<uint32_t>(known - lists_.begin());
  lists_.push_back(std::move(list));
  return static_cast<uint32_t>(lists_.size() - 1);
}

bool SchemaDocument::collect(const SchemaPart& given, Path& path, Conjunction& out) {
  count_step(given.pointer);
  if (given.schema->is_boolean()) return given.schema->get<bool>();
  if (!given.schema->is_object()) fail_at(given.pointer, "a schema is an object, true or false");
  if (given.schema->contains("$carat:part")) {
    SchemaPart part = referred((*given.schema)["$carat:part"]);
    part.owners = given.owners;
    part.origin = given.origin;
    return collect(part, path, out);
  }
  if (given.schema->contains("$carat:not")) {
    SchemaPart part = negated(referred((*given.schema)["$carat:not"]));
    part.origin = given.origin;
    return collect(part, path, out);
  }
  if (std::find(path.begin(), path.end(), given.schema) != path.end()) {
    fail_at(given.pointer, "the references go round in a circle and describe nothing");
  }
  if (path.size() > kMaxNesting) fail_at(given.pointer, fmt::format("more than {} references in a row", kMaxNesting));
  SchemaPart part = given;
  for (const char* keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (part.schema->contains(keyword)) part.owners = list_with(part.owners, part.schema);
  }
  for (SchemaPart& known : out) {
    if (known.schema != part.schema || known.scope != part.scope) continue;
    known.alternatives_done = known.alternatives_done || part.alternatives_done;
    bool is_covered = true;
    for (const Json* owner : std::vector(lists_[part.owners])) {
      const uint32_t more = list_with(known.owners, owner);
      is_covered = is_covered && more == known.owners;
      known.owners = more;
    }
    if (is_covered) return true;
    // What it brings along counts for more now: it is gone through again, and each part of it is there already.
    path.push_back(part.schema);
    const bool possible = is_choice(part) || collect_applicators(part, path, out);
    path.pop_back();
    return possible;
  }
  check(part);
  path.push_back(part.schema);
  if (!hides_siblings(*part.schema)) out.push_back(part);
  const bool possible = is_choice(part) || collect_applicators(part, path, out);
  path.pop_back();
  return possible;
}

bool SchemaDocument::collect_applicators(const SchemaPart& part, Path& path, Conjunction& out) {
  const Json& schema = *part.schema;
  bool possible = true;
  const auto add = [&](SchemaPart other) {
    other.origin = part.origin;
    possible = collect(other, path, out) && possible;
  };
  if (hides_siblings(schema)) {
    add(resolve(part, "$ref"));
    return possible;
  }
  for (const char* keyword : {"$ref", "$dynamicRef"}) {
    if (schema.contains(keyword)) add(resolve(part, keyword));
  }
  for (size_t i = 0; schema.contains("allOf") && i < schema["allOf"].size(); ++i) {
    SchemaPart each = child(part, "allOf", i);
    each.owners = part.owners;
    add(each);
  }
  if (schema.contains("not")) add(negated(child(part, "not")));
  if (schema.contains("if")) add(condition(part));
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword)) continue;
    for (const auto& [name, value] : schema[keyword].items()) add(dependency(part, keyword, name));
  }
  if (schema.contains("anyOf")) add(any_of(part));
  if (schema.contains("oneOf")) add(one_of(part));
  return possible;
}

// --- members and items
// -------------------------------------------------------------------------------------------------

bool SchemaDocument::counts_for(const SchemaPart& part, const SchemaPart& owner) const {
  const auto& owners = lists_[part.owners];
  return std::find(owners.begin(), owners.end(), owner.schema) != owners.end();
}

Conjunction SchemaDocument::member_schemas(const Conjunction& flat, const std::string& name) {
  Conjunction schemas;
  std::vector<bool> evaluates(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    const SchemaPart& part = flat[i];
    const Json& schema = *part.schema;
    const auto properties = schema.find("properties");
    if (properties != schema.end() && properties->contains(name)) {
      schemas.push_back(child(part, "properties", name));
      evaluates[i] = true;
    }
    const auto patterns = schema.find("patternProperties");
    if (patterns != schema.end()) {
      for (const auto& [pattern, each] : patterns->items()) {
        if (!text_set(pattern, part.pointer + "/patternProperties").contains(name)) continue;
        schemas.push_back(child(part, "patternProperties", pattern));
        evaluates[i] = true;
      }
    }
    if (!evaluates[i] && schema.contains("additionalProperties")) {
      schemas.push_back(child(part, "additionalProperties"));
      evaluates[i] = true;
    }
  }
  for (const SchemaPart& owner : flat) {
    if (!owner.schema->contains("unevaluatedProperties")) continue;
    bool is_evaluated = false;
    for (size_t i = 0; i < flat.size(); ++i) {
      const bool all = flat[i].schema != owner.schema && flat[i].schema->contains("unevaluatedProperties");
      is_evaluated = is_evaluated || ((evaluates[i] || all) && counts_for(flat[i], owner));
    }
    if (!is_evaluated) schemas.push_back(child(owner, "unevaluatedProperties"));
  }
  return schemas;
}

Conjunction SchemaDocument::free_member_schemas(const Conjunction& flat, const std::vector<std::string>& matched) {
  Conjunction schemas;
  std::vector<bool> evaluates(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    const SchemaPart& part = flat[i];
    for (const std::string& pattern : matched) {
      const auto patterns = part.schema->find("patternProperties");
      if (patterns == part.schema->end() || !patterns->contains(pattern)) continue;
      schemas.push_back(child(part, "patternProperties", pattern));
      evaluates[i] = true;
    }
    if (!evaluates[i] && part.schema->contains("additionalProperties")) {
      schemas.push_back(child(part, "additionalProperties"));
      evaluates[i] = true;
    }
  }
  for (const SchemaPart& owner : flat) {
    if (!owner.schema->contains("unevaluatedProperties")) continue;
    bool is_evaluated = false;
    for (size_t i = 0; i < flat.size(); ++i) {
      const bool all = flat[i].schema != owner.schema && flat[i].schema->contains("unevaluatedProperties");
      is_evaluated = is_evaluated || ((evaluates[i] || all) && counts_for(flat[i], owner));
    }
    if (!is_evaluated) schemas.push_back(child(owner, "unevaluatedProperties"));
  }
  return schemas;
}

Conjunction SchemaDocument::item_schemas(const Conjunction& flat, size_t index) {
  Conjunction schemas;
  std::vector<bool> evaluates(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    const SchemaPart& part = flat[i];
    const auto prefix = prefix_keyword(*part.schema), rest = rest_keyword(*part.schema);
    if (!prefix.empty() && index < (*part.schema)[std::string(prefix)].size()) {
      schemas.push_back(child(part, prefix, index));
      evaluates[i] = true;
    } else if (!rest.empty()) {
      schemas.push_back(child(part, rest));
      evaluates[i] = true;
    }
  }
  for (const SchemaPart& owner : flat) {
    if (!owner.schema->contains("unevaluatedItems")) continue;
    bool is_evaluated = false;
    Conjunction contained;
    for (size_t i = 0; i < flat.size(); ++i) {
      if (!counts_for(flat[i], owner)) continue;
      const bool all = flat[i].schema != owner.schema && flat[i].schema->contains("unevaluatedItems");
      is_evaluated = is_evaluated || evaluates[i] || all;
      if (flat[i].schema->contains("contains") && resources_.draft() >= 2020) {
        contained.push_back(child(flat[i], "contains"));
      }
    }
    if (is_evaluated) continue;
    const SchemaPart otherwise = child(owner, "unevaluatedItems");
    if (contained.empty()) {
      schemas.push_back(otherwise);
      continue;
    }
    // Items that `contains` counts are evaluated by it.
    schemas.push_back(evaluated_or(otherwise, contained));
  }
  return schemas;
}

std::string_view prefix_keyword(const Json& schema) {
  if (schema.contains("prefixItems")) return "prefixItems";
  return schema.contains("items") && schema["items"].is_array() ? "items" : "";
}

std::string_view rest_keyword(const Json& schema) {
  const auto items = schema.find("items");
  if (items == schema.end()) return "";
  if (!items->is_array()) return "items";
  return schema.contains("additionalItems") ? "additionalItems" : "";
}

}  // namespace carat::text::grammar
