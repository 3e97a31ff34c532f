#include "lib/text/tokenizer/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tests/support/temp_dir.h"

namespace ktx::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json small_json() {
  return Json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<|end|>", "special": true, "lstrip": true},
                     {"id": 7, "content": "<think>", "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated"},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}]}]},
    "model": {"type": "BPE", "ignore_merges": true, "merges": ["a b", ["ab", "a"]],
              "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "aba": 4}}})");
}

std::string error_of(const Json& json) {
  const auto data = parse_tokenizer_json(json.dump());
  return data ? "no error" : data.error().message;
}

TEST(TokenizerJson, ReadsAByteLevelModel) {
  const auto data = parse_tokenizer_json(small_json().dump());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->tokens.size(), 8u);
  EXPECT_EQ(data->types[5], TokenType::Control);
  EXPECT_EQ(data->tokens[6], "[PAD6]");
  EXPECT_EQ(data->types[6], TokenType::Unused);
  EXPECT_EQ(data->types[7], TokenType::UserDefined);
  EXPECT_THAT(data->merges, ElementsAre(Merge{0, 1, 2}, Merge{2, 0, 4}));
  EXPECT_THAT(data->lstrip, ElementsAre(5));
  EXPECT_TRUE(data->ignore_merges);
  EXPECT_TRUE(data->byte_level);
  EXPECT_TRUE(data->add_bos);
  EXPECT_EQ(data->ids.bos, 5);
  EXPECT_EQ(data->splits.size(), 2u);
  const Tokenizer tokenizer = Tokenizer::create(*data).take();
  EXPECT_THAT(tokenizer.encode("ab aba<think>", {.add_bos = true}), ElementsAre(5, 2, 3, 4, 7));
}

// As Llama 2 and Mixtral are written: characters, spaces as U+2581, bytes as tokens.
TEST(TokenizerJson, ReadsACharacterModelWithByteFallback) {
  const Json json = Json::parse(R"({
    "added_tokens": [{"id": 1, "content": "<s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true,
              "merges": ["▁ a", "a b", "▁a b"],
              "vocab": {"<unk>": 0, "<0x0A>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "ab": 7, "▁ab": 8,
                        "é": 9}}})");
  const auto data = parse_tokenizer_json(json.dump());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_FALSE(data->byte_level);
  EXPECT_TRUE(data->add_space_prefix);
  EXPECT_EQ(data->types[2], TokenType::Byte);
  EXPECT_EQ(data->types[0], TokenType::Unknown);
  const Tokenizer tokenizer = Tokenizer::create(*data).take();
  EXPECT_THAT(tokenizer.encode("ab ab\né"), ElementsAre(8, 8, 2, 9));
  EXPECT_THAT(tokenizer.encode("<s>a", {.parse_special = true}), ElementsAre(1, 6));
  EXPECT_THAT(tokenizer.encode("x"), ElementsAre(3, 0));  // neither a token nor its byte
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab ab\né")), "ab ab\né");
}

TEST(TokenizerJson, MetaspacePrefixesOnlyTheBeginning) {
  Json json = small_json();
  json["pre_tokenizer"] = Json::parse(
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true})");
  json["decoder"] = nullptr;
  const auto data = parse_tokenizer_json(json.dump());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_TRUE(data->add_space_prefix);
  EXPECT_TRUE(data->space_prefix_once);
  EXPECT_TRUE(data->escape_whitespaces);
  ASSERT_EQ(data->splits.size(), 1u);
  EXPECT_EQ(data->splits[0].behavior, SplitBehavior::MergedWithNext);
}

// Bytes in their alphabet, ids as their numbers, and the added tokens from 256 on.
Tokenizer byte_tokenizer(const Json& added, const Json& normalizer = nullptr) {
  Json json = {
      {"normalizer", normalizer},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"merges", Json::array()}, {"vocab", Json::object()}}}};
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    append_in_alphabet(std::string(1, static_cast<char>(byte)), name);
    json["model"]["vocab"][name] = byte;
  }
  int id = 256;
  for (Json token : added) {
    token["id"] = id++;
    if (!token.contains("normalized")) token["normalized"] = false;
    json["added_tokens"].push_back(token);
  }
  auto data = parse_tokenizer_json(json.dump());
  EXPECT_TRUE(data) << data.error().message;
  return Tokenizer::create(data.take()).take();
}

