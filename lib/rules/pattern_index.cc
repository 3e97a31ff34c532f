#include "lib/rules/pattern_index.h"

#include <algorithm>

namespace ktx::rules {
namespace {

// A node takes 4 bytes for each letter that literals have, some 40: 32 MiB at most.
constexpr size_t kMaxMoves = 8u << 20;
// A pattern whose literals are in more than a fourth of all paths is tried everywhere.
constexpr uint64_t kCommon = 4;

}  // namespace

PatternIndex::PatternIndex(std::span<const std::string_view> patterns) : sets_(patterns.size()) {
  std::vector<std::vector<LiteralSet>> wanted;
  for (std::string_view pattern : patterns) wanted.push_back(required_literals(pattern));
  for (const auto& sets : wanted) {
    for (const LiteralSet& set : sets) {
      for (const std::string& literal : set) {
        for (const char c : literal) {
          uint8_t& letter = letter_of_[static_cast<uint8_t>(c)];
          if (letter == 0) letter = static_cast<uint8_t>(letters_++);
        }
      }
    }
  }
  nodes_.emplace_back();
  moves_.resize(letters_);
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const LiteralSet& strings : wanted[i]) {
      Set set;
      if (add(strings, set)) sets_[i].push_back(std::move(set));
    }
  }
  link();
}

bool PatternIndex::add(const LiteralSet& strings, Set& set) {
  for (const std::string& literal : strings) {
    uint32_t node = 0;
    for (const char c : literal) {
      const uint8_t letter = letter_of_[static_cast<uint8_t>(c)];
      uint32_t next = child(node, letter);
      if (next == 0) {
        if (moves_.size() + letters_ > kMaxMoves) return false;
        next = static_cast<uint32_t>(nodes_.size());
        moves_[node * letters_ + letter] = next;
        nodes_.emplace_back();
        moves_.resize(moves_.size() + letters_);
      }
      node = next;
    }
    int32_t& number = nodes_[node].literal;
    if (number < 0) {
      number = static_cast<int32_t>(literals_.size());
      literals_.emplace_back();
    }
    set.literals.push_back(static_cast<uint32_t>(number));
  }
  return true;
}

// Breadth first: where to go on when a path leaves a literal.
void PatternIndex::link() {
  std::vector<uint32_t> queue;
  for (size_t letter = 1; letter < letters_; ++letter) {
    if (moves_[letter] != 0) queue.push_back(moves_[letter]);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t node = queue[i];
    const uint32_t fail = nodes_[node].fail;
    nodes_[node].next_end = nodes_[fail].literal >= 0 ? fail : nodes_[fail].next_end;
    for (size_t letter = 1; letter < letters_; ++letter) {
      uint32_t& next = moves_[node * letters_ + letter];
      const uint32_t elsewhere = moves_[fail * letters_ + letter];
      if (next == 0) {
        next = elsewhere;
      } else {
        nodes_[next].fail = elsewhere;
        queue.push_back(next);
      }
    }
  }
}

// Each literal of the path once. False: the path is not ASCII.
template <class Visit>
bool PatternIndex::each_literal(std::string_view path, const Visit& visit) {
  ++path_number_;
  uint32_t node = 0;
  for (const char c : path) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
    const uint8_t letter = letter_of_[static_cast<uint8_t>(c)];
    node = letter == 0 ? 0 : child(node, letter);
    for (uint32_t end = nodes_[node].literal >= 0 ? node : nodes_[node].next_end; end != 0;
         end = nodes_[end].next_end) {
      Literal& literal = literals_[static_cast<size_t>(nodes_[end].literal)];
      if (literal.seen_in == path_number_) continue;
      literal.seen_in = path_number_;
      visit(literal);
    }
  }
  return true;
}

void PatternIndex::count(std::string_view path) {
  ++counted_;
  (void)each_literal(path, [](Literal& literal) { ++literal.paths; });
}

void PatternIndex::choose(const std::function<bool(uint32_t)>& everywhere) {
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (everywhere(static_cast<uint32_t>(i))) sets_[i].clear();
    const Set* best = nullptr;
    uint64_t fewest = counted_ / kCommon + 1;
    for (const Set& set : sets_[i]) {
      uint64_t paths = 0;
      for (const uint32_t literal : set.literals) paths += literals_[literal].paths;
      if (paths >= fewest) continue;
      fewest = paths;
      best = &set;
    }
    if (!best) {
      always_.push_back(static_cast<uint32_t>(i));
      continue;
    }
    for (const uint32_t literal : best->literals) {
      literals_[literal].hanging.push_back(static_cast<uint32_t>(i));
    }
  }
  sets_.clear();
}

std::optional<std::span<const uint32_t>> PatternIndex::candidates(std::string_view path) {
  found_.clear();
  const bool ascii = each_literal(path, [this](const Literal& literal) {
    found_.insert(found_.end(), literal.hanging.begin(), literal.hanging.end());
  });
  if (!ascii) return std::nullopt;
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  return std::span<const uint32_t>(found_);
}

}  // namespace ktx::rules
