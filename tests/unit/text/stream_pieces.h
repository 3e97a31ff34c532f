// Feeds a text to a stream (add, finish) in every relevant split: whole, byte by byte, and at
// random places.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::testing {

// All cuts of `text` that a test tries; the first is the text as one piece.
inline std::vector<std::vector<std::string>> cuts(std::string_view text, int random_cuts = 20) {
  std::vector<std::vector<std::string>> out;
  out.push_back({std::string(text)});
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  out.push_back(bytes);
  std::mt19937 random(static_cast<unsigned>(text.size()) * 7919u + 1);
  for (int i = 0; i < random_cuts; ++i) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 9;
      pieces.emplace_back(text.substr(at, n));
      at += n;
    }
    out.push_back(std::move(pieces));
  }
  return out;
}

}  // namespace ktx::testing
