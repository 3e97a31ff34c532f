#include "lib/text/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/text/tokenizer/detokenizer.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "tests/support/cpu_time.h"
#include "tests/support/gguf_tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_tokenizer.h"

namespace ktx::text {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const std::string kShared = shared_dir();

bool have_shared() {
  return std::filesystem::exists(kShared + "/tokenizers");
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Tokenizer load_gguf(const std::string& path) {
  const testing::GgufTokenizer file(MappedFile::open(path).take());
  Result<TokenizerData> data = make_tokenizer_data(file.source());
  if (!data) ADD_FAILURE() << path << ": " << data.error().message;
  return Tokenizer::create(data.take()).take();
}

std::vector<std::string> split_at(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (true) {
    const size_t found = text.find(separator, at);
    parts.push_back(text.substr(at, found - at));
    if (found == std::string::npos) return parts;
    at = found + separator.size();
  }
}

// ------------------------------------------------------------- small vocabularies

Tokenizer make(Result<TokenizerData> data) {
  if (!data) ADD_FAILURE() << data.error().message;
  return Tokenizer::create(data.take()).take();
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                const EncodeOptions& options = {}) {
  std::vector<std::string> found;
  for (const int32_t id : tokenizer.encode(text, options)) {
    found.emplace_back(tokenizer.data().tokens[static_cast<size_t>(id)]);
  }
  return found;
}

TEST(Bpe, MergesByRankThenPlace) {
  const Tokenizer tokenizer = make(testing::tiny_bpe({{"ab"}, {"bc"}, {"abc"}, {"aa"}, {"aaa"}},
                                                     {"b c", "a b", "a bc", "a a", "aa a"}));
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("abc"));
  EXPECT_THAT(pieces(tokenizer, "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(pieces(tokenizer, "aaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(pieces(tokenizer, "aaaaa"), ElementsAre("aa", "aaa"));
  EXPECT_THAT(pieces(tokenizer, "xabcx"), ElementsAre("x", "abc", "x"));
}

TEST(Bpe, MergesAcrossSymbolsThatAreNoTokens) {
  const Tokenizer tokenizer = make(testing::tiny_bpe({{"abc"}}, {"a b", "ab c"}));
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("abc"));
  EXPECT_THAT(pieces(tokenizer, "abx"), ElementsAre("a", "b", "x"));  // "ab" falls back to bytes
}

TEST(Bpe, WholePiecesWinWhereMergesAreIgnored) {
  const std::vector<testing::TinyToken> tokens = {{"ab"}, {"abc"}};
  EXPECT_THAT(pieces(make(testing::tiny_bpe(tokens, {"a b"}, "gpt-2")), "abc"),
              ElementsAre("ab", "c"));
  EXPECT_THAT(pieces(make(testing::tiny_bpe(tokens, {"a b"}, "llama-bpe")), "abc"),
              ElementsAre("abc"));
}

TEST(Bpe, EveryByteSurvives) {
  const Tokenizer tokenizer = make(testing::tiny_bpe({}, {"a b"}));
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all.push_back(static_cast<char>(byte));
  std::string back;
  for (const int32_t id : tokenizer.encode(all)) back += tokenizer.piece(id);
  EXPECT_EQ(back, all);
}

TEST(Bpe, BytesWithoutTokensBecomeUnknownOrNothing) {
  const std::vector<std::string_view> tokens = {"a", "<unk>"};
  const std::vector<std::string_view> merges = {"a a"};
  TokenizerSource source;
  source.model = "gpt2";
  source.pre = "gpt-2";
  source.tokens = tokens;
  source.merges = merges;
  EXPECT_THAT(make(make_tokenizer_data(source)).encode("aba"), ElementsAre(0, 0));
  source.unk = 1;
  EXPECT_THAT(make(make_tokenizer_data(source)).encode("aba"), ElementsAre(0, 1, 0));
}

// Gemma 4: ids as Hugging Face's tokenizers library has them, with the space replaced by "▁".
TEST(Bpe, OverCharactersTakesTheWholeTextAtOnceAndBytesForTheRest) {
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<int32_t> types = {3, 3, 3, 2};
  for (int byte = 0; byte < 256; ++byte) {  // ids 4 to 259
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  for (const char* text : {"▁", "h", "e", "l", "o", "\n", "he", "ll", "hell", "hello", "▁hello",
                           "\n\n"}) {  // ids 260 to 271
    tokens.emplace_back(text);
    types.push_back(1);
  }
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const std::vector<std::string_view> merges = {"h e",    "l l",     "he ll",
                                                "hell o", "▁ hello", "\n \n"};
  TokenizerSource source;
  source.model = "gemma4";
  source.tokens = views;
  source.token_types = types;
  source.merges = merges;
  source.bos = 2;
  source.unk = 3;
  const Tokenizer tokenizer = make(make_tokenizer_data(source));
  EXPECT_THAT(tokenizer.encode("hello hello"), ElementsAre(269, 270));
  EXPECT_THAT(tokenizer.encode("  hello"), ElementsAre(260, 270));
  EXPECT_THAT(tokenizer.encode("h\u00e9llo"), ElementsAre(261, 199, 173, 267, 264));
  EXPECT_THAT(tokenizer.encode("\n\n\nhello\n"), ElementsAre(271, 265, 269, 265));
  EXPECT_THAT(tokenizer.encode("\u00e9\u20ac"), ElementsAre(199, 173, 230, 134, 176));
  EXPECT_THAT(tokenizer.encode_prompt("hello"), ElementsAre(2, 269));
  const std::string text = "hello  h\u00e9llo\n";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Spm, MergesByScore) {
  const Tokenizer tokenizer =
      make(testing::tiny_spm({{"▁"}, {"a"}, {"b"}, {"c"}, {"bc"}, {"ab"}, {"▁a"}, {"▁ab"}}));
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("▁a", "bc"));
  EXPECT_THAT(pieces(tokenizer, "ab c"), ElementsAre("▁ab", "▁", "c"));
  EXPECT_THAT(pieces(tokenizer, "a\nb"), ElementsAre("▁a", "<0x0A>", "b"));
  EXPECT_THAT(pieces(tokenizer, "é\xFF"), ElementsAre("▁", "<0xC3>", "<0xA9>", "<0xFF>"));
  EXPECT_TRUE(pieces(tokenizer, "").empty());
}

TEST(Spm, TextNeverBecomesControlTokens) {
  const Tokenizer tokenizer = make(testing::tiny_spm({{"<"}, {"s"}, {">"}, {"<s"}, {"▁"}}));
  EXPECT_THAT(pieces(tokenizer, "<s>"), ElementsAre("▁", "<s", ">"));
  EXPECT_THAT(pieces(tokenizer, "<s>", {.parse_special = true}), ElementsAre("<s>"));
}

TEST(Spm, SpaceStandsInFrontOfTextAndAfterSpecialTokens) {
  const Tokenizer tokenizer =
      make(testing::tiny_spm({{"▁"}, {"a"}, {"<u>", TokenType::UserDefined}}));
  EXPECT_THAT(pieces(tokenizer, "a<s>a</s>", {.parse_special = true}),
              ElementsAre("▁", "a", "<s>", "▁", "a", "</s>"));
  EXPECT_THAT(pieces(tokenizer, "<u>a"), ElementsAre("<u>", "▁", "a"));
  TokenizerData once = testing::tiny_spm({{"▁"}, {"a"}}).take();
  once.space_prefix_once = true;
  EXPECT_THAT(pieces(make(once), "<s>a", {.parse_special = true}), ElementsAre("<s>", "a"));
  TokenizerData missing = testing::tiny_spm({{"▁"}, {"a"}}).take();
  missing.space_prefix_if_missing = true;
  EXPECT_THAT(pieces(make(missing), " a"), ElementsAre("▁", "a"));
  TokenizerData squeezed = testing::tiny_spm({{"▁"}, {"a"}}).take();
  squeezed.remove_extra_whitespaces = true;
  EXPECT_THAT(pieces(make(squeezed), "  a   a "), ElementsAre("▁", "a", "▁", "a"));
}

TEST(Tokenizer, SpecialTokensAreParsedOnDemandUserDefinedOnesAlways) {
  const Tokenizer tokenizer = make(testing::tiny_bpe({{"<|im_end|>", TokenType::Control},
                                                      {"<think>", TokenType::UserDefined},
                                                      {"<think>x", TokenType::UserDefined}},
                                                     {"a b"}));
  EXPECT_THAT(tokenizer.encode("<|im_end|>", {.parse_special = true}), ElementsAre(256));
  EXPECT_EQ(tokenizer.encode("<|im_end|>").size(), 10u);
  EXPECT_THAT(tokenizer.encode("a<think>b"), ElementsAre('a', 257, 'b'));
  EXPECT_THAT(tokenizer.encode("<think>x"), ElementsAre(258));  // the longest
  EXPECT_THAT(tokenizer.encode("<<think>"), ElementsAre('<', 257));
  EXPECT_EQ(tokenizer.encode("<think").size(), 6u);
}

TEST(Tokenizer, StrippingTokensSwallowWhiteSpace) {
  TokenizerData data = testing::tiny_bpe({{"<m>", TokenType::UserDefined}}, {"x y"}).take();
  data.lstrip = {256};
  EXPECT_THAT(make(data).encode("a \n<m> b"), ElementsAre('a', 256, ' ', 'b'));
  data.rstrip = {256};
  EXPECT_THAT(make(data).encode("a <m> b"), ElementsAre('a', 256, 'b'));
}

TEST(Tokenizer, AddsBosAndEosWhenAsked) {
  const Tokenizer tokenizer = make(testing::tiny_spm({{"▁"}, {"a"}}));
  EXPECT_THAT(tokenizer.encode("", {.add_bos = true, .add_eos = true}), ElementsAre(1, 2));
  EXPECT_THAT(tokenizer.encode_prompt("<s>a"), ElementsAre(1, 259, 260));
  EXPECT_THAT(tokenizer.encode_prompt("a"), ElementsAre(1, 259, 260));
  EXPECT_THAT(make(testing::tiny_bpe({}, {"a b"})).encode_prompt("a"), ElementsAre('a'));
}

TEST(Tokenizer, AnswersAboutTokens) {
  const Tokenizer tokenizer = make(testing::tiny_bpe(
      {{"<|im_end|>", TokenType::Control}, {"[PAD]", TokenType::Unused}, {"Ġthe"}}, {"a b"}));
  EXPECT_EQ(tokenizer.size(), 259);
  EXPECT_TRUE(tokenizer.is_eog(256));
  EXPECT_TRUE(tokenizer.is_control(256));
  EXPECT_FALSE(tokenizer.is_eog(-1));
  EXPECT_FALSE(tokenizer.is_control(259));
  EXPECT_EQ(tokenizer.piece(257), "");
  EXPECT_EQ(tokenizer.piece(258), " the");
  EXPECT_EQ(tokenizer.piece(259), "");
  EXPECT_EQ(tokenizer.find("<|im_end|>"), 256);
  EXPECT_FALSE(tokenizer.find("nothing"));
}

TEST(Tokenizer, NormalisesOnlyWhereAsked) {
  TokenizerData data = testing::tiny_bpe({}, {"a b"}).take();
  const std::string decomposed = "e\xCC\x81\xFF", composed = "\xC3\xA9\xFF";
  const auto joined = [](const Tokenizer& tokenizer, std::string_view text) {
    std::string bytes;
    for (const int32_t id : tokenizer.encode(text)) bytes += tokenizer.piece(id);
    return bytes;
  };
  EXPECT_EQ(joined(make(data), decomposed), decomposed);
  data.normalizer = Normalizer::Nfc;
  EXPECT_EQ(joined(make(data), decomposed), composed);
  data.normalizer = Normalizer::Nfd;
  EXPECT_EQ(joined(make(data), composed), decomposed);
}

TEST(Tokenizer, RefusesPatternsThatDoNotCompile) {
  TokenizerData data = testing::tiny_bpe({}, {"a b"}).take();
  data.splits = {{"(", SplitBehavior::Isolated, false, false}};
  EXPECT_FALSE(Tokenizer::create(data));
}

// ---------------------------------------------------------- whole vocabularies

class Vocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(Vocabulary, EveryTokenRoundTrips) {
  if (!have_shared()) GTEST_SKIP() << kShared << "/tokenizers is missing";
  const Tokenizer tokenizer = load_gguf(kShared + "/tokenizers/" + GetParam() + ".gguf");
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string text(tokenizer.piece(id));
    if (tokenizer.is_control(id)) {
      EXPECT_THAT(tokenizer.encode(text, {.parse_special = true}), ElementsAre(id));
      continue;
    }
    std::string back;
    for (const int32_t part : tokenizer.encode(text)) back += tokenizer.piece(part);
    if (tokenizer.data().add_space_prefix) back.erase(0, 1);
    ASSERT_EQ(back, text) << id;
  }
}

TEST_P(Vocabulary, SectionRoundTripsAndLoadsFast) {
  if (!have_shared()) GTEST_SKIP() << kShared << "/tokenizers is missing";
  const Tokenizer tokenizer = load_gguf(kShared + "/tokenizers/" + GetParam() + ".gguf");
  const std::string bytes = serialize(tokenizer.data());
  const double begin = testing::cpu_seconds();
  auto parsed = parse_tokenizer_data(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, tokenizer.data());
  ASSERT_TRUE(Tokenizer::create(parsed.take()));
  EXPECT_LT(testing::cpu_seconds() - begin, 5);  // 0.02 s for 100,000 tokens on an idle core
}

// The merges of a text of one word, one by one from the best on: what queues must not change.
std::vector<std::string> merged_slowly(const Tokenizer& tokenizer, std::vector<std::string> parts) {
  const TokenizerData& data = tokenizer.data();
  while (true) {
    size_t best = parts.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto id = tokenizer.find(parts[i] + parts[i + 1]);
      if (!id) continue;
      const float score = data.scores[static_cast<size_t>(*id)];
      if (best < parts.size() && score <= best_score) continue;
      best = i;
      best_score = score;
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Spm, LongTextsMergeAsShortOnes) {
  const Tokenizer tokenizer = make(testing::tiny_spm({{"▁"},
                                                      {"a"},
                                                      {"b"},
                                                      {"c"},
                                                      {"bc"},
                                                      {"ab"},
                                                      {"aa"},
                                                      {"▁a"},
                                                      {"aab"},
                                                      {"cc"},
                                                      {"bca"},
                                                      {"aaaa"},
                                                      {"▁ab"},
                                                      {"cab"},
                                                      {"abcc"}}));
  uint32_t state = 7;
  for (const size_t size : {3, 50, 2100, 3000}) {
    for (const std::string from : {"abcab c", "abcabca"}) {
      std::vector<std::string> parts = {"▁"};
      std::string text;
      for (size_t i = 0; i < size; ++i) {
        state = state * 1664525 + 1013904223;
        text += from[(state >> 24) % 7];
        parts.emplace_back(text.back() == ' ' ? "▁" : text.substr(text.size() - 1));
      }
      EXPECT_EQ(pieces(tokenizer, text), merged_slowly(tokenizer, parts)) << size;
    }
  }
}

// 4 MB, what a request may have, take half a second. The bounds leave room for slow machines; in
// one heap letters took 8 s.
#ifdef __SANITIZE_ADDRESS__
constexpr double kTextSeconds = 60;
#else
constexpr double kTextSeconds = 4;
#endif
TEST_P(Vocabulary, TextsOfTheLargestSizeEndInTime) {
  if (!have_shared()) GTEST_SKIP() << kShared << "/tokenizers is missing";
  const Tokenizer tokenizer = load_gguf(kShared + "/tokenizers/" + GetParam() + ".gguf");
  constexpr size_t kSize = 4'000'000;
  uint32_t state = 1;
  for (const std::string from :
       {"abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz ", "=", "-=*#_.~/"}) {
    std::string text(kSize, ' ');
    for (char& c : text) {
      state = state * 1664525 + 1013904223;
      c = from[(state >> 24) % from.size()];
    }
    const double begin = testing::cpu_seconds();
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_LT(testing::cpu_seconds() - begin, kTextSeconds) << from;
    EXPECT_EQ(tokenizer.decode(ids), text) << from;
  }
}

// A mebibyte of anything takes about a second; quadratic would take hours.
TEST_P(Vocabulary, LongInputsTakeNearLinearTime) {
  if (!have_shared()) GTEST_SKIP() << kShared << "/tokenizers is missing";
  const Tokenizer tokenizer = load_gguf(kShared + "/tokenizers/" + GetParam() + ".gguf");
  const size_t size = 1u << 20, less = 1u << 18;
  std::string noise(less, ' '), words;
  uint32_t state = 1;  // any seed will do
  for (char& c : noise) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>('a' + (state >> 24) % 26);
  }
  while (words.size() < size) words += "The cat's 12 lives.\n";
  const std::string inputs[] = {
      std::string(size, 'a'),       std::string(size, ' ') + "1", words, std::string(less, '\n'),
      std::string(less, '[') + "x", std::string(less, '\xFF'),    noise};
  for (const std::string& input : inputs) {
    const double begin = testing::cpu_seconds();
    const std::vector<int32_t> ids = tokenizer.encode(input);
    EXPECT_LT(testing::cpu_seconds() - begin, 60) << input.substr(0, 8);
    if (input[0] != '\xFF') {
      EXPECT_EQ(tokenizer.decode(ids), input) << input.substr(0, 8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, Vocabulary, ::testing::Values("deepseek-llm", "llama-spm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Vectors : public ::testing::TestWithParam<const char*> {};

TEST_P(Vectors, AllCasesAreIdentical) {
  if (!have_shared()) GTEST_SKIP() << kShared << "/tokenizers is missing";
  const std::string stem = kShared + "/tokenizers/" + GetParam();
  const Tokenizer tokenizer = load_gguf(stem + ".gguf");
  const std::vector<std::string> inputs =
      split_at(read_file(stem + ".inp"), "\n__ggml_vocab_test__\n");
  std::istringstream expected(read_file(stem + ".out"));
  int cases = 0;
  std::string line;
  for (const std::string& input : inputs) {
    if (!std::getline(expected, line)) break;  // the tail behind the last separator
    std::istringstream numbers(line);
    const std::vector<int32_t> ids{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_THAT(tokenizer.encode(input), ElementsAreArray(ids))
        << "case " << cases << ": " << input;
    EXPECT_EQ(tokenizer.decode(ids), input) << "case " << cases;
    ++cases;
  }
  EXPECT_EQ(cases, 46);
}

INSTANTIATE_TEST_SUITE_P(Shared, Vectors, ::testing::Values("deepseek-llm", "llama-spm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class References : public ::testing::TestWithParam<const char*> {};

TEST_P(References, PromptsOfHfFilesAreIdentical) {
  const std::string folder = kShared + "/models/" + GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
  Result<HfTokenizer> hf = load_hf_tokenizer(folder);
  ASSERT_TRUE(hf) << hf.error().message;
  EXPECT_TRUE(hf->chat_template);
  const Tokenizer from_gguf = load_gguf(folder + "/" + GetParam() + "-q4_k_m.gguf");
  EXPECT_EQ(hf->data.ids.eos, from_gguf.eos());
  EXPECT_EQ(hf->data.eog, from_gguf.data().eog);
  const Tokenizer tokenizer = Tokenizer::create(std::move(hf->data)).take();
  for (const char* name : {"/reference.json", "/reference-q4_k_m.json"}) {
    const auto reference = nlohmann::json::parse(read_file(folder + name));
    for (const auto& item : reference["cases"]) {
      const auto prompt = item["prompt"].get<std::string>();
      const auto ids = item["prompt_ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(prompt, {.parse_special = true}), ids) << prompt;
    }
  }
}

TEST_P(References, PromptsOfGgufAreIdentical) {
  const std::string folder = kShared + "/models/" + GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
  const Tokenizer tokenizer = load_gguf(folder + "/" + GetParam() + "-q4_k_m.gguf");
  for (const char* name : {"/reference.json", "/reference-q4_k_m.json"}) {
    const auto reference = nlohmann::json::parse(read_file(folder + name));
    for (const auto& item : reference["cases"]) {
      const auto prompt = item["prompt"].get<std::string>();
      const auto ids = item["prompt_ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(prompt, {.parse_special = true}), ids) << prompt;
      EXPECT_EQ(tokenizer.encode_prompt(prompt), ids) << prompt;
      if (item.contains("greedy_text")) {
        const auto greedy = item["greedy_ids"].get<std::vector<int32_t>>();
        const auto text = item["greedy_text"].get<std::string>();
        // Some of the references show control tokens, some SPM's space in front.
        Detokenizer continued(tokenizer, {.special = false, .at_start = false});
        std::string after_prompt;
        for (const int32_t id : greedy) after_prompt += continued.add(id);
        EXPECT_THAT(text, AnyOf(tokenizer.decode(greedy), tokenizer.decode(greedy, true),
                                after_prompt + continued.finish()));
        EXPECT_TRUE(tokenizer.is_eog(greedy.back()) || greedy.size() == 96) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, References,
                         ::testing::Values("llama", "mixtral", "qwen2", "qwen2moe", "qwen3moe",
                                           "deepseek2", "deepseek3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ktx::text
