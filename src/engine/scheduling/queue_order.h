#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace carat::engine {

// One of the requests that wait for a place, as far as its turn depends on it.
struct QueuedRequest {
  bool has_started = false;    // it had a place already and had to give it back
  int32_t priority = 0;        // lower ones first
  double client_work = 0.0;    // of its client: FairShare::work
  uint32_t tokens_to_run = 0;  // of its prompt
  double waited = 0.0;         // seconds
};

// Whose turn it is. Requests that had to give back their place come first, then the lowest priority (each half minute
// of waiting counts as one step), then the client that was given least, then the shortest prompt, where every second of
// waiting makes a prompt count as if it were shorter, so that a long one is overtaken for a while and not for ever.
// Among equals the first one. `queue` must not be empty.
size_t next_in_queue(std::span<const QueuedRequest> queue);

// How much was done for each client that has requests waiting or running, in tokens: prompt tokens that were run and
// tokens that were chosen. Who comes back after a while begins with as little as whoever has least: nobody saves up.
class FairShare {
 public:
  void begin(const std::string& client);  // a request of the client was submitted
  void end(const std::string& client);    // and has ended
  void add(const std::string& client, double tokens);
  double work(const std::string& client) const;

 private:
  struct Client {
    uint32_t requests = 0;
    double work = 0.0;
  };
  std::map<std::string, Client> clients_;
};

}  // namespace carat::engine
