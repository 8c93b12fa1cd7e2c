#include "engine/scheduling/queue_order.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"

namespace carat::engine {

namespace {

constexpr double kSecondsOfAPriority = 30.0;
// Clients whose work differs by less are treated alike, so that shares of a few tokens do not decide.
constexpr double kEqualWork = 1024.0;
// Waiting so long halves what a prompt counts.
constexpr double kSecondsToHalve = 2.0;

auto key(const QueuedRequest& request) {
  const double waited = std::max(request.waited, 0.0);
  const double priority = request.priority - std::floor(waited / kSecondsOfAPriority);
  const double work = std::floor(request.client_work / kEqualWork);
  const double length = request.tokens_to_run / (1.0 + waited / kSecondsToHalve);
  return std::tuple(!request.has_started, request.has_started ? 0.0 : priority, request.has_started ? 0.0 : work,
                    request.has_started ? 0.0 : length);
}

}  // namespace

size_t next_in_queue(std::span<const QueuedRequest> queue) {
  CARAT_CHECK(!queue.empty());
  const auto first = std::min_element(queue.begin(), queue.end(),
                                      [](const QueuedRequest& a, const QueuedRequest& b) { return key(a) < key(b); });
  return static_cast<size_t>(first - queue.begin());
}

void FairShare::begin(const std::string& client) {
  const auto known = clients_.find(client);
  if (known != clients_.end()) {
    ++known->second.requests;
    return;
  }
  double least = 0.0;
  if (!clients_.empty()) {
    const auto poorest = std::min_element(clients_.begin(), clients_.end(),
                                          [](const auto& a, const auto& b) { return a.second.work < b.second.work; });
    least = poorest->second.work;
  }
  clients_[client] = {1, least};
}

void FairShare::end(const std::string& client) {
  const auto known = clients_.find(client);
  if (known != clients_.end() && --known->second.requests == 0) clients_.erase(known);
}

void FairShare::add(const std::string& client, double tokens) {
  const auto known = clients_.find(client);
  if (known != clients_.end()) known->second.work += tokens;
}

double FairShare::work(const std::string& client) const {
  const auto known = clients_.find(client);
  return known == clients_.end() ? 0.0 : known->second.work;
}

}  // namespace carat::engine
