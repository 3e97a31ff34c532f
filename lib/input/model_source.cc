#include "lib/input/model_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "lib/input/other_ggufs.h"
#include "lib/input/tokenizer_source.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/text/tokenizer/hf_tokenizer.h"

namespace ktx::input {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

bool exists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A JSON file that may be missing, or empty with a diagnostic when it is broken.
HfConfig optional_json(const std::string& path, DiagSink& diags) {
  if (!exists(path)) return {};
  auto config = HfConfig::read(path);
  if (config.ok()) return config.take();
  diags.warning({}, "I007", config.error().message + "; going on without it");
  return {};
}

// transformers writes one template as a string, several as a list of objects.
std::vector<ChatTemplate> json_chat_templates(const HfConfig& json) {
  std::vector<ChatTemplate> templates;
  if (const auto text = json.string("chat_template")) return {{"", *text}};
  for (int i = 0; json.has(fmt::format("chat_template.{}.template", i)); ++i) {
    const auto name = json.string(fmt::format("chat_template.{}.name", i)).value_or("");
    const auto text = json.string(fmt::format("chat_template.{}.template", i));
    if (text) templates.push_back({name == "default" ? "" : name, *text});
  }
  return templates;
}

std::vector<ChatTemplate> folder_chat_templates(const std::string& folder, DiagSink& diags) {
  const std::string file = folder + "/chat_template.jinja";
  if (exists(file)) {
    auto text = read_text_file(file, kMaxTemplateBytes);
    if (text.ok()) return {{"", text.take()}};
    diags.warning({}, "I007", text.error().message + "; going on without it");
  }
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    auto templates = json_chat_templates(optional_json(folder + name, diags));
    if (!templates.empty()) return templates;
  }
  return {};
}

void sort_default_first(std::vector<ChatTemplate>& templates) {
  std::stable_sort(
      templates.begin(), templates.end(),
      [](const ChatTemplate& a, const ChatTemplate& b) { return a.name.empty() > b.name.empty(); });
}

// One id or a list of them, in the vocabulary.
std::vector<int64_t> token_ids(const HfConfig& json, const char* key, size_t vocabulary) {
  std::vector<int64_t> ids = json.ints(key).value_or(std::vector<int64_t>());
  if (const auto id = json.i64(key)) ids = {*id};
  std::erase_if(ids, [&](int64_t id) { return id < 0 || id >= static_cast<int64_t>(vocabulary); });
  return ids;
}

GenerationDefaults read_generation(const HfConfig& generation, const HfConfig& config,
                                   const GgufFile& gguf, size_t vocabulary) {
  const auto number = [&](const char* hf, const char* gguf_key) {
    auto value = generation.f64(hf);
    if (!value) value = gguf.f64(gguf_key);
    return value && std::isfinite(*value) ? value : std::nullopt;
  };
  GenerationDefaults defaults;
  defaults.do_sample = generation.boolean("do_sample");
  defaults.temperature = number("temperature", "general.sampling.temp");
  defaults.top_p = number("top_p", "general.sampling.top_p");
  defaults.min_p = number("min_p", "general.sampling.min_p");
  defaults.repetition_penalty = number("repetition_penalty", "general.sampling.penalty_repeat");
  defaults.top_k = generation.i64("top_k");
  if (!defaults.top_k) defaults.top_k = gguf.i64("general.sampling.top_k");
  defaults.eos_token_ids = token_ids(generation, "eos_token_id", vocabulary);
  if (defaults.eos_token_ids.empty()) {
    defaults.eos_token_ids = token_ids(config, "eos_token_id", vocabulary);
  }
  return defaults;
}

}  // namespace

std::vector<ChatTemplate> gguf_chat_templates(const GgufFile& gguf) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  std::vector<ChatTemplate> templates;
  for (const GgufValue& value : gguf.metadata()) {
    const auto text = value.string();
    if (!text || !value.key.starts_with(kKey)) continue;
    const std::string_view rest = value.key.substr(kKey.size());
    if (rest.empty()) templates.push_back({"", std::string(*text)});
    if (rest.size() > 1 && rest[0] == '.') {
      templates.push_back({std::string(rest.substr(1)), std::string(*text)});
    }
  }
  sort_default_first(templates);
  return templates;
}

Result<ModelSource> open_model(const ModelInputs& inputs, DiagSink& diags) {
  const GgufOptions options{
      .header_only_ok = inputs.header_only_ok, .moving = inputs.moving, .locked = inputs.locked};
  auto opened = GgufFile::open(inputs.gguf_path, options);
  if (!opened) {
    // A draft head has tables that no model has: what it is says more than that they cannot be
    // read.
    const auto head =
        GgufFile::open(inputs.gguf_path, {.header_only_ok = inputs.header_only_ok, .tables = true});
    if (head) KTX_TRY(check_language_model(*head));
    return opened.error();
  }
  GgufFile gguf = opened.take();
  KTX_TRY(check_language_model(gguf));

  // The folder that holds the model's JSON files.
  std::string folder = folder_of(inputs.gguf_path);
  std::string config_path = folder + "/config.json";
  if (inputs.hf_config_path) {
    config_path = *inputs.hf_config_path;
    std::error_code unknown;
    const bool is_folder = std::filesystem::is_directory(config_path, unknown);
    folder = is_folder ? config_path : folder_of(config_path);
  }
  HfConfig config;
  if (inputs.hf_config_path || exists(config_path)) {
    auto read = HfConfig::read(config_path);
    if (!read) return Error{read.error().message + " [KTX-I004]"};
    config = read.take();
  }
  const HfConfig generation = optional_json(folder + "/generation_config.json", diags);
  HfConfig merged = config.empty()
                        ? config_from_gguf(gguf, diags)
                        : merge_configs(config, gguf, inputs.trust, diags, inputs.all_differences);
  if (inputs.accept) KTX_TRY(inputs.accept(merged));

  text::TokenizerData tokenizer;
  std::optional<std::string> tokenizer_template;
  if (inputs.tokenizer_path) {
    auto hf = text::load_hf_tokenizer(*inputs.tokenizer_path);
    if (!hf) return Error{hf.error().message + " [KTX-S002]"};
    tokenizer = std::move(hf->data);
    tokenizer_template = std::move(hf->chat_template);
  } else {
    auto data = read_gguf_tokenizer(gguf);
    if (!data) return Error{data.error().message + " [KTX-S002]"};
    tokenizer = data.take();
  }
  const size_t vocabulary = tokenizer.tokens.size();
  const auto rows = merged.i64("vocab_size");
  if (rows && vocabulary > static_cast<uint64_t>(std::max<int64_t>(*rows, 0))) {
    diags.error({inputs.tokenizer_path.value_or(inputs.gguf_path)}, "I008",
                fmt::format("the tokenizer has {} tokens, expected at most vocab_size, {}",
                            vocabulary, *rows));
  }
  std::vector<ChatTemplate> templates = gguf_chat_templates(gguf);
  if (templates.empty() && tokenizer_template) templates = {{"", *tokenizer_template}};
  if (templates.empty()) {
    templates = folder_chat_templates(folder, diags);
    sort_default_first(templates);
  }
  GenerationDefaults defaults = read_generation(generation, config, gguf, vocabulary);
  KTX_TRY(gguf.check());
  return ModelSource{std::move(gguf), std::move(merged), std::move(tokenizer), std::move(templates),
                     std::move(defaults)};
}

}  // namespace ktx::input
