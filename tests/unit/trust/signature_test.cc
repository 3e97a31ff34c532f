#include "lib/trust/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

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
                     const PublicKey& key = *parse_public_key(kKey)) {
  const auto found = verify_signature(key, std::as_bytes(std::span(file)), signature);
  return found ? "" : found.error().message;
}

TEST(Signature, OfMinisignIsVerified) {
  const std::string file = kFile;
  const auto found =
      verify_signature(*parse_public_key(kKey), std::as_bytes(std::span(file)), kSignature);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "a trusted comment");
}

TEST(Signature, OfEveryOtherByteIsRefused) {
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
TEST(Signature, ThatWasChangedAnywhereIsRefused) {
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

TEST(Signature, OfAnotherKeyIsNamed) {
  PublicKey other = *parse_public_key(kKey);
  other.key[3] ^= 1;  // the same id
  EXPECT_NE(error_of(kFile, kSignature, other), "");
  other.id[0] ^= 1;
  EXPECT_THAT(
      error_of(kFile, kSignature, other),
      HasSubstr("signed with key AD330CD043E43FB1, not with the required AD330CD043E43FB0"));
}

TEST(PublicKeys, AreReadFromFilesAndTexts) {
  const testing::TempDir dir;
  const std::string file =
      dir.write("key.pub", std::string("untrusted comment: minisign public key\n") + kKey + "\n");
  for (const std::string& given : {std::string(kKey), file, dir.write("bare", kKey)}) {
    const auto key = read_public_key(given);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_EQ(key->key, parse_public_key(kKey)->key);
  }
  const std::string key = kKey;
  for (const std::string& wrong :
       {std::string(), key.substr(1), key + "=", "X" + key.substr(1), key.substr(0, 55) + "=",
        key + "\n" + key, "untrusted comment: x\n" + key + "\nmore", std::string(56, 'R')}) {
    EXPECT_FALSE(parse_public_key(wrong)) << wrong;
  }
  EXPECT_THAT(read_public_key("missing.pub").error().message, HasSubstr("no such file"));
}

TEST(VerifyFile, NeedsTheSignatureBeside) {
  const testing::TempDir dir;
  const std::string path = dir.write("m.ktxplan", kFile);
  const PublicKey key = *parse_public_key(kKey);
  const auto unsigned_file = verify_file(key, path);
  ASSERT_FALSE(unsigned_file);
  EXPECT_THAT(unsigned_file.error().message, HasSubstr("m.ktxplan: not signed: there is no "));
  dir.write("m.ktxplan.minisig", kSignature);
  const auto stamp = verify_file(key, path);
  ASSERT_TRUE(stamp) << stamp.error().message;
  EXPECT_TRUE(check_unchanged(path, *stamp));
  dir.write("m.ktxplan", "hallo\n");
  EXPECT_FALSE(check_unchanged(path, *stamp));
  EXPECT_FALSE(verify_file(key, path));
}

}  // namespace
}  // namespace ktx::trust
