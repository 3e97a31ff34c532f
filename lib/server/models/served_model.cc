#include "lib/server/models/served_model.h"

#include <fmt/format.h>

#include <random>

#include "lib/support/strings.h"
#include "lib/text/answers/tools_as_text.h"
#include "lib/text/chat_template/template_probe.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::server {

uint64_t ServedModel::new_seed() const {
  // 53 bits: answers report it, and clients that read numbers as doubles send it back.
  return seed ? *seed : std::random_device{}() * uint64_t{0x9E3779B97F4A7C15} >> 11;
}

runtime::Pooling pooling_of(const plan::PlanFacts& facts) {
  if (facts.pooling == "mean") return runtime::Pooling::Mean;
  if (facts.pooling == "cls") return runtime::Pooling::First;
  if (facts.pooling == "none") return runtime::Pooling::None;
  // Encoders of which nothing is said were mostly trained so.
  if (facts.encoder && facts.pooling.empty()) return runtime::Pooling::Mean;
  return runtime::Pooling::Last;
}

namespace {

// The template and, where requests with tools have their own, that one. One that does not parse
// was a warning when the plan was compiled.
Status parse_templates(ServedModel& model, const plan::PlanChatTemplate& plan,
                       const ChatSettings& settings) {
  const std::string& source = settings.chat_template ? *settings.chat_template : plan.source;
  const auto named = plan.named.find(kToolUse);
  if (!source.empty()) {
    Result<text::ChatTemplate> parsed = text::ChatTemplate::parse(source);
    if (!parsed && settings.chat_template) {
      return Error{"the chat template: " + parsed.error().message};
    }
    if (parsed) model.chat_template.emplace(parsed.take());
  }
  if (settings.chat_template || named == plan.named.end()) return {};
  Result<text::ChatTemplate> parsed = text::ChatTemplate::parse(named->second);
  if (!parsed) return {};
  if (!model.chat_template) {
    model.chat_template.emplace(parsed.take());
  } else {
    model.tool_template.emplace(parsed.take());
  }
  return {};
}

Status choose_tool_format(ServedModel& model, const std::string& name) {
  const text::ChatTemplate& chat = model.template_for(true);
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  model.shows_tools = text::probe_template(chat, strings.bos, strings.eos).tools;
  model.tool_format = text::detect_tool_call_format(chat.source());
  const bool harmony = reasoning_form(*model.tokenizer, chat.source()).harmony;
  if (model.speaks_harmony() && !harmony) model.tool_format = text::ToolCallFormat::None;
  if (model.tool_format == text::ToolCallFormat::None) {
    model.tool_format = text::ToolCallFormat::Generic;
  }
  if (name == "auto") return {};
  const auto chosen = text::format_from_name(name);
  if (!chosen) {
    std::vector<std::string> names = text::tool_call_format_names();
    return Error{
        fmt::format("--tool-format: no form of calls is called '{}'{}; known are auto, none, {}",
                    printable(name), did_you_mean(name, names), join(names, ", "))};
  }
  const bool needs_template =
      *chosen != text::ToolCallFormat::None && !text::has_text_form(*chosen);
  if (needs_template && *chosen != model.tool_format) {
    return Error{
        fmt::format("--tool-format {}: this form needs a chat template that is made for it; "
                    "known for others are {}",
                    name, join(text::text_form_names(), ", "))};
  }
  model.tool_format = *chosen;
  return {};
}

}  // namespace

Status complete_model(ServedModel& model, const std::string& plan_path,
                      const ChatSettings& settings) {
  const plan::PlanView& plan = model.engine->plan();
  Result<text::TokenizerData> data = text::parse_tokenizer_data(plan.tokenizer);
  if (!data) return Error{fmt::format("{}: {}", plan_path, data.error().message)};
  Result<text::Tokenizer> tokenizer = text::Tokenizer::create(data.take());
  if (!tokenizer) return Error{fmt::format("{}: {}", plan_path, tokenizer.error().message)};
  if (tokenizer->size() > model.engine->vocab_size()) {
    return Error{
        fmt::format("{}: the tokenizer has {} tokens, the model {}; compile the plan again",
                    plan_path, tokenizer->size(), model.engine->vocab_size())};
  }
  model.tokenizer.emplace(tokenizer.take());
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  model.path = plan_path;
  model.summary = std::make_shared<const PlanSummary>(summarize(plan));
  model.allow_control_tokens = settings.allow_control_tokens;
  KTX_TRY(parse_templates(model, plan.chat_template, settings));
  if (!model.chat_template) return {};
  KTX_TRY(choose_tool_format(model, settings.tool_format));
  for (const bool with_tools : {false, true}) {
    const std::string& source = model.template_for(with_tools).source();
    if (!model.reasoning) model.reasoning = reasoning_form(*model.tokenizer, source).tags;
  }
  model.call_tokens.emplace(*model.tokenizer, model.tool_format, model.reasoning);
  if (model.reasoning) model.reasoning_tokens.emplace(*model.tokenizer, *model.reasoning);
  return {};
}

}  // namespace ktx::server
