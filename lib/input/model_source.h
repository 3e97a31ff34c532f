// The inputs of the compiler: GGUF, config, tokenizer and chat template of one model, checked
// against each other.
//
//   ModelSource source = KTX_TRY(open_model({.gguf_path = "model.gguf"}, diags));
//   if (diags.errors()) ...                        // the user's other mistakes
//   source.config.model_type();                    // "qwen3_moe"
//   source.gguf.find("output.weight");
//
// config.json, generation_config.json and tokenizer_config.json are found beside the GGUF; none of
// them is required. Safe for untrusted files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/gguf_config.h"
#include "lib/input/hf_config.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::input {

struct ModelInputs {
  std::string gguf_path;
  std::optional<std::string> hf_config_path = {};  // file or folder; else beside the GGUF
  std::optional<std::string> tokenizer_path = {};  // see hf_tokenizer.h; else GGUF metadata
  Trust trust = Trust::Neither;
  bool header_only_ok = false;
  bool moving = false;           // see GgufOptions
  bool locked = false;           // likewise
  bool all_differences = false;  // see merge_configs()
  // Called before the tokenizer is read, so that an unsupported architecture is reported before
  // an unreadable tokenizer. May be null.
  std::function<Status(const HfConfig&)> accept = nullptr;
};

// What the model's makers advise; nothing where they are silent.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  // From generation_config.json, else config.json; inside the vocabulary. They end
  // an answer in addition to the tokenizer's own end tokens.
  std::vector<int64_t> eos_token_ids;
};

struct ChatTemplate {
  std::string name;  // "" is the default one; else "tool_use" and the like
  std::string text;
};

struct ModelSource {
  GgufFile gguf;
  HfConfig config;  // merged; each value's origin says where it came from
  text::TokenizerData tokenizer;
  // The GGUF's, else those of the files beside it (chat_template.jinja,
  // tokenizer_config.json); the default one first. May be empty.
  std::vector<ChatTemplate> chat_templates;
  GenerationDefaults generation;
};

// A failure that leaves nothing to look at is the Result's error; the user's
// other mistakes are in `diags`, so check diags.errors() too.
Result<ModelSource> open_model(const ModelInputs& inputs, DiagSink& diags);

// The templates of tokenizer.chat_template and tokenizer.chat_template.NAME.
std::vector<ChatTemplate> gguf_chat_templates(const GgufFile& gguf);

}  // namespace ktx::input
