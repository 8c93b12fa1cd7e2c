#include <fmt/format.h>

#include "text/grammar/schema/schema_document.h"

namespace carat::text::grammar {

namespace {

// What is written for a format. Narrower than the standards where these are wide.
constexpr std::string_view kDatePattern =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTimePattern =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])";
constexpr std::string_view kHostPattern =
    "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?(?:\\.[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?){1,4}";
constexpr std::string_view kIpv4Pattern =
    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}";

// Of a pointer into JSON (RFC 6901).
constexpr std::string_view kPointerPattern = "(?:/(?:[^/~]|~[01])*)*";
constexpr std::string_view kDurationTime =
    "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)";
constexpr std::string_view kDurationDate =
    "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)";

}  // namespace

std::optional<std::string> format_pattern(std::string_view name) {
  static const std::string kUri = fmt::format("https?://{}(?:/[A-Za-z0-9._~-]{{1,60}}){{0,10}}/?", kHostPattern);
  if (name == "date") return fmt::format("^{}$", kDatePattern);
  if (name == "time") return fmt::format("^{}$", kTimePattern);
  if (name == "date-time") return fmt::format("^{}T{}$", kDatePattern, kTimePattern);
  if (name == "uuid") return "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
  if (name == "email" || name == "idn-email")
    return fmt::format("^[a-zA-Z0-9]+(?:[._+-][a-zA-Z0-9]+){{0,5}}@{}$", kHostPattern);
  if (name == "hostname" || name == "idn-hostname") return fmt::format("^{}$", kHostPattern);
  if (name == "ipv4") return fmt::format("^{}$", kIpv4Pattern);
  if (name == "ipv6") return "^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}$";
  if (name == "uri" || name == "iri") return fmt::format("^{}$", kUri);
  if (name == "uri-reference" || name == "iri-reference" || name == "uri-template") {
    return fmt::format("^(?:{}|(?:/[A-Za-z0-9._~-]{{1,60}}){{1,10}}/?)$", kUri);
  }
  if (name == "duration") {
    return fmt::format("^P(?:{}(?:{})?|{}|[0-9]{{1,4}}W)$", kDurationDate, kDurationTime, kDurationTime);
  }
  if (name == "json-pointer") return fmt::format("^{}$", kPointerPattern);
  if (name == "relative-json-pointer") return fmt::format("^(?:0|[1-9][0-9]{{0,5}})(?:#|{})$", kPointerPattern);
  if (name == "regex") return "^[A-Za-z0-9 _-]*$";
  return std::nullopt;
}

}  // namespace carat::text::grammar
