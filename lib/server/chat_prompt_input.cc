#include "lib/server/chat_prompt_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/text_input.h"
#include "lib/server/tool_telling.h"
#include "lib/text/answers/harmony.h"

namespace ktx::server {
namespace {

ApiError bad(const std::string& param, const std::string& message) {
  return ApiError{400, message, param, ""};
}

// Templates that print arguments with `tojson` want the object, the others the text.
bool wants_objects(const std::string& source) {
  return source.find("arguments | tojson") != std::string::npos ||
         source.find("arguments|tojson") != std::string::npos ||
         source.find("arguments.items()") != std::string::npos ||
         source.find("arguments|items") != std::string::npos ||
         source.find("arguments | items") != std::string::npos ||
         source.find("_args.items()") != std::string::npos;
}

void convert_arguments(Json& messages, bool objects) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      Json& arguments = call["function"]["arguments"];
      if (arguments.is_null() || arguments == Json("")) arguments = Json::object();
      if (objects && arguments.is_string()) {
        Json parsed = parse_nested(arguments.get_ref<const std::string&>());
        if (!parsed.is_discarded()) arguments = std::move(parsed);
      } else if (!objects && !arguments.is_string()) {
        arguments = dump(arguments);
      }
    }
  }
}

// Most templates know no developer, whose place the system message has.
void convert_developer(Json& messages, const std::string& source) {
  const bool known = source.find("'developer'") != std::string::npos ||
                     source.find("\"developer\"") != std::string::npos;
  if (known) return;
  for (Json& message : messages) {
    if (message["role"] == "developer") message["role"] = "system";
  }
}

// OpenAI's template has another name for reasoning, and takes it beside a call only without
// content.
void convert_harmony_reasoning(Json& messages) {
  for (Json& message : messages) {
    const auto reasoning = message.find("reasoning_content");
    if (reasoning == message.end()) continue;
    const Json thinking = *reasoning;
    message["thinking"] = thinking;
    if (message.contains("tool_calls") && thinking != "") message["content"] = "";
  }
}

std::optional<ApiError> read_tool_calls(const Json& list, const std::string& where, Json& out) {
  if (!list.is_array())
    return bad(where, fmt::format("'{}' is {}, expected a list", where, show(list)));
  out = Json::array();
  for (const Json& call : list) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object() ||
        !function->contains("name") || !(*function)["name"].is_string()) {
      return bad(where, fmt::format("'{}' has a call without function.name", where));
    }
    Json item;
    item["type"] = "function";
    if (call.contains("id") && call["id"].is_string()) item["id"] = call["id"];
    item["function"]["name"] = (*function)["name"];
    item["function"]["arguments"] =
        function->contains("arguments") ? (*function)["arguments"] : Json::object();
    out.push_back(std::move(item));
  }
  return std::nullopt;
}

bool opens_reasoning(const ServedModel& model, const std::string& prompt) {
  return model.reasoning && text::prompt_opens_reasoning(prompt, *model.reasoning);
}

}  // namespace

void read_continuation(FieldReader& in, ChatInput& input) {
  const bool continues = in.flag("continue_final_message", false);
  const bool begins = in.flag("add_generation_prompt", false);
  if (continues && begins) {
    in.fail("continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' exclude each other");
  }
  input.continue_last = in.get("continue_final_message") == nullptr || continues;
  // What is continued has its own begin of a message.
  input.add_generation_prompt = in.get("add_generation_prompt") == nullptr || begins || continues;
}

void apply_reasoning_default(const ServedModel& model, ChatInput& input) {
  if (!model.reasons_first) return;
  if (!input.extra.contains("enable_thinking")) {
    input.extra["enable_thinking"] = *model.reasons_first;
  }
  input.end_reasoning = !*model.reasons_first && input.extra["enable_thinking"] == false;
}

std::optional<ApiError> flatten_content(const Json& content, const std::string& where,
                                        std::string& text) {
  text.clear();
  if (content.is_null()) return std::nullopt;
  if (content.is_string()) {
    text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) {
    return bad(where, fmt::format("'{}' is {}, expected a string or a list of parts", where,
                                  show(content)));
  }
  for (const Json& part : content) {
    const bool plain = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!plain) {
      const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                   ? part["type"].get<std::string>()
                                   : "";
      return bad(where, type.empty()
                            ? fmt::format("'{}' has a part without text", where)
                            : fmt::format("'{}' has a part of type '{}'; image input is not "
                                          "supported, this model reads text only",
                                          where, type));
    }
    text += part["text"].get<std::string>();
  }
  return std::nullopt;
}

