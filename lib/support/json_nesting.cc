#include "lib/support/json_nesting.h"

#include <algorithm>
#include <vector>

namespace ktx {

namespace {

// Calls `on_syntax` for each character of syntax, with its place: all that is in no string, and
// the quote that begins one.
template <class OnSyntax>
void scan(std::string_view text, const OnSyntax& on_syntax) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else {
      in_string = c == '"';
      on_syntax(c, i);
    }
  }
}

bool opens(char c) {
  return c == '{' || c == '[';
}
bool closes(char c) {
  return c == '}' || c == ']';
}

}  // namespace

int json_nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  scan(text, [&](char c, size_t) {
    if (opens(c)) deepest = std::max(deepest, ++depth);
    if (closes(c)) --depth;
  });
  return deepest;
}

uint64_t json_member_pairs(std::string_view text) {
  constexpr uint64_t kBytesPerPair = 32;  // compared in about the time of a short key
  uint64_t pairs = 0;
  std::vector<uint64_t> members = {0};  // of each object that is open
  size_t key = 0;                       // where the latest string begins
  scan(text, [&](char c, size_t at) {
    if (c == '"') key = at;
    if (c == ':') pairs += members.back()++ * (1 + (at - key) / kBytesPerPair);
    if (opens(c)) members.push_back(0);
    if (closes(c) && members.size() > 1) members.pop_back();
  });
  return pairs;
}

uint64_t json_tree_bytes(std::string_view text) {
  // A value is 16 bytes in a list with up to as much room again; what an object, a list or a
  // string keeps elsewhere, and a member's name, comes to it (libstdc++, glibc).
  constexpr uint64_t kValue = 32, kContainer = 40, kString = 48, kMember = 64;
  uint64_t bytes = 0;
  scan(text, [&](char c, size_t) {
    if (c == ',') bytes += kValue;
    if (opens(c)) bytes += kValue + kContainer;
    if (c == '"') bytes += kString;
    if (c == ':') bytes += kMember;
  });
  return bytes;
}

}  // namespace ktx
