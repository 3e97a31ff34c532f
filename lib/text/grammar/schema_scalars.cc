#include "lib/text/grammar/schema_scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/text/grammar/number_multiples.h"
#include "lib/text/grammar/number_ranges.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/string_formats.h"
#include "lib/text/grammar/string_pattern.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCount = 20'000;

Status bound(const Json& json, const char* keyword, const char* exclusive, bool low,
             const std::string& path, std::optional<Decimal>& out, bool& open) {
  std::optional<double> best;
  for (const char* name : {keyword, exclusive}) {
    const auto value = json.find(name);
    if (value == json.end()) continue;
    if (!value->is_number()) return wrong_type(path, name, *value, "a number");
    const double number = value->get<double>();
    const bool is_exclusive = name == exclusive;
    if (best && (low ? number < *best : number > *best)) continue;
    if (best && number == *best && !is_exclusive) continue;
    best = number;
    open = is_exclusive;
    out = parse_decimal(value->dump());
    if (!out) {
      return schema_error(path,
                          fmt::format("'{}' is {}; at most {} digits on each side of the point "
                                      "are supported",
                                      name, value->dump(), kMaxDigits));
    }
  }
  return {};
}

// 0: none is given.
Result<int64_t> multiple_of(const Json& json, const std::string& path) {
  const auto step = json.find("multipleOf");
  if (step == json.end()) return int64_t{0};
  const double number = step->is_number() ? step->get<double>() : 0;
  if (!(number > 0)) return wrong_type(path, "multipleOf", *step, "a number above 0");
  if (number > 1e15 || number != static_cast<double>(static_cast<int64_t>(number))) {
    return schema_error(
        path, fmt::format("'multipleOf' is {}; whole numbers are supported", step->dump()));
  }
  return static_cast<int64_t>(number);
}

}  // namespace

Result<int> schema_count(const Json& json, const char* keyword, const std::string& path,
                         int missing) {
  const auto value = json.find(keyword);
  if (value == json.end()) return missing;
  // 2.0 is a whole number too.
  const double number = value->is_number() ? value->get<double>() : -1;
  if (!(number >= 0) ||
      number != static_cast<double>(static_cast<int64_t>(std::min(number, 1e15)))) {
    return wrong_type(path, keyword, *value, "a whole number from 0");
  }
  if (number > static_cast<double>(kMaxCount)) {
    return schema_error(path, fmt::format("'{}' is {}; at most {} is supported", keyword,
                                          value->dump(), kMaxCount));
  }
  return static_cast<int>(number);
}

Result<int> string_schema(const Json& json, const std::string& path, GrammarRules& g,
                          JsonParts& parts) {
  const int min = KTX_TRY(schema_count(json, "minLength", path, 0));
  const int max = KTX_TRY(schema_count(json, "maxLength", path, kNoLimit));
  const auto format = json.find("format");
  std::string_view pattern;
  if (const auto found = json.find("pattern"); found != json.end()) {
    if (!found->is_string()) return wrong_type(path, "pattern", *found, "a string");
    pattern = found->get_ref<const std::string&>();
  } else if (format != json.end() && format->is_string()) {
    pattern = pattern_of_format(format->get_ref<const std::string&>());
  }
  if (max != kNoLimit && max < min) return g.nothing();
  if (pattern.empty()) return parts.string(min, max);
  // A limit is as high as of a string without a pattern.
  const int most = max == kNoLimit ? max : std::max(min, std::min(max, kMaxCountedLength));
  const Result<int> out = pattern_string(g, pattern, {min, most});
  if (out) return *out;
  // A format may be passed over, lengths may not.
  if (!json.contains("pattern")) return parts.string(min, max);
  return schema_error(path, out.error().message);
}

Result<int> number_schema(const Json& json, const std::string& path, bool integer, GrammarRules& g,
                          JsonParts& parts) {
  NumberBounds bounds;
  bounds.integer = integer;
  KTX_TRY(bound(json, "minimum", "exclusiveMinimum", true, path, bounds.low, bounds.low_open));
  KTX_TRY(bound(json, "maximum", "exclusiveMaximum", false, path, bounds.high, bounds.high_open));
  if (const int64_t step = KTX_TRY(multiple_of(json, path)); step > 0) {
    const Result<int> out = whole_multiples(g, bounds, step);
    if (out) return *out;
    return schema_error(path, out.error().message);
  }
  if (!bounds.low && !bounds.high) return integer ? parts.integer() : parts.number();
  return number_in_range(g, bounds);
}

}  // namespace ktx::text::grammar
