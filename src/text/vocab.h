#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf/reader.h"

namespace carat::text {

using TokenId = int32_t;

enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Token texts, types, merges and special ids of one model; ids are read from the file, never hard-coded (the demo models
// use other ids than the real ones on purpose). Immutable after construction.
class Vocab {
 public:
  // Checks everything of spec 4.1 and throws kBadFile naming the key. Copies what it keeps.
  static std::shared_ptr<const Vocab> from_metadata(const gguf::Metadata& metadata);

  size_t size() const { return texts_.size(); }
  std::string_view text(TokenId id) const { return texts_[static_cast<size_t>(id)]; }  // spaces are U+2581
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const;                     // control or user-defined
  std::optional<uint8_t> byte_value(TokenId id) const;   // for kByte tokens
  std::optional<TokenId> find(std::string_view text) const;
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // -1 when the file lacks it

  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  bool is_stop(TokenId id) const;                        // end of generation: spec 4.2
  const std::vector<TokenId>& stops() const { return stops_; }
  const std::vector<TokenId>& suppressed() const { return suppressed_; }
  const std::vector<TokenId>& specials() const { return specials_; }  // texts that cut a prompt, longest first
  std::string_view chat_template() const { return chat_template_; }   // empty when the file has none

  // Rank and result of merging two adjacent symbols; nullopt when no such merge exists.
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  std::optional<Merge> merge(TokenId left, TokenId right) const;

 private:
  Vocab() = default;
  std::vector<std::string> texts_;
  std::vector<TokenType> types_;
  std::unordered_map<std::string_view, TokenId> by_text_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::vector<TokenId> byte_tokens_;
  std::vector<TokenId> stops_, suppressed_, specials_;
  std::string chat_template_;
  TokenId bos_ = -1, eos_ = -1;
};

}  // namespace carat::text
