#include "lib/text/exact_json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

Json wide(std::string_view text) {
  return Json::binary({text.begin(), text.end()});
}

// A number beyond all doubles, and how many stand before it in its text.
struct EndlessNumber {
  size_t index = 0;
  std::string_view text;
};

// Where the longest number of JSON ends that begins at `at`, with a digit or a minus.
size_t number_end(std::string_view text, size_t at) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  const auto skip_digits = [&] {
    while (is_digit(at)) ++at;
  };
  if (text[at] == '-') ++at;
  if (at < text.size() && text[at] == '0') {
    ++at;
  } else {
    skip_digits();
  }
  if (at < text.size() && text[at] == '.' && is_digit(at + 1)) {
    ++at;
    skip_digits();
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const bool has_sign = at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-');
    if (is_digit(at + 1 + (has_sign ? 1 : 0))) {
      at += has_sign ? 2 : 1;
      skip_digits();
    }
  }
  return at;
}

// Replaces numbers beyond all doubles with a 0 and blanks.
std::vector<EndlessNumber> take_endless(std::string_view text, std::string& without) {
  constexpr size_t kFiniteDigits = 300;
  std::vector<EndlessNumber> out;
  size_t index = 0;
  without = text;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    }
    if (at >= text.size() || (text[at] != '-' && (text[at] < '0' || text[at] > '9'))) continue;
    const size_t end = number_end(text, at);
    const std::string_view number = text.substr(at, end - at);
    const bool may_be = number.size() > kFiniteDigits || number.find_first_of("eE") != number.npos;
    if (may_be && std::isinf(std::strtod(std::string(number).c_str(), nullptr))) {
      out.push_back({index, number});
      without.replace(at, number.size(), number.size(), ' ');
      without[at] = '0';
    }
    ++index;
    at = end - 1;
  }
  return out;
}

// Builds what the library's own parser does, but for wide numbers.
class ExactReader final : public nlohmann::json_sax<Json> {
 public:
  explicit ExactReader(std::span<const EndlessNumber> endless = {}) : endless_(endless) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add_number(value); }
  bool number_unsigned(number_unsigned_t value) override { return add_number(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return add_number(text.find_first_of(".eE") != std::string::npos ? Json(value) : wide(text));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    met_endless_ = error.id == kOutOfRange;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    const std::string text = error.what();
    const size_t colon = text.find(": ");
    fault_ = {at, colon == std::string::npos ? text : text.substr(colon + 2)};
    return false;
  }

  Json take() { return std::move(root_); }
  bool met_endless() const { return met_endless_; }
  const JsonFault& fault() const { return fault_; }

 private:
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& outer = *open_.back();
    if (outer.is_array()) {
      outer.push_back(std::move(value));
      return &outer.back();
    }
    Json& member = outer[key_];
    member = std::move(value);
    return &member;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool add_number(Json value) {
    const bool is_endless = !endless_.empty() && endless_.front().index == numbers_++;
    if (!is_endless) return add(std::move(value));
    const std::string_view text = endless_.front().text;
    endless_ = endless_.subspan(1);
    return add(wide(text));
  }
  bool open(Json value) {
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // from the outside; only the last one grows, so the others stay
  std::string key_;
  std::span<const EndlessNumber> endless_;  // those to come
  size_t numbers_ = 0;
  bool met_endless_ = false;
  JsonFault fault_;
};

bool has_wide(const Json& value) {
  if (!value.is_structured()) return is_wide(value);
  return std::any_of(value.begin(), value.end(), has_wide);
}

std::string library_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append(const Json& value, std::string& out) {
  if (!value.is_structured()) {
    out += is_wide(value) ? wide_text(value) : library_text(value);
    return;
  }
  out += value.is_object() ? '{' : '[';
  const char* separator = "";
  for (const auto& [key, item] : value.items()) {
    out += std::exchange(separator, ",");
    if (value.is_object()) out += library_text(Json(key)) + ":";
    append(item, out);
  }
  out += value.is_object() ? '}' : ']';
}

}  // namespace

Json parse_json(std::string_view text, JsonFault* fault) {
  const auto read = [&](std::string_view json, ExactReader& reader) {
    const bool good = Json::sax_parse(json, &reader);
    if (!good && fault != nullptr) *fault = reader.fault();
    return good ? reader.take() : Json(Json::value_t::discarded);
  };
  ExactReader reader;
  Json json = read(text, reader);
  if (!reader.met_endless()) return json;
  std::string without;
  const std::vector<EndlessNumber> endless = take_endless(text, without);
  ExactReader again(endless);
  return read(without, again);
}

bool is_wide(const Json& value) {
  return value.is_binary();
}
std::string wide_text(const Json& value) {
  const Json::binary_t& bytes = value.get_binary();
  return {bytes.begin(), bytes.end()};
}
double number_value(const Json& value) {
  return is_wide(value) ? std::strtod(wide_text(value).c_str(), nullptr) : value.get<double>();
}

std::string json_text(const Json& value) {
  if (!has_wide(value)) return library_text(value);
  std::string out;
  append(value, out);
  return out;
}

}  // namespace ktx::text
