#include "lib/text/tokenizer/tokenizer_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <unordered_map>

#include "lib/support/strings.h"
#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/tokenizer/character_map.h"
#include "lib/text/tokenizer/pretokenize.h"
#include "lib/text/tokenizer/text_map.h"

namespace ktx::text {
namespace {

constexpr size_t kMaxTokens = 1u << 24;  // the largest vocabularies have 2^18
constexpr size_t kMaxMerges = 1u << 22;
constexpr size_t kMaxMergeBytes = 1u << 30;
constexpr size_t kMaxSplits = 64;

struct EndToken {
  std::string_view text;
  bool ends_turn;
};

// BPE over characters, of the whole text at once, with "▁" for a space and tokens of bytes for what
// is left; by tokenizer.ggml.model or .pre.
constexpr std::string_view kOverCharacters[] = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"};

constexpr EndToken kEndTokens[] = {
#define KTX_END_TOKEN(text, ends_turn) {text, ends_turn},
#include "lib/text/tokenizer/end_tokens.def"
};

Result<TextList> copy_texts(std::span<const std::string_view> texts, std::string_view key) {
  size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes > UINT32_MAX)
    return Error{fmt::format("{}: {} of text are too much", key, human_bytes(bytes))};
  TextList list;
  list.reserve(texts.size(), bytes);
  for (const std::string_view text : texts) list.push_back(text);
  return list;
}

// Numbers for the halves and results of merges: tokens first, then what is none.
class Symbols {
 public:
  explicit Symbols(const TextList& tokens) : tokens_(tokens), map_(tokens.size()) {
    for (uint32_t id = 0; id < tokens.size(); ++id) {
      if (!tokens[id].empty()) map_.add(tokens, id);
    }
  }
  std::optional<uint32_t> find_token(std::string_view text) const {
    return map_.find(tokens_, text);
  }
  uint32_t number(std::string_view text) {
    if (const auto id = find_token(text)) return *id;
    const auto next = static_cast<uint32_t>(tokens_.size() + extra_.size());
    const auto [entry, added] = extra_map_.try_emplace(std::string(text), next);
    if (added) extra_.push_back(text);
    return entry->second;
  }
  TextList take_extra() { return std::move(extra_); }

 private:
  const TextList& tokens_;
  TextMap map_;
  std::unordered_map<std::string, uint32_t> extra_map_;
  TextList extra_;
};

Result<std::vector<Merge>> resolve_merges(std::span<const std::string_view> merges,
                                          Symbols& symbols) {
  size_t bytes = 0;
  for (const std::string_view text : merges) bytes += text.size();
  if (merges.size() > kMaxMerges || bytes > kMaxMergeBytes) {
    return Error{
        fmt::format("tokenizer.ggml.merges has {} items of {}, at most {} of {} are supported",
                    merges.size(), human_bytes(bytes), kMaxMerges, human_bytes(kMaxMergeBytes))};
  }
  std::vector<Merge> resolved;
  resolved.reserve(merges.size());
  std::string result;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view text = merges[i];
    const size_t space = text.find(' ', 1);  // from 1: a half may be a space
    if (space == std::string_view::npos || space + 1 == text.size()) {
      return Error{fmt::format("tokenizer.ggml.merges[{}]: '{}' is no pair 'left right'", i,
                               printable(text))};
    }
    const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
    result.assign(left).append(right);
    resolved.push_back({symbols.number(left), symbols.number(right), symbols.number(result)});
  }
  return resolved;
}

// For vocabularies of ranks without a list of merges (some kimi-k2 files): two
// neighbours merge when together they are a token, the lowest id first.
std::vector<Merge> merges_of_ranks(const TextList& tokens, std::span<const TokenType> types,
                                   const Symbols& symbols) {
  std::vector<Merge> merges;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (types[id] != TokenType::Normal) continue;
    const std::string_view text = tokens[id];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;
      const auto left = symbols.find_token(text.substr(0, cut));
      if (!left) continue;
      const auto right = symbols.find_token(text.substr(cut));
      if (right) merges.push_back({*left, *right, id});
    }
  }
  return merges;
}

// An id that must be a token, when it is there.
Result<int32_t> checked_id(std::optional<uint64_t> id, std::string_view key, size_t tokens) {
  if (!id) return -1;
  if (*id >= tokens) {
    return Error{
        fmt::format("tokenizer.ggml.{} is {}, but the vocabulary has {} tokens", key, *id, tokens)};
  }
  return static_cast<int32_t>(*id);
}

// An id that nothing depends on: files carry wrong ones (padding above all).
int32_t lenient_id(std::optional<uint64_t> id, size_t tokens) {
  return id && *id < tokens ? static_cast<int32_t>(*id) : -1;
}

