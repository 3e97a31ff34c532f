// Text -> token ids and back.
//
//   Tokenizer tokenizer = KTX_TRY(Tokenizer::create(std::move(data)));
//   std::vector<int32_t> ids = tokenizer.encode("Hello", {.parse_special = true});
//   std::string text = tokenizer.decode(ids);
//
// Immutable after create; every method may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/text_spans.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

struct EncodeOptions {
  bool parse_special = false;  // control tokens in the text are taken as such
  bool add_bos = false;        // put BOS in front, where there is one
  bool add_eos = false;
  std::span<const TextSpan> outside = {};  // where control tokens are text all the same
};

class Tokenizer {
 public:
  // Fails on data that validate() refuses, and on patterns that do not compile.
  static Result<Tokenizer> create(TokenizerData data);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Never fails: any bytes have tokens, wrong UTF-8 too (where the vocabulary has
  // tokens for them; else the unknown token, else nothing). Near-linear in time.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // A prompt as its author wrote it: special tokens are parsed, and BOS is added if
  // the model asks for it and the text does not begin with it. What begins a text of an encoder is
  // put before any, one that begins with it, too; of a unigram model nothing is parsed. What others
  // put into it is `outside`: text, whatever it spells.
  std::vector<int32_t> encode_prompt(std::string_view text,
                                     std::span<const TextSpan> outside = {}) const;

  // The bytes of a token; control tokens as they are written. Empty for an id outside
  // of the vocabulary and for unused tokens. May be a part of a UTF-8 character.
  std::string_view piece(int32_t id) const;

  // All pieces, control tokens left out unless `special`; SPM: without the space that
  // encode puts in front. Wrong UTF-8 becomes U+FFFD. For text that arrives token by
  // token see Detokenizer.
  std::string decode(std::span<const int32_t> ids, bool special = false) const;

  int32_t size() const;  // of the vocabulary
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  TokenType type(int32_t id) const;               // Undefined outside of the vocabulary
  bool is_control(int32_t id) const;              // control and unknown tokens: not text
  bool is_eog(int32_t id) const;                  // ends an answer
  int32_t bos() const { return data().ids.bos; }  // -1: none; eos likewise
  int32_t eos() const { return data().ids.eos; }
  // The token with exactly this stored text ("<|im_end|>"), if there is one.
  std::optional<int32_t> find(std::string_view token) const;
  const TokenizerData& data() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ktx::text