// What stands in single brackets is an added token: its place among them.
std::vector<int32_t> ids_of(std::string_view written) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] == '[') {
      ids.push_back(256 + written[i + 1] - '0');
      i += 2;
    } else {
      ids.push_back(static_cast<uint8_t>(written[i]));
    }
  }
  return ids;
}

// Ids by the library tokenizers 0.23.
TEST(AddedTokens, OfSingleWordsStandBesideNoCharacterOfWords) {
  const Tokenizer t = byte_tokenizer(Json::parse(
      R"([{"content": "<X>", "single_word": true}, {"content": "word", "single_word": true}])"));
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"a<X>b", "a<X>b"},
      {"a <X> b", "a [0] b"},
      {"<X>", "[0]"},
      {"x<X>", "x<X>"},
      {"<X>x", "<X>x"},
      {".<X>.", ".[0]."},
      {"_<X>", "_<X>"},
      {"é<X>", "é<X>"},
      {"<X>é", "<X>é"},
      {"a\u0301<X>", "a\u0301<X>"},
      {"<X>\u200d", "<X>\u200d"},
      {"Ⓐ<X>", "Ⓐ<X>"},
      {"1<X>", "1<X>"},
      {"<X>²", "[0]²"},
      {"<X>Ⅷ", "<X>Ⅷ"},
      {"words word sword word.", "words [1] sword [1]."},
      {"<X><X>", "[0][0]"},
      {"a<X><X>", "a<X>[0]"},
      {"wordword word", "wordword [1]"},
  };
  for (const auto& [text, wanted] : kCases) EXPECT_EQ(t.encode(text), ids_of(wanted)) << text;
}

TEST(AddedTokens, SwallowTheWhiteSpaceOfUnicode) {
  const Tokenizer t = byte_tokenizer(
      Json::parse(R"([{"content": "<L>", "lstrip": true}, {"content": "<R>", "rstrip": true}])"));
  EXPECT_EQ(t.encode("a \u00a0\u3000<L>b"), ids_of("a[0]b"));
  EXPECT_EQ(t.encode("a<R> \u2003\n b"), ids_of("a[1]b"));
  EXPECT_EQ(t.encode("<R> <L>"), ids_of("[1][0]"));
  EXPECT_EQ(t.encode("\x80<L>\x80"), ids_of("\x80[0]\x80"));
}

TEST(AddedTokens, AreLookedForInTheNormalisedTextWhereTheySaySo) {
  const Tokenizer t =
      byte_tokenizer(Json::parse(R"([{"content": "café", "normalized": true}, {"content": "naïve"},
                      {"content": "re\u0301sume\u0301", "normalized": true}])"),
                     {{"type", "NFC"}});
  EXPECT_EQ(t.encode("cafe\u0301"), ids_of("[0]"));
  EXPECT_EQ(t.encode("café"), ids_of("[0]"));
  EXPECT_EQ(t.encode("nai\u0308ve"), ids_of("naïve")) << "found in the text as it came alone";
  EXPECT_EQ(t.encode("naïve"), ids_of("[1]"));
  EXPECT_EQ(t.encode("x cafe\u0301s"), ids_of("x [0]s"));
  EXPECT_EQ(t.encode("résumé"), ids_of("[2]"));
}

// Llama 2's normaliser puts "▁" in front of tokens as well.
TEST(AddedTokens, AreWrittenAsTheNormaliserWritesThem) {
  const Json json = Json::parse(R"({
    "added_tokens": [{"id": 8, "content": "N", "normalized": true},
                     {"id": 9, "content": "M", "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "merges": ["▁ a"],
              "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "c": 6,
                        "▁a": 7}}})");
  auto data = parse_tokenizer_json(json.dump());
  ASSERT_TRUE(data) << data.error().message;
  const Tokenizer t = Tokenizer::create(data.take()).take();
  EXPECT_THAT(t.encode("a N"), ElementsAre(7, 8));
  EXPECT_THAT(t.encode("aN"), ElementsAre(7, 0));
  EXPECT_THAT(t.encode("N a"), ElementsAre(8, 7));
  EXPECT_THAT(t.encode("a M"), ElementsAre(7, 3, 9));
  EXPECT_THAT(t.encode("aM b"), ElementsAre(7, 9, 3, 3, 5));
  EXPECT_THAT(t.encode("Ma"), ElementsAre(9, 7));
}

