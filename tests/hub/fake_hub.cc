#include "hub/fake_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hub/remote/sha256.h"
#include "hub/remote/url.h"

namespace carat::test {

namespace {
constexpr std::string_view kRange = "bytes=";

std::string sha256_of(const std::string& content) {
  hub::Sha256 hash;
  hash.add(content);
  return hash.hex_digest();
}

ServerReply status_reply(int status) { return {.status = status, .headers = {}, .body = "what the server says"}; }
}  // namespace

FakeHub::FakeHub(std::string id)
    : id_(std::move(id)),
      file_prefix_(fmt::format("/{}/resolve/{}/", id_, kCommit)),
      server_([this](const ServerRequest& request) { return answer(request); }) {}

void FakeHub::add_file(const std::string& path, const std::string& content) {
  const std::lock_guard lock(mutex_);
  files_[path] = content;
}

void FakeHub::lie_about(const std::string& path, const std::string& listing_entry) {
  const std::lock_guard lock(mutex_);
  lies_[path] = listing_entry;
}

void FakeHub::set_page_size(size_t files) {
  const std::lock_guard lock(mutex_);
  page_size_ = files;
}

void FakeHub::require_token(const std::string& token) {
  const std::lock_guard lock(mutex_);
  token_ = token;
}

void FakeHub::change_next_file(Change change) {
  const std::lock_guard lock(mutex_);
  file_changes_.push_back(std::move(change));
}

void FakeHub::change_next_api(Change change) {
  const std::lock_guard lock(mutex_);
  api_changes_.push_back(std::move(change));
}

bool FakeHub::is_file_request(const ServerRequest& request) const { return request.target.starts_with(file_prefix_); }

std::vector<ServerRequest> FakeHub::file_requests() const {
  std::vector<ServerRequest> found;
  for (const ServerRequest& request : server_.requests()) {
    if (is_file_request(request)) found.push_back(request);
  }
  return found;
}

ServerReply FakeHub::answer(const ServerRequest& request) {
  ServerReply reply;
  Change change;
  {
    const std::lock_guard lock(mutex_);
    reply = honest_answer(request);
    std::deque<Change>& changes = is_file_request(request) ? file_changes_ : api_changes_;
    if (!changes.empty()) {
      change = std::move(changes.front());
      changes.pop_front();
    }
  }
  return change ? change(request, std::move(reply)) : reply;
}

ServerReply FakeHub::honest_answer(const ServerRequest& request) const {
  const auto authorization = request.headers.find("authorization");
  if (!token_.empty() && (authorization == request.headers.end() || authorization->second != "Bearer " + token_)) {
    return status_reply(401);
  }
  if (is_file_request(request)) return answer_file(request.target.substr(file_prefix_.size()), request);
  return answer_api(request.target);
}

std::string FakeHub::listing_entry(const std::string& path) const {
  const auto lie = lies_.find(path);
  if (lie != lies_.end()) return lie->second;
  const std::string& content = files_.at(path);
  const nlohmann::json entry = {{"type", "file"},
                                {"oid", "1234567890123456789012345678901234567890"},
                                {"size", content.size()},
                                {"lfs", {{"oid", sha256_of(content)}, {"size", content.size()}, {"pointerSize", 134}}},
                                {"path", path}};
  return entry.dump();
}

ServerReply FakeHub::answer_api(const std::string& target) const {
  if (target == fmt::format("/api/models/{}/revision/main", id_) ||
      target == fmt::format("/api/models/{}/revision/refs%2Fpr%2F1", id_)) {
    return {.status = 200, .headers = {}, .body = fmt::format(R"({{"id":"{}","sha":"{}"}})", id_, kCommit)};
  }
  const std::string tree = fmt::format("/api/models/{}/tree/{}?recursive=true", id_, kCommit);
  if (!target.starts_with(tree)) return status_reply(404);
  const std::string cursor = "&cursor=";
  const size_t at = target.find(cursor);
  const size_t first = at == std::string::npos ? 0 : std::stoul(target.substr(at + cursor.size()));
  ServerReply reply;
  size_t number = 0;
  for (const auto& [path, content] : files_) {
    if (number++ < first) continue;
    if (number > first + page_size_) {
      reply.headers = {{"Link", fmt::format("<{}{}{}{}>; rel=\"next\"", url(), tree, cursor, first + page_size_)}};
      break;
    }
    reply.body += (reply.body.empty() ? "[" : ",") + listing_entry(path);
  }
  if (reply.body.empty()) reply.body = "[";
  reply.body += "]";
  return reply;
}

ServerReply FakeHub::answer_file(const std::string& path, const ServerRequest& request) const {
  const auto file = std::find_if(files_.begin(), files_.end(),
                                 [&](const auto& entry) { return hub::percent_encode(entry.first, "/") == path; });
  if (file == files_.end()) return status_reply(404);
  const std::string& content = file->second;
  const std::string etag = "\"" + sha256_of(content) + "\"";
  ServerReply reply{.status = 200, .headers = {{"ETag", etag}}, .body = content};
  const auto range = request.headers.find("range");
  const auto condition = request.headers.find("if-range");
  if (range == request.headers.end() || (condition != request.headers.end() && condition->second != etag)) return reply;
  const size_t first = std::stoul(range->second.substr(kRange.size()));
  if (first >= content.size()) return status_reply(416);
  reply.status = 206;
  reply.body = content.substr(first);
  reply.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", first, content.size() - 1, content.size()));
  return reply;
}

FakeHub::Change reply_with_status(int status, std::vector<std::pair<std::string, std::string>> headers) {
  return [status, headers](const ServerRequest&, ServerReply) {
    ServerReply reply = status_reply(status);
    reply.headers = headers;
    return reply;
  };
}

FakeHub::Change cut_after(size_t bytes) {
  return [bytes](const ServerRequest&, ServerReply reply) {
    reply.cut_after = bytes;
    return reply;
  };
}

}  // namespace carat::test
