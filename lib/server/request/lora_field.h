// `lora` of a request and the body of POST /lora-adapters, in llama.cpp's form:
//
//   [{"id": 0, "scale": 0.5}, {"id": 2, "scale": 1}]      adapters that are not there have scale 0
#pragma once

#include <optional>

#include "lib/runtime/lora/lora_choice.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"

namespace ktx::server {

// Nothing where the field is absent; mistakes are noted in `in`.
std::optional<runtime::LoraChoice> read_lora(const ServedModel& model, FieldReader& in);

// The request's own, or what its model name chooses.
runtime::LoraChoice lora_of(const ServerContext& context, FieldReader& in);

}  // namespace ktx::server
