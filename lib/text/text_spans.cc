#include "lib/text/text_spans.h"

#include <algorithm>

namespace ktx::text {

void add_span(TextSpans& spans, size_t begin, size_t end) {
  if (begin >= end) return;
  if (!spans.empty() && spans.back().end >= begin) {
    spans.back().end = std::max(spans.back().end, end);
  } else {
    spans.push_back({begin, end});
  }
}

void add_spans(TextSpans& spans, size_t at, const TextSpans& from, size_t begin, size_t end) {
  auto span = std::partition_point(from.begin(), from.end(),
                                   [&](const TextSpan& s) { return s.end <= begin; });
  for (; span != from.end() && span->begin < end; ++span) {
    add_span(spans, at + std::max(span->begin, begin) - begin,
             at + std::min(span->end, end) - begin);
  }
}

void add_outside(TextSpans& spans, std::string_view text, size_t begin,
                 std::span<const std::string> but) {
  while (begin < text.size()) {
    size_t found = text.size(), bytes = 0;
    for (const std::string& part : but) {
      const size_t at = part.empty() ? text.npos : text.find(part, begin);
      if (at < found) {
        found = at;
        bytes = part.size();
      }
    }
    add_span(spans, begin, found);
    begin = found + std::max<size_t>(bytes, found == text.size() ? 1 : bytes);
  }
}

}  // namespace ktx::text
