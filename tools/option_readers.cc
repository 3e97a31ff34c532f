#include "tools/option_readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "lib/support/strings.h"

namespace ktx::tools {

std::optional<bool> read_switch(const Given& given, Mistakes& mistakes) {
  const std::string& value = given.values.back();
  for (const char* yes : {"on", "true", "yes", "1", "True", "TRUE"}) {
    if (value == yes) return true;
  }
  for (const char* no : {"off", "false", "no", "0", "False", "FALSE"}) {
    if (value == no) return false;
  }
  mistakes.push_back(
      fmt::format("{} takes no value, or on or off, not '{}'", given.shown, printable(value)));
  return std::nullopt;
}

std::optional<int64_t> read_number(const NumberReader& reader, const std::string& shown,
                                   const std::string& value, Mistakes& mistakes) {
  const auto number = reader.units ? parse_count(value, reader.low, reader.high)
                                   : parse_whole(value, reader.low, reader.high);
  if (number) return number;
  const char* units = reader.units && reader.high >= 1024 ? "; 32k is 32768" : "";
  mistakes.push_back(fmt::format("{} takes a whole number from {} to {}, not '{}'{}", shown,
                                 reader.low, reader.high, printable(value), units));
  return std::nullopt;
}

std::optional<int64_t> read_context(const Given& given, Mistakes& mistakes) {
  const std::string& text = given.values.back();
  if (text == "max") return kLargestCtx;
  const auto number = parse_count(text, 1, kMaxCtx);
  if (!number) {
    mistakes.push_back(
        fmt::format("{} takes a whole number from 1 to {}, or max, not '{}'; 32k is 32768",
                    given.shown, kMaxCtx, printable(text)));
  }
  return number;
}

std::optional<uint64_t> read_seed(const Given& given, Mistakes& mistakes) {
  const std::string& text = given.values.back();
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  mistakes.push_back(fmt::format("{} takes a whole number from 0 to {}, not '{}'", given.shown,
                                 UINT64_MAX, printable(text)));
  return std::nullopt;
}

std::optional<int64_t> read_size(const Given& given, Mistakes& mistakes) {
  const std::string& text = given.values.back();
  const std::optional<int64_t> size = parse_size(text, kMaxSizeBytes);
  if (!size) {
    mistakes.push_back(fmt::format("{} takes a size {}, up to 1024TiB, not '{}'", given.shown,
                                   kSizeForms, printable(text)));
  }
  return size;
}

std::optional<double> read_real(const RealReader& reader, const Given& given, Mistakes& mistakes) {
  const std::string& text = given.values.back();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (number && value >= reader.low && value <= reader.high) return value;
  mistakes.push_back(fmt::format("{} takes a number from {:g} to {:g}, such as {:g}, not '{}'",
                                 given.shown, reader.low, reader.high,
                                 std::clamp(0.7, reader.low, reader.high), printable(text)));
  return std::nullopt;
}

std::optional<size_t> read_choice(const ChoiceReader& reader, const Given& given,
                                  Mistakes& mistakes) {
  const std::vector<std::string_view> words = split(reader.words, '|');
  const auto found = std::find(words.begin(), words.end(), given.values.back());
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  mistakes.push_back(fmt::format("{} takes {}, not '{}'", given.shown, fmt::join(words, " or "),
                                 printable(given.values.back())));
  return std::nullopt;
}

}  // namespace ktx::tools
