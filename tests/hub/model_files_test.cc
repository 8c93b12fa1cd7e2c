#include "hub/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/raised_error.h"

namespace carat::test {
namespace {

using hub::ListedFile;
using hub::ModelFiles;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<ModelFiles> models_of(const std::vector<std::string>& paths) {
  std::vector<ListedFile> files;
  for (const std::string& path : paths) files.push_back({path, 1000});
  return hub::group_models(files);
}

// The name of the model that is chosen; empty when there is none.
std::string chosen(const std::vector<ModelFiles>& models, const std::string& quant) {
  const auto choice = hub::choose_model(models, {"owner", "repo", quant});
  return choice ? models[choice->index].name : "";
}

TEST(ModelFiles, KnowsQuantisationsAsPeopleWriteThem) {
  const auto quant = [](const std::string& path) { return models_of({path}).front().quant; };
  EXPECT_EQ(quant("gemma-4-E4B-it-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant("gemma-4-E4B-it.q8_0.gguf"), "Q8_0");
  EXPECT_EQ(quant("gemma-4-E4B-it-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quant("gemma-4-E4B-it-qat-q4_0.gguf"), "Q4_0");
  EXPECT_EQ(quant("gemma_4_it_bf16.gguf"), "BF16");
  EXPECT_EQ(quant("x-IQ4_XS.gguf"), "IQ4_XS");
  EXPECT_EQ(quant("x-MXFP4_MOE.GGUF"), "MXFP4_MOE");
  EXPECT_EQ(quant("Q8_0/x-Q8_0-00001-of-00002.gguf"), "Q8_0");
  EXPECT_EQ(quant("Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant("gemma-4-E4B-it.gguf"), "");
  EXPECT_EQ(quant("gemma-Q9.gguf"), "");
  EXPECT_EQ(quant("gemma-Q4KM.gguf"), "");
}

TEST(ModelFiles, PartsBelongTogether) {
  const auto models =
      models_of({"m-00002-of-00003.gguf", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf", "n-00002-of-00002.gguf",
                 "o-00003-of-00002.gguf", "README.md", "p-00001-of-00001.gguf"});
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "m");
  EXPECT_THAT(models[0].parts, ElementsAre("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"));
  EXPECT_TRUE(models[0].complete());
  EXPECT_EQ(models[0].bytes, 3000u);
  EXPECT_THAT(models[1].missing, ElementsAre(1u));
  EXPECT_EQ(models[2].name, "o-00003-of-00002");  // numbers that make no sense are part of the name
  EXPECT_EQ(models[3].part_count, 1u);
}

TEST(ModelFiles, LeavesOutNamesThatWriteToTheTerminal) {
  EXPECT_TRUE(models_of({"a\x1b[2J.gguf", "b\n.gguf"}).empty());
}

TEST(ModelFiles, ChoosesByQuantisationWithoutRegardToCase) {
  const auto models = models_of({"g-Q4_K_M.gguf", "g-UD-Q4_K_XL.gguf", "g-Q8_0.gguf", "g-qat-Q4_0.gguf"});
  EXPECT_EQ(chosen(models, "q4_k_m"), "g-Q4_K_M");
  EXPECT_EQ(chosen(models, "Q8_0"), "g-Q8_0");
  EXPECT_EQ(chosen(models, "UD-Q4_K_XL"), "g-UD-Q4_K_XL");
  EXPECT_EQ(chosen(models, "Q4_K_XL"), "g-UD-Q4_K_XL");
  EXPECT_EQ(chosen(models, "qat-q4_0"), "g-qat-Q4_0");
  EXPECT_EQ(chosen(models, "g-q8_0"), "g-Q8_0");
  EXPECT_EQ(chosen(models, "g-Q8_0.gguf"), "g-Q8_0");
  EXPECT_EQ(chosen(models, "Q5_K_M"), "");
  EXPECT_EQ(chosen(models, "4_K_M"), "");  // not at a boundary
}

TEST(ModelFiles, AnExactQuantisationIsBetterThanAnEnding) {
  const auto models = models_of({"g-Q4_K_XL.gguf", "g-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(chosen(models, "Q4_K_XL"), "g-Q4_K_XL");
}

TEST(ModelFiles, WithoutAQuantisationTheOrderDecidesAndSaysSo) {
  const auto models = models_of({"g-BF16.gguf", "g-Q8_0.gguf", "g-Q4_K_M.gguf", "g-IQ4_XS.gguf"});
  const auto choice = hub::choose_model(models, {"owner", "repo", ""});
  ASSERT_TRUE(choice);
  EXPECT_EQ(models[choice->index].name, "g-Q4_K_M");
  EXPECT_THAT(choice->note, HasSubstr("Q4_K_M of 4 models was taken"));
  EXPECT_THAT(choice->note, HasSubstr("IQ4_XS (1.00 kB)"));
  EXPECT_EQ(chosen(models_of({"g-BF16.gguf", "g-Q8_0.gguf"}), ""), "g-Q8_0");
  // One alone needs no order and no words.
  const auto alone = models_of({"g-IQ4_XS.gguf", "mmproj-F16.gguf"});
  EXPECT_EQ(chosen(alone, ""), "g-IQ4_XS");
  EXPECT_EQ(hub::choose_model(alone, {"owner", "repo", ""})->note, "");
}

TEST(ModelFiles, SeveralThatFitAreAnErrorThatListsThem) {
  const auto models = models_of({"e2b-Q8_0.gguf", "e4b-Q8_0.gguf", "e4b-IQ2_M.gguf"});
  for (const std::string quant : {"Q8_0", ""}) {
    const RaisedError error = error_of([&] { chosen(models, quant); });
    EXPECT_EQ(error.code, ErrorCode::kBadArgument);
    EXPECT_THAT(error.message, HasSubstr("hf:owner/repo:e2b-Q8_0\n"));
    EXPECT_THAT(error.message, HasSubstr("hf:owner/repo:e4b-Q8_0"));
    EXPECT_THAT(error.message, Not(HasSubstr("IQ2_M")));
  }
  EXPECT_EQ(chosen(models, "e4b-Q8_0"), "e4b-Q8_0");
  const RaisedError unknown = error_of([&] { chosen(models_of({"a-IQ2_M.gguf", "b-IQ1_S.gguf"}), ""); });
  EXPECT_THAT(unknown.message, HasSubstr("could be any of 2 models"));
}

TEST(ModelFiles, ProjectorsAreNeverPickedAndDraftersOnlyByName) {
  const auto models = models_of(
      {"mmproj-model-f16.gguf", "g-mmproj-Q8_0.gguf", "imatrix_unsloth.gguf", "mtp-g-Q8_0.gguf", "g-Q8_0.gguf"});
  EXPECT_EQ(chosen(models, "Q8_0"), "g-Q8_0");
  EXPECT_EQ(chosen(models, ""), "g-Q8_0");
  EXPECT_EQ(chosen(models, "f16"), "");
  EXPECT_EQ(chosen(models, "mmproj-model-f16"), "");
  EXPECT_EQ(chosen(models, "mtp-g-Q8_0"), "mtp-g-Q8_0");
  // A repository of nothing but a drafter, or of a model that has such a name.
  EXPECT_EQ(chosen(models_of({"my-assistant-Q8_0.gguf", "mmproj.gguf"}), "Q8_0"), "my-assistant-Q8_0");
}

TEST(RepoReference, ReadsWhatPeopleWrite) {
  const hub::RepoReference full = hub::parse_repo_reference("hf:google/gemma-4-E4B-it-GGUF:Q4_K_M");
  EXPECT_EQ(full.owner, "google");
  EXPECT_EQ(full.repo, "gemma-4-E4B-it-GGUF");
  EXPECT_EQ(full.quant, "Q4_K_M");
  EXPECT_EQ(full.text(), "hf:google/gemma-4-E4B-it-GGUF:Q4_K_M");
  EXPECT_EQ(hub::parse_repo_reference("google/gemma").text(), "hf:google/gemma");
}

TEST(RepoReference, RefusesWhatIsNoRepository) {
  for (const char* text :
       {"hf:", "hf:google", "hf:google/", "hf:/gemma", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a--b/c", "hf:.a/b",
        "hf:a/b-", "hf:a/b c", "hf:a/b%2f", "hf:a/b\x1b", "hf:a/b:", "hf:a/b:q\n", "hf:a/b:?x"}) {
    const RaisedError error = error_of([&] { hub::parse_repo_reference(text); });
    EXPECT_EQ(error.code, ErrorCode::kBadArgument) << text;
    EXPECT_THAT(error.message, Not(HasSubstr("\x1b")));
  }
  EXPECT_NO_THROW(hub::check_revision("refs/pr/1"));
  for (const char* revision : {"", "../x", "/main", "main/", "a//b", "a b", "a\n", "a%2e"}) {
    EXPECT_THROW(hub::check_revision(revision), Error) << revision;
  }
}

}  // namespace
}  // namespace carat::test
