// ktx-run serve --require-signature: plans that are not signed, or were changed since, are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/trust/signed_plan.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/unit/plan/plan_bytes.h"

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

// A key pair that signs as minisign does; minisign_test.cc has what minisign itself signed.
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
  void sign(const std::string& path) const { sign(path, read_file(path)); }
  // Into path.minisig.
  void sign(const std::string& path, const std::string& bytes) const {
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
  // What a server says that does not start. Its port was never open.
  std::string refusal(const std::string& key, const std::string& plan) {
    const Finished run =
        run_program({ktx_run(), "serve", plan, "--port", "0", "--require-signature", key});
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_EQ(run.err.find("listening"), run.err.npos) << run.err;
    return run.err;
  }
  std::string root() {
    const Finished run = run_program({ktx_run(), "inspect", plan_, "--root"});
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  }
  std::vector<std::byte> bytes() const { return plan::read_bytes(plan_); }
  void replace(const std::vector<std::byte>& bytes) {
    dir_.write("m.ktxplan", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
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

TEST_F(ServeSignature, OfTheRootIsServed) {
  signer_.sign(plan_ + ".root", root());
  ServerProcess server({plan_, "--require-signature", signer_.public_key()});
  EXPECT_EQ(server.get("/health").status, 200);
}

// By someone who corrects all other hashes: of chunks, blobs, sections and header. With the digests
// corrected too the root is another one.
TEST_F(ServeSignature, ForgedPlansOfASignedRootAreRefused) {
  signer_.sign(plan_ + ".root", root());
  const std::vector<std::byte> whole = bytes();
  int forged = 0;
  for (const bool digests_too : {false, true}) {
    std::vector<std::byte> original = whole;
    for (const plan::SectionEntry& section : plan::sections(original)) {
      if (section.size == 0) continue;
      std::vector<std::byte> changed = whole;
      changed[section.offset + section.size / 2] ^= std::byte{1};
      plan::fix_weight_hashes(changed);
      if (digests_too) plan::fix_digests(changed);
      plan::fix_hashes(changed);
      if (changed == whole) continue;  // a hash, which is right again
      replace(changed);
      EXPECT_THAT(refusal(signer_.public_key(), plan_), HasSubstr("m.ktxplan: "))
          << "section " << section.id;
      ++forged;
    }
  }
  EXPECT_GE(forged, 40);
}

// Any byte, wherever it is: header, tables, text, weights, what is between them. Changed as it is,
// under a signature of all bytes; and with all hashes corrected, under one of the root.
TEST_F(ServeSignature, HundredsOfChangedBytesAreRefused) {
  constexpr unsigned kSeed = 20261130;
  constexpr int kBytes = 400;
  const trust::SignatureKey key = trust::read_signature_key(signer_.public_key()).take();
  const auto refused = [&](const std::vector<std::byte>& forged) {
    replace(forged);
    return !trust::verify_plan(key, plan_, {.threads = 1}).ok();
  };
  const std::vector<std::byte> whole = bytes();
  const size_t weights = plan::find_section(whole, plan::SectionId::WeightData)->offset;
  std::mt19937 random(kSeed);
  std::vector<std::pair<size_t, std::byte>> changes;
  for (int i = 0; i < kBytes; ++i) {
    // Half of them in front of the weights, which would leave few of these.
    const size_t end = i % 2 == 0 ? whole.size() : weights;
    changes.emplace_back(random() % end, std::byte(1 + random() % 255));
  }
  for (const bool of_root : {false, true}) {
    of_root ? signer_.sign(plan_ + ".root", root()) : signer_.sign(plan_);
    ASSERT_FALSE(refused(whole));
    for (const auto& [at, change] : changes) {
      std::vector<std::byte> forged = whole;
      forged[at] ^= change;
      EXPECT_TRUE(refused(forged)) << "byte " << at << ", seed " << kSeed;
      // The header says where hashes are: one that does not fit the file cannot be corrected.
      if (!of_root || at < plan::prefix(forged).header_bytes) continue;
      plan::fix_weight_hashes(forged);
      if (random() % 2 == 0) plan::fix_digests(forged);
      plan::fix_hashes(forged);
      if (forged == whole) continue;  // a hash, which is right again
      EXPECT_TRUE(refused(forged)) << "byte " << at << ", seed " << kSeed;
    }
    replace(whole);
  }
}

// Weights that are checked while the server answers: a wrong one ends it.
TEST_F(ServeSignature, WeightsCheckedMeanwhileEndTheServer) {
  signer_.sign(plan_ + ".root", root());
  const std::vector<std::string> options = {plan_, "--require-signature", signer_.public_key(),
                                            "--signed-weights=meanwhile"};
  {
    ServerProcess server(options);
    EXPECT_EQ(server.get("/health").status, 200);
    while (server.log().find("all weights are those that were signed") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(server.stop(SIGTERM), 0) << server.log();
  }
  std::vector<std::byte> changed = bytes();
  const plan::SectionEntry* weights = plan::find_section(changed, plan::SectionId::WeightData);
  changed[weights->offset + weights->size / 2] ^= std::byte{1};
  replace(changed);
  std::vector<std::string> command = {ktx_run(), "serve", "--port=0"};
  command.insert(command.end(), options.begin(), options.end());
  const Finished run = run_program(command);
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err, HasSubstr("m.ktxplan: "));
}

TEST_F(ServeSignature, OfWeightsNeedsAKey) {
  const Finished run = run_program({ktx_run(), "serve", plan_, "--signed-weights", "meanwhile"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("--signed-weights goes with --require-signature KEY"));
}

// The tables of a plan are read before the port opens.
TEST_F(ServeSignature, WithoutOneACutPlanIsRefusedBeforeThePortOpens) {
  fs::resize_file(plan_, fs::file_size(plan_) / 2);
  const Finished run = run_program({ktx_run(), "serve", plan_, "--port", "0"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("the file was cut off"));
  EXPECT_EQ(run.err.find("listening"), run.err.npos) << run.err;
}

// What a folder holds is verified when it is loaded; a key that cannot be read, at once.
TEST_F(ServeSignature, OfAFolderIsRequiredWhenAModelIsLoaded) {
  EXPECT_THAT(refusal(dir_.path("missing.pub"), dir_.path()), HasSubstr("no such file"));
  const std::vector<std::string> options = {dir_.path(), "--require-signature",
                                            signer_.public_key()};
  const std::string request = R"({"model": "m", "prompt": "a", "max_tokens": 1})";
  ServerProcess refuses(options);
  EXPECT_THAT(refuses.post("/v1/completions", request).body, HasSubstr("not signed"));
  signer_.sign(plan_);
  ServerProcess serves(options);
  EXPECT_EQ(serves.post("/v1/completions", request).status, 200) << serves.log();
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
