// All data of a tokenizer, from any source: GGUF metadata, an HF tokenizer.json, a
// SentencePiece tokenizer.model, or a section of a plan.
//
//   GGUF reader  -> TokenizerSource (views)  -> make_tokenizer_data -> TokenizerData
//   TokenizerData -> serialize -> plan section -> parse_tokenizer_data -> TokenizerData
//   TokenizerData -> Tokenizer (tokenizer.h)
//
// All work that needs hashing and comparing of strings (resolving merges to ids,
// looking up the pre-split name) is done once, in make_tokenizer_data at compile
// time, so that loading a 150k vocabulary from a plan is a few copies.
//
// Token text is stored as the file has it: byte-level BPE tokens in the GPT-2
// byte alphabet ("Ġhello"), SPM tokens with U+2581 for a space, added tokens raw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text {

enum class TokenizerKind : uint8_t { Bpe = 1, Spm = 2, WordPiece = 3, Unigram = 4 };

// The numbers of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  Undefined = 0,
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6,
};

// Unicode normalisation before anything else. GGUF files never ask for one; the
// tokenizer.json of Qwen does.
enum class Normalizer : uint8_t { None = 0, Nfc = 1, Nfd = 2, Nfkc = 3, Nfkd = 4 };

// What becomes of the matches of one pre-split pattern; the gaps between matches
// are pieces in every case. (The names are those of tokenizer.json.)
enum class SplitBehavior : uint8_t {
  Isolated = 0,            // a match is a piece
  Removed = 1,             // a match is dropped
  MergedWithPrevious = 2,  // a match ends the gap before it
  MergedWithNext = 3,      // a match begins the gap after it
  Contiguous = 4,          // neighbouring matches are one piece
};

// One step of the split before BPE: each piece of the step before is cut again.
struct SplitStep {
  std::string pattern;  // PCRE2 syntax, UTF
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool invert = false;    // gaps and matches change places
  bool on_bytes = false;  // sees the text in the GPT-2 byte alphabet; only such steps may follow
  bool operator==(const SplitStep&) const = default;
};

// Many short strings in one buffer. Item i is bytes [ends[i-1], ends[i]).
class TextList {
 public:
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  void push_back(std::string_view text);
  void reserve(size_t items, size_t bytes);
  std::string_view bytes() const { return bytes_; }
  std::span<const uint32_t> ends() const { return ends_; }
  // Fails unless the ends rise and the last one is the number of bytes.
  static Result<TextList> from_parts(std::string bytes, std::vector<uint32_t> ends);
  bool operator==(const TextList&) const = default;

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

// Ids of tokens with a role; -1 where there is none.
struct SpecialIds {
  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, sep = -1, pad = -1, mask = -1;
  bool operator==(const SpecialIds&) const = default;
};

// left + right -> result; the rank of a merge is its place in the list. Ids at or
// above the vocabulary size are symbols that are no tokens (extra_symbols).
struct Merge {
  uint32_t left = 0, right = 0, result = 0;
  bool operator==(const Merge&) const = default;
};

struct TokenizerData {
  TokenizerKind kind = TokenizerKind::Bpe;
  std::string pre;                // the name as the source gave it, for people
  std::vector<SplitStep> splits;  // BPE: applied in order
  Normalizer normalizer = Normalizer::None;

  TextList tokens;
  std::vector<float> scores;             // SPM and unigram: one per token; others: empty
  std::vector<TokenType> types;          // one per token
  std::vector<Merge> merges;             // BPE
  TextList extra_symbols;                // BPE: halves and results of merges that are no tokens
  std::vector<uint32_t> lstrip, rstrip;  // special tokens that swallow white space beside them
  std::vector<uint32_t> single_word;     // that stand only where no letter is beside them
  std::vector<uint32_t> normalized;      // user-defined ones, looked for in the normalised text
  std::string character_map;             // SentencePiece's table (character_map.h); may be empty

  SpecialIds ids;
  std::vector<int32_t> eog;  // end-of-generation tokens, ascending; includes eos, eot, eom
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;   // a text begins with a space; SPM: also after a special token
  bool space_prefix_once = false;  // ... but not after special tokens
  bool space_prefix_if_missing = false;  // ... but only if it does not begin with one
  bool remove_extra_whitespaces = false;
  bool treat_whitespace_as_suffix = false;
  bool escape_whitespaces = true;  // SPM: ' ' <-> U+2581
  bool byte_fallback = true;       // SPM: unknown text becomes byte tokens
  bool ignore_merges = false;      // BPE: a piece that is a token is taken whole
  bool byte_level = true;          // BPE over bytes in the GPT-2 alphabet; else over characters
  bool lowercase = false;          // WordPiece
  bool strip_accents = false;      // WordPiece

  // Encoders read a text between BOS and EOS; in BERT, special tokens of its own serve as these.
  bool of_encoder() const {
    return kind == TokenizerKind::WordPiece || kind == TokenizerKind::Unigram;
  }

  bool operator==(const TokenizerData&) const = default;
};

// What a reader of some file hands over: views into that file, which need to
// live only during the call. Absent things stay empty.
struct TokenizerSource {
  std::string_view model;  // tokenizer.ggml.model: "gpt2", "llama", "bert", "t5", "gemma4"
  std::string_view pre;    // tokenizer.ggml.pre; "" when absent
  std::span<const std::string_view> tokens;  // tokenizer.ggml.tokens
  std::span<const float> scores;             // tokenizer.ggml.scores
  std::span<const int32_t> token_types;      // tokenizer.ggml.token_type
  std::span<const std::string_view> merges;  // tokenizer.ggml.merges, "left right"
  // tokenizer.ggml.{bos,eos,eot,eom,unknown,seperator,padding,mask}_token_id; the
  // number as stored (an id outside of the vocabulary is reported, not cut short)
  std::optional<uint64_t> bos, eos, eot, eom, unk, sep, pad, mask;
  std::optional<uint64_t> cls;  // tokenizer.ggml.cls_token_id
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;
  std::string_view character_map;  // tokenizer.ggml.precompiled_charsmap; may be empty
  std::string_view architecture;   // general.architecture; may be empty
  std::optional<std::vector<SplitStep>> splits;  // explicit patterns instead of those of `pre`
  std::optional<bool> ignore_merges;
  Normalizer normalizer = Normalizer::None;
};

// Checks everything, resolves merges, fills defaults as the kind and the pre-split
// name ask. Safe for untrusted data. Errors name the key ("tokenizer.ggml.merges[12]: ...")
// but no file: the caller prepends that.
Result<TokenizerData> make_tokenizer_data(const TokenizerSource& source);

// Whether the data can be used: counts equal, ids inside the vocabulary, byte
// tokens exactly "<0xHH>", merges inside the symbols. Linear time.
Status validate(const TokenizerData& data);

// The bytes of a plan section, and back. The same data gives the same bytes.
// parse is safe for untrusted bytes: every length is checked before it is used,
// and what it returns has passed validate().
std::string serialize(const TokenizerData& data);
Result<TokenizerData> parse_tokenizer_data(std::span<const std::byte> bytes);

}  // namespace ktx::text
