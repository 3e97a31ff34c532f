#include "lib/text/exact_json.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// Builds what the library's own parser does, but for wide integers.
class ExactReader final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary({text.begin(), text.end()}));
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
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  Json take() { return std::move(root_); }

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
    out += is_wide(value) ? wide_digits(value) : library_text(value);
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

Json parse_json(std::string_view text) {
  ExactReader reader;
  if (!Json::sax_parse(text, &reader)) return Json(Json::value_t::discarded);
  return reader.take();
}

bool is_wide(const Json& value) {
  return value.is_binary();
}
std::string wide_digits(const Json& value) {
  const Json::binary_t& bytes = value.get_binary();
  return {bytes.begin(), bytes.end()};
}
double number_value(const Json& value) {
  return is_wide(value) ? std::strtod(wide_digits(value).c_str(), nullptr) : value.get<double>();
}

std::string json_text(const Json& value) {
  if (!has_wide(value)) return library_text(value);
  std::string out;
  append(value, out);
  return out;
}

}  // namespace ktx::text
