// Which bytes of a text came from outside: what a user or a tool wrote into a prompt, beside what
// its template says. Control tokens are read in the template's own text alone.
//
//   "<|user|>" + spans {}  +  "hi" + spans {[0, 2)}   ->  "<|user|>hi", {[8, 10)}
//
// Spans are sorted, do not touch and are not empty.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::text {

struct TextSpan {
  size_t begin = 0, end = 0;  // bytes
  bool operator==(const TextSpan&) const = default;
};
using TextSpans = std::vector<TextSpan>;

struct MarkedText {
  std::string text;
  TextSpans outside;
};

// Adds a span behind all others.
void add_span(TextSpans& spans, size_t begin, size_t end);
// Adds those of the bytes [begin, end) of another text, which stand at `at` here, behind all
// others.
void add_spans(TextSpans& spans, size_t at, const TextSpans& from, size_t begin, size_t end);
// Adds all from `begin` on of a text, but for these parts of it.
void add_outside(TextSpans& spans, std::string_view text, size_t begin,
                 std::span<const std::string> but = {});

}  // namespace ktx::text
