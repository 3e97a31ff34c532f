// OpenSSF Model Signing bundles: those that model-signing 1.1.1 made (tests/unit/trust/bundles),
// and our own. tests/e2e/model_signing_test.cc has model-signing verify ours.
#include "lib/trust/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/ec_keys.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace ktx::trust {
namespace {

using ktx::testing::EcKeys;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr const char* kName = "m.ktxplan";

std::string stored(const std::string& name) {
  return ktx::testing::read_file(source_dir() + "/tests/unit/trust/bundles/" + name);
}

// What the stored bundles sign.
std::string signed_bytes() {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 7);
  return bytes;
}

std::string error_of(const std::string& bundle, const std::string& bytes = signed_bytes(),
                     const std::string& key = "key.pub") {
  const auto found = verify_bundle(*parse_bundle_key(stored(key)), bundle, kName,
                                   std::as_bytes(std::span(bytes)), 2);
  return found ? "" : found.error().message;
}

TEST(Bundle, OfModelSigningIsVerified) {
  for (const char* name : {"file.sig", "folder.sig", "shards.sig", "folder_shards.sig"}) {
    EXPECT_EQ(error_of(stored(name)), "") << name;
  }
  EXPECT_EQ(error_of(stored("file384.sig"), signed_bytes(), "key384.pub"), "");
}

TEST(Bundle, OfOtherBytesIsRefused) {
  for (const char* name : {"file.sig", "folder.sig", "shards.sig", "folder_shards.sig"}) {
    for (const size_t at : {0, 2047, 2048, 4999}) {
      std::string bytes = signed_bytes();
      bytes[at] ^= 1;
      EXPECT_THAT(error_of(stored(name), bytes), HasSubstr("are not those that were signed"));
    }
    EXPECT_NE(error_of(stored(name), signed_bytes() + "x"), "") << name;
    EXPECT_NE(error_of(stored(name), signed_bytes().substr(0, 4999)), "") << name;
    EXPECT_NE(error_of(stored(name), ""), "") << name;
  }
}

TEST(Bundle, OfAnotherFileOrKeyIsRefused) {
  const std::string bytes = signed_bytes();
  const auto found = verify_bundle(*parse_bundle_key(stored("key.pub")), stored("folder.sig"),
                                   "other.ktxplan", std::as_bytes(std::span(bytes)), 1);
  EXPECT_THAT(found.error().message, HasSubstr("does not name 'other.ktxplan' of 5000 bytes"));
  EXPECT_THAT(error_of(stored("file.sig"), bytes, "key384.pub"),
              HasSubstr("not with the required "));
  Json without_hint = Json::parse(stored("file.sig"));
  without_hint["verificationMaterial"]["publicKey"] = Json::object();
  EXPECT_EQ(error_of(without_hint.dump()), "");
  const EcKeys other("P-256");
  EXPECT_THAT(verify_bundle(*parse_bundle_key(other.open), without_hint.dump(), kName,
                            std::as_bytes(std::span(bytes)), 1)
                  .error()
                  .message,
              HasSubstr("or made with another key"));
}

// Each character of the payload and of the signature.
TEST(Bundle, ThatWasChangedIsRefused) {
  const std::string whole = stored("file.sig");
  for (const char* field : {"\"payload\":\"", "\"sig\":\""}) {
    const size_t begin = whole.find(field) + std::string(field).size();
    const size_t end = whole.find('"', begin);
    for (size_t i = begin; i < end; ++i) {
      std::string changed = whole;
      changed[i] = changed[i] == 'A' ? 'B' : 'A';
      EXPECT_NE(error_of(changed), "") << i;
    }
  }
}

// Cut anywhere, and with every part missing or of another kind: an error, never a crash.
TEST(Bundle, ThatIsDamagedIsRefused) {
  const std::string whole = stored("shards.sig");
  for (size_t size = 0; size < whole.size() - 1; ++size) {
    EXPECT_NE(error_of(whole.substr(0, size)), "") << size;
  }
  const std::vector<const char*> places = {"/mediaType",
                                           "/verificationMaterial",
                                           "/verificationMaterial/publicKey",
                                           "/dsseEnvelope",
                                           "/dsseEnvelope/payload",
                                           "/dsseEnvelope/payloadType",
                                           "/dsseEnvelope/signatures",
                                           "/dsseEnvelope/signatures/0",
                                           "/dsseEnvelope/signatures/0/sig"};
  for (const char* place : places) {
    for (const Json& other :
         {Json(), Json(1), Json("x"), Json::array(), Json::object(), Json::array({1, 2})}) {
      Json changed = Json::parse(whole);
      if (std::string(place) == "/verificationMaterial/publicKey" && !other.is_null()) continue;
      changed[Json::json_pointer(place)] = other;
      EXPECT_NE(error_of(changed.dump()), "") << place << " " << other;
    }
  }
  EXPECT_NE(error_of(std::string(100000, '[')), "");
}

TEST(Bundle, OfOursIsVerified) {
  const std::string bytes = signed_bytes();
  for (const char* curve : {"P-256", "P-384", "P-521"}) {
    const EcKeys keys(curve);
    const auto bundle = sign_bundle(keys.secret, kName, std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(bundle) << bundle.error().message;
    const auto key = parse_bundle_key(keys.open);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_TRUE(verify_bundle(*key, *bundle, kName, std::as_bytes(std::span(bytes)), 2));
    EXPECT_FALSE(
        verify_bundle(*key, *bundle, kName, std::as_bytes(std::span(bytes)).first(4999), 2));
  }
}

TEST(BundleKeys, OfOtherKindsAreRefused) {
  for (const std::string& wrong :
       {std::string(), std::string("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
        EcKeys("secp256k1").open, EcKeys("P-256").secret}) {
    EXPECT_FALSE(parse_bundle_key(wrong)) << wrong;
  }
  const std::string bytes = "x";
  EXPECT_FALSE(sign_bundle(EcKeys("P-256").open, kName, std::as_bytes(std::span(bytes))));
  EXPECT_FALSE(sign_bundle("", kName, std::as_bytes(std::span(bytes))));
}

}  // namespace
}  // namespace ktx::trust
