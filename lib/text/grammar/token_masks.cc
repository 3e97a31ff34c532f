#include "lib/text/grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <string>

#include "lib/text/grammar/token_terminals.h"

namespace ktx::text::grammar {
namespace {

constexpr size_t kMaxCacheBytes = size_t{128} << 20;

using ByteRunsPtr = std::shared_ptr<const ByteRuns>;

// All texts below a node go on with bytes of the set, and there is room for them.
bool has_room(const ByteRuns& runs, uint32_t node, const Run& run) {
  return runs.height[node] != kNotPlain && run.room >= runs.height[node];
}

// Automaton::room, which has no number of the items that a loop has left.
int room_of(const Automaton& automaton, const Matcher& matcher, const Config& config) {
  const int room = automaton.room[config.state];
  if (config.frame == 0 || automaton.again[config.state] != config.state) return room;
  return std::min<int64_t>(room, int64_t{matcher.items_left(config.frame)} + 1);
}

// Follows all texts of a trie at once, from some configurations on. `on_node(node,
// bottom)` hears of each node whose text can be followed (bottom: the bottom of the
// stack was reached with it), `on_subtree` of a node with which all below it can be:
// texts of plain characters or of a run (`runs`, by set, of this trie) where there is room
// for them. What is below nodes that are `known` is left out.
template <class Known, class OnNode, class OnSubtree>
void walk(const Automaton& automaton, Matcher& matcher, std::vector<Config>& configs,
          const TokenTrie& trie, std::span<const ByteRunsPtr> runs, const Known& known,
          const OnNode& on_node, const OnSubtree& on_subtree) {
  // What is live behind so many bytes: most often one plain state, which needs no list.
  struct Level {
    size_t begin, end;  // in configs
    size_t frames;
    bool single;
    Config one;
  };
  const auto level = [&](size_t begin) {
    const bool single =
        configs.size() == begin + 1 && automaton.states[configs[begin].state].plain();
    return Level{begin, configs.size(), matcher.frame_count(), single,
                 single ? configs[begin] : Config{}};
  };
  std::vector<Level> levels = {level(0)};
  const auto nodes = static_cast<uint32_t>(trie.size());
  for (uint32_t n = 0; n < nodes;) {
    const TokenTrie::Node& node = trie.nodes[n];
    if (known(n)) {
      n = node.end;
      continue;
    }
    levels.resize(node.depth);
    const Level& from = levels.back();
    if (from.single) {
      const uint32_t next = automaton.next(from.one.state, node.byte);
      if (next == kDead) {
        n = node.end;
        continue;
      }
      if (automaton.states[next].plain()) {
        const Run& run = automaton.runs[next];
        if ((node.plain_height != kNotPlain && automaton.room[next] >= node.plain_height) ||
            (run.set > 0 && run.set <= runs.size() && has_room(*runs[run.set - 1], n, run))) {
          on_subtree(n);
          n = node.end;
          continue;
        }
        on_node(n, false);
        Level behind = from;
        behind.one.state = next;
        levels.push_back(behind);
        ++n;
        continue;
      }
    }
    configs.resize(from.end);
    matcher.drop_frames(from.frames);
    size_t begin = from.begin;
    if (from.single) {
      begin = configs.size();
      configs.push_back(from.one);
    }
    const size_t end = configs.size();
    const bool bottom = matcher.step(configs, begin, end, node.byte);
    const bool alive = configs.size() > end;
    bool all = false;
    for (size_t c = end; c < configs.size() && node.plain_height != kNotPlain; ++c) {
      all |= room_of(automaton, matcher, configs[c]) >= node.plain_height;
    }
    if (all) {
      on_subtree(n);
      n = node.end;
      continue;
    }
    if (alive || bottom) on_node(n, bottom);
    if (alive) {
      levels.push_back(level(end));
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

TokenTexts make_token_texts(std::span<const std::string> texts,
                            const std::function<bool(int32_t)>& without) {
  TokenTexts made;
  made.texts = texts;
  std::vector<std::pair<std::string_view, int32_t>> all;
  std::vector<std::vector<int32_t>> by_length;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (texts[i].empty() || texts[i].size() > kMaxTokenBytes || without(token)) continue;
    if (has_token_mark(texts[i])) continue;
    all.push_back({texts[i], token});
    made.longest = std::max(made.longest, texts[i].size());
    const std::optional<size_t> length = plain_characters(texts[i]);
    if (!length) continue;
    by_length.resize(std::max(by_length.size(), *length + 1));
    by_length[*length].push_back(token);
  }
  made.trie = build_token_trie(std::move(all));
  made.runs = std::make_unique<ByteRunsCache>();
  std::vector<uint32_t> bits((texts.size() + 31) / 32, 0);
  for (const auto& tokens : by_length) {
    mark(bits, tokens);
    made.upto.push_back(bits);
  }
  if (made.upto.empty()) made.upto.push_back(bits);
  return made;
}

TokenMask find_token_mask(const Automaton& automaton, uint32_t state, const TokenTexts& tokens,
                          const TokenTrie* terminals) {
  const TokenTrie& trie = tokens.trie;
  const std::span<const std::string> texts = tokens.texts;
  Matcher matcher(automaton);
  std::vector<Config> configs = {{state, 0}};
  TokenMask mask;
  mask.bits.assign((texts.size() + 31) / 32, 0);
  // In a string: as many plain characters as there is room for, and what is not plain.
  const uint8_t room = automaton.room[state];
  const bool in_string = room > 0 && automaton.states[state].call_count == 0 &&
                         (automaton.closed[state] || room >= tokens.upto.size() - 1);
  // In a run: as many of its bytes, and what has others.
  const Run& run = automaton.runs[state];
  std::vector<ByteRunsPtr> of_sets;
  for (const ByteSet& set : automaton.run_sets) {
    of_sets.push_back(tokens.runs->get(trie, texts.size(), set));
  }
  const ByteRuns* runs = !in_string && run.set > 0 ? of_sets[run.set - 1].get() : nullptr;
  if (runs && !run.closed && run.room + size_t{1} < runs->upto.size()) runs = nullptr;
  if (in_string) mask.bits = tokens.plain(room);
  if (runs) mask.bits = runs->upto[std::min<size_t>(run.room, runs->upto.size() - 1)];
  std::vector<uint32_t> open;  // nodes where the rule ended, and texts go on
  const auto on_node = [&](uint32_t node, bool bottom) {
    mark(mask.bits, tokens_of(trie, node, node + 1));
    if (bottom && trie.nodes[node].end > node + 1) open.push_back(node);
  };
  const auto on_subtree = [&](uint32_t node) {
    mark(mask.bits, tokens_of(trie, node, trie.nodes[node].end));
  };
  const auto follow_all_but = [&](const auto& known) {
    walk(automaton, matcher, configs, trie, of_sets, known, on_node, on_subtree);
  };
  if (in_string) {
    follow_all_but([&](uint32_t node) { return trie.nodes[node].all_plain != 0; });
  } else if (runs) {
    follow_all_but([&](uint32_t node) { return runs->inside[node]; });
  } else {
    follow_all_but([](uint32_t) { return false; });
  }
  if (terminals != nullptr && automaton.next(state, kTokenMark) != kDead) {
    walk(
        automaton, matcher, configs, *terminals, {}, [](uint32_t) { return false; },
        [&](uint32_t node, bool) { mark(mask.bits, tokens_of(*terminals, node, node + 1)); },
        [&](uint32_t node) {
          mark(mask.bits, tokens_of(*terminals, node, terminals->nodes[node].end));
        });
  }
  if (matcher.exhausted()) {
    TokenMask none;
    none.exhausted = true;
    return none;
  }
  std::vector<std::pair<std::string_view, int32_t>> rests;
  const ByteSet& follow = automaton.follow(state);
  for (const uint32_t node : open) {
    const TokenTrie::Node& ended = trie.nodes[node];
    for (uint32_t child = node + 1; child < ended.end; child = trie.nodes[child].end) {
      if (!follow[trie.nodes[child].byte]) continue;
      for (const int32_t token : tokens_of(trie, child, trie.nodes[child].end)) {
        if (mask.bits[token / 32] >> (token % 32) & 1) continue;
        rests.push_back({std::string_view(texts[token]).substr(ended.depth), token});
      }
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

void mark_counted_tokens(const Automaton& automaton, Matcher& matcher, Config config,
                         const TokenTexts& tokens, const TokenTrie* terminals,
                         std::span<uint32_t> mask) {
  const auto follow_all_but = [&](const TokenTrie& trie, const auto& known) {
    std::vector<Config> configs = {config};
    walk(
        automaton, matcher, configs, trie, {}, known,
        [&](uint32_t node, bool) { mark(mask, tokens_of(trie, node, node + 1)); },
        [&](uint32_t node) { mark(mask, tokens_of(trie, node, trie.nodes[node].end)); });
  };
  const bool in_string =
      automaton.again[config.state] == config.state && automaton.room[config.state] == kNoEnd;
  if (in_string) {
    const auto room = static_cast<size_t>(room_of(automaton, matcher, config));
    const std::vector<uint32_t>& plain = tokens.plain(room);
    for (size_t w = 0; w < plain.size(); ++w) mask[w] |= plain[w];
  }
  follow_all_but(tokens.trie, [&](uint32_t node) {
    return in_string && tokens.trie.nodes[node].all_plain != 0;
  });
  if (terminals != nullptr && automaton.next(config.state, kTokenMark) != kDead) {
    follow_all_but(*terminals, [](uint32_t) { return false; });
  }
}

void mark_tokens(const Automaton& automaton, Matcher& matcher, std::span<const Config> start,
                 const TokenTrie& rests, std::span<uint32_t> mask) {
  std::vector<Config> configs(start.begin(), start.end());
  walk(
      automaton, matcher, configs, rests, {}, [](uint32_t) { return false; },
      [&](uint32_t node, bool) { mark(mask, tokens_of(rests, node, node + 1)); },
      [&](uint32_t node) { mark(mask, tokens_of(rests, node, rests.nodes[node].end)); });
}

std::shared_ptr<const TokenMask> TokenMaskCache::get(const Automaton& automaton, uint32_t state,
                                                     const TokenTexts& tokens,
                                                     const TokenTrie* terminals) {
  {
    const std::lock_guard lock(mutex_);
    if (masks_[state]) return masks_[state];
  }
  auto mask =
      std::make_shared<const TokenMask>(find_token_mask(automaton, state, tokens, terminals));
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

size_t TokenMaskCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return masks_.size() * sizeof(masks_[0]) + bytes_;
}

}  // namespace ktx::text::grammar
