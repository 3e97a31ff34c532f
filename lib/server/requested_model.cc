#include "lib/server/requested_model.h"

#include <nlohmann/json.hpp>

namespace ktx::server {
namespace {

using Json = nlohmann::json;

// Ends with the value of "model" of the outermost object.
class ModelField final : public nlohmann::json_sax<Json> {
 public:
  std::string found;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& text) override {
    if (!is_model_) return true;
    found = std::move(text);
    return false;
  }
  bool start_object(size_t) override { return enter(); }
  bool key(string_t& name) override {
    is_model_ = depth_ == 1 && name == "model";
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool value() {
    is_model_ = false;
    return true;
  }
  bool enter() {
    ++depth_;
    return value();
  }
  bool leave() {
    --depth_;
    return true;
  }
  int depth_ = 0;
  bool is_model_ = false;
};

}  // namespace

std::string requested_model(const HttpRequest& request) {
  std::string name = request.query_value("model");
  if (!name.empty() || request.body.empty()) return name;
  ModelField field;
  Json::sax_parse(request.body, &field);
  return std::move(field.found);
}

}  // namespace ktx::server
