#include "exec/cpu/simd/instruction_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace carat::exec::cpu {
namespace {

TEST(InstructionSet, PortableIsAlwaysThereAndTheWidestIsTheDefault) {
  const auto usable = usable_kernels();
  ASSERT_FALSE(usable.empty());
  EXPECT_STREQ(usable.front()->name, "portable");
  EXPECT_EQ(&choose_kernels({}), usable.back());
  for (size_t i = 1; i < usable.size(); ++i) EXPECT_GT(usable[i]->lanes, usable[i - 1]->lanes);
}

TEST(InstructionSet, ATableIsChosenByName) {
  for (const KernelTable* table : usable_kernels()) {
    const auto choices = KernelChoices::parse(std::string("dot=") + table->name);
    EXPECT_EQ(&choose_kernels(choices), table);
    const auto panel = KernelChoices::parse(fmt::format("dot={},decode=panel", table->name));
    EXPECT_STREQ(choose_kernels(panel).name, table->name);
    EXPECT_EQ(choose_kernels(panel).find_matmul, table->find_panel_matmul);
  }
}

TEST(InstructionSet, PortableHasNoDirectKernelsAndSaysSo) {
  try {
    choose_kernels(KernelChoices::parse("dot=portable,decode=direct"));
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("dot=portable"));
  }
  for (const KernelTable* table : usable_kernels()) {
    if (table == &portable_kernels()) continue;
    const auto choices = KernelChoices::parse(fmt::format("dot={},decode=direct", table->name));
    EXPECT_EQ(&choose_kernels(choices), table);
  }
}

TEST(InstructionSet, WhatTheMachineLacksIsRefused) {
  for (const KernelOption& option : kernel_registry()) {
    if (option.executor != "cpu" || option.slot != "dot") continue;
    const auto usable = usable_kernels();
    const auto matches = [&](const KernelTable* table) { return option.name == table->name; };
    if (std::any_of(usable.begin(), usable.end(), matches)) continue;
    const auto choices = KernelChoices::parse(fmt::format("dot={}", option.name));
    try {
      choose_kernels(choices);
      ADD_FAILURE() << option.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr("portable"));
    }
  }
}

}  // namespace
}  // namespace carat::exec::cpu
