// dump_logits MODEL DEVICE KV_TYPE TOKENS OUT: runs the tokens of a text file (ids separated by spaces) through an
// executor and writes the logits after each of them: [tokens, V] little-endian floats.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "runtime/executor_factory.h"

namespace {

using namespace carat;

void dump(const std::string& path, const std::string& device, const std::string& kv_type,
          const std::string& tokens_path, const std::string& out_path) {
  const auto model = model::Model::load(gguf::ModelFile::open(path));
  std::ifstream tokens_file(tokens_path);
  const std::vector<int32_t> tokens{std::istream_iterator<int32_t>(tokens_file), {}};
  const quant::FormatInfo* kv = quant::find_format(kv_type);
  if (tokens.empty() || kv == nullptr)
    fail(ErrorCode::kBadArgument, "no tokens in {}, or no type {}", tokens_path, kv_type);

  exec::ExecutorOptions options;
  options.context = static_cast<uint32_t>(tokens.size());
  // Smaller than the prompt, so that passes end in the middle of windows.
  options.chunk = options.outputs = 29;
  options.kv_format = kv->format;
  const auto executor = runtime::make_executor(runtime::parse_device(device), model, options);
  std::ofstream out(out_path, std::ios::binary);
  for (uint32_t first = 0; first < tokens.size(); first += options.chunk) {
    std::vector<exec::Row> rows;
    for (uint32_t i = first; i < tokens.size() && i < first + options.chunk; ++i)
      rows.push_back({tokens[i], i, 0, true});
    executor->forward(rows);
    for (uint32_t output = 0; output < executor->outputs(); ++output) {
      const auto bytes = std::as_bytes(executor->logits(output));
      out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  out.close();
  if (!out) fail(ErrorCode::kIo, "cannot write {}", out_path);
}

}  // namespace

int main(int count, char** values) {
  if (count != 6) {
    fmt::print(stderr, "usage: dump_logits MODEL DEVICE KV_TYPE TOKENS OUT\n");
    return 2;
  }
  try {
    dump(values[1], values[2], values[3], values[4], values[5]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
