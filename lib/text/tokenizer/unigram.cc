#include "lib/text/tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr size_t kLongestToken = 256;    // bytes; longer ones do not come from text
constexpr float kUnknownPenalty = 10.0;  // below the worst token, as in SentencePiece

// The best way to the end of a character.
struct Way {
  float score = -std::numeric_limits<float>::infinity();
  uint32_t begin = 0;  // of its last token
  int32_t id = -1;     // of that; -1: unknown
};

}  // namespace

Unigram::Unigram(const TokenizerData& data)
    : data_(data), tokens_(data.tokens.size()), prefixes_(data.tokens.bytes().size()) {
  float worst = 0;
  for (uint32_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    if (type == TokenType::Normal) worst = std::min(worst, data.scores[id]);
    const bool text = type == TokenType::Normal || type == TokenType::UserDefined;
    const size_t size = data.tokens[id].size();
    if (!text || size == 0 || size > kLongestToken) continue;
    tokens_.add(data.tokens, id);
    prefixes_.add(data.tokens[id]);
    longest_ = std::max(longest_, size);
  }
  unknown_ = worst - kUnknownPenalty;
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::vector<uint32_t> starts;  // of the characters, and the end
  for (size_t at = 0; at < text.size();) {
    starts.push_back(static_cast<uint32_t>(at));
    const Utf8Char next = decode_utf8(text.substr(at));
    at += next.valid ? next.length : 1;
  }
  const size_t count = starts.size();
  starts.push_back(static_cast<uint32_t>(text.size()));
  std::vector<Way> ways(count + 1);
  ways[0].score = 0;
  for (size_t begin = 0; begin < count; ++begin) {
    const float before = ways[begin].score;
    const auto offer = [&](size_t end, float score, int32_t id) {
      if (before + score <= ways[end].score) return;
      ways[end] = {before + score, static_cast<uint32_t>(begin), id};
    };
    bool has_character = false;
    const size_t reach = prefixes_.reach(text.substr(starts[begin]), longest_);
    for (size_t end = begin + 1; end <= count && starts[end] - starts[begin] <= reach; ++end) {
      const auto id =
          tokens_.find(data_.tokens, text.substr(starts[begin], starts[end] - starts[begin]));
      if (!id) continue;
      has_character |= end == begin + 1;
      // What users defined is never cut.
      const bool fixed = data_.types[*id] == TokenType::UserDefined;
      offer(end, fixed ? 0 : data_.scores[*id], static_cast<int32_t>(*id));
    }
    if (!has_character) offer(begin + 1, unknown_, -1);
  }
  std::vector<int32_t> reversed;
  for (size_t end = count; end > 0; end = ways[end].begin) {
    const int32_t id = ways[end].id >= 0 ? ways[end].id : data_.ids.unk;
    const bool again =
        ways[end].id < 0 && end < count && !reversed.empty() && reversed.back() == data_.ids.unk;
    if (id >= 0 && !again) reversed.push_back(id);
  }
  ids.insert(ids.end(), reversed.rbegin(), reversed.rend());
}

}  // namespace ktx::text
