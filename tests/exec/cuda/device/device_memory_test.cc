#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {
namespace {

class DeviceMemoryTest : public GpuTest {};

TEST_F(DeviceMemoryTest, SmallMovesLeaveNothingBehind) {
  DeviceMemory first(256, "a test");
  const void* data = first.data();
  DeviceMemory second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);
  second = DeviceMemory(512, "another test");
  EXPECT_EQ(second.bytes(), 512u);
}

// What is needed, what is free and what to do; and the card works on.
TEST_F(DeviceMemoryTest, SmallTooMuchIsSaidInBytesAndLeavesTheCardUsable) {
  constexpr size_t kTooMuch = size_t{1} << 46;
  try {
    const DeviceMemory all(kTooMuch, "a test");
    FAIL() << "64 TiB were given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    const std::string message = error.what();
    EXPECT_NE(message.find("a test needs 70368744177664 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("are free"), std::string::npos) << message;
    EXPECT_NE(message.find("-ngl"), std::string::npos) << message;
  }
  const std::vector<float> values = {1.0f, 2.0f};
  EXPECT_EQ(download(upload(values)), values);
}

TEST_F(DeviceMemoryTest, SmallAFailedCallIsNamed) {
  try {
    check(cudaErrorInvalidValue, "a test");
    FAIL() << "an error was taken for success";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("a test"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("no longer"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace carat::cuda
