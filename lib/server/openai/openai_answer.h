// The common part of /v1/chat/completions and /v1/completions: the envelope, and either a
// stream of chunks with its end or one object when all choices are done.
//
//   class Completion final : public OpenAiAnswer {
//     Completion(...) : OpenAiAnswer(model, reply, fields, "cmpl-", kObjects, choices) {}
//     void begin_stream() override { chunk(entry); }   // and so on
//   };
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/openai/openai_format.h"

namespace ktx::server {

class OpenAiAnswer : public AnswerJob {
 public:
  // The `object` of the whole answer and of a chunk.
  struct Objects {
    const char* whole;
    const char* chunk;
  };
  OpenAiAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
               const char* id_prefix, Objects objects, size_t choices);

 protected:
  virtual void begin_stream() = 0;               // the chunks before the first piece
  virtual void end_stream(size_t choice) = 0;    // the chunk with the finish reason
  virtual Json whole_choice(size_t choice) = 0;  // its entry, when nothing is streamed

  // What llama.cpp's server adds with `verbose`: its own form of the answer of a choice.
  virtual Json native_answer(size_t /*choice*/, const ChoiceEnd&) { return nullptr; }

  bool stream() const { return stream_; }
  const std::string& finish_reason(size_t choice) const { return finish_reasons_[choice]; }
  // Writes a chunk with one entry in `choices`, with `so_far` as its timings.
  void chunk(Json entry, const std::optional<runtime::RequestEnd>& so_far = {});
  // The place in the batch that the choice had, once it has ended.
  int slot(size_t choice) const { return slots_[choice]; }

 private:
  Json envelope(const char* object) const;
  void add_usage(Json& json) const;

  void on_accepted() final;
  void on_progress(size_t choice, const runtime::PromptProgress& progress) final;
  void on_choice_end(size_t choice, const ChoiceEnd& end) final;
  void on_all_ended() final;
  void on_refused(const ApiError& error) final { send_error(reply(), error); }

  const bool stream_, include_usage_;
  const Objects objects_;
  const std::string id_;
  const int64_t created_;
  const size_t choices_of_prompt_;
  std::vector<std::string> finish_reasons_;
  std::vector<int> slots_;
  Json verbose_;
  Usage usage_;
  std::optional<ApiError> failed_;
};

}  // namespace ktx::server
