#include "lib/text/answers/generic_answer.h"

#include <algorithm>
#include <cstdint>

#include "lib/text/answers/partial_match.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

// The key that strict JSON begins with; `value` is where its value begins. "" as long as it is not
// known, or there is none.
std::string_view first_key_of(std::string_view json, size_t& value) {
  const size_t open = json.find('"');
  const size_t close = open == json.npos ? open : json.find('"', open + 1);
  const size_t colon = close == json.npos ? close : json.find(':', close);
  value = colon == json.npos ? colon : json.find_first_not_of(kAsciiSpace, colon + 1);
  return value == json.npos ? "" : json.substr(open + 1, close - open - 1);
}

}  // namespace

void GenericAnswer::read_head(GenericDelta& delta) {
  const size_t begin = said_.find_first_not_of(kAsciiSpace);
  if (begin == std::string::npos) return;
  if (said_[begin] == '{') json_.read(std::string_view(said_).substr(begin));
  size_t value = 0;
  const std::string_view json = json_.json(), key = first_key_of(json, value);
  if (key.empty()) {
    const bool waits = said_[begin] == '{' && json_.state() == CallJson::State::More;
    if (!waits) part_ = Part::Text;
  } else if (key == "response") {
    part_ = Part::Response;
  } else if (key == "tool_call" || key == "tool_calls") {
    part_ = Part::Calls;
  } else {
    part_ = Part::Text;
  }
  if (part_ == Part::Text) {
    delta.text += said_;
    said_.clear();
  }
  at_ = value;
}

// A string is decoded, unless it is to be JSON; any other value is shown as it is.
void GenericAnswer::read_response(GenericDelta& delta) {
  const std::string_view json = json_.json();
  for (; at_ < json.size() && part_ == Part::Response; ++at_) {
    const char c = json[at_];
    if (!begun_) {
      begun_ = true;
      is_text_ = c == '"' && !as_json_;
      if (is_text_) continue;
    }
    if (!is_text_) {
      place_.step(c);
      if (place_.depth < 0) {
        part_ = Part::End;
      } else {
        delta.text += c;
      }
      continue;
    }
    if (escape_.empty() && c == '"') {
      part_ = Part::End;
    } else if (escape_.empty() && c != '\\') {
      delta.text += c;
    } else {
      escape_ += c;
      if (escape_.size() == 1 || (escape_[1] == 'u' && escape_.size() < 6)) continue;
      constexpr std::string_view kNames = "bfnrt", kNamed = "\b\f\n\r\t";
      const size_t named = kNames.find(escape_[1]);
      if (escape_[1] == 'u') {
        const auto unit = static_cast<uint32_t>(std::stoul(escape_.substr(2), nullptr, 16));
        if (unit >= 0xD800 && unit < 0xDC00) {
          high_ = unit;
        } else {
          const bool pair = high_ != 0 && unit >= 0xDC00 && unit < 0xE000;
          const bool half = unit >= 0xDC00 && unit < 0xE000;
          append_utf8(pair   ? 0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00)
                      : half ? 0xFFFD
                             : unit,
                      delta.text);
          high_ = 0;
        }
      } else {
        delta.text += named == kNames.npos ? escape_[1] : kNamed[named];
      }
      escape_.clear();
    }
  }
}

// The objects of a list one after the other, or a single one.
void GenericAnswer::read_calls(GenericDelta& delta) {
  const std::string_view json = json_.json();
  for (; at_ < json.size() && part_ == Part::Calls; ++at_) {
    const char c = json[at_];
    if (place_.in_string || place_.depth > 0 || c == '{') {
      place_.step(c);
      delta.calls += c;
    } else if (c == '}') {
      part_ = Part::End;
    } else {
      place_.in_string = c == '"';
    }
  }
}

GenericDelta GenericAnswer::add(std::string_view text) {
  GenericDelta delta;
  if (part_ == Part::Text) {
    delta.text = text;
    return delta;
  }
  said_ += text;
  if (part_ == Part::Head) {
    read_head(delta);
  } else {
    json_.read(std::string_view(said_).substr(said_.find('{')));
  }
  if (part_ == Part::Response) read_response(delta);
  if (part_ == Part::Calls) read_calls(delta);
  return delta;
}

GenericDelta GenericAnswer::finish() {
  GenericDelta delta;
  if (part_ == Part::Head && said_.find('{') == std::string::npos) delta.text = said_;
  said_.clear();
  return delta;
}

}  // namespace ktx::text
