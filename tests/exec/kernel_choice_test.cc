#include "exec/kernel_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "base/error.h"

namespace carat::exec {
namespace {

std::string error_of(std::string_view text) {
  try {
    KernelChoices::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return "";
}

TEST(KernelChoice, TheRegistryHasNoDuplicatesAndNoBlanks) {
  std::set<std::tuple<std::string_view, std::string_view, std::string_view>> seen;
  ASSERT_FALSE(kernel_registry().empty());
  for (const KernelOption& option : kernel_registry()) {
    EXPECT_TRUE(seen.emplace(option.executor, option.slot, option.name).second) << option.slot << "=" << option.name;
    EXPECT_TRUE(option.executor == "reference" || option.executor == "cpu" || option.executor == "cuda");
    for (const std::string_view text : {option.slot, option.name, option.exactness, option.summary}) {
      EXPECT_FALSE(text.empty()) << option.executor << " " << option.slot << "=" << option.name;
    }
    EXPECT_EQ(option.slot.find_first_of("=, "), std::string_view::npos) << option.slot;
    EXPECT_EQ(option.name.find_first_of("=, "), std::string_view::npos) << option.name;
  }
}

TEST(KernelChoice, EveryOptionCanBeChosen) {
  for (const KernelOption& option : kernel_registry()) {
    const auto choices = KernelChoices::parse(std::string(option.slot) + "=" + std::string(option.name));
    EXPECT_EQ(choices.find(option.slot), option.name);
    EXPECT_NO_THROW(choices.check_for(option.executor));
    EXPECT_THROW(choices.check_for("abacus"), Error);
  }
}

TEST(KernelChoice, NothingChosen) {
  const KernelChoices choices = KernelChoices::parse("");
  EXPECT_TRUE(choices.empty());
  EXPECT_EQ(choices.find("arithmetic"), std::nullopt);
  EXPECT_NO_THROW(choices.check_for("cpu"));
}

TEST(KernelChoice, MistakesListWhatIsKnown) {
  EXPECT_THAT(error_of("nonsense"), testing::HasSubstr("arithmetic=double"));
  EXPECT_THAT(error_of("nonsense=double"),
              testing::AllOf(testing::HasSubstr("\"nonsense\""), testing::HasSubstr("arithmetic=double")));
  EXPECT_THAT(error_of("arithmetic=sloppy"),
              testing::AllOf(testing::HasSubstr("\"sloppy\""), testing::HasSubstr("arithmetic=double")));
  EXPECT_THAT(error_of("arithmetic=double,arithmetic=double"), testing::HasSubstr("twice"));
  EXPECT_THAT(error_of(",arithmetic=double"), testing::HasSubstr("slot=name"));
}

}  // namespace
}  // namespace carat::exec
