// What to do instead of downloading a model.
#pragma once

#include <string>

#include "lib/server/http/api_error.h"

namespace ktx::server {

ApiError no_download(const std::string& name);

}  // namespace ktx::server
