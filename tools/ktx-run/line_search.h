// Ctrl-R: looks for an earlier line by a part of it.
//
//   search 'fox': Tell me a story about a fox.
//
// What is typed is looked for as it stands, newest lines first; Ctrl-R again finds an older
// one. Escape, Ctrl-G and Ctrl-C bring back what had been written.
#pragma once

#include "tools/ktx-run/key_reader.h"
#include "tools/ktx-run/line_buffer.h"
#include "tools/ktx-run/line_history.h"
#include "tools/ktx-run/line_view.h"

namespace ktx::tools {

inline constexpr const char* kSearchKey = "\x12";

// Leaves the line that was found in `buffer`, and returns the key that ended the search: for
// the caller to handle. Without bytes: there is nothing to handle.
Key search_history(KeyReader& keys, LineView& view, const LineHistory& history, LineBuffer& buffer);

}  // namespace ktx::tools
