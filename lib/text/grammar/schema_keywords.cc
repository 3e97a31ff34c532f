#include "lib/text/grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"
#include "lib/text/exact_json.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNotes = 8;

enum class Use { Used, Note, Refused };
struct Keyword {
  std::string_view name;
  Use use;
  std::string_view type;
  std::string_view neutral;
};
constexpr Keyword kKeywords[] = {
#define KTX_KEYWORD(name, use, type, neutral) {name, Use::use, type, neutral},
#include "lib/text/grammar/schema_keywords.def"
};

const Keyword* find_keyword(std::string_view name) {
  const auto row = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                [&](const Keyword& k) { return k.name == name; });
  return row == std::end(kKeywords) ? nullptr : row;
}

// Small letters without "_" and "-"; "minimum" and "maximum" in front of more are "min" and "max".
std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-') out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  const bool is_bound = out.starts_with("minimum") || out.starts_with("maximum");
  if (is_bound && out.size() > 7) out.erase(3, 4);
  return out;
}

// They differ by one letter that is missing, too much or another, or by two in the wrong order.
bool is_one_mistake(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) a.remove_prefix(1), b.remove_prefix(1);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);
  const bool swapped = a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
  return swapped || (a.size() <= 1 && b.size() <= 1);
}

// The keyword that was meant, where it says something about values; "" for a word of its own.
std::string_view misspelt(std::string_view name) {
  constexpr size_t kShortest = 6, kLongest = 40;
  if (name.size() < kShortest || name.size() > kLongest) return "";
  const std::string plain = plain_name(name);
  for (const Keyword& row : kKeywords) {
    if (row.use != Use::Note && is_one_mistake(plain, plain_name(row.name))) return row.name;
  }
  return "";
}

bool is_neutral(const Keyword& row, const Json& value) {
  if (row.neutral.empty()) return false;
  const std::vector<std::string_view> values = split(row.neutral, ' ');
  return std::any_of(values.begin(), values.end(),
                     [&](std::string_view text) { return value == Json::parse(text); });
}

}  // namespace

Error schema_error(const std::string& path, std::string_view what) {
  return Error{fmt::format("schema at {}: {}", printable(path, 200), what)};
}
Error wrong_type(const std::string& path, std::string_view keyword, const Json& value,
                 std::string_view wanted) {
  // Wide integers are kept in a form of their own.
  const char* type = value.is_binary() ? "number" : value.type_name();
  return schema_error(path, fmt::format("'{}' is {}, expected {}", keyword, type, wanted));
}

void add_note(std::string note, std::vector<std::string>* notes) {
  if (notes == nullptr || notes->size() == kMaxNotes) return;
  if (std::find(notes->begin(), notes->end(), note) == notes->end()) {
    notes->push_back(std::move(note));
  }
}

Status check_keywords(const Json& json, const std::string& path, std::vector<std::string>* notes) {
  for (const auto& [name, value] : json.items()) {
    const Keyword* row = find_keyword(name);
    if (row == nullptr) {
      if (name.starts_with("x-") || is_own_keyword(name)) continue;
      if (const std::string_view meant = misspelt(name); !meant.empty()) {
        return schema_error(
            path, fmt::format("unknown keyword '{}'; did you mean '{}'?", printable(name), meant));
      }
      add_note(schema_error(path,
                            fmt::format("unknown keyword '{}' is passed over", printable(name, 40)))
                   .message,
               notes);
      continue;
    }
    if (row->use == Use::Refused && !is_neutral(*row, value)) {
      return schema_error(path, fmt::format("keyword '{}' is not supported", name));
    }
  }
  return {};
}

bool is_note(std::string_view keyword) {
  const Keyword* row = find_keyword(keyword);
  return row == nullptr ? !is_own_keyword(keyword) : row->use == Use::Note;
}

bool says_nothing(const Json& json, std::string_view but) {
  for (const auto& [name, value] : json.items()) {
    const Keyword* row = find_keyword(name);
    const bool passed_over =
        row == nullptr ? !is_own_keyword(name) : row->use == Use::Note || is_neutral(*row, value);
    if (name != but && !passed_over) return false;
  }
  return true;
}

std::vector<std::string> types_of_keywords(const Json& schema) {
  std::vector<std::string> types;
  for (const Keyword& row : kKeywords) {
    if (row.use == Use::Used && !row.type.empty() && schema.contains(row.name) &&
        std::find(types.begin(), types.end(), row.type) == types.end()) {
      types.emplace_back(row.type);
    }
  }
  return types;
}

Result<std::vector<std::string>> type_names(const Json& json, const std::string& path) {
  std::vector<std::string> out;
  const Json& type = json["type"];
  const Json list = type.is_array() ? type : Json::array({type});
  for (const Json& name : list) {
    const std::vector<std::string> known = {"string", "number", "integer", "boolean",
                                            "null",   "array",  "object"};
    if (!name.is_string()) return wrong_type(path, "type", name, "a string or an array of them");
    const std::string text = name.get<std::string>();
    if (std::find(known.begin(), known.end(), text) == known.end()) {
      return schema_error(
          path, fmt::format("unknown type '{}'{}", printable(text), did_you_mean(text, known)));
    }
    out.push_back(text);
  }
  return out;
}

bool is_type(const Json& value, std::string_view type) {
  if (type == "integer") return value.is_number_integer() || is_wide(value);
  if (type == "number") return is_numeric(value);
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

}  // namespace ktx::text::grammar
