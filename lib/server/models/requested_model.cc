#include "lib/server/models/requested_model.h"

#include <fmt/format.h>
#include <strings.h>

#include "lib/server/http/json_fields.h"

namespace ktx::server {
namespace {

// Ends with the value of one field of the outermost object, where it is a text or a truth value.
class TopField final : public nlohmann::json_sax<Json> {
 public:
  explicit TopField(const char* name) : name_(name) {}
  std::string text;
  bool flag = false;

  bool null() override { return value(); }
  bool boolean(bool value_of_it) override {
    if (!is_it_) return true;
    flag = value_of_it;
    return false;
  }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& value_of_it) override {
    if (!is_it_) return true;
    text = std::move(value_of_it);
    return false;
  }
  bool start_object(size_t) override { return enter(); }
  bool key(string_t& name) override {
    is_it_ = depth_ == 1 && name == name_;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool value() {
    is_it_ = false;
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
  const std::string_view name_;
  int depth_ = 0;
  bool is_it_ = false;
};

}  // namespace

bool names_model(const std::string& own, const std::string& name) {
  constexpr std::string_view kHub = "hf.co/";
  if (name.starts_with("hf:")) return names_model(own, fmt::format("{}{}", kHub, name.substr(3)));
  const auto is = [&](const std::string& a, const std::string& b) {
    return a == b ||
           (a.size() == b.size() && own.starts_with(kHub) && strcasecmp(a.c_str(), b.c_str()) == 0);
  };
  return is(name, own) || is(name, own + ":latest") || is(name + ":latest", own);
}

std::string requested_model(const HttpRequest& request) {
  std::string name = request.query_value("model");
  if (!name.empty() || request.body.empty()) return name;
  TopField field("model");
  Json::sax_parse(request.body, &field);
  return std::move(field.text);
}

bool wants_stream(const HttpRequest& request) {
  TopField field("stream");
  Json::sax_parse(request.body, &field);
  return field.flag;
}

}  // namespace ktx::server