std::optional<ApiError> read_messages(const Json& list, Json& messages) {
  messages = Json::array();
  if (list.empty()) return bad("messages", "'messages' is empty; the model needs at least one");
  if (list.size() > kMaxMessages) {
    return bad("messages", fmt::format("'messages' has {} items, at most {} are possible",
                                       list.size(), kMaxMessages));
  }
  size_t calls = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& from = list[i];
    const std::string where = fmt::format("messages[{}]", i);
    if (!from.is_object()) {
      return bad(where, fmt::format("'{}' is {}, expected an object", where, show(from)));
    }
    const auto role = from.find("role");
    if (role == from.end() || !role->is_string()) {
      return bad(where + ".role", fmt::format("'{}' has no role", where));
    }
    static const std::vector<std::string> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};
    const std::string name = role->get<std::string>();
    if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
      return bad(where + ".role", fmt::format("'{}.role' is {}, expected system, developer, user, "
                                              "assistant or tool",
                                              where, show(*role)));
    }
    Json to;
    to["role"] = name == "function" ? "tool" : name;
    const auto content = from.find("content");
    const bool has_calls = from.contains("tool_calls") && !from["tool_calls"].is_null();
    if (content == from.end() && !has_calls) {
      return bad(where + ".content", fmt::format("'{}' has no content", where));
    }
    std::string text;
    if (content != from.end()) {
      if (auto error = flatten_content(*content, where + ".content", text)) return error;
    }
    to["content"] = text;
    for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
      if (from.contains(key) && from[key].is_string()) to[key] = from[key];
    }
    if (from.contains("reasoning") && from["reasoning"].is_string()) {
      to["reasoning_content"] = from["reasoning"];
    }
    if (has_calls && !from["tool_calls"].empty()) {
      calls += from["tool_calls"].size();
      if (calls > kMaxToolCalls) {
        return bad("messages", fmt::format("'messages' have more than {} tool calls; send fewer",
                                           kMaxToolCalls));
      }
      if (auto error = read_tool_calls(from["tool_calls"], where + ".tool_calls", to["tool_calls"]))
        return error;
    }
    messages.push_back(std::move(to));
  }
  // Which of them would be continued is not to be known.
  const auto is_answer = [](const Json& message) {
    return message["role"] == "assistant" && !message.contains("tool_calls");
  };
  if (messages.size() >= 2 && is_answer(messages.back()) &&
      is_answer(messages[messages.size() - 2])) {
    return bad("messages", "'messages' ends with two messages of the assistant; join them");
  }
  return std::nullopt;
}

void set_reasoning_effort(const std::string& effort, Json& extra) {
  extra["enable_thinking"] = effort != "none";
  if (effort == "none" || extra.contains("reasoning_effort")) return;
  extra["reasoning_effort"] = effort == "minimal" ? "low" : effort;
}

namespace {

struct FormRow {
  ToolForm form;
  bool nested;                // name and schema stand in "function"
  std::string_view own_type;  // of tools that the client runs
  const char* schema;
  std::string_view schema_field;
};
constexpr FormRow kForms[] = {
    {ToolForm::Nested, true, "function", "parameters", "function.parameters"},
    {ToolForm::Flat, false, "function", "parameters", "parameters"},
    {ToolForm::Anthropic, false, "custom", "input_schema", "input_schema"},
};
const FormRow& row_of(ToolForm form) {
  return *std::find_if(std::begin(kForms), std::end(kForms),
                       [&](const FormRow& row) { return row.form == form; });
}

std::optional<ApiError> read_tool(const Json& from, const std::string& where, const FormRow& form,
                                  Json& to) {
  if (!from.is_object()) {
    return bad(where, fmt::format("'{}' is {}, expected an object", where, show(from)));
  }
  const auto type = from.find("type");
  if (type != from.end() && !type->is_null() && *type != form.own_type) {
    return bad(where + ".type",
               fmt::format("'{}.type' is {}, expected \"{}\"; tools of a vendor's server are not "
                           "run here",
                           where, show(*type), form.own_type));
  }
  const auto nested = from.find("function");
  if (form.nested && (nested == from.end() || !nested->is_object())) {
    return bad(where,
               fmt::format("'{}' is no {{\"type\": \"function\", \"function\": ...}}", where));
  }
  const Json& function = form.nested ? *nested : from;
  const std::string name = string_or(function, "name", "");
  if (name.empty()) {
    const std::string at = form.nested ? where + ".function" : where;
    return bad(at + ".name", fmt::format("'{}' has no name", at));
  }
  to["type"] = "function";
  to["function"]["name"] = name;
  to["function"]["description"] = string_or(function, "description", "");
  const auto schema = function.find(form.schema);
  const bool given = schema != function.end() && !schema->is_null();
  if (given && !schema->is_object()) {
    const std::string at = fmt::format("{}.{}", where, form.schema_field);
    return bad(at, fmt::format("'{}' is {}, expected a JSON schema", at, show(*schema)));
  }
  to["function"]["parameters"] =
      given ? *schema : Json{{"type", "object"}, {"properties", Json::object()}};
  return std::nullopt;
}

}  // namespace