TEST(AddedTokens, ComeBackFromAPlanWithTheirFlags) {
  const Tokenizer t = byte_tokenizer(
      Json::parse(R"([{"content": "<X>", "single_word": true, "normalized": true}])"),
      {{"type", "NFC"}});
  ASSERT_THAT(t.data().single_word, ElementsAre(256));
  ASSERT_THAT(t.data().normalized, ElementsAre(256));
  const std::string bytes = serialize(t.data());
  const Result<TokenizerData> data = parse_tokenizer_data(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(*data, t.data());
}

TEST(TokenizerJson, NamesWhatItCannotDo) {
  const auto with = [](auto change) {
    Json json = small_json();
    change(json);
    return error_of(json);
  };
  EXPECT_THAT(with([](Json& j) { j["model"]["type"] = "WordPiece"; }),
              HasSubstr("a model of type 'WordPiece' is not supported"));
  EXPECT_THAT(with([](Json& j) { j.erase("model"); }), HasSubstr("'model' is missing"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"] = Json::object(); }),
              HasSubstr("'vocab' is missing"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["a"] = -1; }), HasSubstr("'a' has no id"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["a"] = 4294967295u; }),
              HasSubstr("'a' has no id"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["a"] = "0"; }), HasSubstr("'a' has no id"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"] = 1; }), HasSubstr("'merges' is missing"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"][0] = 1; }), HasSubstr("merges[0]"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"][1] = "ab"; }), HasSubstr("merges[1]"));
  EXPECT_THAT(with([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("'end_of_word_suffix' is not supported"));
  EXPECT_THAT(with([](Json& j) { j["added_tokens"][0]["id"] = nullptr; }),
              HasSubstr("added_tokens"));
  EXPECT_THAT(with([](Json& j) { j["added_tokens"] = 5; }), HasSubstr("'added_tokens' is no list"));
  EXPECT_THAT(with([](Json& j) {
                j["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("normalizer 'Lowercase' is not supported"));
  EXPECT_THAT(with([](Json& j) {
                j["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
              }),
              HasSubstr("pre_tokenizer 'UnicodeScripts' is not supported"));
  EXPECT_THAT(with([](Json& j) {
                j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "("}};
              }),
              HasSubstr("split pattern '('"));
  EXPECT_THAT(with([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Odd"; }),
              HasSubstr("unknown behavior 'Odd'"));
  Json deep = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  for (int i = 0; i < 50; ++i) deep = {{"type", "Sequence"}, {"pretokenizers", {deep}}};
  EXPECT_THAT(with([&](Json& j) { j["pre_tokenizer"] = deep; }), HasSubstr("nested too deep"));
}

TEST(TokenizerJson, SurvivesEveryTruncationAndWrongType) {
  const std::string text = small_json().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_tokenizer_json(text.substr(0, size)));
  }
  const Json whole = small_json();
  const Json flat = whole.flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const Json& odd :
         {Json(nullptr), Json(1), Json("x"), Json::array(), Json::object(), Json(1e300)}) {
      Json changed = whole;
      changed[Json::json_pointer(path)] = odd;
      (void)parse_tokenizer_json(changed.dump());
    }
  }
}

// --------------------------------------------------------------- SentencePiece

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  out.push_back(static_cast<char>(value));
  return out;
}
std::string number_field(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string bytes_field(int field, std::string_view bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string piece(std::string_view text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + bits +
                            number_field(3, static_cast<uint64_t>(type)));
}
std::string small_model(uint64_t model_type = 2) {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0x0A>", 0, 6) +
         piece("▁", -1, 1) + piece("a", -2, 1) + piece("▁a", -0.5F, 1) +
         bytes_field(
             2, number_field(3, model_type) + number_field(35, 1) + number_field(43, UINT64_MAX)) +
         bytes_field(3, bytes_field(1, "identity") + number_field(4, 0)) + bytes_field(99, "later");
}
Result<TokenizerData> parse_model(const std::string& bytes) {
  return parse_sentencepiece_model(std::as_bytes(std::span(bytes)));
}

TEST(SentencePieceModel, IsRead) {
  const auto data = parse_model(small_model());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->kind, TokenizerKind::Spm);
  EXPECT_TRUE(data->add_bos);
  EXPECT_TRUE(data->byte_fallback);
  EXPECT_FALSE(data->remove_extra_whitespaces);
  EXPECT_EQ(data->ids.pad, -1);
  EXPECT_EQ(data->scores[6], -0.5F);
  EXPECT_THAT(Tokenizer::create(*data).take().encode("a a\nz"), ElementsAre(6, 6, 3, 0));
}

TEST(SentencePieceModel, OtherTypesAreNamed) {
  const auto unigram = parse_model(small_model(1));
  ASSERT_FALSE(unigram);
  EXPECT_THAT(unigram.error().message, HasSubstr("of type Unigram is not supported"));
}

TEST(SentencePieceModel, SurvivesTruncationAndChangedBytes) {
  const std::string bytes = small_model();
  for (size_t size = 0; size < bytes.size(); ++size) (void)parse_model(bytes.substr(0, size));
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      auto data = parse_model(changed);
      if (!data) continue;
      auto tokenizer = Tokenizer::create(data.take());
      if (tokenizer) tokenizer->encode("a a\nz");
    }
  }
  EXPECT_FALSE(parse_model(bytes_field(1, "x").substr(0, 2) + varint(UINT64_MAX)));
}

