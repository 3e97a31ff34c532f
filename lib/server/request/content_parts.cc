#include "lib/server/request/content_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/http/base64.h"
#include "lib/server/request/request_headers.h"
#include "lib/text/utf8.h"

namespace ktx::server {
namespace {

constexpr std::string_view kSignature = "ktx1.";

// Only their own server can read these.
bool is_opaque(const std::string& key, const Json& value) {
  static constexpr std::string_view kKeys[] = {"cache_control", "caller", "signature",
                                               "fingerprint"};
  if (key.starts_with("encrypted_") || std::count(std::begin(kKeys), std::end(kKeys), key) > 0) {
    return true;
  }
  constexpr size_t kLongestWord = 512;  // a longer one is no text: bytes in base64
  return value.is_string() && value.get_ref<const std::string&>().size() > kLongestWord &&
         value.get_ref<const std::string&>().find_first_of(" \n") == std::string::npos;
}

Json readable(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(readable(item));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [key, member] : value.items()) {
    if (!is_opaque(key, member)) object[key] = readable(member);
  }
  return object;
}

// The text of a file in base64, with or without "data:text/plain;base64,"; nothing for what is no
// text.
std::optional<std::string> text_of_file(std::string_view data) {
  if (data.starts_with("data:")) {
    const size_t comma = data.find(',');
    if (comma == data.npos || !data.substr(0, comma).ends_with(";base64")) return std::nullopt;
    data.remove_prefix(comma + 1);
  }
  std::optional<std::string> text = from_base64(data);
  if (!text || text->find('\0') != text->npos || text->starts_with("%PDF") ||
      text::valid_utf8_prefix(*text) != text->size()) {
    return std::nullopt;
  }
  return text;
}

ApiStatus cannot_read(const HeldRow& row, const std::string& type, const ContentPlace& place,
                      ContentText& out) {
  if (!place.own) {
    out.text += left_out(row, place.images != nullptr);
    return {};
  }
  return bad_place(place.where,
                   fmt::format("is of type '{}': {} input is not supported, this model reads {} "
                               "only{}",
                               type, row.name, place.images ? "text and images" : "text",
                               row.as == HeldAs::Image
                                   ? "; where there is a projector for it (mmproj), compile it "
                                     "with that: ktx-compile --mmproj FILE"
                                   : ""));
}

// A document of Anthropic's, a search result, a file of OpenAI's: all with a title and one of a
// text, parts or bytes.
ApiStatus read_document(const HeldRow& row, const Json& part, const ContentPlace& place,
                        Notes& notes, ContentText& out) {
  const std::string type = string_or(part, "type", "");
  const auto member = [&](const char* name) -> const Json& {
    const auto found = part.find(name);
    return found != part.end() && found->is_object() ? *found : part;
  };
  const Json& source = type == "document" ? member("source") : member("file");
  std::string title = string_or(part, "title", string_or(source, "filename", ""));
  if (type == "search_result") title += title.empty() ? "" : ", ";
  if (type == "search_result") title += string_or(part, "source", "");
  const std::string form = string_or(source, "type", "");
  ContentText inner;
  std::optional<std::string> bytes;
  if (type == "document" && form == "text") {
    inner.text = string_or(source, "data", "");
  } else if (source.contains("content")) {
    const std::string at = type == "document" ? ".source.content" : ".content";
    const ContentPlace within = {place.protocol, place.where + at, place.own, false, place.images};
    KTX_TRY(read_content(source["content"], within, notes, inner));
  } else if (type == "document" && form == "base64") {
    bytes = string_or(source, "data", "");
  } else if (source.contains("file_data")) {
    bytes = string_or(source, "file_data", "");
  } else {
    return cannot_read(row, type, place, out);
  }
  if (bytes) {
    std::optional<std::string> text = text_of_file(*bytes);
    if (!text) return cannot_read(row, type, place, out);
    inner.text = std::move(*text);
  }
  const std::string context = string_or(part, "context", "");
  out.text += fmt::format("<document{}>\n{}{}{}\n</document>\n",
                          title.empty() ? "" : fmt::format(" title={}", dump(Json(title))), context,
                          context.empty() ? "" : "\n", inner.text);
  return {};
}

ApiStatus read_reasoning_part(const Json& part, const ContentPlace& place, Notes& notes,
                              ContentText& out) {
  const char* key = part.contains("text") ? "text" : "thinking";
  const auto thinking = part.find(key);
  ContentText inner;
  if (thinking != part.end()) {
    const ContentPlace within = {place.protocol, fmt::format("{}.{}", place.where, key), false,
                                 false};
    KTX_TRY(read_content(*thinking, within, notes, inner));
  }
  const std::string signature = string_or(part, "signature", "");
  if (inner.text.empty() && signature.starts_with(kSignature)) {
    inner.text = from_base64(std::string_view(signature).substr(kSignature.size())).value_or("");
    if (text::valid_utf8_prefix(inner.text) != inner.text.size()) inner.text.clear();
  }
  out.reasoning += inner.text;
  return {};
}

}  // namespace

