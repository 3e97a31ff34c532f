#include "lib/support/json_nesting.h"

#include <algorithm>
#include <vector>

namespace ktx {

namespace {

// Tells what of the text is syntax, character by character: what is in no string.
template <class OnSyntax>
void scan(std::string_view text, const OnSyntax& on_syntax) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else {
      on_syntax(c);
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
  scan(text, [&](char c) {
    if (opens(c)) deepest = std::max(deepest, ++depth);
    if (closes(c)) --depth;
  });
  return deepest;
}

uint64_t json_member_pairs(std::string_view text) {
  uint64_t pairs = 0;
  std::vector<uint64_t> members = {0};  // of each object that is open
  scan(text, [&](char c) {
    if (c == ':') pairs += members.back()++;
    if (opens(c)) members.push_back(0);
    if (closes(c) && members.size() > 1) members.pop_back();
  });
  return pairs;
}

}  // namespace ktx
