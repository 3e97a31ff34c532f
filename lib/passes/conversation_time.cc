#include "lib/passes/conversation_time.h"

#include <algorithm>

#include "lib/passes/launched_steps.h"
#include "lib/passes/pass_time.h"
#include "lib/passes/passes_over_hosts.h"

namespace ktx::passes {

double prompt_seconds(const steps::StepGraph& graph, const CompileState& state, int64_t tokens) {
  const int64_t chunk = std::min(tokens, state.check.shape.step_tokens);
  // All chunks as the middle one: attention grows evenly.
  const PassTime pass =
      predict_pass(graph, state.target,
                   {.tokens = chunk,
                    .before = (tokens - chunk) / 2,
                    .slots = state.stream_slots.value_or(plan::StreamSlots::Layer),
                    .joint = state.prefer.joint_tokens});
  if (!pass.known) return 0;
  const double chunks = static_cast<double>(tokens) / static_cast<double>(chunk);
  return seconds_of_all(pass, chunks, chunks_in_flight(graph));
}

ConversationTime conversation_time(const CompileState& state) {
  CompileState copy = state;
  copy.fact = Fact::Placed;
  const auto graph = launched_steps(copy);
  if (!graph) return {};
  const PassTime token = predict_pass(*graph, copy.target, {});
  ConversationTime time{token.known ? token.seconds : 0, prompt_seconds(*graph, copy, kLongPrompt),
                        prompt_seconds(*graph, copy, kShortPrompt)};
  const bool known = time.token > 0 && time.long_prompt > 0 && time.short_prompt > 0;
  return known ? time : ConversationTime();
}

}  // namespace ktx::passes
