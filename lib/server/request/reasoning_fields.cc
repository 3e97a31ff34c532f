#include "lib/server/request/reasoning_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/server/request/prompt_roles.h"

namespace ktx::server {
namespace {

struct SwitchWord {
  std::string_view word;
  std::optional<bool> on;  // none: as the model does
};
constexpr SwitchWord kSwitchWords[] = {
    {"enabled", true},          {"disabled", false},
    {"adaptive", std::nullopt}, {"between_tools", std::nullopt},
    {"auto", std::nullopt},     {"default", std::nullopt},
};

void set_switch(bool on, Json& extra) {
  if (!extra.contains("enable_thinking")) extra["enable_thinking"] = on;
}

// `thinking` of Anthropic, and of vendors of OpenAI's protocol: {"type": "enabled"} or a flag.
void read_thinking(FieldReader& in, ChatInput& input, ReasoningLimit& limit) {
  const Json* given = in.get("thinking");
  if (given == nullptr) return;
  if (given->is_boolean()) return set_switch(given->get<bool>(), input.extra);
  const Json* thinking = in.object("thinking");
  if (thinking == nullptr) return;
  const std::string word = string_or(*thinking, "type", "");
  const auto* row = std::find_if(std::begin(kSwitchWords), std::end(kSwitchWords),
                                 [&](const SwitchWord& each) { return each.word == word; });
  if (row == std::end(kSwitchWords)) {
    return in.fail("thinking.type",
                   fmt::format("'thinking.type' is {}, expected enabled, disabled or adaptive",
                               thinking->contains("type") ? show((*thinking)["type"]) : "missing"));
  }
  if (row->on) set_switch(*row->on, input.extra);
  input.show_reasoning = string_or(*thinking, "display", "") != "omitted";
  FieldReader inner(*thinking, "thinking.");
  if (const auto most = inner.maybe_count("budget_tokens", 0)) limit.tokens = *most;
  if (!inner.status()) in.fail("thinking", inner.status().error().message);
}

// `reasoning` of Responses, and of routers of OpenAI's protocol.
void read_reasoning(const ServedModel& model, FieldReader& in, ChatInput& input,
                    ReasoningLimit& limit) {
  const Json* reasoning = in.object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader inner(*reasoning, "reasoning.");
  if (inner.get("enabled") != nullptr) set_switch(inner.flag("enabled", true), input.extra);
  if (const auto most = inner.maybe_count("max_tokens", 0)) limit.tokens = *most;
  set_reasoning_effort(model, inner.text("effort"), true, input.extra);
  if (!inner.status()) in.fail("reasoning", inner.status().error().message);
}

// The effort in a word of the template's; "": it has none. `strict`: it refuses other words.
std::string effort_word(const std::string& source, const std::string& effort, bool strict) {
  if (quotes(source, effort)) return effort;
  std::string word = effort;
  if (effort == "minimal") word = "low";
  if (effort == "xhigh" || effort == "max" || (strict && effort == "medium")) word = "high";
  if (!strict) return word;
  if (effort == "xhigh" && quotes(source, "max")) word = "max";
  return quotes(source, word) ? word : "";
}

}  // namespace

void set_reasoning_effort(const ServedModel& model, const std::string& effort, bool switches,
                          Json& extra) {
  if (effort.empty() || effort == "auto" || effort == "default") return;
  if (effort == "none") return set_switch(false, extra);
  if (switches) set_switch(true, extra);
  const std::string source = model.chat_template ? model.chat_template->source() : "";
  const bool kimi = source.find("thinking_effort") != source.npos;
  const char* const name = kimi ? "thinking_effort" : "reasoning_effort";
  if (extra.contains(name)) return;
  const std::string word = effort_word(source, effort, kimi);
  if (!word.empty()) extra[name] = word;
}

void read_reasoning_fields(const ServedModel& model, FieldReader& in, ChatInput& input,
                           ReasoningLimit& limit) {
  if (const Json* extra = in.object("chat_template_kwargs")) input.extra = *extra;
  // "enabled" and "disabled" are plainer than an effort.
  read_thinking(in, input, limit);
  if (in.get("enable_thinking") != nullptr) {
    set_switch(in.flag("enable_thinking", true), input.extra);
  }
  set_reasoning_effort(model, in.text("reasoning_effort"), true, input.extra);
  read_reasoning(model, in, input, limit);
  // Beside "adaptive" it does not decide whether the model reasons.
  if (const Json* config = in.object("output_config")) {
    set_reasoning_effort(model, string_or(*config, "effort", ""), false, input.extra);
  }
}

}  // namespace ktx::server
