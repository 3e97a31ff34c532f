// OpenAI's `prompt` and `input`: a string, a list of strings, token ids, or a list of lists of
// token ids. With llama.cpp texts may stand between token ids, and an object with
// `prompt_string` for a text, where `multimodal_data` has an image for each "<__media__>" in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"
#include "lib/server/request/image_asker.h"

namespace ktx::server {

struct TextInput {
  std::vector<int32_t> ids;
  std::vector<runtime::ImageTokens> images;  // of these
  std::string text;
  bool of_ids = false;  // token ids came, and the text is what they say
};

// Refuses a text (of so many bytes) that no context of this server holds, before it takes tens of
// times its size in memory as tokens: more than 4 MiB and 16 bytes for each token of the context.
ApiStatus check_size(const ServedModel& model, const std::string& name, size_t bytes);

// Whether control tokens that a text spells are such: those of a prompt are its author's, those of
// a text to be looked up stand in it by chance or on purpose of others.
enum class Spelled { Tokens, Text };

// The field `name`; texts get the tokens that a prompt begins with. 400 for anything else, for ids
// outside of the vocabulary, and for more than `most` texts. `asker`: of images that come with a
// text; null: none may.
ApiResult<std::vector<TextInput>> read_texts(const Json* value, const std::string& name,
                                             size_t most, const ServedModel& model,
                                             Spelled spelled = Spelled::Tokens,
                                             ImageAsker* asker = nullptr);

}  // namespace ktx::server
