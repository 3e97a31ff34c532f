// What the conversion of a grammar's schemas has cost so far, for the limits, and the sets of the
// patterns in them.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "lib/text/grammar/regular_set.h"
#include "lib/text/grammar/schema_merge.h"

namespace ktx::text::grammar {

struct SchemaWork {
  bool lenient = false;  // what no grammar can keep is passed over with a note
  MergeWork merging;
  RegularWork regular;
  int merge_count = 0;
  int conversions = 0;
  int negations = 0;
  size_t listed_work = 0;                            // of arrays without repeated values
  std::unordered_map<std::string, int> string_sets;  // expressions, by what is said of the strings
  // JSON strings by pattern, quotes included.
  std::unordered_map<std::string, std::unique_ptr<const RegularSet>> patterns;
};

}  // namespace ktx::text::grammar
