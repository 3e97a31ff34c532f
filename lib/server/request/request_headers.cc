#include "lib/server/request/request_headers.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::server {
namespace {

// The name of the header that `line` is, or "".
std::string_view request_header(std::string_view line) {
  const std::string_view name = line.substr(0, std::min(line.find(':'), line.size()));
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  const bool is_header = name.size() < line.size() && name.size() <= 64 &&
                         (name.starts_with("x-") || name.starts_with("X-")) &&
                         std::all_of(name.begin(), name.end(), in_name) &&
                         std::count(name.begin(), name.end(), '-') >= 2;
  return is_header ? name : "";
}

}  // namespace

std::string without_request_headers(std::string_view text, Notes& notes) {
  bool any = false;
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view name = request_header(text.substr(0, end));
    const bool empty = text.substr(0, end).find_first_not_of("\r") == text.npos;
    if (text.empty() || (name.empty() && !(any && empty))) return std::string(text);
    if (!name.empty()) notes.push_back(fmt::format("system prompt: line '{}' is left out", name));
    any = true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace ktx::server
