// The fingerprints by which GitHub's code scanning recognises a finding when lines before it
// change: `primaryLocationLineHash` of each line of a text.
//
//   line_fingerprints("a\n\na\n")  ->  one for each of the lines 1 to 4, "hash:count"
//
// The hash is that of the upload action, which warns about any other: a polynomial over the 100
// UTF-16 units from the start of the line, without spaces and tabs. `count` distinguishes lines
// with the same hash.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx::tools {

std::vector<std::string> line_fingerprints(std::string_view text);

}  // namespace ktx::tools
