#include "hub/remote/repo_listing.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/printable.h"
#include "hub/hub_cache.h"

namespace carat::hub {

using nlohmann::json;

namespace {

constexpr int kMaxPages = 1000;
constexpr size_t kMaxFiles = 100'000;
constexpr int kMaxJsonDepth = 16;
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxComponentBytes = 255;

json parse_document(const HubClient::Document& document) {
  const auto limit_depth = [](int depth, json::parse_event_t, json&) {
    if (depth > kMaxJsonDepth) throw std::length_error("too deeply nested");
    return true;
  };
  try {
    return json::parse(document.body, limit_depth);
  } catch (const std::exception& error) {  // what json throws, and the limit
    fail(ErrorCode::kIo, "{} sent something that cannot be read as a listing ({}); is HF_ENDPOINT right?",
         document.url.origin(), gguf::printable(error.what()));
  }
}

// The address in `Link: <address>; rel="next"`, if there is one.
std::optional<std::string> next_page(const HttpResponse& response) {
  const std::string link = response.header("link").value_or("");
  size_t at = 0;
  while ((at = link.find('<', at)) != std::string::npos) {
    const size_t close = link.find('>', at);
    if (close == std::string::npos) break;
    const std::string parameters = link.substr(close, link.find('<', close) - close);
    if (parameters.find("rel=\"next\"") != std::string::npos) return link.substr(at + 1, close - at - 1);
    at = close;
  }
  return std::nullopt;
}

uint64_t read_size(const json& entry, const std::string& path) {
  const auto size = entry.find("size");
  if (size == entry.end() || !size->is_number_unsigned() || size->get<uint64_t>() > kMaxFileBytes) {
    fail(ErrorCode::kIo, "the listing gives no possible size for {}", path);
  }
  return size->get<uint64_t>();
}

void add_entry(const json& entry, RepoListing& listing) {
  if (!entry.is_object() || entry.value("type", json()) != "file") return;
  const auto path = entry.find("path");
  if (path == entry.end() || !path->is_string()) return;
  RepoFile file;
  file.path = path->get<std::string>();
  if (!file.path.ends_with(".gguf")) return;
  if (!is_safe_path(file.path)) {
    fail(ErrorCode::kIo, "the listing names the file {}, which is no safe path; nothing is downloaded",
         gguf::printable(file.path));
  }
  file.bytes = read_size(entry, file.path);
  const auto lfs = entry.find("lfs");
  if (lfs != entry.end() && lfs->is_object()) {
    const auto oid = lfs->find("oid");
    if (oid == lfs->end() || !oid->is_string() || !is_sha256(oid->get<std::string>()) ||
        read_size(*lfs, file.path) != file.bytes) {
      fail(ErrorCode::kIo, "the listing contradicts itself about {} (field lfs)", file.path);
    }
    file.sha256 = oid->get<std::string>();
  }
  if (listing.files.size() == kMaxFiles) fail(ErrorCode::kIo, "the listing has more than {} files", kMaxFiles);
  listing.files.push_back(std::move(file));
}

std::string resolve_commit(HubClient& client, const RepoReference& reference, const std::string& revision) {
  const Url url = client.address(
      fmt::format("/api/models/{}/revision/{}", percent_encode(reference.id(), "/"), percent_encode(revision)));
  const auto document =
      client.get_document(url, reference, fmt::format("repository {} with the revision {}", reference.id(), revision));
  const json info = parse_document(document);
  const auto commit = info.is_object() ? info.find("sha") : info.end();
  if (commit == info.end() || !commit->is_string() || !is_commit(commit->get<std::string>())) {
    fail(ErrorCode::kIo, "{} does not say which commit {} is (field sha)", url.origin(), revision);
  }
  return commit->get<std::string>();
}

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || utf8_sanitise(path) != path) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view component = path.substr(start, end - start);
    if (component.empty() || component == "." || component == ".." || component.size() > kMaxComponentBytes) {
      return false;
    }
    start = end + 1;
  }
  return true;
}

RepoListing list_repo(HubClient& client, const RepoReference& reference, const std::string& revision) {
  check_revision(revision);
  RepoListing listing;
  listing.commit = resolve_commit(client, reference, revision);
  Url url = client.address(
      fmt::format("/api/models/{}/tree/{}?recursive=true", percent_encode(reference.id(), "/"), listing.commit));
  for (int page = 0; page < kMaxPages; ++page) {
    const auto document = client.get_document(url, reference, fmt::format("file list of {}", reference.id()));
    const json entries = parse_document(document);
    if (!entries.is_array()) fail(ErrorCode::kIo, "{} sent no list of files for {}", url.origin(), reference.id());
    for (const json& entry : entries) add_entry(entry, listing);
    const auto next = next_page(document.response);
    if (!next) return listing;
    const auto next_url = resolve_url(url, *next);
    if (!next_url || (url.scheme == "https" && next_url->scheme != "https")) {
      fail(ErrorCode::kIo, "{} continues its list at an address that cannot be followed", url.origin());
    }
    url = *next_url;
  }
  fail(ErrorCode::kIo, "the list of files of {} does not end after {} pages", reference.id(), kMaxPages);
}

}  // namespace carat::hub
