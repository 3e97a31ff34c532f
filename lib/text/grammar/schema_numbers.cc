#include "lib/text/grammar/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/text/grammar/number_multiples.h"
#include "lib/text/grammar/number_ranges.h"
#include "lib/text/grammar/schema_keywords.h"

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

Result<std::vector<Decimal>> steps(const Json& json, const std::string& path) {
  std::vector<Decimal> out;
  Json all = json.value(kSteps, Json::array());
  if (json.contains("multipleOf")) all.push_back(json["multipleOf"]);
  for (const Json& step : all) {
    const std::optional<Decimal> decimal =
        step.is_number() && step.get<double>() > 0 ? parse_decimal(step.dump()) : std::nullopt;
    if (!decimal || decimal->negative || *decimal == Decimal{}) {
      return wrong_type(path, "multipleOf", step, "a number above 0 of at most 16 digits");
    }
    out.push_back(*decimal);
  }
  return out;
}

// The ways to write a number without an exponent: 5, 5.0, 5.00 …
int writings(GrammarRules& g, const Decimal& number) {
  const int zeros = g.repeat(g.text("0"), 0, kNoLimit);
  const std::string whole = (number.negative ? "-" : "") + number.whole;
  if (!number.fraction.empty()) {
    return g.sequence({g.text(whole + "." + number.fraction), zeros});
  }
  const int plain =
      g.sequence({g.text(whole), g.optional(g.sequence({g.text("."), g.text("0"), zeros}))});
  if (number == Decimal{}) return g.sequence({g.optional(g.text("-")), plain});
  return plain;
}

// Numbers of at most 15 digits, which a double tells from each other.
RegularSet exact_numbers() {
  constexpr uint32_t kDigits = 15;
  // States by digits so far: without a point, then with one.
  constexpr uint32_t kBehind = kDigits + 1, kBegin = 0;
  RegularSet out;
  out.states.resize(2 * kBehind);
  out.states[kBegin].edges.push_back({'-', '-', kBegin});
  for (uint32_t n = 0; n <= kDigits; ++n) {
    RegularSet::State& whole = out.states[n];
    RegularSet::State& fraction = out.states[kBehind + n];
    whole.accepts = fraction.accepts = n > 0;
    if (n > 0) whole.edges.push_back({'.', '.', kBehind + n});
    if (n == kDigits) break;
    whole.edges.push_back({'0', '9', n + 1});
    fraction.edges.push_back({'0', '9', kBehind + n + 1});
  }
  return out;
}

// What a set says that no digit by digit comparison can.
Result<RegularSet> checked_numbers(const NumberBounds& bounds, const std::vector<Decimal>& steps,
                                   const Json& unlike, SchemaWork& work) {
  GrammarRules rules;
  RegularSet out = KTX_TRY(regular_set(rules, number_in_range(rules, bounds), work.regular));
  out = KTX_TRY(common(out, exact_numbers(), work.regular));
  for (const Decimal& step : steps) {
    out = KTX_TRY(common(out, KTX_TRY(multiples(step)), work.regular));
  }
  std::vector<int> texts;
  for (const Json& part : unlike) {
    if (part.contains("multipleOf")) {
      const std::optional<Decimal> step = parse_decimal(part["multipleOf"].dump());
      if (!step || step->negative || *step == Decimal{}) return Error{"'multipleOf' is no step"};
      out = KTX_TRY(without(out, KTX_TRY(multiples(*step)), work.regular));
    }
    for (const Json& value : part.value("enum", Json::array())) {
      if (!value.is_number()) continue;
      if (const auto number = parse_decimal(value.dump())) {
        texts.push_back(writings(rules, *number));
      }
    }
  }
  if (texts.empty()) return out;
  const int listed = rules.alternatives(std::move(texts));
  return without(out, KTX_TRY(regular_set(rules, listed, work.regular)), work.regular);
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

Result<int> number_schema(const Json& json, const std::string& path, bool integer, GrammarRules& g,
                          JsonParts& parts, SchemaWork& work) {
  NumberBounds bounds;
  bounds.integer = integer;
  KTX_TRY(bound(json, "minimum", "exclusiveMinimum", true, path, bounds.low, bounds.low_open));
  KTX_TRY(bound(json, "maximum", "exclusiveMaximum", false, path, bounds.high, bounds.high_open));
  const std::vector<Decimal> all_steps = KTX_TRY(steps(json, path));
  const Json unlike = json.value(kUnlike, Json::array());
  if (all_steps.empty() && unlike.empty()) {
    if (!bounds.low && !bounds.high) return integer ? parts.integer() : parts.number();
    return number_in_range(g, bounds);
  }
  if (all_steps.size() == 1 && unlike.empty() && all_steps[0].fraction.empty()) {
    const Result<int> out = whole_multiples(g, bounds, std::stoll(all_steps[0].whole));
    if (out) return *out;
  }
  Result<RegularSet> out = checked_numbers(bounds, all_steps, unlike, work);
  if (!out) return schema_error(path, out.error().message);
  return g.set(out.take());
}

}  // namespace ktx::text::grammar
