// A module graph's text, in which a layer that repeats an earlier one is a line: goldens say what a
// layer is once.
//
//   layer 5 as layer 1
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

namespace ktx::testing {

inline void replace_all(std::string& text, const std::string& mark, std::string_view value) {
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + value.size())) {
    text.replace(at, mark.size(), value);
  }
}

// `text`: as ir::print gives it.
inline std::string folded_layers(std::string_view text) {
  constexpr std::string_view kLayer = "module model.layers.";
  std::map<std::string, std::string> seen;  // number of a layer, by its text without the number
  std::string out, layer, number;
  const auto end_layer = [&] {
    if (layer.empty()) return;
    std::string plain = layer;
    replace_all(plain, "model.layers." + number, "model.layers.#");
    replace_all(plain, "blk." + number + ".", "blk.#.");
    replace_all(plain, " layer " + number + "\n", " layer #\n");
    const auto [first, is_new] = seen.try_emplace(plain, number);
    out += is_new ? layer : fmt::format("layer {} as layer {}\n", number, first->second);
    layer.clear();
  };
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    const std::string_view line = text.substr(at, end - at);
    at = end;
    if (line.starts_with("module ")) {
      const bool is_layer = line.starts_with(kLayer);
      const std::string_view rest = is_layer ? line.substr(kLayer.size()) : "";
      const std::string own(rest.substr(0, rest.find_first_not_of("0123456789")));
      if (!is_layer || own != number) end_layer();
      number = own;
      inside = is_layer && !own.empty();
    }
    (inside ? layer : out) += line;
  }
  end_layer();
  return out;
}

}  // namespace ktx::testing
