#include "cli/flags/sampling_flags.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>

#include "base/error.h"

namespace carat::cli {

void SamplingFlags::add_to(CLI::App& command) {
  command.add_option("-s,--seed", seed, "seed of the random choices (default: a new one each time)");
  command.add_option("--temp", temperature, "temperature; 0: always the most probable token");
  command.add_option("--top-k", top_k, "choose among the k most probable tokens; 0: among all");
  command.add_option("--top-p", top_p, "choose among the most probable tokens that together reach this share");
  command.add_option("--min-p", min_p, "drop tokens less probable than this share of the best");
  command.add_option("--repeat-penalty", repeat_penalty, "divides the logits of recent tokens; 1: off");
  command.add_option("--presence-penalty", presence_penalty, "subtracted from the logits of recent tokens");
  command.add_option("--frequency-penalty", frequency_penalty, "the same, once for each occurrence");
  command.add_option("--repeat-last-n", repeat_last_n, "how many tokens count as recent (default 64); -1: all");
  command
      .add_option("-l,--logit-bias", logit_bias,
                  "TOKEN+BIAS or TOKEN-BIAS, by token id; TOKEN=-inf bans it; repeatable")
      ->allow_extra_args(false);
}

engine::LogitBias parse_logit_bias(const std::string& text) {
  const auto refuse = [&text] {
    fail(ErrorCode::kBadArgument, "--logit-bias {}: write a token id and a number such as 42+1.5, 42-1.5 or 42=-inf",
         text);
  };
  const char* const end = text.data() + text.size();
  engine::LogitBias entry{};
  auto [rest, id_error] = std::from_chars(text.data(), end, entry.token);
  if (id_error != std::errc() || rest == end) refuse();
  if (*rest == '=' || *rest == '+') {
    ++rest;
  } else if (*rest != '-') {
    refuse();
  }
  const auto [after, number_error] = std::from_chars(rest, end, entry.bias);
  if (number_error != std::errc() || after != end) refuse();
  return entry;
}

engine::SamplingOptions SamplingFlags::options(const model::Config& config) const {
  engine::SamplingOptions options = engine::SamplingOptions::recommended(config);
  options.temperature = temperature.value_or(options.temperature);
  options.top_k = top_k.value_or(options.top_k);
  options.top_p = top_p.value_or(options.top_p);
  options.min_p = min_p.value_or(options.min_p);
  options.repeat_penalty = repeat_penalty.value_or(options.repeat_penalty);
  options.presence_penalty = presence_penalty.value_or(options.presence_penalty);
  options.frequency_penalty = frequency_penalty.value_or(options.frequency_penalty);
  if (repeat_last_n) {
    if (*repeat_last_n < -1 || *repeat_last_n > std::numeric_limits<uint32_t>::max()) {
      fail(ErrorCode::kBadArgument, "--repeat-last-n {}: give a number of tokens, or -1 for all", *repeat_last_n);
    }
    options.repeat_last_n = static_cast<uint32_t>(*repeat_last_n);  // -1 becomes the largest window
  }
  for (const std::string& text : logit_bias) options.bias.push_back(parse_logit_bias(text));
  std::random_device device;
  options.seed = seed ? *seed : uint64_t{device()} << 32 | device();
  options.check(config.V);
  return options;
}

}  // namespace carat::cli
