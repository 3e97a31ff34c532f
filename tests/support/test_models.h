// The small trained models used by tests: tests/models of the repository, or ../shared/models
// if the repository does not carry them.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/paths.h"

namespace ktx::testing {

inline constexpr const char* kTestModels[] = {"llama",    "mixtral",   "qwen2",      "qwen2moe",
                                              "qwen3moe", "deepseek2", "deepseek2g", "deepseek3"};

// The folder of all models.
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

}  // namespace ktx::testing
