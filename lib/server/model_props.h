// What GET /props tells of a loaded model, as JSON; kept for the time when it sleeps.
#pragma once

#include <string>

#include "lib/server/served_model.h"

namespace ktx::server {

std::string props_of(const ServedModel& model);  // "" of one without an engine

}  // namespace ktx::server