// ------------------------------------------------------------------- the folder

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(HfTokenizer, ReadsTheFilesBeside) {
  const testing::TempDir folder;
  const std::string path = folder.path();
  write(path + "/tokenizer.model", small_model());
  write(path + "/tokenizer_config.json", R"({
    "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": false,
    "added_tokens_decoder": {"8": {"content": "<|im_start|>", "special": true,
      "rstrip": true}, "9": {"content": "<extra>", "lstrip": true, "single_word": true}},
    "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  write(path + "/added_tokens.json", R"({"<extra>": 9, "<|im_start|>": 8})");
  write(path + "/generation_config.json", R"({"eos_token_id": [2, 8, 4000]})");
  const auto hf = load_hf_tokenizer(path);
  ASSERT_TRUE(hf) << hf.error().message;
  EXPECT_EQ(hf->data.tokens.size(), 10u);
  EXPECT_EQ(hf->data.types[7], TokenType::Unused);
  EXPECT_EQ(hf->data.types[8], TokenType::Control);
  EXPECT_EQ(hf->data.types[9], TokenType::UserDefined);
  EXPECT_THAT(hf->data.rstrip, ElementsAre(8));
  EXPECT_THAT(hf->data.lstrip, ElementsAre(9));
  EXPECT_THAT(hf->data.single_word, ElementsAre(9));
  EXPECT_THAT(hf->data.eog, ElementsAre(2, 8));
  EXPECT_FALSE(hf->data.add_bos);
  EXPECT_EQ(hf->chat_template, "D");
  write(path + "/chat_template.jinja", "J");
  EXPECT_EQ(load_hf_tokenizer(path + "/tokenizer.model")->chat_template, "J");
}

TEST(HfTokenizer, ErrorsBeginWithTheFile) {
  const testing::TempDir folder;
  const std::string path = folder.path();
  const auto error = [&](const std::string& name) {
    const auto hf = load_hf_tokenizer(name);
    return hf ? std::string("no error") : hf.error().message;
  };
  EXPECT_THAT(error(path), HasSubstr("has neither tokenizer.json nor tokenizer.model"));
  EXPECT_THAT(error(path + "/nothing.json"), HasSubstr("nothing.json: cannot open"));
  write(path + "/tokenizer.json", "{\"model\": ");
  EXPECT_THAT(error(path), HasSubstr("tokenizer.json: no valid JSON object"));
  write(path + "/tokenizer.json", small_json().dump());
  write(path + "/tokenizer_config.json", "[]");
  EXPECT_THAT(error(path), HasSubstr("tokenizer_config.json: no valid JSON object"));
}

}  // namespace
}  // namespace ktx::text
