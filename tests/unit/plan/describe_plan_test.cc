#include "lib/plan/describe_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;

class DescribePlan : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_plan(make_tiny_plan(), dir_.path("p")).ok());
    auto plan = PlanFile::open(dir_.path("p"));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    plan_.emplace(plan.take());
  }
  ktx::testing::TempDir dir_;
  std::optional<PlanFile> plan_;
};

TEST_F(DescribePlan, TablesNameSectionsDevicesFormatsAndSteps) {
  const std::string text = plan_tables(plan_->view());
  for (const char* part : {"TinyForCausalLM (tiny), tiny", "2 layers, hidden 64, vocabulary 48",
                           "gguf-header", "carried", "Q4_0", "experts_gate_up", "kv B/token"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(DescribePlan, JsonHoldsTheSameNumbers) {
  const auto json = nlohmann::json::parse(plan_json(plan_->view()));
  EXPECT_EQ(json["file_bytes"], plan_->view().file_bytes);
  EXPECT_EQ(json["sections"].size(), plan_->view().sections.size());
  EXPECT_EQ(json["weights"].size(), plan_->view().blobs.size());
  EXPECT_EQ(json["facts"]["vocab_size"], 48);
  // Two key-value heads of 32 + 32, and a latent of 48, in F16.
  EXPECT_EQ(json["memory"]["kv_token_bytes"], (2 * 64 + 48) * 2);
  uint64_t bytes = 0;
  for (const auto& row : json["formats"]) bytes += row["size"].get<uint64_t>();
  uint64_t expected = 0;
  for (const BlobRecord& blob : plan_->view().blobs) expected += blob.size;
  EXPECT_EQ(bytes, expected);
}

}  // namespace
}  // namespace ktx::plan
