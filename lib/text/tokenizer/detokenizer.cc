#include "lib/text/tokenizer/detokenizer.h"

#include "lib/text/utf8.h"

namespace ktx::text {

std::string Detokenizer::add(int32_t id) {
  if (!options_.special && tokenizer_.is_control(id)) return {};
  std::string_view piece = tokenizer_.piece(id);
  if (piece.empty()) return {};
  if (at_start_ && tokenizer_.data().add_space_prefix && piece.front() == ' ' &&
      !tokenizer_.is_control(id)) {
    piece.remove_prefix(1);
  }
  at_start_ = false;
  held_.append(piece);

  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const size_t valid = valid_utf8_prefix(rest);
    text.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Char next = decode_utf8(rest);
    if (next.cut_off) break;  // the next token may complete it
    text.append(kReplacementChar);
    rest.remove_prefix(next.length);
  }
  held_ = std::string(rest);
  return text;
}

std::string Detokenizer::finish() {
  at_start_ = options_.at_start;
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacementChar);  // one beginning of one character
}

}  // namespace ktx::text
