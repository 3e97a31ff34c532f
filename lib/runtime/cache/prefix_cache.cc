#include "lib/runtime/cache/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lib/runtime/cache/prefix_node.h"
#include "lib/support/hash.h"

namespace ktx::runtime {
namespace {

constexpr size_t kEvictedNoted = 8192;

// Names a path: the path up to the parent, and the node's tokens.
uint64_t path_hash(uint64_t parent, std::span<const int32_t> tokens) {
  return hash_after(parent, std::as_bytes(tokens));
}

}  // namespace

std::string describe(const PrefixHit& hit, std::span<const int32_t> asked) {
  switch (hit.miss) {
    case PrefixHit::Miss::None:
      return "all tokens but the last were cached";
    case PrefixHit::Miss::New:
      return fmt::format("nothing was cached from token {} on", hit.tokens);
    case PrefixHit::Miss::Differs:
      return fmt::format("differs at token {} (cached {}, asked {})", hit.tokens, hit.cached_id,
                         hit.tokens < static_cast<int64_t>(asked.size()) ? asked[hit.tokens] : -1);
    case PrefixHit::Miss::Evicted:
      return fmt::format("evicted from token {} on: the cache was full", hit.tokens);
    case PrefixHit::Miss::NoState:
      return fmt::format("no states behind token {}, though {} tokens are cached", hit.tokens,
                         hit.same);
  }
  return "";
}

bool PrefixCache::Older::operator()(const Node* a, const Node* b) const {
  return std::tuple(!a->snapshots.empty(), a->used.whole, a) <
         std::tuple(!b->snapshots.empty(), b->used.whole, b);
}

bool PrefixCache::Numbered::operator()(const Node* a, const Node* b) const {
  return a->number < b->number;
}

bool PrefixCache::PassingOlder::operator()(const Node* a, const Node* b) const {
  return std::tuple(a->checkpoint[kind], a->used[kind], a) <
         std::tuple(b->checkpoint[kind], b->used[kind], b);
}

PrefixCache::PrefixCache(KvPools& kv) : kv_(&kv), whole_(kv.of(SequenceKind::Whole)) {
  for (const SequenceKind kind : kPassingKinds) {
    passing_[kind] = std::set<Node*, PassingOlder>(PassingOlder{kind});
  }
}

PrefixCache::~PrefixCache() {
  // From the leaves up: a long text is a deep path, too deep for the destructors' recursion.
  while (!leaves_.empty()) remove(**leaves_.begin());
}

PrefixCache::Node& PrefixCache::root(const std::string& owner) {
  std::unique_ptr<Node>& node = roots_[owner];
  if (!node) {
    node = std::make_unique<Node>();
    if (!owner.empty()) node->path = hash_text(owner);
  }
  return *node;
}

PrefixCache::Node* PrefixCache::child(const Node& node, std::span<const int32_t> tokens) const {
  const auto [begin, end] = node.children.equal_range(path_hash(node.path, tokens));
  for (auto it = begin; it != end; ++it) {
    if (std::ranges::equal(it->second->tokens, tokens)) return it->second.get();
  }
  return nullptr;
}

void PrefixCache::touch(Node& node) {
  const bool leaf = leaves_.erase(&node) > 0;
  node.used.whole = ++clock_;
  if (leaf) leaves_.insert(&node);
}

std::vector<PrefixCache::Node*> PrefixCache::find_path(const Node& root,
                                                       std::span<const int32_t> tokens) const {
  std::vector<Node*> path;
  const Node* node = &root;
  const auto limit = static_cast<int64_t>(tokens.size()) - 1;
  for (int64_t at = 0; at + kBlock <= limit; at += kBlock) {
    Node* const next = child(*node, tokens.subspan(at, kBlock));
    if (next == nullptr) break;
    path.push_back(next);
    node = next;
  }
  return path;
}

// Whether a text may go on at token `end`: what it reads is there up to block `blocks`.
bool PrefixCache::blocks_reach(std::span<Node* const> path, const KvTables& tables, int64_t blocks,
                               int64_t end) const {
  for (const SequenceKind kind : kv_->passing()) {
    const auto own = static_cast<int64_t>(tables[kind].size());
    for (int64_t b = blocks - 1; b >= kv_->first_read_block(kind, end); --b) {
      if ((b < own ? tables[kind][b] : path[b]->blocks[kind]) == nullptr) return false;
    }
  }
  return true;
}

bool PrefixCache::has_all(const Node& node) const {
  return std::ranges::all_of(kv_->kinds(),
                             [&](SequenceKind kind) { return node.blocks[kind] != nullptr; });
}

// How many blocks of a path a sequence can take over.
int64_t PrefixCache::usable(std::span<Node* const> path, const KvTables& tables) const {
  auto blocks = static_cast<int64_t>(path.size());
  const auto own = static_cast<int64_t>(tables.whole.size());
  while (blocks > own && !blocks_reach(path, tables, blocks, blocks * kBlock)) --blocks;
  return blocks;
}

// Shares the blocks of a path that the token behind it reads.
void PrefixCache::share(std::span<Node* const> path, KvTables& tables) {
  const int64_t end = static_cast<int64_t>(path.size()) * kBlock;
  for (const SequenceKind kind : kv_->kinds()) {
    const int64_t first = kv_->first_read_block(kind, end);
    kv_->release_before(tables, kind, first);
    for (size_t b = tables[kind].size(); b < path.size(); ++b) {
      std::byte* const block = static_cast<int64_t>(b) >= first ? path[b]->blocks[kind] : nullptr;
      if (block != nullptr) kv_->of(kind).share(block);
      tables[kind].push_back(block);
    }
  }
  make_checkpoint(*path.back(), end);
}

// Copies the beginning of a node's block behind the tables' last one. False: there is no room.
bool PrefixCache::copy_block(const Node& node, KvTables& tables) {
  // Held while blocks are found for the copies: that may evict.
  for (const SequenceKind kind : kv_->kinds()) kv_->of(kind).share(node.blocks[kind]);
  KvBlock copies;
  bool room = true;
  for (const SequenceKind kind : kv_->kinds()) {
    room = room && (copies[kind] = kv_->of(kind).take()) != nullptr;
  }
  for (const SequenceKind kind : kv_->kinds()) {
    KvCache& pool = kv_->of(kind);
    if (room) {
      pool.copy(copies[kind], node.blocks[kind]);
      tables[kind].push_back(copies[kind]);
    } else if (copies[kind] != nullptr) {
      pool.release(copies[kind]);
    }
    pool.release(node.blocks[kind]);
  }
  return room;
}

PrefixHit PrefixCache::reuse(KvTables& tables, int64_t length, std::span<const int32_t> tokens,
                             const std::string& owner) {
  PrefixHit hit;
  hit.tokens = hit.same = length;
  if (tokens.empty() || (length % kBlock != 0 && !kv_->has_states())) return hit;
  const auto limit = static_cast<int64_t>(tokens.size()) - 1;
  Node& first = root(owner);
  const std::vector<Node*> path = find_path(first, tokens);
  for (Node* node : path) touch(*node);
  const auto at = static_cast<int64_t>(path.size()) * kBlock;
  // The sequence computed more than the tree knows.
  if (at < length) return hit;

  // The child that goes on like the text for longest.
  Node& last = path.empty() ? first : *path.back();
  const auto rest = tokens.subspan(at, std::min(kBlock, limit - at));
  Node* best = nullptr;
  size_t same = 0;
  for (const auto& [hash, next] : last.children) {
    const size_t common = common_length(next->tokens, rest);
    if (best == nullptr || common > same) {
      best = next.get();
      same = common;
    }
  }
  hit.same = at + static_cast<int64_t>(same);
  if (kv_->has_states()) {
    const Place place = find_place(path, last, rest);
    if (place.position() > length) go_on_from(place, path, tables, hit);
  }
  const bool with_best = !kv_->has_states() && same > 0 && has_all(*best) &&
                         blocks_reach(path, tables, at / kBlock, at);
  const int64_t blocks = kv_->has_states() ? 0 : with_best ? at / kBlock : usable(path, tables);
  if (blocks * kBlock > length) {
    hit.tokens = blocks * kBlock;
    share(std::span(path).first(static_cast<size_t>(blocks)), tables);
  }
  if (hit.tokens >= limit || hit.miss != PrefixHit::Miss::None) return hit;
  if (kv_->has_states() && hit.tokens < hit.same) {
    hit.miss = PrefixHit::Miss::NoState;
    return hit;
  }
  if (hit.tokens < at || (same > 0 && !with_best && !kv_->has_states())) {
    hit.miss = PrefixHit::Miss::Evicted;
    return hit;
  }
  if (best == nullptr) {
    const bool whole = static_cast<int64_t>(tokens.size()) - at >= kBlock;
    hit.miss = whole && evicted_.count(path_hash(last.path, tokens.subspan(at, kBlock)))
                   ? PrefixHit::Miss::Evicted
                   : PrefixHit::Miss::New;
    return hit;
  }
  if (with_best) {
    touch(*best);
    if (copy_block(*best, tables)) {
      hit.tokens = at + static_cast<int64_t>(same);
      make_checkpoint(*best, hit.tokens);
    } else {
      hit.miss = PrefixHit::Miss::Evicted;
    }
  }
  if (hit.tokens >= limit || hit.miss != PrefixHit::Miss::None) return hit;
  if (same < best->tokens.size()) {
    hit.miss = PrefixHit::Miss::Differs;
    hit.cached_id = best->tokens[same];
  } else {
    hit.miss = PrefixHit::Miss::New;
  }
  return hit;
}

PrefixBlocks PrefixCache::find(std::span<const int32_t> tokens, const std::string& owner) const {
  PrefixBlocks blocks;
  const auto own = roots_.find(owner);
  if (own == roots_.end()) return blocks;
  const std::vector<Node*> path = find_path(*own->second, tokens);
  if (kv_->has_states()) {
    const auto limit = static_cast<int64_t>(tokens.size()) - 1;
    const auto at = static_cast<int64_t>(path.size()) * kBlock;
    const Node& last = path.empty() ? *own->second : *path.back();
    const auto rest = tokens.subspan(at, std::min(kBlock, limit - at));
    blocks.found = find_place(path, last, rest).position() / kBlock;
  } else {
    blocks.found = usable(path, {});
  }
  for (int64_t b = 0; b < blocks.found; ++b)
    blocks.idle += whole_.users(path[b]->blocks.whole) == 1;
  return blocks;
}

// The tree's block instead of an equal one of the table; where the tree has none, the table's.
void PrefixCache::share_block(Node& node, SequenceKind kind, std::byte*& own) {
  std::byte* const block = node.blocks[kind];
  if (own == nullptr || own == block) return;
  if (block == nullptr) {
    set_block(node, kind, own);
  } else {
    kv_->of(kind).share(block);
    kv_->of(kind).release(own);
    own = block;
  }
}

KvBlock PrefixCache::blocks_at(const KvTables& tables, size_t block) const {
  KvBlock blocks;
  for (const SequenceKind kind : kv_->kinds()) blocks[kind] = tables[kind][block];
  return blocks;
}

void PrefixCache::keep(KvTables& tables, std::span<const int32_t> tokens, bool with_tail,
                       const std::string& owner) {
  Node* node = &root(owner);
  std::vector<Node*> path;
  size_t block = 0;
  for (; (block + 1) * kBlock <= tokens.size(); ++block) {
    const auto part = tokens.subspan(block * kBlock, kBlock);
    Node* next = child(*node, part);
    if (next == nullptr) {
      next = &add(*node, blocks_at(tables, block), part);
      if (kv_->has_states()) absorb_shorter(*node, *next);
    } else {
      for (const SequenceKind kind : kv_->kinds()) share_block(*next, kind, tables[kind][block]);
    }
    touch(*next);
    path.push_back(next);
    node = next;
  }
  if (with_tail) {
    const auto tail = tokens.subspan(block * kBlock);
    if (!tail.empty()) {
      node = &keep_tail(*node, blocks_at(tables, block), tail);
      path.push_back(node);
    }
    make_checkpoint(*node, static_cast<int64_t>(tokens.size()));
  }
  if (kv_->has_states()) keep_snapshots(path, tables, with_tail);
}

PrefixCache::Node& PrefixCache::keep_tail(Node& parent, const KvBlock& blocks,
                                          std::span<const int32_t> tail) {
  std::vector<Node*> shorter;
  for (const auto& [hash, next] : parent.children) {
    const size_t common = common_length(next->tokens, tail);
    if (common == tail.size()) {
      for (const SequenceKind kind : kv_->passing()) {
        const bool missing = next->blocks[kind] == nullptr && blocks[kind] != nullptr;
        if (missing && next->tokens.size() == tail.size()) set_block(*next, kind, blocks[kind]);
      }
      touch(*next);
      return *next;
    }
    if (common == next->tokens.size()) shorter.push_back(next.get());
  }
  Node& added = add(parent, blocks, tail);
  for (Node* old : shorter) {
    move_snapshots(*old, added);
    remove(*old);
  }
  return added;
}

// The tree as one more user of a block that may go.
void PrefixCache::set_block(Node& node, SequenceKind kind, std::byte* block) {
  kv_->of(kind).keep(block);
  node.blocks[kind] = block;
  node.used[kind] = ++clock_;
  node.checkpoint[kind] = false;
  passing_[kind].insert(&node);
}

// Texts end at token `end`, or go on from there: what it reads stays for longest.
void PrefixCache::make_checkpoint(Node& last, int64_t end) {
  for (const SequenceKind kind : kv_->passing()) {
    const int64_t first = kv_->first_read_block(kind, end);
    for (Node* node = &last; node->parent != nullptr && node->index >= first; node = node->parent) {
      if (node->blocks[kind] == nullptr) continue;
      passing_[kind].erase(node);
      node->checkpoint[kind] = true;
      node->used[kind] = ++clock_;
      passing_[kind].insert(node);
    }
  }
}

void PrefixCache::forget(std::span<const int32_t> tokens, const std::string& owner) {
  Node* node = &root(owner);
  size_t at = 0;
  for (; at + kBlock <= tokens.size(); at += kBlock) {
    Node* next = child(*node, tokens.subspan(at, kBlock));
    if (next == nullptr) break;
    node = next;
  }
  // The last token of an answer was never computed: the end in the tree may be shorter.
  const auto rest = tokens.subspan(at);
  for (const auto& [hash, next] : node->children) {
    if (common_length(next->tokens, rest) != next->tokens.size()) continue;
    node = next.get();
    break;
  }
  while (node->parent != nullptr && node->children.empty() &&
         whole_.users(node->blocks.whole) == 1) {
    Node* parent = node->parent;
    remove(*node);
    node = parent;
  }
}

PrefixCache::Node& PrefixCache::add(Node& parent, const KvBlock& blocks,
                                    std::span<const int32_t> tokens) {
  // Another text went on from here: more may.
  if (!parent.children.empty()) make_checkpoint(parent, (parent.index + 1) * kBlock);
  auto node = std::make_unique<Node>();
  Node& added = *node;
  added.tokens.assign(tokens.begin(), tokens.end());
  added.blocks.whole = blocks.whole;
  added.parent = &parent;
  added.index = parent.index + 1;
  added.path = path_hash(parent.path, tokens);
  added.used.whole = ++clock_;
  added.number = ++last_number_;
  whole_.keep(blocks.whole);
  for (const SequenceKind kind : kv_->passing()) {
    if (blocks[kind] != nullptr) set_block(added, kind, blocks[kind]);
  }
  leaves_.erase(&parent);
  leaves_.insert(&added);
  evicted_.erase(added.path);
  parent.children.emplace(added.path, std::move(node));
  ++nodes_;
  return added;
}

void PrefixCache::remove(Node& leaf) {
  KTX_ASSERT(leaf.children.empty());
  whole_.drop(leaf.blocks.whole);
  for (const SequenceKind kind : kv_->passing()) drop_block(leaf, kind);
  drop_snapshots(leaf);
  leaves_.erase(&leaf);
  --nodes_;
  Node& parent = *leaf.parent;
  const auto [begin, end] = parent.children.equal_range(leaf.path);
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() != &leaf) continue;
    parent.children.erase(it);
    break;
  }
  if (parent.parent != nullptr && parent.children.empty()) leaves_.insert(&parent);
}

void PrefixCache::drop_block(Node& node, SequenceKind kind) {
  if (node.blocks[kind] == nullptr) return;
  passing_[kind].erase(&node);
  kv_->of(kind).drop(node.blocks[kind]);
  node.blocks[kind] = nullptr;
}

bool PrefixCache::reclaim(SequenceKind kind) {
  if (kind == SequenceKind::Whole) return reclaim_leaf();
  if (kind == SequenceKind::State) return reclaim_state();
  for (Node* node : passing_[kind]) {
    if (kv_->of(kind).users(node->blocks[kind]) > 1) continue;
    drop_block(*node, kind);
    return true;
  }
  return false;
}

bool PrefixCache::reclaim_leaf() {
  if (Node* const leaf = Snapshot::find_idle_leaf(*this)) {
    if (evicted_.insert(leaf->path).second) evicted_order_.push_back(leaf->path);
    if (evicted_order_.size() > kEvictedNoted) {
      evicted_.erase(evicted_order_.front());
      evicted_order_.pop_front();
    }
    remove(*leaf);
    return true;
  }
  return false;
}

}  // namespace ktx::runtime
