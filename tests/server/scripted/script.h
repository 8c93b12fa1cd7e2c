#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace carat::test {

// What happens once a rule's text has been said.
enum class Afterwards {
  kStop,       // the model ends its turn, or waits for the results of its calls
  kNonFinite,  // its logits are not finite: this request fails
  kFail,       // the pass fails: all requests that run fail
  kLose,       // the device is lost
};

// "When somebody asks this, say that." Texts are looked for in `prompt` as a whole, or in its tail: what came after the
// last call of the model or since the last user began to speak, whichever is later.
struct Rule {
  std::vector<std::string> in_tail, in_prompt;  // all of them
  std::vector<text::TokenId> say;
  bool says_tail = false;    // the tail itself, its marks spelled in ordinary characters; `say` comes before it
  bool says_prompt = false;  // the same for all of the prompt
  Afterwards afterwards = Afterwards::kStop;
  double token_seconds = 0.0;  // that each token takes
};

// A script is a JSON object: {"prompt_row_ms": 0.1, "rules": [...]}, or only the list. The first rule that fits counts.
//   {"when": text or texts, "prompt": text or texts, "say": what, "then": "stop"|"non_finite"|"fail"|"lose",
//    "say_tail": true, "say_prompt": true, "token_ms": 5}
// What is said is a text, in which marks are the tokens they spell, or a list of texts, token ids, and
// {"repeat": text, "times": number}.
struct Script {
  std::vector<Rule> rules;
  double prompt_row_seconds = 0.0;  // that reading takes

  // Throws kBadArgument saying which rule cannot be read.
  static Script parse(std::string_view json, const text::Tokenizer& tokenizer);

  // Null: none fits.
  const Rule* find(std::string_view prompt, std::string_view tail) const;
};

}  // namespace carat::test
