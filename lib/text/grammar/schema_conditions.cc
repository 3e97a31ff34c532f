#include "lib/text/grammar/schema_conditions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_negation.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

Json all_of(Json a, Json b) {
  if (b == Json(true)) return a;
  return Json{{"allOf", Json::array({std::move(a), std::move(b)})}};
}

class Conditions {
 public:
  Conditions(const Json& root, const Json& schema, const std::string& path, SchemaWork& work)
      : root_(root), schema_(schema), path_(path), work_(work) {}

  Result<Json> rewrite() {
    KTX_TRY(apply_not());
    KTX_TRY(apply_if());
    for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
      KTX_TRY(apply_dependent(keyword));
    }
    if (!parts_.empty()) {
      Json& all = schema_["allOf"];
      if (!all.is_null() && !all.is_array()) return wrong_type(path_, "allOf", all, "an array");
      for (Json& part : parts_) all.push_back(std::move(part));
    }
    return std::move(schema_);
  }

 private:
  Json take(const char* keyword) {
    Json out = std::move(schema_[keyword]);
    schema_.erase(keyword);
    return out;
  }

  Status apply_not() {
    if (!schema_.contains("not")) return {};
    const Json unwanted = take("not");
    parts_.push_back(KTX_TRY(negated(root_, unwanted, path_ + "/not", work_)));
    return {};
  }

  Status apply_if() {
    const bool given = schema_.contains("if");
    const Json condition = given ? take("if") : Json();
    const Json then = schema_.contains("then") ? take("then") : Json(true);
    const Json otherwise = schema_.contains("else") ? take("else") : Json(true);
    if (!given || (then == Json(true) && otherwise == Json(true))) return {};
    Json unmet = KTX_TRY(negated(root_, condition, path_ + "/if", work_));
    parts_.push_back(
        {{"anyOf", Json::array({all_of(condition, then), all_of(std::move(unmet), otherwise)})}});
    return {};
  }

  // If a property is present, others are required, or a schema applies to the whole object.
  Status apply_dependent(const char* keyword) {
    if (!schema_.contains(keyword)) return {};
    const Json dependents = take(keyword);
    if (!dependents.is_object()) return wrong_type(path_, keyword, dependents, "an object");
    for (const auto& [name, wanted] : dependents.items()) {
      const Json absent = {{"type", "object"}, {"properties", {{name, false}}}};
      const Json present = {{"type", "object"}, {"required", Json::array({name})}};
      const Json rest = wanted.is_array() ? Json{{"type", "object"}, {"required", wanted}} : wanted;
      if (rest == Json(true) || rest.empty()) continue;
      Json ways = Json::array({absent, all_of(present, rest)});
      // It speaks of objects alone.
      Json others = {{"type", {"string", "number", "boolean", "null", "array"}}};
      ways.push_back(std::move(others));
      parts_.push_back({{"anyOf", std::move(ways)}});
    }
    return {};
  }

  const Json& root_;
  Json schema_;
  const std::string& path_;
  SchemaWork& work_;
  std::vector<Json> parts_;
};

constexpr const char* kConditions[] = {
    "not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas"};

}  // namespace

bool has_conditions(const Json& schema) {
  return std::any_of(std::begin(kConditions), std::end(kConditions),
                     [&](const char* keyword) { return schema.contains(keyword); });
}

Result<Json> without_conditions(const Json& root, const Json& schema, const std::string& path,
                                SchemaWork& work) {
  return Conditions(root, schema, path, work).rewrite();
}

}  // namespace ktx::text::grammar
