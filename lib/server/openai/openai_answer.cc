#include "lib/server/openai/openai_answer.h"

#include <ctime>

namespace ktx::server {

OpenAiAnswer::OpenAiAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply,
                           const AnswerFields& fields, const char* id_prefix, Objects objects,
                           size_t choices)
    : AnswerJob(std::move(model), std::move(reply)),
      stream_(fields.stream),
      include_usage_(fields.include_usage),
      objects_(objects),
      id_(new_id(id_prefix)),
      created_(std::time(nullptr)),
      choices_of_prompt_(static_cast<size_t>(fields.n)),
      finish_reasons_(choices),
      slots_(choices, -1) {}

Json OpenAiAnswer::envelope(const char* object) const {
  Json json;
  json["id"] = id_;
  json["object"] = object;
  json["created"] = created_;
  json["model"] = model().id;
  json["system_fingerprint"] = "ktx-" KTX_VERSION;
  json["choices"] = Json::array();
  return json;
}

void OpenAiAnswer::add_usage(Json& json) const {
  json["usage"] = usage_.json();
  json["timings"] = usage_.timings();
}

void OpenAiAnswer::chunk(Json entry, const std::optional<runtime::RequestEnd>& so_far) {
  Json json = envelope(objects_.chunk);
  json["choices"].push_back(std::move(entry));
  if (so_far) json["timings"] = timings_json(*so_far);
  if (include_usage_) json["usage"] = nullptr;
  reply().write(sse(json));
}

void OpenAiAnswer::on_accepted() {
  if (!stream_) return;
  reply().begin(200, kEventStream, stream_headers());
  begin_stream();
}

void OpenAiAnswer::on_progress(size_t choice, const runtime::PromptProgress& progress) {
  // In the form of a chunk, so that clients that do not know it meet nothing new.
  Json json = envelope(objects_.chunk);
  Json entry = {{"index", choice}, {"finish_reason", nullptr}};
  entry[objects_.whole == objects_.chunk ? "text" : "delta"] =
      objects_.whole == objects_.chunk ? Json("") : Json::object();
  json["choices"].push_back(std::move(entry));
  json["prompt_progress"] = progress_json(progress);
  reply().write(sse(json));
}

void OpenAiAnswer::on_choice_end(size_t choice, const ChoiceEnd& end) {
  usage_.add(choice / choices_of_prompt_, end);
  if (end.failed) {
    failed_ = end.error;
    return;
  }
  finish_reasons_[choice] = end.finish_reason;
  slots_[choice] = end.result.slot;
  if (verbose_.is_null()) verbose_ = native_answer(choice, end);
  if (stream_) end_stream(choice);
}

void OpenAiAnswer::on_all_ended() {
  if (stream_) {
    if (failed_) {
      reply().write(sse(to_json(*failed_)));
    } else if (include_usage_) {
      Json json = envelope(objects_.chunk);
      add_usage(json);
      if (!verbose_.is_null()) json["__verbose"] = std::move(verbose_);
      reply().write(sse(json));
    }
    reply().write("data: [DONE]\n\n");
    return reply().end();
  }
  if (failed_) return send_error(reply(), *failed_);
  Json json = envelope(objects_.whole);
  for (size_t i = 0; i < finish_reasons_.size(); ++i) json["choices"].push_back(whole_choice(i));
  add_usage(json);
  if (!verbose_.is_null()) json["__verbose"] = std::move(verbose_);
  reply().send(200, "application/json", dump(json));
}

}  // namespace ktx::server
