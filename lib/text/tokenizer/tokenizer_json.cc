// Reads tokenizer.json. Its stages become the fields of TokenizerData:
//
//   normalizer      NFC and its kin; Prepend "▁" and Replace " " "▁" (SPM's spaces)
//   pre_tokenizer   Split, Digits, Punctuation, ByteLevel, Metaspace, ... -> split steps
//   model           BPE: vocab, merges ("a b" or ["a", "b"]), byte_fallback, ignore_merges
//   added_tokens    special -> control tokens, others -> user-defined ones
//   post_processor  a template that begins with a special token -> BOS; ends -> EOS
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "lib/support/strings.h"
#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "lib/text/tokenizer/json_member.h"
#include "lib/text/tokenizer/pretokenize.h"
#include "lib/text/tokenizer/split_dialect.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxId = 1u << 22;  // ids may have holes, which we fill
constexpr int kMaxDepth = 8;

std::string string_of(const Json& object, const char* key) {
  const Json* value = json_member(object, key);
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

bool bool_of(const Json& object, const char* key, bool otherwise) {
  const Json* value = json_member(object, key);
  return value && value->is_boolean() ? value->get<bool>() : otherwise;
}

// -1 where it is no id that we take.
int64_t id_of(const Json* value) {
  if (!value || !value->is_number_unsigned() || value->get<uint64_t>() >= kMaxId) return -1;
  return value->get<int64_t>();
}

// What the stages before the model ask for.
struct Stages {
  std::vector<SplitStep> splits;
  Normalizer normalizer = Normalizer::None;
  bool byte_level = false;
  bool escape_spaces = false;
  bool space_prefix = false, prefix_once = false, prefix_if_missing = false;
};

Result<SplitBehavior> read_behavior(const Json& stage, SplitBehavior otherwise) {
  const std::string name = string_of(stage, "behavior");
  if (name.empty()) return otherwise;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  return Error{fmt::format("pre_tokenizer: unknown behavior '{}'", printable(name))};
}

Status read_metaspace(const Json& stage, Stages& stages) {
  const std::string replacement = string_of(stage, "replacement");
  if (!replacement.empty() && replacement != kEscapedSpace) {
    return Error{
        fmt::format("pre_tokenizer: Metaspace with '{}' is not supported, only with U+2581",
                    printable(replacement))};
  }
  std::string scheme = string_of(stage, "prepend_scheme");
  if (scheme.empty()) scheme = bool_of(stage, "add_prefix_space", true) ? "always" : "never";
  stages.escape_spaces = true;
  stages.space_prefix = scheme != "never";
  stages.prefix_once = scheme == "first";
  stages.prefix_if_missing = true;
  if (bool_of(stage, "split", true)) {
    stages.splits.push_back(
        {literal_pattern(kEscapedSpace), SplitBehavior::MergedWithNext, false, stages.byte_level});
  }
  return {};
}

Status read_pre_tokenizer(const Json& stage, Stages& stages, int depth) {
  if (depth > kMaxDepth) return Error{"pre_tokenizer: nested too deep"};
  const std::string type = string_of(stage, "type");
  const auto add = [&](std::string_view pattern, SplitBehavior behavior, bool invert) -> Status {
    stages.splits.push_back({KTX_TRY(to_pcre2(pattern)), behavior, invert, stages.byte_level});
    return {};
  };
  if (type == "Sequence") {
    const Json* list = json_member(stage, "pretokenizers");
    if (!list || !list->is_array())
      return Error{"pre_tokenizer: a Sequence without 'pretokenizers'"};
    for (const Json& item : *list) KTX_TRY(read_pre_tokenizer(item, stages, depth + 1));
    return {};
  }
  if (type == "ByteLevel") {
    if (bool_of(stage, "add_prefix_space", true)) {
      stages.space_prefix = true;
      stages.prefix_if_missing = true;
    }
    if (bool_of(stage, "use_regex", true)) {
      for (SplitStep step : KTX_TRY(find_pretokenizer("gpt-2")).splits) {
        step.on_bytes = stages.byte_level;
        stages.splits.push_back(std::move(step));
      }
    }
    stages.byte_level = true;  // later stages see the byte alphabet
    return {};
  }
  if (type == "Split") {
    const Json* pattern = json_member(stage, "pattern");
    const SplitBehavior behavior = KTX_TRY(read_behavior(stage, SplitBehavior::Isolated));
    const bool invert = bool_of(stage, "invert", false);
    if (pattern && json_member(*pattern, "Regex") && (*pattern)["Regex"].is_string()) {
      return add(string_of(*pattern, "Regex"), behavior, invert);
    }
    if (pattern && json_member(*pattern, "String") && (*pattern)["String"].is_string()) {
      stages.splits.push_back(
          {literal_pattern(string_of(*pattern, "String")), behavior, invert, stages.byte_level});
      return {};
    }
    return Error{"pre_tokenizer: a Split without a 'Regex' or 'String' pattern"};
  }
  if (type == "Digits") {
    const bool single = bool_of(stage, "individual_digits", false);
    return add(single ? R"(\p{N})" : R"(\p{N}+)", SplitBehavior::Isolated, false);
  }
  if (type == "Punctuation") {
    return add(R"([\p{P}$+<=>\^`|~])", KTX_TRY(read_behavior(stage, SplitBehavior::Isolated)),
               false);
  }
  if (type == "Whitespace") return add(R"(\w+|[^\w\s]+)", SplitBehavior::Removed, true);
  if (type == "WhitespaceSplit") return add(R"(\s)", SplitBehavior::Removed, false);
  if (type == "Metaspace") return read_metaspace(stage, stages);
  return Error{fmt::format("pre_tokenizer '{}' is not supported", printable(type))};
}

Status read_normalizer(const Json& stage, Stages& stages, int depth) {
  if (depth > kMaxDepth) return Error{"normalizer: nested too deep"};
  const std::string type = string_of(stage, "type");
  if (type == "Sequence") {
    const Json* list = json_member(stage, "normalizers");
    if (!list || !list->is_array()) return Error{"normalizer: a Sequence without 'normalizers'"};
    for (const Json& item : *list) KTX_TRY(read_normalizer(item, stages, depth + 1));
    return {};
  }
  if (type == "Prepend" && string_of(stage, "prepend") == kEscapedSpace) {
    stages.space_prefix = true;
    return {};
  }
  if (type == "Replace") {
    const Json* pattern = json_member(stage, "pattern");
    if (pattern && string_of(*pattern, "String") == " " &&
        string_of(stage, "content") == kEscapedSpace) {
      stages.escape_spaces = true;
      return {};
    }
  }
  constexpr std::pair<std::string_view, Normalizer> kForms[] = {{"NFC", Normalizer::Nfc},
                                                                {"NFD", Normalizer::Nfd},
                                                                {"NFKC", Normalizer::Nfkc},
                                                                {"NFKD", Normalizer::Nfkd}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    if (stages.normalizer != Normalizer::None) return Error{"normalizer: two Unicode forms"};
    stages.normalizer = form;
    return {};
  }
  return Error{fmt::format("normalizer '{}' is not supported", printable(type))};
}

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<int32_t> types;
  std::vector<uint32_t> lstrip, rstrip, single_word, normalized;
  std::deque<std::string> holes;  // the text of ids without a name
  std::deque<std::string> merge_texts;
  std::vector<std::string_view> merges;

  void put(size_t id, std::string_view text, TokenType type) {
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1, static_cast<int32_t>(TokenType::Undefined));
    }
    tokens[id] = text;
    types[id] = static_cast<int32_t>(type);
  }
};

