#pragma once

#include <string_view>

#include "server/api/reply.h"
#include "server/http/http_request.h"

namespace carat::server {

// Whether who asks for "/" wants to look at something: browsers name text/html, clients of APIs do not.
bool wants_page(const HttpRequest& request);

// A file of the page: "index.html", "main.js". Compressed where the client takes that, 304 where it has the file
// already. A name that is none of the page's gives nothing: status 0.
Response page_response(std::string_view name, const HttpRequest& request);

}  // namespace carat::server
