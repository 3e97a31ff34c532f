// The page as one text, generated from web_ui/ at build time.
#pragma once

#include <string_view>

namespace ktx::server {

std::string_view web_page();

}  // namespace ktx::server
