// The small trained models used by tests: tests/models of the repository, or ../shared/models
// for those that the repository does not carry.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ktx::testing {

inline constexpr const char* kTestModels[] = {"llama",    "mixtral",   "qwen2",    "qwen2moe",
                                              "qwen3moe", "deepseek2", "deepseek3"};

// Models that may exist only in ../shared/models. Their references are exact if the
// whole cache is F32.
inline constexpr const char* kSharedModels[] = {"glm4_moe",  "minimax_m2",   "glm4_moe_lite",
                                                "gemma3",    "gpt_oss",      "qwen3_next",
                                                "qwen35moe", "deepseek_v32", "deepseek2g"};

// The ones among these that have states of a fixed size.
inline constexpr const char* kDeltaNetModels[] = {"qwen3_next", "qwen35moe"};

// The folder of all models of the first list.
inline std::string test_models_dir() {
  const std::string copied = source_dir() + "/tests/models";
  return std::filesystem::exists(copied + "/qwen3moe") ? copied : shared_dir() + "/models";
}

// The model's folder, or "" when it is nowhere.
inline std::string test_model_dir(const std::string& name) {
  for (const std::string& root : {source_dir() + "/tests/models/", shared_dir() + "/models/"}) {
    const std::string dir = root + name;
    if (std::filesystem::exists(dir + "/" + name + "-q4_k_m.gguf") &&
        std::filesystem::exists(dir + "/config.json")) {
      return dir;
    }
  }
  return "";
}

inline std::string test_model_gguf(const std::string& name) {
  const std::string dir = test_model_dir(name);
  return dir.empty() ? "" : dir + "/" + name + "-q4_k_m.gguf";
}

// kTestModels, and those of kSharedModels that are there.
inline std::vector<const char*> present_models() {
  std::vector<const char*> models(std::begin(kTestModels), std::end(kTestModels));
  for (const char* name : kSharedModels) {
    if (!test_model_dir(name).empty()) models.push_back(name);
  }
  return models;
}

}  // namespace ktx::testing
