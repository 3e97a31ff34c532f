#include "lib/server/answer/answer_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/request/constraint_fields.h"
#include "lib/server/request/lora_field.h"
#include "lib/server/request/sampling_fields.h"

namespace ktx::server {

ReasoningLimit read_reasoning_limit(const ServedModel& model, FieldReader& in) {
  ReasoningLimit limit = model.reasoning_limit;
  for (const char* name :
       {"reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"}) {
    if (const auto most = in.maybe_count(name, -1)) limit.tokens = *most;
  }
  limit.message = in.text("reasoning_budget_message", limit.message);
  return limit;
}

AnswerFields read_answer_fields(const ServedModel& model, FieldReader& in) {
  AnswerFields fields;
  in.text("model");  // clients send the names of other vendors' models: any is this one
  fields.n = in.whole("n", 1, 1, kMaxChoices);
  fields.stream = in.flag("stream", false);
  if (const Json* options = in.object("stream_options")) {
    FieldReader inner(*options, "stream_options.");
    fields.include_usage = inner.flag("include_usage", false);
    if (!inner.status()) in.fail("stream_options", inner.status().error().message);
  }
  fields.max_tokens = model.max_tokens;
  // Zero is a request for the prompt's computation alone; -1 is "no limit".
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    if (const auto limit = in.maybe_count(name, -1)) fields.max_tokens = *limit;
  }
  fields.sampling = model.sampling;
  read_sampling(in, model.new_seed(), *model.tokenizer, fields.sampling);
  fields.stop = in.texts("stop", text::kMaxStopStrings);
  std::erase(fields.stop, "");
  fields.ignore_eos = in.flag("ignore_eos", false);
  fields.reuse_cache = in.flag("cache_prompt", true);
  // llama.cpp's name; -1: as many as the server drafts.
  const int64_t draft_tokens = in.whole("speculative.n_max", -1, -1, 1 << 20);
  if (draft_tokens >= 0) fields.max_draft_tokens = std::min(draft_tokens, runtime::kMaxDraftTokens);
  fields.slot = static_cast<int>(in.whole("id_slot", -1, -1, model.engine->max_batch() - 1));
  const int64_t keep = in.whole("n_keep", 0, -1, int64_t{1} << 40);
  const int64_t drop = in.whole("n_discard", 0, 0, int64_t{1} << 40);
  fields.shift = {keep, drop};
  fields.tell_times = in.flag("timings_per_token", false);
  fields.tell_progress = in.flag("return_progress", false);
  fields.max_seconds = in.number("max_seconds", 0, 0, 1e6);
  fields.priority = static_cast<int>(in.whole("priority", 0, -1 << 30, 1 << 30));
  fields.own_lora = read_lora(model, in);
  fields.reasoning = read_reasoning_limit(model, in);
  read_constraint(in, fields.constraint);
  return fields;
}

ApiStatus make_specs(const ServerContext& context, const AnswerFields& fields,
                     const std::vector<int32_t>& prompt, std::vector<AnswerSpec>& specs) {
  const int64_t limit_seconds = context.request_seconds;
  for (int64_t i = 0; i < fields.n; ++i) {
    AnswerSpec spec;
    static_cast<runtime::GenerationOptions&>(spec) = fields;
    spec.prompt = prompt;
    spec.lora = fields.own_lora.value_or(context.lora);
    spec.owner = context.owner;
    spec.share = context.share;
    spec.share.priority = fields.priority;
    spec.sampling.seed += static_cast<uint64_t>(i);
    spec.stop = fields.stop;
    spec.prompt_logprobs = fields.prompt_logprobs;
    spec.shift.reset();
    if (context.model->context_shift) {
      spec.shift = fields.shift.value_or(runtime::ContextShift());
      const bool has_bos = !prompt.empty() && prompt[0] == context.model->tokenizer->bos();
      if (has_bos && spec.shift->keep >= 0) ++spec.shift->keep;
    }
    spec.tell_times = fields.tell_times;
    spec.tell_progress = fields.tell_progress && fields.stream;
    spec.ignore_eos = fields.ignore_eos;
    spec.max_seconds = static_cast<double>(limit_seconds);
    if (fields.max_seconds > 0 && (limit_seconds == 0 || fields.max_seconds < spec.max_seconds)) {
      spec.max_seconds = fields.max_seconds;
    }
    KTX_TRY(make_filter(*context.model, fields.constraint, fields.ignore_eos, spec.filter,
                        i == 0 ? &spec.notes : nullptr));
    specs.push_back(std::move(spec));
  }
  return {};
}

}  // namespace ktx::server
