#include "lib/text/grammar/schema_pointer.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "lib/support/strings.h"
#include "lib/text/grammar/schema_keywords.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

std::string unescape(std::string_view key) {
  std::string out;
  for (size_t i = 0; i < key.size(); ++i) {
    const std::string_view rest = key.substr(i);
    if (rest.starts_with("~1")) {
      out += '/', ++i;
    } else if (rest.starts_with("~0")) {
      out += '~', ++i;
    } else {
      out += key[i];
    }
  }
  return out;
}

// A reference is part of a URL, where %20 is a space.
std::string percent_decoded(std::string_view key) {
  std::string out;
  for (size_t i = 0; i < key.size(); ++i) {
    unsigned code = 0;
    const char* hex = key.data() + i + 1;
    if (key[i] == '%' && i + 2 < key.size() &&
        std::from_chars(hex, hex + 2, code, 16).ptr == hex + 2) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += key[i];
    }
  }
  return out;
}

const Json* member(const Json& of, const std::string& key) {
  if (of.is_object()) {
    const auto found = of.find(key);
    return found == of.end() ? nullptr : &*found;
  }
  const bool index = of.is_array() && !key.empty() && key.size() < 7 &&
                     key.find_first_not_of("0123456789") == std::string::npos;
  if (!index) return nullptr;
  const auto i = static_cast<size_t>(std::stoi(key));
  return i < of.size() ? &of[i] : nullptr;
}

bool has_id(const Json& schema) {
  return schema.is_object() && schema.contains("$id") && schema["$id"].is_string();
}

}  // namespace

Status check_inner_id(const Json& schema, const std::string& path) {
  if (!has_id(schema)) return {};
  std::vector<const Json*> todo = {&schema};
  while (!todo.empty()) {
    const Json& value = *todo.back();
    todo.pop_back();
    if (value.is_object() && value.contains("$ref")) {
      return schema_error(path,
                          "'$id' with '$ref' in it is supported at the root only; leave '$id' out");
    }
    if (!value.is_structured()) continue;
    for (const Json& item : value) todo.push_back(&item);
  }
  return {};
}

Result<const Json*> resolve_pointer(const Json& root, const std::string& pointer,
                                    const std::string& path) {
  if (!pointer.starts_with('#')) {
    return schema_error(
        path, fmt::format("'$ref' to '{}' is not supported; only '#/…' is", printable(pointer)));
  }
  const Json* at = &root;
  const std::vector<std::string_view> keys = split(pointer, '/');
  for (size_t i = 1; i < keys.size(); ++i) {
    const std::string key = unescape(percent_decoded(keys[i]));
    const Json* next = member(*at, key);
    // Many write it as it is.
    if (next == nullptr) next = member(*at, unescape(keys[i]));
    if (next == nullptr) {
      return schema_error(path, fmt::format("'$ref' to '{}': there is no '{}'", printable(pointer),
                                            printable(key)));
    }
    at = next;
    if (has_id(*at) && i + 1 < keys.size()) {
      return schema_error(
          path,
          fmt::format("'$ref' to '{}' goes into a part with an '$id', which is not supported; "
                      "leave '$id' out",
                      printable(pointer)));
    }
  }
  if (keys[0] != "#") {
    return schema_error(
        path, fmt::format("'$ref' to '{}' is not supported; only '#/…' is", printable(pointer)));
  }
  return at;
}

}  // namespace ktx::text::grammar
