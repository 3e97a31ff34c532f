#include "lib/trust/minisign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::trust {
namespace {

using ::testing::HasSubstr;

// Made by minisign 0.11: `minisign -G`, then `minisign -Sm FILE -t "a trusted comment"`.
constexpr const char* kKey = "RWSxP+RD0AwzrV/AZcxzMTvs16ACwy12FnPAnh4VQc13UV8iiUkcF1kR";
constexpr const char* kFile = "hello\n";
constexpr const char* kSignature =
    "untrusted comment: signature from minisign secret key\n"
    "RUSxP+RD0AwzrUV5BTZ698d0s9+PGL6Efhe3ZDRpzjwsxOVOh1m1BpEEP+CJHDAF/"
    "jokDQDDtDHSfg+12t3yMT+GmMZ5J++oswU=\n"
    "trusted comment: a trusted comment\n"
    "hHdY8SzJN7cyQvPAvtHlAjloeaq5wmngMvh7M50VP24/86RT17tDjrABtadg/RfguzZtmDzPjvcDJhY3G3kZBw==\n";

std::string error_of(const std::string& file, const std::string& signature,
                     const MinisignKey& key = *parse_minisign_key(kKey)) {
  const auto found = verify_minisign(key, std::as_bytes(std::span(file)), signature);
  return found ? "" : found.error().message;
}

TEST(Minisign, OfMinisignIsVerified) {
  const std::string file = kFile;
  const auto found =
      verify_minisign(*parse_minisign_key(kKey), std::as_bytes(std::span(file)), kSignature);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "a trusted comment");
}

TEST(Minisign, OfEveryOtherByteIsRefused) {
  std::string file = kFile;
  for (size_t i = 0; i < file.size() * 8; ++i) {
    file[i / 8] ^= static_cast<char>(1 << i % 8);
    EXPECT_THAT(error_of(file, kSignature), HasSubstr("one of the two was changed")) << i;
    file[i / 8] ^= static_cast<char>(1 << i % 8);
  }
  EXPECT_NE(error_of(file + "x", kSignature), "");
  EXPECT_NE(error_of("", kSignature), "");
}

// But for the untrusted comment, which says so.
TEST(Minisign, ThatWasChangedAnywhereIsRefused) {
  const std::string signature = kSignature;
  const size_t begin = signature.find('\n') + 1;
  for (size_t i = begin; i < signature.size() - 1; ++i) {
    for (const char to : {'A', 'z', '=', '\n', ' ', '\0'}) {
      std::string changed = signature;
      if (changed[i] == to) continue;
      changed[i] = to;
      EXPECT_NE(error_of(kFile, changed), "") << i << " becomes " << static_cast<int>(to);
    }
    EXPECT_NE(error_of(kFile, signature.substr(0, i)), "") << i;
  }
  EXPECT_NE(error_of(kFile, signature + "more\n"), "");
  EXPECT_NE(error_of(kFile, ""), "");
  EXPECT_EQ(error_of(kFile, "untrusted comment: another\n" + signature.substr(begin)), "");
}

TEST(Minisign, OfAnotherKeyIsNamed) {
  MinisignKey other = *parse_minisign_key(kKey);
  other.key[3] ^= 1;  // the same id
  EXPECT_NE(error_of(kFile, kSignature, other), "");
  other.id[0] ^= 1;
  EXPECT_THAT(
      error_of(kFile, kSignature, other),
      HasSubstr("signed with key AD330CD043E43FB1, not with the required AD330CD043E43FB0"));
}

TEST(MinisignKeys, OfOtherFormsAreRefused) {
  const std::string key = kKey;
  for (const std::string& wrong :
       {std::string(), key.substr(1), key + "=", "X" + key.substr(1), key.substr(0, 55) + "=",
        key + "\n" + key, "untrusted comment: x\n" + key + "\nmore", std::string(56, 'R')}) {
    EXPECT_FALSE(parse_minisign_key(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace ktx::trust
