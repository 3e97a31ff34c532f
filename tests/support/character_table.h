// SentencePiece's table of characters (lib/text/tokenizer/character_map.h) of a few entries.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ktx::testing {

namespace character_table_detail {

struct Node {
  std::map<uint8_t, Node> children;
  int64_t value = -1;  // of the text that ends here; -1: none does
};

// A double array: the child of a node at `base` by a byte is at base ^ byte, its leaf at base.
class DoubleArray {
 public:
  explicit DoubleArray(const Node& root) : units_(1 << 14) {
    used_.insert(0);
    place(root, 0, 0);
  }
  std::string bytes() const {
    std::string out(units_.size() * sizeof(uint32_t), '\0');
    std::memcpy(out.data(), units_.data(), out.size());
    return out;
  }

 private:
  void place(const Node& node, uint32_t at, uint32_t label) {
    const uint32_t base = free_base(node);
    bases_.insert(base);  // of this node alone: labels show which children are its own
    units_[at] = (at ^ base) << 10 | (node.value >= 0 ? 1u << 8 : 0) | label;
    if (node.value >= 0) units_[take(base)] = 0x80000000u | static_cast<uint32_t>(node.value);
    for (const auto& [byte, child] : node.children) take(base ^ byte);
    for (const auto& [byte, child] : node.children) place(child, base ^ byte, byte);
  }
  uint32_t take(uint32_t at) {
    used_.insert(at);
    return at;
  }
  uint32_t free_base(const Node& node) const {
    for (uint32_t base = 1;; ++base) {
      bool free = !used_.contains(base) && !bases_.contains(base);
      for (const auto& [byte, child] : node.children) free &= !used_.contains(base ^ byte);
      if (free) return base;
    }
  }

  std::vector<uint32_t> units_;
  std::set<uint32_t> used_, bases_;
};

}  // namespace character_table_detail

// What becomes what; the first of a pair is not empty.
inline std::string character_table(
    const std::vector<std::pair<std::string_view, std::string_view>>& entries) {
  character_table_detail::Node root;
  std::string texts;
  for (const auto& [from, to] : entries) {
    character_table_detail::Node* node = &root;
    for (const char c : from) node = &node->children[static_cast<uint8_t>(c)];
    node->value = static_cast<int64_t>(texts.size());
    texts.append(to).push_back('\0');
  }
  const std::string units = character_table_detail::DoubleArray(root).bytes();
  const auto size = static_cast<uint32_t>(units.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + units + texts;
}

}  // namespace ktx::testing
