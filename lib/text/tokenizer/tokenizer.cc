#include "lib/text/tokenizer/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "lib/text/tokenizer/bpe.h"
#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/tokenizer/character_map.h"
#include "lib/text/tokenizer/detokenizer.h"
#include "lib/text/tokenizer/pretokenize.h"
#include "lib/text/tokenizer/special_tokens.h"
#include "lib/text/tokenizer/spm.h"
#include "lib/text/tokenizer/unigram.h"
#include "lib/text/tokenizer/word_piece.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

// Offsets inside of a run are 32 bits wide; a text that long is cut (once a GiB).
constexpr size_t kMaxRun = 1u << 30;

std::string escape_spaces(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == ' ') {
      escaped.append(kEscapedSpace);
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

void append_unescaped(std::string_view token, std::string& out) {
  size_t at = 0;
  while (true) {
    const size_t found = token.find(kEscapedSpace, at);
    if (found == std::string_view::npos) break;
    out.append(token.substr(at, found - at)).push_back(' ');
    at = found + kEscapedSpace.size();
  }
  out.append(token.substr(at));
}

// Runs of spaces become one, those at the ends none (SentencePiece's rule; it takes what a space
// is written as for one at the end, too).
std::string without_extra_spaces(std::string_view text, bool escaped) {
  std::string kept;
  for (const char c : text) {
    if (c != ' ' || (!kept.empty() && kept.back() != ' ')) kept.push_back(c);
  }
  while (kept.ends_with(' ') || (escaped && kept.ends_with(kEscapedSpace))) {
    kept.resize(kept.size() - (kept.back() == ' ' ? 1 : kEscapedSpace.size()));
  }
  return kept;
}

// Whether spaces are written by the normaliser (Prepend, Replace), not behind it (Metaspace).
bool spaces_are_normalised(const TokenizerData& data) {
  return data.escape_whitespaces && !data.space_prefix_if_missing;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// Normalises what is valid UTF-8 and leaves the rest.
std::string normalized(std::string_view text, Normalizer form) {
  int options = UTF8PROC_STABLE;
  options |=
      form == Normalizer::Nfc || form == Normalizer::Nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Normalizer::Nfkc || form == Normalizer::Nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    const std::string_view part = text.substr(0, valid);
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t size =
        valid == 0 ? 0
                   : utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                                  static_cast<utf8proc_ssize_t>(valid), &mapped,
                                  static_cast<utf8proc_option_t>(options));
    if (mapped && size >= 0) {
      out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
    } else {
      out.append(part);
    }
    std::free(mapped);  // utf8proc allocates with malloc
    if (valid == text.size()) break;
    out.push_back(text[valid]);
    text.remove_prefix(valid + 1);
  }
  return out;
}

void append_piece(const TokenizerData& data, size_t id, std::string& out) {
  const std::string_view token = data.tokens[id];
  switch (data.types[id]) {
    case TokenType::Normal:
      if (data.kind == TokenizerKind::Bpe && data.byte_level) {
        append_from_alphabet(token, out);
      } else if (data.escape_whitespaces || data.kind == TokenizerKind::WordPiece) {
        append_unescaped(token, out);
      } else {
        out.append(token);
      }
      break;
    case TokenType::Byte:
      out.push_back(static_cast<char>(*byte_of_token(token)));
      break;
    case TokenType::Control:
    case TokenType::Unknown:
    case TokenType::UserDefined:
      out.append(token);
      break;
    case TokenType::Unused:
    case TokenType::Undefined:
      break;
  }
}

}  // namespace

struct Tokenizer::State {
  TokenizerData data;
  CharacterMap characters;  // a view into `data`
  SpecialTokens special, normalized_tokens;
  TextMap names;
  TextList pieces;
  std::vector<bool> ends_answer;
  std::optional<Splitter> splitter;  // BPE
  std::optional<Bpe> bpe;
  std::optional<Spm> spm;
  std::optional<WordPiece> word_piece;
  std::optional<Unigram> unigram;

