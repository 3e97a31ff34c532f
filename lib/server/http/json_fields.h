// Parses a client's JSON within limits and reads it field by field.
//
//   const Json body = KTX_TRY(parse_body(request.body));
//   FieldReader in(body);
//   const double temperature = in.number("temperature", 1.0, 0, 2);
//   const int64_t n = in.whole("n", 1, 1, 16);
//   KTX_TRY(in.status());                        // the first wrong field
//
// Null counts as absent, because many clients send it that way. Safe for any bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/http/api_error.h"

namespace ktx::server {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonNesting = 64;

// Fails on a text that is no JSON object or no UTF-8, is nested too deep, has more members than
// can be compared in time, or more values than fit. Numbers that no double can hold are wide
// (lib/text/exact_json.h), which no field takes.
ApiResult<Json> parse_body(const std::string& text);

// JSON in a string of a body, with the same limits; discarded where it is none.
Json parse_nested(const std::string& text);

class FieldReader {
 public:
  // `path` stands before field names in messages: "options." for Ollama.
  explicit FieldReader(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const Json& all() const { return object_; }
  // The field's value; null when it is absent or null.
  const Json* get(const char* name);

  double number(const char* name, double otherwise, double low, double high);
  std::optional<double> maybe_number(const char* name, double low, double high);
  int64_t whole(const char* name, int64_t otherwise, int64_t low, int64_t high);
  std::optional<int64_t> maybe_whole(const char* name, int64_t low, int64_t high);
  // A count for which any large number says "no limit", as the largest integer of a client's
  // language does: one above kNoCountLimit, of 64 bits at most, is that.
  static constexpr int64_t kNoCountLimit = int64_t{1} << 40;
  std::optional<int64_t> maybe_count(const char* name, int64_t low);
  // Any 64 bits: what clients know as a negative number, too.
  std::optional<uint64_t> maybe_seed(const char* name);
  bool flag(const char* name, bool otherwise);
  std::string text(const char* name, const std::string& otherwise = "");
  // A string, or a list of strings; at most `most`.
  std::vector<std::string> texts(const char* name, size_t most);
  const Json* object(const char* name);
  const Json* list(const char* name);

  // Notes a mistake; the first one counts.
  void fail(const std::string& name, const std::string& message);
  const ApiStatus& status() const { return status_; }

 private:
  const Json& object_;
  std::string path_;
  ApiStatus status_;
};

// The member `key` when it is a string, else `otherwise`. (Json::value() throws on
// other types.) `object` may be anything.
std::string string_or(const Json& object, const char* key, const std::string& otherwise);

// 0.8, and not the 0.800000011920929 that is the nearest double of a float.
Json decimal(float value);

// A short form of a value for messages: `"abc…"`, `-1`, `a list`.
std::string show(const Json& value);

}  // namespace ktx::server