Status set_types(const TokenizerSource& source, TokenizerData& data) {
  const size_t count = data.tokens.size();
  data.types.assign(count, TokenType::Normal);
  if (source.token_types.empty()) {
    for (size_t i = 0; i < count && data.kind == TokenizerKind::Spm; ++i) {
      if (byte_of_token(data.tokens[i])) data.types[i] = TokenType::Byte;
    }
    return {};
  }
  if (source.token_types.size() != count) {
    return Error{fmt::format("tokenizer.ggml.token_type has {} items, tokenizer.ggml.tokens {}",
                             source.token_types.size(), count)};
  }
  for (size_t i = 0; i < count; ++i) {
    const int32_t type = source.token_types[i];
    const bool known = type >= 0 && type <= static_cast<int32_t>(TokenType::Byte);
    data.types[i] = known ? static_cast<TokenType>(type) : TokenType::Undefined;
  }
  return {};
}

// The token for text that no other token covers, in a file that does not say which one it is.
int32_t unnamed_unknown(const TokenizerData& data) {
  int32_t by_name = -1;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] == TokenType::Unknown) return static_cast<int32_t>(id);
    const std::string_view token = data.tokens[id];
    if (by_name < 0 && (token == "<unk>" || token == "[UNK]")) by_name = static_cast<int32_t>(id);
  }
  return by_name;
}

Status set_ids(const TokenizerSource& source, TokenizerData& data) {
  const size_t count = data.tokens.size();
  data.ids.bos = KTX_TRY(checked_id(source.bos, "bos_token_id", count));
  data.ids.eos = KTX_TRY(checked_id(source.eos, "eos_token_id", count));
  data.ids.eot = KTX_TRY(checked_id(source.eot, "eot_token_id", count));
  data.ids.eom = KTX_TRY(checked_id(source.eom, "eom_token_id", count));
  data.ids.unk = lenient_id(source.unk, count);
  data.ids.sep = lenient_id(source.sep, count);
  data.ids.pad = lenient_id(source.pad, count);
  data.ids.mask = lenient_id(source.mask, count);
  if (data.of_encoder() && data.ids.unk < 0) data.ids.unk = unnamed_unknown(data);
  if (data.kind == TokenizerKind::WordPiece) {  // [CLS] text [SEP]
    if (!source.bos) data.ids.bos = lenient_id(source.cls, count);
    if (!source.eos) data.ids.eos = data.ids.sep;
  }
  if (data.kind == TokenizerKind::Spm && count > 2) {  // where SentencePiece puts them
    if (!source.unk) data.ids.unk = 0;
    if (!source.bos) data.ids.bos = 1;
    if (!source.eos) data.ids.eos = 2;
  }
  return {};
}

// OpenAI's harmony: an answer ends with <|return|> or, when a tool is called, with <|call|>;
// <|end|> ends a message, and the answer goes on with the next one.
void find_harmony_end_tokens(TokenizerData& data, int32_t returned, int32_t call) {
  for (const int32_t id : {returned, call}) {
    data.types[static_cast<size_t>(id)] = TokenType::Control;
    data.eog.push_back(id);
  }
  if (data.ids.eot < 0) data.ids.eot = returned;
  if (data.ids.eom < 0) data.ids.eom = call;
}

void find_end_tokens(TokenizerData& data, const Symbols& symbols) {
  const auto returned = symbols.find_token("<|return|>"), call = symbols.find_token("<|call|>");
  const bool harmony = returned && call;
  if (harmony) {
    find_harmony_end_tokens(data, static_cast<int32_t>(*returned), static_cast<int32_t>(*call));
  }
  for (const EndToken& row : kEndTokens) {
    const auto id = symbols.find_token(row.text);
    if (!id) continue;
    if (harmony && row.text == "<|end|>") {
      data.types[*id] = TokenType::Control;
      continue;
    }
    data.types[*id] = TokenType::Control;
    data.eog.push_back(static_cast<int32_t>(*id));
    if (row.ends_turn && data.ids.eot < 0) data.ids.eot = static_cast<int32_t>(*id);
    if (row.text == "<|eom_id|>" && data.ids.eom < 0) data.ids.eom = static_cast<int32_t>(*id);
  }
  for (const int32_t id : {data.ids.eos, data.ids.eot, data.ids.eom}) {
    if (id >= 0) data.eog.push_back(id);
  }
  std::sort(data.eog.begin(), data.eog.end());
  data.eog.erase(std::unique(data.eog.begin(), data.eog.end()), data.eog.end());
}

