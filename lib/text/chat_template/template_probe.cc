#include "lib/text/chat_template/template_probe.h"

#include <initializer_list>

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// Marks that no template prints by itself.
constexpr const char* kUserMark = "ktx-user-4711";
constexpr const char* kSystemMark = "ktx-system-4712";
constexpr const char* kAnswerMark = "ktx-answer-4713";
constexpr const char* kToolMark = "ktx_tool_4714";
constexpr const char* kResultMark = "ktx-result-4715";
constexpr const char* kThoughtMark = "ktx-thought-4716";

Json message(const char* role, const Json& content) {
  return Json{{"role", role}, {"content", content}};
}

Json tool_list() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kToolMark},
          {"description", "Probes."},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"city", {{"type", "string"}, {"description", "A city."}}}}},
            {"required", Json::array({"city"})}}}}}}});
}

class Prober {
 public:
  Prober(const ChatTemplate& chat, const std::optional<std::string>& bos,
         const std::optional<std::string>& eos)
      : chat_(chat) {
    base_.bos_token = bos;
    base_.eos_token = eos;
  }

  // The prompt, or nothing and a noted failure.
  std::optional<std::string> render(const char* probe, Json messages, Json tools = nullptr,
                                    bool generate = true, Json extra = Json::object()) {
    RenderInput input = base_;
    input.messages = std::move(messages);
    input.tools = std::move(tools);
    input.add_generation_prompt = generate;
    input.extra = std::move(extra);
    Result<std::string> prompt = chat_.render(input);
    if (prompt.ok()) return prompt.take();
    failures.push_back({probe, prompt.error().message});
    return std::nullopt;
  }

  bool shows(const char* probe, std::initializer_list<const char*> marks, Json messages,
             Json tools = nullptr) {
    const auto prompt = render(probe, std::move(messages), std::move(tools));
    if (!prompt) return false;
    for (const char* mark : marks) {
      if (prompt->find(mark) == std::string::npos) return false;
    }
    return true;
  }

  std::vector<ProbeFailure> failures;

 private:
  const ChatTemplate& chat_;
  RenderInput base_;
};

// The first variable that changes the generation prompt when it is switched.
std::string find_thinking_switch(Prober& prober, const Json& conversation) {
  struct Switch {
    const char* name;
    Json on, off;
  };
  const Switch switches[] = {{"enable_thinking", true, false},
                             {"thinking", true, false},
                             {"reasoning", true, false},
                             {"reasoning_effort", "high", "low"}};
  for (const Switch& s : switches) {
    const auto on = prober.render("thinking", conversation, nullptr, true, {{s.name, s.on}});
    const auto off = prober.render("thinking", conversation, nullptr, true, {{s.name, s.off}});
    if (on && off && *on != *off) return s.name;
  }
  return "";
}

}  // namespace

TemplateProbe probe_template(const ChatTemplate& chat, const std::optional<std::string>& bos_token,
                             const std::optional<std::string>& eos_token) {
  TemplateProbe probe;
  Prober prober(chat, bos_token, eos_token);
  const Json user = message("user", kUserMark);
  const Json parts = Json::array({{{"type", "text"}, {"text", kUserMark}}});
  probe.string_content = prober.shows("user", {kUserMark}, Json::array({user}));
  const auto listed = prober.render("list content", Json::array({message("user", parts)}));
  // Printed as a list (['type': …) is not taken as one.
  probe.list_content = listed && listed->find(kUserMark) != std::string::npos &&
                       listed->find("'text'") == std::string::npos &&
                       listed->find("\"text\"") == std::string::npos;
  probe.user = probe.string_content || probe.list_content;
  // From here on the content takes the form that works.
  const auto content = [&](const char* mark) {
    return probe.string_content ? Json(mark) : Json::array({{{"type", "text"}, {"text", mark}}});
  };
  const Json asked = message("user", content(kUserMark));
  const Json answered = message("assistant", content(kAnswerMark));
  const Json system = message("system", content(kSystemMark));
  probe.assistant =
      prober.shows("assistant", {kUserMark, kAnswerMark}, Json::array({asked, answered, asked}));
  probe.system = prober.shows("system", {kSystemMark, kUserMark}, Json::array({system, asked}));
  probe.tools = prober.shows("tools", {kToolMark}, Json::array({asked}), tool_list());

  // Mistral wants ids of nine letters, others any.
  const Json calls =
      Json::array({{{"id", "call12345"},
                    {"type", "function"},
                    {"function", {{"name", kToolMark}, {"arguments", {{"city", "Paris"}}}}}}});
  const Json calling = {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}};
  const Json result = {{"role", "tool"},
                       {"tool_call_id", "call12345"},
                       {"name", kToolMark},
                       {"content", content(kResultMark)}};
  probe.tool_calls = prober.shows("tool calls", {kToolMark}, Json::array({asked, calling, result}));
  probe.tool_results = prober.shows("tool results", {kResultMark},
                                    Json::array({asked, calling, result}), tool_list());

  const auto with = prober.render("generation prompt", Json::array({asked}));
  const auto without = prober.render("generation prompt", Json::array({asked}), nullptr, false);
  probe.generation_prompt = with && without && *with != *without;
  if (with) {
    const size_t open = with->rfind("<think>");
    probe.opens_thinking =
        open != std::string::npos && with->find("</think>", open) == std::string::npos;
  }
  const size_t before = prober.failures.size();
  probe.alternation = !prober.render("alternation", Json::array({asked, asked})).has_value();
  prober.failures.resize(before);  // a refusal is the answer

  Json thought = answered;
  thought["reasoning_content"] = kThoughtMark;
  const auto thinking = prober.render("reasoning", Json::array({asked, thought}), nullptr, false);
  probe.reasoning_content = thinking && thinking->find(kThoughtMark) != std::string::npos;
  probe.thinking_switch = find_thinking_switch(prober, Json::array({asked}));
  probe.failures = std::move(prober.failures);
  return probe;
}

}  // namespace ktx::text
