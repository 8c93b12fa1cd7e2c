#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exec/cuda/profile/profile.h"

namespace carat::cli {

// A profile as tables for a terminal, as JSON, and as one HTML page that needs nothing but itself: the same tables, a
// bar for each family and a roofline plot of both phases.
std::string profile_text(const exec::ProfileReport& report);
nlohmann::ordered_json profile_json(const exec::ProfileReport& report);
std::string profile_html(const exec::ProfileReport& report);

// "12.3 ms", "45.6 µs": three digits.
std::string duration_text(double seconds);
// "prefill of 2,048 tokens" or "decode of one token after 2,048".
std::string phase_title(const exec::ProfilePhase& phase);
// What the difference between the families' sum and the real time is.
std::string gap_text(const exec::ProfilePhase& phase);

}  // namespace carat::cli
