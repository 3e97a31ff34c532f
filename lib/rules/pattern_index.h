// Finds, in one walk over a path, which of many patterns can match it at all.
//
// Each pattern is indexed by one of its sets of required literals (pattern_literals.h): the set
// that is rarest in the paths at hand. For
//
//   ^model\.layers\.\d+\.mlp\.experts\.17\.up_proj$
//
// it is ".mlp.experts.17.up_proj", not "model.layers.". All literals are in one Aho-Corasick
// automaton, so a path costs its length plus its candidates.
//
//   PatternIndex index(patterns);
//   for (path : paths) index.count(path);
//   index.choose([](uint32_t pattern) { return false; });
//   index.candidates(path);   // ascending numbers; others do not match
//
// Patterns without literals, or with literals that occur everywhere, are in `always()` instead.
// For paths with non-ASCII characters every pattern is a candidate.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/rules/pattern_literals.h"

namespace ktx::rules {

class PatternIndex {
 public:
  // An empty pattern takes part as one that says nothing.
  explicit PatternIndex(std::span<const std::string_view> patterns);

  void count(std::string_view path);
  // Patterns of which `everywhere` says true are in always() in any case.
  void choose(const std::function<bool(uint32_t)>& everywhere);

  // Valid until the next call. Nothing: the path cannot be looked up, any may match.
  std::optional<std::span<const uint32_t>> candidates(std::string_view path);
  const std::vector<uint32_t>& always() const { return always_; }

 private:
  struct Node {
    uint32_t fail = 0;
    uint32_t next_end = 0;  // the nearest suffix that ends a literal, 0: none
    int32_t literal = -1;   // the one that ends here
  };
  struct Set {
    std::vector<uint32_t> literals;
  };
  struct Literal {
    uint32_t seen_in = 0;           // number of the last path that has it
    uint64_t paths = 0;             // how many have it
    std::vector<uint32_t> hanging;  // patterns
  };

  bool add(const LiteralSet& strings, Set& set);
  uint32_t child(uint32_t node, uint8_t letter) const { return moves_[node * letters_ + letter]; }
  void link();
  template <class Visit>
  bool each_literal(std::string_view path, const Visit& visit);

  uint8_t letter_of_[256] = {};  // 0: in no literal
  size_t letters_ = 1;
  std::vector<uint32_t> moves_;  // [node][letter]
  std::vector<Node> nodes_;
  std::vector<Literal> literals_;
  std::vector<std::vector<Set>> sets_;  // by pattern
  std::vector<uint32_t> always_;
  std::vector<uint32_t> found_;
  uint64_t counted_ = 0;
  uint32_t path_number_ = 0;
};

}  // namespace ktx::rules
