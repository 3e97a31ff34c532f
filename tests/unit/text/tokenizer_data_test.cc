#include "lib/text/tokenizer/tokenizer_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenizerSource source_of(const std::vector<std::string_view>& tokens,
                          const std::vector<std::string_view>& merges,
                          std::string_view pre = "gpt-2") {
  TokenizerSource source;
  source.model = "gpt2";
  source.pre = pre;
  source.tokens = tokens;
  source.merges = merges;
  return source;
}

std::string error_of(const TokenizerSource& source) {
  const auto data = make_tokenizer_data(source);
  return data ? "no error" : data.error().message;
}

const std::vector<std::string_view> kTokens = {"a", "b", "ab", "<|im_end|>"};
const std::vector<std::string_view> kMerges = {"a b"};

TEST(TokenizerData, ResolvesMerges) {
  const std::vector<std::string_view> merges = {"a b", "ab c", "a b"};
  const auto data = make_tokenizer_data(source_of(kTokens, merges)).take();
  ASSERT_EQ(data.merges.size(), 3u);
  EXPECT_EQ(data.merges[0], (Merge{0, 1, 2}));
  EXPECT_EQ(data.merges[1], (Merge{2, 4, 5}));  // "c" and "abc" are no tokens
  EXPECT_EQ(data.extra_symbols.size(), 2u);
  EXPECT_EQ(data.extra_symbols[1], "abc");
}

TEST(TokenizerData, FillsDefaultsByKindAndName) {
  const auto gpt2 = make_tokenizer_data(source_of(kTokens, kMerges)).take();
  EXPECT_FALSE(gpt2.add_bos);
  EXPECT_FALSE(gpt2.ignore_merges);
  EXPECT_FALSE(gpt2.add_space_prefix);
  EXPECT_EQ(gpt2.ids.bos, -1);

  TokenizerSource llama3 = source_of(kTokens, kMerges, "llama-bpe");
  EXPECT_FALSE(make_tokenizer_data(llama3).take().add_bos);  // there is none
  llama3.bos = 0;
  EXPECT_TRUE(make_tokenizer_data(llama3).take().add_bos);
  EXPECT_TRUE(make_tokenizer_data(llama3).take().ignore_merges);
  llama3.add_bos = false;
  EXPECT_FALSE(make_tokenizer_data(llama3).take().add_bos);

  const auto spm = testing::tiny_spm({}).take();
  EXPECT_TRUE(spm.add_bos);
  EXPECT_TRUE(spm.add_space_prefix);
  EXPECT_EQ(spm.ids.unk, 0);
  EXPECT_EQ(spm.ids.bos, 1);
  EXPECT_EQ(spm.ids.eos, 2);
}

TEST(TokenizerData, KnowsEndTokensByTheirText) {
  const auto data = make_tokenizer_data(source_of(kTokens, kMerges)).take();
  EXPECT_EQ(data.types[3], TokenType::Control);
  EXPECT_EQ(data.ids.eot, 3);
  EXPECT_THAT(data.eog, ElementsAre(3));
}

TEST(TokenizerData, RanksServeWhereKimiHasNoMerges) {
  const auto data = make_tokenizer_data(source_of(kTokens, {}, "kimi-k2")).take();
  EXPECT_THAT(data.merges, ElementsAre(Merge{0, 1, 2}));
}

TEST(TokenizerData, RefusesWhatCannotBe) {
  const auto with = [](auto change) {
    TokenizerSource source = source_of(kTokens, kMerges);
    change(source);
    return error_of(source);
  };
  const std::vector<int32_t> few_types = {1, 1};
  const std::vector<int32_t> byte_types = {1, 6, 1, 1};
  const std::vector<float> few_scores = {1, 2};
  const std::vector<float> nan_scores = {0, 0, std::numeric_limits<float>::quiet_NaN(), 0};
  const std::vector<std::string_view> bad_merges[] = {{"ab"}, {"a "}, {""}, {" "}};
  EXPECT_THAT(with([](auto& s) { s.model = "rwkv"; }),
              HasSubstr("tokenizer.ggml.model 'rwkv' is not supported"));
  EXPECT_THAT(with([](auto& s) { s.pre = "qwen3"; }),
              HasSubstr("tokenizer.ggml.pre: unknown pre-tokenizer 'qwen3'; did you mean"));
  EXPECT_THAT(with([](auto& s) { s.tokens = {}; }), HasSubstr("tokens is missing or empty"));
  EXPECT_THAT(with([](auto& s) { s.merges = {}; }), HasSubstr("merges is missing or empty"));
  EXPECT_THAT(with([&](auto& s) { s.token_types = few_types; }),
              HasSubstr("token_type has 2 items, tokenizer.ggml.tokens 4"));
  EXPECT_THAT(with([&](auto& s) { s.token_types = byte_types; }),
              HasSubstr("expected the form <0xHH>"));
  EXPECT_THAT(with([](auto& s) { s.bos = 4; }),
              HasSubstr("bos_token_id is 4, but the vocabulary has 4 tokens"));
  EXPECT_THAT(with([](auto& s) { s.eos = UINT64_MAX; }),
              HasSubstr("eos_token_id is 18446744073709551615"));
  EXPECT_THAT(with([](auto& s) { s.add_bos = true; }), HasSubstr("there is no BOS token"));
  for (const auto& merges : bad_merges) {
    EXPECT_THAT(with([&](auto& s) { s.merges = merges; }), HasSubstr("merges[0]"));
  }
  const auto spm = [&](std::span<const float> scores) {
    return with([&](auto& s) {
      s.model = "llama";
      s.scores = scores;
    });
  };
  EXPECT_THAT(spm({}), HasSubstr("scores has 0 items, tokenizer.ggml.tokens 4"));
  EXPECT_THAT(spm(few_scores), HasSubstr("scores has 2 items"));
  EXPECT_THAT(spm(nan_scores), HasSubstr("scores[2] is not a number"));
}

