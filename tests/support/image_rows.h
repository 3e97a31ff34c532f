// What transformers gives for images (tests/models/images, by make_image_rows.py), and what reads
// the files.
//
//   ExpectedRows wanted = expected_rows("small");
//   expect_near(rows, wanted["rows"], every);
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ktx::testing {

// "rows 0.5 ..." by its first word.
using ExpectedRows = std::map<std::string, std::vector<double>>;
inline ExpectedRows expected_rows(const char* name) {
  std::ifstream in(fmt::format("{}/tests/models/images/{}.txt", source_dir(), name));
  ExpectedRows lists;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    for (double value = 0; words >> value;) lists[key].push_back(value);
  }
  return lists;
}

// Each `every`-th number is the one wanted, within 1e-4 of the largest.
inline void expect_near(std::span<const float> got, const std::vector<double>& wanted,
                        size_t every) {
  ASSERT_EQ((got.size() + every - 1) / every, wanted.size());
  double most = 0;
  for (const double value : wanted) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(got[i * every], wanted[i], 1e-4 * most) << i;
  }
}

}  // namespace ktx::testing
