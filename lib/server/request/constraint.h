// Constrained decoding: turns the constraint of a request into a token filter. The request
// fields are read by constraint_fields.h.
#pragma once

#include <memory>
#include <optional>

#include "lib/server/filters/grammar_cache.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"

namespace ktx::server {

// The filter; null for Kind::None. With `ignore_end` an end token comes only where nothing
// else may. An error is the client's: a schema or a grammar that cannot be compiled, with the
// field of the request and the place in it. The parts of a schema that were passed over go to
// `notes`, which may be null.
ApiStatus make_filter(const ServedModel& model, const Constraint& constraint, bool ignore_end,
                      std::unique_ptr<runtime::TokenFilter>& filter,
                      std::vector<std::string>* notes = nullptr);

}  // namespace ktx::server
