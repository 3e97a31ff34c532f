// Conversations for templates that know fewer roles, or fewer places for them.
#pragma once

#include <string>

#include "lib/server/http/json_fields.h"

namespace ktx::server {

// Whether a template's source has the word as a string, which means that it looks for it.
bool quotes(const std::string& source, const std::string& word);

// Most templates know no developer, whose place the system message has. `source`: of the template.
void convert_developer(Json& messages, const std::string& source);

// For a template that has refused the conversation: system messages at the begin become one, later
// ones belong to the question they stand before or behind, and questions in a row are one. False:
// nothing was changed.
bool gather_system(Json& messages);
// Still refused: the system message begins the first question. False: there is none.
bool join_system(Json& messages);

}  // namespace ktx::server
