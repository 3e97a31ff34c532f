// Tool calls with arguments in tags: GLM-4.5, Qwen3-Coder, MiniMax-M2, DeepSeek-V3.2, Muse Glimmer.
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
  const size_t at = attributes.find(name);
  if (at == std::string_view::npos) return "";
  std::string_view rest = trimmed(attributes.substr(at + name.size()));
  if (!rest.starts_with('=')) return "";
  rest = trimmed(rest.substr(1));
  if (!rest.starts_with('"') && !rest.starts_with('\'')) return rest.substr(0, rest.find(' '));
  const char quote = rest[0];
  rest.remove_prefix(1);
  return rest.substr(0, rest.find(quote));
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
  KTX_STEP(in.until(">", attributes));
  KTX_STEP(in.literal(">"));
  const std::string_view name = attribute(attributes, "name");
  if (name.empty()) return CallState::No;
  read.begun = true;
  read.name = name;
  XmlArguments arguments(name, tools);
  if (trimmed(attributes).ends_with('/')) return end_xml(name, arguments, read);
  const ValueTags ends = value_tags(format, tags.parameter_end, tags.parameter);
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal(tags.parameter);
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    KTX_STEP(in.until(">", attributes));
    KTX_STEP(in.literal(">"));
    KTX_STEP(in.value(ends, value));
    const std::string_view key = attribute(attributes, "name");
    if (attribute(attributes, "string") == "true") {
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
