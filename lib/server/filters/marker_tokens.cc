#include "lib/server/filters/marker_tokens.h"

#include "lib/text/answers/partial_match.h"

namespace ktx::server {

MarkerTokens::MarkerTokens(const text::Tokenizer& tokenizer, std::string_view marker,
                           std::string_view own)
    : text_(marker), next_(marker.size()) {
  const std::optional<int32_t> whole = tokenizer.find(own);
  if (whole) next_[0] = {*whole};
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (piece.empty() || tokenizer.is_eog(id)) continue;
    for (size_t said = whole ? 1 : 0; said < marker.size(); ++said) {
      const std::string_view rest = marker.substr(said);
      if (rest.starts_with(piece) || piece.starts_with(rest)) next_[said].push_back(id);
    }
  }
}

std::vector<uint32_t> all_tokens(const text::Tokenizer& tokenizer) {
  std::vector<uint32_t> bits(static_cast<size_t>(tokenizer.size() + 31) / 32);
  for (int32_t id = 0; id < tokenizer.size(); ++id) set_token(bits, id, true);
  return bits;
}

std::vector<uint32_t> all_but_ends(const text::Tokenizer& tokenizer) {
  std::vector<uint32_t> bits = all_tokens(tokenizer);
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_eog(id)) set_token(bits, id, false);
  }
  return bits;
}

void set_token(std::vector<uint32_t>& bits, int32_t id, bool on) {
  const auto word = static_cast<size_t>(id / 32);
  if (word >= bits.size()) bits.resize(word + 1);
  const uint32_t bit = 1u << (id % 32);
  bits[word] = on ? bits[word] | bit : bits[word] & ~bit;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(text::kAsciiSpace) == std::string_view::npos;
}

}  // namespace ktx::server
