// Each family of family_table.def has a model that tests build, compile and compare: a folder of
// tests/models or tests/models/synthetic whose config names it, or a reason why there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lib/families/family.h"
#include "lib/support/strings.h"
#include "tests/support/paths.h"

namespace ktx::families {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> kWithoutModel = {
    {"Qwen2VLForConditionalGeneration", "text is computed as by Qwen2"},
    {"Qwen3_5MoeForCausalLM", "a trained one, ../shared/models/qwen35moe"},
    {"Qwen3_5ForCausalLM", "as Qwen3_5MoeForCausalLM without experts"},
    {"Gemma2ForCausalLM",
     "as Gemma 3, which an odd config of synthetic_models_test.cc gives soft caps"},
    {"Gemma4UnifiedForCausalLM", "computed as gemma4"},
    {"XverseForCausalLM", "an odd shape of internlm2 in synthetic_models_test.cc"},
    {"PanguEmbeddedForCausalLM", "likewise"},
    {"BaichuanForCausalLM", "likewise"},
    {"GPTRefactForCausalLM", "likewise"},
    {"QWenLMHeadModel", "likewise"},
    {"MaincoderForCausalLM", "likewise"},
    {"PlamoForCausalLM", "likewise"},
    {"OrionForCausalLM", "likewise"},
    {"GPTBigCodeForCausalLM", "an odd shape of gpt2"},
    {"JAISLMHeadModel", "likewise"},
    {"CodeShellForCausalLM", "likewise"},
    {"Gemma3VisionTower", "a projector: tests/e2e/image_models_test.cc makes some"},
    {"PixtralVisionTower", "a projector: tests/e2e/pixtral_images_test.cc makes some"},
    {"Qwen3VisionTower", "a projector: tests/e2e/qwen3_images_test.cc makes some"},
    {"Eagle3LlamaForCausalLM", "a draft head: tests/e2e/draft_head_test.cc makes one"},
};

// Model types and architectures of all configs in the folder's folders.
std::set<std::string> names_below(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path() / "config.json");
    if (!in) continue;
    const auto config = nlohmann::json::parse(in);
    names.insert(config.value("model_type", ""));
    if (config.contains("text_config")) {
      names.insert(config["text_config"].value("model_type", ""));
    }
    for (const auto& name : config.value("architectures", nlohmann::json::array())) {
      names.insert(name.get<std::string>());
    }
  }
  return names;
}

TEST(FamilyModels, EveryFamilyHasOneOrAReason) {
  std::set<std::string> named = names_below(fs::path(source_dir()) / "tests/models");
  named.merge(names_below(fs::path(source_dir()) / "tests/models/synthetic"));
  for (const Family* family : all_families()) {
    bool has = named.contains(family->architecture);
    for (std::string_view type : split(family->model_types, ' ')) {
      has = has || named.contains(std::string(type));
    }
    EXPECT_NE(has, kWithoutModel.contains(family->architecture))
        << family->architecture
        << (has ? " has a model: remove its reason"
                : " has no model: add tests/models/synthetic/<name>/config.json and logits.txt "
                  "(make_logits.py), or a reason here");
  }
}

}  // namespace
}  // namespace ktx::families