Status read_vocab(const Json& model, Vocabulary& vocabulary) {
  const Json* vocab = json_member(model, "vocab");
  if (!vocab || !vocab->is_object() || vocab->empty())
    return Error{"model: 'vocab' is missing or empty"};
  const bool byte_fallback = bool_of(model, "byte_fallback", false);
  for (const auto& [text, value] : vocab->items()) {
    const int64_t id = id_of(&value);
    if (id < 0)
      return Error{fmt::format("model: vocab: '{}' has no id below {}", printable(text), kMaxId)};
    const bool byte = byte_fallback && byte_of_token(text);
    vocabulary.put(static_cast<size_t>(id), text, byte ? TokenType::Byte : TokenType::Normal);
  }
  const std::string unknown = string_of(model, "unk_token");
  if (const Json* id = unknown.empty() ? nullptr : json_member(*vocab, unknown.c_str())) {
    vocabulary.types[id->get<uint64_t>()] = static_cast<int32_t>(TokenType::Unknown);
  }
  return {};
}

Status read_added_tokens(const Json& root, Vocabulary& vocabulary) {
  const Json* added = json_member(root, "added_tokens");
  if (!added) return {};
  if (!added->is_array()) return Error{"'added_tokens' is no list"};
  for (const Json& token : *added) {
    const int64_t id = id_of(json_member(token, "id"));
    const Json* content = json_member(token, "content");
    if (id < 0 || !content || !content->is_string()) {
      return Error{
          fmt::format("added_tokens: an item without 'content' or without an id below {}", kMaxId)};
    }
    const bool special = bool_of(token, "special", false);
    vocabulary.put(static_cast<size_t>(id), content->get_ref<const std::string&>(),
                   special ? TokenType::Control : TokenType::UserDefined);
    const auto flag = [&](const char* key, bool otherwise, std::vector<uint32_t>& with) {
      if (bool_of(token, key, otherwise)) with.push_back(static_cast<uint32_t>(id));
    };
    flag("lstrip", false, vocabulary.lstrip);
    flag("rstrip", false, vocabulary.rstrip);
    flag("single_word", false, vocabulary.single_word);
    // Control tokens are found in any case; normalisers leave them as they are.
    if (!special) flag("normalized", true, vocabulary.normalized);
  }
  return {};
}

