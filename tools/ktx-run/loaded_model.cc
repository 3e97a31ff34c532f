#include "tools/ktx-run/loaded_model.h"

#include <fmt/format.h>

#include <chrono>

#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "lib/target/isa.h"
#include "lib/text/chat_template/known_templates.h"
#include "lib/text/tokenizer/tokenizer_data.h"
#include "tools/ktx-run/adapters.h"
#include "tools/ktx-run/drafting.h"
#include "tools/option_readers.h"

namespace ktx::tools {

runtime::EngineOptions engine_options(const EngineFlags& flags) {
  runtime::EngineOptions options;
  options.threads = flags.threads;
  if (flags.precision == "exact") options.precision = runtime::Precision::Exact;
  if (flags.precision == "fast") options.precision = runtime::Precision::Fast;
  if (flags.pin == "on") options.pin = runtime::Pin::On;
  if (flags.pin == "off") options.pin = runtime::Pin::Off;
  if (flags.nccl == "on") options.gpu_links = runtime::GpuLinks::On;
  if (flags.nccl == "off") options.gpu_links = runtime::GpuLinks::Off;
  if (flags.kv_type == "f32") options.kv_type = plan::KvType::F32;
  if (flags.kv_type == "f16") options.kv_type = plan::KvType::F16;
  if (flags.kv_type == "q8") options.kv_type = plan::KvType::Q8_0;
  options.isa = isa_from_name(flags.isa);
  if (flags.ctx > 0) options.ctx = flags.ctx;
  options.largest_ctx = flags.ctx == kLargestCtx;
  if (flags.max_batch > 0) options.max_batch = flags.max_batch;
  if (flags.chunk_tokens > 0) options.chunk_tokens = flags.chunk_tokens;
  if (flags.kv_budget_bytes > 0) options.kv_budget_bytes = flags.kv_budget_bytes;
  if (flags.expert_memory_bytes >= 0) options.expert_memory_bytes = flags.expert_memory_bytes;
  options.verify = flags.verify;
  options.huge_pages = flags.huge_pages;
  options.check_finite = flags.check_finite;
  options.count_experts = !flags.record_experts.empty();
  options.hosts = flags.hosts;
  options.sequence_logits = flags.sequence_logits;
  options.on_result = flags.on_result;
  return options;
}

Result<text::Tokenizer> tokenizer_of(const std::string& path, const plan::PlanView& plan) {
  Result<text::TokenizerData> data = text::parse_tokenizer_data(plan.tokenizer);
  if (!data) return Error{fmt::format("{}: {}", path, data.error().message)};
  Result<text::Tokenizer> tokenizer = text::Tokenizer::create(data.take());
  if (!tokenizer) return Error{fmt::format("{}: {}", path, tokenizer.error().message)};
  if (tokenizer->size() > plan.facts.vocab_size) {
    return Error{
        fmt::format("{}: the tokenizer has {} tokens, the model {}; compile the plan again", path,
                    tokenizer->size(), plan.facts.vocab_size)};
  }
  return tokenizer;
}

Status check_generates(const std::string& path, const plan::PlanFacts& facts) {
  const std::string why = plan::no_text_reason(facts);
  if (why.empty()) return {};
  return Error{fmt::format("{}: {}", path, why)};
}

Status choose_template(const std::string& plan, const ChatTemplateFlags& flags,
                       LoadedModel& model) {
  const auto chosen = KTX_TRY(text::chosen_template(flags.name_or_text, flags.file));
  if (chosen) model.chat_template = KTX_TRY(text::ChatTemplate::parse(*chosen));
  if (model.chat_template) return {};
  return Error{
      fmt::format("{}: the model has no chat template that works; choose one with --chat-template "
                  "({}) or --chat-template-file FILE; `ktx-run generate --prompt` takes plain text",
                  plan, join(text::known_template_names(), ", "))};
}

Result<LoadedModel> load_model(const std::string& plan, const EngineFlags& flags,
                               const DraftFlags& draft) {
  const Timer timer;
  runtime::EngineOptions options = engine_options(flags);
  options.lora = KTX_TRY(read_adapters(flags.lora));
  KTX_TRY(make_room_for_drafts(draft, plan, options));
  std::unique_ptr<runtime::Engine> engine = KTX_TRY(runtime::Engine::open(plan, options));
  text::Tokenizer tokenizer = KTX_TRY(tokenizer_of(plan, engine->plan()));
  std::optional<text::ChatTemplate> chat_template;
  const plan::PlanChatTemplate& source = engine->plan().chat_template;
  if (!source.source.empty()) {
    Result<text::ChatTemplate> parsed = text::ChatTemplate::parse(source.source);
    // One that does not parse was a warning when the plan was compiled.
    if (parsed) chat_template = parsed.take();
  }
  LoadedModel model{
      std::move(engine), std::move(tokenizer), std::move(chat_template), 0, {}, {}, {}};
  model.notes = model.engine->notes();
  model.drafter =
      KTX_TRY(open_drafter(draft, plan, flags, *model.engine, model.tokenizer, model.notes));
  if (model.drafter) {
    model.speculation =
        std::make_unique<runtime::Speculation>(*model.drafter, speculation_options(draft));
  }
  model.load_seconds = timer.seconds();
  return model;
}

runtime::SamplingOptions sampling_options(const SamplingFlags& flags) {
  runtime::SamplingOptions options;
  options.temperature = static_cast<float>(flags.temperature);
  options.top_k = static_cast<int32_t>(flags.top_k);
  options.top_p = static_cast<float>(flags.top_p);
  options.min_p = static_cast<float>(flags.min_p);
  options.repetition_penalty = static_cast<float>(flags.repetition_penalty);
  options.presence_penalty = static_cast<float>(flags.presence_penalty);
  options.frequency_penalty = static_cast<float>(flags.frequency_penalty);
  options.seed = flags.seed.value_or(
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  return options;
}

}  // namespace ktx::tools
