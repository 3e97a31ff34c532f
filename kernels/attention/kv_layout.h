// Where keys and values of a KV slot lie inside a block.
//
// The cache is cut into blocks of block_tokens tokens. A block holds the parts of
// all slots; the part of one slot (slot_bytes(), a multiple of 64) is
//
//   keys   [kv_heads][block_tokens][key_row_bytes]
//   values [kv_heads][block_tokens][value_row_bytes]     (absent when value_dim = 0)
//
// so that a head's keys are contiguous. Row types: F32, F16, and Q8_0 (blocks of 34
// bytes: half scale, 32 int8; the last one may be partly unused). Token at position
// p lies in block p / block_tokens of its sequence's block table, at p % block_tokens.
//
// A compressed slot has rows for some positions each, entries, which stand in the block of their
// last position (CompressAttrs; entry_layout). Its "tokens" are entries then.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ktx::kernels {

enum class KvType : uint8_t { F32, F16, Q8_0 };

inline constexpr int64_t kv_row_bytes(KvType type, int64_t dim) {
  if (type == KvType::F32) return dim * 4;
  if (type == KvType::F16) return dim * 2;
  return (dim + 31) / 32 * 34;
}

struct KvLayout {
  KvType type = KvType::F32;
  int64_t block_tokens = 0;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;   // 0: the values are in the keys
  int64_t row_blocks = 1;  // entries: blocks from one row to the next, which is in the last of them

  constexpr int64_t key_row_bytes() const { return kv_row_bytes(type, key_dim); }
  constexpr int64_t value_row_bytes() const { return kv_row_bytes(type, value_dim); }
  constexpr int64_t key_offset(int64_t head, int64_t token) const {
    return (head * block_tokens + token) * key_row_bytes();
  }
  constexpr int64_t value_offset(int64_t head, int64_t token) const {
    return kv_heads * block_tokens * key_row_bytes() +
           (head * block_tokens + token) * value_row_bytes();
  }
  constexpr int64_t slot_bytes() const {
    const int64_t bytes = kv_heads * block_tokens * (key_row_bytes() + value_row_bytes());
    return (bytes + 63) / 64 * 64;
  }
};

// The layout of entries of `every` positions each in a slot that was laid out by tokens.
inline constexpr KvLayout entry_layout(const KvLayout& slot, int64_t dim, int64_t every) {
  const int64_t rows = every < slot.block_tokens ? slot.block_tokens / every : 1;
  const int64_t blocks = every < slot.block_tokens ? 1 : every / slot.block_tokens;
  return {slot.type, rows, 1, dim, 0, blocks};
}

// The cache of one slot as the tokens of a step see it. tables[s][b] is the start of
// block b of sequence s, and the slot's part begins slot_offset bytes into it.
struct KvView {
  KvLayout layout;
  int64_t slot_offset = 0;
  std::byte* const* const* tables = nullptr;
  const int32_t* sequence = nullptr;  // [T] index in tables, by token of the step
  const int32_t* position = nullptr;  // [T] absolute position of the token
};

}  // namespace ktx::kernels
