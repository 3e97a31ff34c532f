// Tokens whose bytes all belong to one set, so that a mask need not follow them one by one:
//
//   word ::= [a-zA-Z]{1,12}    behind three letters: all tokens of up to nine letters, which
//                              are known for the set [a-zA-Z]; only what has other bytes,
//                              too, is followed
//
// The tokens of a set are found once per vocabulary and serve all grammars. A third of 150,000
// tokens are words of such letters. (Plain characters of JSON strings: plain_room.h.)
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lib/text/grammar/grammar_automaton.h"
#include "lib/text/grammar/token_trie.h"

namespace ktx::text::grammar {

struct ByteRuns {
  // upto[n]: the tokens that are runs of at most n bytes, as bits. The last one has them all,
  // but for those of more than kLongestRun bytes, which are none.
  std::vector<std::vector<uint32_t>> upto;
  // By node of the trie: all texts of its subtree are runs.
  std::vector<bool> inside;
  // By node: of the texts below, how many more bytes they have at most where all of these
  // are of the set, else kNotPlain. A run may begin in the middle of a token: " word".
  std::vector<uint8_t> height;
};

inline constexpr size_t kLongestRun = 32;

// `texts`: how many the vocabulary has.
ByteRuns find_byte_runs(const TokenTrie& trie, size_t texts, const ByteSet& set);

// The latest sets of a vocabulary. May be used by many threads at once.
class ByteRunsCache {
 public:
  std::shared_ptr<const ByteRuns> get(const TokenTrie& trie, size_t texts, const ByteSet& set);

 private:
  std::mutex mutex_;
  std::vector<std::pair<ByteSet, std::shared_ptr<const ByteRuns>>> kept_;  // the latest first
};

// Fills Automaton::runs and run_sets; needs what may follow a rule (follow_bytes.h).
void measure_runs(Automaton& automaton);

}  // namespace ktx::text::grammar
