// The tree of SHA-256 over a plan: its root names every byte, and each byte is checked against it.
#include "lib/plan/digests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::TempDir;
using ::testing::HasSubstr;

class Digests : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_plan(make_tiny_plan(), dir_.path("p")).ok());
    bytes_ = read_bytes(dir_.path("p"));
  }
  // What a reader that checks everything says of these bytes; "" when it takes them.
  std::string refusal(const std::vector<std::byte>& bytes, const std::string& name = "forged") {
    dir_.write(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    const auto plan =
        PlanFile::open(dir_.path(name), {.verify_weights = true, .verify_digests = true});
    return plan ? "" : plan.error().message;
  }
  std::string root_of(const std::vector<std::byte>& bytes) {
    dir_.write("rooted", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    const auto plan = PlanFile::open(dir_.path("rooted"));
    return plan ? to_hex(*root_digest(plan->view())) : plan.error().message;
  }

  TempDir dir_;
  std::vector<std::byte> bytes_;
};

TEST_F(Digests, HoldForWhatTheWriterWrites) {
  EXPECT_EQ(refusal(bytes_), "");
  EXPECT_EQ(root_of(bytes_).size(), 64u);
}

// Someone who can write the file can write its XXH3 hashes: of all sections, chunks, blobs and of
// the header. Every section is sampled, its first, middle and last byte.
TEST_F(Digests, ForgeriesWithRightHashesAreFound) {
  int forged = 0;
  for (const SectionEntry& section : sections(bytes_)) {
    for (const uint64_t at : {uint64_t{0}, section.size / 2, section.size - 1}) {
      if (section.size == 0 || section.id == static_cast<uint32_t>(SectionId::Digests)) continue;
      auto bytes = bytes_;
      bytes[section.offset + at] ^= std::byte{1};
      fix_weight_hashes(bytes);
      fix_hashes(bytes);
      if (bytes == bytes_) continue;  // a hash, which is right again
      EXPECT_NE(refusal(bytes), "") << "section " << section.id << " at " << at;
      ++forged;
    }
  }
  EXPECT_GE(forged, 60);
}

// The messages are those of SHA-256, not those of a later check that happens to notice.
TEST_F(Digests, NameWhatWasChanged) {
  const auto changed = [&](SectionId id) {
    auto bytes = bytes_;
    const SectionEntry* section = find_section(bytes, id);
    bytes[section->offset + section->size / 2] ^= std::byte{1};
    fix_weight_hashes(bytes);
    fix_hashes(bytes);
    return refusal(bytes);
  };
  EXPECT_THAT(changed(SectionId::ChatTemplate), HasSubstr("section 'chat-template' has a different "
                                                          "SHA-256"));
  EXPECT_THAT(changed(SectionId::Tokenizer),
              HasSubstr("section 'tokenizer' has a different SHA-256"));
  EXPECT_THAT(changed(SectionId::Provenance), HasSubstr("'provenance' has a different SHA-256"));
  // The blobs' hashes follow the weights, and the digest of their section is the first to differ.
  EXPECT_THAT(changed(SectionId::WeightData), HasSubstr("has a different SHA-256"));
}

// Weights whose hashes were left out of the chunks: their digest differs.
TEST_F(Digests, OfWeightsAreCheckedToo) {
  auto bytes = bytes_;
  const SectionEntry* weights = find_section(bytes, SectionId::WeightData);
  const SectionEntry* digests = find_section(bytes, SectionId::Digests);
  // The last digest is that of the carried segment, the one before it that of the weights.
  bytes[digests->offset + digests->size - 2 * sizeof(DigestRecord)] ^= std::byte{1};
  fix_hashes(bytes);
  EXPECT_THAT(refusal(bytes), HasSubstr("have another SHA-256 than the plan says"));
  EXPECT_EQ(weights->hash, Hash128{});
}

// Any change that the digests follow changes the root: that is what a signature holds.
TEST_F(Digests, FollowedChangesChangeTheRoot) {
  const std::string root = root_of(bytes_);
  auto bytes = bytes_;
  const SectionEntry* section = find_section(bytes, SectionId::Tokenizer);
  bytes[section->offset] ^= std::byte{1};
  fix_hashes(bytes);
  fix_digests(bytes);
  fix_hashes(bytes);
  EXPECT_EQ(refusal(bytes), "");
  EXPECT_NE(root_of(bytes), root);
  auto flags = bytes_;  // the header alone
  find_section(flags, SectionId::Digests)->flags = 4;
  fix_hashes(flags);
  EXPECT_NE(root_of(flags), root);
}

TEST_F(Digests, MissingOnesAreAnErrorWhereTheyAreWanted) {
  auto bytes = bytes_;
  find_section(bytes, SectionId::Digests)->id = 200;  // an unknown section, not required
  fix_hashes(bytes);
  EXPECT_THAT(refusal(bytes), HasSubstr("without SHA-256 digests; compile it again"));
  dir_.write("old", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  EXPECT_TRUE(PlanFile::open(dir_.path("old"), {.verify_weights = true}).ok());
}

TEST_F(Digests, OneForEachPieceOfEachSection) {
  EXPECT_EQ(refusal(with_extra_section(bytes_, 200, 0, "more")), "");
  auto fewer = bytes_;
  find_section(fewer, SectionId::Digests)->size -= sizeof(DigestRecord);
  fix_hashes(fewer);
  EXPECT_NE(refusal(fewer), "");
  const auto plan = PlanFile::open(dir_.path("p"));
  uint64_t covered = 0;
  const auto pieces = digest_pieces(plan->view());
  for (const DigestPiece& piece : *pieces) covered += piece.size;
  uint64_t all = 0;
  for (const SectionEntry& section : plan->view().sections) all += section.size;
  EXPECT_EQ(covered + plan->view().digests.size_bytes(), all);
}

}  // namespace
}  // namespace ktx::plan
