// Arrays of a schema.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/schema_converter.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_negation.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/unique_items.h"
#include "lib/text/grammar/unique_list.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxListedWork = 2'500'000;
constexpr int kMaxScattered = 20;  // items that are contained anywhere

}  // namespace

Result<int> SchemaConverter::array(const Json& json, const std::string& path, int depth) {
  const int min = KTX_TRY(schema_count(json, "minItems", path, 0));
  const int max = KTX_TRY(schema_count(json, "maxItems", path, kNoLimit));
  if (max != kNoLimit && max < min) return g_.nothing();
  const Json unevaluated = json.value("unevaluatedItems", Json(true));
  if (json.contains(kNegated) && unevaluated != Json(true)) {
    return schema_error(path, "'unevaluatedItems' beside 'not' or 'if' of items is not supported");
  }
  const auto unique = json.find("uniqueItems");
  if (unique != json.end() && *unique != Json(false) && (max == kNoLimit || max > 1)) {
    if (*unique != Json(true)) return wrong_type(path, "uniqueItems", *unique, "true or false");
    if (json.contains("contains")) {
      return schema_error(path, "'uniqueItems' beside 'contains' is not supported");
    }
    if (const std::optional<int> listed = KTX_TRY(unique_array(json, path, min, max))) {
      return *listed;
    }
    if (min > static_cast<int>(kMaxDistinctItems)) {
      return schema_error(
          path,
          fmt::format("'uniqueItems' with more than {} items is not supported", kMaxDistinctItems));
    }
    g_.distinct_items = true;
  }
  if (json.contains("contains")) return containing_array(json, path, min, max, depth);
  int item = json_.any_value();
  for (const char* keyword : {"unevaluatedItems", "items"}) {
    if (!json.contains(keyword)) continue;
    item = KTX_TRY(schema(json[keyword], at(path, keyword), depth + 1));
  }
  const auto prefix = json.find("prefixItems");
  if (prefix == json.end()) return json_.array(g_.list(item, json_.separator(), min, max));
  if (!prefix->is_array()) return wrong_type(path, "prefixItems", *prefix, "an array");
  // From the back: what may follow i items.
  const int size = static_cast<int>(prefix->size());
  const int more_max = max == kNoLimit ? kNoLimit : std::max(0, max - size);
  int rest = g_.repeat(g_.sequence({json_.separator(), item}), std::max(0, min - size), more_max);
  for (int i = size - 1; i >= 0; --i) {
    const std::string here = at(at(path, "prefixItems"), std::to_string(i));
    const int first = KTX_TRY(schema((*prefix)[static_cast<size_t>(i)], here, depth + 1));
    std::vector<int> ways;
    if (i >= min) ways.push_back(g_.text(""));
    if (max == kNoLimit || i < max) {
      std::vector<int> parts = {first, rest};
      if (i > 0) parts.insert(parts.begin(), json_.separator());
      ways.push_back(g_.sequence(parts));
    }
    rest = g_.alternatives(std::move(ways));
  }
  return json_.array(rest);
}

// Slots one after the other, separated; those from `from` on, behind other items or at the begin.
int SchemaConverter::slots(const std::vector<Slot>& all, size_t from, bool behind_others) {
  if (from == all.size()) return g_.text("");
  const Slot& slot = all[from];
  const int rest = slots(all, from + 1, true);
  if (behind_others) {
    const int next = g_.sequence({json_.separator(), slot.item});
    return g_.sequence({g_.repeat(next, slot.min, slot.max), rest});
  }
  const int some =
      g_.sequence({g_.list(slot.item, json_.separator(), std::max(1, slot.min), slot.max), rest});
  if (slot.min > 0) return some;
  return g_.alternatives({slots(all, from + 1, false), some});
}

