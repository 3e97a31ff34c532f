// Readers of option values: a column of the tables of options.
//
//   KTX_OPTION("ctx", "N", kRuns, "Memory", count(1, kMaxCtx), engine.ctx, "tokens ...")
//
// A reader converts the values into a field of the tool's Options, or adds a message with the
// valid forms.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lib/support/quantity.h"
#include "tools/command_line.h"

namespace ktx::tools {

using Mistakes = std::vector<std::string>;

inline constexpr int64_t kMaxSizeBytes = int64_t{1} << 50;
inline constexpr int64_t kMaxCtx = int64_t{1} << 24;  // what the engine takes
inline constexpr int64_t kLargestCtx = -1;            // "max": the largest that fits

struct SwitchReader {
  static constexpr Form kForm = Form::Switch;
};
struct TextReader {
  static constexpr Form kForm = Form::Value;
};
struct TextsReader {
  static constexpr Form kForm = Form::Repeated;
};
struct PartsReader {
  static constexpr Form kForm = Form::List;
};
struct PrefixReader {
  static constexpr Form kForm = Form::Prefix;
};
struct NumberReader {
  static constexpr Form kForm = Form::Value;
  int64_t low, high;
  bool units;
};
struct NumbersReader {
  static constexpr Form kForm = Form::List;
  NumberReader each;
};
struct ContextReader {  // a count, or "max"
  static constexpr Form kForm = Form::Value;
};
struct SeedReader {
  static constexpr Form kForm = Form::Value;
};
struct SizeReader {
  static constexpr Form kForm = Form::Value;
};
struct RealReader {
  static constexpr Form kForm = Form::Value;
  double low, high;
};
// One of the words of the option's `value` column; into a bool: whether it is the second.
struct ChoiceReader {
  static constexpr Form kForm = Form::Value;
  std::string_view words;
};

constexpr SwitchReader on_off() {
  return {};
}
constexpr TextReader text() {
  return {};
}
constexpr TextsReader texts() {
  return {};
}
constexpr PartsReader parts() {
  return {};
}
constexpr PrefixReader prefix() {
  return {};
}
constexpr NumberReader whole(int64_t low, int64_t high) {
  return {low, high, false};
}
constexpr NumberReader count(int64_t low, int64_t high) {
  return {low, high, true};
}
constexpr NumbersReader wholes(int64_t low, int64_t high) {
  return {{low, high, false}};
}
constexpr NumbersReader counts(int64_t low, int64_t high) {
  return {{low, high, true}};
}
constexpr ContextReader context() {
  return {};
}
constexpr SeedReader seed() {
  return {};
}
constexpr SizeReader size() {
  return {};
}
constexpr RealReader real(double low, double high) {
  return {low, high};
}
constexpr ChoiceReader choice(std::string_view words) {
  return {words};
}

// The values of `given`; nothing, and a message, where one is none.
std::optional<bool> read_switch(const Given& given, Mistakes& mistakes);
std::optional<int64_t> read_number(const NumberReader& reader, const std::string& shown,
                                   const std::string& value, Mistakes& mistakes);
std::optional<int64_t> read_context(const Given& given, Mistakes& mistakes);
std::optional<uint64_t> read_seed(const Given& given, Mistakes& mistakes);
std::optional<int64_t> read_size(const Given& given, Mistakes& mistakes);
std::optional<double> read_real(const RealReader& reader, const Given& given, Mistakes& mistakes);
// The place among the words.
std::optional<size_t> read_choice(const ChoiceReader& reader, const Given& given,
                                  Mistakes& mistakes);

inline void read(SwitchReader, const Given& given, bool& out, Mistakes& mistakes) {
  out = read_switch(given, mistakes).value_or(out);
}
template <class Text>  // std::string, or an optional one
void read(TextReader, const Given& given, Text& out, Mistakes&) {
  out = given.values.back();
}
inline void read(TextsReader, const Given& given, std::vector<std::string>& out, Mistakes&) {
  out = given.values;
}
inline void read(PartsReader, const Given& given, std::vector<std::string>& out, Mistakes&) {
  out = given.values;
}
inline void read(PrefixReader, const Given& given, std::vector<std::string>& out, Mistakes&) {
  out = given.values;
}
template <class T>
void read(const NumberReader& reader, const Given& given, T& out, Mistakes& mistakes) {
  const auto value = read_number(reader, given.shown, given.values.back(), mistakes);
  if (value) out = static_cast<T>(*value);
}
template <class T>
void read_all(const NumbersReader& reader, const Given& given, std::vector<T>& out,
              Mistakes& mistakes) {
  out.clear();
  for (const std::string& text : given.values) {
    const auto value = read_number(reader.each, given.shown, text, mistakes);
    if (value) out.push_back(static_cast<T>(*value));
  }
}
template <class T>
void read(const NumbersReader& reader, const Given& given, std::vector<T>& out,
          Mistakes& mistakes) {
  read_all(reader, given, out, mistakes);
}
template <class T>
void read(const NumbersReader& reader, const Given& given, std::optional<std::vector<T>>& out,
          Mistakes& mistakes) {
  read_all(reader, given, out.emplace(), mistakes);
}
inline void read(ContextReader, const Given& given, int64_t& out, Mistakes& mistakes) {
  out = read_context(given, mistakes).value_or(out);
}
inline void read(SeedReader, const Given& given, std::optional<uint64_t>& out, Mistakes& mistakes) {
  out = read_seed(given, mistakes);
}
inline void read(SizeReader, const Given& given, int64_t& out, Mistakes& mistakes) {
  out = read_size(given, mistakes).value_or(out);
}
inline void read(const RealReader& reader, const Given& given, double& out, Mistakes& mistakes) {
  out = read_real(reader, given, mistakes).value_or(out);
}
inline void read(const ChoiceReader& reader, const Given& given, bool& out, Mistakes& mistakes) {
  if (const auto place = read_choice(reader, given, mistakes)) out = *place == 1;
}
inline void read(const ChoiceReader& reader, const Given& given, std::string& out,
                 Mistakes& mistakes) {
  if (read_choice(reader, given, mistakes)) out = given.values.back();
}

}  // namespace ktx::tools
