// The page as one text; made from web_ui/ when ktx is built.
#pragma once

#include <string_view>

namespace ktx::server {

std::string_view web_page();

}  // namespace ktx::server
