// Whether no value of one schema is a value of another, as far as that can be seen from types,
// listed values and required properties: two branches of a oneOf with a discriminator. False:
// unknown.
#pragma once

#include <nlohmann/json.hpp>

#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

// `whole`: nothing will be merged into `made`, whose values are then those that a grammar for it
// allows: of the types that its keywords speak of, with the properties that it names. Of `other`
// all that JSON Schema allows are meant.
bool are_disjoint(const nlohmann::ordered_json& root, const nlohmann::ordered_json& made,
                  const nlohmann::ordered_json& other, bool whole, SchemaWork& work);

}  // namespace ktx::text::grammar
