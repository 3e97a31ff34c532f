// GET /props of a loaded model, as JSON; kept while the model sleeps.
#pragma once

#include <string>

#include "lib/server/models/served_model.h"

namespace ktx::server {

std::string props_of(const ServedModel& model);  // "" of one without an engine

}  // namespace ktx::server
