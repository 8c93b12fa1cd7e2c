#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/symbol_table.h"
#include "text/tokenizer/token_texts.h"

namespace carat::text {

enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Token texts, types, merges and special ids of one model; ids are read from the file, never hard-coded (the demo
// models use other ids than the real ones on purpose). Immutable after construction.
class Vocab {
 public:
  // The longest token of the real vocabulary has 93 bytes.
  static constexpr size_t kMaxTokenBytes = 1024;

  // Checks everything of docs/gemma4.md 4.1 and throws kBadFile naming the key, or kUnsupported for another kind of
  // tokenizer. Copies what it keeps. Gemma 4's own special texts get the types of docs/gemma4.md 4.2 whatever the file
  // says: early files and some converters type them otherwise.
  static std::shared_ptr<const Vocab> from_metadata(const gguf::Metadata& metadata);

  size_t size() const { return texts_.size(); }
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size(); }
  std::string_view text(TokenId id) const { return texts_[id]; }  // spaces are U+2581
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const;                    // control or user-defined
  std::optional<uint8_t> byte_value(TokenId id) const;  // for kByte tokens
  std::optional<TokenId> find(std::string_view text) const { return texts_.find(text); }
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // -1 when the file lacks it

  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId unknown() const { return unknown_; }  // -1 when the file names none
  bool is_stop(TokenId id) const;               // end of generation: docs/gemma4.md 4.2
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

  // What encoding starts from: the tokens of single code points, the merges, and where a text may be cut before
  // merging.
  const SymbolTable& symbols() const { return symbols_; }
  const MergeTable& merges() const { return merges_; }
  const BorderFilter& borders() const { return borders_; }

 private:
  struct MergeLine;

  Vocab() = default;
  void read_texts(const gguf::Metadata& metadata);
  void read_types(const gguf::Metadata& metadata);
  void read_merges(const gguf::Metadata& metadata);
  void read_special_ids(const gguf::Metadata& metadata);
  void index_symbols_and_bytes();
  void resolve(MergeLine& line) const;
  void add_border(TokenId left, TokenId right);

  TokenTexts texts_;
  std::vector<TokenType> types_;
  SymbolTable symbols_;
  MergeTable merges_;
  BorderFilter borders_;
  std::array<TokenId, 256> byte_tokens_ = {};
  std::vector<TokenId> stops_, suppressed_, specials_;
  std::string chat_template_;
  TokenId bos_ = -1, eos_ = -1, unknown_ = -1;
};

}  // namespace carat::text
