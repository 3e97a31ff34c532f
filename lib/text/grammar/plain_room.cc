#include "lib/text/grammar/plain_room.h"

#include <span>

#include "lib/text/grammar/token_trie.h"
#include "lib/text/grammar/utf8_ranges.h"

namespace ktx::text::grammar {
namespace {

// Where all bytes of these ranges lead, one after the other; kDead where they do not all
// lead to one place.
uint32_t common_next(const Automaton& a, uint32_t state, std::span<const ByteRange> ranges) {
  if (ranges.empty()) return state;
  uint32_t common = kDead;
  for (uint32_t byte = ranges[0].low; byte <= ranges[0].high; ++byte) {
    // Bytes of one class have the same next state.
    if (byte > ranges[0].low && a.byte_class[byte] == a.byte_class[byte - 1]) continue;
    const uint32_t next = a.next(state, static_cast<uint8_t>(byte));
    if (next == kDead) return kDead;
    const uint32_t behind = common_next(a, next, ranges.subspan(1));
    if (behind == kDead || (common != kDead && behind != common)) return kDead;
    common = behind;
  }
  return common;
}

// Where every plain character leads.
uint32_t plain_next(const Automaton& a, uint32_t state,
                    std::span<const ByteRangeSequence> sequences) {
  uint32_t common = kDead;
  for (const ByteRangeSequence& sequence : sequences) {
    const uint32_t next = common_next(
        a, state, std::span(sequence.bytes).first(static_cast<size_t>(sequence.length)));
    if (next == kDead || (common != kDead && next != common)) return kDead;
    common = next;
  }
  return common;
}

// May a plain character begin here?
bool takes_plain(const Automaton& a, uint32_t state) {
  for (uint32_t byte = 0x20; byte < 256; ++byte) {
    const bool begins = byte < 0x80 ? is_plain(byte) : byte >= 0xC2;
    if (begins && a.next(state, static_cast<uint8_t>(byte)) != kDead) return true;
  }
  return false;
}

}  // namespace

void measure_room(Automaton& a) {
  std::vector<ByteRangeSequence> sequences;
  for (const CodeRange& range : complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})) {
    append_utf8_ranges(range.first, range.last, sequences);
  }
  std::vector<uint32_t> next(a.states.size());
  for (uint32_t s = 0; s < a.states.size(); ++s) next[s] = plain_next(a, s, sequences);
  // Along the chains; one that bites its tail has no end.
  enum : uint8_t { kUnknown, kOnPath, kKnown };
  std::vector<uint8_t> status(a.states.size(), kUnknown);
  a.room.assign(a.states.size(), 0);
  a.closed.assign(a.states.size(), 0);
  std::vector<uint32_t> path;
  for (uint32_t s = 0; s < a.states.size(); ++s) {
    uint32_t at = s;
    path.clear();
    while (at != kDead && status[at] == kUnknown) {
      status[at] = kOnPath;
      path.push_back(at);
      at = next[at];
    }
    int room = 0;  // of the state behind the path
    if (at != kDead) room = status[at] == kOnPath ? kNoEnd : a.room[at];
    bool dead = at == kDead;
    bool closed = !dead && room < kNoEnd && a.closed[at] != 0;
    for (size_t i = path.size(); i-- > 0;) {
      const State& state = a.states[path[i]];
      const bool alone = !state.final && state.call_count == 0;
      closed = alone && (dead ? !takes_plain(a, path[i]) : closed);
      a.closed[path[i]] = closed;
      if (!dead && room < kNoEnd) ++room;
      dead = false;
      a.room[path[i]] = static_cast<uint8_t>(room);
      status[path[i]] = kKnown;
    }
  }
  // A character that is an item of a loop: as many as the loop has left.
  for (uint32_t s = 0; s < a.states.size(); ++s) {
    if (a.again[s] != s || next[s] == kDead || !a.states[next[s]].only_final()) continue;
    a.room[s] = kNoEnd;
    a.closed[s] = 0;
  }
}

}  // namespace ktx::text::grammar
