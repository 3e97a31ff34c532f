// Prefix cache: a radix tree over KV cache blocks, keyed by token ids. Requests with the same
// beginning share its blocks.
//
//   root - [system prompt, 64 tokens] - [64] - [question A, 64] - [20]
//                                            \ [question B, 31]
//
// A node is one block. A full block (64 tokens) may have children; a shorter one is the end of
// a text. reuse() puts the full blocks of a matching path into a sequence's table (shared,
// counted by KvCache) and copies the matching part of the next block (copy on write: another
// sequence may continue to write behind it). keep() adds a sequence's blocks, and gives the
// sequence the tree's block where both have the same tokens, so that equal blocks are stored
// once.
//
// Nodes used only by the tree are idle: reclaim() frees them, the least recently used leaf
// first. (A sequence that uses a block also uses those before it, so the descendants of an idle
// node are idle and can be freed first.) Keys and values depend on the tokens before them alone
// (the numerics contract), so reuse changes no bit of an answer on the CPU.
//
// Kinds whose blocks go back (windows): a node may have lost its block of such a pool (kv_pools.h).
// A text can then go on only where the blocks are there that its next token reads. Those at
// checkpoints (the end of a text, where texts part, where a hit was) stay longest; of the others
// the oldest is dropped first.
//
// States of a fixed size: a text can go on only from a place that has a snapshot of them
// (state_pool.h), which may be within a block. keep() takes over the marks that a sequence made for
// it, reuse() goes back to the last one. Where slots run out the snapshot goes that saves least:
// the tokens to the snapshot before it, more where no other follows, and less the longer it was not
// used (reclaim_state). Blocks that no snapshot follows are of no use, and go first.
//
// Each owner of texts has its own tree. A hit, and the time that it saves, reveals what was
// computed before, and must not reveal another owner's texts.
//
// Not thread-safe: belongs to the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "lib/runtime/cache/kv_pools.h"

namespace ktx::runtime {

// How much of a text was found, and why not more.
struct PrefixHit {
  enum class Miss {
    None,     // all of it was there (but for the last token, which is always computed)
    New,      // nothing that goes on from here was ever kept
    Differs,  // what was kept goes on with another token
    Evicted,  // it was there, but its memory was needed
    NoState,  // it is there, but no states from which it could go on later
  };
  int64_t tokens = 0;      // found, counted from the beginning
  int64_t same = 0;        // of the text that is there; more than `tokens` where states are missing
  Miss miss = Miss::None;  // at token number `tokens`
  int32_t cached_id = -1;  // Differs: the token that was kept there
};
// Whole blocks of a text that are kept, and those of them without users now.
struct PrefixBlocks {
  int64_t found = 0;
  int64_t idle = 0;
};
// "differs at token 130 (kept 17, asked 99)".
std::string describe(const PrefixHit& hit, std::span<const int32_t> asked);

class PrefixCache {
 public:
  explicit PrefixCache(KvPools& kv);
  ~PrefixCache();

  // Extends `tables`, which hold `length` tokens of `tokens`, by what the tree has of
  // the rest, up to the last token but one. Does nothing when `length` is no multiple
  // of a block. With states: replaces them by what the tree has of a longer beginning; where
  // there is no room for it, they are empty and the hit has 0 tokens.
  PrefixHit reuse(KvTables& tables, int64_t length, std::span<const int32_t> tokens,
                  const std::string& owner = {});

  // What reuse() would share, without doing it.
  PrefixBlocks find(std::span<const int32_t> tokens, const std::string& owner = {}) const;

  // Adds the full blocks of tables that hold `tokens`; `with_tail` also the last,
  // partly filled one, to which the sequence must not write any more.
  void keep(KvTables& tables, std::span<const int32_t> tokens, bool with_tail,
            const std::string& owner = {});

  // Forgets the text's blocks that nothing else uses or continues.
  void forget(std::span<const int32_t> tokens, const std::string& owner = {});

  // Gives one idle block back to its pool, or the slot of the snapshot that saves least; false when
  // none is idle.
  bool reclaim(SequenceKind kind = SequenceKind::Whole);
  int64_t nodes() const { return nodes_; }
  int64_t snapshots() const;

 private:
  struct Node;
  struct Snapshot;
  struct Place;
  struct Older {
    bool operator()(const Node* a, const Node* b) const;
  };
  struct PassingOlder {
    SequenceKind kind = SequenceKind::Whole;
    bool operator()(const Node* a, const Node* b) const;
  };
  struct Numbered {
    bool operator()(const Node* a, const Node* b) const;
  };
  Node* child(const Node& node, std::span<const int32_t> tokens) const;
  // The whole blocks of a text that the tree has, its last token left out.
  std::vector<Node*> find_path(const Node& root, std::span<const int32_t> tokens) const;
  bool blocks_reach(std::span<Node* const> path, const KvTables& tables, int64_t blocks,
                    int64_t end) const;
  int64_t usable(std::span<Node* const> path, const KvTables& tables) const;
  void share(std::span<Node* const> path, KvTables& tables);
  bool copy_block(const Node& node, KvTables& tables);
  void touch(Node& node);
  KvBlock blocks_at(const KvTables& tables, size_t block) const;
  bool has_all(const Node& node) const;
  Node& add(Node& parent, const KvBlock& blocks, std::span<const int32_t> tokens);
  Node& keep_tail(Node& parent, const KvBlock& blocks, std::span<const int32_t> tail);
  void share_block(Node& node, SequenceKind kind, std::byte*& own);
  void set_block(Node& node, SequenceKind kind, std::byte* block);
  void drop_block(Node& node, SequenceKind kind);
  void make_checkpoint(Node& last, int64_t end);
  void remove(Node& leaf);
  bool reclaim_leaf();
  bool reclaim_state();

  Place find_place(std::span<Node* const> path, const Node& last,
                   std::span<const int32_t> rest) const;
  void go_on_from(const Place& place, std::span<Node* const> path, KvTables& tables,
                  PrefixHit& hit);
  void keep_snapshots(std::span<Node* const> path, KvTables& tables, bool with_end);
  void add_snapshot(Node& node, const StateMark& mark);
  void move_snapshots(Node& from, Node& to);
  void absorb_shorter(Node& parent, Node& longer);
  void drop_snapshots(Node& node);

  KvPools* kv_;
  KvCache& whole_;
  Node& root(const std::string& owner);
  std::map<std::string, std::unique_ptr<Node>> roots_;  // by owner
  std::set<Node*, Older> leaves_;                       // the longest unused first
  // Nodes with a block of each kind that may go, the first to go first.
  ByBlockKind<std::set<Node*, PassingOlder>> passing_;
  std::set<Node*, Numbered> with_snapshots_;
  int64_t snapshot_uses_ = 0;  // how many times one was made or used
  int64_t nodes_ = 0;
  uint64_t clock_ = 0;
  uint64_t last_number_ = 0;
  // Paths of blocks that were given back, the latest few thousand.
  std::unordered_set<uint64_t> evicted_;
  std::deque<uint64_t> evicted_order_;
};

}  // namespace ktx::runtime
