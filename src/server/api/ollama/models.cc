#include "server/api/ollama/models.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "server/api/json_writer.h"

namespace carat::server {

namespace {

// Clients compare it with the version that brought what they need, so it is one of Ollama's own (of September 2026)
// whose features this server has.
constexpr std::string_view kOllamaVersion = "0.33.3";

// Ollama's names have a tag.
std::string tagged_name(const ServerFacts& facts) {
  const size_t folder = facts.model_id.rfind('/');
  const size_t tag = facts.model_id.rfind(':');
  const bool has_tag = tag != std::string::npos && (folder == std::string::npos || tag > folder);
  return has_tag ? facts.model_id : facts.model_id + ":latest";
}

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// 64 hexadecimal digits that differ where the model does. Not the digest of a file's bytes: reading gigabytes for a
// field that clients only compare is not worth it.
std::string digest(const ServerFacts& facts) {
  const std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", facts.model_id, facts.file_name, facts.format,
                                       facts.parameters, facts.file_bytes, facts.created);
  std::string digits;
  for (uint64_t part = 1; part <= 4; ++part) {
    uint64_t hash = mixed(part);
    for (const char c : text) hash = mixed(hash ^ static_cast<unsigned char>(c));
    digits += fmt::format("{:016x}", hash);
  }
  return digits;
}

// "4.3B", "31M", as Ollama rounds it.
std::string size_name(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 1e12) return fmt::format("{:.1f}T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.1f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e3) return fmt::format("{:.2f}K", count / 1e3);
  return fmt::format("{}", parameters);
}

void write_details(JsonWriter& json, const ServerFacts& facts) {
  json.key("details").begin_object().field("parent_model", "").field("format", "gguf");
  json.field("family", facts.architecture).key("families").begin_list().value(facts.architecture).end_list();
  json.field("parameter_size", size_name(facts.parameters)).field("quantization_level", facts.format).end_object();
}

void write_capabilities(JsonWriter& json) {
  json.key("capabilities").begin_list();
  for (const char* capability : {"completion", "tools", "thinking"}) json.value(capability);
  json.end_list();
}

void write_identity(JsonWriter& json, const ServerFacts& facts) {
  const std::string name = tagged_name(facts);
  json.field("name", name).field("model", name);
}

// What a request gets that does not say otherwise, as a Modelfile would.
std::string parameters_text(const ServerFacts& facts) {
  return fmt::format("{:<30} {}\n{:<30} {}\n{:<30} {}", "temperature", facts.temperature, "top_k", facts.top_k, "top_p",
                     facts.top_p);
}

void write_model_info(JsonWriter& json, const ServerFacts& facts) {
  const auto of_architecture = [&](std::string_view key) { return fmt::format("{}.{}", facts.architecture, key); };
  json.key("model_info").begin_object().field("general.architecture", facts.architecture);
  json.field("general.name", facts.name).field("general.parameter_count", facts.parameters);
  // What a request may use of it here: clients size their prompts by this number.
  json.field(of_architecture("context_length"), facts.context);
  json.field(of_architecture("embedding_length"), facts.width).field(of_architecture("block_count"), facts.layers);
  json.field(of_architecture("vocab_size"), facts.vocabulary).end_object();
}

}  // namespace

Response ollama_greeting() { return {.content_type = "text/plain; charset=utf-8", .body = "Ollama is running"}; }

Response ollama_version() {
  Response response;
  JsonWriter(response.body).begin_object().field("version", kOllamaVersion).end_object();
  return response;
}

Response ollama_tags(const ServerFacts& facts) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().key("models").begin_list().begin_object();
  write_identity(json, facts);
  json.field("modified_at", rfc3339(facts.created, true)).field("size", facts.file_bytes);
  json.field("digest", digest(facts));
  write_details(json, facts);
  write_capabilities(json);
  json.end_object().end_list().end_object();
  return response;
}

Response ollama_running(const ServerFacts& facts) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().key("models").begin_list().begin_object();
  write_identity(json, facts);
  json.field("size", facts.file_bytes).field("digest", digest(facts));
  write_details(json, facts);
  // It stays as long as the server: a date far away, as Ollama has it for models that are kept.
  json.field("expires_at", "2318-01-01T00:00:00Z").field("size_vram", facts.device_bytes);
  json.field("context_length", facts.context).end_object().end_list().end_object();
  return response;
}

Response ollama_show(const ServerFacts& facts) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().field("modelfile", "").field("parameters", parameters_text(facts));
  json.field("template", facts.chat_template);
  write_details(json, facts);
  write_model_info(json, facts);
  write_capabilities(json);
  json.field("modified_at", rfc3339(facts.created, true)).end_object();
  return response;
}

}  // namespace carat::server
