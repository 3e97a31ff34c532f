// What a request says about reasoning and about the template's variables, in every protocol's
// words:
//
//   chat_template_kwargs                         variables of the template; they win
//   reasoning_effort, reasoning.effort, output_config.effort      "none" ... "max"
//   thinking: {"type": "adaptive"}, reasoning.enabled, enable_thinking
//
// On, off, or as the model does by itself: that is what words such as "adaptive", "auto" and
// "default" leave. The most tokens are a ReasoningLimit.
#pragma once

#include <string>

#include "lib/server/filters/reasoning_budget.h"
#include "lib/server/request/chat_prompt_input.h"

namespace ktx::server {

// Mistakes are noted in `in`. `limit` may be changed.
void read_reasoning_fields(const ServedModel& model, FieldReader& in, ChatInput& input,
                           ReasoningLimit& limit);

// An effort as variables of the template: "none" turns reasoning off, and one that the template
// does not know is the nearest that it may know ("minimal" is "low", "xhigh" and "max" are "high").
// `switches`: any other effort turns reasoning on. What `extra` has stays.
void set_reasoning_effort(const ServedModel& model, const std::string& effort, bool switches,
                          Json& extra);

}  // namespace ktx::server
