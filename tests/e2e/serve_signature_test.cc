// ktx-run serve --require-signature: plans that are not signed, or were changed since, are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/http_client.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string base64(const std::string& bytes) {
  std::string text(bytes.size() * 2 + 8, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

// A key pair that signs as minisign does; signature_test.cc has what minisign itself signed.
class Signer {
 public:
  explicit Signer(char seed) : id_(8, seed) {
    const std::string secret(32, seed);
    key_.reset(EVP_PKEY_new_raw_private_key(
        EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(secret.data()), 32));
  }
  std::string public_key() const {
    std::string bytes(32, '\0');
    size_t size = bytes.size();
    EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(bytes.data()), &size);
    return base64("Ed" + id_ + bytes);
  }
  void sign(const std::string& path) const {
    const std::string bytes = read_file(path);
    std::string digest(64, '\0');
    EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
               EVP_blake2b512(), nullptr);
    const std::string signature = sign_bytes(digest), comment = "made by a test";
    std::ofstream(path + ".minisig")
        << "untrusted comment: x\n"
        << base64("ED" + id_ + signature) << "\ntrusted comment: " << comment << "\n"
        << base64(sign_bytes(signature + comment)) << "\n";
  }

 private:
  std::string sign_bytes(const std::string& bytes) const {
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
    std::string signature(64, '\0');
    size_t size = signature.size();
    EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get());
    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                   reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return signature;
  }

  std::string id_;
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_{nullptr, EVP_PKEY_free};
};

class ServeSignature : public ::testing::Test {
 protected:
  void SetUp() override {
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan_});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  // What a server says that does not start.
  std::string refusal(const std::string& key, const std::string& plan) {
    const Finished run =
        run_program({ktx_run(), "serve", plan, "--port", "0", "--require-signature", key});
    EXPECT_EQ(run.status, 1) << run.err;
    return run.err;
  }

  TempDir dir_;
  const std::string plan_ = dir_.path("m.ktxplan");
  const Signer signer_{'s'};
};

TEST_F(ServeSignature, OfTheRequiredKeyIsServed) {
  signer_.sign(plan_);
  const std::string file =
      dir_.write("key.pub", "untrusted comment: x\n" + signer_.public_key() + "\n");
  for (const std::string& key : {signer_.public_key(), file}) {
    ServerProcess server({plan_, "--require-signature", key});
    EXPECT_EQ(server.get("/health").status, 200);
  }
}

TEST_F(ServeSignature, MissingOrOfAnotherKeyIsRefused) {
  EXPECT_THAT(refusal(signer_.public_key(), plan_), HasSubstr("not signed: there is no "));
  Signer('t').sign(plan_);
  EXPECT_THAT(refusal(signer_.public_key(), plan_), HasSubstr("not with the required "));
  signer_.sign(plan_);
  EXPECT_THAT(refusal("missing.pub", plan_), HasSubstr("no such file"));
  std::ofstream(plan_, std::ios::app) << 'x';
  EXPECT_NE(refusal(signer_.public_key(), plan_), "");
}

// A byte of each section: tables, template, tokenizer, provenance, and of the weights.
TEST_F(ServeSignature, ForgedPlansAreRefused) {
  signer_.sign(plan_);
  const Finished inspected = run_program({ktx_run(), "inspect", plan_, "--json"});
  const Json sections = Json::parse(inspected.out)["sections"];
  ASSERT_GE(sections.size(), 24u);
  const std::string whole = read_file(plan_);
  int refused = 0;
  for (const Json& section : sections) {
    const auto size = section["size"].get<size_t>();
    if (size == 0) continue;
    std::string forged = whole;
    forged[section["offset"].get<size_t>() + size / 2] ^= 1;
    dir_.write("m.ktxplan", forged);
    EXPECT_THAT(refusal(signer_.public_key(), plan_), HasSubstr("m.ktxplan: ")) << section["name"];
    ++refused;
  }
  EXPECT_GE(refused, 20);
}

// A plan that no other check would refuse: one of another model, with a signature that was moved.
TEST_F(ServeSignature, OfAnotherPlanIsRefused) {
  signer_.sign(plan_);
  const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen2"), "-o", plan_});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(refusal(signer_.public_key(), plan_),
              HasSubstr("the signature is not of this file: one of the two was changed"));
}

TEST_F(ServeSignature, IsRequiredOfADraftPlanToo) {
  signer_.sign(plan_);
  const std::string draft = dir_.path("d.ktxplan");
  fs::copy(plan_, draft);
  const Finished run = run_program({ktx_run(), "serve", plan_, "--port", "0", "--draft", draft,
                                    "--require-signature", signer_.public_key()});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("d.ktxplan: not signed"));
}

}  // namespace
}  // namespace ktx::testing
