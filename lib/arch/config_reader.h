// Typed and bounded access to a config for one family, with the family's defaults.
// Every failure goes to the sink with the key's name; the value is then 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/families/family.h"
#include "lib/input/hf_config.h"
#include "lib/support/diag.h"

namespace ktx::arch {

class ConfigReader {
 public:
  ConfigReader(const families::Family& family, const input::HfConfig& config, DiagSink& diags)
      : family_(family), config_(config), diags_(diags) {}

  // A key that must be there, or have a default.
  int64_t integer(std::string_view key, int64_t min, int64_t max);
  double number(std::string_view key, double min, double max);
  // One for each of `layers`: a number holds for all of them, a list has as many. Empty after a
  // failure.
  std::vector<int64_t> integers(std::string_view key, size_t layers, int64_t min, int64_t max);
  // Nothing for a null, or for an absent key without a default.
  std::optional<int64_t> integer_or_null(std::string_view key, int64_t min, int64_t max);
  std::optional<double> number_or_null(std::string_view key, double min, double max);
  std::optional<bool> flag(std::string_view key);
  std::string text(std::string_view key);  // "" like nothing

  bool has(std::string_view key) const;  // a value that is not null

  void fail(std::string what);
  void warn(std::string what);
  const input::HfConfig& config() const { return config_; }

 private:
  const char* default_of(std::string_view key) const;      // null: none
  const char* needed_default(std::string_view key) const;  // of a key that must be there
  int64_t whole_default(const char* text) const;
  bool in_range(std::string_view key, int64_t value, int64_t min, int64_t max);  // else it fails
  std::optional<int64_t> one_number(std::string_view key) const;  // or the same for every layer
  std::string found(std::string_view key) const;                  // "'abc'", for messages
  const char* for_layers(std::string_view key) const;             // of a list, for messages

  const families::Family& family_;
  const input::HfConfig& config_;
  DiagSink& diags_;
};

}  // namespace ktx::arch
