#include "model/recommended_sampling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace carat::model {
namespace {

// The keys of one file. A value out of its range is refused rather than replaced, because the model would answer in
// another way than its makers said; the message names the command that repairs the file.
class SamplingKeys {
 public:
  SamplingKeys(const gguf::Metadata& metadata, std::vector<std::string>& given) : metadata_(metadata), given_(given) {}

  // Leaves `field` as it is when the key is absent.
  template <typename IsAllowed>
  void read(std::string_view name, float& field, IsAllowed is_allowed, std::string_view range) {
    const std::optional<double> value = number(name);
    if (!value) return;
    field = static_cast<float>(*value);
    if (!std::isfinite(field) || !is_allowed(field)) refuse(name, *value, range);
    given_.push_back(full(name));
  }

  // Counts are stored signed, and negative ones are `negative`.
  void read_count(std::string_view name, uint32_t& field, uint32_t negative) {
    const std::optional<double> value = number(name);
    if (!value) return;
    if (!(std::abs(*value) <= std::numeric_limits<int32_t>::max()) || *value != std::trunc(*value)) {
      refuse(name, *value, "a number of tokens");
    }
    field = *value < 0.0 ? negative : static_cast<uint32_t>(*value);
    given_.push_back(full(name));
  }

  bool is_on(std::string_view name) const {
    const std::optional<double> value = number(name);
    return value && *value != 0.0;
  }
  bool has(std::string_view name) const { return metadata_.find(full(name)) != nullptr; }
  static std::string full(std::string_view name) { return fmt::format("general.sampling.{}", name); }

 private:
  std::optional<double> number(std::string_view name) const { return metadata_.number(full(name)); }

  [[noreturn]] static void refuse(std::string_view name, double value, std::string_view range) {
    fail(ErrorCode::kBadFile,
         "{0} is {1} but must be {2}; `carat quantize IN OUT copy --override-kv {0}=TYPE:VALUE` writes another value",
         full(name), value, range);
  }

  const gguf::Metadata& metadata_;
  std::vector<std::string>& given_;
};

}  // namespace

RecommendedSampling read_recommended_sampling(const gguf::Metadata& metadata) {
  RecommendedSampling sampling;
  SamplingKeys keys(metadata, sampling.given);
  const auto is_share = [](float value) { return value >= 0.0f && value <= 1.0f; };
  const auto is_positive = [](float value) { return value > 0.0f; };
  const auto is_positive_share = [](float value) { return value > 0.0f && value <= 1.0f; };
  keys.read(
      "temp", sampling.temperature, [](float value) { return value >= 0.0f; }, "a finite number, 0 or more");
  keys.read_count("top_k", sampling.top_k, 0);
  keys.read("top_p", sampling.top_p, is_positive_share, "above 0 and at most 1");
  keys.read("min_p", sampling.min_p, is_share, "from 0 to 1");
  keys.read("penalty_repeat", sampling.repeat_penalty, is_positive, "a finite number above 0");
  keys.read_count("penalty_last_n", sampling.repeat_last_n, std::numeric_limits<uint32_t>::max());
  for (const std::string_view name : {"xtc_probability", "mirostat"}) {
    if (keys.is_on(name)) sampling.unsupported.push_back(SamplingKeys::full(name));
  }
  // The order of the steps. carat's own is fixed, because seeds would mean something else in each order.
  if (keys.has("sequence")) sampling.unsupported.push_back(SamplingKeys::full("sequence"));
  return sampling;
}

std::string RecommendedSampling::warning() const {
  if (unsupported.empty()) return {};
  return fmt::format("the model file recommends {}, which carat does not have; tokens are chosen without",
                     fmt::join(unsupported, ", "));
}

}  // namespace carat::model
