// `resume_slot`: a request that continues the answer held by a slot (slots.cc).
//
//   {"resume_slot": 0, "max_tokens": 100}
//
// The prompt is the slot's text. Sampling continues with that answer's options, except those
// that the request names, and with its random state, so the tokens are those that would have
// followed.
#pragma once

#include <optional>
#include <string>

#include "lib/server/answer/answer_fields.h"

namespace ktx::server {

// Reads the field; nothing when the request has none.
std::optional<int64_t> read_resume_slot(const ServedModel& model, FieldReader& in);

// The text that the context's owner has in the slot. `prompt_field` is what the request may not
// have then ("prompt").
ApiStatus read_resumed(const ServerContext& context, const Json& body, const char* prompt_field,
                       int64_t slot, FieldReader& in, AnswerFields& fields,
                       runtime::SlotText& text);

// An answer that ended by itself has nothing to go on with, unless ends are ignored.
ApiStatus check_unfinished(const ServedModel& model, int64_t slot, const runtime::SlotText& text,
                           const AnswerFields& fields);

// The part of the text that was the prompt, as text.
std::string prompt_text(const ServedModel& model, const runtime::SlotText& text);

void go_on(const runtime::SlotText& text, AnswerSpec& spec);

}  // namespace ktx::server
