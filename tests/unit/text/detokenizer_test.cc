#include "lib/text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "lib/text/utf8.h"
#include "tests/support/tiny_tokenizer.h"

namespace ktx::text {
namespace {

Tokenizer byte_tokenizer() {
  return Tokenizer::create(
             testing::tiny_bpe(
                 {{"<|im_end|>", TokenType::Control}, {"<think>", TokenType::UserDefined}}, {"h e"})
                 .take())
      .take();
}

// One token for each byte.
std::string stream(const Tokenizer& tokenizer, std::string_view bytes, size_t* flushed = nullptr) {
  Detokenizer out(tokenizer);
  std::string text;
  for (const char c : bytes) {
    const std::string part = out.add(static_cast<uint8_t>(c));
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    text += part;
  }
  if (flushed) *flushed = text.size();
  return text + out.finish();
}

TEST(Detokenizer, HoldsBackHalfCharacters) {
  const Tokenizer tokenizer = byte_tokenizer();
  Detokenizer out(tokenizer);
  EXPECT_EQ(out.add(0xE4), "");
  EXPECT_EQ(out.add(0xBD), "");
  EXPECT_EQ(out.add(0xA0), "你");
  EXPECT_EQ(out.add('a'), "a");
  EXPECT_EQ(out.add(0xF0), "");
  EXPECT_EQ(out.add(0x9F), "");
  EXPECT_EQ(out.add(0x98), "");
  EXPECT_EQ(out.add(0x80), "😀");
  EXPECT_EQ(out.finish(), "");
}

TEST(Detokenizer, WrongBytesBecomeReplacementCharacters) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_EQ(stream(tokenizer, "a\xFF\x62"), "a\xEF\xBF\xBD\x62");
  EXPECT_EQ(stream(tokenizer, "\xE4\xBDz"), "\xEF\xBF\xBDz");  // one for the beginning
  EXPECT_EQ(stream(tokenizer, "\xE4\xE4\xBD\xA0"), "\xEF\xBF\xBD你");
  EXPECT_EQ(stream(tokenizer, "\xED\xA0\x80"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  size_t flushed = 0;
  EXPECT_EQ(stream(tokenizer, "ok\xF0\x9F\x98", &flushed), "ok\xEF\xBF\xBD");
  EXPECT_EQ(flushed, 2u);
}

TEST(Detokenizer, SplitsOfAnyTextJoinAgain) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string text = "naïve — 你好，世界 😀👍🏽 Ωмир\n";
  EXPECT_EQ(stream(tokenizer, text), text);
}

TEST(Detokenizer, RandomBytesGiveValidText) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(7);  // fixed seed: 7
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 40, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string text = stream(tokenizer, bytes);
    EXPECT_EQ(valid_utf8_prefix(text), text.size());
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(Detokenizer, ControlTokensShowOnDemand) {
  const Tokenizer tokenizer = byte_tokenizer();
  Detokenizer hidden(tokenizer), shown(tokenizer, {.special = true});
  EXPECT_EQ(hidden.add(256), "");
  EXPECT_EQ(hidden.add(257), "<think>");
  EXPECT_EQ(shown.add(256), "<|im_end|>");
  EXPECT_EQ(shown.add(-1), "");
  EXPECT_EQ(shown.add(1 << 30), "");
}

TEST(Detokenizer, SpmDropsTheSpaceInFrontOnce) {
  const Tokenizer tokenizer =
      Tokenizer::create(
          testing::tiny_spm({{"▁a", TokenType::Normal}, {"▁", TokenType::Normal}}).take())
          .take();
  Detokenizer begin(tokenizer), middle(tokenizer, {.special = false, .at_start = false});
  EXPECT_EQ(begin.add(1), "");  // BOS is not the beginning of the text
  EXPECT_EQ(begin.add(259), "a");
  EXPECT_EQ(begin.add(259), " a");
  EXPECT_EQ(middle.add(259), " a");
  Detokenizer spaces(tokenizer);
  EXPECT_EQ(spaces.add(260), "");
  EXPECT_EQ(spaces.add(260), " ");
}

}  // namespace
}  // namespace ktx::text
