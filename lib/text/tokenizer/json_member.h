// A member of a tokenizer's JSON; null where it is absent or null, or `object` is none.
#pragma once

#include <nlohmann/json.hpp>

namespace ktx::text {

inline const nlohmann::json* json_member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace ktx::text
