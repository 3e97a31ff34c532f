// The name of the model that a request is for: `model` of its query or, at the top, of its body.
#pragma once

#include <string>

#include "lib/server/http_server.h"

namespace ktx::server {

// "": none. Reads no further than needed, and of a body that is no JSON as far as it is.
std::string requested_model(const HttpRequest& request);

}  // namespace ktx::server
