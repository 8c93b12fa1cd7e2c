// The required tests of the public JSON-Schema-Test-Suite. CARAT_SUITE_DETAILS=FILE writes there what was refused and
// what was answered wrongly.
#include "text/grammar/schema_suite.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

namespace carat::text::grammar {
namespace {

// Upper bound of the share of refused schemas, lower bound of that of accepted instances, in percent.
struct Bounds {
  double refused, accepted;
};

void check_draft(const std::string& draft, const Bounds& bounds) {
  const auto suite = test::schema_suite_folder();
  if (!suite) GTEST_SKIP() << "skipped: no JSON-Schema-Test-Suite; CARAT_JSON_SCHEMA_SUITE may name its folder";
  std::map<std::string, std::vector<test::SuiteSchema>> by_file;
  for (test::SuiteSchema& each : test::required_tests(*suite, draft)) by_file[each.file].push_back(std::move(each));
  test::SuiteFigures all;
  std::string details;
  for (const auto& [file, schemas] : by_file) {
    const test::SuiteFigures figures = test::try_suite(schemas, &details);
    EXPECT_EQ(figures.invalid_accepted, 0u) << file;
    details += fmt::format("{:28} {}\n", file, figures.line());
    all.add(figures);
  }
  fmt::print("{}: {}\n", draft, all.line());
  if (const char* file = std::getenv("CARAT_SUITE_DETAILS")) std::ofstream(file, std::ios::app) << details;
  EXPECT_LE(100.0 * static_cast<double>(all.refused) / static_cast<double>(all.schemas), bounds.refused);
  EXPECT_GE(100.0 * static_cast<double>(all.valid_accepted) / static_cast<double>(all.valid), bounds.accepted);
}

TEST(JsonSchemaSuite, Draft202012) { check_draft("draft2020-12", {12, 95}); }
TEST(JsonSchemaSuite, Draft7) { check_draft("draft7", {12, 95}); }
TEST(JsonSchemaSuite, Draft4) { check_draft("draft4", {12, 95}); }

}  // namespace
}  // namespace carat::text::grammar
