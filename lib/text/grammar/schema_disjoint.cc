#include "lib/text/grammar/schema_disjoint.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_pointer.h"
#include "lib/text/grammar/schema_values.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDisjointDepth = 12;
constexpr uint64_t kWorkOfPair = 50;

bool admits_no_others(const Json& schema) {
  return schema.value("additionalProperties", Json()) == Json(false) ||
         schema.value("unevaluatedProperties", Json()) == Json(false);
}

// It stands for itself: nothing else must be merged to know its types and properties.
bool stands_alone(const Json& schema) {
  for (const char* keyword : {"enum", "const", "$ref", "anyOf", "oneOf", "allOf", kAlso, "if"}) {
    if (schema.contains(keyword)) return false;
  }
  return true;
}

class Disjoint {
 public:
  Disjoint(const Json& root, SchemaWork& work) : root_(root), work_(work) {}

  // `whole`: nothing else is merged into `made`.
  bool are(const Json& made, const Json& other, bool whole, int depth) {
    if (made == Json(false) || other == Json(false)) return true;
    if (!made.is_object() || !other.is_object()) return false;
    if (depth > kMaxDisjointDepth ||
        !work_.merging.spend(kWorkOfPair + made.size() + other.size())) {
      return false;
    }
    return parts_are(made, other, whole, depth) || values_are(made, other) ||
           types_are(made, other, whole, depth);
  }

 private:
  // A part that is disjoint from the other is enough; of choices all must be.
  bool parts_are(const Json& made, const Json& other, bool whole, int depth) {
    const auto try_parts = [&](const Json& schema, bool of_made) {
      const auto with = [&](const Json& part, const char* keyword) {
        const bool alone = whole && says_nothing(schema, keyword);
        return of_made ? are(part, other, alone, depth + 1) : are(made, part, whole, depth + 1);
      };
      if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
        const auto target = resolve_pointer(root_, ref->get<std::string>(), "#");
        if (target && with(**target, "$ref")) return true;
      }
      for (const char* keyword : {"allOf", kAlso}) {
        const Json parts = schema.value(keyword, Json::array());
        const bool one = parts.size() == 1;
        if (std::any_of(parts.begin(), parts.end(),
                        [&](const Json& part) { return with(part, one ? keyword : ""); })) {
          return true;
        }
      }
      for (const char* keyword : {"anyOf", "oneOf"}) {
        const auto parts = schema.find(keyword);
        if (parts == schema.end() || !parts->is_array()) continue;
        if (std::all_of(parts->begin(), parts->end(),
                        [&](const Json& part) { return with(part, keyword); })) {
          return true;
        }
      }
      return false;
    };
    return try_parts(made, true) || try_parts(other, false);
  }

  bool values_are(const Json& made, const Json& other) {
    const auto none_fits = [&](const Json& lists, const Json& schema) {
      Json values = lists.value("enum", Json());
      if (lists.contains("const")) values = Json::array({lists["const"]});
      if (!values.is_array()) return false;
      return std::all_of(values.begin(), values.end(), [&](const Json& value) {
        const Result<bool> fits = accepts_value(root_, schema, value, "#", work_);
        return fits && !*fits;
      });
    };
    return none_fits(made, other) || none_fits(other, made);
  }

  std::set<std::string> types_of(const Json& schema, bool whole) {
    std::set<std::string> out;
    if (schema.contains("type")) {
      const auto types = type_names(schema, "#");
      if (types) out.insert(types->begin(), types->end());
    } else {
      const auto types =
          whole && stands_alone(schema) ? types_of_keywords(schema) : std::vector<std::string>();
      out.insert(types.begin(), types.end());
      if (out.empty()) {
        return {"string", "number", "integer", "boolean", "null", "array", "object"};
      }
    }
    if (schema.value("nullable", Json()) == Json(true)) out.insert("null");
    if (out.contains("number")) out.insert("integer");
    return out;
  }

  bool types_are(const Json& made, const Json& other, bool whole, int depth) {
    const std::set<std::string> mine = types_of(made, whole);
    const std::set<std::string> theirs = types_of(other, false);
    return std::all_of(mine.begin(), mine.end(), [&](const std::string& type) {
      if (!theirs.contains(type)) return true;
      if (type == "object") return objects_are(made, other, whole, depth);
      if (type == "string") return ranges_are(made, other, "minLength", "maxLength");
      if (type == "array") return ranges_are(made, other, "minItems", "maxItems");
      if (type == "number" || type == "integer") {
        return ranges_are(made, other, "minimum", "maximum");
      }
      return false;
    });
  }

  static bool ranges_are(const Json& a, const Json& b, const char* low, const char* high) {
    const auto above = [&](const Json& upper, const Json& lower) {
      const Json begin = upper.value(low, Json()), end = lower.value(high, Json());
      return is_numeric(begin) && is_numeric(end) && compare_numbers(begin, end) > 0;
    };
    return above(a, b) || above(b, a);
  }

  bool objects_are(const Json& made, const Json& other, bool whole, int depth) {
    const Json none = Json::object();
    const Json mine = made.value("properties", none), theirs = other.value("properties", none);
    if (!mine.is_object() || !theirs.is_object()) return false;
    const bool says_others =
        made.contains("additionalProperties") || made.contains("unevaluatedProperties");
    // Without a word about others an object that names properties has no others.
    const bool is_closed =
        !made.contains("patternProperties") &&
        (admits_no_others(made) || (whole && stands_alone(made) && !says_others && !mine.empty()));
    const bool other_is_closed = !other.contains("patternProperties") &&
                                 other.value("additionalProperties", Json()) == Json(false);
    const auto all_false = std::all_of(mine.begin(), mine.end(),
                                       [](const Json& schema) { return schema == Json(false); });
    const auto needs = [&](const Json& schema, bool of_made) {
      for (const Json& item : schema.value("required", Json::array())) {
        if (!item.is_string()) continue;
        const std::string name = item.get<std::string>();
        if (of_made && other_is_closed && !theirs.contains(name)) return true;
        if (!of_made && is_closed && !(all_false && whole) && !mine.contains(name)) return true;
        const Json a = mine.value(name, Json(true)), b = theirs.value(name, Json(true));
        if (are(a, b, whole, depth + 1)) return true;
      }
      return false;
    };
    return needs(made, true) || needs(other, false);
  }

  const Json& root_;
  SchemaWork& work_;
};

}  // namespace

bool are_disjoint(const Json& root, const Json& made, const Json& other, bool whole,
                  SchemaWork& work) {
  return Disjoint(root, work).are(made, other, whole, 0);
}

}  // namespace ktx::text::grammar
