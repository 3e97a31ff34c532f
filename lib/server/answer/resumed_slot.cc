#include "lib/server/answer/resumed_slot.h"

#include <fmt/format.h>

#include "lib/runtime/engine/images_of_pass.h"
#include "lib/server/request/sampling_fields.h"

namespace ktx::server {

std::optional<int64_t> read_resume_slot(const ServedModel& model, FieldReader& in) {
  return in.maybe_whole("resume_slot", 0, model.engine->max_batch() - 1);
}

ApiStatus read_resumed(const ServerContext& context, const Json& body, const char* prompt_field,
                       int64_t slot, FieldReader& in, AnswerFields& fields,
                       runtime::SlotText& text) {
  const ServedModel& model = *context.model;
  text = model.scheduler->slot_text(static_cast<int>(slot), context.owner);
  if (text.tokens.empty()) {
    return ApiError{400, fmt::format("slot {} holds no text", slot), "resume_slot", ""};
  }
  if (runtime::has_images(text.tokens)) {
    return ApiError{
        400, fmt::format("the text of slot {} has images; send its messages again instead", slot),
        "resume_slot", ""};
  }
  if (body.contains(prompt_field) || fields.n != 1) {
    return ApiError{400,
                    fmt::format("'resume_slot' goes on with the slot's own text: leave out "
                                "'{}', and 'n' above 1",
                                prompt_field),
                    "resume_slot", ""};
  }
  fields.sampling = text.sampling;
  if (!fields.own_lora) fields.own_lora = text.lora;
  read_sampling(in, 0, *model.tokenizer, fields.sampling);
  return in.status();
}

ApiStatus check_unfinished(const ServedModel& model, int64_t slot, const runtime::SlotText& text,
                           const AnswerFields& fields) {
  const bool over = text.answered > 0 && model.tokenizer->is_eog(text.tokens.back());
  if (!over || fields.ignore_eos) return {};
  return ApiError{400,
                  fmt::format("the answer in slot {} has ended; send its messages and the new one "
                              "instead",
                              slot),
                  "resume_slot", ""};
}

std::string prompt_text(const ServedModel& model, const runtime::SlotText& text) {
  const auto size = text.tokens.size() - static_cast<size_t>(text.answered);
  return model.tokenizer->decode(std::span(text.tokens).first(size), true);
}

void go_on(const runtime::SlotText& text, AnswerSpec& spec) {
  spec.sampler = text.sampler;
  spec.answered_tokens = text.answered;
}

}  // namespace ktx::server
