#include "lib/text/grammar/schema_pointer.h"

#include <fmt/format.h>

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

}  // namespace

Result<const Json*> resolve_pointer(const Json& root, const std::string& pointer,
                                    const std::string& path) {
  if (!pointer.starts_with('#')) {
    return schema_error(
        path, fmt::format("'$ref' to '{}' is not supported; only '#/…' is", printable(pointer)));
  }
  const Json* at = &root;
  const std::vector<std::string_view> keys = split(pointer, '/');
  for (size_t i = 1; i < keys.size(); ++i) {
    const std::string key = unescape(keys[i]);
    const Json* next = nullptr;
    if (at->is_object()) {
      const auto found = at->find(key);
      if (found != at->end()) next = &*found;
    } else if (at->is_array() && !key.empty() && key.size() < 7 &&
               key.find_first_not_of("0123456789") == std::string::npos &&
               static_cast<size_t>(std::stoi(key)) < at->size()) {
      next = &(*at)[static_cast<size_t>(std::stoi(key))];
    }
    if (next == nullptr) {
      return schema_error(path, fmt::format("'$ref' to '{}': there is no '{}'", printable(pointer),
                                            printable(key)));
    }
    at = next;
  }
  if (keys[0] != "#") {
    return schema_error(
        path, fmt::format("'$ref' to '{}' is not supported; only '#/…' is", printable(pointer)));
  }
  return at;
}

}  // namespace ktx::text::grammar
