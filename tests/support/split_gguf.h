// A GGUF written again in shards, as gguf-split does: PREFIX-0000N-of-0000M.gguf.
#pragma once

#include <fmt/format.h>

#include <string>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"

namespace ktx::testing {

inline std::string shard_file(const std::string& prefix, int number, int shards) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, shards);
}

// Shards of as many tensors each; with `empty_first` the first one has metadata alone.
inline Status split_gguf(const input::GgufFile& gguf, const std::string& prefix, int shards,
                         bool empty_first = false) {
  const size_t tensors = gguf.tensors().size(), skipped = empty_first ? 1 : 0;
  const size_t parts = static_cast<size_t>(shards) - skipped;
  for (int shard = 0; shard < shards; ++shard) {
    input::GgufWriter writer;
    if (shard == 0) {
      for (const input::GgufValue& value : gguf.metadata()) writer.copy(value);
    }
    writer.add_u16("split.no", static_cast<uint16_t>(shard));
    writer.add_u16("split.count", static_cast<uint16_t>(shards));
    writer.add_i32("split.tensors.count", static_cast<int32_t>(tensors));
    if (shard > 0 || !empty_first) {
      const size_t part = static_cast<size_t>(shard) - skipped;
      for (size_t i = tensors * part / parts; i < tensors * (part + 1) / parts; ++i) {
        writer.copy(gguf.tensors()[i]);
      }
    }
    KTX_TRY(writer.write(shard_file(prefix, shard + 1, shards), 1, false));
  }
  return {};
}

}  // namespace ktx::testing