// Where nothing else is counted, what is contained may stand anywhere; else it comes first, behind
// the items of `prefixItems`.
Result<int> SchemaConverter::containing_array(const Json& json, const std::string& path, int min,
                                              int max, int depth) {
  const int least = KTX_TRY(schema_count(json, "minContains", path, 1));
  const int most = KTX_TRY(schema_count(json, "maxContains", path, kNoLimit));
  const std::string here = at(path, "contains");
  Json other = true;
  for (const char* keyword : {"unevaluatedItems", "items"}) {
    if (json.contains(keyword)) other = json[keyword];
  }
  other = KTX_TRY(flatten_part(other, at(path, "items"), 0));
  if (most != kNoLimit && most < least) return g_.nothing();
  const int match =
      KTX_TRY(schema(KTX_TRY(merge_parts(other, json["contains"], here)), here, depth + 1));
  const Json prefix = json.value("prefixItems", Json::array());
  if (!prefix.is_array()) return wrong_type(path, "prefixItems", prefix, "an array");
  if (most != kNoLimit) {
    if (!prefix.empty()) {
      return schema_error(path, "'maxContains' beside 'prefixItems' is not supported");
    }
    const Json unlike = KTX_TRY(negated(root_, json["contains"], here, work_));
    other = KTX_TRY(merge_parts(other, unlike, here));
  }
  const int item = KTX_TRY(schema(other, at(path, "items"), depth + 1));
  std::vector<Slot> all;
  for (size_t i = 0; i < prefix.size(); ++i) {
    const std::string place = at(at(path, "prefixItems"), std::to_string(i));
    const int first = KTX_TRY(schema(prefix[i], place, depth + 1));
    all.push_back({first, 1, 1});
  }
  const auto before = static_cast<int>(all.size()) + least;
  if (max != kNoLimit && max < before) return g_.nothing();
  const bool counted = max != kNoLimit || min > before || most != kNoLimit || least > kMaxScattered;
  if (counted) {
    const bool several = most != kNoLimit && max == kNoLimit && min <= before;
    if (least > 0 || several) all.push_back({match, least, several ? most : least});
    all.push_back({item, std::max(0, min - before), max == kNoLimit ? kNoLimit : max - before});
  } else {
    for (int i = 0; i < least; ++i) {
      all.push_back({item, 0, kNoLimit});
      all.push_back({match, 1, 1});
    }
    all.push_back({item, 0, kNoLimit});
  }
  std::erase_if(all, [](const Slot& slot) { return slot.max == 0; });
  return json_.array(slots(all, 0, false));
}

// No value twice: values that are listed, in their order. Nothing for others, and where there are
// too many ways.
Result<std::optional<int>> SchemaConverter::unique_array(const Json& json, const std::string& path,
                                                         int min, int max) {
  const auto listed = [](const Json& s) { return s.contains("enum") || s.contains("const"); };
  Json item = json.value("items", Json(true));
  if (item.is_object()) item = KTX_TRY(flatten(item, at(path, "items"), 0));
  if (item.is_object() && item.value("type", Json()) == "boolean" && !listed(item)) {
    item["enum"] = {false, true};
  }
  const bool plain = item.is_object() && listed(item) && !item.contains("anyOf") &&
                     !item.contains("oneOf") && !json.contains("prefixItems");
  if (!plain) return std::optional<int>();
  std::vector<int> texts;
  std::unordered_set<std::string> known;
  size_t bytes = 0;
  for (const Json& value : KTX_TRY(listed_values(item, at(path, "items")))) {
    // 1 and 1.0 are equal.
    const Decimal number = is_numeric(value) ? decimal_of(value) : Decimal();
    const std::string key = is_numeric(value) ? fmt::format("{:d} {}.{}", number.negative,
                                                            number.whole, number.fraction)
                                              : json_text(value);
    if (!known.insert(key).second) continue;
    texts.push_back(g_.text(json_text(value)));
    bytes += key.size();
  }
  const size_t work = texts.size() * bytes / 2;
  if (work_.listed_work + work > kMaxListedWork) return std::optional<int>();
  work_.listed_work += work;
  const auto items = unique_list(g_, json_.separator(), texts, min, max);
  if (!items) return std::optional<int>();
  return std::optional<int>(json_.array(*items));
}

}  // namespace ktx::text::grammar
