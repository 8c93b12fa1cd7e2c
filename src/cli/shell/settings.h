#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/session.h"
#include "cli/view/turn_printer.h"

namespace carat::cli {

// What can be changed between the turns of a chat, by the names of the flags.
std::vector<std::string_view> setting_names();
std::string setting_text(std::string_view name, const chat::ChatSession& session, const TurnPrinter::Options& view);
// Throws kBadArgument, and changes nothing, for an unknown name or a value out of range.
void change_setting(std::string_view name, std::string_view value, chat::ChatSession& session,
                    TurnPrinter::Options& view);

}  // namespace carat::cli
