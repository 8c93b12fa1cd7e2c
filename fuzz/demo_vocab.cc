#include "demo_vocab.h"

#include "gguf/reader.h"

namespace carat::fuzz {

const std::shared_ptr<const text::Vocab>& demo_vocab() {
  static const std::shared_ptr<const text::Vocab> vocab =
      text::Vocab::from_metadata(gguf::ModelFile::open(CARAT_DEMO_MODEL)->metadata());
  return vocab;
}

}  // namespace carat::fuzz
