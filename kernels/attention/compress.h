// Entries of compressed attention (CompressAttrs in lib/ops/step_attrs.h): what a token that is the
// last one of an entry makes of the rows and scores of its positions, before norm and rotation.
//
// Rows and scores stand in a slot with a head for each kCompressedChannels channels: keys are rows,
// values scores, of which there are none without a bias. Those of all positions of the entry, and
// of the entry before where they overlap, must have been stored.
//
// Numerics: each channel by itself, its positions rising, in F32 (double in the scalar variant): an
// entry does not depend on how a text was cut into passes.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/attention/kv_layout.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct CompressArgs {
  KvView kv;  // of attrs.slot; types F32 and F16
  CompressAttrs attrs;
  const float* bias = nullptr;  // [every][channels()]; null: an entry is the mean of its own rows
  int64_t token = 0;            // (position + 1) % every == 0
  float* entry = nullptr;       // [dim]
};
using CompressFn = void (*)(const CompressArgs&);

// The positions that take part in an entry, and the channel of each that counts for the first one
// of the entry.
struct EntryPart {
  int64_t begin = 0, end = 0;  // positions
  int64_t channel = 0;
};
// The part of the entry before, which is empty where there is none, and its own.
struct EntryParts {
  EntryPart before, own;
};
constexpr EntryParts parts_of_entry(const CompressAttrs& a, int64_t entry) {
  const int64_t begin = entry * a.every, end = begin + a.every;
  if (a.overlapped == 0) return {{}, {begin, end, 0}};
  return {{entry > 0 ? begin - a.every : begin, begin, 0}, {begin, end, a.dim}};
}

// Families: "compress".
Result<CompressFn> find_compress(std::string_view family, Isa isa);

}  // namespace ktx::kernels
