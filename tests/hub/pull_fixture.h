#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "hub/fake_hub.h"
#include "hub/remote/pull.h"
#include "support/files.h"
#include "support/raised_error.h"

namespace carat::test {

// Pulls from a fake Hub into a temporary cache, without ever waiting.
class PullTest : public testing::Test {
 protected:
  static constexpr const char* kFile = "tiny-Q8_0.gguf";

  void SetUp() override;

  hub::PullPlan plan(const std::string& quant = "", const std::string& revision = "main");
  void pull(const std::string& quant = "", const std::string& revision = "main");
  RaisedError failed_pull(const std::string& quant = "") {
    return error_of([&] { pull(quant); });
  }

  std::filesystem::path repo() const { return cache() / "models--maker--tiny-GGUF"; }
  std::filesystem::path cache() const { return folder.path() / "hub"; }
  std::filesystem::path snapshot(const std::string& path = kFile) const {
    return repo() / "snapshots" / FakeHub::kCommit / path;
  }
  std::filesystem::path blob(const std::string& bytes) const;
  std::filesystem::path incomplete(const std::string& bytes) const { return blob(bytes).concat(".incomplete"); }
  // As an earlier pull would have left it.
  void leave_incomplete(const std::string& bytes_of_all, const std::string& there) const;

  TemporaryDirectory folder;
  FakeHub hub_server;
  std::string content;  // of kFile
  std::string token;
  std::vector<int> pauses;  // seconds
  std::ostringstream log;
  std::atomic<bool> cancelled{false};
  std::vector<hub::DownloadProgress> progress;
  // Called with each step of a download.
  std::function<void(const hub::DownloadProgress&)> on_step;

 private:
  hub::HubClient& client();

  std::unique_ptr<hub::HttpTransport> transport_;
  std::unique_ptr<hub::HubClient> client_;
};

}  // namespace carat::test
