// The models without trained weights: folders of tests/models/synthetic with a config.json, and
// what transformers makes of their weights (logits.txt, of encoders vectors.txt). A folder that is
// added is built, compiled and compared by the tests that read this list.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ktx::testing {

// Those with this file, by name.
inline std::vector<std::string> synthetic_folders(const std::string& with = "config.json") {
  std::vector<std::string> names;
  const std::string root = source_dir() + "/tests/models/synthetic";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (std::filesystem::exists(entry.path() / with)) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace ktx::testing