TEST(TokenizerData, ForgivesWrongPadding) {
  TokenizerSource source = source_of(kTokens, kMerges);
  source.pad = 32000;
  EXPECT_EQ(make_tokenizer_data(source).take().ids.pad, -1);
}

// ------------------------------------------------------------------ the section

TokenizerData rich_data() {
  TokenizerData data = testing::tiny_bpe({{"he", TokenType::Normal},
                                          {"<|im_end|>", TokenType::Control},
                                          {"<tool>", TokenType::UserDefined}},
                                         {"h e", "he x"}, "falcon")
                           .take();
  data.lstrip = {257};
  data.rstrip = {257, 258};
  data.normalizer = Normalizer::Nfc;
  data.space_prefix_once = true;
  return data;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(TokenizerSection, RoundTrips) {
  for (const TokenizerData& data :
       {rich_data(), testing::tiny_spm({{"▁a", TokenType::Normal}}).take()}) {
    const std::string bytes = serialize(data);
    const auto parsed = parse_tokenizer_data(bytes_of(bytes));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, data);
    EXPECT_EQ(serialize(*parsed), bytes);
  }
}

TEST(TokenizerSection, RejectsEveryTruncation) {
  const std::string bytes = serialize(rich_data());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);  // its own allocation: a sanitizer sees overruns
    EXPECT_FALSE(parse_tokenizer_data(bytes_of(cut))) << size;
  }
  EXPECT_FALSE(parse_tokenizer_data(bytes_of(bytes + "x")));
}

TEST(TokenizerSection, SurvivesEveryChangedByte) {
  const std::string bytes = serialize(rich_data());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const uint8_t value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      auto parsed = parse_tokenizer_data(bytes_of(changed));
      if (!parsed || at % 16 != 0) continue;
      auto tokenizer = Tokenizer::create(parsed.take());
      if (!tokenizer) continue;
      const auto ids =
          tokenizer->encode("he llo <|im_end|><tool> 123 \xFF", {.parse_special = true});
      tokenizer->decode(ids);
    }
  }
}

TEST(TokenizerSection, RejectsHugeCounts) {
  const std::string bytes = serialize(rich_data());
  for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
    for (const uint32_t count : {0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu, 0xFFFFFFFCu}) {
      std::string changed = bytes;
      std::memcpy(changed.data() + at, &count, sizeof(count));
      (void)parse_tokenizer_data(bytes_of(changed));  // no crash, no huge allocation
    }
  }
}

TEST(TokenizerSection, RejectsWrongIds) {
  const auto broken = [](auto change) {
    TokenizerData data = rich_data();
    change(data);
    return !validate(data) && !parse_tokenizer_data(bytes_of(serialize(data)));
  };
  EXPECT_TRUE(broken([](auto& d) { d.ids.bos = 259; }));
  EXPECT_TRUE(broken([](auto& d) { d.ids.mask = -2; }));
  EXPECT_TRUE(broken([](auto& d) { d.eog.push_back(-1); }));
  EXPECT_TRUE(broken([](auto& d) { d.eog.push_back(259); }));
  EXPECT_TRUE(broken([](auto& d) { d.lstrip.push_back(259); }));
  EXPECT_TRUE(broken([](auto& d) { d.merges[0].result = 1000; }));
  EXPECT_TRUE(broken([](auto& d) { d.types.pop_back(); }));
  EXPECT_TRUE(broken([](auto& d) { d.scores.push_back(1); }));
  EXPECT_TRUE(broken([](auto& d) { d.types[0] = TokenType::Byte; }));
  EXPECT_TRUE(broken([](auto& d) { d.types[0] = static_cast<TokenType>(7); }));
  EXPECT_TRUE(broken([](auto& d) { d.add_bos = true; }));
  EXPECT_TRUE(broken([](auto& d) {
    d.splits.push_back({"a", SplitBehavior::Isolated, false, false});
  }));
  EXPECT_TRUE(broken([](auto& d) { d.splits.resize(100); }));
}

}  // namespace
}  // namespace ktx::text
