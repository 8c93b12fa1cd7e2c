#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/output/marked_text.h"
#include "text/value.h"

namespace carat::text::jinja {

// A chat template: the part of Jinja that the templates of language models use, with the white space rules of the
// transformers library. It can do nothing but turn its variables into text, within limits. Immutable, thread-safe.
class Template {
 public:
  // Throws kBadFile naming the line.
  static Template parse(std::string_view source, const Limits& limits = {});

  // The text; it knows which bytes the template wrote and which come from the variables. Throws kBadFile naming the
  // line when the template fails or exceeds a limit, kBadArgument when it refuses its variables (raise_exception).
  MarkedText render(const ValueMap& variables) const;

 private:
  struct Parsed;
  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace carat::text::jinja