Status check_ids(const TokenizerData& data) {
  const auto count = static_cast<int64_t>(data.tokens.size());
  const SpecialIds& ids = data.ids;
  for (const int32_t id :
       {ids.bos, ids.eos, ids.eot, ids.eom, ids.unk, ids.sep, ids.pad, ids.mask}) {
    if (id < -1 || id >= count) {
      return Error{fmt::format("tokenizer: special token id {} is outside of the vocabulary of {}",
                               id, count)};
    }
  }
  for (const int32_t id : data.eog) {
    if (id < 0 || id >= count) {
      return Error{
          fmt::format("tokenizer: end token id {} is outside of the vocabulary of {}", id, count)};
    }
  }
  for (const auto* list : {&data.lstrip, &data.rstrip, &data.single_word, &data.normalized}) {
    for (const uint32_t id : *list) {
      if (id >= count) {
        return Error{
            fmt::format("tokenizer: token id {} is outside of the vocabulary of {}", id, count)};
      }
    }
  }
  if (data.add_bos && ids.bos < 0)
    return Error{"tokenizer: add_bos_token is set, but there is no BOS token"};
  if (data.add_eos && ids.eos < 0)
    return Error{"tokenizer: add_eos_token is set, but there is no EOS token"};
  return {};
}

Status check_splits(const TokenizerData& data) {
  if (data.splits.size() > kMaxSplits) {
    return Error{fmt::format("tokenizer: {} split patterns, at most {} are supported",
                             data.splits.size(), kMaxSplits)};
  }
  for (size_t i = 1; i < data.splits.size(); ++i) {
    if (data.splits[i - 1].on_bytes && !data.splits[i].on_bytes) {
      return Error{
          fmt::format("tokenizer: split pattern {} sees text, the one before it bytes", i)};
    }
  }
  return {};
}

}  // namespace

void TextList::push_back(std::string_view text) {
  bytes_.append(text);
  ends_.push_back(static_cast<uint32_t>(bytes_.size()));
}

void TextList::reserve(size_t items, size_t bytes) {
  ends_.reserve(items);
  bytes_.reserve(bytes);
}

Result<TextList> TextList::from_parts(std::string bytes, std::vector<uint32_t> ends) {
  if ((ends.empty() ? 0 : ends.back()) != bytes.size()) {
    return Error{
        fmt::format("texts of {} bytes end at {}", bytes.size(), ends.empty() ? 0 : ends.back())};
  }
  if (!std::is_sorted(ends.begin(), ends.end())) return Error{"the ends of texts do not rise"};
  TextList list;
  list.bytes_ = std::move(bytes);
  list.ends_ = std::move(ends);
  return list;
}

namespace {

// Whether any word has capitals; names such as "[CLS]" do not count.
bool has_capitals(const TokenizerData& data) {
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string_view token = data.tokens[i];
    if (data.types[i] != TokenType::Normal || token.starts_with('[')) continue;
    if (token.find('[') != token.npos) continue;
    if (std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; })) return true;
  }
  return false;
}

}  // namespace

