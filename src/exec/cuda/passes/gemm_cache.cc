// A text file, one line each: what it is, the machine, the products, and a checksum of all before it.
//
//   carat-gemm 1
//   gpu NVIDIA H200
//   driver 13000
//   library 130100
//   workspace 67108864
//   product 512 20480 2560 bf16 bf16 0123456789abcdef ...     m n k, in, out, the eight words
//   check 0123456789abcdef
#include "exec/cuda/passes/gemm_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace carat::cuda {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTitle = "carat-gemm 1";
constexpr uintmax_t kLargestFile = 4 << 20;  // some 20,000 products; nothing of ours comes near
constexpr std::array<std::string_view, 3> kElements = {"f32", "bf16", "e4m3"};

// FNV-1a: against cut and edited files, not against anybody.
uint64_t checksum(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

std::string machine_text(const GemmMachine& machine) {
  std::string name;
  for (const char c : machine.gpu) name += c < ' ' ? '?' : c;
  return fmt::format("gpu {}\ndriver {}\nlibrary {}\nworkspace {}\n", name, machine.driver, machine.library,
                     machine.workspace_bytes);
}

std::string product_line(const GemmProduct& product, const GemmAlgorithm& algorithm) {
  std::string line =
      fmt::format("product {} {} {} {} {}", product.m, product.n, product.k,
                  kElements.at(static_cast<size_t>(product.in)), kElements.at(static_cast<size_t>(product.out)));
  for (const uint64_t word : algorithm) line += fmt::format(" {:016x}", word);
  return line + "\n";
}

// The next word of a line; empty at its end.
std::string_view take_word(std::string_view& line) {
  const size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
  return word;
}

template <typename T>
bool read_number(std::string_view& line, T& value, int base) {
  const std::string_view word = take_word(line);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return !word.empty() && error == std::errc() && end == word.data() + word.size();
}

bool read_element(std::string_view& line, GemmElement& element) {
  const std::string_view word = take_word(line);
  for (size_t i = 0; i < kElements.size(); ++i) {
    if (word != kElements[i]) continue;
    element = static_cast<GemmElement>(i);
    return true;
  }
  return false;
}

bool read_product(std::string_view line, GemmAlgorithms& algorithms) {
  if (take_word(line) != "product") return false;
  GemmProduct product;
  GemmAlgorithm algorithm{};
  if (!read_number(line, product.m, 10) || !read_number(line, product.n, 10) || !read_number(line, product.k, 10)) {
    return false;
  }
  if (!read_element(line, product.in) || !read_element(line, product.out)) return false;
  for (uint64_t& word : algorithm) {
    if (!read_number(line, word, 16)) return false;
  }
  return line.empty() && algorithms.emplace(product, algorithm).second;
}

std::optional<GemmAlgorithms> read_products(std::string_view body) {
  GemmAlgorithms algorithms;
  while (!body.empty()) {
    const size_t end = body.find('\n');
    if (end == std::string_view::npos || !read_product(body.substr(0, end), algorithms)) return std::nullopt;
    body.remove_prefix(end + 1);
  }
  return algorithms;
}

}  // namespace

fs::path gemm_cache_path(const fs::path& folder, const GemmMachine& machine) {
  return folder / fmt::format("gemm-{:016x}.txt", checksum(machine_text(machine)));
}

GemmCacheContent read_gemm_cache(const fs::path& file, const GemmMachine& machine) {
  std::error_code error;
  if (!fs::exists(file, error) && !error) return {};
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kLargestFile || error) {
    return {{}, "it is no file of a reasonable size"};
  }
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return {{}, "it cannot be read"};
  const std::string text = content.str();
  std::string_view rest = text;
  const size_t last = rest.rfind("check ");
  if (last == std::string_view::npos ||
      rest.substr(last) != fmt::format("check {:016x}\n", checksum(rest.substr(0, last)))) {
    return {{}, "it is damaged"};
  }
  rest = rest.substr(0, last);
  const std::string head = fmt::format("{}\n{}", kTitle, machine_text(machine));
  if (!rest.starts_with(head)) return {{}, "it is of another version, GPU, driver or library"};
  auto products = read_products(rest.substr(head.size()));
  if (!products) return {{}, "it is damaged"};
  return {std::move(*products), ""};
}

std::string write_gemm_cache(const fs::path& file, const GemmMachine& machine, const GemmAlgorithms& algorithms) {
  std::string text = fmt::format("{}\n{}", kTitle, machine_text(machine));
  for (const auto& [product, algorithm] : algorithms) text += product_line(product, algorithm);
  text += fmt::format("check {:016x}\n", checksum(text));

  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) return error.message();
  const fs::path draft = fmt::format("{}.{}", file.string(), getpid());
  {
    std::ofstream stream(draft, std::ios::binary | std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(draft, file, error);
  if (!error) return "";
  std::error_code ignored;
  fs::remove(draft, ignored);
  return error.message();
}

}  // namespace carat::cuda