std::string sign_reasoning(const std::string& reasoning) {
  return std::string(kSignature) + to_base64(reasoning);
}

std::string left_out(const HeldRow& row, bool sees) {
  const bool hidden = row.as == HeldAs::Replaced;
  return fmt::format("[{} left out: {}]", row.name,
                     hidden ? "it cannot be read here"
                     : sees ? "this model reads text and images only"
                            : "this model reads text only");
}

std::string as_json(const Json& part) {
  Json rest = readable(part);
  for (const char* key : {"id", "type", "status", "call_id", "tool_use_id"}) rest.erase(key);
  return fmt::format("[{} {}]\n", string_or(part, "type", ""), dump(rest));
}

ApiStatus read_part(const Json& part, const ContentPlace& place, Notes& notes, ContentText& out) {
  if (part.is_string()) {
    out.text += part.get_ref<const std::string&>();
    return {};
  }
  if (!part.is_object()) {
    return bad_place(place.where, fmt::format("is {}, expected an object", show(part)));
  }
  const auto given = part.find("type");
  const std::string type =
      given == part.end() || given->is_null() ? "text" : string_or(part, "type", "");
  const HeldRow* row = find_held(place.protocol, Held::Part, type);
  if (row == nullptr) return refuse_held(place.protocol, Held::Part, type, place.where);
  const auto add_text = [&](const char* key) -> ApiStatus {
    const auto text = part.find(key);
    if (text != part.end() && text->is_null()) return {};
    if (text == part.end() || !text->is_string()) {
      return bad_place(place.where, fmt::format("is a part without {}", key));
    }
    const std::string& said = text->get_ref<const std::string&>();
    // Nothing stands before it: the header of a request may.
    out.text +=
        place.begins_prompt && out.text.empty() ? without_request_headers(said, notes) : said;
    return {};
  };
  switch (row->as) {
    case HeldAs::Text:
      return add_text("text");
    case HeldAs::Refusal:
      return add_text("refusal");
    case HeldAs::Reasoning:
      return read_reasoning_part(part, place, notes, out);
    case HeldAs::Summary:
      out.text += string_or(part, "content", "");
      return {};
    case HeldAs::Document:
      return read_document(*row, part, place, notes, out);
    case HeldAs::ToolName:
      out.text += fmt::format("The tool '{}' can be called.\n", string_or(part, "tool_name", ""));
      return {};
    case HeldAs::AsJson:
      out.text += as_json(part);
      return {};
    case HeldAs::Image:
      if (place.images != nullptr) return place.images->add(part, place.where, out.text);
      return cannot_read(*row, type, place, out);
    case HeldAs::Media:
      return cannot_read(*row, type, place, out);
    case HeldAs::Replaced:
      out.text += left_out(*row);
      return {};
    case HeldAs::Skipped:
      note_skipped(*row, place.where, notes);
      return {};
    default:  // calls and results, where they cannot stand
      return bad_place(place.where, fmt::format("is of type '{}', which cannot stand there", type));
  }
}

ApiStatus read_content(const Json& content, const ContentPlace& place, Notes& notes,
                       ContentText& out) {
  if (content.is_null()) return {};
  if (content.is_string()) {
    const std::string& text = content.get_ref<const std::string&>();
    out.text += place.begins_prompt ? without_request_headers(text, notes) : text;
    return {};
  }
  if (!content.is_array()) {
    return bad_place(place.where,
                     fmt::format("is {}, expected a string or a list of parts", show(content)));
  }
  ContentPlace at = place;
  for (size_t i = 0; i < content.size(); ++i) {
    at.where = fmt::format("{}[{}]", place.where, i);
    KTX_TRY(read_part(content[i], at, notes, out));
  }
  return {};
}

}  // namespace ktx::server
