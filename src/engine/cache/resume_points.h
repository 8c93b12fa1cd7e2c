#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Where prompts in Gemma's chat format will part from the ones that come after them (docs/gemma4.md 5): behind the
// first turn, where that is the system's, which all conversations with the same instructions and tools begin with; and
// behind the header of the model's turn that follows the last user message, because the history of the next prompt
// leaves out the thoughts that come there. None in prompts without turns.
std::vector<ResumePoint> resume_points_of(std::span<const text::TokenId> prompt, const text::Vocab& vocab);

}  // namespace carat::engine
