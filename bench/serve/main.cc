// Measures a server that speaks OpenAI's API. See bench/README.md.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "serve/figures.h"
#include "serve/load.h"
#include "serve/report.h"
#include "serve/server_info.h"

namespace carat::serve_bench {
namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

// Each request at the same time has a connection.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void show_progress(const LoadProgress& progress) {
  fmt::print(stderr, "{:5.0f} s: {} of {} requests, {:.0f} chunks/s\n", progress.seconds, progress.ended, progress.all,
             static_cast<double>(progress.tokens) / progress.seconds);
}

int run(int argc, char** argv) {
  int status = 0;
  auto options = parse_options(argc, argv, status);
  if (!options) return status;
  nlohmann::ordered_json earlier;
  if (!options->report.compare_path.empty()) earlier = load_result(options->report.compare_path);
  allow_many_files();

  ServerInfo server{.model = options->target.model};
  if (server.model.empty() || options->dataset.token_ids) {
    const ServerInfo told = ask_server(options->target);
    if (server.model.empty()) server.model = told.model;
    server.vocabulary = told.vocabulary;
  }
  Workload workload = make_workload(options->dataset, server.vocabulary);
  set_arrivals(options->load, options->dataset.seed, workload);
  warm_up(options->target, server.model, options->load.num_warmups);
  const LoadResult load = run_load(options->target, server.model, workload, options->load.max_concurrency,
                                   options->report.detailed, show_progress);
  const Figures figures = figures_of(load, options->report);
  const auto result = result_json(*options, server.model, figures, load, now_text());
  fmt::print("{}", result_table(result, earlier));
  if (!options->report.save_path.empty()) save_result(result, options->report.save_path);
  return figures.completed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace carat::serve_bench

int main(int argc, char** argv) {
  try {
    return carat::serve_bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve_bench: {}\n", error.what());
    return 2;
  }
}
