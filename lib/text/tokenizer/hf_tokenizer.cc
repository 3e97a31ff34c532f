#include "lib/text/tokenizer/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/text/tokenizer/json_member.h"

namespace ktx::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxBytes = 256u << 20;  // the largest tokenizer.json have 35 MB
constexpr size_t kMaxConfigBytes = 16u << 20;
constexpr size_t kMaxAddedTokens = 1u << 20;
// The score of tokens that were added to a SentencePiece vocabulary: below any real score.
constexpr float kAddedScore = -1e6F;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A config file beside the tokenizer; null when it is not there.
Result<Json> read_config(const fs::path& path) {
  if (!is_file(path)) return Json();
  const std::string text = KTX_TRY(read_text_file(path.string(), kMaxConfigBytes));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{fmt::format("{}: no valid JSON object", path.string())};
  return json;
}

// A token that a config names: "</s>" or {"content": "</s>", ...}.
std::string token_text(const Json& config, const char* key) {
  const Json* value = json_member(config, key);
  if (value && value->is_object()) value = json_member(*value, "content");
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

int32_t find_token(const TokenizerData& data, std::string_view text) {
  for (size_t id = 0; !text.empty() && id < data.tokens.size(); ++id) {
    if (data.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return -1;
}

// Those outside of the vocabulary are left out.
void add_end_tokens(TokenizerData& data, std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    if (id >= 0 && id < static_cast<int64_t>(data.tokens.size())) {
      data.eog.push_back(static_cast<int32_t>(id));
    }
  }
  std::sort(data.eog.begin(), data.eog.end());
  data.eog.erase(std::unique(data.eog.begin(), data.eog.end()), data.eog.end());
}

// Tokens beyond a SentencePiece vocabulary, and the true types of those inside.
struct AddedToken {
  std::string text;
  bool special = false, lstrip = false, rstrip = false, single_word = false;
};
using AddedTokens = std::map<uint64_t, AddedToken>;  // by id

AddedTokens added_tokens(const Json& config, const Json& added) {
  AddedTokens tokens;
  const Json* decoder = json_member(config, "added_tokens_decoder");
  if (decoder && decoder->is_object()) {
    for (const auto& [key, value] : decoder->items()) {
      const bool digits = !key.empty() && key.size() < 9 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      const std::string text = token_text(*decoder, key.c_str());
      if (!digits || text.empty()) continue;
      const auto flag = [&token = value](const char* name) {
        const Json* found = json_member(token, name);
        return found && found->is_boolean() && found->get<bool>();
      };
      tokens[std::stoull(key)] = {text, flag("special"), flag("lstrip"), flag("rstrip"),
                                  flag("single_word")};
    }
  }
  if (added.is_object()) {
    for (const auto& [text, value] : added.items()) {
      if (value.is_number_unsigned()) {
        tokens.try_emplace(value.get<uint64_t>(), AddedToken{.text = text});
      }
    }
  }
  return tokens;
}

Status add_tokens(const AddedTokens& added, TokenizerData& data) {
  const size_t limit = data.tokens.size() + kMaxAddedTokens;
  for (const auto& [id, token] : added) {
    if (id >= limit) {
      return Error{fmt::format("added token '{}' has id {}, the vocabulary has {}",
                               printable(token.text), id, data.tokens.size())};
    }
    const TokenType type = token.special ? TokenType::Control : TokenType::UserDefined;
    if (token.lstrip) data.lstrip.push_back(static_cast<uint32_t>(id));
    if (token.rstrip) data.rstrip.push_back(static_cast<uint32_t>(id));
    if (token.single_word) data.single_word.push_back(static_cast<uint32_t>(id));
    if (id < data.tokens.size()) {
      if (data.tokens[id] == token.text && data.types[id] == TokenType::Normal) {
        data.types[id] = type;
      }
      continue;
    }
    while (data.tokens.size() < id) {
      data.tokens.push_back(fmt::format("[PAD{}]", data.tokens.size()));
      data.types.push_back(TokenType::Unused);
      data.scores.push_back(kAddedScore);
    }
    data.tokens.push_back(token.text);
    data.types.push_back(type);
    data.scores.push_back(kAddedScore);
  }
  return {};
}

// tokenizer_config.json: the roles of tokens by their text.
void apply_roles(const Json& config, TokenizerData& data) {
  const std::pair<const char*, int32_t SpecialIds::*> kRoles[] = {{"bos_token", &SpecialIds::bos},
                                                                  {"eos_token", &SpecialIds::eos},
                                                                  {"unk_token", &SpecialIds::unk},
                                                                  {"pad_token", &SpecialIds::pad}};
  for (const auto& [key, field] : kRoles) {
    const int32_t id = find_token(data, token_text(config, key));
    if (id >= 0) data.ids.*field = id;
  }
  const int64_t ends[] = {data.ids.eos};
  add_end_tokens(data, ends);
  const auto flag = [&](const char* key, bool& value) {
    const Json* found = json_member(config, key);
    if (found && found->is_boolean()) value = found->get<bool>();
  };
  flag("add_bos_token", data.add_bos);
  flag("add_eos_token", data.add_eos);
  data.add_bos = data.add_bos && data.ids.bos >= 0;
  data.add_eos = data.add_eos && data.ids.eos >= 0;
}

void apply_generation_config(const Json& config, TokenizerData& data) {
  const Json* eos = json_member(config, "eos_token_id");
  if (!eos) return;
  std::vector<int64_t> ids;
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  add_end_tokens(data, ids);
}

std::optional<std::string> chat_template_of(const Json& config) {
  const Json* value = json_member(config, "chat_template");
  if (value && value->is_string()) return value->get<std::string>();
  if (!value || !value->is_array()) return std::nullopt;
  std::optional<std::string> first;
  for (const Json& item : *value) {
    const Json* text = json_member(item, "template");
    if (!text || !text->is_string()) continue;
    const Json* name = json_member(item, "name");
    if (name && *name == "default") return text->get<std::string>();
    if (!first) first = text->get<std::string>();
  }
  return first;
}

}  // namespace

Result<HfTokenizer> load_hf_tokenizer(const std::string& path) {
  fs::path file = path;
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    file = is_file(fs::path(path) / "tokenizer.json") ? fs::path(path) / "tokenizer.json"
                                                      : fs::path(path) / "tokenizer.model";
    if (!is_file(file)) {
      return Error{fmt::format("{}: has neither tokenizer.json nor tokenizer.model", path)};
    }
  }
  const std::string name = file.string();
  const fs::path folder = file.parent_path();
  const MappedFile bytes = KTX_TRY(MappedFile::open(name));
  if (bytes.bytes().size() > kMaxBytes) {
    return Error{fmt::format("{}: {}, at most {} are supported", name,
                             human_bytes(bytes.bytes().size()), human_bytes(kMaxBytes))};
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.bytes().data()),
                              bytes.bytes().size());
  const size_t content = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const bool json = content != std::string_view::npos && text[content] == '{';

  HfTokenizer hf;
  Result<TokenizerData> data =
      json ? parse_tokenizer_json(text) : parse_sentencepiece_model(bytes.bytes());
  KTX_TRY(bytes.check());
  if (!data) return Error{fmt::format("{}: {}", name, data.error().message)};
  hf.data = data.take();

  const Json config = KTX_TRY(read_config(folder / "tokenizer_config.json"));
  if (!json) {
    const Json added = KTX_TRY(read_config(folder / "added_tokens.json"));
    const Status extended = add_tokens(added_tokens(config, added), hf.data);
    if (!extended) return Error{fmt::format("{}: {}", name, extended.error().message)};
  }
  apply_roles(config, hf.data);
  apply_generation_config(KTX_TRY(read_config(folder / "generation_config.json")), hf.data);
  hf.chat_template = chat_template_of(config);
  if (is_file(folder / "chat_template.jinja")) {
    hf.chat_template =
        KTX_TRY(read_text_file((folder / "chat_template.jinja").string(), kMaxConfigBytes));
  }
  const Status valid = validate(hf.data);
  if (!valid) return Error{fmt::format("{}: {}", name, valid.error().message)};
  return hf;
}

}  // namespace ktx::text
