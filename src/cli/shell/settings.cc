#include "cli/shell/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace carat::cli {

namespace {

template <typename Number>
Number parse_number(std::string_view name, std::string_view value) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    fail(ErrorCode::kBadArgument, "/set {} {}: give a {}number", name, value,
         std::is_integral_v<Number> ? "whole, not negative " : "");
  }
  return number;
}

// A number of tokens, or -1 for `everything`.
uint32_t parse_count(std::string_view name, std::string_view value, uint32_t everything) {
  return value == "-1" ? everything : parse_number<uint32_t>(name, value);
}

std::string count_text(uint32_t count, uint32_t everything) {
  return count == everything ? "-1 (no limit)" : fmt::format("{}", count);
}

std::string_view show_thinking_name(ShowThinking show) {
  switch (show) {
    case ShowThinking::kFull:
      return "full";
    case ShowThinking::kSummary:
      return "summary";
    case ShowThinking::kNone:
      break;
  }
  return "none";
}

struct Target {
  chat::ChatSession::Options& chat;
  TurnPrinter::Options& view;
};

struct Setting {
  std::string_view name;
  void (*change)(std::string_view name, std::string_view value, Target target);
  std::string (*text)(const chat::ChatSession::Options& chat, const TurnPrinter::Options& view);
};

using Chat = chat::ChatSession::Options;
using View = TurnPrinter::Options;
constexpr uint32_t kEverything = std::numeric_limits<uint32_t>::max();

template <auto Member>
constexpr Setting sampling(std::string_view name) {
  using Number = std::remove_reference_t<decltype(std::declval<engine::SamplingOptions>().*Member)>;
  return {name,
          [](std::string_view own, std::string_view value, Target target) {
            target.chat.turn.sampling.*Member = parse_number<Number>(own, value);
          },
          [](const Chat& chat, const View&) { return fmt::format("{}", chat.turn.sampling.*Member); }};
}

constexpr std::array kSettings = {
    sampling<&engine::SamplingOptions::temperature>("temp"),
    sampling<&engine::SamplingOptions::top_k>("top-k"),
    sampling<&engine::SamplingOptions::top_p>("top-p"),
    sampling<&engine::SamplingOptions::min_p>("min-p"),
    sampling<&engine::SamplingOptions::repeat_penalty>("repeat-penalty"),
    sampling<&engine::SamplingOptions::presence_penalty>("presence-penalty"),
    sampling<&engine::SamplingOptions::frequency_penalty>("frequency-penalty"),
    Setting{"repeat-last-n",
            [](std::string_view name, std::string_view value, Target target) {
              target.chat.turn.sampling.repeat_last_n = parse_count(name, value, kEverything);
            },
            [](const Chat& chat, const View&) { return count_text(chat.turn.sampling.repeat_last_n, kEverything); }},
    sampling<&engine::SamplingOptions::seed>("seed"),
    Setting{
        "predict",
        [](std::string_view name, std::string_view value, Target target) {
          target.chat.turn.max_tokens = parse_count(name, value, engine::Request::kUnlimited);
        },
        [](const Chat& chat, const View&) { return count_text(chat.turn.max_tokens, engine::Request::kUnlimited); }},
    Setting{"think-budget",
            [](std::string_view name, std::string_view value, Target target) {
              if (value == "-1") {
                target.chat.turn.think_budget.reset();
              } else {
                target.chat.turn.think_budget = parse_number<uint64_t>(name, value);
              }
            },
            [](const Chat& chat, const View&) {
              return chat.turn.think_budget ? fmt::format("{}", *chat.turn.think_budget) : std::string("-1 (no limit)");
            }},
    Setting{"show-thinking",
            [](std::string_view, std::string_view value, Target target) {
              target.view.show_thinking = parse_show_thinking(value);
            },
            [](const Chat&, const View& view) { return std::string(show_thinking_name(view.show_thinking)); }},
    Setting{"overflow",
            [](std::string_view, std::string_view value, Target target) {
              target.chat.overflow = chat::parse_overflow(value);
            },
            [](const Chat& chat, const View&) {
              return std::string(chat.overflow == chat::Overflow::kShift ? "shift" : "error");
            }},
};

const Setting& find(std::string_view name) {
  const auto found = std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& s) { return s.name == name; });
  if (found != kSettings.end()) return *found;
  std::string known;
  for (const Setting& setting : kSettings) known += fmt::format("{}{}", known.empty() ? "" : ", ", setting.name);
  fail(ErrorCode::kBadArgument, "/set {}: known settings are {}", name, known);
}

}  // namespace

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const Setting& setting : kSettings) names.push_back(setting.name);
  return names;
}

std::string setting_text(std::string_view name, const chat::ChatSession& session, const TurnPrinter::Options& view) {
  return find(name).text(session.options(), view);
}

void change_setting(std::string_view name, std::string_view value, chat::ChatSession& session,
                    TurnPrinter::Options& view) {
  chat::ChatSession::Options changed = session.options();
  find(name).change(name, value, {changed, view});
  changed.turn.sampling.check(static_cast<uint32_t>(session.runner().vocab().size()));
  session.options() = std::move(changed);
}

}  // namespace carat::cli
