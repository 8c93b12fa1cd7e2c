// Uploading: what lies on the device afterwards is what repacking the whole matrix at once gives, bit for bit, whatever
// the ring's size.
#include "exec/cuda/weights/upload.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/weights/packed_matrix.h"
#include "gguf/writer.h"
#include "support/files.h"

namespace carat::cuda {
namespace {

struct Shape {
  quant::Format format;
  uint32_t rows, cols, slices;
};

// The planes of a packed matrix, downloaded.
std::vector<std::vector<std::byte>> planes_of(const PackedView& view) {
  const PackedBytes bytes = packed_bytes(view.packing);
  const uint64_t cells = uint64_t{view.rows} * view.steps;
  std::vector<std::vector<std::byte>> planes;
  for (const auto& [data, step_bytes] : {std::pair{view.quants, bytes.quants},
                                         {view.high, bytes.high},
                                         {view.scales, bytes.scales},
                                         {view.super, bytes.super}}) {
    std::vector<std::byte> plane(cells * step_bytes);
    check(cudaMemcpy(plane.data(), data, plane.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    planes.push_back(std::move(plane));
  }
  return planes;
}

// A file of random matrices, and the same matrices repacked at once.
class UploadTest : public GpuTest {
 protected:
  void write(const std::vector<Shape>& shapes) {
    test::Random random(7);
    gguf::Writer writer(path_);
    std::vector<std::vector<std::byte>> blocks;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      const quant::FormatInfo& info = quant::info(shape.format);
      const uint32_t rows = shape.rows * shape.slices;
      blocks.push_back(random_rows(info, rows, shape.cols, random));
      const std::vector<uint64_t> ne = {shape.cols, shape.rows, shape.slices};
      writer.declare_tensor(std::to_string(i), static_cast<uint32_t>(shape.format),
                            std::span(ne).first(shape.slices > 1 ? 3 : 2));
    }
    writer.begin_data();
    for (const std::vector<std::byte>& bytes : blocks) writer.write(bytes);
    writer.finish();
    file_ = gguf::ModelFile::open(path_);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      const uint32_t rows = shape.rows * shape.slices;
      expected_.emplace_back(quant::info(shape.format), blocks[i], rows, shape.cols, std::vector<uint32_t>{0});
      // The target: as large, and full of other bits.
      PackedMatrix& target =
          targets_.emplace_back(quant::info(shape.format), std::vector<std::byte>(blocks[i].size(), std::byte{0x5a}),
                                rows, shape.cols, std::vector<uint32_t>{0});
      const gguf::TensorView* tensor = file_->find(std::to_string(i));
      uploads_.push_back({{.name = tensor->info.name,
                           .format = shape.format,
                           .cols = shape.cols,
                           .rows = shape.rows,
                           .slices = shape.slices,
                           .data = tensor->data},
                          target.view()});
    }
  }

  void expect_uploaded() const {
    for (size_t i = 0; i < uploads_.size(); ++i) {
      EXPECT_EQ(planes_of(targets_[i].view()), planes_of(expected_[i].view())) << "matrix " << i;
    }
  }

  uint64_t file_bytes() const {
    uint64_t total = 0;
    for (const Upload& item : uploads_) total += item.source.data.size();
    return total;
  }

  test::TemporaryDirectory folder_;
  std::string path_ = folder_.file("matrices.gguf");
  std::shared_ptr<const gguf::ModelFile> file_;
  std::vector<PackedMatrix> expected_, targets_;
  std::vector<Upload> uploads_;
};

std::vector<Shape> every_format() {
  std::vector<Shape> shapes;
  uint32_t rows = 1;
  for (const quant::FormatInfo& info : quant::formats()) {
    // Row numbers that no ring divides; columns that fill no step of 256 where the format has blocks of 32 or less.
    shapes.push_back({info.format, rows, info.block == 256 ? 512u : 704u, 1});
    rows = rows % 61 + 12;
  }
  shapes.push_back({quant::Format::kQ4_0, 5, 288, 7});
  shapes.push_back({quant::Format::kF32, 1, 32, 1});
  return shapes;
}

TEST_F(UploadTest, SmallRingsOfEverySize) {
  write(every_format());
  for (const UploadRing& ring : {UploadRing{.load_bytes = 1, .slots = 2, .threads = 1},
                                 {.load_bytes = 3000, .slots = 2, .threads = 3},
                                 {.load_bytes = 4097, .slots = 3, .threads = 4},
                                 {.load_bytes = uint64_t{1} << 16, .slots = 5, .threads = 2}}) {
    for (const PackedMatrix& target : targets_) {
      const PackedBytes bytes = packed_bytes(target.view().packing);
      check(cudaMemset(const_cast<void*>(target.view().quants), 0x5a,
                       uint64_t{target.view().rows} * target.view().steps * bytes.quants),
            "cudaMemset");
    }
    settle();
    uint64_t last = 0;
    const UploadResult result = upload(
        *file_, uploads_,
        [&](uint64_t done, uint64_t total) {
          EXPECT_GT(done, last);
          EXPECT_EQ(total, file_bytes());
          last = done;
        },
        ring);
    EXPECT_EQ(last, file_bytes());
    EXPECT_EQ(result.bytes, file_bytes());
    EXPECT_GT(result.seconds, 0.0);
    expect_uploaded();
  }
}

// The ring as models use it, with matrices of many loads and ones that end within a load.
TEST_F(UploadTest, LargeMatricesInTheDefaultRing) {
  write({{quant::Format::kQ8_0, 30011, 2560, 1},
         {quant::Format::kQ4_0, 3, 2560, 1},
         {quant::Format::kQ6_K, 1777, 5376, 3},
         {quant::Format::kBF16, 12289, 1024, 1},
         {quant::Format::kF32, 7, 2816, 1}});
  EXPECT_EQ(upload(*file_, uploads_, {}).bytes, file_bytes());
  expect_uploaded();
}

TEST_F(UploadTest, SmallNothingToUpload) {
  write({{quant::Format::kF32, 1, 32, 1}});
  EXPECT_EQ(upload(*file_, {}, {}).bytes, 0u);
}

TEST_F(UploadTest, SmallFileThatBecameShorter) {
  write({{quant::Format::kQ8_0, 4000, 1024, 1}});
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  try {
    upload(*file_, uploads_, {}, {.load_bytes = uint64_t{1} << 16, .slots = 3, .threads = 4});
    FAIL() << "half of the file is missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr(path_ + " became shorter"));
  }
  // The device is as usable as before.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// What a caller's progress throws (an interruption) ends the upload in order.
TEST_F(UploadTest, SmallInterruptedByItsCaller) {
  write({{quant::Format::kQ8_0, 4000, 1024, 1}});
  const auto stop = [](uint64_t done, uint64_t) {
    if (done > 1000000) fail(ErrorCode::kInterrupted, "interrupted");
  };
  EXPECT_THROW(upload(*file_, uploads_, stop, {.load_bytes = uint64_t{1} << 16, .slots = 3, .threads = 4}), Error);
  EXPECT_EQ(upload(*file_, uploads_, {}).bytes, file_bytes());
  expect_uploaded();
}

}  // namespace
}  // namespace carat::cuda
