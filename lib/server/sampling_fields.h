// The sampling fields of a request, under the names that OpenAI, llama.cpp and Ollama
// give them (sampling_fields.def has the table).
#pragma once

#include "lib/runtime/sampling/sampler.h"
#include "lib/server/json_fields.h"

namespace ktx::server {

// Changes in `options` what the request names. A request without a seed gets `seed`.
void read_sampling(FieldReader& in, uint64_t seed, int64_t vocab_size,
                   runtime::SamplingOptions& options);

// The other way: an object that read_sampling() makes the same options of, but the seed.
Json sampling_json(const runtime::SamplingOptions& options);

}  // namespace ktx::server
