#include "model/recommended_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace carat::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Key {
  std::string_view name;
  gguf::Value value;
};

Key float_key(std::string_view name, double value) { return {name, {gguf::ValueType::kF32, value}}; }
Key int_key(std::string_view name, int64_t value) { return {name, {gguf::ValueType::kI32, value}}; }

RecommendedSampling read(const std::vector<Key>& keys) {
  gguf::Metadata metadata;
  for (const Key& key : keys) metadata.add(key.name, key.value);
  return read_recommended_sampling(metadata);
}

TEST(RecommendedSampling, OfAFileThatSaysNothingIsTheFamilys) {
  const RecommendedSampling sampling = read({});
  EXPECT_EQ(sampling.temperature, 1.0f);
  EXPECT_EQ(sampling.top_k, 64u);
  EXPECT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.min_p, 0.0f);
  EXPECT_EQ(sampling.repeat_penalty, 1.0f);
  EXPECT_EQ(sampling.repeat_last_n, 64u);
  EXPECT_THAT(sampling.given, IsEmpty());
  EXPECT_EQ(sampling.warning(), "");
}

TEST(RecommendedSampling, ReadsEveryKeyThatCaratActsOn) {
  const RecommendedSampling sampling =
      read({float_key("general.sampling.penalty_repeat", 1.25), int_key("general.sampling.penalty_last_n", 17),
            float_key("general.sampling.min_p", 0.125), float_key("general.sampling.top_p", 0.5),
            int_key("general.sampling.top_k", 40), float_key("general.sampling.temp", 0.75)});
  EXPECT_EQ(sampling.temperature, 0.75f);
  EXPECT_EQ(sampling.top_k, 40u);
  EXPECT_EQ(sampling.top_p, 0.5f);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.repeat_penalty, 1.25f);
  EXPECT_EQ(sampling.repeat_last_n, 17u);
  EXPECT_THAT(sampling.given, ElementsAre("general.sampling.temp", "general.sampling.top_k", "general.sampling.top_p",
                                          "general.sampling.min_p", "general.sampling.penalty_repeat",
                                          "general.sampling.penalty_last_n"));
  EXPECT_THAT(sampling.unsupported, IsEmpty());
}

TEST(RecommendedSampling, NumbersOfAnyTypeAreRead) {
  // Converters write what the JSON of the model's makers holds: "temperature": 1 becomes an integer.
  EXPECT_EQ(read({int_key("general.sampling.temp", 2)}).temperature, 2.0f);
  EXPECT_EQ(read({float_key("general.sampling.top_k", 20.0)}).top_k, 20u);
  EXPECT_EQ(read({{"general.sampling.top_k", {gguf::ValueType::kU64, uint64_t{20}}}}).top_k, 20u);
}

TEST(RecommendedSampling, NegativeCountsMeanNoLimit) {
  EXPECT_EQ(read({int_key("general.sampling.top_k", -1)}).top_k, 0u);
  EXPECT_EQ(read({int_key("general.sampling.penalty_last_n", -1)}).repeat_last_n, std::numeric_limits<uint32_t>::max());
}

TEST(RecommendedSampling, SaysWhatCaratDoesNotHave) {
  const RecommendedSampling sampling =
      read({int_key("general.sampling.mirostat", 2),
            float_key("general.sampling.mirostat_tau", 5.0),
            float_key("general.sampling.xtc_probability", 0.5),
            {"general.sampling.sequence", {gguf::ValueType::kString, std::string_view("top_k;temp")}}});
  EXPECT_THAT(sampling.unsupported, ElementsAre("general.sampling.xtc_probability", "general.sampling.mirostat",
                                                "general.sampling.sequence"));
  EXPECT_THAT(sampling.warning(), HasSubstr("general.sampling.xtc_probability, general.sampling.mirostat"));
  // Switched off is what carat does.
  EXPECT_EQ(read({int_key("general.sampling.mirostat", 0), float_key("general.sampling.xtc_probability", 0.0),
                  float_key("general.sampling.mirostat_eta", 0.1)})
                .warning(),
            "");
}

TEST(RecommendedSampling, ValuesBeyondTheirRangeAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const Key& key :
       {float_key("general.sampling.temp", -0.5), float_key("general.sampling.temp", nan),
        float_key("general.sampling.temp", infinity), float_key("general.sampling.top_p", 0.0),
        float_key("general.sampling.top_p", 1.5), float_key("general.sampling.min_p", -0.1),
        float_key("general.sampling.min_p", 1.1), float_key("general.sampling.penalty_repeat", 0.0),
        float_key("general.sampling.penalty_repeat", infinity), float_key("general.sampling.top_k", 1.5),
        float_key("general.sampling.top_k", nan), float_key("general.sampling.penalty_last_n", 1e18),
        Key{"general.sampling.temp", {gguf::ValueType::kString, std::string_view("hot")}}}) {
    try {
      read({key});
      ADD_FAILURE() << key.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      EXPECT_THAT(error.what(), HasSubstr(std::string(key.name)));
    }
  }
}

}  // namespace
}  // namespace carat::model
