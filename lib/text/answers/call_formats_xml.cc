// Tool calls with arguments in tags: GLM-4.5, Qwen3-Coder, MiniMax-M2, DeepSeek-V3.2, Muse Glimmer,
// Kimi-K3.
#include <algorithm>

#include "lib/text/answers/call_formats.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

// The arguments of a call in XML, put together value by value.
class XmlArguments {
 public:
  XmlArguments(std::string_view name, std::span<const OfferedTool> tools) {
    for (const OfferedTool& tool : tools) {
      if (tool.name == name) tool_ = &tool;
    }
  }
  void add(std::string_view key, std::string_view value) { add_json(key, typed(key, value)); }
  void add_text(std::string_view key, std::string_view value) { add_json(key, print(value)); }
  bool offered() const { return tool_ != nullptr; }
  const std::string& open() const { return text_; }
  std::string whole() const { return text_ + "}"; }

 private:
  void add_json(std::string_view key, const std::string& value) {
    text_ += text_.size() == 1 ? "" : ", ";
    text_ += print(key) + ": " + value;
  }
  static std::string print(std::string_view text) { return json_text(text); }
  static bool holds(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  // The value as JSON. One that is none, in no notation, is a text.
  std::string typed(std::string_view key, std::string_view value) const {
    const std::string_view word = trimmed(value);
    const std::string json = json_of_word(word);
    if (tool_ != nullptr && holds(tool_->text_parameters, key)) {
      return json == "null" && holds(tool_->nullable_texts, key) ? json : print(value);
    }
    if (!json.empty()) return json;
    if (!parse_call_json(word).is_discarded()) return compact_json(word);
    if (!word.starts_with('{') && !word.starts_with('[')) return print(value);
    CallJson mended;
    mended.read(word);
    const bool whole = mended.at() == word.size() && mended.close();
    return whole && !parse_call_json(mended.json()).is_discarded() ? compact_json(mended.json())
                                                                   : print(value);
  }
  const OfferedTool* tool_ = nullptr;
  std::string text_ = "{";
};

CallState end_xml(std::string_view name, const XmlArguments& arguments, CallRead& read) {
  read.calls.push_back({std::string(name), arguments.whole(), ""});
  return CallState::Call;
}

ValueTags value_tags(ToolCallFormat format, std::string_view close, std::string_view next) {
  return {close, next, call_trailers(format), call_openers(format)};
}

// What may stand where the end of a call is missing: the end of its section, and another call.
std::vector<std::string_view> behind_calls(ToolCallFormat format) {
  const auto ends = call_trailers(format), begins = call_openers(format);
  std::vector<std::string_view> all(ends.begin(), ends.end());
  all.insert(all.end(), begins.begin(), begins.end());
  return all;
}

// The value of `name="value"` among the attributes of a tag; quotes may be missing.
std::string_view attribute(std::string_view attributes, std::string_view name) {
  for (std::string_view rest = trimmed(attributes); !rest.empty(); rest = trimmed(rest)) {
    // In front of it may stand words without values, and commas.
    std::string_view key = trimmed(rest.substr(0, rest.find('=')));
    key.remove_prefix(key.find_last_of(", \t\r\n") + 1);  // npos + 1 is 0
    rest = rest.substr(std::min(rest.find('='), rest.size() - 1) + 1);
    rest = trimmed(rest);
    const char quote = rest.empty() ? 0 : rest[0];
    const bool quoted = quote == '"' || quote == '\'';
    if (quoted) rest.remove_prefix(1);
    const size_t end = std::min(rest.find(quoted ? quote : ' '), rest.size());
    if (key == name) return rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool quote = text.starts_with("&quot;"), ampersand = text.starts_with("&amp;");
    out += quote ? '"' : text[0];
    text.remove_prefix(quote ? 6 : ampersand ? 5 : 1);
  }
  return out;
}

// All arguments as one JSON object, behind the begin of its tag.
CallState read_json_block(const InvokeTags& tags, CallCursor& in, CallRead& read) {
  std::string_view attributes, json;
  KTX_STEP(in.until(tags.tag_end, attributes));
  if (!attributes.empty() && attributes[0] != ' ') return CallState::No;
  KTX_STEP(in.literal(tags.tag_end));
  const CallState there = in.arguments(json, tags.json_end);
  read.begun = in.json_so_far().starts_with('{');
  if (read.begun) read.json_at = 0;
  KTX_STEP(there);
  if (!json.starts_with('{')) return CallState::No;
  in.space();
  KTX_STEP(in.closer(tags.json_end));
  in.space();
  const std::string_view ends[] = {tags.section_end, tags.invoke};
  KTX_STEP(in.closer(tags.invoke_end, ends));
  read.calls.push_back({read.name, std::string(json), ""});
  return CallState::Call;
}

CallState read_invoke(ToolCallFormat format, const InvokeTags& tags, CallCursor& in,
                      std::span<const OfferedTool> tools, CallRead& read) {
  for (const std::string_view opener : {tags.section, tags.later_section}) {
    if (opener.empty()) continue;
    const CallState section = in.opener(opener);
    if (section == CallState::More) return section;
    if (section == CallState::Call) break;
  }
  in.space();
  std::string_view attributes, value;
  KTX_STEP(in.literal(tags.invoke));
  KTX_STEP(in.until(tags.tag_end, attributes));
  KTX_STEP(in.literal(tags.tag_end));
  const bool escaped = !tags.json.empty();
  const auto read_name = [&](std::string_view name) {
    const std::string_view said = attribute(attributes, name);
    return escaped ? unescaped(said) : std::string(said);
  };
  const std::string name = read_name(tags.invoke_name);
  if (name.empty()) return CallState::No;
  read.name = name;
  if (escaped) {
    in.space();
    const CallState block = in.literal(tags.json);
    if (block == CallState::Call) return read_json_block(tags, in, read);
    if (block == CallState::More) return block;
  }
  read.begun = true;
  XmlArguments arguments(name, tools);
  if (trimmed(attributes).ends_with('/')) return end_xml(name, arguments, read);
  const ValueTags ends = value_tags(format, tags.parameter_end, tags.parameter);
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal(tags.parameter);
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    KTX_STEP(in.until(tags.tag_end, attributes));
    KTX_STEP(in.literal(tags.tag_end));
    KTX_STEP(in.value(ends, value));
    const std::string key = read_name(tags.parameter_name);
    if (attribute(attributes, "string") == "true" || attribute(attributes, "type") == "string") {
      arguments.add_text(key, value);
    } else {
      arguments.add(key, value);
    }
  }
  KTX_STEP(in.closer(tags.invoke_end, behind_calls(format)));
  return end_xml(name, arguments, read);
}

}  // namespace

