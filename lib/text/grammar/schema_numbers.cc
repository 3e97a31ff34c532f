#include "lib/text/grammar/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/number_multiples.h"
#include "lib/text/grammar/number_ranges.h"
#include "lib/text/grammar/schema_keywords.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCount = 20'000;  // of what there must be
constexpr size_t kMaxStepSize = 16;    // digits of a multipleOf

Status bound(const Json& json, const char* keyword, const char* exclusive, bool low,
             const std::string& path, std::optional<Decimal>& out, bool& open) {
  for (const char* name : {keyword, exclusive}) {
    const auto value = json.find(name);
    if (value == json.end()) continue;
    if (!is_numeric(*value)) return wrong_type(path, name, *value, "a number");
    const Decimal number = decimal_of(*value);
    const bool is_exclusive = name == exclusive;
    const int order = out ? compare(number, *out) : 0;
    if (out && (low ? order < 0 : order > 0)) continue;
    if (out && order == 0 && !is_exclusive) continue;
    open = is_exclusive;
    out = number;
  }
  if (!out) return {};
  // What numbers are written with may not reach the bound, or lie on one side of it alone.
  const bool limits_size = low == out->negative;
  if (out->whole.size() > kMaxWholeDigits) {
    if (limits_size) {
      out.reset();
      return {};
    }
    return schema_error(path, fmt::format("'{}' has {} digits; numbers are written with up to {}",
                                          json.contains(keyword) ? keyword : exclusive,
                                          out->whole.size(), kMaxWholeDigits));
  }
  if (out->fraction.size() > kMaxFraction) {
    out->fraction.resize(kMaxFraction);
    out->fraction.erase(out->fraction.find_last_not_of('0') + 1);
    out->negative = out->negative && !out->is_zero();
    open = !limits_size;
  }
  return {};
}

Result<std::vector<Decimal>> steps(const Json& json, const std::string& path) {
  std::vector<Decimal> out;
  Json all = json.value(kSteps, Json::array());
  if (json.contains("multipleOf")) all.push_back(json["multipleOf"]);
  for (const Json& step : all) {
    const Decimal decimal = is_numeric(step) ? decimal_of(step) : Decimal();
    if (decimal.negative || decimal.is_zero() || decimal.whole.size() > kMaxStepSize ||
        decimal.fraction.size() > kMaxStepSize) {
      return wrong_type(path, "multipleOf", step, "a number above 0 of at most 16 digits");
    }
    out.push_back(decimal);
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

// Numbers of at most 15 digits, which doubles keep apart; all integers.
RegularSet exact_numbers(bool integer) {
  const auto digits = static_cast<uint32_t>(integer ? kMaxWholeDigits : 15);
  // States by digits so far: without a point, then with one.
  const uint32_t behind = digits + 1;
  constexpr uint32_t kBegin = 0;
  RegularSet out;
  out.states.resize(2 * size_t{behind});
  out.states[kBegin].edges.push_back({'-', '-', kBegin});
  for (uint32_t n = 0; n <= digits; ++n) {
    RegularSet::State& whole = out.states[n];
    RegularSet::State& fraction = out.states[behind + n];
    whole.accepts = fraction.accepts = n > 0;
    if (n > 0) whole.edges.push_back({'.', '.', behind + n});
    if (n == digits) break;
    whole.edges.push_back({'0', '9', n + 1});
    fraction.edges.push_back({'0', '9', behind + n + 1});
  }
  return out;
}

constexpr const char* kBoundNames[] = {"minimum", "exclusiveMinimum", "maximum",
                                       "exclusiveMaximum"};

// What a set says that no digit by digit comparison can.
Result<RegularSet> checked_numbers(const NumberBounds& bounds, const std::vector<Decimal>& steps,
                                   const Json& unlike, SchemaWork& work) {
  GrammarRules rules;
  RegularSet out = KTX_TRY(regular_set(rules, number_in_range(rules, bounds), work.regular));
  out = KTX_TRY(common(out, exact_numbers(bounds.integer), work.regular));
  for (const Decimal& step : steps) {
    out = KTX_TRY(common(out, KTX_TRY(multiples(step)), work.regular));
  }
  std::vector<int> texts;
  for (const Json& part : unlike) {
    if (part.contains("multipleOf")) {
      const Decimal step = decimal_of(part["multipleOf"]);
      if (step.negative || step.is_zero()) return Error{"'multipleOf' is no step"};
      out = KTX_TRY(without(out, KTX_TRY(multiples(step)), work.regular));
    }
    for (const Json& value : part.value("enum", Json::array())) {
      if (is_numeric(value)) texts.push_back(writings(rules, decimal_of(value)));
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
  const Decimal number = is_numeric(*value) ? decimal_of(*value) : Decimal{true, "1", ""};
  if (number.negative || !number.fraction.empty()) {
    return wrong_type(path, keyword, *value, "a whole number from 0");
  }
  const int64_t count = number.whole.size() > 9 ? INT32_MAX : std::stoll(number.whole);
  if (count <= kMaxCount) return static_cast<int>(count);
  // As a limit it is one that no answer reaches.
  if (std::string_view(keyword).starts_with("max")) return static_cast<int>(count);
  return schema_error(path, fmt::format("'{}' is {}; at most {} is supported", keyword,
                                        json_text(*value), kMaxCount));
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
    const bool bounded = std::any_of(std::begin(kBoundNames), std::end(kBoundNames),
                                     [&](const char* name) { return json.contains(name); });
    if (!bounded) return integer ? parts.integer() : parts.number();
    return number_in_range(g, bounds);
  }
  const bool one_whole_step =
      all_steps.size() == 1 && unlike.empty() && all_steps[0].fraction.empty();
  // Listed they have up to 18 digits; where no bound says that this is enough, remainders do not
  // end there.
  constexpr int64_t kMaxRemainders = 100;
  const bool open = (!bounds.low || !bounds.high) && integer;
  if (one_whole_step && open && std::stoll(all_steps[0].whole) <= kMaxRemainders) {
    Result<RegularSet> out = checked_numbers(bounds, all_steps, unlike, work);
    if (out) return g.set(out.take());
  }
  if (one_whole_step) {
    const Result<int> out = whole_multiples(g, bounds, std::stoll(all_steps[0].whole));
    if (out) return *out;
  }
  Result<RegularSet> out = checked_numbers(bounds, all_steps, unlike, work);
  if (!out) return schema_error(path, out.error().message);
  return g.set(out.take());
}

}  // namespace ktx::text::grammar
