#include "cli/reports/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "base/error.h"
#include "cli/flags/gpu_flag.h"
#include "support/metadata_model.h"

namespace carat::cli {
namespace {

using testing::HasSubstr;

PlanReport report_of(std::string_view preset, std::string_view recipe, std::string_view gpu, uint32_t context) {
  const auto model = test::hollow_model(preset, recipe);
  PlanReport report;
  report.model = "model.gguf";
  report.layers = model->config().L;
  report.context_length = model->config().context_length;
  report.gpu = parse_gpu(gpu);
  report.described = true;
  cuda::PlanRequest request;
  request.context = context;
  report.plan = cuda::make_plan(*model, report.gpu, request);
  return report;
}

std::string refusal(std::string_view text) {
  try {
    parse_gpu(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return "";
}

TEST(GpuFlag, DescribesACard) {
  const cuda::GpuFacts gpu = parse_gpu("RTX 4070 Ti,8.9,60,12");
  EXPECT_EQ(gpu.name, "RTX 4070 Ti");
  EXPECT_EQ(gpu.capability, 89u);
  EXPECT_EQ(gpu.sm_count, 60u);
  EXPECT_EQ(gpu.shared_memory, 99u * 1024);
  EXPECT_EQ(gpu.total_bytes, uint64_t{12} << 30);
  EXPECT_EQ(gpu.free_bytes, uint64_t{23} << 29);
  EXPECT_EQ(parse_gpu("H200,90,132,141").capability, 90u);
  EXPECT_EQ(parse_gpu("H200,9.0,132,141").shared_memory, 227u * 1024);
  EXPECT_EQ(parse_gpu("A100,8.0,108,80").shared_memory, 163u * 1024);
  EXPECT_EQ(parse_gpu("RTX 5090,12.0,170,32").capability, 120u);
  EXPECT_EQ(parse_gpu("busy,8.6,28,8,2.5").free_bytes, uint64_t{5} << 29);
}

TEST(GpuFlag, RefusesNonsense) {
  EXPECT_THAT(refusal("H200"), HasSubstr("four parts"));
  EXPECT_THAT(refusal("a,9.0,132,141,100,1"), HasSubstr("four parts"));
  EXPECT_THAT(refusal("a,hopper,132,141"), HasSubstr("capability"));
  EXPECT_THAT(refusal("a,9.0,0,141"), HasSubstr("SMs"));
  EXPECT_THAT(refusal("a,9.0,132,much"), HasSubstr("memory"));
  EXPECT_THAT(refusal("a,9.0,132,nan"), HasSubstr("memory"));
  EXPECT_THAT(refusal("a,9.0,132,141,142"), HasSubstr("free"));
  EXPECT_THAT(refusal("a,9.0,132,141,"), HasSubstr("free"));
}

// A type without a packing takes several times its size, and that is said.
TEST(PlanReport, NamesTypesThatBecomeLarger) {
  const PlanReport report = report_of("26b-a4b", "iq4_xs", "H200,9.0,132,141", 4096);
  EXPECT_THAT(plan_text(report), HasSubstr("those in IQ4_XS"));
  EXPECT_THAT(plan_text(report), HasSubstr("as 16-bit floats, for IQ4_XS has no packing of its own"));
  EXPECT_THAT(plan_text(report), HasSubstr("as 8-bit integers, for IQ4_NL has no packing of its own"));
  const auto inflated = plan_json(report)["inflated"];
  ASSERT_EQ(inflated.size(), 2u);
  for (const auto& format : inflated) {
    const double factor = format["packed_bytes"].get<double>() / format["file_bytes"].get<double>();
    EXPECT_NEAR(factor, format["format"] == "IQ4_XS" ? 16.0 / 4.25 : 8.5 / 4.5, 0.2) << format;
  }
  EXPECT_TRUE(plan_json(report_of("26b-a4b", "q4_0", "H200,9.0,132,141", 4096))["inflated"].empty());
}

TEST(PlanReport, ShowsEveryPartWithItsSize) {
  const PlanReport report = report_of("e4b", "q8_0", "H200,9.0,132,141", 4096);
  const std::string text = plan_text(report);
  EXPECT_THAT(text, HasSubstr("H200 (as described, not of this machine)"));
  for (const uint64_t bytes : {report.plan.weights.packed, report.plan.weights.bf16, report.plan.weights.ple_table,
                               report.plan.scratch_bytes, report.plan.reserve_bytes, report.plan.total_bytes}) {
    EXPECT_THAT(text, HasSubstr(" " + byte_size(bytes) + " "));
  }
  EXPECT_THAT(text, HasSubstr("keys and values of 20 sliding layers"));
  EXPECT_THAT(text, HasSubstr("keys and values of 4 global layers"));
  EXPECT_THAT(text, HasSubstr("131,072, all the model was trained for"));
  EXPECT_THAT(text, HasSubstr("to spare"));
  for (const cuda::KernelDecision& made : report.plan.kernels) {
    EXPECT_THAT(text, HasSubstr(made.slot + "=" + made.name));
    EXPECT_THAT(text, HasSubstr(made.reason));
  }
}

TEST(PlanReport, SaysWhereTheTableIs) {
  const PlanReport report = report_of("e4b", "q8_0", "small,8.6,28,8", 4096);
  EXPECT_FALSE(report.plan.placement.ple_on_device);
  EXPECT_THAT(plan_text(report), HasSubstr("page-locked host memory"));
  EXPECT_EQ(plan_json(report)["host_bytes"]["per_layer_table"], report.plan.weights.ple_table);
  EXPECT_EQ(plan_json(report)["bytes"]["per_layer_table"], 0);
}

TEST(PlanReport, SaysWhichLayersAreOnTheCpuAndWhatThatCosts) {
  const PlanReport whole = report_of("31b", "q4_0", "large,8.9,128,24", 4096);
  EXPECT_THAT(plan_text(whole), HasSubstr("All 60 layers on the GPU: "));
  EXPECT_EQ(plan_json(whole)["layers_on_cpu"], 0);

  PlanReport split = report_of("31b", "q4_0", "small,8.9,60,12", 4096);
  ASSERT_GT(split.layers_on_cpu(), 0u);
  const std::string on_gpu = std::to_string(60 - split.layers_on_cpu());
  EXPECT_THAT(plan_text(split), HasSubstr(on_gpu + " of 60 layers on the GPU, layers 0 to "));
  EXPECT_THAT(plan_text(split), HasSubstr("at an assumed 40 GB/s"));
  split.host_bytes_per_second = 80e9;
  split.host_measured = true;
  EXPECT_THAT(plan_text(split), HasSubstr("at the measured 80 GB/s"));
  EXPECT_EQ(plan_json(split)["cpu_seconds_per_token"], static_cast<double>(split.plan.split.bytes_per_token) / 80e9);
}

TEST(PlanReport, JsonAddsUp) {
  const PlanReport report = report_of("12b", "q4_0", "A100,8.0,108,80", 10'000);
  const nlohmann::ordered_json json = plan_json(report);
  const nlohmann::ordered_json& bytes = json["bytes"];
  uint64_t sum = 0;
  for (const auto& [name, value] : bytes.items()) {
    if (name != "total") sum += value.get<uint64_t>();
  }
  EXPECT_EQ(bytes["total"], sum);
  uint64_t kv = 0;
  for (const auto& group : json["kv_groups"]) kv += group["bytes"].get<uint64_t>();
  EXPECT_EQ(bytes["kv"], kv);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["context"], 10'000);
  EXPECT_EQ(json["gpu"]["capability"], "8.0");
  EXPECT_EQ(json["kernels"].size(), report.plan.kernels.size());
}

TEST(PlanReport, ShoutsWhenItDoesNotFit) {
  PlanReport report = report_of("12b", "q4_0", "A100,8.0,108,80", 4096);
  report.plan.fits = false;
  report.plan.free_bytes = report.plan.total_bytes - 3'000'000'000;
  report.plan.largest_context = 0;
  const std::string text = plan_text(report);
  EXPECT_THAT(text, HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(text, HasSubstr("3.00 GB too much"));
  EXPECT_THAT(text, HasSubstr("Largest context that fits: none"));
}

}  // namespace
}  // namespace carat::cli
