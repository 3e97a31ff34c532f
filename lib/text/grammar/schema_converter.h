// The converter of json_schema.h, whose parts stand in json_schema.cc, schema_arrays.cc and
// schema_objects.cc. Private to them.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

class SchemaConverter {
 public:
  using Json = nlohmann::ordered_json;
  SchemaConverter(const Json& root, GrammarRules& rules, JsonParts& parts, SchemaWork& work)
      : root_(root), g_(rules), json_(parts), work_(work) {}

  // The expression of a value; the rules that it names are complete.
  Result<int> convert();

 private:
  static std::string at(const std::string& path, std::string_view key);
  Result<int> rule_of(const std::string& pointer);
  Status check(const Json& json, const std::string& path);

  Result<Json> flatten(const Json& json, const std::string& path, int depth);
  Result<Json> flatten_part(const Json& json, const std::string& path, int depth);
  Result<Json> merge(const Json& a, const Json& b, const std::string& path);
  // Both, without $ref, allOf and conditions.
  Result<Json> merge_parts(const Json& a, const Json& b, const std::string& path);
  Result<bool> is_impossible(Json& json, const std::string& path, int depth);

  Result<int> schema(const Json& json, const std::string& path, int depth);
  Result<int> whole_schema(const Json& json, const std::string& path, int depth);
  Result<int> looser_schema(const Json& json, const Error& error, const std::string& path,
                            int depth);
  Result<int> any_of(const Json& json, const char* keyword, const std::string& path, int depth);
  Result<std::vector<Json>> branches_of(const Json& json, const char* keyword,
                                        const std::string& path);
  Result<std::vector<Json>> listed_values(const Json& json, const std::string& path);
  Result<int> values(const Json& json, const std::string& path);
  Result<int> typed(const Json& json, const std::string& path, int depth);

  // schema_arrays.cc
  struct Slot {
    int item = -1;
    int min = 1, max = 1;
  };
  int slots(const std::vector<Slot>& all, size_t from, bool behind_others);
  Result<int> array(const Json& json, const std::string& path, int depth);
  Result<int> containing_array(const Json& json, const std::string& path, int min, int max,
                               int depth);
  Result<std::optional<int>> unique_array(const Json& json, const std::string& path, int min,
                                          int max);

  // schema_objects.cc
  struct Members;
  Result<int> object(const Json& json, const std::string& path, int depth);
  Status named_members(const Json& json, const std::string& path, int depth, Members& members);
  Status other_members(const Json& json, const std::string& path, int depth, Members& members);
  Result<int> joined_members(const Json& json, const std::string& path, Members& members);
  Result<Json> value_of_name(const Json& json, const std::string& name, const std::string& path);
  Result<RegularSet> property_names(const Json& names, const std::string& path);
  Result<int> property_name(const Json& names, const std::string& path, int depth);

  const Json& root_;
  GrammarRules& g_;
  JsonParts& json_;
  SchemaWork& work_;
  std::unordered_map<std::string, int> rules_;
  std::deque<std::pair<int, std::string>> pending_;
};

}  // namespace ktx::text::grammar