Result<TokenizerData> make_tokenizer_data(const TokenizerSource& source) {
  TokenizerData data;
  const bool bpe_of_bytes = source.model == "gpt2";
  const std::string_view name = bpe_of_bytes ? source.pre : source.model;
  const bool over_characters =
      (bpe_of_bytes || source.model == "gemma4") &&
      std::ranges::find(kOverCharacters, name) != std::end(kOverCharacters);
  if (bpe_of_bytes || over_characters) {
    data.kind = TokenizerKind::Bpe;
  } else if (source.model == "llama") {
    data.kind = TokenizerKind::Spm;
  } else if (source.model == "bert") {
    data.kind = TokenizerKind::WordPiece;
  } else if (source.model == "t5") {
    data.kind = TokenizerKind::Unigram;
  } else {
    return Error{fmt::format(
        "tokenizer.ggml.model '{}' is not supported; known are 'gpt2' (byte-level BPE), 'gemma4' "
        "(BPE over characters), 'llama' (SentencePiece), 't5' (its unigram model) and 'bert' "
        "(WordPiece)",
        printable(source.model))};
  }
  const bool bpe = data.kind == TokenizerKind::Bpe;
  const size_t count = source.tokens.size();
  if (count == 0) return Error{"tokenizer.ggml.tokens is missing or empty"};
  if (count > kMaxTokens) {
    return Error{fmt::format("tokenizer.ggml.tokens has {} items, at most {} are supported", count,
                             kMaxTokens)};
  }
  data.tokens = KTX_TRY(copy_texts(source.tokens, "tokenizer.ggml.tokens"));
  KTX_TRY(set_types(source, data));
  Symbols symbols(data.tokens);

  bool default_bos = !bpe;
  if (bpe) {
    data.pre = source.pre.empty() ? "default" : source.pre;
    data.escape_whitespaces = over_characters;
    data.byte_fallback = over_characters;
    data.byte_level = !over_characters;
    if (over_characters) {
      data.pre = name;
      default_bos = name == "gemma4";
    } else if (source.splits) {
      data.splits = *source.splits;
    } else {
      Result<Pretokenizer> pre = find_pretokenizer(data.pre);
      if (!pre) return Error{"tokenizer.ggml.pre: " + pre.error().message};
      data.splits = std::move(pre->splits);
      data.ignore_merges = pre->ignore_merges;
      default_bos = pre->add_bos;
    }
    if (source.ignore_merges) data.ignore_merges = *source.ignore_merges;
    if (!source.merges.empty() || source.splits) {
      data.merges = KTX_TRY(resolve_merges(source.merges, symbols));
    } else if (data.pre == "kimi-k2") {
      data.merges = merges_of_ranks(data.tokens, data.types, symbols);
    } else {
      return Error{"tokenizer.ggml.merges is missing or empty"};
    }
    data.extra_symbols = symbols.take_extra();
  } else if (data.kind == TokenizerKind::WordPiece) {
    data.escape_whitespaces = data.byte_fallback = data.byte_level = false;
    // A vocabulary without capitals is of a model that knows none.
    data.lowercase = source.lowercase.value_or(!has_capitals(data));
    data.strip_accents = source.strip_accents.value_or(data.lowercase);
  } else {
    if (source.scores.size() != count) {
      return Error{fmt::format("tokenizer.ggml.scores has {} items, tokenizer.ggml.tokens {}",
                               source.scores.size(), count)};
    }
    data.scores.assign(source.scores.begin(), source.scores.end());
    data.add_space_prefix = true;
    if (data.kind == TokenizerKind::Unigram) data.byte_fallback = false;
  }
  data.normalizer = source.normalizer;
  data.character_map = source.character_map;
  // GGUF files of BPE models may carry the flag, but their families do not use it.
  if (source.add_space_prefix && (!bpe || source.splits)) {
    data.add_space_prefix = *source.add_space_prefix;
  }
  if (source.remove_extra_whitespaces)
    data.remove_extra_whitespaces = *source.remove_extra_whitespaces;

  KTX_TRY(set_ids(source, data));
  find_end_tokens(data, symbols);
  data.add_bos = source.add_bos.value_or(default_bos && data.ids.bos >= 0);
  data.add_eos = source.add_eos.value_or(data.of_encoder() && data.ids.eos >= 0);
  KTX_TRY(validate(data));
  KTX_TRY(Splitter::create(data.splits));
  return data;
}

Status validate(const TokenizerData& data) {
  const size_t count = data.tokens.size();
  const bool bpe = data.kind == TokenizerKind::Bpe;
  const bool scored = data.kind == TokenizerKind::Spm || data.kind == TokenizerKind::Unigram;
  if (!bpe && !scored && data.kind != TokenizerKind::WordPiece) {
    return Error{fmt::format("tokenizer: unknown kind {}", static_cast<int>(data.kind))};
  }
  if (count == 0 || count > kMaxTokens) {
    return Error{fmt::format("tokenizer: {} tokens, expected 1 to {}", count, kMaxTokens)};
  }
  if (data.types.size() != count) {
    return Error{fmt::format("tokenizer: {} token types for {} tokens", data.types.size(), count)};
  }
  if (data.scores.size() != (scored ? count : 0)) {
    return Error{fmt::format("tokenizer: {} scores for {} tokens", data.scores.size(), count)};
  }
  for (size_t i = 0; i < data.scores.size(); ++i) {
    if (data.scores[i] != data.scores[i]) {  // NaN has no order
      return Error{fmt::format("tokenizer.ggml.scores[{}] is not a number", i)};
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (data.types[i] > TokenType::Byte) {
      return Error{fmt::format("tokenizer.ggml.token_type[{}]: unknown type {}", i,
                               static_cast<int>(data.types[i]))};
    }
    if (data.types[i] == TokenType::Byte && !byte_of_token(data.tokens[i])) {
      return Error{
          fmt::format("tokenizer.ggml.tokens[{}]: '{}' has the type of a byte token, "
                      "expected the form <0xHH>",
                      i, printable(data.tokens[i]))};
    }
  }
  const size_t symbols = count + data.extra_symbols.size();
  for (size_t i = 0; i < data.merges.size(); ++i) {
    const Merge& merge = data.merges[i];
    if (std::max({merge.left, merge.right, merge.result}) >= symbols) {
      return Error{fmt::format("tokenizer: merge {} names symbol {}, there are {}", i,
                               std::max({merge.left, merge.right, merge.result}), symbols)};
    }
  }
  const Result<CharacterMap> map = CharacterMap::create(data.character_map);
  if (!map) return Error{"tokenizer.ggml.precompiled_charsmap: " + map.error().message};
  KTX_TRY(check_splits(data));
  return check_ids(data);
}

}  // namespace ktx::text
