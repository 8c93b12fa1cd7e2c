#include "cli/flags/serve_flags.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace carat::cli {

namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace

void ServeFlags::add_to(CLI::App& command) {
  size.default_context = 32768;
  model.add_to(command);
  command.add_option("--host", host, "address to listen on; others than loopback need an API key")
      ->capture_default_str();
  command.add_option("--port", port, "port to listen on; 0: any free one")->capture_default_str();
  command
      .add_option("--api-key", api_keys, "key that requests must have; several by commas or by giving the flag again")
      ->delimiter(',')
      ->type_name("KEY");
  command.add_option("--api-key-file", api_key_file, "file with one key on each line")->type_name("FILE");
  command.add_flag("--allow-no-key", allow_no_key, "listen on other addresses than loopback without a key");
  command.add_option("-a,--alias", aliases, "further names of the model; the first is what clients are told")
      ->delimiter(',')
      ->type_name("NAME");
  command.add_flag("--strict-model", strict_model, "refuse requests that name another model");
  answers.add_to(command);
  command
      .add_option(
          "--itl-target", itl_target,
          "milliseconds between two tokens of an answer that prompts of others may use; 0: as long as they take")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str();

  command.add_option("--max-queue", max_queue, "most requests that wait; others are told to try again")
      ->capture_default_str();
  command.add_option("--queue-timeout", queue_timeout, "most seconds a request waits for its turn; 0: any time")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command.add_option("--timeout,--to", timeout, "(-to) seconds after which a client that reads nothing is given up")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command.add_option("--sse-ping-interval", ping, "seconds between signs of life of an idle stream; 0: none")
      ->check(CLI::Range(-1.0, 3600.0))
      ->capture_default_str();
  command.add_option("--threads-http", http_threads, "threads that read and write connections")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command.add_option("--max-connections", max_connections, "most open connections")->capture_default_str();
  command.add_option("--max-body", max_body_mib, "largest body of a request, in MiB")
      ->check(CLI::Range(size_t{1}, size_t{4096}))
      ->capture_default_str();
  command
      .add_option("--cors-origins", cors_origins,
                  "origins of web pages that may use the server, besides those of this machine; * is any")
      ->delimiter(',')
      ->type_name("ORIGIN");
  command.add_option("--allowed-hosts", allowed_hosts, "names by which requests may call a server without a key")
      ->delimiter(',')
      ->type_name("NAME");
  command.add_option("--tls-cert,--ssl-cert-file", tls_cert, "certificate chain (PEM): serve HTTPS")->type_name("FILE");
  command.add_option("--tls-key,--ssl-key-file", tls_key, "the certificate's private key (PEM)")->type_name("FILE");
  command.add_option("--store-responses", store_responses, "responses kept for previous_response_id")
      ->capture_default_str();
  command.add_option("--metrics-compat", metrics_compat, "other servers' names under which metrics are shown, too")
      ->type_name("vllm,llamacpp|none")
      ->capture_default_str();
  command.add_option("--log-format", log_format, "lines of the log for people or for machines")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command.add_option("--log-requests", log_requests, "a line for each request; auto: unless a terminal shows them")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command
      .add_option("--drain-grace", drain_grace,
                  "seconds after SIGTERM in which requests are still taken, until a balancer has noticed")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--drain-timeout", drain_timeout, "seconds after that until running answers are cut off")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  // What llama-server wants to be asked for and carat always does.
  for (const char* name : {"--metrics", "--props", "--slots", "--jinja", "--cont-batching,--cb"}) {
    command.add_flag(name)->description("always on; taken for old scripts")->group("For old scripts");
  }
  size.add_to(command);
  device.add_to(command);
  sampling.add_to(command);
  drafts.add_to(command);
}

std::vector<std::string> ServeFlags::keys() const {
  std::vector<std::string> keys = api_keys;
  if (!api_key_file.empty()) {
    std::istringstream lines(read_text_file(api_key_file));
    const size_t before = keys.size();
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
    if (keys.size() == before) fail(ErrorCode::kBadArgument, "--api-key-file {}: there is no key in it", api_key_file);
  }
  for (const std::string& key : keys) {
    if (key.empty()) fail(ErrorCode::kBadArgument, "--api-key: a key must not be empty");
  }
  return keys;
}

server::ServerOptions ServeFlags::options() const {
  server::ServerOptions options;
  options.router.access.keys = keys();
  options.router.access.is_loopback = is_loopback(host);
  if (!is_loopback(host) && options.router.access.keys.empty() && !allow_no_key) {
    fail(ErrorCode::kBadArgument,
         "--host {} lets others use this server: give an --api-key, or --allow-no-key if everybody may", host);
  }
  if (tls_cert.empty() != tls_key.empty()) {
    fail(ErrorCode::kBadArgument, "--tls-cert and --tls-key belong together: give both");
  }
  options.router.access.cors_origins = cors_origins;
  for (const std::string& name : allowed_hosts) {
    options.router.access.hosts.push_back(server::host_without_port(name));
  }
  options.router.metrics_compat = server::parse_metrics_compat(metrics_compat);
  options.router.version = CARAT_VERSION;
  constexpr size_t kStoreBytes = size_t{256} << 20;
  if (store_responses > 0) {
    options.router.responses = std::make_shared<server::ResponseStore>(store_responses, kStoreBytes);
  }
  options.http.host = host;
  options.http.port = port;
  options.http.threads = http_threads;
  options.http.tls_certificate = tls_cert;
  options.http.tls_key = tls_key;
  options.http.limits.connections = max_connections;
  options.http.limits.body_bytes = max_body_mib << 20;
  options.http.limits.send = milliseconds(timeout);
  options.service.max_queue = max_queue;
  options.service.queue_timeout = queue_timeout;
  options.service.ping_seconds = ping;
  options.service.strict_model = strict_model;
  return options;
}

}  // namespace carat::cli
