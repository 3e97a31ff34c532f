// A schema as the converter reads it: keywords that are null are left out, and references by a name
// or through the document's own address become pointers.
//
//   {"required": null, "$ref": "#place", "$defs": {"p": {"$anchor": "place"}}}
//   {"$ref": "#/$defs/p", "$defs": {"p": {"$anchor": "place"}}}
//
// Libraries of typed languages write null for what is not set. Values (`const`, `default`, those of
// `enum`) stay as they are. A name that two parts have is left alone.
#pragma once

#include <nlohmann/json.hpp>

namespace ktx::text::grammar {

// Recursive: expects a schema that check_extent() has accepted.
nlohmann::ordered_json plain_schema(const nlohmann::ordered_json& schema);

}  // namespace ktx::text::grammar
