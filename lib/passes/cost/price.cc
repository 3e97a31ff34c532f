#include "lib/passes/cost/price.h"

#include <algorithm>

#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/forwards_over_hosts.h"
#include "lib/passes/cost/launched_steps.h"

namespace ktx::passes {
namespace {

double prompt_seconds(const program::Program& program, const target::Target& target,
                      const StreamChoice& streams, int64_t tokens) {
  const int64_t chunk = std::min(tokens, streams.way.chunk);
  // All chunks as the middle one: attention grows evenly.
  const ForwardTime pass =
      predict_forward(program, target,
                      {.tokens = chunk,
                       .before = (tokens - chunk) / 2,
                       .slots = streams.way.slots.value_or(plan::StreamSlots::Layer),
                       .joint = streams.joint});
  if (!pass.known) return 0;
  const double chunks = static_cast<double>(tokens) / static_cast<double>(chunk);
  return seconds_of_all(pass, chunks, chunks_in_flight(program));
}

}  // namespace

ConversationTime price(const PricedModel& model, const Placement& placement) {
  const auto program = launched_steps(model, placement);
  if (!program) return {};
  const ForwardTime token = predict_forward(*program, model.target, {});
  const auto prompt = [&](int64_t tokens) {
    return prompt_seconds(*program, model.target, placement.streams, tokens);
  };
  const ConversationTime time{token.known ? token.seconds : 0, prompt(kLongPrompt),
                              prompt(kShortPrompt)};
  const bool known = time.token > 0 && time.long_prompt > 0 && time.short_prompt > 0;
  return known ? time : ConversationTime();
}

}  // namespace ktx::passes
