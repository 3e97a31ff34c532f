// The part of the prefix cache that is about states of a fixed size: where texts can go on, and
// which snapshots go first.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "lib/runtime/cache/prefix_cache.h"
#include "lib/runtime/cache/prefix_node.h"

namespace ktx::runtime {

namespace {

// How many tokens of their texts two blocks have in common that follow the same one.
int64_t shared_end(const auto& a, const auto& b) {
  return a.index * kBlock + static_cast<int64_t>(common_length(a.tokens, b.tokens));
}

}  // namespace

// The last snapshot on a text's path, or in a block behind `last` that begins as its rest does.
PrefixCache::Place PrefixCache::find_place(std::span<Node* const> path, const Node& last,
                                           std::span<const int32_t> rest) const {
  Place place;
  const auto look = [&](Node& node, int64_t end) {
    for (Snapshot& snapshot : node.snapshots) {
      const int64_t position = snapshot.mark.position;
      if (position > end || position <= place.position() || !has_all(node)) continue;
      if (blocks_reach(path, {}, position / kBlock, position)) place = {&node, &snapshot};
    }
  };
  const auto at = static_cast<int64_t>(path.size()) * kBlock;
  for (const auto& [hash, next] : last.children) {
    look(*next, at + static_cast<int64_t>(common_length(next->tokens, rest)));
  }
  for (size_t i = path.size(); i > 0 && place.node == nullptr; --i) {
    // In its block, or in one that begins as it does.
    for (const auto& [hash, next] : path[i - 1]->parent->children) {
      look(*next, shared_end(*next, *path[i - 1]));
    }
  }
  return place;
}

// Gives the tables the blocks up to a place and its states, instead of what they have.
void PrefixCache::go_on_from(const Place& place, std::span<Node* const> path, KvTables& tables,
                             PrefixHit& hit) {
  const StateMark mark = place.snapshot->mark;
  place.snapshot->used = ++snapshot_uses_;
  StatePool& states = kv_->states();
  states.share(mark.slot);  // held while blocks are found: that may evict
  whole_.share(place.node->blocks.whole);
  kv_->shrink(tables, 0);
  hit.tokens = 0;
  const std::span before = path.first(static_cast<size_t>(mark.position / kBlock));
  if (!before.empty()) share(before, tables);
  const bool within = mark.position % kBlock != 0;
  if (within) touch(*place.node);
  if (!within || copy_block(*place.node, tables)) {
    hit.tokens = mark.position;
    tables.states.push_back({mark.position, mark.slot, false});
  } else {
    kv_->shrink(tables, 0);
    states.release(mark.slot);
    hit.miss = PrefixHit::Miss::Evicted;
  }
  whole_.release(place.node->blocks.whole);
}

// The marks of a sequence that are for the tree become the tree's, but for those in a block that is
// not there yet; `with_end`: the last one too.
void PrefixCache::keep_snapshots(std::span<Node* const> path, KvTables& tables, bool with_end) {
  StatePool& states = kv_->states();
  for (size_t m = 0; m < tables.states.size(); ++m) {
    StateMark& mark = tables.states[m];
    const bool last = m + 1 == tables.states.size();
    const auto block = static_cast<size_t>((mark.position - 1) / kBlock);
    if (!(mark.snapshot || (last && with_end)) || block >= path.size()) continue;
    add_snapshot(*path[block], mark);
    mark.snapshot = false;
    if (!last) states.release(std::exchange(mark.slot, kNoState));
  }
  std::erase_if(tables.states, [](const StateMark& mark) { return mark.slot == kNoState; });
}

void PrefixCache::add_snapshot(Node& node, const StateMark& mark) {
  for (const auto& [hash, next] : node.parent->children) {
    if (shared_end(*next, node) < mark.position) continue;
    for (Snapshot& there : next->snapshots) {
      if (there.mark.position != mark.position) continue;
      there.used = ++snapshot_uses_;
      return;
    }
  }
  const auto at = std::find_if(node.snapshots.begin(), node.snapshots.end(),
                               [&](const Snapshot& s) { return s.mark.position >= mark.position; });
  kv_->states().share(mark.slot);
  const bool leaf = leaves_.erase(&node) > 0;
  node.snapshots.insert(at, {{mark.position, mark.slot, true}, ++snapshot_uses_});
  if (leaf) leaves_.insert(&node);
  with_snapshots_.insert(&node);
}

// Those of a node that another one, of the same tokens and more, takes the place of.
void PrefixCache::move_snapshots(Node& from, Node& to) {
  for (const Snapshot& snapshot : from.snapshots) add_snapshot(to, snapshot.mark);
  drop_snapshots(from);
}

// The shorter ends of texts that a new whole block continues.
void PrefixCache::absorb_shorter(Node& parent, Node& longer) {
  std::vector<Node*> shorter;
  for (const auto& [hash, next] : parent.children) {
    const size_t size = next->tokens.size();
    if (size < longer.tokens.size() && common_length(next->tokens, longer.tokens) == size) {
      shorter.push_back(next.get());
    }
  }
  for (Node* old : shorter) {
    move_snapshots(*old, longer);
    remove(*old);
  }
}

void PrefixCache::drop_snapshots(Node& node) {
  if (node.snapshots.empty()) return;
  for (const Snapshot& snapshot : node.snapshots) kv_->states().release(snapshot.mark.slot);
  const bool leaf = leaves_.erase(&node) > 0;
  node.snapshots.clear();
  if (leaf) leaves_.insert(&node);
  with_snapshots_.erase(&node);
}

int64_t PrefixCache::snapshots() const {
  int64_t count = 0;
  for (const Node* node : with_snapshots_) count += static_cast<int64_t>(node->snapshots.size());
  return count;
}

// What a snapshot saves, halved with every so many others that were made since it was used last. So
// one that saves much outlasts many that save little, but not for ever.
struct PrefixCache::Snapshot::Worth {
  Node* node = nullptr;
  size_t index = 0;     // in the node's snapshots
  int64_t saved = 0;    // tokens to the snapshot before it
  bool is_last = true;  // no other one follows
  double value = 0;     // the logarithm

