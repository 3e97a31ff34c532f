#include "lib/server/served_model.h"

#include <fmt/format.h>

#include <random>

#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::server {

uint64_t ServedModel::new_seed() const {
  return seed ? *seed : std::random_device{}() * uint64_t{0x9E3779B97F4A7C15};
}

runtime::Pooling pooling_of(const plan::PlanFacts& facts) {
  if (facts.pooling == "mean") return runtime::Pooling::Mean;
  if (facts.pooling == "cls") return runtime::Pooling::First;
  if (facts.pooling == "none") return runtime::Pooling::None;
  // Encoders of which nothing is said were mostly trained so.
  if (facts.encoder && facts.pooling.empty()) return runtime::Pooling::Mean;
  return runtime::Pooling::Last;
}

Status complete_model(ServedModel& model, const std::string& plan_path,
                      const std::optional<std::string>& chat_template) {
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
  const std::string& source = chat_template ? *chat_template : plan.chat_template.source;
  if (source.empty()) return {};
  Result<text::ChatTemplate> parsed = text::ChatTemplate::parse(source);
  if (!parsed && chat_template) return Error{"the chat template: " + parsed.error().message};
  // One that does not parse was a warning when the plan was compiled.
  if (!parsed) return {};
  model.chat_template.emplace(parsed.take());
  const ReasoningForm form = reasoning_form(*model.tokenizer, source);
  model.tool_format = text::detect_tool_call_format(source);
  if (model.speaks_harmony() && !form.harmony) model.tool_format = text::ToolCallFormat::None;
  model.reasoning = form.tags;
  if (model.reasoning) {
    const auto open = model.tokenizer->find(model.reasoning->open_token);
    const auto close = model.tokenizer->find(model.reasoning->close);
    if (open && close) {
      ReasoningTokens& tokens = model.reasoning_tokens.emplace();
      tokens.open = *open;
      tokens.close = *close;
      tokens.allowed = all_but_ends(*model.tokenizer);
    }
  }
  return {};
}

}  // namespace ktx::server
