#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/carat_process.h"
#include "support/files.h"

namespace carat::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SchemaCommand : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = (folder_.path() / name).string();
    write_text(path, text);
    return path;
  }

  TemporaryDirectory folder_;
};

TEST_F(SchemaCommand, SaysWhatIsEnforcedAndNarrowed) {
  const std::string schema =
      file("s.json", R"({"type":"object","properties":{"a":{"type":"string","format":"color"}},"requierd":["a"]})");
  const ProcessResult result = run_carat({"schema", schema});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("enforced; made in"), HasSubstr("type (2)"),
                                HasSubstr("narrowed: #/properties/a/format: the format \"color\" is not enforced"),
                                HasSubstr("narrowed: #/requierd: \"requierd\" is no keyword")));
}

TEST_F(SchemaCommand, ChecksInstances) {
  const std::string schema =
      file("s.json", R"({"type":"object","properties":{"a":{"minimum":3},"d":{"format":"date-time"}}})");
  const ProcessResult fits = run_carat({"schema", schema, "--check", file("i.json", "{\n \"a\": 4 }")});
  EXPECT_EQ(fits.exit_code, 0);
  EXPECT_THAT(fits.out, HasSubstr("valid, and can be written"));
  const ProcessResult wrong = run_carat({"schema", schema, "--check", file("i.json", R"({"a":2})")});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("not valid: the value at #/a does not fit #/properties/a/minimum"));
  // Members in another order are valid, but not written in the schema's.
  const ProcessResult narrower =
      run_carat({"schema", schema, "--json-style", "schema", "--check", file("i.json", R"({"d":1,"a":4})")});
  EXPECT_EQ(narrower.exit_code, 1);
  EXPECT_THAT(narrower.out, HasSubstr("stops at byte 6 of the compact text, after {\"d\":1"));
}

TEST_F(SchemaCommand, RefusesWithTheKeywordsPointer) {
  const ProcessResult result =
      run_carat({"schema", file("s.json", R"({"properties":{"a":{"$ref":"https://example.org/x"}}})")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("s.json: refused"), HasSubstr("#/properties/a/$ref")));
  EXPECT_EQ(run_carat({"schema", file("s.json", "{}"), "--json-style", "any"}).exit_code, 1);
}

}  // namespace
}  // namespace carat::test
