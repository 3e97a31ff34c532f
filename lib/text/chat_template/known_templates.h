// Chat templates by name (known_templates.def), for models whose file has none.
//
//   template_of("chatml")              ->  the template of that name
//   template_of("{{ messages[0] }}")   ->  itself: a text with {{ or {%
//   template_of("chatlm")              ->  error: ... did you mean 'chatml'?
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text {

Result<std::string> template_of(std::string_view name_or_text);
std::vector<std::string> known_template_names();

// --chat-template and --chat-template-file: the template that one of them gives, if one does. It
// parses.
Result<std::optional<std::string>> chosen_template(const std::optional<std::string>& name_or_text,
                                                   const std::optional<std::string>& file);

}  // namespace ktx::text
