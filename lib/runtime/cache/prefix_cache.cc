#include "lib/runtime/cache/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lib/support/hash.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kBlock = KvCache::kBlockTokens;
constexpr size_t kEvictedNoted = 8192;

// Names a path: the path up to the parent, and the node's tokens.
uint64_t path_hash(uint64_t parent, std::span<const int32_t> tokens) {
  return hash_after(parent, std::as_bytes(tokens));
}

size_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
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
  }
  return "";
}

struct PrefixCache::Node {
  std::vector<int32_t> tokens;  // 64, or fewer at the end of a text
  std::byte* block = nullptr;   // the tree is one of its users
  Node* parent = nullptr;
  uint64_t path = 0;
  uint64_t used = 0;  // clock
  // By the hash of the tokens; equal hashes are distinguished by the tokens.
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;
};

bool PrefixCache::Older::operator()(const Node* a, const Node* b) const {
  return a->used != b->used ? a->used < b->used : a < b;
}

PrefixCache::PrefixCache(KvCache& kv) : kv_(&kv) {}

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
  node.used = ++clock_;
  if (leaf) leaves_.insert(&node);
}

PrefixHit PrefixCache::reuse(std::vector<std::byte*>& table, int64_t length,
                             std::span<const int32_t> tokens, const std::string& owner) {
  PrefixHit hit;
  hit.tokens = length;
  if (length % kBlock != 0 || tokens.empty()) return hit;
  const auto limit = static_cast<int64_t>(tokens.size()) - 1;
  Node* node = &root(owner);
  int64_t at = 0;
  while (at + kBlock <= limit) {
    Node* next = child(*node, tokens.subspan(at, kBlock));
    if (next == nullptr) break;
    if (at >= length) {
      kv_->share(next->block);
      table.push_back(next->block);
      hit.tokens = at + kBlock;
    }
    touch(*next);
    node = next;
    at += kBlock;
  }
  // The sequence computed more than the tree knows.
  if (at < length || hit.tokens >= limit) return hit;

  // The child that goes on like the text for longest.
  const auto rest = tokens.subspan(at, std::min(kBlock, limit - at));
  Node* best = nullptr;
  size_t same = 0;
  for (const auto& [hash, next] : node->children) {
    const size_t common = common_length(next->tokens, rest);
    if (best == nullptr || common > same) {
      best = next.get();
      same = common;
    }
  }
  if (best == nullptr) {
    const bool whole = static_cast<int64_t>(tokens.size()) - at >= kBlock;
    hit.miss = whole && evicted_.count(path_hash(node->path, tokens.subspan(at, kBlock)))
                   ? PrefixHit::Miss::Evicted
                   : PrefixHit::Miss::New;
    return hit;
  }
  if (same > 0) {
    // Held while a block is found for the copy: that may evict.
    kv_->share(best->block);
    touch(*best);
    std::byte* const block = kv_->take();
    if (block != nullptr) {
      kv_->copy(block, best->block);
      table.push_back(block);
      hit.tokens = at + static_cast<int64_t>(same);
    } else {
      hit.miss = PrefixHit::Miss::Evicted;
    }
    kv_->release(best->block);
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
  const Node* node = own->second.get();
  const auto limit = static_cast<int64_t>(tokens.size()) - 1;
  for (int64_t at = 0; at + kBlock <= limit; at += kBlock) {
    node = child(*node, tokens.subspan(at, kBlock));
    if (node == nullptr) break;
    ++blocks.found;
    if (kv_->users(node->block) == 1) ++blocks.idle;
  }
  return blocks;
}

void PrefixCache::keep(std::vector<std::byte*>& table, std::span<const int32_t> tokens,
                       bool with_tail, const std::string& owner) {
  Node* node = &root(owner);
  size_t block = 0;
  for (; (block + 1) * kBlock <= tokens.size(); ++block) {
    const auto part = tokens.subspan(block * kBlock, kBlock);
    Node* next = child(*node, part);
    if (next == nullptr) {
      add(*node, table[block], part);
      next = child(*node, part);
    } else if (next->block != table[block]) {
      kv_->share(next->block);
      kv_->release(table[block]);
      table[block] = next->block;
    }
    touch(*next);
    node = next;
  }
  const auto tail = tokens.subspan(block * kBlock);
  if (!with_tail || tail.empty()) return;
  std::vector<Node*> shorter;
  for (const auto& [hash, next] : node->children) {
    const size_t common = common_length(next->tokens, tail);
    if (common == tail.size()) return touch(*next);
    if (common == next->tokens.size()) shorter.push_back(next.get());
  }
  for (Node* old : shorter) remove(*old);
  add(*node, table[block], tail);
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
  while (node->parent != nullptr && node->children.empty() && kv_->users(node->block) == 1) {
    Node* parent = node->parent;
    remove(*node);
    node = parent;
  }
}

void PrefixCache::add(Node& parent, std::byte* block, std::span<const int32_t> tokens) {
  auto node = std::make_unique<Node>();
  node->tokens.assign(tokens.begin(), tokens.end());
  node->block = block;
  node->parent = &parent;
  node->path = path_hash(parent.path, tokens);
  node->used = ++clock_;
  kv_->keep(block);
  leaves_.erase(&parent);
  leaves_.insert(node.get());
  evicted_.erase(node->path);
  parent.children.emplace(node->path, std::move(node));
  ++nodes_;
}

void PrefixCache::remove(Node& leaf) {
  KTX_ASSERT(leaf.children.empty());
  kv_->drop(leaf.block);
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

bool PrefixCache::reclaim() {
  for (Node* leaf : leaves_) {
    if (kv_->users(leaf->block) > 1) continue;
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
