#include "lib/text/grammar/schema_strings.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/string_formats.h"
#include "lib/text/grammar/string_pattern.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxCheckedLength = 500;  // of strings that are counted beside a pattern

struct Strings {
  int min = 0, max = kNoLimit;
  std::vector<std::string> patterns;  // written by the user
  std::string format;                 // its pattern
  Json unlike = Json::array();
};

Result<Strings> read(const Json& json, const std::string& path) {
  Strings out;
  out.min = KTX_TRY(schema_count(json, "minLength", path, 0));
  out.max = KTX_TRY(schema_count(json, "maxLength", path, kNoLimit));
  if (const auto found = json.find("pattern"); found != json.end()) {
    if (!found->is_string()) return wrong_type(path, "pattern", *found, "a string");
    out.patterns.push_back(found->get<std::string>());
  }
  for (const Json& more : json.value(kPatterns, Json::array())) {
    out.patterns.push_back(more.get<std::string>());
  }
  if (const auto format = json.find("format"); format != json.end() && format->is_string()) {
    out.format = pattern_of_format(format->get_ref<const std::string&>());
  }
  out.unlike = json.value(kUnlike, Json::array());
  return out;
}

Result<RegularSet> set_of(const Strings& strings, bool with_format, SchemaWork& work) {
  std::vector<std::string> patterns = strings.patterns;
  if (with_format && !strings.format.empty()) patterns.push_back(strings.format);
  const bool counted = strings.min > 0 || strings.max != kNoLimit;
  RegularSet out;
  if (counted || patterns.empty()) {
    if (strings.min > kMaxCheckedLength) {
      return Error{"a 'minLength' above 500 is not supported beside 'pattern' or 'not'"};
    }
    const int max = strings.max == kNoLimit ? kNoLimit : std::min(strings.max, kMaxCheckedLength);
    GrammarRules rules;
    const int any = any_characters(rules, {strings.min, max});
    out = KTX_TRY(regular_set(rules, any, work.regular));
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    const RegularSet* set = KTX_TRY(pattern_set(patterns[i], work));
    out = i == 0 && !counted ? *set : KTX_TRY(common(out, *set, work.regular));
  }
  for (const Json& unlike : strings.unlike) {
    if (unlike.contains("pattern")) {
      const auto& pattern = unlike["pattern"].get_ref<const std::string&>();
      out = KTX_TRY(without(out, *KTX_TRY(pattern_set(pattern, work)), work.regular));
    } else if (unlike.contains("enum")) {
      const RegularSet listed = KTX_TRY(listed_strings(unlike["enum"], work));
      out = KTX_TRY(without(out, listed, work.regular));
    }
  }
  return out;
}
// A format may be passed over, lengths and patterns may not: it says less than they do where both
// exclude each other (zod's pattern of a time has no zone, which the format has).
Result<RegularSet> set_with_format(const Strings& strings, SchemaWork& work) {
  Result<RegularSet> out = set_of(strings, true, work);
  const bool kept = out && !out->is_empty();
  return kept || strings.format.empty() ? std::move(out) : set_of(strings, false, work);
}

}  // namespace

Result<const RegularSet*> pattern_set(const std::string& pattern, SchemaWork& work) {
  std::unique_ptr<const RegularSet>& known = work.patterns[pattern];
  if (known == nullptr) {
    GrammarRules rules;
    const int expr = KTX_TRY(pattern_string(rules, pattern, work.regular));
    known = std::make_unique<const RegularSet>(KTX_TRY(regular_set(rules, expr, work.regular)));
  }
  return known.get();
}

Result<RegularSet> listed_strings(const Json& values, SchemaWork& work) {
  GrammarRules rules;
  std::vector<int> texts;
  for (const Json& value : values) {
    if (value.is_string()) texts.push_back(rules.text(json_quoted(value.get<std::string>())));
  }
  return regular_set(rules, rules.alternatives(std::move(texts)), work.regular);
}

Result<RegularSet> string_set(const Json& json, const std::string& path, SchemaWork& work) {
  const Strings strings = KTX_TRY(read(json, path));
  if (strings.max != kNoLimit && strings.max < strings.min) return RegularSet{};
  Result<RegularSet> out = set_with_format(strings, work);
  if (out) return out;
  return schema_error(path, out.error().message);
}

Result<int> string_schema(const Json& json, const std::string& path, GrammarRules& g,
                          JsonParts& parts, SchemaWork& work) {
  const Strings strings = KTX_TRY(read(json, path));
  const auto [min, max] = std::pair(strings.min, strings.max);
  if (max != kNoLimit && max < min) return g.nothing();
  const size_t patterns = strings.patterns.size() + (strings.format.empty() ? 0 : 1);
  if (strings.unlike.empty() && patterns == 0) return parts.string(min, max);
  if (strings.unlike.empty() && patterns == 1) {
    const std::string& pattern =
        strings.patterns.empty() ? strings.format : strings.patterns.front();
    const Result<int> out = pattern_string(g, pattern, work.regular, {min, max});
    if (out) return *out;
  }
  // Fields often say the same: they share the set.
  const std::string key =
      json_text(Json::array({min, max, strings.patterns, strings.format, strings.unlike}));
  const auto known = work.string_sets.find(key);
  if (known != work.string_sets.end()) return known->second;
  Result<RegularSet> set = set_with_format(strings, work);
  if (!set) return schema_error(path, set.error().message);
  return work.string_sets[key] = g.set(set.take());
}

}  // namespace ktx::text::grammar