std::string_view schema_field(ToolForm form) {
  return row_of(form).schema_field;
}

std::optional<ApiError> read_tools(const Json& list, ToolForm form, Json& tools) {
  tools = nullptr;
  if (list.empty()) return std::nullopt;
  if (list.size() > kMaxTools) {
    return bad("tools", fmt::format("'tools' has {} items, at most {} are possible", list.size(),
                                    kMaxTools));
  }
  Json read = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    Json tool;
    if (auto error = read_tool(list[i], fmt::format("tools[{}]", i), row_of(form), tool)) {
      return error;
    }
    read.push_back(std::move(tool));
  }
  tools = std::move(read);
  return std::nullopt;
}

// The content of a last message that is the assistant's and no call, which leaves the list.
std::string take_begun_answer(const ChatInput& input, Json& messages) {
  if (!input.continue_last || !input.add_generation_prompt || messages.size() < 2) return "";
  const Json& last = messages.back();
  if (string_or(last, "role", "") != "assistant" || last.contains("tool_calls")) return "";
  std::string begun = string_or(last, "content", "");
  if (!begun.empty()) messages.erase(messages.size() - 1);
  return begun;
}

namespace {

// For templates that refuse a system message: it begins the first question. False: there is none.
bool join_system(Json& messages) {
  if (messages.size() < 2 || messages[0]["role"] != "system" || messages[1]["role"] != "user") {
    return false;
  }
  messages[1]["content"] =
      string_or(messages[0], "content", "") + "\n\n" + string_or(messages[1], "content", "");
  messages.erase(0);
  return true;
}

}  // namespace

std::optional<ApiError> make_prompt(const ServedModel& model, const ChatInput& input,
                                    ChatPrompt& prompt) {
  if (!input.rendered_ids.empty()) {
    prompt.text = input.rendered;
    prompt.ids = input.rendered_ids;
    prompt.reasoning_open = opens_reasoning(model, prompt.text);
    return std::nullopt;
  }
  if (!model.chat_template) {
    return ApiError{
        400,
        "the model has no chat template that works; start the server with "
        "--chat-template NAME (chatml, llama3, mistral-v7 ...) or --chat-template-file; "
        "/v1/completions takes plain text",
        "messages", ""};
  }
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  const text::ChatTemplate& chat =
      model.template_for(!input.tools.is_null() || has_tool_messages(input.messages));
  text::RenderInput render;
  render.messages = input.messages;
  render.tools = input.tools;
  const std::string begun = take_begun_answer(input, render.messages);
  convert_developer(render.messages, chat.source());
  tell_tools(model, input.forced_call, render.messages, render.tools);
  if (model.speaks_harmony()) convert_harmony_reasoning(render.messages);
  convert_arguments(render.messages, wants_objects(chat.source()));
  render.extra = input.extra;
  render.add_generation_prompt = input.add_generation_prompt;
  render.bos_token = strings.bos;
  render.eos_token = strings.eos;
  if (model.reasoning) {
    render.answer_tags = {std::string(model.reasoning->open), std::string(model.reasoning->close)};
  }
  Result<text::MarkedText> text = chat.render_marked(render);
  if (!text && join_system(render.messages)) {
    Result<text::MarkedText> joined = chat.render_marked(render);
    if (joined) text = std::move(joined);
  }
  if (!text) return ApiError{400, text.error().message, "messages", "template_error"};
  prompt.text = std::move(text->text);
  prompt.outside = std::move(text->outside);
  if (model.speaks_harmony() && input.add_generation_prompt &&
      (input.answer_at_once || !begun.empty())) {
    prompt.text += text::kHarmonyOpensContent;
  }
  if (!begun.empty()) {
    // What was said is no reasoning, which templates may have opened.
    if (opens_reasoning(model, prompt.text)) {
      prompt.text += std::string(model.reasoning->close) + "\n\n";
    }
    const size_t at = prompt.text.size();
    prompt.text += begun;
    text::add_outside(prompt.outside, prompt.text, at, render.answer_tags);
  }
  if (input.end_reasoning && input.add_generation_prompt && begun.empty() &&
      opens_reasoning(model, prompt.text)) {
    prompt.text += model.reasoning->close;
  }
  if (auto error = check_size(model, "messages", prompt.text.size())) return error;
  if (model.allow_control_tokens) prompt.outside.clear();
  prompt.ids = model.tokenizer->encode_prompt(prompt.text, prompt.outside);
  prompt.reasoning_open = opens_reasoning(model, prompt.text);
  return std::nullopt;
}

}  // namespace ktx::server
