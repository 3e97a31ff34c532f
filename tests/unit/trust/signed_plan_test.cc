#include "lib/trust/signed_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace ktx::trust {
namespace {

using ::testing::HasSubstr;

constexpr const char* kKey = "RWSxP+RD0AwzrV/AZcxzMTvs16ACwy12FnPAnh4VQc13UV8iiUkcF1kR";
// Of "hello\n" by minisign 0.11 (minisign_test.cc).
constexpr const char* kSignature =
    "untrusted comment: signature from minisign secret key\n"
    "RUSxP+RD0AwzrUV5BTZ698d0s9+PGL6Efhe3ZDRpzjwsxOVOh1m1BpEEP+CJHDAF/"
    "jokDQDDtDHSfg+12t3yMT+GmMZ5J++oswU=\n"
    "trusted comment: a trusted comment\n"
    "hHdY8SzJN7cyQvPAvtHlAjloeaq5wmngMvh7M50VP24/86RT17tDjrABtadg/RfguzZtmDzPjvcDJhY3G3kZBw==\n";

TEST(SignatureKeys, AreReadFromFilesAndTexts) {
  const testing::TempDir dir;
  const std::string file =
      dir.write("key.pub", std::string("untrusted comment: minisign public key\n") + kKey + "\n");
  for (const std::string& given : {std::string(kKey), file, dir.write("bare", kKey)}) {
    const auto key = read_signature_key(given);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_EQ(std::get<MinisignKey>(*key).key, parse_minisign_key(kKey)->key);
  }
  const auto pem = read_signature_key(source_dir() + "/tests/unit/trust/bundles/key.pub");
  ASSERT_TRUE(pem) << pem.error().message;
  EXPECT_EQ(std::get<BundleKey>(*pem).hint.size(), 64u);
  EXPECT_THAT(read_signature_key("missing.pub").error().message, HasSubstr("no such file"));
  EXPECT_THAT(read_signature_key(dir.write("x", "-----BEGIN X")).error().message,
              HasSubstr("not a key of ECDSA over P-256"));
}

TEST(VerifyPlan, NeedsASignatureBesideTheFile) {
  const testing::TempDir dir;
  const std::string path = dir.write("m.ktxplan", "hello\n");
  const SignatureKey key = *parse_minisign_key(kKey);
  const auto unsigned_file = verify_plan(key, path, {});
  ASSERT_FALSE(unsigned_file);
  EXPECT_THAT(unsigned_file.error().message, HasSubstr("m.ktxplan: not signed: there is no "));
  dir.write("m.ktxplan.minisig", kSignature);
  const auto found = verify_plan(key, path, {});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->signature, path + ".minisig");
  EXPECT_FALSE(found->weights_to_check);
  EXPECT_TRUE(check_unchanged(path, found->stamp));
  dir.write("m.ktxplan", "hallo\n");
  EXPECT_FALSE(check_unchanged(path, found->stamp));
  EXPECT_FALSE(verify_plan(key, path, {}));
}

// A signature of a root counts for a plan with digests alone.
TEST(VerifyPlan, OfARootNeedsAPlan) {
  const testing::TempDir dir;
  const std::string path = dir.write("m.ktxplan", "hello\n");
  dir.write("m.ktxplan.root.minisig", kSignature);
  dir.write("m.ktxplan.minisig", kSignature);
  EXPECT_FALSE(verify_plan(*parse_minisign_key(kKey), path, {}));
}

}  // namespace
}  // namespace ktx::trust
