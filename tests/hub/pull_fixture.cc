#include "hub/pull_fixture.h"

#include <spdlog/sinks/ostream_sink.h>

#include "hub/remote/sha256.h"

namespace carat::test {

namespace fs = std::filesystem;

void PullTest::SetUp() {
#ifndef CARAT_HAVE_CURL
  GTEST_SKIP() << "skipped: this build has no libcurl";
#endif
  for (int i = 0; i < 300'000; ++i) content.push_back(static_cast<char>((i * 2654435761u) >> 13));
  hub_server.add_file(kFile, content);
  hub_server.add_file("README.md", "words");
}

hub::HubClient& PullTest::client() {
  transport_ = hub::make_http_transport({.user_agent = "carat-test", .cancelled = &cancelled});
  hub::HubSettings settings{.endpoint = *hub::parse_url(hub_server.url()), .token = token, .token_source = "HF_TOKEN"};
  settings.endpoint.target.clear();
  auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  client_ = std::make_unique<hub::HubClient>(
      settings, *transport_,
      hub::HubClientOptions{
          .sleep =
              [this](std::chrono::milliseconds pause) { pauses.push_back(static_cast<int>(pause.count() / 1000)); },
          .cancelled = &cancelled,
          .log = logger});
  return *client_;
}

hub::PullPlan PullTest::plan(const std::string& quant, const std::string& revision) {
  return hub::plan_pull(client(), {"maker", "tiny-GGUF", quant}, revision, cache());
}

void PullTest::pull(const std::string& quant, const std::string& revision) {
  const hub::PullPlan planned = plan(quant, revision);
  hub::carry_out(*client_, planned, [this](const hub::DownloadProgress& step) {
    progress.push_back(step);
    if (on_step) on_step(step);
  });
}

fs::path PullTest::blob(const std::string& bytes) const {
  hub::Sha256 hash;
  hash.add(bytes);
  return repo() / "blobs" / hash.hex_digest();
}

void PullTest::leave_incomplete(const std::string& bytes_of_all, const std::string& there) const {
  fs::create_directories(repo() / "blobs");
  write_text(incomplete(bytes_of_all).string(), there);
}

}  // namespace carat::test
