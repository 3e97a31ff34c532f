// A block of the prefix cache's tree, and the snapshots of states in it. Private to prefix_cache.cc
// and prefix_snapshots.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "lib/runtime/cache/prefix_cache.h"

namespace ktx::runtime {

inline constexpr int64_t kBlock = KvCache::kBlockTokens;

inline size_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// The states of a text at a place in a node's block, or at its end.
struct PrefixCache::Snapshot {
  StateMark mark;
  int64_t used = 0;  // PrefixCache::snapshot_uses_ at its last use

  // What each is worth to a cache; the end of a text that is to go first, null where none is idle.
  struct Worth;
  static std::vector<Worth> find_worths(const PrefixCache& cache);
  static Node* find_idle_leaf(PrefixCache& cache);
};

struct PrefixCache::Node {
  std::vector<int32_t> tokens;  // 64, or fewer at the end of a text
  KvBlock blocks;               // the tree is one of their users; null where one went
  Node* parent = nullptr;
  int64_t index = -1;  // of the block in its text; -1: a root
  uint64_t path = 0;
  ByBlockKind<uint64_t> used;    // clock
  ByBlockKind<bool> checkpoint;  // of those that may go: it is at a place from where texts go on
  uint64_t number = 0;
  std::vector<Snapshot> snapshots;  // by position
  // By the hash of the tokens; equal hashes are distinguished by the tokens.
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;
};

// Where a text can go on, if a snapshot is there; the node is on the text's path, or behind it.
struct PrefixCache::Place {
  Node* node = nullptr;
  Snapshot* snapshot = nullptr;
  int64_t position() const { return snapshot != nullptr ? snapshot->mark.position : 0; }
};

}  // namespace ktx::runtime
