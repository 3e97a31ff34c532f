#include "lib/text/tokenizer/special_tokens.h"

#include <algorithm>

namespace ktx::text {
namespace {

constexpr uint8_t kLeftStrip = 1, kRightStrip = 2;

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialTokens::SpecialTokens(const TokenizerData& data) : nodes_(1) {
  std::fill(std::begin(first_), std::end(first_), -1);
  std::vector<uint8_t> flags(data.tokens.size(), 0);
  for (const uint32_t id : data.lstrip) flags[id] |= kLeftStrip;
  for (const uint32_t id : data.rstrip) flags[id] |= kRightStrip;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    const bool control = type == TokenType::Control || type == TokenType::Unknown;
    if (control || type == TokenType::UserDefined) {
      add(data.tokens[id], static_cast<int32_t>(id), control, flags[id]);
    }
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

SpecialTokens::Hit SpecialTokens::longest(std::string_view text, bool parse_special) const {
  Hit hit;
  int32_t at = first_[static_cast<uint8_t>(text[0])];
  for (size_t length = 1; at >= 0; ++length) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    int32_t id = node.user_id;
    if (parse_special && node.control_id >= 0) id = node.control_id;
    if (id >= 0) hit = {length, id, node.flags};
    if (length == text.size()) break;
    const auto edge =
        edges_.find(static_cast<uint64_t>(at) << 8 | static_cast<uint8_t>(text[length]));
    at = edge == edges_.end() ? -1 : static_cast<int32_t>(edge->second);
  }
  return hit;
}

std::vector<SpecialTokens::Fragment> SpecialTokens::partition(std::string_view text,
                                                              bool parse_special) const {
  std::vector<Fragment> fragments;
  if (nodes_.size() <= 1) {
    if (!text.empty()) fragments.push_back({text, -1});
    return fragments;
  }
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    if (first_[static_cast<uint8_t>(text[at])] < 0) {
      ++at;
      continue;
    }
    const Hit hit = longest(text.substr(at), parse_special);
    if (hit.id < 0) {
      ++at;
      continue;
    }
    size_t end = at;
    if ((hit.flags & kLeftStrip) != 0) {
      while (end > begin && is_space(text[end - 1])) --end;
    }
    if (end > begin) fragments.push_back({text.substr(begin, end - begin), -1});
    fragments.push_back({{}, hit.id});
    at += hit.length;
    if ((hit.flags & kRightStrip) != 0) {
      while (at < text.size() && is_space(text[at])) ++at;
    }
    begin = at;
  }
  if (begin < text.size()) fragments.push_back({text.substr(begin), -1});
  return fragments;
}

}  // namespace ktx::text
