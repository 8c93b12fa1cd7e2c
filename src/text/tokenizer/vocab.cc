#include "text/tokenizer/vocab.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/printable.h"

namespace carat::text {

namespace {

using gguf::printable;

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kSuppressKey = "tokenizer.ggml.suppress_tokens";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

struct GemmaSpecial {
  std::string_view text;
  TokenType type;
};

// docs/gemma4.md 4.2. The user-defined ones are those a chat parser must see in the output.
constexpr std::array kGemmaSpecials = {
    GemmaSpecial{"<pad>", TokenType::kControl},
    GemmaSpecial{"<eos>", TokenType::kControl},
    GemmaSpecial{"<bos>", TokenType::kControl},
    GemmaSpecial{"<unk>", TokenType::kControl},
    GemmaSpecial{"<mask>", TokenType::kControl},
    GemmaSpecial{"<|tool>", TokenType::kControl},
    GemmaSpecial{"<tool|>", TokenType::kControl},
    GemmaSpecial{"<|tool_call>", TokenType::kUserDefined},
    GemmaSpecial{"<tool_call|>", TokenType::kUserDefined},
    GemmaSpecial{"<|tool_response>", TokenType::kUserDefined},
    GemmaSpecial{"<tool_response|>", TokenType::kUserDefined},
    GemmaSpecial{"<|\"|>", TokenType::kUserDefined},
    GemmaSpecial{"<|think|>", TokenType::kControl},
    GemmaSpecial{"<|channel>", TokenType::kUserDefined},
    GemmaSpecial{"<channel|>", TokenType::kUserDefined},
    GemmaSpecial{"<|turn>", TokenType::kControl},
    GemmaSpecial{"<turn|>", TokenType::kControl},
    GemmaSpecial{"<|image>", TokenType::kControl},
    GemmaSpecial{"<image|>", TokenType::kControl},
    GemmaSpecial{"<|audio>", TokenType::kControl},
    GemmaSpecial{"<audio|>", TokenType::kControl},
    GemmaSpecial{"<|image|>", TokenType::kControl},
    GemmaSpecial{"<|audio|>", TokenType::kControl},
    GemmaSpecial{"<|video|>", TokenType::kControl},
};

// "</s>" is an HTML tag in this vocabulary, not an end.
constexpr std::array<std::string_view, 3> kStopTexts = {"<eos>", "<turn|>", "<|tool_response>"};

bool is_gemma_special(std::string_view text) {
  return text.size() >= 5 && text.front() == '<' && text.back() == '>' &&
         std::any_of(kGemmaSpecials.begin(), kGemmaSpecials.end(), [&](const auto& each) { return each.text == text; });
}

const gguf::Array& required_array(const gguf::Metadata& metadata, std::string_view key) {
  const gguf::Array* array = metadata.array(key);
  if (array == nullptr) {
    fail(ErrorCode::kBadFile, "{} is missing: the file has no usable vocabulary; convert the model again", key);
  }
  return *array;
}

const gguf::Array& required_strings(const gguf::Metadata& metadata, std::string_view key) {
  const gguf::Array& array = required_array(metadata, key);
  if (array.element != gguf::ValueType::kString) {
    fail(ErrorCode::kBadFile, "{} is an array of {}, expected strings", key, gguf::value_type_name(array.element));
  }
  return array;
}

void require_integers(const gguf::Array& array, std::string_view key) {
  using gguf::ValueType;
  switch (array.element) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kU16:
    case ValueType::kI16:
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kU64:
    case ValueType::kI64:
      return;
    default:
      fail(ErrorCode::kBadFile, "{} is an array of {}, expected integers", key, gguf::value_type_name(array.element));
  }
}

void require_length(const gguf::Array& array, std::string_view key, size_t tokens) {
  if (array.count != tokens) {
    fail(ErrorCode::kBadFile, "{} has {} entries for the {} tokens of {}", key, array.count, tokens, kTokensKey);
  }
}

void check_model(const gguf::Metadata& metadata) {
  const auto model = metadata.string(kModelKey);
  if (!model)
    fail(ErrorCode::kBadFile, "{} is missing: the file has no vocabulary; convert the model again", kModelKey);
  if (*model == "gemma4") return;
  const std::string_view pre = metadata.string(kPreKey).value_or("");
  if (*model == "llama" && pre == "gemma4") return;  // as Ollama writes it
  fail(ErrorCode::kUnsupported, "{} is {} ({} is {}): only Gemma 4 vocabularies (\"gemma4\") can be read", kModelKey,
       printable(*model), kPreKey, printable(pre));
}

// The scores play no part in Gemma 4's algorithm, but damaged ones mean a damaged file.
void check_scores(const gguf::Metadata& metadata, size_t tokens) {
  const gguf::Array* scores = metadata.array(kScoresKey);
  if (scores == nullptr) return;
  if (scores->element != gguf::ValueType::kF32 && scores->element != gguf::ValueType::kF64) {
    fail(ErrorCode::kBadFile, "{} is an array of {}, expected floating-point numbers", kScoresKey,
         gguf::value_type_name(scores->element));
  }
  require_length(*scores, kScoresKey, tokens);
  for (size_t i = 0; i < tokens; ++i) {
    if (std::isnan(scores->number(i))) fail(ErrorCode::kBadFile, "{}[{}] is not a number", kScoresKey, i);
  }
}

std::optional<uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

// The value of "<0xXX>".
std::optional<uint8_t> parse_byte_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const auto high = hex_digit(text[3]), low = hex_digit(text[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

// nullopt when the key is absent.
std::optional<TokenId> special_id(const gguf::Metadata& metadata, std::string_view name, size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const auto id = metadata.unsigned_integer(key);
  if (!id) return std::nullopt;
  if (*id >= tokens) fail(ErrorCode::kBadFile, "{} is {}, but the vocabulary has {} tokens", key, *id, tokens);
  return static_cast<TokenId>(*id);
}

// The token of the first or of the last code point of `text`; -1 when there is none.
TokenId edge_symbol(const SymbolTable& symbols, std::string_view text, bool last) {
  size_t begin = 0;
  if (last) {
    begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  }
  const size_t length = utf8_sequence_length(text.substr(begin));
  if (length == 0 || (last && begin + length != text.size())) return -1;
  return symbols.find(code_point_of(text.substr(begin, length)));
}

}  // namespace

// One entry of tokenizer.ggml.merges, "left right", on its way into the table.
struct Vocab::MergeLine {
  struct Part {
    std::string_view text;
    uint64_t hash = 0;
    TokenId id = -1;
  };

  void split(std::string_view line, size_t line_rank, const TokenTexts& texts) {
    source = line;
    rank = line_rank;
    const size_t space = line.find(' ', 1);  // the left part may itself be a space
    if (space == std::string_view::npos || line.size() > 2 * kMaxTokenBytes + 1) {
      fail(ErrorCode::kBadFile, "{}[{}] is {}, expected two tokens with a space between", kMergesKey, rank,
           printable(line));
    }
    left.text = line.substr(0, space);
    right.text = line.substr(space + 1);
    joined_text.assign(left.text).append(right.text);
    joined.text = joined_text;
    for (Part* part : {&left, &right, &joined}) {
      part->hash = TokenTexts::hash(part->text);
      texts.prefetch(part->hash);
    }
  }

  std::string_view source;
  size_t rank = 0;
  Part left, right, joined;
  std::string joined_text;
};

std::shared_ptr<const Vocab> Vocab::from_metadata(const gguf::Metadata& metadata) {
  check_model(metadata);
  const std::shared_ptr<Vocab> vocab(new Vocab);
  vocab->read_texts(metadata);
  vocab->read_types(metadata);
  check_scores(metadata, vocab->size());
  vocab->index_symbols_and_bytes();
  vocab->read_merges(metadata);
  vocab->read_special_ids(metadata);
  vocab->chat_template_ = metadata.string(kTemplateKey).value_or("");
  return vocab;
}

void Vocab::read_texts(const gguf::Metadata& metadata) {
  const gguf::Array& tokens = required_strings(metadata, kTokensKey);
  if (tokens.count == 0 || tokens.count > MergeTable::kMaxTokens) {
    fail(ErrorCode::kBadFile, "{} has {} entries, expected 1 to {}", kTokensKey, tokens.count, MergeTable::kMaxTokens);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < tokens.strings.size(); ++i) {
    if (tokens.strings[i].size() > kMaxTokenBytes) {
      fail(ErrorCode::kBadFile, "{}[{}] is {}, longer than the {} bytes a token may have", kTokensKey, i,
           printable(tokens.strings[i]), kMaxTokenBytes);
    }
    bytes += tokens.strings[i].size();
  }
  texts_.reserve(tokens.strings.size(), bytes);
  for (const std::string_view text : tokens.strings) texts_.add(text);
}

void Vocab::read_types(const gguf::Metadata& metadata) {
  const gguf::Array& types = required_array(metadata, kTypesKey);
  require_integers(types, kTypesKey);
  require_length(types, kTypesKey, size());
  types_.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const int64_t type = types.integer(i);
    if (type < static_cast<int64_t>(TokenType::kNormal) || type > static_cast<int64_t>(TokenType::kByte)) {
      fail(ErrorCode::kBadFile, "{}[{}] is {}, expected 1 to 6", kTypesKey, i, type);
    }
    types_.push_back(static_cast<TokenType>(type));
  }
  for (const GemmaSpecial& special : kGemmaSpecials) {
    if (const auto id = find(special.text)) types_[static_cast<size_t>(*id)] = special.type;
  }
}

void Vocab::index_symbols_and_bytes() {
  byte_tokens_.fill(-1);
  for (size_t i = 0; i < size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view token = text(id);
    if (type(id) == TokenType::kByte) {
      const auto value = parse_byte_text(token);
      if (!value) {
        fail(ErrorCode::kBadFile, "{}[{}] is {}, but {} calls it a byte: expected \"<0x00>\" to \"<0xFF>\"", kTokensKey,
             i, printable(token), kTypesKey);
      }
      if (byte_tokens_[*value] < 0) byte_tokens_[*value] = id;
    } else if (type(id) == TokenType::kControl) {
      continue;  // never reached from ordinary text, not even when its text is a single character
    } else if (!token.empty() && token.size() <= 4 && utf8_sequence_length(token) == token.size()) {
      symbols_.add(code_point_of(token), id);
    }
  }
}

void Vocab::read_merges(const gguf::Metadata& metadata) {
  const gguf::Array& merges = required_strings(metadata, kMergesKey);
  const size_t count = merges.strings.size();
  if (count > MergeTable::kMaxMerges) {
    fail(ErrorCode::kBadFile, "{} has {} entries, expected at most {}", kMergesKey, count, MergeTable::kMaxMerges);
  }
  merges_ = MergeTable(count);
  borders_ = BorderFilter(count);
  // Each merge costs four lookups at random places of tables larger than the nearest caches. In batches, the processor
  // fetches all places of one step at the same time, which halves the time to load a vocabulary.
  std::array<MergeLine, 32> batch;
  for (size_t first = 0; first < count; first += batch.size()) {
    const size_t filled = std::min(batch.size(), count - first);
    const std::span lines(batch.data(), filled);
    for (size_t i = 0; i < filled; ++i) lines[i].split(merges.strings[first + i], first + i, texts_);
    for (MergeLine& line : lines) resolve(line);
    for (const MergeLine& line : lines) {
      merges_.add(line.left.id, line.right.id, line.joined.id);
      add_border(line.left.id, line.right.id);
    }
  }
}

void Vocab::resolve(MergeLine& line) const {
  for (MergeLine::Part* part : {&line.left, &line.right, &line.joined}) {
    const auto id = texts_.find(part->text, part->hash);
    if (!id) {
      fail(ErrorCode::kBadFile, "{}[{}] is {}, but {} is not in {}", kMergesKey, line.rank, printable(line.source),
           printable(part->text), kTokensKey);
    }
    part->id = *id;
  }
  const TokenType result = type(line.joined.id);
  if (result == TokenType::kControl || result == TokenType::kByte || is_gemma_special(line.joined.text)) {
    fail(ErrorCode::kBadFile, "{}[{}] is {}: it would turn ordinary text into the special token {}", kMergesKey,
         line.rank, printable(line.source), printable(line.joined.text));
  }
  merges_.prefetch(line.left.id, line.right.id);
}

void Vocab::add_border(TokenId left, TokenId right) {
  const TokenId before = edge_symbol(symbols_, text(left), true);
  const TokenId after = edge_symbol(symbols_, text(right), false);
  // Without a token for each single code point no text can ever be merged up to `left` and `right`.
  if (before >= 0 && after >= 0) borders_.add(before, after);
}

void Vocab::read_special_ids(const gguf::Metadata& metadata) {
  const auto required_id = [&](std::string_view name, std::string_view usual_text) {
    auto id = special_id(metadata, name, size());
    if (!id) id = find(usual_text);
    if (!id) {
      fail(ErrorCode::kBadFile, "tokenizer.ggml.{}_token_id is missing and no token is called {}", name, usual_text);
    }
    return *id;
  };
  bos_ = required_id("bos", "<bos>");
  eos_ = required_id("eos", "<eos>");
  unknown_ = special_id(metadata, "unknown", size()).value_or(-1);
  for (const std::string_view unused : {"padding", "mask", "separator", "cls", "eot", "eom"}) {
    special_id(metadata, unused, size());  // for the check only
  }

  stops_ = {eos_};
  for (const std::string_view stop : kStopTexts) {
    if (const auto id = find(stop); id && !is_stop(*id)) stops_.push_back(*id);
  }
  std::sort(stops_.begin(), stops_.end());

  if (const gguf::Array* suppressed = metadata.array(kSuppressKey)) {
    require_integers(*suppressed, kSuppressKey);
    for (size_t i = 0; i < suppressed->count; ++i) {
      const int64_t id = suppressed->integer(i);
      if (id < 0 || static_cast<uint64_t>(id) >= size()) {
        fail(ErrorCode::kBadFile, "{}[{}] is {}, but the vocabulary has {} tokens", kSuppressKey, i, id, size());
      }
      suppressed_.push_back(static_cast<TokenId>(id));
    }
  }

  for (size_t i = 0; i < size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (is_special(id) && find(text(id)) == id) specials_.push_back(id);
  }
  std::stable_sort(specials_.begin(), specials_.end(),
                   [this](TokenId a, TokenId b) { return text(a).size() > text(b).size(); });
}

bool Vocab::is_special(TokenId id) const {
  return type(id) == TokenType::kControl || type(id) == TokenType::kUserDefined;
}

std::optional<uint8_t> Vocab::byte_value(TokenId id) const {
  return type(id) == TokenType::kByte ? parse_byte_text(text(id)) : std::nullopt;
}

bool Vocab::is_stop(TokenId id) const { return std::find(stops_.begin(), stops_.end(), id) != stops_.end(); }

std::optional<Vocab::Merge> Vocab::merge(TokenId left, TokenId right) const {
  const uint32_t rank = merges_.rank(left, right);
  if (rank == MergeTable::kNone) return std::nullopt;
  return Merge{rank, merges_.result(rank)};
}

}  // namespace carat::text
