#include "serve/server_info.h"

#include <boost/asio.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/base_url.h"
#include "serve/client.h"
#include "serve/request_writer.h"

namespace carat::serve_bench {

namespace asio = boost::asio;

namespace {

struct Answer {
  unsigned status = 0;
  std::string body;
};

Answer get(const TargetOptions& target, std::string_view path) {
  const BaseUrl url = parse_base_url(target.base_url);
  asio::io_context context(1);
  const Client::Endpoints endpoints = resolve_endpoints(context, url);
  Client client(context, endpoints);
  const std::string request = RequestWriter(target, url, "", false).get(path);
  Answer answer;
  const auto ask = [&]() -> asio::awaitable<void> {
    const std::function<void()> nothing = [] {};
    const ResponseReader::Sink body = [&](std::string_view bytes) { answer.body += bytes; };
    answer.status = co_await client.exchange(request, nothing, body);
  };
  asio::co_spawn(context, ask(), [](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  });
  context.run_for(std::chrono::seconds(30));
  return answer;
}

// The member of that name, or null.
nlohmann::json member(const nlohmann::json& parent, const char* name) {
  return parent.is_object() && parent.contains(name) ? parent[name] : nlohmann::json();
}

}  // namespace

ServerInfo ask_server(const TargetOptions& target) {
  const Answer answer = get(target, "/v1/models");
  const auto list = member(nlohmann::json::parse(answer.body, nullptr, false), "data");
  const auto first = list.is_array() && !list.empty() ? list[0] : nlohmann::json();
  const auto id = member(first, "id"), size = member(member(first, "meta"), "n_vocab");
  if (answer.status != 200 || !id.is_string()) {
    fail(ErrorCode::kIo, "{}/v1/models gives no list of models (status {}); name one with --model", target.base_url,
         answer.status);
  }
  return {.model = id.get<std::string>(), .vocabulary = size.is_number_unsigned() ? size.get<uint32_t>() : 0};
}

}  // namespace carat::serve_bench
