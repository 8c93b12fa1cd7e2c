#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "support/http_server.h"

namespace carat::test {

// The part of the Hugging Face Hub that carat uses, with one repository. Files are LFS files, as GGUF files are there.
class FakeHub {
 public:
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  // Changes one answer; gets the request and what would have been sent.
  using Change = std::function<ServerReply(const ServerRequest&, ServerReply)>;

  explicit FakeHub(std::string id = "maker/tiny-GGUF");

  std::string url() const { return server_.url(); }
  std::vector<ServerRequest> requests() const { return server_.requests(); }
  // Requests for the content of files.
  std::vector<ServerRequest> file_requests() const;

  void add_file(const std::string& path, const std::string& content);
  // What the listing says instead of the truth: a JSON object per file, by path.
  void lie_about(const std::string& path, const std::string& listing_entry);
  void set_page_size(size_t files);
  void require_token(const std::string& token);

  // The next requests for files, or for the API, are answered with a change, in this order.
  void change_next_file(Change change);
  void change_next_api(Change change);

 private:
  ServerReply answer(const ServerRequest& request);
  // The rest with the mutex held.
  ServerReply honest_answer(const ServerRequest& request) const;
  ServerReply answer_api(const std::string& target) const;
  ServerReply answer_file(const std::string& path, const ServerRequest& request) const;
  std::string listing_entry(const std::string& path) const;

  bool is_file_request(const ServerRequest& request) const;

  const std::string id_;
  const std::string file_prefix_;
  std::mutex mutex_;  // the server's thread reads what the test's writes
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> lies_;
  size_t page_size_ = 1000;
  std::string token_;
  std::deque<Change> file_changes_;
  std::deque<Change> api_changes_;
  HttpServer server_;  // last: its thread uses all of the above
};

// Answers that need no request.
FakeHub::Change reply_with_status(int status, std::vector<std::pair<std::string, std::string>> headers = {});
FakeHub::Change cut_after(size_t bytes);

}  // namespace carat::test
