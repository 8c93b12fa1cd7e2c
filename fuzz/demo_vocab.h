#pragma once

#include <memory>

#include "text/tokenizer/vocab.h"

namespace carat::fuzz {

// The vocabulary of the demo model, read once.
const std::shared_ptr<const text::Vocab>& demo_vocab();

}  // namespace carat::fuzz
