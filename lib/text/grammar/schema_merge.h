// Merges two schemas that both must hold into one:
//
//   {"minimum": 1} and {"type": "integer", "minimum": 0}  ->  {"type": "integer", "minimum": 1}
//
// What one schema cannot say twice (two patterns, two anyOf) goes into lists of our own
// (schema_keywords.h). Fails if both cannot be expressed, or if all merges of a schema together
// take too much work: lists are compared pairwise. `path` is for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"

namespace ktx::text::grammar {

// What merging may still cost: values copied or compared, of some 10 ns each.
struct MergeWork {
  uint64_t left = 30'000'000;
  // False once there is too little left.
  bool spend(uint64_t work);
  // To copy a schema, with all values in it.
  bool spend_copy(const nlohmann::ordered_json& schema);
};

Result<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a,
                                             const nlohmann::ordered_json& b,
                                             const std::string& path, MergeWork& work);

// Makes `unevaluatedProperties` and `unevaluatedItems` of a merged schema `additionalProperties`
// and `items`, as which they go on when more is merged with it. An error beside anyOf and
// oneOf, whose branches decide what is evaluated.
Status close_unevaluated(nlohmann::ordered_json& schema, const std::string& path);

}  // namespace ktx::text::grammar
