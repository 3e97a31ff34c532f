#include "lib/trust/bill_of_materials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ktx::trust {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

plan::PlanView view_of(std::map<std::string, std::string> general) {
  plan::PlanView plan;
  plan.facts.name = "A Model";
  plan.facts.architecture = "llama";
  plan.facts.family = "LlamaForCausalLM";
  plan.provenance.ktx_version = "0.1.0";
  plan.provenance.inputs = {{"gguf", 5, {1, 2}}, {"rules", 7, {3, 4}}};
  plan.provenance.options = {"--ctx=64"};
  plan.provenance.general = std::move(general);
  return plan;
}

TEST(BillOfMaterials, HasLicenceBaseModelsAndSource) {
  const plan::PlanView plan = view_of({{"license", "apache-2.0"},
                                       {"license.link", "https://a/licence"},
                                       {"organization", "Makers"},
                                       {"version", "v2"},
                                       {"base_model.0.name", "Base"},
                                       {"base_model.0.organization", "Others"},
                                       {"base_model.0.repo_url", "https://b/base"},
                                       {"base_model.1.repo_url", "https://c/second"},
                                       {"source.repo_url", "https://d/source"}});
  const Json found = Json::parse(cyclonedx_json(plan, std::string(64, 'a')));
  const Json& model = found["metadata"]["component"];
  EXPECT_EQ(model["name"], "A Model");
  EXPECT_EQ(model["version"], "v2");
  EXPECT_EQ(model["supplier"]["name"], "Makers");
  EXPECT_EQ(model["licenses"][0]["license"]["id"], "Apache-2.0");
  EXPECT_EQ(model["licenses"][0]["license"]["url"], "https://a/licence");
  const Json& ancestors = model["pedigree"]["ancestors"];
  ASSERT_EQ(ancestors.size(), 2u);
  EXPECT_EQ(ancestors[0]["name"], "Base");
  EXPECT_EQ(ancestors[1]["name"], "https://c/second");
  EXPECT_EQ(model["externalReferences"][0]["url"], "https://d/source");
  EXPECT_EQ(found["components"].size(), 2u);
  const std::string text = provenance_text(plan);
  EXPECT_THAT(text, HasSubstr("model        A Model (llama), version v2, by Makers\n"));
  EXPECT_THAT(text, HasSubstr("licence      apache-2.0, https://a/licence\n"));
  EXPECT_THAT(text, HasSubstr("base model   Base, by Others, https://b/base\n"));
}

TEST(BillOfMaterials, LeavesOutWhatTheGgufDoesNotSay) {
  const Json found = Json::parse(cyclonedx_json(view_of({}), std::string(64, 'a')));
  const Json& model = found["metadata"]["component"];
  for (const char* key : {"licenses", "supplier", "version", "pedigree", "externalReferences"}) {
    EXPECT_FALSE(model.contains(key)) << key;
  }
  const Json named = Json::parse(
      cyclonedx_json(view_of({{"license", "other"}, {"license.name", "own-licence"}}), "a"));
  EXPECT_EQ(named["metadata"]["component"]["licenses"][0]["license"]["name"], "own-licence");
}

// What a stranger's file says is text: no terminal sequence, no broken JSON.
TEST(BillOfMaterials, SaysHostileTextsAsText) {
  const plan::PlanView plan = view_of({{"license", "a\x1b[2Jb\n\"}\xff"}});
  const Json found = Json::parse(cyclonedx_json(plan, "a"), nullptr, false);
  EXPECT_FALSE(found.is_discarded());
  EXPECT_EQ(provenance_text(plan).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ktx::trust
