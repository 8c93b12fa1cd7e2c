#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "serve/figures.h"
#include "serve/options.h"
#include "serve/request_result.h"

namespace carat::serve_bench {

// With the names of vllm bench serve; what it has no name for is in the object "carat". `model` as it was asked for.
nlohmann::ordered_json result_json(const BenchOptions& options, const std::string& model, const Figures& figures,
                                   const LoadResult& load, const std::string& date);

// The table of vllm bench serve, with an earlier result beside it unless that is null.
std::string result_table(const nlohmann::ordered_json& result, const nlohmann::ordered_json& earlier);

// Throws carat::Error naming the flag.
nlohmann::ordered_json load_result(const std::string& path);
void save_result(const nlohmann::ordered_json& result, const std::string& path);

}  // namespace carat::serve_bench
