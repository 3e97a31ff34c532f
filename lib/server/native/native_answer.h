// The answer of llama.cpp's own endpoints (/completion, /infill), and `__verbose` of the others.
//
//   {"index": 0, "content": "...", "tokens": [], "id_slot": 0, "stop": true, "stop_type": "limit",
//    "tokens_predicted": 8, "generation_settings": {...}, "timings": {...}, ...}
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/request/text_input.h"

namespace ktx::server {

// What an answer says of its request.
struct NativeRequest {
  std::string prompt;
  Json settings;  // generation_settings
  bool return_tokens = false;
};

// All sampling options of the request, those that are at their defaults too.
Json generation_settings(const ServedModel& model, const AnswerFields& fields,
                         const runtime::LoraChoice& lora);

// The whole answer of a choice. `content` and `tokens`: "" and none where they were streamed.
Json native_end(const ServedModel& model, size_t index, const NativeRequest& request,
                std::string content, const std::vector<int32_t>& tokens, const ChoiceEnd& end,
                bool has_new_line);

// The prompts of a request, read, and what it asks of the form of its answers.
struct NativeFields {
  AnswerFields answer;
  std::vector<std::string> response_fields;  // paths with '/'; none: all
  bool return_tokens = false;
  bool list = false;  // several prompts were sent: the answer is a list
};

// Reads what /completion and /infill have beside the prompt; mistakes are noted in `in`.
NativeFields read_native_fields(const ServedModel& model, FieldReader& in);

// Answers each of the prompts.
ApiStatus answer_natively(const ServerContext& context, const HttpReplyPtr& reply,
                          const NativeFields& fields, const std::vector<TextInput>& prompts);

}  // namespace ktx::server