  std::string normalised(std::string_view text) const;
  std::string spaced(std::string text, bool prefix) const;
  void encode_text(std::string_view text, bool first, bool after_special,
                   std::vector<int32_t>& ids) const;
  void encode_run(std::string_view text, std::vector<int32_t>& ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(TokenizerData data) {
  KTX_TRY(validate(data));
  auto state = std::make_unique<State>();
  state->data = std::move(data);
  const TokenizerData& kept = state->data;
  const size_t count = kept.tokens.size();
  if (kept.kind == TokenizerKind::Bpe) {
    state->splitter = KTX_TRY(Splitter::create(kept.splits));
    state->bpe.emplace(kept);
  } else if (kept.kind == TokenizerKind::WordPiece) {
    state->word_piece.emplace(kept);
  } else if (kept.kind == TokenizerKind::Unigram) {
    state->unigram.emplace(kept);
  } else {
    state->spm.emplace(kept);
  }
  state->characters = KTX_TRY(CharacterMap::create(kept.character_map));
  state->special = SpecialTokens(kept, SpecialTokens::Pass::Given);
  if (!kept.normalized.empty()) {
    const State& made = *state;
    state->normalized_tokens =
        SpecialTokens(kept, SpecialTokens::Pass::Normalized, [&made](std::string_view token) {
          std::string written = made.normalised(token);
          if (!spaces_are_normalised(made.data)) return written;
          return made.spaced(std::move(written), made.data.add_space_prefix);
        });
  }
  state->names = TextMap(count);
  state->pieces.reserve(count, kept.tokens.bytes().size());
  std::string piece;
  for (uint32_t id = 0; id < count; ++id) {
    if (!kept.tokens[id].empty()) state->names.add(kept.tokens, id);
    piece.clear();
    append_piece(kept, id, piece);
    state->pieces.push_back(piece);
  }
  state->ends_answer.resize(count);
  for (const int32_t id : kept.eog) state->ends_answer[static_cast<size_t>(id)] = true;
  return Tokenizer(std::move(state));
}

void Tokenizer::State::encode_run(std::string_view text, std::vector<int32_t>& ids) const {
  for (; text.size() > kMaxRun; text.remove_prefix(kMaxRun)) {
    encode_run(text.substr(0, kMaxRun), ids);
  }
  if (text.empty()) return;
  if (spm) return spm->encode(text, ids);
  if (word_piece) return word_piece->encode(text, ids);
  if (unigram) return unigram->encode(text, ids);
  Bpe::Scratch scratch;
  for (const Splitter::Piece& piece : splitter->split(text)) {
    bpe->encode(text.substr(piece.begin, piece.end - piece.begin), scratch, ids);
  }
}

// As the normaliser leaves it; spaces that it puts in front are not its part.
std::string Tokenizer::State::normalised(std::string_view text) const {
  if (!characters.empty()) return characters.apply(text);
  if (data.normalizer == Normalizer::None || is_ascii(text)) return std::string(text);
  return normalized(text, data.normalizer);
}

// The space in front, and spaces as the vocabulary writes them.
std::string Tokenizer::State::spaced(std::string text, bool prefix) const {
  if (data.remove_extra_whitespaces) {
    text = without_extra_spaces(text, data.escape_whitespaces);
    if (text.empty()) return text;
  }
  if (prefix && !(data.space_prefix_if_missing && text.starts_with(' '))) {
    if (data.treat_whitespace_as_suffix) {
      text.push_back(' ');
    } else {
      text.insert(text.begin(), ' ');
    }
  }
  return data.escape_whitespaces ? escape_spaces(text) : text;
}

// `first`: nothing stands before this text; `after_special`: nothing or a special token.
void Tokenizer::State::encode_text(std::string_view text, bool first, bool after_special,
                                   std::vector<int32_t>& ids) const {
  const auto spaced_here = [&](std::string part) {
    const bool prefix =
        data.add_space_prefix && after_special && (first || !data.space_prefix_once);
    return spaced(std::move(part), prefix);
  };
  if (normalized_tokens.empty()) return encode_run(spaced_here(normalised(text)), ids);
  // A normaliser that writes the spaces does so before tokens are looked for, others behind.
  const bool spaces_first = spaces_are_normalised(data);
  const std::string whole = spaces_first ? spaced_here(normalised(text)) : normalised(text);
  for (const SpecialTokens::Fragment& fragment : normalized_tokens.partition(whole, false)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
    } else if (spaces_first) {
      encode_run(fragment.text, ids);
    } else {
      encode_run(spaced_here(std::string(fragment.text)), ids);
    }
    first = false;
    after_special = fragment.id >= 0;
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const State& state = *state_;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 2);
  if (options.add_bos && bos() >= 0) ids.push_back(bos());
  bool first = true, after_special = true;
  for (const SpecialTokens::Fragment& fragment :
       state.special.partition(text, options.parse_special, options.outside)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
    } else {
      state.encode_text(fragment.text, first, after_special, ids);
    }
    after_special = fragment.id >= 0;
    first = false;
  }
  if (options.add_eos && eos() >= 0) ids.push_back(eos());
  return ids;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text,
                                              std::span<const TextSpan> outside) const {
  // SentencePiece makes no control token of text; BERT's tokenizer and templates do.
  const bool parse = data().kind != TokenizerKind::Unigram;
  std::vector<int32_t> ids = encode(text, {.parse_special = parse, .outside = outside});
  const bool begun = !ids.empty() && ids.front() == bos() && !data().of_encoder();
  if (data().add_bos && bos() >= 0 && !begun) {
    ids.insert(ids.begin(), bos());
  }
  return ids;
}

std::string_view Tokenizer::piece(int32_t id) const {
  return contains(id) ? state_->pieces[static_cast<size_t>(id)] : std::string_view();
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
  Detokenizer stream(*this, {.special = special});
  std::string text;
  for (const int32_t id : ids) text += stream.add(id);
  return text + stream.finish();
}

int32_t Tokenizer::size() const {
  return static_cast<int32_t>(data().tokens.size());
}

TokenType Tokenizer::type(int32_t id) const {
  return contains(id) ? data().types[static_cast<size_t>(id)] : TokenType::Undefined;
}

bool Tokenizer::is_control(int32_t id) const {
  const TokenType found = type(id);
  return found == TokenType::Control || found == TokenType::Unknown;
}

bool Tokenizer::is_eog(int32_t id) const {
  return contains(id) && state_->ends_answer[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  const auto id = state_->names.find(data().tokens, token);
  if (!id) return std::nullopt;
  return static_cast<int32_t>(*id);
}

const TokenizerData& Tokenizer::data() const {
  return state_->data;
}

}  // namespace ktx::text
