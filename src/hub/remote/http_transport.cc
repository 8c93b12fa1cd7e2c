#include "hub/remote/http_transport.h"

#ifndef CARAT_HAVE_CURL
#include "base/error.h"
#endif

namespace carat::hub {

std::optional<std::string> HttpResponse::header(const std::string& lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::nullopt : std::optional(found->second);
}

#ifndef CARAT_HAVE_CURL
std::unique_ptr<HttpTransport> make_http_transport(const TransportOptions&) {
  fail(ErrorCode::kUnsupported,
       "this build of carat cannot download: it was built without libcurl. Install libcurl 7.85 or newer (Debian: "
       "libcurl4-openssl-dev) and build again, or download the file yourself and give its path with -m");
}
#endif

}  // namespace carat::hub