  void evaluate(double half_life) {
    constexpr int64_t kLastFactor = 4;  // texts go on from their ends
    const auto tokens = static_cast<double>(saved * (is_last ? kLastFactor : 1));
    value = std::log2(tokens) + static_cast<double>(node->snapshots[index].used) / half_life;
  }
};

std::vector<PrefixCache::Snapshot::Worth> PrefixCache::Snapshot::find_worths(
    const PrefixCache& cache) {
  std::vector<Worth> worths;
  std::unordered_map<const Node*, std::vector<size_t>> behind;  // those in blocks behind a node
  for (Node* node : cache.with_snapshots_) {
    for (size_t i = 0; i < node->snapshots.size(); ++i) {
      behind[node->parent].push_back(worths.size());
      worths.push_back({node, i, node->snapshots[i].mark.position});
    }
  }
  const auto position = [&](size_t w) {
    return worths[w].node->snapshots[worths[w].index].mark.position;
  };
  for (size_t w = 0; w < worths.size(); ++w) {
    // The last one before it, in its own block or one that begins alike; else further up.
    size_t before = w;
    for (const Node* node = worths[w].node; node->parent != nullptr && before == w;
         node = node->parent) {
      const auto there = behind.find(node->parent);
      if (there == behind.end()) continue;
      for (const size_t other : there->second) {
        const bool is_before = position(other) < position(w) &&
                               position(other) <= shared_end(*worths[other].node, *node);
        if (is_before && (before == w || position(other) > position(before))) before = other;
      }
    }
    if (before == w) continue;
    worths[w].saved -= position(before);
    worths[before].is_last = false;
  }
  constexpr double kSlotsHalfLife = 4;
  const auto slots = static_cast<double>(cache.kv_->states().slots());
  for (Worth& worth : worths) worth.evaluate(kSlotsHalfLife * slots);
  return worths;
}

bool PrefixCache::reclaim_state() {
  const auto worths = Snapshot::find_worths(*this);
  const Snapshot::Worth* least = nullptr;
  for (const Snapshot::Worth& worth : worths) {
    const StateSlot slot = worth.node->snapshots[worth.index].mark.slot;
    if (kv_->states().users(slot) > 1) continue;  // a sequence has it too
    if (least == nullptr || worth.value < least->value) least = &worth;
  }
  if (least == nullptr) return false;
  Node& node = *least->node;
  kv_->states().release(node.snapshots[least->index].mark.slot);
  const bool leaf = leaves_.erase(&node) > 0;
  node.snapshots.erase(node.snapshots.begin() + static_cast<ptrdiff_t>(least->index));
  if (leaf) leaves_.insert(&node);
  if (node.snapshots.empty()) with_snapshots_.erase(&node);
  return true;
}

// An idle end of a text: without snapshots the longest unused one, else the one of least worth, so
// that many texts lose a little rather than one of them all.
PrefixCache::Node* PrefixCache::Snapshot::find_idle_leaf(PrefixCache& cache) {
  const auto idle = [&](const Node* leaf) { return cache.whole_.users(leaf->blocks.whole) == 1; };
  const auto first = std::find_if(cache.leaves_.begin(), cache.leaves_.end(), idle);
  if (first == cache.leaves_.end()) return nullptr;
  if ((*first)->snapshots.empty()) return *first;
  const Worth* least = nullptr;
  const std::vector<Worth> worths = find_worths(cache);
  for (const Worth& worth : worths) {
    if (!worth.is_last || !worth.node->children.empty() || !idle(worth.node)) continue;
    if (least == nullptr || worth.value < least->value) least = &worth;
  }
  if (least == nullptr) return *first;
  return least->node;
}

}  // namespace ktx::runtime
