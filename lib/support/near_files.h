// Suggests a file for a path that does not exist: the nearest name in its folder.
//
//   nearest_file("models/Lama.gguf")  -> "models/llama.gguf"
//
// For messages to a person at a terminal; never for a path that a client of the server sent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx {

// The file of the same folder whose name differs in case, in a few letters, or in its
// extension alone; else the only one there with this extension. "" when there is none.
std::string nearest_file(const std::string& path);

// The files of a folder with this extension (".gguf"), sorted; at most 10,000 entries are seen.
std::vector<std::string> files_of_folder(const std::string& folder, std::string_view extension);

}  // namespace ktx
