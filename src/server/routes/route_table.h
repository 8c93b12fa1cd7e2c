#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/reply.h"
#include "server/api/responses/response_store.h"
#include "server/http/exchange.h"
#include "server/service/service.h"

namespace carat::server {

// One route: a method and a path, and how requests for it are answered.
struct Route {
  enum class Work {
    kGenerate,  // `text.read` makes a request for text of the body
    kPool,      // `make` takes time: it tokenises, say, and is called on a thread of the pool
    kAtOnce,    // `make` is cheap
    kServer,    // the router answers itself, whether there is a model or not; `make` is not used
  };
  using Make = std::function<Response(Service& service, const HttpRequest& request)>;

  std::string_view method;  // "GET" stands for HEAD, too
  std::string path;         // a "*" at the end stands for anything
  GenerationRoute text;     // its dialect, and its names in metrics
  Work work = Work::kAtOnce;
  Make make = {};
  bool is_public = false;  // needs no key
};

// All routes of a server. Immutable.
class RouteTable {
 public:
  // `responses` keeps what requests may continue by id; null: nothing is kept.
  explicit RouteTable(std::shared_ptr<ResponseStore> responses);

  // Null: there is none with this method.
  const Route* find(std::string_view method, std::string_view path) const;
  // The methods of a path, for Allow: "GET, HEAD"; empty where there is no route.
  std::string allowed(std::string_view path) const;
  const std::vector<std::unique_ptr<Route>>& routes() const { return routes_; }

 private:
  void add(Route route);
  void add_both(Route route);  // with and without the "/v1" in front
  void add_openai(std::shared_ptr<ResponseStore> responses);
  void add_anthropic();
  void add_ollama();
  void add_llama();
  void add_server();
  void add_unsupported();

  std::vector<std::unique_ptr<Route>> routes_;
};

// Whose words an error on this path should have: also of paths without a route.
Dialect dialect_of(std::string_view path);

}  // namespace carat::server
