// Parses a path typed in a chat: ~/talks/a.ktxsession, or "my notes.txt" in quotes.
#pragma once

#include <string>
#include <string_view>

namespace ktx::tools {

// Takes off a pair of quotes, which terminals put around a dropped file, and replaces ~ with the
// home folder where a shell would: in "~" and "~/...", outside of quotes. All else, also spaces and
// a shell's other special characters, stands for itself.
std::string path_argument(std::string_view text);

}  // namespace ktx::tools