CallState read_minimax(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  return read_invoke(ToolCallFormat::MiniMax, kMiniMaxTags, in, tools, read);
}

CallState read_dsml(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  return read_invoke(ToolCallFormat::Dsml, kDsmlTags, in, tools, read);
}

CallState read_atem(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  return read_invoke(ToolCallFormat::Atem, kAtemTags, in, tools, read);
}

CallState read_kimi_k3(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  return read_invoke(ToolCallFormat::KimiK3, kKimiK3Tags, in, tools, read);
}

CallState read_glm(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  std::string_view name, key, value;
  KTX_STEP(in.opener("<tool_call>"));
  if (const CallState there = in.until("<", name); there != CallState::Call) {
    // A call that ends behind its name.
    if (there == CallState::No) name = trimmed(in.to_end());
    if (there == CallState::More || !XmlArguments(name, tools).offered()) return there;
  }
  name = trimmed(name);
  if (name.empty() || name.find_first_of(" \n{\"") != std::string_view::npos) return CallState::No;
  read.name = name;
  XmlArguments arguments(name, tools);
  const ValueTags ends = value_tags(ToolCallFormat::Glm, "</arg_value>", "<arg_key>");
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal("<arg_key>");
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    read.begun = true;
    KTX_STEP(in.until("</arg_key>", key));
    KTX_STEP(in.literal("</arg_key>"));
    in.space();
    KTX_STEP(in.literal("<arg_value>"));
    KTX_STEP(in.value(ends, value));
    arguments.add(trimmed(key), value);
  }
  KTX_STEP(in.closer("</tool_call>", behind_calls(ToolCallFormat::Glm)));
  return end_xml(name, arguments, read);
}

CallState read_qwen_coder(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  std::string_view name, key, value;
  for (const std::string_view wrapper : {std::string_view("<tool_call>"), kSeedCall}) {
    if (in.opener(wrapper) == CallState::More) return CallState::More;
  }
  in.space();
  KTX_STEP(in.literal(kFunction));
  KTX_STEP(in.until(">", name));
  KTX_STEP(in.literal(">"));
  name = unquoted(name);
  if (name.empty()) return CallState::No;
  read.begun = true;
  read.name = name;
  XmlArguments arguments(name, tools);
  const ValueTags ends = value_tags(ToolCallFormat::QwenCoder, "</parameter>", kParameter);
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal(kParameter);
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    KTX_STEP(in.until(">", key));
    KTX_STEP(in.literal(">"));
    KTX_STEP(in.value(ends, value));
    // A line of its own for the value.
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    arguments.add(unquoted(key), value);
  }
  KTX_STEP(in.closer("</function>", behind_calls(ToolCallFormat::QwenCoder)));
  return end_xml(name, arguments, read);
}

}  // namespace ktx::text
