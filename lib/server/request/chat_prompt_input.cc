#include "lib/server/request/chat_prompt_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lib/server/request/client_tools.h"
#include "lib/server/request/content_parts.h"
#include "lib/server/request/prompt_roles.h"
#include "lib/server/request/shown_images.h"
#include "lib/server/request/text_input.h"
#include "lib/server/request/write_out_tools.h"
#include "lib/text/answers/harmony.h"

namespace ktx::server {
namespace {

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

ApiResult<Json> read_tool_calls(const Json& list, const std::string& where) {
  if (!list.is_array()) return bad_place(where, fmt::format("is {}, expected a list", show(list)));
  if (list.size() > kMaxToolCalls) {
    return bad_place(
        where, fmt::format("has {} calls, at most {} are possible", list.size(), kMaxToolCalls));
  }
  Json out = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& call = list[i];
    const auto function = call.is_object() ? call.find("function") : call.end();
    const auto custom = call.is_object() ? call.find("custom") : call.end();
    if (call.is_object() && custom != call.end() && !string_or(*custom, "name", "").empty()) {
      out.push_back({{"type", "function"},
                     {"id", string_or(call, "id", "")},
                     {"function",
                      {{"name", (*custom)["name"]},
                       {"arguments", custom_arguments(string_or(*custom, "input", ""))}}}});
      continue;
    }
    if (!call.is_object() || function == call.end() || !function->is_object() ||
        !function->contains("name") || !(*function)["name"].is_string()) {
      return bad_place(fmt::format("{}[{}]", where, i), "is a call without function.name");
    }
    Json item;
    item["type"] = "function";
    if (call.contains("id") && call["id"].is_string()) item["id"] = call["id"];
    item["function"]["name"] = (*function)["name"];
    item["function"]["arguments"] =
        function->contains("arguments") ? (*function)["arguments"] : Json::object();
    out.push_back(std::move(item));
  }
  return out;
}

bool opens_reasoning(const ServedModel& model, const std::string& prompt) {
  return model.reasoning && text::prompt_opens_reasoning(prompt, *model.reasoning);
}

}  // namespace

ChatInput input_for(const ServedModel& model) {
  ChatInput input;
  if (model.viewer) input.images.emplace();
  return input;
}

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

namespace {

ApiResult<Json> read_message(const Json& from, const std::string& where, bool first, Notes& notes,
                             RequestImages* images) {
  if (!from.is_object()) {
    return bad_place(where, fmt::format("is {}, expected an object", show(from)));
  }
  const auto role = from.find("role");
  if (role == from.end() || !role->is_string()) {
    return ApiError{400, fmt::format("'{}' has no role", where), where + ".role", ""};
  }
  static const std::vector<std::string> kRoles = {"system",    "developer", "user",
                                                  "assistant", "tool",      "function"};
  const std::string name = role->get<std::string>();
  if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
    return bad_place(
        where + ".role",
        fmt::format("is {}, expected system, developer, user, assistant or tool", show(*role)));
  }
  Json to;
  to["role"] = name == "function" ? "tool" : name;
  const auto content = from.find("content");
  // OpenAI's first form has one call, in a field of its own.
  const auto old_call = from.find("function_call");
  const bool has_old_call = old_call != from.end() && old_call->is_object();
  const bool has_calls = from.contains("tool_calls") && !from["tool_calls"].is_null();
  const std::string refusal = string_or(from, "refusal", "");
  // A tool may have nothing to say, and so may an assistant that reasoned or was stopped.
  const bool may_be_silent = to["role"] == "tool" || name == "assistant";
  if (content == from.end() && !may_be_silent) {
    return ApiError{400, fmt::format("'{}' has no content", where), where + ".content", ""};
  }
  ContentText said;
  if (content != from.end() && content->is_object() && to["role"] == "tool") {
    said.text = dump(*content);
  } else if (content != from.end()) {
    const bool system = name == "system" || name == "developer";
    const bool sees = name == "user" || to["role"] == "tool";
    const ContentPlace place = {Protocol::Chat, where + ".content", name == "user", first && system,
                                sees ? images : nullptr};
    KTX_TRY(read_content(*content, place, notes, said));
  }
  to["content"] = said.text.empty() ? refusal : said.text;
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    if (from.contains(key) && from[key].is_string()) to[key] = from[key];
  }
  if (from.contains("reasoning") && from["reasoning"].is_string()) {
    to["reasoning_content"] = from["reasoning"];
  }
  if (!said.reasoning.empty()) to["reasoning_content"] = said.reasoning;
  if (has_calls && !from["tool_calls"].empty()) {
    to["tool_calls"] = KTX_TRY(read_tool_calls(from["tool_calls"], where + ".tool_calls"));
  } else if (has_old_call) {
    const Json calls = Json::array({{{"function", *old_call}}});
    to["tool_calls"] = KTX_TRY(read_tool_calls(calls, where + ".function_call"));
  }
  return to;
}

}  // namespace

