#include "lib/text/tokenizer/word_piece.h"

#include <utf8proc.h>

#include <algorithm>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // "▁"
constexpr size_t kMostCharacters = 100;                  // of a word; longer ones are unknown

// The blocks of the library tokenizers, whose extension E begins 256 characters late.
bool is_chinese(uint32_t c) {
  static constexpr uint32_t kRanges[][2] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
  };
  return std::ranges::any_of(kRanges,
                             [&](const uint32_t(&r)[2]) { return c >= r[0] && c <= r[1]; });
}

// Line and paragraph separators, too; other controls than the three are dropped.
bool is_space(uint32_t c, utf8proc_category_t category) {
  return c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_dropped(uint32_t c, utf8proc_category_t category) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || category == UTF8PROC_CATEGORY_CC ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO ||
         category == UTF8PROC_CATEGORY_CS;
}

// ASCII's symbols count, too.
bool is_punctuation(uint32_t c, utf8proc_category_t category) {
  const bool symbol = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                      (c >= 123 && c <= 126);
  return symbol || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

}  // namespace

WordPiece::WordPiece(const TokenizerData& data)
    : data_(data), tokens_(data.tokens.size()), prefixes_(data.tokens.bytes().size()) {
  for (uint32_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    if (type != TokenType::Normal && type != TokenType::UserDefined) continue;
    if (data.tokens[id].empty()) continue;
    tokens_.add(data.tokens, id);
    prefixes_.add(data.tokens[id]);
    longest_ = std::max(longest_, data.tokens[id].size());
  }
}

void WordPiece::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::string word;
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    text.remove_prefix(next.valid ? next.length : 1);
    if (!next.valid) continue;
    const auto c = static_cast<utf8proc_int32_t>(next.code);
    if (is_dropped(next.code, utf8proc_category(c))) continue;
    const bool chinese = is_chinese(next.code);
    if (chinese) end_word(word, ids);
    // A letter and its accents, which are left out.
    utf8proc_int32_t parts[16] = {c};
    int boundary = 0;
    const utf8proc_ssize_t found =
        data_.strip_accents ? utf8proc_decompose_char(c, parts, 16, UTF8PROC_DECOMPOSE, &boundary)
                            : 1;
    const bool whole = found < 1 || found > 16;
    if (whole) parts[0] = c;
    for (utf8proc_ssize_t i = 0; i < (whole ? 1 : found); ++i) {
      if (data_.strip_accents && utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
      add_character(parts[i], word, ids);
    }
    if (chinese) end_word(word, ids);
  }
  end_word(word, ids);
}

// White space ends a word, punctuation is a word.
void WordPiece::add_character(int32_t c, std::string& word, std::vector<int32_t>& ids) const {
  const auto code = static_cast<uint32_t>(data_.lowercase ? utf8proc_tolower(c) : c);
  const auto category = utf8proc_category(c);
  if (is_space(code, category)) return end_word(word, ids);
  const bool alone = is_punctuation(code, category);
  if (alone) end_word(word, ids);
  append_utf8(code, word);
  if (data_.lowercase && c == 0x130) append_utf8(0x307, word);  // the one that becomes two
  if (alone) end_word(word, ids);
}

void WordPiece::end_word(std::string& word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  size_t characters = 0;
  for (const char c : word) characters += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  const size_t before = ids.size();
  const std::string whole = std::string(kWordBegin) + word;
  word.clear();
  size_t at = 0;
  while (characters <= kMostCharacters && at < whole.size()) {
    size_t end = at + prefixes_.reach(std::string_view(whole).substr(at), longest_);
    std::optional<uint32_t> found;
    for (; end > at && !found; --end) {
      // Within a character no token ends.
      if (end < whole.size() && (static_cast<uint8_t>(whole[end]) & 0xC0) == 0x80) continue;
      found = tokens_.find(data_.tokens, std::string_view(whole).substr(at, end - at));
      if (found) break;
    }
    if (!found) break;
    ids.push_back(static_cast<int32_t>(*found));
    at = end;
  }
  if (at == whole.size()) return;
  ids.resize(before);
  if (data_.ids.unk >= 0) ids.push_back(data_.ids.unk);
}

}  // namespace ktx::text
