#include "lib/text/utf8.h"

#include <gtest/gtest.h>

#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/byte_token.h"

namespace ktx::text {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    std::string text;
    append_utf8(code, text);
    const Utf8Char read = decode_utf8(text);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(read.valid, !surrogate) << code;
    if (!surrogate) {
      ASSERT_EQ(read.code, code);
      ASSERT_EQ(read.length, text.size());
    }
  }
}

TEST(Utf8, RefusesWrongForms) {
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(decode_utf8(text).valid);
    EXPECT_EQ(valid_utf8_prefix(text), 0u);
  }
  EXPECT_TRUE(decode_utf8("\xE4\xBD").cut_off);
  EXPECT_FALSE(decode_utf8("\xE4z").cut_off);
  EXPECT_EQ(valid_utf8_prefix("0123456789\xE4\xBD\xA0\xFF"), 13u);
}

TEST(ByteAlphabet, IsABijection) {
  std::string all, coded, back;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  append_in_alphabet(all, coded);
  append_from_alphabet(coded, back);
  EXPECT_EQ(back, all);
  EXPECT_EQ(alphabet_code(' '), 0x120u);
  EXPECT_EQ(alphabet_code('\n'), 0x10Au);
  EXPECT_EQ(alphabet_code(0xAD), 0x143u);
  EXPECT_FALSE(byte_of_code(0x144));
  EXPECT_FALSE(byte_of_code(' '));
  back.clear();
  append_from_alphabet("Ġa你", back);
  EXPECT_EQ(back, " a你");
}

TEST(ByteToken, HasExactlyOneForm) {
  EXPECT_EQ(byte_of_token("<0x0A>"), 10);
  EXPECT_EQ(byte_of_token("<0xff>"), 255);
  for (const char* text :
       {"", "<0x>", "<0x0>", "<0x0A", "<0x0G>", "<0x00A>", "0x0A", "<0X0A>", "<0x-1>"}) {
    EXPECT_FALSE(byte_of_token(text)) << text;
  }
}

}  // namespace
}  // namespace ktx::text
