// Token masks: which tokens may follow a state of an automaton, whatever its stack.
//
// A token is followed from the state with an unknown stack. If its bytes stay within the rule,
// it is allowed or forbidden on every stack. If the rule ends in the middle of it, the
// remaining bytes depend on the stack: these rests, with their tokens, are stored as a tree and
// tried on the actual stack, all at once:
//
//   inside a string of a list:   abc        allowed
//                                a"b        not allowed: nothing follows that b can be
//                                a", x", "  allowed if what follows the string may
//                                           begin with `,`  ` x`… : rests {",", ", "}
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lib/text/grammar/byte_runs.h"
#include "lib/text/grammar/grammar_matcher.h"
#include "lib/text/grammar/token_trie.h"

namespace ktx::text::grammar {

struct TokenMask {
  // One of the two: few tokens as a list, many as bits.
  std::vector<int32_t> list;
  std::vector<uint32_t> bits;
  TokenTrie rests;
  bool exhausted = false;  // the work was not enough (grammar_matcher.h): not complete

  size_t bytes() const {
    return sizeof(*this) + list.size() * 4 + bits.size() * 4 +
           rests.nodes.size() * sizeof(TokenTrie::Node) + rests.tokens.size() * 4;
  }
};

// The tokens as masks are found for them; made once for a vocabulary.
struct TokenTexts {
  std::span<const std::string> texts;
  TokenTrie trie;
  // The tokens of plain characters, as bits: upto[n] those with at most n. The last one
  // has them all. In a string, with or without a limit, they need not be followed.
  std::vector<std::vector<uint32_t>> upto;
  std::unique_ptr<ByteRunsCache> runs;

  size_t longest = 0;  // bytes

  const std::vector<uint32_t>& plain(size_t characters) const {
    return upto[std::min(characters, upto.size() - 1)];
  }
};
// `without` are left out, and what could be read as a terminal (token_terminals.h). `texts` must
// outlive the result.
TokenTexts make_token_texts(std::span<const std::string> texts,
                            const std::function<bool(int32_t)>& without);

// The tokens that may follow a state of `automaton`; `terminals` are their other readings
// (token_terminals.h), null where the grammar has none.
TokenMask find_token_mask(const Automaton& automaton, uint32_t state, const TokenTexts& tokens,
                          const TokenTrie* terminals);

// Sets the bits of all tokens that may follow a configuration in an item of a loop that has few
// items left (fewer than tokens.longest: find_token_mask knows no number).
void mark_counted_tokens(const Automaton& automaton, Matcher& matcher, Config config,
                         const TokenTexts& tokens, const TokenTrie* terminals,
                         std::span<uint32_t> mask);

// Sets the bits of the tokens of `rests` that may follow `start` on the stacks of
// `matcher`, which is left as it was but for its work.
void mark_tokens(const Automaton& automaton, Matcher& matcher, std::span<const Config> start,
                 const TokenTrie& rests, std::span<uint32_t> mask);

// Masks by state, computed at the first use and kept up to a limit of memory. May be
// used by many threads at once.
class TokenMaskCache {
 public:
  explicit TokenMaskCache(size_t states) : masks_(states) {}

  std::shared_ptr<const TokenMask> get(const Automaton& automaton, uint32_t state,
                                       const TokenTexts& tokens, const TokenTrie* terminals);
  size_t memory_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const TokenMask>> masks_;
  size_t bytes_ = 0;
};

}  // namespace ktx::text::grammar
