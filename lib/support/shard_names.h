// The names of a sharded GGUF: "dir/model-00001-of-00003.gguf".
//
// Names of further shards are built from the one the user gave. Metadata never
// names a file, so a hostile model cannot point anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ktx {

struct ShardName {
  std::string prefix;   // "dir/model"
  uint32_t number = 0;  // from 1, as in the name
  uint32_t count = 0;
};

// Nothing when the path does not end in -NNNNN-of-NNNNN.gguf (five digits each).
std::optional<ShardName> parse_shard_name(std::string_view path);

std::string shard_path(const ShardName& name, uint32_t number);

}  // namespace ktx
