#include "lib/text/grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <string>

namespace ktx::text::grammar {
namespace {

constexpr size_t kMaxCacheBytes = size_t{128} << 20;

// Follows all texts of a trie at once, from some configurations on. `on_node(node,
// bottom)` hears of each node whose text can be followed (bottom: the bottom of the
// stack was reached with it), `on_subtree` of a node with which all below it can be:
// texts of plain characters where there is room for them.
template <class OnNode, class OnSubtree>
void walk(const Automaton& automaton, Matcher& matcher, std::vector<Config>& configs,
          const TokenTrie& trie, const OnNode& on_node, const OnSubtree& on_subtree) {
  struct Level {
    size_t begin, end;  // in configs: what is live behind this many bytes
    size_t frames;
  };
  std::vector<Level> levels = {{0, configs.size(), matcher.frame_count()}};
  const auto nodes = static_cast<uint32_t>(trie.size());
  for (uint32_t n = 0; n < nodes;) {
    const TokenTrie::Node& node = trie.nodes[n];
    levels.resize(node.depth);
    const Level from = levels.back();
    configs.resize(from.end);
    matcher.drop_frames(from.frames);
    const bool bottom = matcher.step(configs, from.begin, from.end, node.byte);
    const bool alive = configs.size() > from.end;
    bool all = false;
    for (size_t c = from.end; c < configs.size() && node.plain_height != kNotPlain; ++c) {
      all |= automaton.room[configs[c].state] >= node.plain_height;
    }
    if (all) {
      on_subtree(n);
      n = node.end;
      continue;
    }
    if (alive || bottom) on_node(n, bottom);
    if (alive) {
      levels.push_back({from.end, configs.size(), matcher.frame_count()});
      ++n;
    } else {
      n = node.end;
    }
  }
  configs.resize(levels.front().end);
  matcher.drop_frames(levels.front().frames);
}

// The tokens of some nodes, first to last, each at most once.
std::span<const int32_t> tokens_of(const TokenTrie& trie, uint32_t first_node, uint32_t end_node) {
  const uint32_t first = trie.nodes[first_node].first_token;
  return std::span(trie.tokens).subspan(first, trie.nodes[end_node].first_token - first);
}

void mark(std::span<uint32_t> mask, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) mask[token / 32] |= 1u << (token % 32);
}

}  // namespace

TokenMask find_token_mask(const Automaton& automaton, uint32_t state, const TokenTrie& trie,
                          std::span<const std::string> texts) {
  Matcher matcher(automaton);
  std::vector<Config> configs = {{state, 0}};
  TokenMask mask;
  mask.bits.assign((texts.size() + 31) / 32, 0);
  std::vector<uint32_t> open;  // nodes where the rule ended, and texts go on
  walk(
      automaton, matcher, configs, trie,
      [&](uint32_t node, bool bottom) {
        mark(mask.bits, tokens_of(trie, node, node + 1));
        if (bottom && trie.nodes[node].end > node + 1) open.push_back(node);
      },
      [&](uint32_t node) { mark(mask.bits, tokens_of(trie, node, trie.nodes[node].end)); });
  std::vector<std::pair<std::string_view, int32_t>> rests;
  for (const uint32_t node : open) {
    for (const int32_t token : tokens_of(trie, node + 1, trie.nodes[node].end)) {
      if (mask.bits[token / 32] >> (token % 32) & 1) continue;
      rests.push_back({std::string_view(texts[token]).substr(trie.nodes[node].depth), token});
    }
  }
  if (!rests.empty()) mask.rests = build_token_trie(std::move(rests));
  size_t count = 0;
  for (const uint32_t word : mask.bits) count += static_cast<size_t>(std::popcount(word));
  if (count * 32 < texts.size()) {
    for (size_t w = 0; w < mask.bits.size(); ++w) {
      for (uint32_t word = mask.bits[w]; word != 0; word &= word - 1) {
        mask.list.push_back(static_cast<int32_t>(w * 32) + std::countr_zero(word));
      }
    }
    mask.bits = {};
  }
  return mask;
}

void mark_tokens(const Automaton& automaton, Matcher& matcher, std::span<const Config> start,
                 const TokenTrie& rests, std::span<uint32_t> mask) {
  std::vector<Config> configs(start.begin(), start.end());
  walk(
      automaton, matcher, configs, rests,
      [&](uint32_t node, bool) { mark(mask, tokens_of(rests, node, node + 1)); },
      [&](uint32_t node) { mark(mask, tokens_of(rests, node, rests.nodes[node].end)); });
}

std::shared_ptr<const TokenMask> TokenMaskCache::get(const Automaton& automaton, uint32_t state,
                                                     const TokenTrie& trie,
                                                     std::span<const std::string> texts) {
  {
    const std::lock_guard lock(mutex_);
    if (masks_[state]) return masks_[state];
  }
  auto mask = std::make_shared<const TokenMask>(find_token_mask(automaton, state, trie, texts));
  const std::lock_guard lock(mutex_);
  if (masks_[state]) return masks_[state];
  bytes_ += mask->bytes();
  if (bytes_ > kMaxCacheBytes) {
    std::fill(masks_.begin(), masks_.end(), nullptr);
    bytes_ = mask->bytes();
  }
  masks_[state] = mask;
  return mask;
}

}  // namespace ktx::text::grammar
