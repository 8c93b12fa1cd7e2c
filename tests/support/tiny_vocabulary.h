#pragma once

#include <cstdint>

#include "support/gguf_draft.h"

namespace carat::test {

// Adds the tokenizer keys of a small vocabulary of the real kind: the 24 special tokens, 256 byte tokens, a newline,
// the space mark, printable ASCII and a few merges. Returns its size.
uint32_t add_tiny_vocabulary(GgufDraft& draft);

}  // namespace carat::test
