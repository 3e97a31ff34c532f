// The kinds of what a sequence keeps between forward passes, as an enum and a table
// (sequence_kinds.def), and one of something for each kind of blocks:
//
//   ByBlockKind<uint64_t> blocks = {.whole = 32, .window = 8};
//   for (const SequenceKind kind : kBlockKinds) sum += blocks[kind];
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ktx::program {

enum class SequenceKind : uint8_t {
#define KTX_BLOCK_KIND(id, member, reads, sentence) id,
#define KTX_STATE_KIND(id, sentence) id,
#include "lib/program/sequence_kinds.def"
};

inline constexpr SequenceKind kBlockKinds[] = {
#define KTX_BLOCK_KIND(id, member, reads, sentence) SequenceKind::id,
#include "lib/program/sequence_kinds.def"
};
// Those whose blocks go back to the pool when no later token reads them.
inline constexpr std::span<const SequenceKind> kPassingKinds = std::span(kBlockKinds).subspan(1);

template <class T>
struct ByBlockKind {
#define KTX_BLOCK_KIND(id, member, reads, sentence) T member{};
#include "lib/program/sequence_kinds.def"

  T& operator[](SequenceKind kind) {
    static constexpr T ByBlockKind::*kMembers[] = {
#define KTX_BLOCK_KIND(id, member, reads, sentence) &ByBlockKind::member,
#include "lib/program/sequence_kinds.def"
    };
    return this->*kMembers[static_cast<size_t>(kind)];
  }
  const T& operator[](SequenceKind kind) const {
    return const_cast<ByBlockKind&>(*this)[kind];
  }
};

// The column `reads` of the table.
constexpr int64_t read_all(int64_t /*length*/, int64_t /*width*/) {
  return 0;
}
constexpr int64_t read_last(int64_t length, int64_t width) {
  return std::max<int64_t>(0, length - width + 1);
}

struct BlockKindInfo {
  std::string_view name;
  int64_t (*first_read)(int64_t length, int64_t width);
};
// By number of a kind of blocks.
inline constexpr BlockKindInfo kBlockKindInfo[] = {
#define KTX_BLOCK_KIND(id, member, reads, sentence) {#member, reads},
#include "lib/program/sequence_kinds.def"
};
constexpr const BlockKindInfo& info(SequenceKind kind) {
  return kBlockKindInfo[static_cast<size_t>(kind)];
}

}  // namespace ktx::program
