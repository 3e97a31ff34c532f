// Which layers have an indexer, by each of the keys that say it.
#include "lib/arch/indexer_layers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ktx::arch {
namespace {

using nlohmann::json;

struct Read {
  std::string full;  // "FSF"
  std::string messages;
};

Read read(json config, const std::vector<bool>& attends) {
  config["model_type"] = "glm_moe_dsa";
  const auto parsed = input::HfConfig::parse(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok());
  const families::Family* family = families::find_model_type("glm_moe_dsa");
  EXPECT_NE(family, nullptr);
  DiagSink diags;
  ConfigReader reader(*family, *parsed, diags);
  Read out;
  for (const bool full : layers_with_indexers(reader, attends)) out.full += full ? 'F' : 'S';
  for (const Diagnostic& diag : diags.all()) out.messages += diag.message + "\n";
  return out;
}

Read read(const json& config, size_t layers) {
  return read(config, std::vector<bool>(layers, true));
}

TEST(IndexerLayers, AreAllUnlessAKeySaysOtherwise) {
  EXPECT_EQ(read(json::object(), 4).full, "FFFF");
  EXPECT_EQ(read({{"indexer_types", nullptr}, {"index_topk_pattern", nullptr}}, 3).full, "FFF");
}

TEST(IndexerLayers, AreThoseOfAListAPatternOrAPeriod) {
  const json types = {"full", "shared", "full", "shared"};
  EXPECT_EQ(read({{"indexer_types", types}}, 4).full, "FSFS");
  EXPECT_EQ(read({{"index_topk_pattern", "FFSSF"}}, 5).full, "FFSSF");
  EXPECT_EQ(read({{"index_topk_freq", 4}, {"index_skip_topk_offset", 3}}, 12).full, "FFFSSSFSSSFS");
  EXPECT_EQ(read({{"index_topk_freq", 3}}, 8).full, "FFSSFSSF");
  const json all = {{"indexer_types", types}, {"index_topk_pattern", "FFFF"}};
  EXPECT_EQ(read(all, 4).full, "FSFS") << "the list comes first";
}

// The first of those that attend needs one, whatever a key says of those before it.
TEST(IndexerLayers, AreAmongThoseThatAttend) {
  const std::vector<bool> attends = {false, true, false, true};
  const json behind = {{"indexer_types", {"shared", "full", "shared", "shared"}}};
  EXPECT_EQ(read(behind, attends).messages, "");
  EXPECT_EQ(read(behind, attends).full, "SFSS");
  const json none = {{"indexer_types", {"full", "shared", "full", "full"}}};
  EXPECT_NE(read(none, attends).messages.find("layer 1 has no indexer and no layer before it"),
            std::string::npos);
  EXPECT_EQ(read(json::object(), {false, false}).messages, "");
}

TEST(IndexerLayers, MistakesAreErrors) {
  const struct {
    json config;
    const char* message;
  } kCases[] = {
      {{{"indexer_types", {"full", "shared"}}}, "'indexer_types' has 2 entries for 3 layers"},
      {{{"indexer_types", {"full", "half", "full"}}},
       "'indexer_types' has 'half' for layer 1, expected full or shared"},
      {{{"indexer_types", {"shared", "full", "full"}}}, "layer 0 has no indexer"},
      {{{"index_topk_pattern", "FS"}},
       "'index_topk_pattern' is 'FS', expected F or S for each of 3 layers"},
      {{{"index_topk_pattern", "FXS"}}, "'index_topk_pattern' is 'FXS'"},
      {{{"index_topk_pattern", 3}}, "'index_topk_pattern' is 3, expected a text"},
      {{{"index_topk_freq", 0}}, "'index_topk_freq' is 0, expected 1 to 10000"},
      {{{"index_skip_topk_offset", -1}}, "'index_skip_topk_offset' is -1"},
  };
  for (const auto& one : kCases) {
    const Read found = read(one.config, 3);
    EXPECT_NE(found.messages.find(one.message), std::string::npos)
        << "expected " << one.message << "\nfound " << found.messages;
  }
}

}  // namespace
}  // namespace ktx::arch
