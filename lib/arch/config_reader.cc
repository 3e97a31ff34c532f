#include "lib/arch/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

template <class T>
bool same_everywhere(const std::vector<T>& list) {
  return !list.empty() && std::ranges::count(list, list.front()) == std::ssize(list);
}

}  // namespace

void ConfigReader::fail(std::string what) {
  diags_.error({.file = config_.file()}, "", config_.in_own_words(std::move(what)));
}

void ConfigReader::warn(std::string what) {
  diags_.warning({.file = config_.file()}, "", config_.in_own_words(std::move(what)));
}

const char* ConfigReader::default_of(std::string_view key) const {
  const char* value = family_.find_default(key);
  return value == nullptr || std::string_view(value) == "null" ? nullptr : value;
}

// "8" or "4*hidden_size".
int64_t ConfigReader::whole_default(const char* text) const {
  char* rest = nullptr;
  const int64_t number = std::strtoll(text, &rest, 10);
  constexpr int64_t kMostOther = int64_t{1} << 40;
  if (*rest != '*') return number;
  const int64_t other = config_.i64(rest + 1).value_or(0);
  return other > 0 && other < kMostOther ? number * other : 0;
}

// A GGUF always says what its readers need: what a config.json may leave out does not hold for it.
const char* ConfigReader::needed_default(std::string_view key) const {
  const families::ConfigKey* row = config_.is_of_gguf() ? family_.find_config_key(key) : nullptr;
  const bool always = row != nullptr && row->gguf_key[0] != '\0' && row->gguf_absent[0] == '\0';
  return always ? nullptr : default_of(key);
}

std::string ConfigReader::found(std::string_view key) const {
  const input::ConfigValue* value = config_.find(key);
  return value == nullptr ? "nothing" : printable(input::describe_layers(value->value));
}

const char* ConfigReader::for_layers(std::string_view key) const {
  return config_.floats(key) ? ", the same for every layer" : "";
}

std::optional<double> ConfigReader::number_or_null(std::string_view key, double min, double max) {
  std::optional<double> value;
  if (!config_.has(key)) {
    const char* text = default_of(key);
    if (text == nullptr) return std::nullopt;
    value = std::strtod(text, nullptr);
  } else {
    if (config_.is_null(key)) return std::nullopt;
    value = config_.f64(key);
    if (const auto list = config_.floats(key); list && same_everywhere(*list))
      value = list->front();
    if (!value) {
      fail(fmt::format("'{}' is {}, expected a number{}", key, found(key), for_layers(key)));
      return std::nullopt;
    }
  }
  if (!(*value >= min && *value <= max)) {
    fail(fmt::format("'{}' is {}, expected {} to {}", key, *value, min, max));
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> ConfigReader::one_number(std::string_view key) const {
  if (const auto number = config_.i64(key)) return number;
  const auto list = config_.ints(key);
  return list && same_everywhere(*list) ? std::optional(list->front()) : std::nullopt;
}

bool ConfigReader::in_range(std::string_view key, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return true;
  fail(fmt::format("'{}' is {}, expected {} to {}", key, value, min, max));
  return false;
}

std::optional<int64_t> ConfigReader::integer_or_null(std::string_view key, int64_t min,
                                                     int64_t max) {
  std::optional<int64_t> value = one_number(key);
  if (config_.has(key) && !config_.is_null(key) && !value) {
    fail(fmt::format("'{}' is {}, expected an integer{}", key, found(key), for_layers(key)));
    return std::nullopt;
  }
  if (!value && !config_.has(key) && default_of(key) != nullptr) {
    value = whole_default(default_of(key));
  }
  if (value && !in_range(key, *value, min, max)) return std::nullopt;
  return value;
}

int64_t ConfigReader::integer(std::string_view key, int64_t min, int64_t max) {
  // A null where a number is needed counts as absent.
  if (config_.is_null(key) && needed_default(key) != nullptr) {
    const int64_t value = whole_default(needed_default(key));
    return in_range(key, value, min, max) ? value : 0;
  }
  if (!config_.has(key) || config_.is_null(key)) {
    if (needed_default(key) == nullptr) {
      fail(fmt::format("'{}' is missing; {} needs it", key, family_.architecture));
      return 0;
    }
  }
  return integer_or_null(key, min, max).value_or(0);
}

bool ConfigReader::has(std::string_view key) const {
  return config_.has(key) && !config_.is_null(key);
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, size_t layers, int64_t min,
                                            int64_t max) {
  const auto list = config_.ints(key);
  if (!list) {
    const int64_t value = integer(key, min, max);
    return value < min ? std::vector<int64_t>() : std::vector<int64_t>(layers, value);
  }
  if (list->size() != layers) {
    fail(fmt::format("'{}' has {} numbers, expected one, or one for each of {} layers", key,
                     list->size(), layers));
    return {};
  }
  for (size_t i = 0; i < layers; ++i) {
    if ((*list)[i] >= min && (*list)[i] <= max) continue;
    fail(fmt::format("'{}' is {} in layer {}, expected {} to {}", key, (*list)[i], i, min, max));
    return {};
  }
  return *list;
}

double ConfigReader::number(std::string_view key, double min, double max) {
  if (config_.is_null(key) && needed_default(key) != nullptr)
    return std::strtod(needed_default(key), nullptr);
  if ((!config_.has(key) || config_.is_null(key)) && needed_default(key) == nullptr) {
    fail(fmt::format("'{}' is missing; {} needs it", key, family_.architecture));
    return 0;
  }
  return number_or_null(key, min, max).value_or(0);
}

std::optional<bool> ConfigReader::flag(std::string_view key) {
  if (config_.has(key) && !config_.is_null(key)) {
    const std::optional<bool> value = config_.boolean(key);
    if (!value) fail(fmt::format("'{}' is {}, expected true or false", key, found(key)));
    return value;
  }
  const char* text = default_of(key);
  if (text == nullptr) return std::nullopt;
  return std::string_view(text) == "true";
}

std::string ConfigReader::text(std::string_view key) {
  if (config_.has(key) && !config_.is_null(key)) {
    const std::optional<std::string> value = config_.string(key);
    if (!value) fail(fmt::format("'{}' is {}, expected a text", key, found(key)));
    return value.value_or("");
  }
  const char* text = default_of(key);
  if (text == nullptr) return "";
  std::string_view value = text;  // "\"greedy\""
  value.remove_prefix(1);
  value.remove_suffix(1);
  return std::string(value);
}

}  // namespace ktx::arch
