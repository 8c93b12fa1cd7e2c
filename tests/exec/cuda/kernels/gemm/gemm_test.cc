#include "exec/cuda/kernels/gemm/gemm.h"

#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {
namespace {

struct Shape {
  uint32_t m, n, k;
};

// Operands of a product and its result in double.
template <typename T>
struct Product {
  Shape shape;
  RandomValues<T> a, w;
  std::vector<double> wanted;
  explicit Product(const Shape& s)
      : shape(s), a(size_t{s.m} * s.k, 1.0f, s.m + s.k), w(size_t{s.n} * s.k, 0.1f, s.n), wanted(size_t{s.m} * s.n) {
    on_host_cores(s.n, [&](size_t o) {
      for (size_t r = 0; r < s.m; ++r) wanted[r * s.n + o] = dot_double(&a.floats[r * s.k], &w.floats[o * s.k], s.k);
    });
  }
};

class GemmTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gemm_ = std::make_unique<Gemm>(size_t{32} << 20);
  }

  template <typename T, typename Out>
  std::vector<Out> run(const Product<T>& product) {
    const DeviceArray<Out> out(product.wanted.size(), "test output");
    return run_twice<Out>(out, [&] {
      gemm_->run(product.a.device.data(), product.w.device.data(), out.data(), product.shape.m, product.shape.n,
                 product.shape.k, how_.stream);
    });
  }

  std::unique_ptr<Gemm> gemm_;
};

const Shape kShapes[] = {{1, 64, 64}, {3, 256, 704}, {33, 1408, 256}, {127, 40, 2816}, {512, 512, 2560}};

TEST_F(GemmTest, SmallBf16) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.m << " x " << shape.n << " x " << shape.k);
    const Product<__nv_bfloat16> product(shape);
    EXPECT_LT(difference(run<__nv_bfloat16, __nv_bfloat16>(product), product.wanted).relative, 3e-3);
    EXPECT_LT(difference(run<__nv_bfloat16, float>(product), product.wanted).relative, 1e-5);
  }
}

TEST_F(GemmTest, SmallFp32KeepsItsPrecision) {
  for (const Shape& shape : {Shape{1, 128, 64}, Shape{5, 128, 2816}, Shape{300, 128, 256}}) {
    const Product<float> product(shape);
    EXPECT_LT(difference(run<float, float>(product), product.wanted).relative, 1e-6);
  }
}

TEST_F(GemmTest, SmallNoRowsIsNothing) {
  const RandomValues<__nv_bfloat16> values(64, 1.0f, 1);
  const auto out = poisoned<__nv_bfloat16>(8);
  gemm_->run(values.device.data(), values.device.data(), out.data(), 0, 8, 8, how_.stream);
  synchronise();
  for (const __nv_bfloat16 value : download(out)) EXPECT_TRUE(std::isnan(value_of(value)));
}

TEST_F(GemmTest, TuningKeepsResultsRight) {
  for (const Shape& shape : {Shape{100, 2560, 2048}, Shape{512, 1024, 2560}}) {
    const Product<__nv_bfloat16> product(shape);
    const auto scratch = poisoned<__nv_bfloat16>(product.wanted.size());
    gemm_->tune(product.a.device.data(), product.w.device.data(), scratch.data(), shape.m, shape.n, shape.k,
                how_.stream);
    EXPECT_LT(difference(run<__nv_bfloat16, __nv_bfloat16>(product), product.wanted).relative, 3e-3);
  }
}

// What a search finds can be handed to another handle, and results stay those of the ranking's first within rounding.
TEST_F(GemmTest, SmallWhatASearchFoundIsRemembered) {
  for (const Shape& shape : {Shape{64, 512, 704}, Shape{33, 1408, 256}}) {
    const Product<__nv_bfloat16> product(shape), other(shape);
    const auto scratch = poisoned<__nv_bfloat16>(product.wanted.size());
    const GemmProduct key{shape.m, shape.n, shape.k, GemmElement::kBF16, GemmElement::kBF16};
    const auto unsearched = run<__nv_bfloat16, __nv_bfloat16>(product);
    const GemmFound found = gemm_->search(key,
                                          {product.a.device.data(),
                                           nullptr,
                                           {{product.w.device.data(), nullptr}, {other.w.device.data(), nullptr}},
                                           scratch.data()},
                                          0.03, how_.stream);
    const auto searched = run<__nv_bfloat16, __nv_bfloat16>(product);
    EXPECT_LT(difference(searched, product.wanted).relative, 3e-3);
    gemm_ = std::make_unique<Gemm>(size_t{32} << 20);
    gemm_->remember({{key, found.algorithm}});
    const auto remembered = run<__nv_bfloat16, __nv_bfloat16>(product);
    EXPECT_EQ(std::memcmp(remembered.data(), searched.data(), searched.size() * sizeof searched[0]), 0);
    if (!found.changed) {
      EXPECT_EQ(std::memcmp(unsearched.data(), searched.data(), searched.size() * sizeof searched[0]), 0);
    }
  }
}

// The library refuses what it does not know, and the ranking's first is taken.
TEST_F(GemmTest, SmallNonsenseThatIsRememberedDoesNoHarm) {
  const Shape shape{33, 1408, 256};
  const Product<__nv_bfloat16> product(shape);
  GemmAlgorithm nonsense;
  nonsense.fill(0x5a5a5a5a5a5a5a5aull);
  for (const GemmAlgorithm& algorithm : {nonsense, GemmAlgorithm{}}) {
    gemm_ = std::make_unique<Gemm>(size_t{32} << 20);
    gemm_->remember({{{shape.m, shape.n, shape.k, GemmElement::kBF16, GemmElement::kBF16}, algorithm}});
    EXPECT_LT(difference(run<__nv_bfloat16, __nv_bfloat16>(product), product.wanted).relative, 3e-3);
  }
}

TEST_F(GemmTest, SmallNoSearchWhileAGraphIsRecorded) {
  const Shape shape{64, 512, 704};
  const Product<__nv_bfloat16> product(shape);
  const auto out = poisoned<__nv_bfloat16>(product.wanted.size());
  EXPECT_THROW(Graph::capture(how_.stream,
                              [&] {
                                gemm_->tune(product.a.device.data(), product.w.device.data(), out.data(), shape.m,
                                            shape.n, shape.k, how_.stream);
                              }),
               std::logic_error);
}

}  // namespace
}  // namespace carat::cuda
