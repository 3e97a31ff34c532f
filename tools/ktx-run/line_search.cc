#include "tools/ktx-run/line_search.h"

#include <fmt/format.h>

namespace ktx::tools {

Key search_history(KeyReader& keys, LineView& view, const LineHistory& history,
                   LineBuffer& buffer) {
  const std::string before = buffer.text();
  LineBuffer wanted;
  size_t at = history.size();
  // The newest one before `end`; where there is none, what is shown stays.
  const auto find = [&](size_t end) {
    const std::string part = wanted.text();
    while (!part.empty() && end-- > 0) {
      if (history[end].find(part) == std::string::npos) continue;
      at = end;
      buffer.set(history[end]);
      return;
    }
  };
  while (true) {
    view.draw(fmt::format("search '{}': ", wanted.text()), buffer);
    Key key = keys.next();
    const bool control = key.kind == Key::Control;
    if (key.kind == Key::Text) {
      wanted.type(key.bytes);
      find(history.size());
    } else if (control && key.bytes == kSearchKey) {
      find(at);
    } else if (control && (key.bytes == "\x7f" || key.bytes == "\x08")) {
      wanted.erase_before();
      find(history.size());
    } else if (control && (key.bytes == "\x1b" || key.bytes == "\x07" || key.bytes == "\x03")) {
      buffer.set(before);
      return {Key::Control, {}};
    } else {
      return key;
    }
  }
}

}  // namespace ktx::tools