ApiResult<Json> read_messages(const Json& list, Notes& notes, RequestImages* images) {
  Json messages = Json::array();
  if (list.size() > kMaxMessages) {
    return bad_place("messages", fmt::format("has {} items, at most {} are possible", list.size(),
                                             kMaxMessages));
  }
  size_t calls = 0;
  for (size_t i = 0; i < list.size() && calls <= kMaxToolCalls; ++i) {
    Json to = KTX_TRY(read_message(list[i], fmt::format("messages[{}]", i), i == 0, notes, images));
    if (const auto made = to.find("tool_calls"); made != to.end()) calls += made->size();
    messages.push_back(std::move(to));
  }
  KTX_TRY(check_messages(messages, "messages"));
  return messages;
}

ApiStatus check_messages(const Json& messages, const std::string& field) {
  if (messages.empty()) {
    return bad_place(field, "is empty; the model needs at least one message");
  }
  if (messages.size() > kMaxMessages) {
    return bad_place(field, fmt::format("has more than {} messages; send fewer", kMaxMessages));
  }
  size_t calls = 0;
  for (const Json& message : messages) {
    const auto made = message.find("tool_calls");
    if (made != message.end()) calls += made->size();
  }
  if (calls > kMaxToolCalls) {
    return bad_place(field, fmt::format("have more than {} tool calls; send fewer", kMaxToolCalls));
  }
  // Which of them would be continued is not to be known.
  const auto is_answer = [](const Json& message) {
    return message["role"] == "assistant" && !message.contains("tool_calls");
  };
  if (messages.size() >= 2 && is_answer(messages.back()) &&
      is_answer(messages[messages.size() - 2])) {
    return bad_place(field, "ends with two messages of the assistant; join them");
  }
  return {};
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

// The tokens of a prompt; its images stand where the text shows them.
ApiStatus encode(const ServedModel& model, const ChatInput& input, const std::vector<size_t>& shown,
                 ImageAsker& asker, ChatPrompt& prompt) {
  if (shown.empty()) {
    prompt.ids = model.tokenizer->encode_prompt(prompt.text, prompt.outside);
    return {};
  }
  const std::string& mark = model.facts().image.mark;
  if (prompt.text.find(mark) == std::string::npos) {
    return ApiError{400,
                    fmt::format("the model's chat template shows no image where this conversation "
                                "has one; it has to write '{}' (--chat-template-file)",
                                mark),
                    "messages", "template_error"};
  }
  vision::ImagePrompt tokens =
      KTX_TRY(show_images(model, {prompt.text, prompt.outside}, *input.images, shown, asker));
  prompt.ids = std::move(tokens.ids);
  prompt.images = std::move(tokens.images);
  return {};
}

}  // namespace

ApiResult<ChatPrompt> make_prompt(const ServedModel& model, const ChatInput& input,
                                  ImageAsker& asker) {
  ChatPrompt prompt;
  if (!input.rendered_ids.empty()) {
    prompt.text = input.rendered;
    prompt.ids = input.rendered_ids;
    prompt.reasoning_open = opens_reasoning(model, prompt.text);
    return prompt;
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
  render.tools = input.tools;
  Json messages = input.messages;
  const std::string begun = take_begun_answer(input, messages);
  convert_developer(messages, chat.source());
  write_out_tools(model, input.forced_call, messages, render.tools);
  if (model.speaks_harmony()) convert_harmony_reasoning(messages);
  convert_arguments(messages, wants_objects(chat.source()));
  std::vector<size_t> shown;
  const auto show = [&] {
    render.messages = messages;
    if (input.images) shown = input.images->take_marks(render.messages);
    return chat.render_marked(render);
  };
  render.extra = input.extra;
  render.add_generation_prompt = input.add_generation_prompt;
  render.bos_token = strings.bos;
  render.eos_token = strings.eos;
  if (model.reasoning) {
    render.answer_tags = {std::string(model.reasoning->open), std::string(model.reasoning->close)};
  }
  Result<text::MarkedText> text = show();
  for (const auto& change : {gather_system, join_system}) {
    if (text || !change(messages)) continue;
    Result<text::MarkedText> changed = show();
    if (changed) text = std::move(changed);
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
      const std::string_view opens = model.reasoning->opens_answer;
      prompt.text +=
          std::string(model.reasoning->close) + std::string(opens.empty() ? "\n\n" : opens);
    }
    const size_t at = prompt.text.size();
    prompt.text += begun;
    text::add_outside(prompt.outside, prompt.text, at, render.answer_tags);
  }
  if (input.end_reasoning && input.add_generation_prompt && begun.empty() &&
      opens_reasoning(model, prompt.text)) {
    prompt.text += std::string(model.reasoning->close) + std::string(model.reasoning->opens_answer);
  }
  KTX_TRY(check_size(model, "messages", prompt.text.size()));
  if (model.allow_control_tokens) prompt.outside.clear();
  KTX_TRY(encode(model, input, shown, asker, prompt));
  prompt.reasoning_open = opens_reasoning(model, prompt.text);
  return prompt;
}

ApiResult<ChatPrompt> make_plain_prompt(const ServedModel& model, std::string text,
                                        const RequestImages& images, ImageAsker& asker) {
  std::vector<size_t> all(images.files().size());
  std::iota(all.begin(), all.end(), size_t{0});
  ChatPrompt prompt;
  vision::ImagePrompt tokens = KTX_TRY(show_images(model, {text, {}}, images, all, asker));
  prompt.text = std::move(text);
  prompt.ids = std::move(tokens.ids);
  prompt.images = std::move(tokens.images);
  return prompt;
}

}  // namespace ktx::server
