#include "lib/server/models/model_props.h"

#include <filesystem>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/native/native_answer.h"

namespace ktx::server {

std::string props_of(const ServedModel& model) {
  if (!model.engine) return "";
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  AnswerFields fields;
  fields.sampling = model.sampling;
  fields.max_tokens = model.max_tokens;
  Json params = generation_settings(model, fields, model.adapters.choice());
  // Another number for each request, unless --seed says one.
  params["seed"] = model.seed ? Json(*model.seed) : Json(-1);
  Json json;
  const int64_t ctx = model.scheduler ? model.scheduler->capacity() : model.engine->ctx();
  json["default_generation_settings"] = {{"n_ctx", ctx}, {"params", std::move(params)}};
  json["total_slots"] = model.engine->max_batch();
  json["model_alias"] = model.id;
  json["model_path"] = std::filesystem::path(model.path).filename().string();
  json["modalities"] = {{"vision", model.viewer != nullptr}, {"audio", false}};
  json["chat_template"] = model.chat_template ? model.chat_template->source() : "";
  json["bos_token"] = strings.bos;
  json["eos_token"] = strings.eos;
  json["tool_format"] = text::format_name(model.tool_format);
  json["reasoning"] = model.reasoning.has_value();
  return dump(json);
}

}  // namespace ktx::server
