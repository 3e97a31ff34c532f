#include "lib/text/tokenizer/special_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr uint8_t kLeftStrip = 1, kRightStrip = 2, kSingleWord = 4;

// Unicode's White_Space.
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// What \w is in regular expressions: letters (circled ones, too), marks, decimal digits, letter
// numbers, connectors and joiners.
bool is_word(uint32_t c) {
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  if (c == 0x200C || c == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

// The character that ends a text that is not empty; of wrong UTF-8 one byte, which is U+FFFD.
Utf8Char last_character(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(4, text.size()); ++size) {
    if ((static_cast<uint8_t>(text[text.size() - size]) & 0xC0) == 0x80) continue;
    const Utf8Char found = decode_utf8(text.substr(text.size() - size));
    if (found.valid && found.length == size) return found;
    break;
  }
  return {};
}

bool is_single_word(std::string_view before, std::string_view behind) {
  return (before.empty() || !is_word(last_character(before).code)) &&
         (behind.empty() || !is_word(decode_utf8(behind).code));
}

}  // namespace

SpecialTokens::SpecialTokens(const TokenizerData& data, Pass pass, const Written& written)
    : nodes_(1) {
  std::fill(std::begin(first_), std::end(first_), -1);
  std::vector<uint8_t> flags(data.tokens.size(), 0);
  std::vector<bool> other_pass(data.tokens.size(), pass == Pass::Normalized);
  for (const uint32_t id : data.lstrip) flags[id] |= kLeftStrip;
  for (const uint32_t id : data.rstrip) flags[id] |= kRightStrip;
  for (const uint32_t id : data.single_word) flags[id] |= kSingleWord;
  for (const uint32_t id : data.normalized) other_pass[id] = pass == Pass::Given;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    const bool control = type == TokenType::Control || type == TokenType::Unknown;
    if (other_pass[id] || (!control && type != TokenType::UserDefined)) continue;
    add(written ? written(data.tokens[id]) : std::string(data.tokens[id]), static_cast<int32_t>(id),
        control, flags[id]);
  }
}

void SpecialTokens::add(std::string_view text, int32_t id, bool control, uint8_t flags) {
  if (text.empty()) return;
  uint32_t at = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = static_cast<uint32_t>(nodes_.size());
    if (i == 0) {
      if (first_[byte] < 0) first_[byte] = static_cast<int32_t>(next);
      at = static_cast<uint32_t>(first_[byte]);
    } else {
      at = edges_.try_emplace(uint64_t{at} << 8 | byte, next).first->second;
    }
    if (at == next) nodes_.emplace_back();
  }
  int32_t& slot = control ? nodes_[at].control_id : nodes_[at].user_id;
  if (slot < 0) slot = id;
  nodes_[at].flags |= flags;
}

SpecialTokens::Hit SpecialTokens::longest(std::string_view text, size_t own) const {
  Hit hit;
  int32_t at = first_[static_cast<uint8_t>(text[0])];
  for (size_t length = 1; at >= 0; ++length) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    int32_t id = node.user_id;
    if (length <= own && node.control_id >= 0) id = node.control_id;
    if (id >= 0) hit = {length, id, node.flags};
    if (length == text.size()) break;
    const auto edge =
        edges_.find(static_cast<uint64_t>(at) << 8 | static_cast<uint8_t>(text[length]));
    at = edge == edges_.end() ? -1 : static_cast<int32_t>(edge->second);
  }
  return hit;
}

std::vector<SpecialTokens::Fragment> SpecialTokens::partition(
    std::string_view text, bool parse_special, std::span<const TextSpan> outside) const {
  std::vector<Fragment> fragments;
  if (empty()) {
    if (!text.empty()) fragments.push_back({text, -1});
    return fragments;
  }
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    if (first_[static_cast<uint8_t>(text[at])] < 0) {
      ++at;
      continue;
    }
    while (!outside.empty() && outside.front().end <= at) outside = outside.subspan(1);
    const size_t own = outside.empty() ? text.size() : std::max(outside.front().begin, at);
    const Hit hit = longest(text.substr(at), parse_special ? own - at : 0);
    if (hit.id < 0) {
      ++at;
      continue;
    }
    const size_t match_end = at + hit.length;
    if ((hit.flags & kSingleWord) != 0 &&
        !is_single_word(text.substr(0, at), text.substr(match_end))) {
      at = match_end;
      continue;
    }
    size_t end = at;
    while ((hit.flags & kLeftStrip) != 0 && end > begin) {
      const Utf8Char last = last_character(text.substr(begin, end - begin));
      if (!is_space(last.code)) break;
      end -= last.length;
    }
    if (end > begin) fragments.push_back({text.substr(begin, end - begin), -1});
    fragments.push_back({{}, hit.id});
    at = match_end;
    while ((hit.flags & kRightStrip) != 0 && at < text.size()) {
      const Utf8Char next = decode_utf8(text.substr(at));
      if (!is_space(next.code)) break;
      at += next.length;
    }
    begin = at;
  }
  if (begin < text.size()) fragments.push_back({text.substr(begin), -1});
  return fragments;
}

}  // namespace ktx::text
