// model-signing (https://github.com/sigstore/model-transparency) verifies our bundles, and we
// verify its. It is not part of this repository:
//
//   python3 -m venv ms && ms/bin/pip install model-signing pyopenssl
//   KTX_MODEL_SIGNING=ms/bin/model_signing build-release/tests/test_e2e
//   --gtest_filter='ModelSigning.*'
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/ec_keys.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

class ModelSigning : public ::testing::Test {
 protected:
  void SetUp() override {
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan_});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  // Empty where it is not installed.
  static std::string program() {
    if (const char* given = std::getenv("KTX_MODEL_SIGNING")) return given;
    const Finished found = run_program({"/bin/sh", "-c", "command -v model_signing"});
    return found.out.substr(0, found.out.find('\n'));
  }
  Finished model_signing(const char* what, const std::string& path, const std::string& signature,
                         const std::string& key) {
    const std::string option = what == std::string("sign") ? "--private_key" : "--public_key";
    return run_program({program(), what, "key", path, "--signature", signature, option, key});
  }

  TempDir dir_;
  const std::string plan_ = dir_.path("m.ktxplan");
  const EcKeys keys_{"P-256"};
  const std::string secret_ = dir_.write("key.pem", keys_.secret);
  const std::string open_ = dir_.write("key.pub", keys_.open);
};

TEST_F(ModelSigning, VerifiesOurBundles) {
  const Finished signed_plan = run_program({ktx_run(), "inspect", plan_, "--sign", secret_});
  ASSERT_EQ(signed_plan.status, 0) << signed_plan.err;
  if (program().empty()) GTEST_SKIP() << "model-signing is not installed";
  const Finished right = model_signing("verify", plan_, plan_ + ".sig", open_);
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  std::string bytes = read_file(plan_);
  bytes[bytes.size() / 2] ^= 1;
  dir_.write("m.ktxplan", bytes);
  EXPECT_NE(model_signing("verify", plan_, plan_ + ".sig", open_).status, 0);
}

TEST_F(ModelSigning, SignsWhatWeVerify) {
  if (program().empty()) GTEST_SKIP() << "model-signing is not installed";
  const auto verify = [&] {
    return run_program({ktx_run(), "inspect", plan_, "--root", "--verify-signature", open_});
  };
  EXPECT_EQ(verify().status, 1);
  ASSERT_EQ(model_signing("sign", plan_, plan_ + ".sig", secret_).status, 0);
  EXPECT_EQ(verify().status, 0) << verify().err;
  // A bundle of the root, which is the line that --root prints.
  const std::string root = dir_.write("m.ktxplan.root", verify().out);
  ASSERT_EQ(model_signing("sign", root, root + ".sig", secret_).status, 0);
  EXPECT_THAT(verify().err, HasSubstr("m.ktxplan.root.sig"));
  EXPECT_EQ(verify().status, 0);
  ServerProcess server({plan_, "--require-signature", open_});
  EXPECT_EQ(server.get("/health").status, 200);
}

// With our own bundles alone, where model-signing is missing.
TEST_F(ModelSigning, BundlesAreRequiredByServe) {
  const auto serve = [&] {
    return run_program({ktx_run(), "serve", plan_, "--port=0", "--require-signature", open_});
  };
  EXPECT_THAT(serve().err, HasSubstr("not signed: there is no "));
  ASSERT_EQ(run_program({ktx_run(), "inspect", plan_, "--sign", secret_}).status, 0);
  {
    ServerProcess server({plan_, "--require-signature", open_});
    EXPECT_EQ(server.get("/health").status, 200);
  }
  std::string bytes = read_file(plan_);
  bytes[bytes.size() / 2] ^= 1;
  dir_.write("m.ktxplan", bytes);
  const Finished run = serve();
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("are not those that were signed"));
  EXPECT_EQ(run.err.find("listening"), run.err.npos);
}

TEST_F(ModelSigning, ReportsKeysThatCannotSign) {
  const Finished run = run_program({ktx_run(), "inspect", plan_, "--sign", open_});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("key.pub: a public key; give the private one"));
  const Finished other =
      run_program({ktx_run(), "inspect", plan_, "--sign", dir_.write("x", "RWQ")});
  EXPECT_THAT(other.err, HasSubstr("not a key of ECDSA over P-256, P-384 or P-521"));
  const Finished secret = run_program({ktx_run(), "inspect", plan_, "--verify-signature", secret_});
  EXPECT_EQ(secret.status, 1);
  EXPECT_THAT(secret.err, HasSubstr("key.pem: a private key; give the public one: openssl ec"));
}

// What was asked for, and no tables.
TEST_F(ModelSigning, SigningPrintsNothingElse) {
  const Finished run = run_program({ktx_run(), "inspect", plan_, "--sign", secret_});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("m.ktxplan.sig: written"));
  const Finished check = run_program({ktx_run(), "inspect", plan_, "--verify-signature", open_});
  EXPECT_EQ(check.out, "");
  EXPECT_THAT(check.err, HasSubstr("all of it is signed with the key"));
}

}  // namespace
}  // namespace ktx::testing
