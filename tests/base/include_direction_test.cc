// The layers of docs/architecture.md as a test: a folder of src/ includes only itself and folders before it, and the
// executors know nothing of each other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/files.h"

namespace carat {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 14> kLayers = {"base", "gguf",    "quant", "text",   "model", "exec", "engine",
                                                      "hub",  "runtime", "chat",  "server", "batch", "capi", "cli"};
constexpr std::array<std::string_view, 3> kExecutors = {"reference", "cpu", "cuda"};

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path)) parts.push_back(part.string());
  return parts;
}

// The paths of all #include "..." lines.
std::vector<std::string> quoted_includes(const std::string& source) {
  std::vector<std::string> includes;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line[0] != '#') continue;
    const size_t open = line.find('"');
    const size_t close = line.rfind('"');
    if (line.find("include") == std::string::npos || open == close) continue;
    includes.push_back(line.substr(open + 1, close - open - 1));
  }
  return includes;
}

std::optional<size_t> layer_of(std::string_view folder) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), folder);
  return found == kLayers.end() ? std::nullopt : std::optional<size_t>(found - kLayers.begin());
}

// src/exec/cpu/... belongs to the executor cpu; src/exec/executor.h to none.
std::string executor_of(const std::vector<std::string>& parts) {
  const bool inside = parts.size() > 2 && parts[0] == "exec" &&
                      std::find(kExecutors.begin(), kExecutors.end(), parts[1]) != kExecutors.end();
  return inside ? parts[1] : "";
}

// What is wrong with `file` (relative to src/) including `include`; empty when nothing is.
std::string complaint(std::string_view file, std::string_view include) {
  const std::vector<std::string> from = split_path(file);
  const std::vector<std::string> to = split_path(include);
  const std::optional<size_t> from_layer = layer_of(from.front());
  const std::optional<size_t> to_layer = layer_of(to.front());
  if (!from_layer) return fmt::format("{} is in no layer", file);
  if (include == "carat/carat.h" && from.front() == "capi") return "";  // the public header, which capi implements
  if (!to_layer || to.size() < 2) return fmt::format("{} includes \"{}\", which is no path from src/", file, include);
  if (*to_layer > *from_layer) return fmt::format("{} includes the higher layer \"{}\"", file, include);
  const std::string from_executor = executor_of(from), to_executor = executor_of(to);
  if (!from_executor.empty() && !to_executor.empty() && from_executor != to_executor) {
    return fmt::format("{} includes another executor, \"{}\"", file, include);
  }
  return "";
}

TEST(IncludeDirection, TheRulesThemselves) {
  EXPECT_EQ(complaint("gguf/reader.cc", "gguf/reader.h"), "");
  EXPECT_EQ(complaint("cli/main.cc", "base/error.h"), "");
  EXPECT_EQ(complaint("exec/cpu/gemm.cc", "exec/executor.h"), "");
  EXPECT_EQ(complaint("exec/choose.cc", "exec/cpu/gemm.h"), "");
  EXPECT_NE(complaint("base/error.h", "gguf/reader.h"), "");
  EXPECT_NE(complaint("text/tokenizer/vocab.cc", "model/config.h"), "");
  EXPECT_NE(complaint("exec/cpu/gemm.cc", "exec/reference/gemm.h"), "");
  EXPECT_NE(complaint("exec/cuda/a.cu", "exec/cpu/b.h"), "");
  EXPECT_NE(complaint("gguf/reader.cc", "reader.h"), "");
  EXPECT_NE(complaint("misc/x.cc", "base/error.h"), "");
  EXPECT_EQ(complaint("capi/carat.cc", "carat/carat.h"), "");
  EXPECT_NE(complaint("server/server.cc", "carat/carat.h"), "");
}

TEST(IncludeDirection, FindsIncludes) {
  const std::string source = "#pragma once\n#include <vector>\n#include \"a/b.h\"\n  #  include \"c/d.h\"\nint x;\n";
  EXPECT_THAT(quoted_includes(source), testing::ElementsAre("a/b.h", "c/d.h"));
}

TEST(IncludeDirection, HoldsInTheWholeSource) {
  const fs::path root = test::source_directory() / "src";
  const std::set<std::string> extensions = {".h", ".cc", ".cu", ".cuh"};
  size_t checked = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || !extensions.contains(entry.path().extension().string())) continue;
    const std::string file = entry.path().lexically_relative(root).generic_string();
    for (const std::string& include : quoted_includes(test::read_text(entry.path().string()))) {
      EXPECT_EQ(complaint(file, include), "");
      ++checked;
    }
  }
  EXPECT_GT(checked, 10u) << "the scan found hardly anything; is " << root << " the source?";
}

}  // namespace
}  // namespace carat
