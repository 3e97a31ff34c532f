// Three keys of config.json say it, in this order of precedence:
//
//   "indexer_types": ["full", "shared", "full"]
//   "index_topk_pattern": "FSF"
//   "index_topk_freq": 4, "index_skip_topk_offset": 3      layers 0 to 2, then 6, 10, ...
//
// A "shared" layer takes the positions of the last "full" one before it. Without any of the keys
// all layers are full. Layers without attention have no indexer, whatever the keys say of them.
#include "lib/arch/indexer_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

constexpr int64_t kMaxPeriod = 10000;

std::vector<bool> by_types(ConfigReader& in, const std::vector<std::string>& types, size_t layers) {
  if (types.size() != layers) {
    in.fail(fmt::format("'indexer_types' has {} entries for {} layers", types.size(), layers));
    return {};
  }
  std::vector<bool> full(layers);
  for (size_t i = 0; i < layers; ++i) {
    full[i] = types[i] == "full";
    if (full[i] || types[i] == "shared") continue;
    in.fail(fmt::format("'indexer_types' has '{}' for layer {}, expected full or shared",
                        printable(types[i]), i));
    return {};
  }
  return full;
}

std::vector<bool> by_pattern(ConfigReader& in, const std::string& pattern, size_t layers) {
  if (pattern.size() != layers || pattern.find_first_not_of("FS") != std::string::npos) {
    in.fail(fmt::format("'index_topk_pattern' is '{}', expected F or S for each of {} layers",
                        printable(pattern), layers));
    return {};
  }
  std::vector<bool> full(layers);
  for (size_t i = 0; i < layers; ++i) full[i] = pattern[i] == 'F';
  return full;
}

std::vector<bool> by_period(ConfigReader& in, size_t layers) {
  const int64_t period = in.integer_or_null("index_topk_freq", 1, kMaxPeriod).value_or(1);
  const int64_t offset = in.integer_or_null("index_skip_topk_offset", 0, kMaxPeriod).value_or(2);
  std::vector<bool> full(layers);
  for (size_t i = 0; i < layers; ++i) {
    full[i] = std::max<int64_t>(static_cast<int64_t>(i) - offset + 1, 0) % period == 0;
  }
  return full;
}

}  // namespace

std::vector<bool> layers_with_indexers(ConfigReader& in, const std::vector<bool>& attends) {
  const size_t layers = attends.size();
  const auto types = in.config().strings("indexer_types");
  const std::string pattern = in.text("index_topk_pattern");
  std::vector<bool> full = types && !types->empty() ? by_types(in, *types, layers)
                           : !pattern.empty()       ? by_pattern(in, pattern, layers)
                                                    : by_period(in, layers);
  const auto first = static_cast<size_t>(std::ranges::find(attends, true) - attends.begin());
  if (first >= full.size() || full[first]) return full;
  in.fail(
      fmt::format("layer {} has no indexer and no layer before it to take positions from", first));
  return {};
}

}  // namespace ktx::arch
