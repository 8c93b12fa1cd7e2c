#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/model.h"

namespace carat::test {

// A model of a real shape ("e4b", "31b", ...; recipe "q8_0", "q4_0", ...) whose weights are a hole in its file: every
// size is the real one, but reading a weight gives zeros and nothing takes up disk or memory. For tests of what is
// decided from shapes alone. The file is gone when this returns; the mapping stays.
std::shared_ptr<const model::Model> hollow_model(std::string_view preset, std::string_view recipe);

// The same as a file that stays, for programs that open it.
void write_hollow_model(std::string_view preset, std::string_view recipe, const std::string& path);

}  // namespace carat::test
