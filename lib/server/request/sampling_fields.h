// The sampling fields of a request, under the names that OpenAI, llama.cpp and Ollama
// give them (sampling_fields.def has the table).
#pragma once

#include "lib/runtime/sampling/sampler.h"
#include "lib/server/http/json_fields.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::server {

// Changes in `options` what the request names. A request without a seed gets `seed`. What other
// servers have and this one does not is refused, or ignored where it has no effect
// (neutral_fields.def).
void read_sampling(FieldReader& in, uint64_t seed, const text::Tokenizer& tokenizer,
                   runtime::SamplingOptions& options);

// The tokens that end a repetition for DRY, from the texts that do.
std::vector<std::vector<int32_t>> dry_breakers(const text::Tokenizer& tokenizer,
                                               const std::vector<std::string>& texts);

// The samplers in the order in which they are applied, by llama.cpp's names.
Json sampler_names();

// The other way: an object that read_sampling() makes the same options of, but the seed.
Json sampling_json(const runtime::SamplingOptions& options);

}  // namespace ktx::server
