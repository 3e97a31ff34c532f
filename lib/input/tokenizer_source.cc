// tokenizer.ggml.* of GGUF metadata -> text::TokenizerData.
#include <fmt/format.h>

#include "lib/input/tokenizer_source.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

Error wrong(const GgufFile& gguf, std::string_view key, std::string_view expected) {
  const GgufValue* value = gguf.value(key);
  return Error{fmt::format("{}: key '{}' is {}, expected {}", gguf.path(), key,
                           value ? value->describe() : "missing", expected)};
}

// The value of a key that may be absent but not of another kind.
template <class T, class Getter>
Result<std::optional<T>> optional_key(const GgufFile& gguf, std::string_view key, Getter getter,
                                      std::string_view expected) {
  const GgufValue* value = gguf.value(key);
  if (!value) return std::optional<T>();
  std::optional<T> found = (value->*getter)();
  if (!found) return wrong(gguf, key, expected);
  return found;
}

}  // namespace

Result<text::TokenizerData> read_gguf_tokenizer(const GgufFile& gguf) {
  text::TokenizerSource source;
  const auto text = [&](std::string_view key) {
    return optional_key<std::string_view>(gguf, key, &GgufValue::string, "a string");
  };
  const auto texts = [&](std::string_view key) {
    return optional_key<std::vector<std::string_view>>(gguf, key, &GgufValue::strings,
                                                       "an array of strings");
  };
  const auto flag = [&](std::string_view key) {
    return optional_key<bool>(gguf, key, &GgufValue::boolean, "a bool");
  };

  const auto model = KTX_TRY(text("tokenizer.ggml.model"));
  if (!model)
    return wrong(gguf, "tokenizer.ggml.model", "the kind of tokenizer; the file has none");
  source.model = *model;
  source.pre = KTX_TRY(text("tokenizer.ggml.pre")).value_or("");
  source.architecture = gguf.architecture();

  const auto tokens = KTX_TRY(texts("tokenizer.ggml.tokens"));
  if (!tokens) return wrong(gguf, "tokenizer.ggml.tokens", "an array of strings");
  source.tokens = *tokens;
  const auto merges = KTX_TRY(texts("tokenizer.ggml.merges"));
  if (merges) source.merges = *merges;
  const auto scores = KTX_TRY(optional_key<std::vector<float>>(
      gguf, "tokenizer.ggml.scores", &GgufValue::floats, "an array of numbers"));
  if (scores) source.scores = *scores;
  const auto wide_types = KTX_TRY(optional_key<std::vector<int64_t>>(
      gguf, "tokenizer.ggml.token_type", &GgufValue::ints, "an array of integers"));
  std::vector<int32_t> types;
  if (wide_types) {
    types.reserve(wide_types->size());
    for (const int64_t type : *wide_types) {
      // 0 to 6 exist; what is far outside must not become one of them.
      types.push_back(type >= 0 && type <= 127 ? static_cast<int32_t>(type) : 127);
    }
    source.token_types = types;
  }

  struct IdKey {
    const char* key;
    std::optional<uint64_t> text::TokenizerSource::*field;
  };
  constexpr IdKey kIds[] = {
      {"tokenizer.ggml.bos_token_id", &text::TokenizerSource::bos},
      {"tokenizer.ggml.eos_token_id", &text::TokenizerSource::eos},
      {"tokenizer.ggml.eot_token_id", &text::TokenizerSource::eot},
      {"tokenizer.ggml.eom_token_id", &text::TokenizerSource::eom},
      {"tokenizer.ggml.unknown_token_id", &text::TokenizerSource::unk},
      {"tokenizer.ggml.seperator_token_id", &text::TokenizerSource::sep},  // their spelling
      {"tokenizer.ggml.padding_token_id", &text::TokenizerSource::pad},
      {"tokenizer.ggml.mask_token_id", &text::TokenizerSource::mask},
      {"tokenizer.ggml.cls_token_id", &text::TokenizerSource::cls},
  };
  for (const IdKey& id : kIds) {
    source.*id.field = KTX_TRY(optional_key<uint64_t>(gguf, id.key, &GgufValue::u64, "a token id"));
  }
  source.add_bos = KTX_TRY(flag("tokenizer.ggml.add_bos_token"));
  source.add_eos = KTX_TRY(flag("tokenizer.ggml.add_eos_token"));
  source.add_space_prefix = KTX_TRY(flag("tokenizer.ggml.add_space_prefix"));
  source.lowercase = KTX_TRY(flag("tokenizer.ggml.normalizer.lowercase"));
  source.strip_accents = KTX_TRY(flag("tokenizer.ggml.normalizer.strip_accents"));
  constexpr std::string_view kCharacters = "tokenizer.ggml.precompiled_charsmap";
  if (const GgufValue* map = gguf.value(kCharacters)) {
    const bool bytes =
        map->is_array() && (map->element_type == GgufType::U8 || map->element_type == GgufType::I8);
    if (!bytes) return wrong(gguf, kCharacters, "an array of bytes");
    source.character_map = {reinterpret_cast<const char*>(map->payload.data()),
                            map->payload.size()};
  }
  source.remove_extra_whitespaces = KTX_TRY(flag("tokenizer.ggml.remove_extra_whitespaces"));

  auto data = text::make_tokenizer_data(source);
  if (!data.ok()) return Error{fmt::format("{}: {}", gguf.path(), data.error().message)};
  return data;
}

}  // namespace ktx::input
