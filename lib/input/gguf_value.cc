// Typed, copying access to one metadata value.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lib/input/gguf.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// An integer of any width as sign and magnitude.
struct Integer {
  bool negative = false;
  uint64_t magnitude = 0;
};

template <class T>
Integer to_integer(T value) {
  if (value < T{0}) return {true, ~static_cast<uint64_t>(static_cast<int64_t>(value)) + 1};
  return {false, static_cast<uint64_t>(value)};
}

std::optional<Integer> load_integer(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::U8:
      return to_integer(load<uint8_t>(at));
    case GgufType::I8:
      return to_integer(load<int8_t>(at));
    case GgufType::U16:
      return to_integer(load<uint16_t>(at));
    case GgufType::I16:
      return to_integer(load<int16_t>(at));
    case GgufType::U32:
      return to_integer(load<uint32_t>(at));
    case GgufType::I32:
      return to_integer(load<int32_t>(at));
    case GgufType::U64:
      return to_integer(load<uint64_t>(at));
    case GgufType::I64:
      return to_integer(load<int64_t>(at));
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> as_i64(const Integer& value) {
  const uint64_t limit = uint64_t{1} << 63;
  if (value.negative) {
    if (value.magnitude > limit) return std::nullopt;
    return static_cast<int64_t>(~value.magnitude + 1);
  }
  if (value.magnitude >= limit) return std::nullopt;
  return static_cast<int64_t>(value.magnitude);
}

std::optional<double> load_number(GgufType type, const std::byte* at) {
  if (type == GgufType::F32) return load<float>(at);
  if (type == GgufType::F64) return load<double>(at);
  const auto integer = load_integer(type, at);
  if (!integer) return std::nullopt;
  const auto magnitude = static_cast<double>(integer->magnitude);
  return integer->negative ? -magnitude : magnitude;
}

}  // namespace

uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool:
      return 1;
    case GgufType::U16:
    case GgufType::I16:
      return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32:
      return 4;
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64:
      return 8;
    default:
      return 0;
  }
}

std::string_view name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<uint32_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::optional<uint64_t> GgufValue::u64() const {
  const auto value = load_integer(type, payload.data());
  if (!value || value->negative) return std::nullopt;
  return value->magnitude;
}

std::optional<int64_t> GgufValue::i64() const {
  const auto value = load_integer(type, payload.data());
  return value ? as_i64(*value) : std::nullopt;
}

std::optional<double> GgufValue::f64() const {
  return load_number(type, payload.data());
}

std::optional<float> GgufValue::f32() const {
  const auto value = f64();
  // Out of float's range would be undefined, so it becomes the infinity it is.
  if (value && std::isfinite(*value) && std::fabs(*value) > std::numeric_limits<float>::max()) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(*value > 0 ? 1 : -1));
  }
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean() const {
  if (type == GgufType::Bool) return load<uint8_t>(payload.data()) != 0;
  const auto value = u64();
  if (!value || *value > 1) return std::nullopt;
  return *value == 1;
}

std::optional<std::string_view> GgufValue::string() const {
  if (type != GgufType::String) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size());
}

std::optional<std::vector<int64_t>> GgufValue::ints() const {
  if (!is_array()) return std::nullopt;
  std::vector<int64_t> values;
  values.reserve(count);
  const uint64_t step = scalar_bytes(element_type);
  for (uint64_t i = 0; i < count; ++i) {
    const auto integer = load_integer(element_type, payload.data() + i * step);
    const auto value = integer ? as_i64(*integer) : std::nullopt;
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<bool>> GgufValue::booleans() const {
  if (!is_array() || element_type != GgufType::Bool) return std::nullopt;
  std::vector<bool> values;
  for (uint64_t i = 0; i < count; ++i) values.push_back(payload[i] != std::byte{0});
  return values;
}

std::optional<std::vector<float>> GgufValue::floats() const {
  if (!is_array()) return std::nullopt;
  std::vector<float> values;
  values.reserve(count);
  const uint64_t step = scalar_bytes(element_type);
  for (uint64_t i = 0; i < count; ++i) {
    GgufValue element{key, element_type, element_type, 1, payload.subspan(i * step, step)};
    const auto value = element.f32();
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<std::string_view>> GgufValue::strings() const {
  if (!is_array() || (element_type != GgufType::String && count > 0)) return std::nullopt;
  std::vector<std::string_view> values;
  values.reserve(count);
  ByteReader in(payload);
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = in.read<uint64_t>();
    const auto text = length ? in.take_text(*length) : std::nullopt;
    if (!text) return std::nullopt;  // only when the file changed under us
    values.push_back(*text);
  }
  return values;
}

std::string GgufValue::describe() const {
  if (is_array()) return fmt::format("array of {} {}", count, name(element_type));
  if (const auto text = string()) return fmt::format("string '{}'", printable(*text, 40));
  if (type == GgufType::Bool) return *boolean() ? "bool true" : "bool false";
  if (const auto integer = i64()) return fmt::format("{} {}", name(type), *integer);
  if (const auto integer = u64()) return fmt::format("{} {}", name(type), *integer);
  return fmt::format("{} {}", name(type), f64().value_or(0));
}

}  // namespace ktx::input
