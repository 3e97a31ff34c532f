#include "lib/text/tokenizer/token_map.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace ktx::text {
namespace {

// Longer tokens are compared as a whole alone; a vocabulary may be hostile.
constexpr size_t kMostPiece = 64, kMostText = 256;

// Ids by their bytes, control tokens apart from text. Among equals the first non-byte token wins.
class Pieces {
 public:
  explicit Pieces(const Tokenizer& tokenizer) {
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      const std::string_view piece = tokenizer.piece(id);
      if (piece.empty()) continue;
      if (tokenizer.is_control(id)) {
        controls_.emplace(piece, id);
        continue;
      }
      longest_ = std::min(kMostPiece, std::max(longest_, piece.size()));
      const auto [at, is_new] = texts_.emplace(piece, id);
      const bool byte = tokenizer.type(at->second) == TokenType::Byte;
      if (!is_new && byte && tokenizer.type(id) != TokenType::Byte) at->second = id;
    }
  }

  int32_t text(std::string_view piece) const { return find(texts_, piece); }
  int32_t control(std::string_view piece) const { return find(controls_, piece); }

  // The longest pieces from the beginning on; empty where a byte has none.
  std::vector<int32_t> cut(std::string_view text) const {
    std::vector<int32_t> ids;
    if (text.size() > kMostText) return ids;
    while (!text.empty()) {
      size_t size = std::min(longest_, text.size());
      while (size > 0 && texts_.count(text.substr(0, size)) == 0) --size;
      if (size == 0) return {};
      ids.push_back(texts_.at(text.substr(0, size)));
      text.remove_prefix(size);
    }
    return ids;
  }

 private:
  using Ids = std::unordered_map<std::string_view, int32_t>;
  static int32_t find(const Ids& ids, std::string_view piece) {
    const auto found = ids.find(piece);
    return found == ids.end() ? -1 : found->second;
  }
  Ids texts_, controls_;
  size_t longest_ = 0;
};

}  // namespace

bool same_tokens(const Tokenizer& a, const Tokenizer& b) {
  for (int32_t id = 0; id < std::min(a.size(), b.size()); ++id) {
    if (a.piece(id) != b.piece(id) || a.is_control(id) != b.is_control(id)) return false;
  }
  return true;
}

TokenMap map_tokens(const Tokenizer& first, const Tokenizer& second) {
  const Pieces ours(first), theirs(second);
  TokenMap map;
  map.forth.resize(static_cast<size_t>(first.size()));
  map.back.assign(static_cast<size_t>(second.size()), -1);
  for (int32_t id = 0; id < first.size(); ++id) {
    const std::string_view piece = first.piece(id);
    std::vector<int32_t>& forth = map.forth[static_cast<size_t>(id)];
    const int32_t same = first.is_control(id) ? theirs.control(piece) : theirs.text(piece);
    if (same >= 0) {
      forth = {same};
    } else {
      forth = theirs.cut(piece);
    }
  }
  for (int32_t id = 0; id < second.size(); ++id) {
    const std::string_view piece = second.piece(id);
    map.back[static_cast<size_t>(id)] =
        second.is_control(id) ? ours.control(piece) : ours.text(piece);
  }
  const auto pair = [&](int32_t here, int32_t there) {
    if (!first.contains(here) || !second.contains(there)) return;
    map.forth[static_cast<size_t>(here)] = {there};
    map.back[static_cast<size_t>(there)] = here;
  };
  pair(first.bos(), second.bos());
  pair(first.eos(), second.eos());
  return map;
}

}  // namespace ktx::text
