// Request fields that all OpenAI-like endpoints read in the same way.
#pragma once

#include <string>
#include <vector>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"
#include "lib/server/request/constraint.h"

namespace ktx::server {

inline constexpr int64_t kMaxChoices = 16;

// The fields of a request besides its prompt.
struct AnswerFields : runtime::GenerationOptions {
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;
  std::vector<std::string> stop;
  bool prompt_logprobs = false;
  bool tell_times = false, tell_progress = false;
  bool ignore_eos = false;
  double max_seconds = 0;                       // the request's own deadline; 0: none
  int priority = 0;                             // among those of its key; lower is sooner
  std::optional<runtime::LoraChoice> own_lora;  // else that of the model's name
  ReasoningLimit reasoning;
  Constraint constraint;
};

// Reads model, n, stream, max_seconds, stop, seed, sampling, max_tokens, cache_prompt, id_slot,
// n_keep, n_discard, timings_per_token, return_progress, ignore_eos, speculative.n_max,
// priority, lora, reasoning_budget and what constrains the answer (constraint_fields.h); mistakes
// are noted in `in`.
AnswerFields read_answer_fields(const ServedModel& model, FieldReader& in);

// reasoning_budget, under each of its names, and its message; else the server's.
ReasoningLimit read_reasoning_limit(const ServedModel& model, FieldReader& in);

// A spec for each of `fields.n` choices with this prompt; seeds differ. Owner and time limit are
// the context's. Fails where the filter cannot be made.
ApiStatus make_specs(const ServerContext& context, const AnswerFields& fields,
                     const std::vector<int32_t>& prompt, std::vector<AnswerSpec>& specs);

}  // namespace ktx::server