Status read_merges(const Json& model, Vocabulary& vocabulary) {
  const Json* merges = json_member(model, "merges");
  if (!merges || !merges->is_array()) return Error{"model: 'merges' is missing"};
  vocabulary.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      vocabulary.merges.push_back(merge.get_ref<const std::string&>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      vocabulary.merge_texts.push_back(merge[0].get<std::string>() + " " +
                                       merge[1].get<std::string>());
      vocabulary.merges.push_back(vocabulary.merge_texts.back());
    } else {
      return Error{fmt::format("model: merges[{}] is no pair", vocabulary.merges.size())};
    }
  }
  return {};
}

// The special tokens that a template puts around one sequence.
struct Surround {
  std::string before, after;
};

void read_post_processor(const Json& stage, Surround& surround, int depth) {
  const std::string type = string_of(stage, "type");
  if (type == "Sequence" && depth < kMaxDepth) {
    if (const Json* list = json_member(stage, "processors"); list && list->is_array()) {
      for (const Json& item : *list) read_post_processor(item, surround, depth + 1);
    }
  }
  const Json* single = type == "TemplateProcessing" ? json_member(stage, "single") : nullptr;
  if (!single || !single->is_array()) return;
  bool seen_text = false;
  for (const Json& item : *single) {
    if (json_member(item, "Sequence")) seen_text = true;
    const Json* token = json_member(item, "SpecialToken");
    if (!token) continue;
    std::string& place = seen_text ? surround.after : surround.before;
    if (place.empty()) place = string_of(*token, "id");
  }
}

std::optional<uint64_t> find_token(const Vocabulary& vocabulary, std::string_view text) {
  const auto it = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text);
  if (text.empty() || it == vocabulary.tokens.end()) return std::nullopt;
  return static_cast<uint64_t>(it - vocabulary.tokens.begin());
}

bool mentions_byte_level(const Json& stage, int depth) {
  if (depth > kMaxDepth) return false;
  if (string_of(stage, "type") == "ByteLevel") return true;
  const Json* list = json_member(stage, "decoders");
  return list && list->is_array() && std::any_of(list->begin(), list->end(), [&](const Json& item) {
           return mentions_byte_level(item, depth + 1);
         });
}

}  // namespace

Result<TokenizerData> parse_tokenizer_json(std::string_view text) {
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return Error{"no valid JSON object"};
  const Json* model = json_member(root, "model");
  if (!model) return Error{"'model' is missing; not a tokenizer.json"};
  const std::string type = string_of(*model, "type");
  if (type != "BPE" && !(type.empty() && json_member(*model, "merges"))) {
    return Error{
        fmt::format("a model of type '{}' is not supported, only BPE is", printable(type))};
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_of(*model, affix).empty())
      return Error{fmt::format("model: '{}' is not supported", affix)};
  }

  Stages stages;
  if (const Json* normalizer = json_member(root, "normalizer"))
    KTX_TRY(read_normalizer(*normalizer, stages, 0));
  if (const Json* pre = json_member(root, "pre_tokenizer"))
    KTX_TRY(read_pre_tokenizer(*pre, stages, 0));
  if (const Json* decoder = json_member(root, "decoder");
      decoder && mentions_byte_level(*decoder, 0)) {
    stages.byte_level = true;
  }
  Vocabulary vocabulary;
  KTX_TRY(read_vocab(*model, vocabulary));
  KTX_TRY(read_added_tokens(root, vocabulary));
  KTX_TRY(read_merges(*model, vocabulary));
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].data()) continue;
    vocabulary.holes.push_back(fmt::format("[PAD{}]", id));
    vocabulary.put(id, vocabulary.holes.back(), TokenType::Unused);
  }
  Surround surround;
  if (const Json* post = json_member(root, "post_processor"))
    read_post_processor(*post, surround, 0);

  TokenizerSource source;
  source.model = "gpt2";
  source.tokens = vocabulary.tokens;
  source.token_types = vocabulary.types;
  source.merges = vocabulary.merges;
  source.splits = std::move(stages.splits);
  source.ignore_merges = bool_of(*model, "ignore_merges", false);
  source.normalizer = stages.normalizer;
  source.unk = find_token(vocabulary, string_of(*model, "unk_token"));
  source.bos = find_token(vocabulary, surround.before);
  source.eos = find_token(vocabulary, surround.after);
  source.add_bos = source.bos.has_value();
  source.add_eos = source.eos.has_value();
  source.add_space_prefix = stages.space_prefix;
  TokenizerData data = KTX_TRY(make_tokenizer_data(source));
  data.pre = "tokenizer.json";
  data.space_prefix_once = stages.prefix_once;
  data.space_prefix_if_missing = stages.prefix_if_missing;
  data.byte_level = stages.byte_level;
  data.escape_whitespaces = stages.escape_spaces;
  data.byte_fallback = bool_of(*model, "byte_fallback", false);
  data.lstrip = std::move(vocabulary.lstrip);
  data.rstrip = std::move(vocabulary.rstrip);
  data.single_word = std::move(vocabulary.single_word);
  if (data.normalizer != Normalizer::None || data.escape_whitespaces) {
    data.normalized = std::move(vocabulary.normalized);
  }
  KTX_TRY(validate(data));
  return data;
}

}  // namespace ktx::text
