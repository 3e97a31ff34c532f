#include "lib/server/request/request_images.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <random>

#include "lib/images/decode.h"
#include "lib/server/http/base64.h"
#include "lib/support/strings.h"

namespace ktx::server {
namespace {

constexpr std::string_view kData = "data:", kBase64 = ";base64";
constexpr char kMarkEnd = '>';

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Where the part has its image: a URL, or bytes in base64.
std::optional<std::string_view> source_of(const Json& part) {
  const auto text = [](const Json* value) -> std::optional<std::string_view> {
    if (value == nullptr || !value->is_string()) return std::nullopt;
    return std::string_view(value->get_ref<const std::string&>());
  };
  const Json* const url = member(part, "image_url");
  if (url != nullptr) return text(url->is_object() ? member(*url, "url") : url);
  if (const Json* source = member(part, "source"); source != nullptr && source->is_object()) {
    const auto data = text(member(*source, "data"));
    return data ? data : text(member(*source, "url"));
  }
  for (const char* key : {"image", "data"}) {
    if (const auto data = text(member(part, key))) return data;
  }
  return std::nullopt;
}

bool is_elsewhere(std::string_view source) {
  const size_t scheme = source.find("://");
  return scheme != source.npos && scheme < 16;
}

}  // namespace

bool may_have_images(std::string_view body) {
  for (const std::string_view word :
       {R"("image")", R"("image_url")", R"("input_image")", R"("images")",
        R"("computer_screenshot")", R"("multimodal_data")"}) {
    if (body.find(word) != body.npos) return true;
  }
  // Letters of a word may be escaped: "im\u0061ge_url".
  for (const std::string_view letter : {R"(\u004)", R"(\u005)", R"(\u006)", R"(\u007)"}) {
    if (body.find(letter) != body.npos) return true;
  }
  return false;
}

RequestImages::RequestImages() {
  std::random_device random;
  mark_ = fmt::format("<image-{:08x}{:08x}{:08x}{:08x}-", random(), random(), random(), random());
}

ApiStatus RequestImages::add(const Json& part, const std::string& where, std::string& text) {
  const std::optional<std::string_view> source = source_of(part);
  if (!source) {
    return bad_place(where,
                     "is an image without its bytes; send them as a data: URL "
                     "(data:image/png;base64,...) or, in a source, as base64. Files are not kept "
                     "here");
  }
  return add_data(*source, where, text);
}

ApiStatus RequestImages::add_data(std::string_view data, const std::string& where,
                                  std::string& text) {
  if (files_.size() == kMaxImages) {
    return bad_place(
        where, fmt::format("is one image more than the {} that a request may have", kMaxImages));
  }
  if (is_elsewhere(data)) {
    return bad_place(where, fmt::format("is at {}: nothing is fetched here; send the image itself, "
                                        "as data:image/png;base64,...",
                                        printable(std::string(data.substr(0, 100)))));
  }
  if (data.starts_with(kData)) {
    const size_t comma = data.find(',');
    if (comma == data.npos || !data.substr(0, comma).ends_with(kBase64)) {
      return bad_place(where, "is a data: URL without base64; send data:image/png;base64,...");
    }
    data.remove_prefix(comma + 1);
  }
  const images::ImageLimits limits;
  if (data.size() / 4 * 3 > limits.bytes) {
    return bad_place(where,
                     fmt::format("has an image of {}, at most {} are read",
                                 human_bytes(data.size() / 4 * 3), human_bytes(limits.bytes)));
  }
  std::optional<std::string> bytes = from_base64(data);
  if (!bytes || bytes->empty()) return bad_place(where, "has an image that is no base64");
  text += fmt::format("{}{}{}", mark_, files_.size(), kMarkEnd);
  files_.push_back({std::move(*bytes), where});
  return {};
}

std::vector<size_t> RequestImages::take_marks(Json& messages) const {
  std::vector<size_t> shown;
  if (files_.empty()) return shown;
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    const std::string whole = content->get<std::string>();
    std::string_view rest = whole;
    Json parts = Json::array();
    for (size_t at = 0; (at = rest.find(mark_)) != rest.npos;) {
      const size_t end = rest.find(kMarkEnd, at + mark_.size());
      if (end == rest.npos) break;
      size_t index = 0;
      std::from_chars(rest.data() + at + mark_.size(), rest.data() + end, index);
      if (at > 0) parts.push_back({{"type", "text"}, {"text", std::string(rest.substr(0, at))}});
      parts.push_back({{"type", "image"}});
      shown.push_back(index);
      rest.remove_prefix(end + 1);
    }
    if (parts.empty()) continue;
    if (!rest.empty()) parts.push_back({{"type", "text"}, {"text", std::string(rest)}});
    *content = std::move(parts);
  }
  return shown;
}

}  // namespace ktx::server
