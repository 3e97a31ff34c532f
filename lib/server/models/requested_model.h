// What has to be known of a request before its endpoint reads it: the model that it is for (`model`
// of its query or, at the top, of its body), and whether its answer is to be a stream.
#pragma once

#include <string>

#include "lib/server/http/http_server.h"

namespace ktx::server {

// Whether a request for the model `name` is for `own`: Ollama's clients add ":latest", and a hub's
// model has its name in any case, "hf.co/o/n" or "hf:o/n".
bool names_model(const std::string& own, const std::string& name);
// "": none. Reads no further than needed, and of a body that is no JSON as far as it is.
std::string requested_model(const HttpRequest& request);
// `"stream": true` at the top of the body.
bool wants_stream(const HttpRequest& request);

}  // namespace ktx::server
